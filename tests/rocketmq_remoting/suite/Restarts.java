// Brokers and nameservers that are killed or stopped under running clients.

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

final class Restarts {
  private static final int MANY = 60;
  private static final int DUPLICATES_MAX = 50;

  private Restarts() {}

  /** What is done to a broker. */
  private interface Blow {
    void to(Scene scene, String broker) throws Exception;
  }

  static void table(Suite suite) {
    under(suite, "killed", Scene::kill);
    under(suite, "restarted", Scene::restart);
    kept(suite);
    suite.add("killed.nameserver", "Clients go on without a nameserver, and find it again", x -> {
      Reader reader = x.reader().start();
      x.send("1");
      reader.gets(1);
      x.killNameserver();
      for (int number = 2; number < 10; number++) {
        x.send(String.valueOf(number));
      }
      reader.getsOnly("1", "2", "3", "4", "5", "6", "7", "8", "9");
      Check.succeeds(() -> x.newProducer(x.group("new")).send(x.message("10")));
      reader.gets(10);
    }).alone();
  }

  private static void under(Suite suite, String how, Blow blow) {
    suite.add(how + ".producer", "A producer goes on when a broker is " + how, x -> {
      Reader reader = x.reader().start();
      x.send("before");
      blow.to(x, "broker-a");
      String[] bodies = Scene.numbers(20);
      for (String body : bodies) {
        Check.succeeds(() -> x.send(x.message(body)));
      }
      all(List.of(reader), 21);
    }).alone();
    suite.add(how + ".consumer", "A consumer loses nothing when a broker is " + how, x -> {
      Reader reader = x.reader().start();
      x.send(Scene.numbers(MANY));
      reader.gets(MANY / 2);
      blow.to(x, "broker-a");
      for (int number = MANY; number < 2 * MANY; number++) {
        String body = String.valueOf(number);
        Check.succeeds(() -> x.send(x.message(body)));
      }
      all(List.of(reader), 2 * MANY);
      few(reader);
    }).alone();
    suite.add(how + ".ordered", "Order holds when a broker is " + how, x -> {
      Reader reader = x.reader().orderly().start();
      MessageQueue queue = x.queues().stream()
          .filter(each -> each.getBrokerName().equals("broker-a")).findFirst().orElseThrow();
      List<String> sent = new ArrayList<>();
      for (int number = 0; number < 2 * MANY; number++) {
        if (number == MANY) {
          blow.to(x, "broker-a");
        }
        String body = String.valueOf(number);
        Check.succeeds(() -> x.sendTo(queue, body));
        sent.add(body);
      }
      all(List.of(reader), 2 * MANY);
      Check.equal(sent, new ArrayList<>(new java.util.LinkedHashSet<>(reader.bodies())));
      few(reader);
    }).alone();
    suite.add(how + ".members", "Members share again after a broker was " + how, x -> {
      List<Reader> members = List.of(x.reader().start(), x.reader().start());
      x.send(Scene.numbers(MANY));
      all(members, MANY);
      blow.to(x, "broker-b");
      for (int number = MANY; number < 2 * MANY; number++) {
        String body = String.valueOf(number);
        Check.succeeds(() -> x.send(x.message(body)));
      }
      all(members, 2 * MANY);
    }).alone();
  }

  private static void kept(Suite suite) {
    suite.add("kept.messages", "Messages that were acknowledged are there after a kill", x -> {
      List<SendResult> sent = x.send(Scene.numbers(40));
      x.kill("broker-a");
      x.kill("broker-b");
      for (SendResult each : sent) {
        MessageExt found =
            Check.succeeds(() -> x.producer().viewMessage(x.topic(), each.getOffsetMsgId()));
        Check.equal(each.getMsgId(), found.getMsgId());
      }
      x.reader().start().getsOnly(Scene.numbers(40));
    }).alone();
    suite.add("kept.offsets", "A group's place is there after a stop", x -> {
      Reader first = x.reader().start();
      x.send(Scene.numbers(20));
      first.getsOnly(Scene.numbers(20));
      first.stop();
      x.restart("broker-a");
      x.restart("broker-b");
      Check.succeeds(() -> x.send(x.message("after")));
      x.reader().start().getsOnly("after");
    }).alone();
    suite.add("kept.delayed", "A delayed message comes though its broker was killed", x -> {
      Reader reader = x.reader().start();
      Message message = x.message("later");
      message.setDelayTimeLevel(3);
      String broker = x.send(message).getMessageQueue().getBrokerName();
      x.kill(broker);
      Check.soon(() -> reader.bodies().contains("later"), "the message");
    }).alone();
    suite.add("kept.retries", "A failed message comes again though its broker was killed", x -> {
      Reader reader = x.reader().again(3).handling((message, times) -> times > 0).start();
      String broker = x.send("failing").get(0).getMessageQueue().getBrokerName();
      reader.gets(1);
      Thread.sleep(1_000);
      x.kill(broker);
      reader.gets(2);
    }).alone();
    suite.add("kept.transactions", "An open transaction is asked about after a kill", x -> {
      Reader reader = x.reader().start();
      TransactionMQProducer producer = x.set(new TransactionMQProducer(x.group("owners")));
      producer.setTransactionListener(new TransactionListener() {
        @Override public LocalTransactionState executeLocalTransaction(Message one, Object end) {
          return LocalTransactionState.UNKNOW;
        }

        @Override public LocalTransactionState checkLocalTransaction(MessageExt message) {
          return LocalTransactionState.COMMIT_MESSAGE;
        }
      });
      producer.start();
      x.atEnd(producer::shutdown);
      String broker = producer.sendMessageInTransaction(x.message("open"), null)
          .getMessageQueue().getBrokerName();
      x.kill(broker);
      Check.soon(() -> reader.bodies().contains("open"), "the message");
    }).alone();
  }

  private static void all(List<Reader> readers, int count) throws Exception {
    Check.soon(() -> {
      Set<String> found = new HashSet<>();
      readers.forEach(each -> found.addAll(each.bodies()));
      return found.size() == count;
    }, count + " messages");
  }

  private static void few(Reader reader) {
    int again = reader.got.size() - new HashSet<>(reader.bodies()).size();
    Check.that(again < DUPLICATES_MAX, again + " messages came twice");
  }
}
