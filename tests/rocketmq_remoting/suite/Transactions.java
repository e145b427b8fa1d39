// Transactions: each end, and each answer of the check.

import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

final class Transactions {
  private static final LocalTransactionState COMMIT = LocalTransactionState.COMMIT_MESSAGE;
  private static final LocalTransactionState ROLLBACK = LocalTransactionState.ROLLBACK_MESSAGE;
  private static final LocalTransactionState UNKNOW = LocalTransactionState.UNKNOW;

  private Transactions() {}

  /** A producer that ends transactions as its arguments say, and answers the checks in turn. */
  private static final class Owner implements TransactionListener {
    final TransactionMQProducer producer;
    final List<String> checked = new CopyOnWriteArrayList<>();
    private final Map<String, Integer> times = new ConcurrentHashMap<>();
    private final LocalTransactionState[] answers;

    Owner(Scene x, LocalTransactionState... answers) throws Exception {
      this(x, x.group("producers"), answers);
    }

    Owner(Scene x, String group, LocalTransactionState... answers) throws Exception {
      this.answers = answers;
      producer = x.set(new TransactionMQProducer(group));
      producer.setTransactionListener(this);
      producer.setSendMsgTimeout(10_000);
      producer.start();
      x.atEnd(producer::shutdown);
    }

    SendResult sends(Message message, LocalTransactionState end) throws Exception {
      return producer.sendMessageInTransaction(message, end);
    }

    @Override public LocalTransactionState executeLocalTransaction(Message message, Object end) {
      if (end == null) {
        throw new IllegalStateException("the local transaction fails");
      }
      return (LocalTransactionState) end;
    }

    @Override public LocalTransactionState checkLocalTransaction(MessageExt message) {
      String body = Scene.body(message);
      checked.add(body);
      int number = times.merge(body, 1, Integer::sum) - 1;
      return answers[Math.min(number, answers.length - 1)];
    }
  }

  static void table(Suite suite) {
    suite.add("transaction.commit", "A committed message arrives once, with its id", x -> {
      Reader reader = x.reader().start();
      SendResult sent = new Owner(x, COMMIT).sends(x.message("one"), COMMIT);
      x.stored(sent);
      reader.getsOnly("one");
      Check.equal(sent.getMsgId(), reader.got.get(0).message().getMsgId());
    });
    suite.add("transaction.rollback", "A message that is rolled back does not arrive", x -> {
      Reader reader = x.reader().start();
      Owner owner = new Owner(x, UNKNOW);
      owner.sends(x.message("gone"), ROLLBACK);
      owner.sends(x.message("kept"), COMMIT);
      reader.getsOnly("kept");
    });
    suite.add("transaction.checked-commit", "A check that answers commit lets it arrive", x -> {
      Reader reader = x.reader().start();
      Owner owner = new Owner(x, COMMIT);
      owner.sends(x.message("open"), UNKNOW);
      reader.getsOnly("open");
      Check.that(owner.checked.contains("open"), "it was not asked");
    });
    suite.add("transaction.checked-rollback", "A check that answers rollback ends it", x -> {
      Reader reader = x.reader().start();
      Owner owner = new Owner(x, ROLLBACK);
      owner.sends(x.message("open"), UNKNOW);
      Check.soon(() -> owner.checked.size() == 1, "a check");
      reader.getsOnly();
    });
    suite.add("transaction.checked-unknown", "A check without an answer is repeated", x -> {
      Reader reader = x.reader().start();
      Owner owner = new Owner(x, UNKNOW, UNKNOW, COMMIT);
      owner.sends(x.message("open"), UNKNOW);
      reader.getsOnly("open");
      Check.that(owner.checked.size() >= 3, "checks: " + owner.checked);
    });
    suite.add("transaction.failing", "A local transaction that fails is asked about later", x -> {
      Reader reader = x.reader().start();
      Owner owner = new Owner(x, COMMIT);
      owner.sends(x.message("open"), null);
      reader.getsOnly("open");
      Check.that(owner.checked.contains("open"), "it was not asked");
    });
    suite.add("transaction.hidden", "An open message is not seen, and takes no offset", x -> {
      Owner owner = new Owner(x, UNKNOW);
      owner.sends(x.message("open"), UNKNOW);
      long end = 0;
      for (var queue : x.queues()) {
        end += x.producer().maxOffset(queue);
      }
      Check.equal(0L, end);
      x.reader().start().getsOnly();
    });
    suite.add("transaction.contents", "A committed message keeps topic, keys and properties", x -> {
      Reader reader = x.reader().tags("a").start();
      Message message = new Message(x.topic(), "a", "k1", "one".getBytes());
      message.putUserProperty("mine", "x");
      new Owner(x, COMMIT).sends(message, COMMIT);
      MessageExt got = reader.gets(1).get(0).message();
      Check.equal(x.topic() + " a k1 x", got.getTopic() + " " + got.getTags() + " " + got.getKeys()
          + " " + got.getUserProperty("mine"));
    });
    suite.add("transaction.checked-contents", "A check is asked with the message as it is", x -> {
      Owner owner = new Owner(x, COMMIT);
      Message message = new Message(x.topic(), "a", "k1", "open".getBytes());
      message.putUserProperty("mine", "x");
      List<String> seen = new CopyOnWriteArrayList<>();
      owner.producer.setTransactionListener(new TransactionListener() {
        @Override public LocalTransactionState executeLocalTransaction(Message any, Object end) {
          return UNKNOW;
        }

        @Override public LocalTransactionState checkLocalTransaction(MessageExt asked) {
          seen.add(asked.getTopic() + " " + asked.getKeys() + " " + asked.getUserProperty("mine")
              + " " + asked.getTransactionId());
          return COMMIT;
        }
      });
      SendResult sent = owner.sends(message, UNKNOW);
      Check.soon(() -> !seen.isEmpty(), "a check");
      Check.equal(x.topic() + " k1 x " + sent.getMsgId(), seen.get(0));
    });
    suite.add("transaction.other-member", "Another producer of the group is asked", x -> {
      Reader reader = x.reader().start();
      Owner first = new Owner(x, UNKNOW);
      Owner second = new Owner(x, COMMIT);
      // The group is known by heart-beats, which begin once there is a route.
      second.sends(x.message("of the second"), COMMIT);
      first.sends(x.message("open"), UNKNOW);
      first.producer.shutdown();
      reader.getsOnly("of the second", "open");
    });
    suite.add("transaction.many", "Transactions at once end each as they should", x -> {
      Reader reader = x.reader().start();
      Owner owner = new Owner(x, UNKNOW);
      String[] kept = new String[20];
      for (int number = 0; number < 40; number++) {
        owner.sends(x.message("t" + number), number % 2 == 0 ? COMMIT : ROLLBACK);
        if (number % 2 == 0) {
          kept[number / 2] = "t" + number;
        }
      }
      reader.getsOnly(kept);
    });
    suite.add("transaction.two-topics", "One producer has transactions of two topics", x -> {
      Owner owner = new Owner(x, COMMIT);
      owner.sends(x.message("first"), COMMIT);
      owner.sends(new Message(x.topic(1), "second".getBytes()), UNKNOW);
      Reader reader = x.reader()
          .topic(x.topic(0), org.apache.rocketmq.client.consumer.MessageSelector.byTag("*"))
          .topic(x.topic(1), org.apache.rocketmq.client.consumer.MessageSelector.byTag("*"))
          .start();
      reader.getsOnly("first", "second");
    }).topics(2);
  }
}
