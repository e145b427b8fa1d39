// One of Apache's remoting clients, told what to do line by line: see programs.py.

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.RPCHook;

public class Client {
  static final BufferedReader ASKED =
      new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
  /** How often routes are asked for, 30 s by default: a new master is known sooner. */
  static final int ROUTES_MS = 1_000;
  /** Brokers refuse pulls of a consumer until it has told them the newest version of its
   * subscription, and it may miss the moment to do so; then it waits for its next heartbeat. */
  static final int HEARTBEAT_MS = 1_000;
  static final Map<String, Integer> FAILED = new ConcurrentHashMap<>();

  public static void main(String[] arguments) throws Exception {
    String role = arguments[0];
    if (role.equals("producer")) {
      produce(arguments[1]);
    } else if (role.equals("pull")) {
      pull(arguments);
    } else {
      push(arguments, role);
    }
    say(Map.of("stopped", true));
    System.exit(0);
  }

  static synchronized void say(Map<String, ?> line) {
    System.out.println(JSON.toJSONString(line));
    System.out.flush();
  }

  /** What signs requests if the environment has an access key; releases before 5 cannot. */
  static RPCHook signing() throws Exception {
    String key = System.getenv("ACCESS_KEY");
    if (key == null) {
      return null;
    }
    String home = "org.apache.rocketmq.acl.common.";
    Class<?> pair = Class.forName(home + "SessionCredentials");
    Object made = pair.getConstructor(String.class, String.class)
        .newInstance(key, System.getenv("SECRET_KEY"));
    return (RPCHook) Class.forName(home + "AclClientRPCHook").getConstructor(pair).newInstance(made);
  }

  interface Role {
    Map<String, ?> does(JSONObject asked) throws Exception;
  }

  static void serve(Role role) throws Exception {
    say(Map.of("started", true));
    for (String line = ASKED.readLine(); line != null; line = ASKED.readLine()) {
      JSONObject asked = JSON.parseObject(line);
      if (asked.getString("do").equals("stop")) {
        return;
      }
      try {
        say(role.does(asked));
      } catch (Exception error) {
        say(Map.of("error", error.toString()));
      }
    }
  }

  static Map<String, Object> told(MessageExt message) {
    Map<String, Object> found = new HashMap<>();
    found.put("id", message.getMsgId());
    found.put("topic", message.getTopic());
    found.put("body", new String(message.getBody(), StandardCharsets.UTF_8));
    found.put("tag", message.getTags());
    found.put("keys", message.getKeys());
    found.put("properties", message.getProperties());
    found.put("attempt", message.getReconsumeTimes() + 1);
    found.put("queue", message.getQueueId());
    return found;
  }

  // ------------------------------------------------------------------------------ producer

  static void produce(String nameserver) throws Exception {
    TransactionMQProducer producer = new TransactionMQProducer("producers", signing());
    producer.setNamesrvAddr(nameserver);
    producer.setPollNameServerInterval(ROUTES_MS);
    producer.setTransactionListener(new Decisions());
    producer.start();
    serve(asked -> {
      String topic = asked.getString("topic");
      switch (asked.getString("do")) {
        case "view":
          return told(producer.viewMessage(topic, asked.getString("id")));
        case "request":
          Message reply = request(producer, message(topic, asked));
          return Map.of("reply", new String(reply.getBody(), StandardCharsets.UTF_8));
        default:
          return send(producer, asked);
      }
    });
    producer.shutdown();
  }

  /** Not by the call that waits: that of 5.3.3 waits only until the request is stored. */
  static Message request(TransactionMQProducer producer, Message message) throws Exception {
    CompletableFuture<Message> replied = new CompletableFuture<>();
    producer.request(message, new RequestCallback() {
      @Override public void onSuccess(Message reply) {
        if (reply != null) {  // 5.3.3 also calls it, without one, once the request is stored
          replied.complete(reply);
        }
      }

      @Override public void onException(Throwable error) {
        replied.completeExceptionally(error);
      }
    }, 10_000);
    return replied.get(10, TimeUnit.SECONDS);
  }

  static Map<String, ?> send(TransactionMQProducer producer, JSONObject asked) throws Exception {
    String topic = asked.getString("topic");
    if (asked.containsKey("messages")) {
      List<Message> batch = new ArrayList<>();
      for (Object each : asked.getJSONArray("messages")) {
        batch.add(message(topic, (JSONObject) each));
      }
      return answer(producer.send(batch));
    }
    Message message = message(topic, asked);
    if (asked.containsKey("end")) {
      return answer(producer.sendMessageInTransaction(message, asked.getString("end")));
    }
    String group = asked.getString("group");
    if (group != null) {
      return answer(producer.send(message,
          (queues, one, of) -> queues.get(Math.floorMod(of.hashCode(), queues.size())), group));
    }
    String how = asked.getString("how");
    if ("oneway".equals(how)) {
      producer.sendOneway(message);
      return Map.of("status", "ONEWAY");
    }
    if (!"async".equals(how)) {
      return answer(producer.send(message));
    }
    CompletableFuture<SendResult> sent = new CompletableFuture<>();
    producer.send(message, new SendCallback() {
      @Override public void onSuccess(SendResult result) {
        sent.complete(result);
      }

      @Override public void onException(Throwable error) {
        sent.completeExceptionally(error);
      }
    });
    return answer(sent.get(10, TimeUnit.SECONDS));
  }

  static Message message(String topic, JSONObject asked) {
    byte[] body = asked.getString("body").getBytes(StandardCharsets.UTF_8);
    Message message = new Message(topic, asked.getString("tag"), asked.getString("key"), body);
    JSONObject properties = asked.getJSONObject("properties");
    if (properties != null) {
      properties.forEach((name, value) -> message.putUserProperty(name, (String) value));
    }
    if (asked.containsKey("delay_level")) {
      message.setDelayTimeLevel(asked.getIntValue("delay_level"));
    }
    return message;
  }

  static Map<String, ?> answer(SendResult result) {
    Map<String, Object> found = new HashMap<>();
    found.put("status", result.getSendStatus().name());
    found.put("id", result.getMsgId());
    found.put("offset_id", result.getOffsetMsgId());
    found.put("queue", result.getMessageQueue().getQueueId());
    return found;
  }

  static class Decisions implements TransactionListener {
    @Override public LocalTransactionState executeLocalTransaction(Message message, Object end) {
      return state((String) end);
    }

    @Override public LocalTransactionState checkLocalTransaction(MessageExt message) {
      return state(message.getProperty("answer"));
    }

    static LocalTransactionState state(String word) {
      if ("commit".equals(word)) {
        return LocalTransactionState.COMMIT_MESSAGE;
      }
      return "rollback".equals(word)
          ? LocalTransactionState.ROLLBACK_MESSAGE : LocalTransactionState.UNKNOW;
    }
  }

  // ------------------------------------------------------------------------------ consumers

  static boolean handles(MessageExt message) {
    say(Map.of("message", told(message)));
    String fails = message.getUserProperty("fails");
    String body = new String(message.getBody(), StandardCharsets.UTF_8);
    return fails == null || FAILED.merge(body, 1, Integer::sum) > Integer.parseInt(fails);
  }

  /** To a message that asks for it. */
  static boolean replies(DefaultMQPushConsumer consumer, MessageExt message) {
    if (message.getUserProperty("reply") == null) {
      return true;
    }
    try {
      byte[] body = message.getUserProperty("reply").getBytes(StandardCharsets.UTF_8);
      consumer.getDefaultMQPushConsumerImpl().getmQClientFactory().getDefaultMQProducer()
          .send(MessageUtil.createReplyMessage(message, body));
      return true;
    } catch (Exception error) {
      say(Map.of("error", error.toString()));
      return false;
    }
  }

  static void push(String[] arguments, String role) throws Exception {
    DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(
        arguments[2], signing(), new AllocateMessageQueueAveragely());
    consumer.setNamesrvAddr(arguments[1]);
    consumer.setPollNameServerInterval(ROUTES_MS);
    consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
    consumer.setSuspendCurrentQueueTimeMillis(100);
    // Else it commits, as it closes, nothing of a call whose message was told a moment before.
    consumer.setAwaitTerminationMillisWhenShutdown(5_000);
    consumer.setHeartbeatBrokerInterval(HEARTBEAT_MS);
    if (role.equals("broadcast")) {
      broadcast(consumer);
    }
    for (int at = 3; at < arguments.length; at++) {
      String[] wanted = arguments[at].split("=", 2);
      String what = wanted.length == 1 ? "*" : wanted[1];
      if (what.startsWith("sql:")) {
        consumer.subscribe(wanted[0], MessageSelector.bySql(what.substring(4)));
      } else {
        consumer.subscribe(wanted[0], what);
      }
    }
    if (role.equals("orderly")) {
      consumer.setMaxReconsumeTimes(3);
      consumer.registerMessageListener((MessageListenerOrderly) (messages, context) ->
          handles(messages.get(0)) ? ConsumeOrderlyStatus.SUCCESS
              : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT);
    } else {
      consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
        context.setDelayLevelWhenNextConsume(1);
        return handles(messages.get(0)) && replies(consumer, messages.get(0))
            ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER;
      });
    }
    consumer.start();
    serve(asked -> Map.of("error", "a push consumer is only told to stop"));
    consumer.shutdown();
  }

  /** The package of the enumeration differs between releases. */
  @SuppressWarnings({"unchecked", "rawtypes"})
  static void broadcast(DefaultMQPushConsumer consumer) throws Exception {
    for (Method method : consumer.getClass().getMethods()) {
      if (method.getName().equals("setMessageModel")) {
        Class kind = method.getParameterTypes()[0];
        method.invoke(consumer, Enum.valueOf(kind, "BROADCASTING"));
      }
    }
  }

  static void pull(String[] arguments) throws Exception {
    DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(arguments[2], signing());
    consumer.setNamesrvAddr(arguments[1]);
    consumer.setPollNameServerInterval(ROUTES_MS);
    consumer.setHeartbeatBrokerInterval(HEARTBEAT_MS);
    consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
    consumer.setAutoCommit(false);
    for (int at = 3; at < arguments.length; at++) {
      consumer.subscribe(arguments[at], "*");
    }
    consumer.start();
    serve(asked -> {
      if (asked.getString("do").equals("commit")) {
        consumer.commitSync();
        return Map.of("committed", true);
      }
      List<Map<String, Object>> messages = new ArrayList<>();
      for (MessageExt message : consumer.poll(5000)) {
        messages.add(told(message));
      }
      return Map.of("messages", messages);
    });
    consumer.shutdown();
  }
}
