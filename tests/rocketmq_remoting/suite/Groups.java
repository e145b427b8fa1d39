// Consumers of one group, of several groups, and of all messages each.

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.common.message.Message;

final class Groups {
  private static final int MANY = 60;

  private Groups() {}

  static void table(Suite suite) {
    sharing(suite);
    changes(suite);
    listening(suite);
    broadcasting(suite);
  }

  private static void sharing(Suite suite) {
    suite.add("group.one", "One consumer gets every message of every queue once", x -> {
      Reader reader = x.reader().start();
      x.send(Scene.numbers(MANY));
      reader.getsOnly(Scene.numbers(MANY));
    });
    for (int count : new int[] {2, 4}) {
      suite.add("group.members-" + count, count + " members share the messages, each once", x -> {
        List<Reader> members = members(x, count);
        x.send(Scene.numbers(MANY));
        shared(members, MANY);
        for (Reader member : members) {
          Check.that(!member.got.isEmpty(), "a member without messages");
        }
      });
    }
    suite.add("group.more-than-queues", "Members beyond the queues get nothing", x -> {
      List<Reader> members = members(x, 3);
      x.send(Scene.numbers(MANY));
      shared(members, MANY);
      Check.equal(1L, members.stream().filter(each -> each.got.isEmpty()).count());
    }).queues(2);
    suite.add("group.two-groups", "Each of two groups gets every message", x -> {
      Reader first = x.reader(x.group("first")).start();
      Reader second = x.reader(x.group("second")).start();
      x.send(Scene.numbers(20));
      first.getsOnly(Scene.numbers(20));
      second.getsOnly(Scene.numbers(20));
    });
    suite.add("group.two-topics", "A consumer of two topics gets the messages of both", x -> {
      Reader reader = x.reader().topic(x.topic(0), MessageSelector.byTag("*"))
          .topic(x.topic(1), MessageSelector.byTag("a")).start();
      x.send(x.message("first"));
      x.send(new Message(x.topic(1), "a", "second".getBytes()));
      x.send(new Message(x.topic(1), "b", "other".getBytes()));
      reader.getsOnly("first", "second");
    }).topics(2);
    suite.add("group.members-of-two-topics", "Members share both of two topics", x -> {
      List<Reader> members = new ArrayList<>();
      for (int number = 0; number < 2; number++) {
        members.add(x.reader().topic(x.topic(0), MessageSelector.byTag("*"))
            .topic(x.topic(1), MessageSelector.byTag("*")).start());
      }
      settle(x, members);
      for (String body : Scene.numbers(MANY)) {
        x.send(new Message(x.topic(Integer.parseInt(body) % 2), body.getBytes()));
      }
      shared(members, MANY);
    }).topics(2);
    suite.add("group.before-and-after", "Messages from before and after its start come", x -> {
      x.send("before");
      Reader reader = x.reader().start();
      reader.gets(1);
      x.send("after");
      reader.getsOnly("before", "after");
    });
    suite.add("group.woken", "A consumer that waits gets a message within 100 ms", x -> {
      Reader reader = x.reader().start();
      x.send("first");
      reader.gets(1);
      List<Long> tookMs = new ArrayList<>();
      for (int number = 0; number < 9; number++) {
        Thread.sleep(100);
        int before = reader.got.size();
        long sent = System.currentTimeMillis();
        x.send("m" + number);
        reader.gets(before + 1);
        tookMs.add(reader.got.get(before).atMs() - sent);
      }
      tookMs.sort(null);
      Check.that(tookMs.get(4) < 100, "median of " + tookMs);
    }).alone();
  }

  private static void changes(Suite suite) {
    suite.add("members.joins", "A member that joins takes queues over", x -> {
      Reader first = x.reader().start();
      x.send(Scene.numbers(MANY));
      first.gets(MANY);
      Reader second = x.reader().start();
      settle(x, List.of(first, second));
      int before = first.got.size();
      x.send(range(MANY, 2 * MANY));
      Check.soon(() -> different(first, second) == 2 * MANY, "all messages");
      Check.that(first.got.size() > before && !second.got.isEmpty(), "one has them all");
    });
    suite.add("members.leaves", "What a member leaves, the others take over", x -> {
      List<Reader> members = members(x, 3);
      x.send(Scene.numbers(MANY));
      shared(members, MANY);
      members.get(0).stop();
      x.send(range(MANY, 2 * MANY));
      Reader[] all = members.toArray(new Reader[0]);
      Check.soon(() -> different(all) == 2 * MANY, "all messages");
    });
    suite.add("members.come-and-go", "Nothing is lost while members come and go", x -> {
      List<Reader> members = new ArrayList<>(List.of(x.reader().start()));
      AtomicInteger sent = new AtomicInteger();
      for (int round = 0; round < 4; round++) {
        for (int number = 0; number < 25; number++) {
          x.send(String.valueOf(sent.getAndIncrement()));
        }
        Reader next = x.reader().start();
        members.add(next);
        if (round % 2 == 1) {
          members.get(round - 1).stop();
        }
      }
      Check.soon(() -> different(members.toArray(new Reader[0])) == sent.get(), "all messages");
      int calls = members.stream().mapToInt(each -> each.got.size()).sum();
      Check.that(calls - sent.get() < 50, (calls - sent.get()) + " messages came twice");
    });
    suite.add("members.restarted", "A consumer that starts again goes on where it was", x -> {
      Reader first = x.reader().start();
      x.send("1", "2", "3");
      first.getsOnly("1", "2", "3");
      first.stop();
      x.send("4", "5");
      x.reader().start().getsOnly("4", "5");
    });
    suite.add("members.all-gone", "What is sent while no member is there comes later", x -> {
      Reader first = x.reader().start();
      x.send("1");
      first.getsOnly("1");
      first.stop();
      x.send(range(2, 30));
      x.reader().start().getsOnly(range(2, 30));
    });
    suite.add("members.subscribes-later", "A running consumer can subscribe to another topic", x -> {
      Reader reader = x.reader().start();
      x.send("first");
      reader.gets(1);
      reader.consumer.subscribe(x.topic(1), "*");
      x.send(new Message(x.topic(1), "second".getBytes()));
      reader.getsOnly("first", "second");
    }).topics(2);
    suite.add("members.unsubscribes", "A running consumer can give up a topic", x -> {
      Reader reader = x.reader().topic(x.topic(0), MessageSelector.byTag("*"))
          .topic(x.topic(1), MessageSelector.byTag("*")).start();
      x.send(new Message(x.topic(1), "second".getBytes()));
      reader.gets(1);
      reader.consumer.unsubscribe(x.topic(1));
      // The client knows at its next rebalance, after up to 20 s.
      Thread.sleep(22_000);
      x.send(new Message(x.topic(1), "unwanted".getBytes()));
      x.send(x.message("first"));
      reader.getsOnly("second", "first");
    }).topics(2);
    suite.add("members.suspended", "A consumer that is suspended gets nothing until it resumes", x -> {
      Reader reader = x.reader().start();
      x.send("1");
      reader.getsOnly("1");
      reader.consumer.suspend();
      // A pull that waits takes one more message of its queue.
      x.send(Scene.numbers(8));
      Thread.sleep(500);
      int seen = reader.got.size();
      x.send(range(8, 16));
      Thread.sleep(1_500);
      Check.that(reader.got.size() <= seen + 4, "suspended, and got " + reader.bodies());
      reader.consumer.resume();
      Check.soon(() -> different(reader) == 16, "the others");
    });
  }

  private static void listening(Suite suite) {
    suite.add("listener.several", "A listener gets several messages at once if it asks so", x -> {
      AtomicInteger most = new AtomicInteger();
      x.sendTo(x.queues().get(0), Scene.numbers(40));
      List<String> got = new java.util.concurrent.CopyOnWriteArrayList<>();
      var consumer = x.reader().consumer;
      consumer.setConsumeMessageBatchMaxSize(10);
      consumer.subscribe(x.topic(), "*");
      consumer.registerMessageListener(
          (org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently)
              (messages, context) -> {
                most.accumulateAndGet(messages.size(), Math::max);
                got.addAll(Scene.bodies(messages));
                return org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus
                    .CONSUME_SUCCESS;
              });
      consumer.start();
      x.atEnd(consumer::shutdown);
      Check.soon(() -> got.size() >= 40, "all messages");
      Check.that(2 <= most.get() && most.get() <= 10, "at once: " + most);
    });
    suite.add("listener.at-once", "A listener is called by several threads at once", x -> {
      AtomicInteger now = new AtomicInteger();
      AtomicInteger most = new AtomicInteger();
      Reader reader = x.reader().handling((message, times) -> {
        most.accumulateAndGet(now.incrementAndGet(), Math::max);
        Thread.sleep(100);
        now.decrementAndGet();
        return true;
      }).start();
      x.send(Scene.numbers(40));
      reader.getsOnly(Scene.numbers(40));
      Check.that(most.get() > 2, "at once: " + most);
    });
    suite.add("listener.pulls-few", "A consumer that pulls one at a time gets all", x -> {
      x.send(Scene.numbers(40));
      x.reader().with(consumer -> consumer.setPullBatchSize(1)).start()
          .getsOnly(Scene.numbers(40));
    });
    suite.add("listener.large", "Large messages come all, whatever one pull may hold", x -> {
      String body = "x".repeat(300_000);
      x.producer().setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
      for (int number = 0; number < 12; number++) {
        x.sendTo(x.queues().get(0), number + body);
      }
      Reader reader = x.reader().start();
      reader.gets(12);
      Check.equal(12L, reader.bodies().stream().distinct().count());
    });
  }

  private static void broadcasting(Suite suite) {
    suite.add("broadcast.all", "Each member of a broadcasting group gets every message", x -> {
      List<Reader> members = new ArrayList<>();
      for (int number = 0; number < 3; number++) {
        members.add(x.reader().broadcasting().start());
      }
      x.send(Scene.numbers(20));
      for (Reader member : members) {
        member.getsOnly(Scene.numbers(20));
      }
    });
    suite.add("broadcast.tags", "A broadcasting group's filter holds for each member", x -> {
      Reader first = x.reader().broadcasting().tags("a").start();
      Reader second = x.reader().broadcasting().tags("a").start();
      x.send(x.message("wanted", "a"));
      x.send(x.message("other", "b"));
      first.getsOnly("wanted");
      second.getsOnly("wanted");
    });
    suite.add("broadcast.failed", "A message that fails in a broadcast does not come again", x -> {
      Reader reader = x.reader().broadcasting().handling((message, times) -> false).start();
      x.send("failing");
      reader.gets(1);
      Thread.sleep(3_000);
      reader.getsOnly("failing");
    });
    suite.add("broadcast.ordered", "A broadcast can be consumed in order by each member", x -> {
      Reader first = x.reader().broadcasting().orderly().start();
      Reader second = x.reader().broadcasting().orderly().start();
      x.sendTo(x.queues().get(1), Scene.numbers(20));
      first.getsInOrder(Scene.numbers(20));
      second.getsInOrder(Scene.numbers(20));
    });
    suite.add("broadcast.beside", "A broadcasting and a sharing group do not disturb", x -> {
      Reader all = x.reader(x.group("all")).broadcasting().start();
      Reader one = x.reader(x.group("one")).start();
      x.send(Scene.numbers(10));
      all.getsOnly(Scene.numbers(10));
      one.getsOnly(Scene.numbers(10));
    });
    suite.add("broadcast.late", "A member of a broadcast that comes late reads from its start", x -> {
      Reader first = x.reader().broadcasting().start();
      x.send("1");
      first.getsOnly("1");
      Reader second = x.reader().broadcasting().start();
      x.send("2");
      first.getsOnly("1", "2");
      Check.soon(() -> second.bodies().contains("2"), "the second message");
    });
  }

  // ------------------------------------------------------------------------------ what they share

  private static String[] range(int first, int end) {
    return Arrays.copyOfRange(Scene.numbers(end), first, end);
  }

  private static List<Reader> members(Scene x, int count) throws Exception {
    List<Reader> members = new ArrayList<>();
    for (int number = 0; number < count; number++) {
      members.add(x.reader().start());
    }
    settle(x, members);
    return members;
  }

  /** Until the queues are divided: sends of before may come twice. */
  private static void settle(Scene x, List<Reader> members) throws Exception {
    Check.soon(() -> {
      Set<Object> queues = new HashSet<>();
      int held = 0;
      for (Reader member : members) {
        for (var queue : member.consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl()
            .getProcessQueueTable().keySet()) {
          if (!queue.getTopic().startsWith("%RETRY%")) {
            queues.add(queue);
            held++;
          }
        }
      }
      return held == queues.size() && held >= 2 * x.queues().size() / 2;
    }, "each queue has one member");
    int most = (x.queues().size() + members.size() - 1) / members.size();
    Check.soon(() -> members.stream().allMatch(member -> member.consumer
        .getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet().stream()
        .filter(queue -> queue.getTopic().equals(x.topic())).count() <= most), "equal shares");
  }

  private static int different(Reader... members) {
    Set<String> bodies = new HashSet<>();
    for (Reader member : members) {
      bodies.addAll(member.bodies());
    }
    return bodies.size();
  }

  /** Together they got 0 to count - 1, each once. */
  private static void shared(List<Reader> members, int count) throws Exception {
    Reader[] all = members.toArray(new Reader[0]);
    Check.soon(() -> different(all) >= count, count + " messages");
    Thread.sleep(1_000);
    Check.equal(count, members.stream().mapToInt(each -> each.got.size()).sum());
  }
}
