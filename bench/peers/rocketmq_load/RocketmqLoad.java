import com.google.gson.FieldNamingPolicy;
import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;

/**
 * A load for Apache RocketMQ 5's gRPC API with Apache's own Java client: {@code RocketmqLoad
 * ADDRESS BODY_BYTES TOPIC}. Reads one part a line from standard input, as JSON, and answers each
 * with one line.
 */
public class RocketmqLoad {
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    private static final int BATCH = 32;
    private static final int RECEIVERS = 4;
    private static final int FILL_PER_S = 15_000;
    private static final int FILL_IN_FLIGHT = 256;
    private static final Duration INVISIBLE = Duration.ofMinutes(5);
    private static final long PATIENCE_NS = 60_000_000_000L;

    private static final class Part {
        String way;
        int inFlight;
        double seconds;
    }

    private final ClientConfiguration configuration;
    private final byte[] body;
    private final String topic;
    private final Producer producer;
    private int sent = 0;
    private int groups = 0;

    RocketmqLoad(String address, int bodyBytes, String topic) throws Exception {
        this.configuration =
                ClientConfiguration.newBuilder()
                        .setEndpoints(address)
                        .enableSsl(false)
                        // A busy machine is no reason to send a message twice.
                        .setRequestTimeout(Duration.ofSeconds(10))
                        .build();
        this.body = new byte[bodyBytes];
        this.topic = topic;
        this.producer =
                PROVIDER
                        .newProducerBuilder()
                        .setClientConfiguration(configuration)
                        .setTopics(topic)
                        .build();
    }

    public static void main(String[] arguments) throws Exception {
        RocketmqLoad load =
                new RocketmqLoad(arguments[0], Integer.parseInt(arguments[1]), arguments[2]);
        Gson json =
                new GsonBuilder()
                        .setFieldNamingPolicy(FieldNamingPolicy.LOWER_CASE_WITH_UNDERSCORES)
                        .create();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        try {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                System.out.println(json.toJson(load.run(json.fromJson(line, Part.class))));
            }
        } catch (Exception error) {
            System.err.println(error);
            System.exit(1);
        }
        System.exit(0);
    }

    private Meter.Answer run(Part part) throws Exception {
        Meter meter = new Meter(part.seconds);
        switch (part.way) {
            case "single" -> send(part.inFlight, meter, Integer.MAX_VALUE);
            case "fill" -> fill(part);
            case "pushed" -> listen(meter);
            case "read" -> receive(meter);
            default -> throw new IllegalArgumentException(part.way);
        }
        return meter.answer();
    }

    private Message message() {
        return PROVIDER.newMessageBuilder().setTopic(topic).setBody(body).build();
    }

    /** Keeps {@code inFlight} messages without an answer. */
    private void send(int inFlight, Meter meter, int count) throws Exception {
        meter.begin();
        Semaphore free = new Semaphore(inFlight);
        AtomicReference<Throwable> failed = new AtomicReference<>();
        int left = count;
        while (System.nanoTime() < meter.end && failed.get() == null && left-- > 0) {
            free.acquire();
            long began = System.nanoTime();
            producer.sendAsync(message())
                    .whenComplete(
                            (receipt, error) -> {
                                if (error != null) {
                                    failed.set(error);
                                }
                                meter.acknowledged(began, System.nanoTime());
                                free.release();
                            });
        }
        free.acquire(inFlight);
        if (failed.get() != null) {
            throw new IllegalStateException("a send failed: " + failed.get());
        }
        sent += meter.sent;
    }

    /** A new group reads from the start: what other parts have sent counts. */
    private void fill(Part part) throws Exception {
        int missing = (int) (FILL_PER_S * part.seconds * 4 / 3) - sent;
        if (missing > 0) {
            send(FILL_IN_FLIGHT, new Meter(PATIENCE_NS / 1e9), missing);
        }
    }

    private Map<String, FilterExpression> subscription() {
        return Map.of(topic, new FilterExpression("*"));
    }

    private String newGroup() {
        return "group-" + ++groups;
    }

    private void listen(Meter meter) throws Exception {
        PushConsumer consumer =
                PROVIDER
                        .newPushConsumerBuilder()
                        .setClientConfiguration(configuration)
                        .setConsumerGroup(newGroup())
                        .setSubscriptionExpressions(subscription())
                        .setMessageListener(
                                message -> {
                                    meter.got(1);
                                    return ConsumeResult.SUCCESS;
                                })
                        .build();
        meter.awaitEnd(sent);
        consumer.close();
    }

    private void receive(Meter meter) throws Exception {
        SimpleConsumer consumer =
                PROVIDER
                        .newSimpleConsumerBuilder()
                        .setClientConfiguration(configuration)
                        .setConsumerGroup(newGroup())
                        .setAwaitDuration(Duration.ofSeconds(5))
                        .setSubscriptionExpressions(subscription())
                        .build();
        List<Thread> receivers = new ArrayList<>();
        for (int number = 0; number < RECEIVERS; number++) {
            Thread receiver = new Thread(() -> receiveAll(consumer, meter));
            receiver.start();
            receivers.add(receiver);
        }
        meter.awaitEnd(sent);
        for (Thread receiver : receivers) {
            receiver.join();
        }
        consumer.close();
    }

    /** The client acknowledges each message by a call of its own: all of a batch at once here. */
    private void receiveAll(SimpleConsumer consumer, Meter meter) {
        try {
            while (!meter.isOver(sent)) {
                List<MessageView> batch = consumer.receive(BATCH, INVISIBLE);
                CompletableFuture<?>[] acknowledged =
                        batch.stream().map(consumer::ackAsync).toArray(CompletableFuture[]::new);
                CompletableFuture.allOf(acknowledged).join();
                meter.got(batch.size());
            }
        } catch (Exception error) {
            meter.fail(error);
        }
    }
}
