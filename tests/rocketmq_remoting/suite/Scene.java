// What a scenario has: topics and groups of its own, and clients that end with it.

import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.IntStream;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

final class Scene {
  /** How often clients ask for routes, 30 s by default: changes are known sooner. */
  private static final int ROUTES_MS = 1_000;
  private static final int HEART_BEAT_MS = 5_000;
  private static final AtomicInteger CLIENTS = new AtomicInteger();

  private final Suite suite;
  private final Suite.Scenario scenario;
  private final Deque<Runnable> ends = new ArrayDeque<>();
  private DefaultMQProducer producer = null;
  private DefaultMQAdminExt admin = null;

  Scene(Suite suite, Suite.Scenario scenario) {
    this.suite = suite;
    this.scenario = scenario;
  }

  void atEnd(Runnable end) {
    ends.push(end);
  }

  void close() {
    for (Runnable end : ends) {
      try {
        end.run();
      } catch (RuntimeException ignored) {
        // It was shut down before.
      }
    }
  }

  // ------------------------------------------------------------------------------ names

  String topic() {
    return topic(0);
  }

  String topic(int number) {
    return scenario.topic(number);
  }

  /** A name that no cluster has yet. */
  String newTopic() {
    return "N-" + scenario.name.replace('.', '-');
  }

  String group() {
    return group("readers");
  }

  String group(String name) {
    return "G-" + scenario.name.replace('.', '-') + "-" + name;
  }

  // ------------------------------------------------------------------------------ clients

  <T extends ClientConfig> T set(T client) {
    client.setNamesrvAddr(suite.address);
    client.setInstanceName("suite-" + CLIENTS.incrementAndGet());
    client.setPollNameServerInterval(ROUTES_MS);
    client.setHeartbeatBrokerInterval(HEART_BEAT_MS);
    return client;
  }

  DefaultMQProducer producer() throws Exception {
    if (producer == null) {
      producer = newProducer(group("producers"));
    }
    return producer;
  }

  DefaultMQProducer newProducer(String group) throws Exception {
    DefaultMQProducer made = set(new DefaultMQProducer(group));
    made.setSendMsgTimeout(10_000);
    made.start();
    atEnd(made::shutdown);
    return made;
  }

  Reader reader() {
    return reader(group());
  }

  Reader reader(String group) {
    return new Reader(this, set(new DefaultMQPushConsumer(group)));
  }

  DefaultLitePullConsumer lite(String group) {
    DefaultLitePullConsumer made = set(new DefaultLitePullConsumer(group));
    made.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
    atEnd(made::shutdown);
    return made;
  }

  @SuppressWarnings("deprecation")
  DefaultMQPullConsumer puller(String group) throws Exception {
    DefaultMQPullConsumer made = set(new DefaultMQPullConsumer(group));
    made.start();
    atEnd(made::shutdown);
    return made;
  }

  DefaultMQAdminExt admin() throws Exception {
    if (admin == null) {
      admin = set(new DefaultMQAdminExt(10_000));
      admin.start();
      atEnd(admin::shutdown);
    }
    return admin;
  }

  /** The package of the enumeration differs between releases. */
  @SuppressWarnings({"unchecked", "rawtypes"})
  static void broadcast(Object consumer) {
    try {
      for (Method method : consumer.getClass().getMethods()) {
        if (method.getName().equals("setMessageModel")) {
          method.invoke(consumer,
              Enum.valueOf((Class) method.getParameterTypes()[0], "BROADCASTING"));
        }
      }
    } catch (ReflectiveOperationException error) {
      throw new IllegalStateException(error);
    }
  }

  // ------------------------------------------------------------------------------ messages

  Message message(String body) {
    return message(body, null);
  }

  Message message(String body, String tag) {
    return new Message(topic(), tag, body.getBytes(StandardCharsets.UTF_8));
  }

  static String body(Message message) {
    return new String(message.getBody(), StandardCharsets.UTF_8);
  }

  static List<String> bodies(List<MessageExt> messages) {
    return messages.stream().map(Scene::body).toList();
  }

  static String[] numbers(int count) {
    return IntStream.range(0, count).mapToObj(String::valueOf).toArray(String[]::new);
  }

  SendResult stored(SendResult result) {
    Check.equal(SendStatus.SEND_OK, result.getSendStatus());
    return result;
  }

  SendResult send(Message message) throws Exception {
    return stored(producer().send(message));
  }

  /** One after the other. */
  List<SendResult> send(String... bodies) throws Exception {
    List<SendResult> results = new ArrayList<>();
    for (String body : bodies) {
      results.add(send(message(body)));
    }
    return results;
  }

  List<SendResult> sendTo(MessageQueue queue, String... bodies) throws Exception {
    List<SendResult> results = new ArrayList<>();
    for (String body : bodies) {
      results.add(stored(producer().send(message(body), queue)));
    }
    return results;
  }

  /** Queues to send to, in their order. */
  List<MessageQueue> queues() throws Exception {
    return producer().fetchPublishMessageQueues(topic()).stream().sorted().toList();
  }

  /** Waits for an asynchronous send. */
  static final class Later implements SendCallback {
    private final CompletableFuture<SendResult> sent = new CompletableFuture<>();

    @Override public void onSuccess(SendResult result) {
      sent.complete(result);
    }

    @Override public void onException(Throwable error) {
      sent.completeExceptionally(error);
    }

    SendResult result() throws Exception {
      return sent.get(20, TimeUnit.SECONDS);
    }
  }

  // ------------------------------------------------------------------------------ the cluster

  /** Kills a broker by signal 9 and starts it again; returns once it is killed. */
  void kill(String broker) throws Exception {
    suite.ask("kill", broker);
  }

  /** Stops a broker as operators do, and starts it again; returns once it has stopped. */
  void restart(String broker) throws Exception {
    suite.ask("restart", broker);
  }

  /** Kills the nameserver and starts it again. */
  void killNameserver() throws Exception {
    suite.ask("kill", "nameserver");
  }

  /** A broker that has the topic. */
  String broker() throws Exception {
    return queues().get(0).getBrokerName();
  }
}
