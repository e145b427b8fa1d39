import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Apache's remoting client, told what to do line by line; apache_owner.py says in which words. */
final class Remoting {
  private static final PrintStream ANSWERS =
      new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
  private static final Map<String, DefaultMQPushConsumer> CONSUMERS = new HashMap<>();
  private static final Map<String, TransactionMQProducer> PRODUCERS = new HashMap<>();

  private Remoting() {}

  private static synchronized void say(Object answer) {
    ANSWERS.println(JSON.toJSONString(answer));
  }

  private static String text(byte[] body) {
    return new String(body, StandardCharsets.UTF_8);
  }

  private static void consume(String nameserver, JSONObject asked) throws Exception {
    String group = asked.getString("group");
    List<String> fails = asked.getJSONArray("fails").toJavaList(String.class);
    DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
    consumer.setNamesrvAddr(nameserver);
    consumer.setInstanceName(group);
    consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
    consumer.setConsumeMessageBatchMaxSize(1);
    consumer.subscribe(asked.getString("topic"), asked.getString("tags"));
    consumer.registerMessageListener(
        (MessageListenerConcurrently)
            (messages, context) -> {
              MessageExt message = messages.get(0);
              String body = text(message.getBody());
              Map<String, Object> seen = new HashMap<>();
              seen.put("group", group);
              seen.put("topic", message.getTopic());
              seen.put("body", body);
              seen.put("failures", message.getReconsumeTimes());
              seen.put("tag", message.getTags());
              seen.put("keys", message.getKeys());
              seen.put("properties", message.getProperties());
              say(Map.of("message", seen));
              return fails.contains(body)
                  ? ConsumeConcurrentlyStatus.RECONSUME_LATER
                  : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
    consumer.start();
    CONSUMERS.put(group, consumer);
  }

  /** What the body names is how the transaction ends when it is checked. */
  private static final class Checks implements TransactionListener {
    @Override
    public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
      return LocalTransactionState.UNKNOW;
    }

    @Override
    public LocalTransactionState checkLocalTransaction(MessageExt message) {
      String body = text(message.getBody());
      say(Map.of("checked", body));
      if (body.contains("commit")) {
        return LocalTransactionState.COMMIT_MESSAGE;
      }
      return body.contains("rollback")
          ? LocalTransactionState.ROLLBACK_MESSAGE
          : LocalTransactionState.UNKNOW;
    }
  }

  private static TransactionMQProducer producer(String nameserver, String group) throws Exception {
    TransactionMQProducer producer = PRODUCERS.get(group);
    if (producer == null) {
      producer = new TransactionMQProducer(group);
      producer.setNamesrvAddr(nameserver);
      producer.setInstanceName(group);
      producer.setTransactionListener(new Checks());
      producer.start();
      PRODUCERS.put(group, producer);
    }
    return producer;
  }

  private static void obey(String nameserver, JSONObject asked) throws Exception {
    switch (asked.getString("do")) {
      case "consume" -> consume(nameserver, asked);
      case "leave" -> CONSUMERS.remove(asked.getString("group")).shutdown();
      case "check" -> {
        MQClientInstance client =
            producer(nameserver, asked.getString("group"))
                .getDefaultMQProducerImpl()
                .getMqClientFactory();
        client.updateTopicRouteInfoFromNameServer(asked.getString("topic"));
        client.sendHeartbeatToAllBrokerWithLock();
      }
      case "send" -> {
        byte[] body = asked.getString("body").getBytes(StandardCharsets.UTF_8);
        Message message = new Message(asked.getString("topic"), body);
        message.setDelayTimeLevel(asked.getIntValue("level"));
        producer(nameserver, "senders").send(message);
      }
      default -> throw new IllegalArgumentException(asked.toJSONString());
    }
  }

  public static void main(String[] arguments) throws Exception {
    BufferedReader lines =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      try {
        obey(arguments[0], JSON.parseObject(line));
        say(Map.of("done", true));
      } catch (Exception error) {
        say(Map.of("error", error.toString()));
      }
    }
    System.exit(0);
  }
}
