import com.fasterxml.jackson.annotation.JsonProperty;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.HashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * A load for Kafka with its own Java client: {@code KafkaLoad ADDRESS BODY_BYTES PARTITIONS}. Reads
 * one part a line from standard input, as JSON, and answers each with one line.
 */
public class KafkaLoad {
    record Part(
            String way,
            @JsonProperty("in_flight") int inFlight,
            int batch,
            int rate,
            double seconds) {}

    record Answer(
            int messages,
            @JsonProperty("elapsed_s") double elapsedS,
            int sent,
            @JsonProperty("p50_us") double p50Us,
            @JsonProperty("p99_us") double p99Us) {}

    private final String address;
    private final byte[] body;
    private final int partitions;
    private int inBench = 0;

    KafkaLoad(String address, int bodyBytes, int partitions) {
        this.address = address;
        this.body = new byte[bodyBytes];
        this.partitions = partitions;
    }

    public static void main(String[] arguments) throws Exception {
        KafkaLoad load =
                new KafkaLoad(
                        arguments[0],
                        Integer.parseInt(arguments[1]),
                        Integer.parseInt(arguments[2]));
        load.createTopics();
        // What a part says beyond this record concerns other systems.
        ObjectMapper json =
                new ObjectMapper().disable(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(json.writeValueAsString(load.run(json.readValue(line, Part.class))));
        }
    }

    private void createTopics() throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", address))) {
            admin.createTopics(
                            List.of(
                                    new NewTopic("bench", partitions, (short) 1),
                                    new NewTopic("steady", partitions, (short) 1)))
                    .all()
                    .get();
        }
    }

    private Answer run(Part part) throws Exception {
        return switch (part.way()) {
            case "single" -> send(part, part.inFlight(), 16 << 10);
            // The client makes its own batches of what is in flight; half a megabyte at the most.
            case "batched" -> send(part, part.inFlight() * part.batch(), 512 << 10);
            case "steady" -> steady(part);
            default -> read(part);
        };
    }

    private KafkaProducer<byte[], byte[]> producer(int batchBytes) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", address);
        settings.put("acks", "all");
        settings.put("linger.ms", 0);
        settings.put("batch.size", batchBytes);
        settings.put("buffer.memory", 64L << 20);
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private KafkaConsumer<byte[], byte[]> consumer(String topic) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", address);
        settings.put("max.poll.records", 5_000);
        settings.put("max.partition.fetch.bytes", 8 << 20);
        KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(
                        settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        List<TopicPartition> all =
                IntStream.range(0, partitions).mapToObj(n -> new TopicPartition(topic, n)).toList();
        consumer.assign(all);
        consumer.seekToBeginning(all);
        return consumer;
    }

    /** Keeps {@code inFlight} messages without an answer. */
    private Answer send(Part part, int inFlight, int batchBytes) throws Exception {
        Meter meter = new Meter(part);
        Semaphore free = new Semaphore(inFlight);
        AtomicReference<Exception> failed = new AtomicReference<>();
        try (KafkaProducer<byte[], byte[]> producer = producer(batchBytes)) {
            while (System.nanoTime() < meter.end && failed.get() == null) {
                free.acquire();
                long began = System.nanoTime();
                producer.send(
                        new ProducerRecord<>("bench", body),
                        (at, error) -> {
                            if (error != null) {
                                failed.set(error);
                            }
                            meter.acknowledged(began, System.nanoTime());
                            free.release();
                        });
            }
            free.acquire(inFlight);
        }
        if (failed.get() != null) {
            throw failed.get();
        }
        inBench += meter.sent;
        return meter.answer();
    }

    private Answer steady(Part part) throws Exception {
        ConcurrentLinkedQueue<long[]> arrivals = new ConcurrentLinkedQueue<>();
        Thread reader = new Thread(() -> follow(arrivals));
        reader.setDaemon(true);
        reader.start();
        Meter meter = new Meter(part);
        try (KafkaProducer<byte[], byte[]> producer = producer(16 << 10)) {
            long began = System.nanoTime();
            for (int number = 0; ; number++) {
                // The planned time: a sender that falls behind cannot hide it.
                long planned = began + number * 1_000_000_000L / part.rate();
                if (planned > meter.end) {
                    break;
                }
                for (long wait; (wait = planned - System.nanoTime()) > 0; ) {
                    LockSupport.parkNanos(wait);
                }
                byte[] stamped = new byte[body.length];
                ByteBuffer.wrap(stamped).putLong(planned);
                producer.send(new ProducerRecord<>("steady", stamped));
                meter.sent++;
            }
        }
        long limit = System.nanoTime() + 10_000_000_000L;
        while (arrivals.size() < meter.sent) {
            if (System.nanoTime() > limit) {
                throw new IllegalStateException("a message is missing");
            }
            Thread.sleep(10);
        }
        for (long[] arrival : arrivals) {
            if (arrival[0] > meter.start) {
                meter.add(arrival[1] - arrival[0]);
            }
        }
        return meter.answer();
    }

    private void follow(ConcurrentLinkedQueue<long[]> arrivals) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer("steady")) {
            while (true) {
                for (var message : consumer.poll(Duration.ofSeconds(1))) {
                    long sent = ByteBuffer.wrap(message.value()).getLong();
                    arrivals.add(new long[] {sent, System.nanoTime()});
                }
            }
        }
    }

    /** Stops after the time of the part or the last message; counts after the first answer. */
    private Answer read(Part part) {
        int seen = 0;
        int first = 0;
        long began = 0;
        try (KafkaConsumer<byte[], byte[]> consumer = consumer("bench")) {
            while (seen < inBench) {
                seen += consumer.poll(Duration.ofSeconds(10)).count();
                if (began == 0) {
                    first = seen;
                    began = System.nanoTime();
                } else if (System.nanoTime() - began > part.seconds() * 1e9) {
                    break;
                }
            }
            return new Answer(seen - first, (System.nanoTime() - began) / 1e9, seen, 0, 0);
        }
    }

    /** Counts what is acknowledged once the warm-up is over; one thread at a time. */
    private static final class Meter {
        final long start;
        final long end;
        int sent = 0;
        private int messages = 0;
        private long[] took = new long[1 << 16];

        Meter(Part part) {
            start = System.nanoTime() + (long) (part.seconds() / 3 * 1e9);
            end = start + (long) (part.seconds() * 1e9);
        }

        void acknowledged(long began, long now) {
            sent++;
            if (now >= start && now <= end) {
                add(now - began);
            }
        }

        void add(long nanoseconds) {
            if (messages == took.length) {
                took = Arrays.copyOf(took, 2 * messages);
            }
            took[messages++] = nanoseconds;
        }

        Answer answer() {
            long[] ordered = Arrays.copyOf(took, messages);
            Arrays.sort(ordered);
            return new Answer(
                    messages, (end - start) / 1e9, sent, rank(ordered, 0.5), rank(ordered, 0.99));
        }

        private static double rank(long[] ordered, double share) {
            int last = ordered.length - 1;
            return last < 0 ? 0 : ordered[Math.min(last, (int) (share * ordered.length))] / 1e3;
        }
    }
}
