import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientConfigurationBuilder;
import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.StaticSessionCredentialsProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.MessageListener;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/** Apache's client for Java, told what to do line by line; programs.py says in which words. */
final class Client {
  private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
  private static final Gson GSON = new GsonBuilder().serializeNulls().create();
  private static final Duration AWAIT = Duration.ofSeconds(5);

  /** Of a call. A deadline begins before the JVM has loaded the classes to make the first one. */
  private static final Duration PATIENCE = Duration.ofSeconds(20);
  private static final PrintStream ANSWERS =
      new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);

  private Client() {}

  /** Carries out one request. What it throws is the answer. */
  private interface Role {
    Map<String, ?> answer(JsonObject asked) throws ClientException;
  }

  private static synchronized void say(Map<String, ?> answer) {
    ANSWERS.println(GSON.toJson(answer));
  }

  private static Map<String, ?> sent(Producer producer, JsonObject asked) throws ClientException {
    MessageBuilder message =
        PROVIDER
            .newMessageBuilder()
            .setTopic(asked.get("topic").getAsString())
            .setBody(asked.get("body").getAsString().getBytes(StandardCharsets.UTF_8));
    if (asked.has("tag")) {
      message.setTag(asked.get("tag").getAsString());
    }
    if (asked.has("keys")) {
      List<String> keys = new ArrayList<>();
      asked.getAsJsonArray("keys").forEach(key -> keys.add(key.getAsString()));
      message.setKeys(keys.toArray(String[]::new));
    }
    if (asked.has("properties")) {
      for (Map.Entry<String, JsonElement> one : asked.getAsJsonObject("properties").entrySet()) {
        message.addProperty(one.getKey(), one.getValue().getAsString());
      }
    }
    if (asked.has("group")) {
      message.setMessageGroup(asked.get("group").getAsString());
    }
    if (asked.has("delay_s")) {
      message.setDeliveryTimestamp(
          System.currentTimeMillis() + asked.get("delay_s").getAsInt() * 1000L);
    }
    if (!asked.has("end")) {
      return told(producer.send(message.build()));
    }
    Transaction transaction = producer.beginTransaction();
    SendReceipt receipt = producer.send(message.build(), transaction);
    switch (asked.get("end").getAsString()) {
      case "commit" -> transaction.commit();
      case "rollback" -> transaction.rollback();
      default -> {}
    }
    return told(receipt);
  }

  private static Map<String, ?> told(SendReceipt receipt) {
    return Map.of("id", receipt.getMessageId().toString(), "handle", receipt.getRecallHandle());
  }

  private static Map<String, ?> recalled(Producer producer, JsonObject asked)
      throws ClientException {
    return Map.of(
        "id",
        producer
            .recallMessage(asked.get("topic").getAsString(), asked.get("handle").getAsString())
            .getMessageId()
            .toString());
  }

  private static void obey(Role role) throws IOException {
    say(Map.of("started", true));
    BufferedReader lines =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      JsonObject asked = JsonParser.parseString(line).getAsJsonObject();
      if (asked.get("do").getAsString().equals("stop")) {
        return;
      }
      try {
        say(role.answer(asked));
      } catch (ClientException | RuntimeException error) {
        say(Map.of("error", error.toString()));
      }
    }
  }

  private static void produce(ClientConfiguration configuration, String[] topics)
      throws ClientException, IOException {
    try (Producer producer =
        PROVIDER
            .newProducerBuilder()
            .setClientConfiguration(configuration)
            .setTopics(topics)
            .setTransactionChecker(
                message ->
                    TransactionResolution.valueOf(
                        message
                            .getProperties()
                            .getOrDefault("answer", "unknown")
                            .toUpperCase(Locale.ROOT)))
            .build()) {
      obey(
          asked ->
              asked.get("do").getAsString().equals("send")
                  ? sent(producer, asked)
                  : recalled(producer, asked));
    }
  }

  private static Map<String, Object> seen(MessageView message) {
    Map<String, Object> seen = new HashMap<>();
    seen.put("id", message.getMessageId().toString());
    seen.put("topic", message.getTopic());
    seen.put("body", StandardCharsets.UTF_8.decode(message.getBody()).toString());
    seen.put("tag", message.getTag().orElse(null));
    seen.put("keys", message.getKeys());
    seen.put("properties", message.getProperties());
    seen.put("group", message.getMessageGroup().orElse(null));
    seen.put("attempt", message.getDeliveryAttempt());
    return seen;
  }

  private static Map<String, FilterExpression> subscription(String[] topics) {
    Map<String, FilterExpression> subscription = new HashMap<>();
    for (String one : topics) {
      String[] parts = one.split("=", 2);
      String tags = parts.length > 1 ? parts[1] : "*";
      subscription.put(
          parts[0],
          tags.startsWith("sql:")
              ? new FilterExpression(tags.substring(4), FilterExpressionType.SQL92)
              : new FilterExpression(tags));
    }
    return subscription;
  }

  private static Map<String, ?> received(
      SimpleConsumer consumer, Map<String, MessageView> held, JsonObject asked)
      throws ClientException {
    if (asked.get("do").getAsString().equals("receive")) {
      List<Map<String, Object>> messages = new ArrayList<>();
      Duration invisible = Duration.ofSeconds(asked.get("invisible_s").getAsInt());
      for (MessageView message : consumer.receive(asked.get("max").getAsInt(), invisible)) {
        held.put(message.getMessageId().toString(), message);
        messages.add(seen(message));
      }
      return Map.of("messages", messages);
    }
    String id = asked.get("id").getAsString();
    if (asked.get("do").getAsString().equals("ack")) {
      consumer.ack(held.get(id));
    } else {
      Duration invisible = Duration.ofSeconds(asked.get("invisible_s").getAsInt());
      consumer.changeInvisibleDuration(held.get(id), invisible);
    }
    return Map.of("id", id);
  }

  private static void receive(ClientConfiguration configuration, String group, String[] topics)
      throws ClientException, IOException {
    Map<String, MessageView> held = new HashMap<>();
    try (SimpleConsumer consumer =
        PROVIDER
            .newSimpleConsumerBuilder()
            .setClientConfiguration(configuration)
            .setConsumerGroup(group)
            .setAwaitDuration(AWAIT)
            .setSubscriptionExpressions(subscription(topics))
            .build()) {
      obey(asked -> received(consumer, held, asked));
    }
  }

  private static void listen(ClientConfiguration configuration, String group, String[] topics)
      throws ClientException, IOException {
    Map<String, Integer> calls = new ConcurrentHashMap<>();
    MessageListener listener =
        message -> {
          int call = calls.merge(message.getMessageId().toString(), 1, Integer::sum);
          say(Map.of("message", seen(message)));
          Map<String, String> properties = message.getProperties();
          try {
            Thread.sleep(1000L * Integer.parseInt(properties.getOrDefault("takes_s", "0")));
          } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
          }
          int fails = Integer.parseInt(properties.getOrDefault("fails", "0"));
          return call <= fails ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
        };
    PushConsumer consumer =
        PROVIDER
            .newPushConsumerBuilder()
            .setClientConfiguration(configuration)
            .setConsumerGroup(group)
            .setSubscriptionExpressions(subscription(topics))
            .setMessageListener(listener)
            .build();
    obey(asked -> Map.of());
    consumer.close();
  }

  public static void main(String[] arguments) throws ClientException, IOException {
    ClientConfigurationBuilder configured =
        ClientConfiguration.newBuilder()
            .setEndpoints(arguments[1])
            .setRequestTimeout(PATIENCE)
            .enableSsl(System.getenv("OFFICIAL_TLS") != null);
    String accessKey = System.getenv("TEST_ACCESS_KEY");
    if (accessKey != null) {
      configured.setCredentialProvider(
          new StaticSessionCredentialsProvider(accessKey, System.getenv("TEST_SECRET_KEY")));
    }
    ClientConfiguration configuration = configured.build();
    String[] rest = Arrays.copyOfRange(arguments, 2, arguments.length);
    switch (arguments[0]) {
      case "producer" -> produce(configuration, rest);
      case "simple" -> receive(configuration, rest[0], Arrays.copyOfRange(rest, 1, rest.length));
      case "push" -> listen(configuration, rest[0], Arrays.copyOfRange(rest, 1, rest.length));
      default -> throw new IllegalArgumentException(arguments[0]);
    }
    say(Map.of("stopped", true));
    System.exit(0);
  }
}
