// RocketMQ's starter for Spring Boot, told what to do line by line: see programs.py.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.spring.annotation.ConsumeMode;
import org.apache.rocketmq.spring.annotation.MessageModel;
import org.apache.rocketmq.spring.annotation.RocketMQMessageListener;
import org.apache.rocketmq.spring.annotation.RocketMQTransactionListener;
import org.apache.rocketmq.spring.autoconfigure.RocketMQAutoConfiguration;
import org.apache.rocketmq.spring.core.RocketMQListener;
import org.apache.rocketmq.spring.core.RocketMQLocalTransactionListener;
import org.apache.rocketmq.spring.core.RocketMQLocalTransactionState;
import org.apache.rocketmq.spring.core.RocketMQPushConsumerLifecycleListener;
import org.apache.rocketmq.spring.core.RocketMQTemplate;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.ImportAutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnProperty;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.annotation.Import;
import org.springframework.messaging.Message;
import org.springframework.messaging.support.MessageBuilder;

@Configuration
@ImportAutoConfiguration(RocketMQAutoConfiguration.class)
@Import({Client.Concurrent.class, Client.Orderly.class, Client.Broadcast.class,
    Client.Decisions.class})
public class Client {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final PrintStream ANSWERS =
      new PrintStream(System.out, true, StandardCharsets.UTF_8);
  private static final Map<String, Integer> FAILED = new ConcurrentHashMap<>();

  public static void main(String[] arguments) throws Exception {
    // Whatever logs to standard output is no answer.
    System.setOut(System.err);
    Map<String, Object> properties = new HashMap<>();
    properties.put("spring.main.web-application-type", "none");
    properties.put("spring.main.banner-mode", "off");
    properties.put("rocketmq.name-server", arguments[1]);
    properties.put("role", arguments[0]);
    if (arguments[0].equals("producer")) {
      properties.put("rocketmq.producer.group", "producers");
      properties.put("rocketmq.producer.send-message-timeout", 10_000);
    } else {
      String[] wanted = arguments[3].split("=", 2);
      properties.put("group", arguments[2]);
      properties.put("topic", wanted[0]);
      properties.put("tags", wanted.length == 1 ? "*" : wanted[1]);
    }
    SpringApplication application = new SpringApplication(Client.class);
    application.setDefaultProperties(properties);
    ConfigurableApplicationContext context = application.run();
    serve(context);
    context.close();
    say(Map.of("stopped", true));
    System.exit(0);
  }

  static synchronized void say(Map<String, ?> line) {
    try {
      ANSWERS.println(JSON.writeValueAsString(line));
    } catch (java.io.IOException error) {
      throw new java.io.UncheckedIOException(error);
    }
  }

  private static void serve(ConfigurableApplicationContext context) throws Exception {
    say(Map.of("started", true));
    BufferedReader lines =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      JsonNode asked = JSON.readTree(line);
      if (asked.path("do").asText().equals("stop")) {
        return;
      }
      try {
        say(send(context.getBean(RocketMQTemplate.class), asked));
      } catch (Exception error) {
        say(Map.of("error", error.toString()));
      }
    }
  }

  // ------------------------------------------------------------------------------ producer

  private static Map<String, ?> send(RocketMQTemplate template, JsonNode asked) throws Exception {
    String topic = asked.path("topic").asText();
    String to = asked.hasNonNull("tag") ? topic + ":" + asked.path("tag").asText() : topic;
    if (asked.has("messages")) {
      List<Message<String>> batch = new ArrayList<>();
      asked.path("messages").forEach(each -> batch.add(message(each)));
      return answer(template.syncSend(to, batch));
    }
    Message<String> message = message(asked);
    if (asked.has("end")) {
      return answer(
          template.sendMessageInTransaction(to, message, asked.path("end").asText()));
    }
    if (asked.hasNonNull("group")) {
      return answer(template.syncSendOrderly(to, message, asked.path("group").asText()));
    }
    if (asked.path("how").asText().equals("oneway")) {
      template.sendOneWay(to, message);
      return Map.of("status", "ONEWAY");
    }
    if (!asked.path("how").asText().equals("async")) {
      return answer(
          template.syncSend(to, message, 10_000, asked.path("delay_level").asInt(0)));
    }
    CompletableFuture<SendResult> sent = new CompletableFuture<>();
    template.asyncSend(to, message, new SendCallback() {
      @Override public void onSuccess(SendResult result) {
        sent.complete(result);
      }

      @Override public void onException(Throwable error) {
        sent.completeExceptionally(error);
      }
    });
    return answer(sent.get(10, TimeUnit.SECONDS));
  }

  private static Message<String> message(JsonNode asked) {
    MessageBuilder<String> made = MessageBuilder.withPayload(asked.path("body").asText());
    if (asked.hasNonNull("key")) {
      made.setHeader("KEYS", asked.path("key").asText());
    }
    asked.path("properties").fields()
        .forEachRemaining(each -> made.setHeader(each.getKey(), each.getValue().asText()));
    return made.build();
  }

  private static Map<String, ?> answer(SendResult result) {
    Map<String, Object> found = new HashMap<>();
    found.put("status", result.getSendStatus().name());
    found.put("id", result.getMsgId());
    found.put("offset_id", result.getOffsetMsgId());
    found.put("queue", result.getMessageQueue().getQueueId());
    return found;
  }

  @SuppressWarnings("rawtypes")
  @RocketMQTransactionListener
  @ConditionalOnProperty(name = "role", havingValue = "producer")
  static class Decisions implements RocketMQLocalTransactionListener {
    @Override public RocketMQLocalTransactionState executeLocalTransaction(
        Message message, Object end) {
      return state((String) end);
    }

    @Override public RocketMQLocalTransactionState checkLocalTransaction(Message message) {
      return state((String) message.getHeaders().get("answer"));
    }

    static RocketMQLocalTransactionState state(String word) {
      if ("commit".equals(word)) {
        return RocketMQLocalTransactionState.COMMIT;
      }
      return "rollback".equals(word) ? RocketMQLocalTransactionState.ROLLBACK
          : RocketMQLocalTransactionState.UNKNOWN;
    }
  }

  // ------------------------------------------------------------------------------ consumers

  /** Says what comes, and fails as often as the message wants. */
  abstract static class Listener
      implements RocketMQListener<MessageExt>, RocketMQPushConsumerLifecycleListener {
    @Override public void onMessage(MessageExt message) {
      String body = new String(message.getBody(), StandardCharsets.UTF_8);
      Map<String, Object> told = new HashMap<>();
      told.put("id", message.getMsgId());
      told.put("topic", message.getTopic());
      told.put("body", body);
      told.put("tag", message.getTags());
      told.put("keys", message.getKeys());
      told.put("properties", message.getProperties());
      told.put("attempt", message.getReconsumeTimes() + 1);
      told.put("queue", message.getQueueId());
      say(Map.of("message", told));
      String fails = message.getUserProperty("fails");
      if (fails != null && FAILED.merge(body, 1, Integer::sum) <= Integer.parseInt(fails)) {
        throw new IllegalStateException("it fails as it is told");
      }
    }

    @Override public void prepareStart(DefaultMQPushConsumer consumer) {
      consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
    }
  }

  @RocketMQMessageListener(topic = "${topic}", consumerGroup = "${group}",
      selectorExpression = "${tags}", delayLevelWhenNextConsume = 1)
  @ConditionalOnProperty(name = "role", havingValue = "push")
  static class Concurrent extends Listener {}

  @RocketMQMessageListener(topic = "${topic}", consumerGroup = "${group}",
      selectorExpression = "${tags}", consumeMode = ConsumeMode.ORDERLY, maxReconsumeTimes = 3,
      suspendCurrentQueueTimeMillis = 100)
  @ConditionalOnProperty(name = "role", havingValue = "orderly")
  static class Orderly extends Listener {}

  @RocketMQMessageListener(topic = "${topic}", consumerGroup = "${group}",
      selectorExpression = "${tags}", messageModel = MessageModel.BROADCASTING)
  @ConditionalOnProperty(name = "role", havingValue = "broadcast")
  static class Broadcast extends Listener {}
}
