// Looking messages up: by offset id, by unique id, by key.

import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

final class Asking {
  private static final int MANY = 40;

  private Asking() {}

  static void table(Suite suite) {
    suite.add("lookup.offset-id", "A message is found by its offset id", x -> {
      SendResult sent = x.send("one", "two").get(1);
      MessageExt found = x.producer().viewMessage(x.topic(), sent.getOffsetMsgId());
      Check.equal("two", Scene.body(found));
      Check.equal(sent.getQueueOffset(), found.getQueueOffset());
    });
    suite.add("lookup.unique-id", "A message is found by its unique id", x -> {
      SendResult sent = x.send("one", "two").get(0);
      MessageExt found = Check.succeeds(() -> {
        MessageExt view = x.producer().viewMessage(x.topic(), sent.getMsgId());
        return java.util.Objects.requireNonNull(view);
      });
      Check.equal("one", Scene.body(found));
    });
    suite.add("lookup.key", "A message is found by each of its keys", x -> {
      x.send(new Message(x.topic(), "a", "k1 k2", "one".getBytes()));
      x.send(new Message(x.topic(), "a", "k3", "other".getBytes()));
      for (String key : List.of("k1", "k2")) {
        Check.equal(List.of("one"), Scene.bodies(found(x, key, 10, 1)));
      }
    });
    suite.add("lookup.many", "All messages with a key are found, on all brokers", x -> {
      Set<String> brokers = new HashSet<>();
      for (String body : Scene.numbers(MANY)) {
        brokers.add(x.send(new Message(x.topic(), "a", "same", body.getBytes()))
            .getMessageQueue().getBrokerName());
      }
      Check.equal(2, brokers.size());
      Set<String> bodies = new HashSet<>(Scene.bodies(found(x, "same", 64, MANY)));
      Check.equal(MANY, bodies.size());
    });
    suite.add("lookup.at-most", "A lookup by key gives no more of a broker than asked for", x -> {
      for (String body : Scene.numbers(20)) {
        x.producer().send(new Message(x.topic(), "a", "same", body.getBytes()), x.queues().get(0));
      }
      found(x, "same", 20, 20);
      Check.equal(5, found(x, "same", 5, 5).size());
    });
    suite.add("lookup.times", "A lookup by key finds only what was stored in its time", x -> {
      x.send(new Message(x.topic(), "a", "k", "early".getBytes()));
      found(x, "k", 10, 1);
      Thread.sleep(50);
      long middle = System.currentTimeMillis();
      Thread.sleep(50);
      x.send(new Message(x.topic(), "a", "k", "late".getBytes()));
      found(x, "k", 10, 2);
      List<MessageExt> late = x.producer()
          .queryMessage(x.topic(), "k", 10, middle, System.currentTimeMillis() + 1_000)
          .getMessageList();
      Check.equal(List.of("late"), Scene.bodies(late));
    });
    suite.add("lookup.absent", "What is not there is not found", x -> {
      x.send("one");
      Check.refused(() -> x.producer().queryMessage(
          x.topic(), "nothing", 10, 0, System.currentTimeMillis() + 1_000));
    });
    suite.add("lookup.other-topic", "A key of another topic is not found", x -> {
      x.send(new Message(x.topic(1), "a", "k", "other".getBytes()));
      x.send(new Message(x.topic(0), "a", "k", "mine".getBytes()));
      Check.equal(List.of("mine"), Scene.bodies(found(x, "k", 10, 1)));
    }).topics(2);
  }

  /** Messages with the key once there are so many: Apache's index is behind the log. */
  private static List<MessageExt> found(Scene x, String key, int most, int count)
      throws Exception {
    return Check.succeeds(() -> {
      List<MessageExt> found = x.producer()
          .queryMessage(x.topic(), key, most, 0, System.currentTimeMillis() + 10_000)
          .getMessageList();
      if (found.size() < count) {
        throw new IllegalStateException("found " + Scene.bodies(found));
      }
      return found;
    });
  }
}
