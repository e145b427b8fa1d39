// Producers: each way to send, and what is refused.

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.MessageQueueSelector;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

final class Sending {
  private static final int ILLEGAL = 13;
  private static final int LARGEST = 4 << 20;
  private static final MessageQueueSelector BY_NUMBER =
      (queues, message, number) -> queues.stream().sorted().toList().get((Integer) number);

  private Sending() {}

  static void table(Suite suite) {
    single(suite);
    everyWay(suite);
    batches(suite);
    contents(suite);
    refusals(suite);
  }

  private static void single(Suite suite) {
    suite.add("send.answer", "A stored message is answered with its ids, queue and offset", x -> {
      SendResult sent = x.send("one").get(0);
      Check.equal(x.topic(), sent.getMessageQueue().getTopic());
      Check.that(sent.getQueueOffset() == 0, "the first of its queue: " + sent);
      // With 16 bytes more where hosts have addresses of IPv6.
      Check.that(sent.getMsgId().matches("[0-9A-F]{32}|[0-9A-F]{56}"), sent.toString());
      Check.that(sent.getOffsetMsgId().matches("[0-9A-F]{32}|[0-9A-F]{56}"), sent.toString());
      MessageExt got = x.reader().start().gets(1).get(0).message();
      Check.equal(sent.getMsgId(), got.getMsgId());
      Check.equal(sent.getMessageQueue().getQueueId(), got.getQueueId());
    });
    suite.add("send.offsets", "Messages of a queue have consecutive offsets", x -> {
      List<SendResult> sent = x.sendTo(x.queues().get(1), "a", "b", "c", "d");
      Check.equal(List.of(0L, 1L, 2L, 3L), sent.stream().map(SendResult::getQueueOffset).toList());
    });
    suite.add("send.any-queue", "A broker chooses the queue of a number below 0", x -> {
      String broker = x.broker();
      x.sendTo(new MessageQueue(x.topic(), broker, -1), "1", "2");
      x.sendTo(new MessageQueue(x.topic(), broker, -100), "3");
      x.reader().start().getsOnly("1", "2", "3");
    });
    suite.add("send.spread", "Messages without a queue are spread over all queues", x -> {
      Set<MessageQueue> used = new HashSet<>();
      x.send(Scene.numbers(32)).forEach(each -> used.add(each.getMessageQueue()));
      Check.equal(4, used.size());
      x.reader().start().getsOnly(Scene.numbers(32));
    });
    suite.add("send.queues", "A producer is told of the queues of all brokers", x -> {
      Check.equal(4, x.queues().size());
      Set<String> brokers = new HashSet<>();
      x.queues().forEach(each -> brokers.add(each.getBrokerName()));
      Check.equal(Set.of("broker-a", "broker-b"), brokers);
    });
    suite.add("send.by-hash", "Messages with one key go to one queue by the client's hash", x -> {
      Map<String, Set<Integer>> used = new HashMap<>();
      for (int number = 0; number < 24; number++) {
        String key = "key-" + number % 6;
        SendResult sent =
            x.producer().send(x.message("m" + number), new SelectMessageQueueByHash(), key);
        used.computeIfAbsent(key, any -> new HashSet<>())
            .add(sent.getMessageQueue().hashCode());
      }
      used.forEach((key, queues) -> Check.equal(1, queues.size()));
    });
    suite.add("send.async-many", "Many sends at once are all answered, each once", x -> {
      List<Scene.Later> sends = new ArrayList<>();
      for (String body : Scene.numbers(200)) {
        Scene.Later later = new Scene.Later();
        x.producer().send(x.message(body), later);
        sends.add(later);
      }
      Set<String> places = new HashSet<>();
      for (Scene.Later later : sends) {
        SendResult sent = x.stored(later.result());
        places.add(sent.getMessageQueue() + "@" + sent.getQueueOffset());
      }
      Check.equal(200, places.size());
      x.reader().start().getsOnly(Scene.numbers(200));
    });
    suite.add("send.twice", "A message object that is sent twice is two messages", x -> {
      Message message = x.message("again");
      SendResult first = x.send(message);
      SendResult second = x.send(message);
      Check.equal(first.getMsgId(), second.getMsgId());
      x.reader().start().getsOnly("again", "again");
    });
    suite.add("send.no-wait", "A message that need not be safe is stored", x -> {
      Message message = x.message("careless");
      message.setWaitStoreMsgOK(false);
      x.send(message);
      x.reader().start().getsOnly("careless");
    });
    suite.add("send.many-producers", "Producers of one group in one process do not meet", x -> {
      for (int number = 0; number < 4; number++) {
        DefaultMQProducer producer = x.newProducer(x.group("same"));
        x.stored(producer.send(x.message("from " + number)));
        producer.shutdown();
      }
      x.reader().start().getsOnly("from 0", "from 1", "from 2", "from 3");
    });
  }

  /** Synchronously, asynchronously and one-way, to any queue, a queue, and one of a selector. */
  private static void everyWay(Suite suite) {
    String[] ways = {"sync", "async", "oneway"};
    for (String way : ways) {
      suite.add("send." + way + ".any", "A message sent " + way + " arrives once", x -> {
        for (String body : Scene.numbers(10)) {
          send(x, way, x.message(body), null, null);
        }
        x.reader().start().getsOnly(Scene.numbers(10));
      });
      suite.add("send." + way + ".queue", "A message sent " + way + " goes to its queue", x -> {
        MessageQueue queue = x.queues().get(2);
        for (String body : Scene.numbers(10)) {
          send(x, way, x.message(body), queue, null);
        }
        inOneQueue(x, queue);
      });
      suite.add("send." + way + ".selector",
          "A message sent " + way + " goes to the queue that its selector chooses", x -> {
            for (String body : Scene.numbers(10)) {
              send(x, way, x.message(body), null, 3);
            }
            inOneQueue(x, x.queues().get(3));
          });
    }
  }

  private static void inOneQueue(Scene x, MessageQueue queue) throws Exception {
    Reader reader = x.reader().orderly().start();
    reader.getsOnly(Scene.numbers(10));
    for (Reader.Got got : reader.got) {
      Check.equal(queue.getQueueId(), got.message().getQueueId());
      Check.equal(queue.getBrokerName(), got.message().getBrokerName());
    }
  }

  private static void send(
      Scene x, String way, Message message, MessageQueue queue, Integer chosen) throws Exception {
    DefaultMQProducer producer = x.producer();
    if (way.equals("oneway")) {
      if (queue != null) {
        producer.sendOneway(message, queue);
      } else if (chosen != null) {
        producer.sendOneway(message, BY_NUMBER, chosen);
      } else {
        producer.sendOneway(message);
      }
      return;
    }
    if (way.equals("sync")) {
      x.stored(queue != null ? producer.send(message, queue)
          : chosen != null ? producer.send(message, BY_NUMBER, chosen) : producer.send(message));
      return;
    }
    Scene.Later later = new Scene.Later();
    if (queue != null) {
      producer.send(message, queue, later);
    } else if (chosen != null) {
      producer.send(message, BY_NUMBER, chosen, later);
    } else {
      producer.send(message, later);
    }
    x.stored(later.result());
  }

  // ------------------------------------------------------------------------------ batches

  private static void batches(Suite suite) {
    suite.add("batch.in-order", "A batch is stored in one queue, in its order", x -> {
      SendResult sent = x.stored(x.producer().send(batch(x, 20)));
      Reader reader = x.reader().orderly().start();
      reader.getsInOrder(Scene.numbers(20));
      for (Reader.Got got : reader.got) {
        Check.equal(sent.getMessageQueue().getQueueId(), got.message().getQueueId());
      }
    });
    suite.add("batch.ids", "Each message of a batch has an id of its own", x -> {
      SendResult sent = x.stored(x.producer().send(batch(x, 7)));
      List<String> ids = List.of(sent.getMsgId().split(","));
      Check.equal(7, Set.copyOf(ids).size());
      Check.equal(7, Set.copyOf(List.of(sent.getOffsetMsgId().split(","))).size());
      Set<String> got = new HashSet<>();
      x.reader().start().gets(7).forEach(each -> got.add(each.message().getMsgId()));
      Check.equal(Set.copyOf(ids), got);
    });
    suite.add("batch.queue", "A batch goes to the queue that it is sent to", x -> {
      MessageQueue queue = x.queues().get(3);
      SendResult sent = x.stored(x.producer().send(batch(x, 10), queue));
      Check.equal(queue, sent.getMessageQueue());
      inOneQueue(x, queue);
    });
    suite.add("batch.async", "A batch that is sent asynchronously arrives", x -> {
      Scene.Later later = new Scene.Later();
      x.producer().send(batch(x, 10), later);
      x.stored(later.result());
      x.reader().start().getsOnly(Scene.numbers(10));
    });
    suite.add("batch.large", "A batch of a thousand messages arrives", x -> {
      x.stored(x.producer().send(batch(x, 1_000)));
      x.reader().start().getsOnly(Scene.numbers(1_000));
    });
    suite.add("batch.contents", "Messages of a batch keep keys, tags and properties", x -> {
      List<Message> batch = batch(x, 3);
      batch.get(1).setTags("tagged");
      batch.get(1).setKeys("k1 k2");
      batch.get(1).putUserProperty("mine", "väl");
      x.stored(x.producer().send(batch));
      Reader reader = x.reader().start();
      reader.gets(3);
      MessageExt got = reader.of("1").get(0);
      Check.equal("tagged k1 k2 väl",
          got.getTags() + " " + got.getKeys() + " " + got.getUserProperty("mine"));
      Check.equal(null, reader.of("2").get(0).getTags());
    });
    suite.add("batch.by-tags", "A filter chooses among the messages of a batch", x -> {
      List<Message> batch = batch(x, 6);
      batch.get(2).setTags("wanted");
      batch.get(5).setTags("wanted");
      x.stored(x.producer().send(batch));
      x.reader().tags("wanted").start().getsOnly("2", "5");
    });
    suite.add("batch.too-large", "A batch above 4 MiB is refused, and none of it stored", x -> {
      List<Message> batch = new ArrayList<>();
      for (int number = 0; number < 5; number++) {
        batch.add(new Message(x.topic(), noise(1 << 20)));
      }
      DefaultMQProducer producer = x.producer();
      producer.setMaxMessageSize(2 * LARGEST);
      Check.refused(() -> producer.send(batch));
      x.send("after");
      x.reader().start().getsOnly("after");
    });
  }

  private static List<Message> batch(Scene x, int count) {
    List<Message> batch = new ArrayList<>();
    for (String body : Scene.numbers(count)) {
      batch.add(x.message(body));
    }
    return batch;
  }

  // ------------------------------------------------------------------------------ contents

  private static void contents(Suite suite) {
    suite.add("content.properties", "Keys, tags, flag and properties arrive unchanged", x -> {
      Message message = new Message(x.topic(), "täg", "k1 k2", 77, "body".getBytes(), true);
      message.putUserProperty("mine", "wert 值 🐝");
      message.putUserProperty("numbers", "1 = 2, [3]; \"4\"");
      x.send(message);
      MessageExt got = x.reader().start().gets(1).get(0).message();
      Check.equal("täg k1 k2 77", got.getTags() + " " + got.getKeys() + " " + got.getFlag());
      Check.equal("wert 值 🐝", got.getUserProperty("mine"));
      Check.equal("1 = 2, [3]; \"4\"", got.getUserProperty("numbers"));
    });
    suite.add("content.utf8", "A body of any characters arrives unchanged", x -> {
      x.send("päckchen 蜜蜂 🐝 \u0000 \u0001 \u0002");
      x.reader().start().getsOnly("päckchen 蜜蜂 🐝 \u0000 \u0001 \u0002");
    });
    suite.add("content.bytes", "A body of any bytes arrives unchanged", x -> {
      byte[] body = noise(3_000);
      x.send(new Message(x.topic(), body));
      byte[] got = x.reader().start().gets(1).get(0).message().getBody();
      Check.that(Arrays.equals(body, got), "other bytes");
    });
    suite.add("content.compressed", "A body that the client compresses arrives unchanged", x -> {
      x.send("honey ".repeat(20_000));
      MessageExt got = x.reader().start().gets(1).get(0).message();
      Check.equal("honey ".repeat(20_000), Scene.body(got));
      Check.that(got.getStoreSize() < 20_000, "stored as it was sent: " + got.getStoreSize());
    });
    suite.add("content.largest", "A body of 4 MiB arrives", x -> {
      byte[] body = noise(LARGEST);
      x.producer().setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
      x.send(new Message(x.topic(), body));
      byte[] got = x.reader().start().gets(1).get(0).message().getBody();
      Check.that(Arrays.equals(body, got), "other bytes");
    });
    suite.add("content.times", "Times and hosts of birth and storage arrive", x -> {
      long before = System.currentTimeMillis();
      x.send("one");
      long after = System.currentTimeMillis();
      MessageExt got = x.reader().start().gets(1).get(0).message();
      Check.that(before <= got.getBornTimestamp() && got.getBornTimestamp() <= after, "born");
      Check.that(before - 5 <= got.getStoreTimestamp() && got.getStoreTimestamp() <= after + 5,
          "stored " + (got.getStoreTimestamp() - before));
      Check.equal("127.0.0.1", got.getBornHostString());
      Check.that(got.getStoreHost() != null, "a store host");
    });
  }

  private static byte[] noise(int size) {
    byte[] bytes = new byte[size];
    new Random(7).nextBytes(bytes);
    return bytes;
  }

  // ------------------------------------------------------------------------------ refusals

  private static void refusals(Suite suite) {
    suite.add("refused.too-large", "A body above 4 MiB is refused with code 13", x -> {
      DefaultMQProducer producer = x.producer();
      producer.setMaxMessageSize(2 * LARGEST);
      producer.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
      byte[] body = noise(LARGEST + (1 << 17));
      Check.refusedWith(ILLEGAL, () -> producer.send(new Message(x.topic(), body)));
      x.send("after");
      x.reader().start().getsOnly("after");
    });
    suite.add("refused.by-client", "A client refuses what is above its own limit", x -> {
      x.producer().setMaxMessageSize(100);
      Check.refusedWith(ILLEGAL, () -> x.producer().send(x.message("x".repeat(101))));
      x.send("x".repeat(100));
    });
    suite.add("refused.properties", "Properties above 32,767 bytes are refused with code 13", x -> {
      Message message = x.message("one");
      message.putUserProperty("long", "x".repeat(40_000));
      Check.refusedWith(ILLEGAL, () -> x.producer().send(message));
      x.send("after");
      x.reader().start().getsOnly("after");
    });
    suite.add("refused.empty", "An empty body is refused", x ->
        Check.refusedWith(ILLEGAL, () -> x.producer().send(new Message(x.topic(), new byte[0]))));
    suite.add("refused.topic-absent", "A topic that is not there has no route", x -> {
      Exception error = Check.refused(() -> x.producer().send(new Message(x.newTopic(), bytes())));
      Check.that(error.getMessage().contains("No route info"), error.toString());
    });
    suite.add("refused.topic-illegal", "A topic name of illegal characters is refused", x -> {
      Check.refused(() -> x.producer().send(new Message("not a topic!", bytes())));
      Check.refused(() -> x.producer().send(new Message("x".repeat(300), bytes())));
    });
    suite.add("refused.topic-of-system", "A system's topic takes no messages of clients", x ->
        Check.refused(() -> x.producer().send(new Message("SCHEDULE_TOPIC_XXXX", bytes()))));
    suite.add("refused.queue-absent", "A queue that is not there is refused", x -> {
      MessageQueue absent = new MessageQueue(x.topic(), x.broker(), 99);
      Check.refused(() -> x.producer().send(x.message("one"), absent));
      x.send("after");
      x.reader().start().getsOnly("after");
    });
    suite.add("refused.broker-absent", "A broker that is not there is refused", x -> {
      MessageQueue absent = new MessageQueue(x.topic(), "broker-nowhere", 0);
      Check.refused(() -> x.producer().send(x.message("one"), absent));
    });
    suite.add("refused.stopped", "A producer that was shut down refuses messages", x -> {
      x.send("before");
      x.producer().shutdown();
      Check.refused(() -> x.producer().send(x.message("after")));
      x.reader().start().getsOnly("before");
    });
    suite.add("refused.mixed-batch", "A batch for two topics is refused by the client", x ->
        Check.refused(() -> x.producer().send(List.of(
            new Message(x.topic(0), bytes()), new Message(x.topic(1), bytes()))))).topics(2);
    suite.add("refused.delayed-batch", "A batch of delayed messages is refused by the client", x -> {
      Message message = x.message("later");
      message.setDelayTimeLevel(1);
      Check.refused(() -> x.producer().send(List.of(message, x.message("now"))));
    });
  }

  private static byte[] bytes() {
    return "x".getBytes(StandardCharsets.UTF_8);
  }
}
