package compat;

import static java.util.stream.Collectors.toMap;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;

/** Resources of one scenario: unique names, and clients that are closed after it. */
final class Context implements AutoCloseable {
    private static final int REQUEST_SECONDS = 20;

    private final String bootstrap;
    private final String name;
    private final String runId;
    private final List<AutoCloseable> clients = new ArrayList<>();
    private final List<String> topics = new ArrayList<>();
    final Admin admin;

    Context(String bootstrap, String name, String runId) {
        this.bootstrap = bootstrap;
        this.name = name;
        this.runId = runId;
        this.admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
    }

    String bootstrap() {
        return bootstrap;
    }

    String unique(String suffix) {
        return "java-" + name + "-" + runId + "-" + suffix;
    }

    // Topics

    String topic(int partitions) throws Exception {
        return topic(partitions, "t", Map.of());
    }

    String topic(Map<String, String> config) throws Exception {
        return topic(1, "t", config);
    }

    String topic(int partitions, String suffix, Map<String, String> config) throws Exception {
        String topic = unique(suffix);
        topics.add(topic);
        done(
                admin.createTopics(
                                List.of(new NewTopic(topic, partitions, (short) -1).configs(config)))
                        .all());
        // Kafka's metadata may show a topic before its leaders serve; a first idempotent batch
        // would then be refused.
        Expect.eventually(() -> partitions(topic) == partitions, 10, "metadata shows " + topic);
        done(
                admin.listOffsets(
                                partitionsOf(topic, partitions).stream()
                                        .collect(toMap(p -> p, p -> OffsetSpec.latest())))
                        .all());
        return topic;
    }

    /** The topic's number of partitions; 0 if it does not exist. */
    int partitions(String topic) throws Exception {
        try {
            return done(admin.describeTopics(List.of(topic)).allTopicNames())
                    .get(topic)
                    .partitions()
                    .size();
        } catch (ExecutionException e) {
            if (e.getCause() instanceof UnknownTopicOrPartitionException) {
                return 0;
            }
            throw e;
        }
    }

    void deleteAfterwards(String topic) {
        topics.add(topic);
    }

    static List<TopicPartition> partitionsOf(String topic, int count) {
        return IntStream.range(0, count).mapToObj(p -> new TopicPartition(topic, p)).toList();
    }

    static <T> T done(Future<T> future) throws Exception {
        return future.get(REQUEST_SECONDS, TimeUnit.SECONDS);
    }

    static <T> T done(KafkaFuture<T> future) throws Exception {
        return future.get(REQUEST_SECONDS, TimeUnit.SECONDS);
    }

    long offset(String topic, OffsetSpec spec) throws Exception {
        return offset(new TopicPartition(topic, 0), spec);
    }

    long offset(TopicPartition partition, OffsetSpec spec) throws Exception {
        return done(admin.listOffsets(Map.of(partition, spec)).partitionResult(partition)).offset();
    }

    long earliest(String topic) throws Exception {
        return offset(topic, OffsetSpec.earliest());
    }

    long latest(String topic) throws Exception {
        return offset(topic, OffsetSpec.latest());
    }

    // Producing

    KafkaProducer<byte[], byte[]> producer(Map<String, ?> config) {
        Map<String, Object> all = new HashMap<>();
        all.put("bootstrap.servers", bootstrap);
        all.put("linger.ms", 5);
        // Closing a producer waits for its deliveries: against a broken broker, not for two
        // minutes.
        all.put("request.timeout.ms", 10_000);
        all.put("delivery.timeout.ms", 15_000);
        all.putAll(config);
        return opened(
                new KafkaProducer<>(all, new ByteArraySerializer(), new ByteArraySerializer()));
    }

    /** Produces the values in order to partition 0 and returns the acknowledgements. */
    List<RecordMetadata> produce(String topic, Map<String, ?> config, Collection<String> values)
            throws Exception {
        return produceRecords(config, values.stream().map(v -> record(topic, 0, null, v)).toList());
    }

    List<RecordMetadata> produce(String topic, String... values) throws Exception {
        return produce(topic, Map.of(), Arrays.asList(values));
    }

    List<RecordMetadata> produceRecords(
            Map<String, ?> config, List<ProducerRecord<byte[], byte[]>> records) throws Exception {
        try (KafkaProducer<byte[], byte[]> producer = producer(config)) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (ProducerRecord<byte[], byte[]> record : records) {
                sent.add(producer.send(record));
            }
            List<RecordMetadata> acknowledged = new ArrayList<>();
            for (Future<RecordMetadata> one : sent) {
                acknowledged.add(done(one));
            }
            return acknowledged;
        }
    }

    static ProducerRecord<byte[], byte[]> record(
            String topic, int partition, String key, String value) {
        return new ProducerRecord<>(topic, partition, bytes(key), bytes(value));
    }

    static byte[] bytes(String text) {
        return text == null ? null : text.getBytes(StandardCharsets.UTF_8);
    }

    static String text(byte[] bytes) {
        return bytes == null ? null : new String(bytes, StandardCharsets.UTF_8);
    }

    /** The decimal numbers from 0 up to `count`. */
    static List<String> numbers(int count) {
        return IntStream.range(0, count).mapToObj(String::valueOf).toList();
    }

    // Consuming

    KafkaConsumer<byte[], byte[]> consumer(Map<String, ?> config) {
        Map<String, Object> all =
                new HashMap<>(
                        Map.of(
                                "bootstrap.servers",
                                bootstrap,
                                "enable.auto.commit",
                                false,
                                "auto.offset.reset",
                                "earliest",
                                "allow.auto.create.topics",
                                false));
        all.putAll(config);
        return opened(
                new KafkaConsumer<>(all, new ByteArrayDeserializer(), new ByteArrayDeserializer()));
    }

    KafkaShareConsumer<byte[], byte[]> shareConsumer(Map<String, ?> config) {
        Map<String, Object> all = new HashMap<>(config);
        all.put("bootstrap.servers", bootstrap);
        return opened(
                new KafkaShareConsumer<>(
                        all, new ByteArrayDeserializer(), new ByteArrayDeserializer()));
    }

    /** The first `count` records of a partition, in order. */
    List<ConsumerRecord<byte[], byte[]>> read(TopicPartition partition, int count)
            throws Exception {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(Map.of())) {
            consumer.assign(List.of(partition));
            consumer.seek(partition, 0);
            return take(consumer, count);
        }
    }

    List<String> readValues(String topic, int count) throws Exception {
        return read(new TopicPartition(topic, 0), count).stream()
                .map(r -> text(r.value()))
                .toList();
    }

    /** Polls until it has at least `count` records. */
    static List<ConsumerRecord<byte[], byte[]>> take(
            KafkaConsumer<byte[], byte[]> consumer, int count) {
        List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
        long end = System.nanoTime() + 20_000_000_000L;
        while (records.size() < count) {
            consumer.poll(Duration.ofMillis(200)).forEach(records::add);
            Expect.holds(
                    System.nanoTime() < end,
                    records.size() + " of " + count + " records within 20 s");
        }
        return records;
    }

    <T extends AutoCloseable> T opened(T client) {
        synchronized (clients) {
            clients.add(client);
        }
        return client;
    }

    @Override
    public void close() {
        if (!topics.isEmpty()) {
            admin.deleteTopics(topics);
        }
        synchronized (clients) {
            for (AutoCloseable client : clients) {
                try {
                    client.close();
                } catch (Exception e) {
                    // A failed scenario's member may still be in use by its own thread.
                }
            }
        }
        admin.close(Duration.ofSeconds(5));
    }
}
