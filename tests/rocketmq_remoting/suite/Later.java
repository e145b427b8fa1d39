// Messages that arrive later, by level.

import org.apache.rocketmq.common.message.Message;

final class Later {
  private Later() {}

  static void table(Suite suite) {
    int[] levels = {1, 5, 10};
    for (int level = 1; level <= levels.length; level++) {
      int number = level;
      suite.add("delay.level-" + level,
          "A message of level " + level + " arrives after " + levels[level - 1] + " s", x -> {
            Reader reader = x.reader().start();
            long sent = System.currentTimeMillis();
            x.send(delayed(x, "later", number));
            long tookMs = reader.gets(1).get(0).atMs() - sent;
            long dueMs = levels[number - 1] * 1_000L;
            Check.that(dueMs - 20 <= tookMs && tookMs < dueMs + 3_000, "after " + tookMs + " ms");
            reader.getsOnly("later");
          });
    }
    suite.add("delay.none", "A message of level 0 arrives at once", x -> {
      Reader reader = x.reader().start();
      x.send(delayed(x, "now", 0));
      reader.getsOnly("now");
    });
    suite.add("delay.order", "What is due earlier arrives earlier", x -> {
      Reader reader = x.reader().start();
      x.send(delayed(x, "five", 2));
      x.send(delayed(x, "one", 1));
      reader.getsInOrder("one", "five");
    });
    suite.add("delay.one-level", "Messages of one level arrive in the order of their sending", x -> {
      Reader reader = x.reader().orderly().start();
      for (String body : Scene.numbers(20)) {
        Message message = delayed(x, body, 1);
        x.stored(x.producer().send(message, x.queues().get(0)));
      }
      reader.getsInOrder(Scene.numbers(20));
    });
    suite.add("delay.queue", "A delayed message arrives in the queue that it was sent to", x -> {
      Reader reader = x.reader().start();
      x.producer().send(delayed(x, "later", 1), x.queues().get(3));
      Check.equal(x.queues().get(3).getQueueId(), reader.gets(1).get(0).message().getQueueId());
      Check.equal(x.queues().get(3).getBrokerName(),
          reader.got.get(0).message().getBrokerName());
    });
    suite.add("delay.contents", "A delayed message keeps topic, keys, tags and properties", x -> {
      Reader reader = x.reader().tags("a").start();
      Message message = new Message(x.topic(), "a", "k1", "later".getBytes());
      message.putUserProperty("mine", "x");
      message.setDelayTimeLevel(1);
      String id = x.send(message).getMsgId();
      var got = reader.gets(1).get(0).message();
      Check.equal(x.topic() + " a k1 x", got.getTopic() + " " + got.getTags() + " " + got.getKeys()
          + " " + got.getUserProperty("mine"));
      Check.equal(id, got.getMsgId());
    });
    suite.add("delay.by-tags", "A filter drops a delayed message that it does not want", x -> {
      Reader reader = x.reader().tags("a").start();
      for (String tag : new String[] {"a", "b"}) {
        Message message = x.message(tag, tag);
        message.setDelayTimeLevel(1);
        x.send(message);
      }
      reader.getsOnly("a");
    });
    suite.add("delay.failed", "A delayed message that fails comes again", x -> {
      Reader reader = x.reader().handling((message, times) -> times > 0).start();
      x.send(delayed(x, "later", 1));
      reader.getsOnly("later", "later");
    });
  }

  static Message delayed(Scene x, String body, int level) {
    Message message = x.message(body);
    message.setDelayTimeLevel(level);
    return message;
  }
}
