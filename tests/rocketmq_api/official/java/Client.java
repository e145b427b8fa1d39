import com.google.gson.Gson;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.SendReceipt;

/** Apache's client for Java, told what to do line by line; programs.py says in which words. */
final class Client {
  private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
  private static final Gson GSON = new Gson();

  private Client() {}

  /** Carries out one request. What it throws is the answer. */
  private interface Role {
    Map<String, ?> answer(JsonObject asked) throws ClientException;
  }

  private static synchronized void say(Map<String, ?> answer) {
    System.out.println(GSON.toJson(answer));
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
    SendReceipt receipt = producer.send(message.build());
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
            .build()) {
      obey(
          asked ->
              asked.get("do").getAsString().equals("send")
                  ? sent(producer, asked)
                  : recalled(producer, asked));
    }
  }

  public static void main(String[] arguments) throws ClientException, IOException {
    ClientConfiguration configuration =
        ClientConfiguration.newBuilder().setEndpoints(arguments[1]).enableSsl(false).build();
    produce(configuration, Arrays.copyOfRange(arguments, 2, arguments.length));
    say(Map.of("stopped", true));
    System.exit(0);
  }
}
