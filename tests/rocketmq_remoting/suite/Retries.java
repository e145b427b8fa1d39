// Messages that fail: they come again, and become dead letters.

import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

final class Retries {
  private static final String DEAD = "%DLQ%";
  private static final Reader.Handler NEVER = (message, times) -> false;

  private Retries() {}

  static void table(Suite suite) {
    again(suite);
    dead(suite);
  }

  private static void again(Suite suite) {
    suite.add("retry.again", "A message that fails comes again until it is handled", x -> {
      Reader reader = x.reader().handling((message, times) -> times >= 2).start();
      x.send("failing");
      reader.getsOnly("failing", "failing", "failing");
    });
    suite.add("retry.throwing", "An exception of the listener is a failure", x -> {
      Reader reader = x.reader().handling((message, times) -> {
        if (times == 0) {
          throw new IllegalStateException("the listener fails");
        }
        return true;
      }).start();
      x.send("failing");
      reader.getsOnly("failing", "failing");
    });
    suite.add("retry.null", "A listener that says nothing has failed", x -> {
      AtomicInteger calls = new AtomicInteger();
      var consumer = x.reader().consumer;
      consumer.subscribe(x.topic(), "*");
      consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
        context.setDelayLevelWhenNextConsume(1);
        return calls.incrementAndGet() == 1 ? null : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
      });
      consumer.start();
      x.atEnd(consumer::shutdown);
      x.send("failing");
      Check.soon(() -> calls.get() == 2, "a second call");
    });
    suite.add("retry.counts", "Each time it comes, a message says how often it has failed", x -> {
      Reader reader = x.reader().handling((message, times) -> times >= 3).start();
      x.send("failing");
      reader.gets(4);
      Check.equal(List.of(0, 1, 2, 3),
          reader.of("failing").stream().map(MessageExt::getReconsumeTimes).toList());
    });
    suite.add("retry.contents", "A message that comes again has topic, id and properties", x -> {
      Reader reader = x.reader().tags("a").handling((message, times) -> times >= 1).start();
      Message message = new Message(x.topic(), "a", "k1", "failing".getBytes());
      message.putUserProperty("mine", "x");
      String id = x.send(message).getMsgId();
      MessageExt again = reader.gets(2).get(1).message();
      Check.equal(x.topic() + " a k1 x " + id, again.getTopic() + " " + again.getTags() + " "
          + again.getKeys() + " " + again.getUserProperty("mine") + " " + again.getMsgId());
    });
    suite.add("retry.delay", "A failed message comes again after the level it asks for", x -> {
      long tookMs = failedAgainMs(x, 2);
      Check.that(4_900 <= tookMs && tookMs < 9_000, "after " + tookMs + " ms");
    });
    suite.add("retry.default-delay", "A failed message comes again after 10 s by default", x -> {
      long tookMs = failedAgainMs(x, 0);
      Check.that(9_900 <= tookMs && tookMs < 15_000, "after " + tookMs + " ms");
    });
    suite.add("retry.others", "A message that fails does not hold up others", x -> {
      Reader reader = x.reader()
          .handling((message, times) -> !Scene.body(message).equals("failing") || times >= 2)
          .start();
      x.sendTo(x.queues().get(0), "failing", "1", "2", "3");
      reader.getsOnly("failing", "1", "2", "3", "failing", "failing");
    });
    suite.add("retry.one-group", "What fails in one group does not come again in another", x -> {
      Reader failing = x.reader(x.group("failing"))
          .handling((message, times) -> times >= 1).start();
      Reader fine = x.reader(x.group("fine")).start();
      x.send("one");
      failing.getsOnly("one", "one");
      fine.getsOnly("one");
    });
    suite.add("retry.part", "Of several messages at once only those that failed come again", x -> {
      x.sendTo(x.queues().get(0), Scene.numbers(6));
      List<String> got = new java.util.concurrent.CopyOnWriteArrayList<>();
      var consumer = x.reader().consumer;
      consumer.setConsumeMessageBatchMaxSize(6);
      consumer.subscribe(x.topic(), "*");
      AtomicInteger calls = new AtomicInteger();
      consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
        got.addAll(Scene.bodies(messages));
        context.setDelayLevelWhenNextConsume(1);
        if (calls.incrementAndGet() == 1) {
          context.setAckIndex(0);
        }
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
      });
      consumer.start();
      x.atEnd(consumer::shutdown);
      Check.soon(() -> got.stream().distinct().count() == 6 && got.size() > 6 || got.size() >= 11,
          "messages that come again");
      Thread.sleep(2_500);
      Check.equal(1L, got.stream().filter("0"::equals).count());
    });
    suite.add("retry.other-member", "A message that one member failed may come to another", x -> {
      Reader first = x.reader().handling(NEVER).start();
      x.send("failing");
      first.gets(1);
      first.stop();
      x.reader().start().getsOnly("failing");
    });
    suite.add("retry.two-topics", "Failed messages of two topics come again as of theirs", x -> {
      Reader reader = x.reader().topic(x.topic(0), MessageSelector.byTag("*"))
          .topic(x.topic(1), MessageSelector.byTag("*"))
          .handling((message, times) -> times >= 1).start();
      x.send(x.message("first"));
      x.send(new Message(x.topic(1), "second".getBytes()));
      reader.getsOnly("first", "first", "second", "second");
      Check.equal(x.topic(1), reader.of("second").get(1).getTopic());
    }).topics(2);
  }

  /** How long a message of a group that fails for the second time takes to come again: the client
   * of a new group may learn late where failed messages are. */
  private static long failedAgainMs(Scene x, int level) throws Exception {
    Reader reader = x.reader().again(level).handling((message, times) -> times >= 1).start();
    x.send("first");
    reader.gets(2);
    x.send("second");
    reader.gets(4);
    return reader.got.get(3).atMs() - reader.got.get(2).atMs();
  }

  private static void dead(Suite suite) {
    suite.add("dead.given-up", "A message that failed too often is a dead letter", x -> {
      Reader reader = giving(x, 2).start();
      x.send("poison");
      reader.getsOnly("poison", "poison", "poison");
      letters(x).getsOnly("poison");
    });
    suite.add("dead.at-once", "A consumer may give a message up at once", x -> {
      Reader reader = x.reader().again(-1).handling(NEVER).start();
      x.send("poison");
      reader.getsOnly("poison");
      letters(x).getsOnly("poison");
    });
    suite.add("dead.contents", "A dead letter keeps keys, tag, properties and its first topic", x -> {
      Reader reader = giving(x, 0).start();
      Message message = new Message(x.topic(), "a", "k1", "poison".getBytes());
      message.putUserProperty("mine", "x");
      x.send(message);
      reader.getsOnly("poison");
      MessageExt letter = letters(x).gets(1).get(0).message();
      Check.equal("a k1 x", letter.getTags() + " " + letter.getKeys() + " "
          + letter.getUserProperty("mine"));
      Check.equal(x.topic(), letter.getProperty("RETRY_TOPIC"));
    });
    suite.add("dead.others-go-on", "A dead letter holds up nothing", x -> {
      Reader reader = giving(x, 1)
          .handling((message, times) -> !Scene.body(message).equals("poison")).start();
      x.sendTo(x.queues().get(0), "poison", "1", "2");
      reader.getsOnly("poison", "poison", "1", "2");
      letters(x).getsOnly("poison");
    });
    suite.add("dead.by-key", "A dead letter is found by its key", x -> {
      Reader reader = giving(x, 0).start();
      x.send(new Message(x.topic(), "a", "k1", "poison".getBytes()));
      reader.getsOnly("poison");
      Check.succeeds(() -> x.producer().queryMessage(
          DEAD + x.group(), "k1", 10, 0, System.currentTimeMillis() + 10_000));
    });
    suite.add("dead.sent-back", "A consumer may send a message back by itself", x -> {
      Reader reader = x.reader();
      reader.handling((message, times) -> {
        if (times == 0) {
          reader.consumer.sendMessageBack(message, 1);
        }
        return true;
      }).start();
      x.send("back");
      reader.getsOnly("back", "back");
    });
  }

  private static Reader giving(Scene x, int most) {
    return x.reader().handling(NEVER).with(consumer -> consumer.setMaxReconsumeTimes(most));
  }

  /** A reader of the group's dead letters, once there are some. */
  static Reader letters(Scene x) throws Exception {
    String topic = DEAD + x.group();
    Check.succeeds(() -> x.producer().fetchPublishMessageQueues(topic));
    return x.reader(x.group("letters")).topic(topic, MessageSelector.byTag("*")).start();
  }
}
