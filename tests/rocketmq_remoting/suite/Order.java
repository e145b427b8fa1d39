// Consuming in order.

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.message.MessageQueue;

final class Order {
  private static final int MANY = 30;

  private Order() {}

  static void table(Suite suite) {
    suite.add("order.queue", "Messages of a queue come in their order", x -> {
      Reader reader = x.reader().orderly().start();
      x.sendTo(x.queues().get(2), Scene.numbers(MANY));
      reader.getsInOrder(Scene.numbers(MANY));
    });
    suite.add("order.one-queue", "A topic of one queue has one order", x -> {
      Reader reader = x.reader().orderly().start();
      x.send(Scene.numbers(MANY));
      reader.getsInOrder(Scene.numbers(MANY));
    }).queues(1);
    suite.add("order.keys", "Messages of each key come in their order", x -> {
      Reader reader = x.reader().orderly().start();
      keyed(x, 0, 10);
      keysInOrder(List.of(reader), 10);
    });
    suite.add("order.failing", "A message that fails holds up its queue, and only that", x -> {
      Reader reader = x.reader().orderly()
          .handling((message, times) -> !Scene.body(message).equals("2") || times >= 3).start();
      x.sendTo(x.queues().get(0), "1", "2", "3");
      x.sendTo(x.queues().get(1), "a", "b");
      reader.gets(8);
      List<String> first = new ArrayList<>(reader.bodies());
      first.removeAll(List.of("a", "b"));
      Check.equal(List.of("1", "2", "2", "2", "2", "3"), first);
    });
    suite.add("order.throwing", "An exception is a failure", x -> {
      Reader reader = x.reader().orderly().handling((message, times) -> {
        if (times == 0) {
          throw new IllegalStateException("the listener fails");
        }
        return true;
      }).start();
      x.sendTo(x.queues().get(0), "1", "2");
      reader.getsInOrder("1", "1", "2", "2");
    });
    suite.add("order.one-at-a-time", "No queue has two messages in work", x -> {
      Set<Integer> busy = Collections.synchronizedSet(new HashSet<>());
      List<Object> twice = new CopyOnWriteArrayList<>();
      Reader.Handler slow = (message, times) -> {
        int key = (message.getBrokerName() + message.getQueueId()).hashCode();
        if (!busy.add(key)) {
          twice.add(message);
        }
        Thread.sleep(15);
        busy.remove(key);
        return true;
      };
      Reader first = x.reader().orderly().handling(slow).start();
      keyed(x, 0, 10);
      Reader second = x.reader().orderly().handling(slow).start();
      keyed(x, 10, 20);
      keysInOrder(List.of(first, second), 20);
      Check.equal(List.of(), twice);
    });
    suite.add("order.joins", "Order holds when a member joins", x -> {
      List<Reader> members = new ArrayList<>(List.of(x.reader().orderly().start()));
      keyed(x, 0, 10);
      members.add(x.reader().orderly().start());
      keyed(x, 10, 20);
      keysInOrder(members, 20);
    });
    suite.add("order.leaves", "Order holds when a member leaves", x -> {
      List<Reader> members =
          List.of(x.reader().orderly().start(), x.reader().orderly().start());
      keyed(x, 0, 10);
      members.get(0).stop();
      keyed(x, 10, 20);
      keysInOrder(members, 20);
    });
    suite.add("order.restarted", "A consumer in order goes on where it was", x -> {
      Reader first = x.reader().orderly().start();
      x.sendTo(x.queues().get(0), "1", "2");
      first.getsInOrder("1", "2");
      first.stop();
      x.sendTo(x.queues().get(0), "3", "4");
      x.reader().orderly().start().getsInOrder("3", "4");
    });
    suite.add("order.several", "A listener in order gets several messages, in order", x -> {
      x.sendTo(x.queues().get(0), Scene.numbers(MANY));
      x.reader().orderly().with(consumer -> consumer.setConsumeMessageBatchMaxSize(7)).start()
          .getsInOrder(Scene.numbers(MANY));
    });
    suite.add("order.given-up", "A message given up in order is one dead letter", x -> {
      Reader reader = x.reader().orderly().with(consumer -> consumer.setMaxReconsumeTimes(2))
          .handling((message, times) -> !Scene.body(message).equals("poison")).start();
      x.sendTo(x.queues().get(0), "before", "poison", "after");
      reader.getsInOrder("before", "poison", "poison", "poison", "after");
      Reader letters = Retries.letters(x);
      letters.getsOnly("poison");
    });
    suite.add("order.counts", "A consumer in order sees how often a message failed", x -> {
      List<Integer> counts = new CopyOnWriteArrayList<>();
      Reader reader = x.reader().orderly().handling((message, times) -> {
        counts.add(message.getReconsumeTimes());
        return times >= 2;
      }).start();
      x.send("one");
      reader.getsOnly("one", "one", "one");
      Check.equal(List.of(0, 1, 2), counts);
    });
  }

  static void keyed(Scene x, int first, int end) throws Exception {
    for (int number = first; number < end; number++) {
      for (String key : List.of("red", "green", "blue", "black")) {
        x.stored(x.producer().send(
            x.message(key + "-" + number), new SelectMessageQueueByHash(), key));
      }
    }
  }

  /** Each key's 0 to count - 1, for the first time, in their order; some may come twice. */
  static void keysInOrder(List<Reader> readers, int count) throws Exception {
    Check.soon(() -> first(readers).size() >= 4 * count, count + " of each key");
    Map<String, Integer> next = new HashMap<>();
    for (String body : first(readers)) {
      String[] parts = body.split("-");
      int expected = next.merge(parts[0], 1, Integer::sum) - 1;
      Check.equal(expected, Integer.parseInt(parts[1]));
    }
  }

  /** When each body came first. */
  private static List<String> first(List<Reader> readers) {
    Map<String, Long> times = new ConcurrentHashMap<>();
    List<Reader.Got> all = new ArrayList<>();
    readers.forEach(reader -> all.addAll(reader.got));
    all.sort(java.util.Comparator.comparingLong(Reader.Got::atMs));
    List<String> bodies = new ArrayList<>();
    for (Reader.Got got : all) {
      if (times.putIfAbsent(got.body(), got.atMs()) == null) {
        bodies.add(got.body());
      }
    }
    return bodies;
  }
}
