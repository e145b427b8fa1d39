import com.google.gson.FieldNamingPolicy;
import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Consumer;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * A load for RocketMQ's remoting protocol with Apache's own Java client: {@code RemotingLoad
 * NAMESERVER BODY_BYTES TOPIC STEADY_TOPIC}. Reads one part a line from standard input, as JSON,
 * and answers each with one line.
 */
@SuppressWarnings("deprecation")
public class RemotingLoad {
    private static final int PULL = 32;
    private static final int FILL_PER_S = 200_000;
    private static final int FILL_BATCH = 500;
    private static final int FILL_IN_FLIGHT = 4;
    private static final int REQUEST_MS = 10_000;
    private static final long PATIENCE_NS = 60_000_000_000L;

    private static final class Part {
        String way;
        int inFlight;
        int batch;
        int rate;
        double seconds;
    }

    private final String nameserver;
    private final byte[] body;
    private final String topic;
    private final String steadyTopic;
    private final DefaultMQProducer producer;
    private int sent = 0;
    private int clients = 0;

    RemotingLoad(String nameserver, int bodyBytes, String topic, String steadyTopic)
            throws Exception {
        this.nameserver = nameserver;
        this.body = new byte[bodyBytes];
        this.topic = topic;
        this.steadyTopic = steadyTopic;
        this.producer = set(new DefaultMQProducer("producers"));
        // A busy machine is no reason to send a message twice.
        producer.setSendMsgTimeout(REQUEST_MS);
        producer.setRetryTimesWhenSendAsyncFailed(0);
        producer.start();
    }

    private <T extends ClientConfig> T set(T client) {
        client.setNamesrvAddr(nameserver);
        client.setInstanceName("load-" + ++clients);
        return client;
    }

    public static void main(String[] arguments) throws Exception {
        RemotingLoad load =
                new RemotingLoad(
                        arguments[0], Integer.parseInt(arguments[1]), arguments[2], arguments[3]);
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
            error.printStackTrace();
            System.exit(1);
        }
        System.exit(0);
    }

    private Meter.Answer run(Part part) throws Exception {
        Meter meter = new Meter(part.seconds);
        switch (part.way) {
            case "single" -> {
                if (part.inFlight == 1) {
                    sendOneByOne(meter);
                } else {
                    send(part.inFlight, 1, meter, Integer.MAX_VALUE);
                }
            }
            case "batched" -> send(part.inFlight, part.batch, meter, Integer.MAX_VALUE);
            case "fill" -> fill(part);
            case "read" -> pull(meter);
            case "pushed" -> listen(meter);
            case "steady" -> steady(part, meter);
            default -> throw new IllegalArgumentException(part.way);
        }
        return meter.answer();
    }

    private void sendOneByOne(Meter meter) throws Exception {
        meter.begin();
        while (System.nanoTime() < meter.end) {
            long began = System.nanoTime();
            producer.send(new Message(topic, body));
            meter.acknowledged(began, System.nanoTime());
        }
        sent += meter.sent;
    }

    /** Keeps {@code inFlight} requests of {@code batch} messages without an answer. */
    private void send(int inFlight, int batch, Meter meter, int count) throws Exception {
        meter.begin();
        Semaphore free = new Semaphore(inFlight);
        AtomicReference<Throwable> failed = new AtomicReference<>();
        for (int left = count; left > 0 && failed.get() == null; left -= batch) {
            free.acquire();
            if (System.nanoTime() >= meter.end) {
                free.release();
                break;
            }
            long began = System.nanoTime();
            SendCallback answered =
                    new SendCallback() {
                        @Override
                        public void onSuccess(SendResult result) {
                            long now = System.nanoTime();
                            for (int number = 0; number < batch; number++) {
                                meter.acknowledged(began, now);
                            }
                            free.release();
                        }

                        @Override
                        public void onException(Throwable error) {
                            failed.set(error);
                            free.release();
                        }
                    };
            if (batch == 1) {
                producer.send(new Message(topic, body), answered);
            } else {
                producer.send(batch(batch), answered);
            }
        }
        free.acquire(inFlight);
        if (failed.get() != null) {
            throw new IllegalStateException("a send failed", failed.get());
        }
        sent += meter.sent;
    }

    private List<Message> batch(int count) {
        List<Message> batch = new ArrayList<>(count);
        for (int number = 0; number < count; number++) {
            batch.add(new Message(topic, body));
        }
        return batch;
    }

    /** A new group reads from the start: what other parts have sent counts. */
    private void fill(Part part) throws Exception {
        int missing = (int) (FILL_PER_S * part.seconds * 4 / 3) - sent;
        if (missing > 0) {
            send(FILL_IN_FLIGHT, FILL_BATCH, new Meter(PATIENCE_NS / 1e9), missing);
        }
    }

    private DefaultMQPushConsumer listening(String topic, Consumer<List<MessageExt>> got)
            throws Exception {
        DefaultMQPushConsumer consumer =
                set(new DefaultMQPushConsumer("group-" + (clients + 1)));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener(
                (MessageListenerConcurrently)
                        (messages, context) -> {
                            got.accept(messages);
                            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
                        });
        consumer.start();
        return consumer;
    }

    private void listen(Meter meter) throws Exception {
        DefaultMQPushConsumer consumer = listening(topic, messages -> meter.got(messages.size()));
        meter.awaitEnd(sent);
        consumer.shutdown();
    }

    /** One thread a queue: each reads its own to the end. */
    private void pull(Meter meter) throws Exception {
        DefaultMQPullConsumer consumer = set(new DefaultMQPullConsumer("group-" + (clients + 1)));
        consumer.start();
        List<Thread> pullers = new ArrayList<>();
        for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(topic)) {
            Thread puller = new Thread(() -> pullAll(consumer, queue, meter));
            puller.start();
            pullers.add(puller);
        }
        meter.awaitEnd(sent);
        for (Thread puller : pullers) {
            puller.join();
        }
        consumer.shutdown();
    }

    private void pullAll(DefaultMQPullConsumer consumer, MessageQueue queue, Meter meter) {
        try {
            long offset = 0;
            PullResult found = null;
            while (!meter.isOver(sent) && (found == null || offset < found.getMaxOffset())) {
                found = consumer.pull(queue, "*", offset, PULL);
                offset = found.getNextBeginOffset();
                meter.got(found.getMsgFoundList() == null ? 0 : found.getMsgFoundList().size());
            }
        } catch (Exception error) {
            meter.fail(error);
        }
    }

    /**
     * Each message has the moment when it was to be sent: a late send counts. What earlier parts
     * have sent comes first, and does not.
     */
    private void steady(Part part, Meter meter) throws Exception {
        long first = System.nanoTime();
        CountDownLatch begun = new CountDownLatch(1);
        DefaultMQPushConsumer consumer =
                listening(
                        steadyTopic,
                        messages -> {
                            long now = System.nanoTime();
                            for (MessageExt message : messages) {
                                long sent = ByteBuffer.wrap(message.getBody()).getLong();
                                if (sent == first) {
                                    begun.countDown();
                                } else if (sent > first) {
                                    meter.acknowledged(sent, now);
                                }
                            }
                        });
        // It learns its queues first: a message shows that it has begun.
        producer.send(stamped(first));
        if (!begun.await(PATIENCE_NS, TimeUnit.NANOSECONDS)) {
            throw new IllegalStateException("no message comes");
        }
        meter.begin();
        long planned = System.nanoTime();
        long step = 1_000_000_000L / part.rate;
        while ((planned += step) < meter.end) {
            LockSupport.parkNanos(planned - System.nanoTime());
            producer.send(stamped(planned), IGNORED);
        }
        Thread.sleep(200);
        consumer.shutdown();
    }

    private static final SendCallback IGNORED =
            new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {}

                @Override
                public void onException(Throwable error) {
                    error.printStackTrace();
                }
            };

    private Message stamped(long moment) {
        byte[] stamped = body.clone();
        ByteBuffer.wrap(stamped).putLong(moment);
        return new Message(steadyTopic, stamped);
    }
}
