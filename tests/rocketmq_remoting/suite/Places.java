// Where a group begins, where it is, and where queues begin and end.

import java.time.Instant;
import java.time.ZoneId;
import java.time.format.DateTimeFormatter;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageQueue;

@SuppressWarnings("deprecation")
final class Places {
  private static final DateTimeFormatter MOMENT =
      DateTimeFormatter.ofPattern("yyyyMMddHHmmss").withZone(ZoneId.systemDefault());

  private Places() {}

  static void table(Suite suite) {
    begins(suite);
    bounds(suite);
    commits(suite);
    resets(suite);
  }

  private static void begins(Suite suite) {
    suite.add("begin.first", "A new group may begin with the first message", x -> {
      x.send(Scene.numbers(10));
      x.reader().start().getsOnly(Scene.numbers(10));
    });
    suite.add("begin.last", "A new group that begins with the last reads a young topic", x -> {
      x.send(Scene.numbers(10));
      Reader reader = x.reader().with(consumer ->
          consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET)).start();
      reader.getsOnly(Scene.numbers(10));
    });
    suite.add("begin.time", "A new group that begins at a time reads a young topic", x -> {
      x.send("old");
      Reader reader = x.reader().with(consumer -> {
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_TIMESTAMP);
        consumer.setConsumeTimestamp(MOMENT.format(Instant.now().plusSeconds(60)));
      }).start();
      reader.getsOnly("old");
    });
    suite.add("begin.committed", "A group with a place goes on there, whatever it asks for", x -> {
      x.send(Scene.numbers(10));
      Reader first = x.reader().start();
      first.getsOnly(Scene.numbers(10));
      first.stop();
      x.send("after");
      x.reader().with(consumer ->
          consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET)).start()
          .getsOnly("after");
    });
    suite.add("begin.other-group", "Another group's place does not count", x -> {
      x.send("1", "2");
      x.reader(x.group("first")).start().getsOnly("1", "2");
      x.reader(x.group("second")).start().getsOnly("1", "2");
    });
  }

  private static void bounds(Suite suite) {
    suite.add("bounds.ends", "A queue tells its first offset and the one after its last", x -> {
      MessageQueue queue = x.queues().get(0);
      DefaultMQProducer producer = x.producer();
      Check.equal("0 0", producer.minOffset(queue) + " " + producer.maxOffset(queue));
      x.sendTo(queue, "1", "2", "3");
      Check.equal("0 3", producer.minOffset(queue) + " " + producer.maxOffset(queue));
    });
    suite.add("bounds.by-time", "A queue tells the first offset at or after a time", x -> {
      MessageQueue queue = x.queues().get(0);
      long[] times = new long[4];
      for (int number = 0; number < 4; number++) {
        Thread.sleep(30);
        times[number] = System.currentTimeMillis();
        Thread.sleep(30);
        x.sendTo(queue, "m" + number);
      }
      for (int number = 0; number < 4; number++) {
        Check.equal((long) number, x.producer().searchOffset(queue, times[number]));
      }
    });
    suite.add("bounds.before-all", "A time before the first message gives the first", x -> {
      MessageQueue queue = x.queues().get(0);
      x.sendTo(queue, "1", "2");
      Check.equal(0L, x.producer().searchOffset(queue, 1_000));
    });
    suite.add("bounds.after-all", "A time after the last message gives the end", x -> {
      MessageQueue queue = x.queues().get(0);
      x.sendTo(queue, "1", "2");
      long found = x.producer().searchOffset(queue, System.currentTimeMillis() + 60_000);
      Check.equal(2L, found);
    });
    suite.add("bounds.earliest", "A queue tells when its first message was stored", x -> {
      MessageQueue queue = x.queues().get(0);
      long before = System.currentTimeMillis() - 5;
      x.sendTo(queue, "1", "2");
      long found = x.puller(x.group()).earliestMsgStoreTime(queue);
      Check.that(before <= found && found <= System.currentTimeMillis(), "stored at " + found);
    });
    suite.add("bounds.absent", "A queue that is not there has no bounds", x -> {
      x.send("one");
      MessageQueue absent = new MessageQueue(x.newTopic(), x.broker(), 0);
      Check.refused(() -> x.producer().searchOffset(absent, 0));
    });
  }

  private static void commits(Suite suite) {
    suite.add("commit.told", "A committed offset is told to other members", x -> {
      x.sendTo(x.queues().get(0), Scene.numbers(10));
      MessageQueue queue = x.queues().get(0);
      commit(x.puller(x.group()), queue, 7);
      DefaultMQPullConsumer second = x.puller(x.group());
      Check.equal(7L, Check.succeeds(() -> second.fetchConsumeOffset(queue, true)));
    });
    suite.add("commit.none", "A group without an offset is told so", x -> {
      MessageQueue queue = x.queues().get(0);
      x.sendTo(queue, "1");
      long found = x.puller(x.group()).fetchConsumeOffset(queue, true);
      Check.that(found == -1 || found == 0, "no offset, or the first of a young queue: " + found);
    });
    suite.add("commit.followed", "A push consumer goes on after a committed offset", x -> {
      x.sendTo(x.queues().get(0), Scene.numbers(10));
      DefaultMQPullConsumer puller = x.puller(x.group());
      commit(puller, x.queues().get(0), 8);
      puller.shutdown();
      x.reader().start().getsOnly("8", "9");
    });
    suite.add("commit.backwards", "A member may commit an offset before the last", x -> {
      MessageQueue queue = x.queues().get(0);
      x.sendTo(queue, Scene.numbers(10));
      DefaultMQPullConsumer puller = x.puller(x.group());
      commit(puller, queue, 8);
      commit(puller, queue, 5);
      Check.equal(5L, puller.fetchConsumeOffset(queue, true));
    });
    suite.add("commit.each-queue", "Each queue has an offset of its own", x -> {
      DefaultMQPullConsumer puller = x.puller(x.group());
      for (int number = 0; number < 4; number++) {
        x.sendTo(x.queues().get(number), Scene.numbers(4));
        commit(puller, x.queues().get(number), number + 1);
      }
      for (int number = 0; number < 4; number++) {
        Check.equal(number + 1L, puller.fetchConsumeOffset(x.queues().get(number), true));
      }
    });
  }

  /** Apache's brokers know a group from its first heart-beat on. */
  private static void commit(DefaultMQPullConsumer puller, MessageQueue queue, long offset)
      throws Exception {
    Check.succeeds(() -> {
      puller.getOffsetStore().updateConsumeOffsetToBroker(queue, offset, false);
      return true;
    });
  }

  private static void resets(Suite suite) {
    suite.add("reset.live-back", "A reset to a time makes running consumers read again", x -> {
      Reader reader = x.reader().start();
      x.send("1", "2", "3");
      reader.getsOnly("1", "2", "3");
      Thread.sleep(1_000);
      x.admin().resetOffsetByTimestamp(x.topic(), x.group(), 1_000, true);
      Check.soon(() -> reader.got.size() >= 6, "the messages again");
      String[] twice = {"1", "1", "2", "2", "3", "3"};
      reader.getsOnly(twice);
    });
    suite.add("reset.live-forward", "A reset to now makes running consumers skip", x -> {
      Reader reader = x.reader().with(consumer -> consumer.setConsumeThreadMax(1))
          .with(consumer -> consumer.setConsumeThreadMin(1))
          .handling((message, times) -> {
            Thread.sleep(200);
            return true;
          }).start();
      x.send(Scene.numbers(100));
      reader.gets(3);
      x.admin().resetOffsetByTimestamp(
          x.topic(), x.group(), System.currentTimeMillis() + 60_000, true);
      Thread.sleep(12_000);
      x.send("last");
      Check.soon(() -> reader.bodies().contains("last"), "what follows");
      Check.that(reader.got.size() < 95, "it skipped nothing");
    });
    suite.add("reset.stopped", "A group that is reset while it is away goes on there", x -> {
      Reader first = x.reader().start();
      x.send("1", "2");
      first.getsOnly("1", "2");
      first.stop();
      Thread.sleep(1_000);
      x.admin().resetOffsetByTimestamp(x.topic(), x.group(), 1_000, true);
      x.reader().start().getsOnly("1", "2");
    });
    suite.add("reset.time", "A reset to a time between messages reads those after it", x -> {
      Reader first = x.reader().start();
      x.send("1", "2");
      Thread.sleep(50);
      long middle = System.currentTimeMillis();
      Thread.sleep(50);
      x.send("3", "4");
      first.getsOnly("1", "2", "3", "4");
      first.stop();
      Thread.sleep(1_000);
      x.admin().resetOffsetByTimestamp(x.topic(), x.group(), middle, true);
      x.reader().start().getsOnly("3", "4");
    });
    suite.add("reset.cloned", "A group may take the place of another", x -> {
      Reader first = x.reader(x.group("first")).start();
      x.send(Scene.numbers(20));
      first.getsOnly(Scene.numbers(20));
      first.stop();
      Thread.sleep(1_000);
      String group = x.group("second");
      x.admin().cloneGroupOffset(x.group("first"), group, x.topic(), true);
      x.send("after");
      x.reader(group).start().getsOnly("after");
    });
  }
}
