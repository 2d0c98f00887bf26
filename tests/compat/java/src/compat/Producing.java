package compat;

import static compat.Context.bytes;
import static compat.Context.done;
import static compat.Context.numbers;
import static compat.Context.record;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.InvalidRecordException;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.stream.IntStream;

/**
 * Produced records are read back exactly, at every level of acknowledgement and with every
 * compression.
 */
final class Producing {
    /** Young enough for the default retention, old enough to differ from the time of appending. */
    private static final long START = System.currentTimeMillis() - 3_600_000;

    private Producing() {}

    static void register(Suite suite) {
        for (String compression : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            suite.add("compression-" + compression, context -> roundTrip(context, compression));
        }
        suite.add("compression-of-the-topic", Producing::compressionOfTheTopic);
        suite.add("acks-0", Producing::acks0);
        suite.add("acks-1", context -> acknowledged(context, "1"));
        suite.add("acks-all", context -> acknowledged(context, "all"));
        suite.add("idempotent-producer", Producing::idempotentProducer);
        suite.add("large-record", Producing::largeRecord);
        suite.add("record-over-the-limit", Producing::recordOverTheLimit);
        suite.add("log-append-time", Producing::logAppendTime);
        suite.add("partitions-keep-order", Producing::partitionsKeepOrder);
        suite.add("keys-choose-partitions", Producing::keysChoosePartitions);
        suite.add("refused-records-are-named", Producing::refusedRecordsAreNamed);
        suite.add("transactions", Producing::transactions);
        suite.add("transactions-with-offsets", Producing::transactionsWithOffsets);
        suite.add("transactions-fence-the-former-producer", Producing::fencedProducer);
    }

    /** KIP-467: the invalid records of a batch are named in the error. */
    private static void refusedRecordsAreNamed(Context context) throws Exception {
        String topic = context.topic(Map.of("cleanup.policy", "compact"));
        Map<String, ?> oneBatch = Map.of("linger.ms", 2000, "batch.size", 1 << 20);
        List<Integer> blamed = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = context.producer(oneBatch)) {
            List<Future<RecordMetadata>> sent =
                    IntStream.range(0, 100)
                            .mapToObj(n -> record(topic, 0, n % 10 == 3 ? null : "key", "value"))
                            .map(producer::send)
                            .toList();
            producer.flush();
            for (int n = 0; n < sent.size(); n++) {
                Future<RecordMetadata> one = sent.get(n);
                try {
                    done(one);
                    Expect.holds(false, "record " + n + " was taken, beside refused ones");
                } catch (ExecutionException e) {
                    if (e.getCause() instanceof InvalidRecordException) {
                        blamed.add(n);
                    }
                }
            }
        }
        Expect.equal(
                blamed,
                IntStream.range(0, 10).mapToObj(ten -> 10 * ten + 3).toList(),
                "records that are to blame");
    }

    private static final int TRANSACTION_PARTITIONS = 3;

    private static void sendToAll(
            KafkaProducer<byte[], byte[]> producer, String topic, String value) {
        for (int partition = 0; partition < TRANSACTION_PARTITIONS; partition++) {
            producer.send(record(topic, partition, null, value));
        }
    }

    private static void expectCommitted(Context context, String topic, List<String> expected) {
        for (int partition = 0; partition < TRANSACTION_PARTITIONS; partition++) {
            TopicPartition place = new TopicPartition(topic, partition);
            KafkaConsumer<byte[], byte[]> consumer =
                    context.consumer(Map.of("isolation.level", "read_committed"));
            consumer.assign(List.of(place));
            consumer.seek(place, 0);
            List<String> values =
                    Context.take(consumer, expected.size()).stream()
                            .map(r -> Context.text(r.value()))
                            .toList();
            Expect.equal(values, expected, "committed records of partition " + partition);
            consumer.close();
        }
    }

    /** Records of all partitions become visible together, or never. */
    private static void transactions(Context context) throws Exception {
        String topic = context.topic(TRANSACTION_PARTITIONS);
        Map<String, ?> config = Map.of("transactional.id", context.unique("id"));
        try (KafkaProducer<byte[], byte[]> producer = context.producer(config)) {
            producer.initTransactions();
            for (int round = 0; round < 4; round++) {
                producer.beginTransaction();
                sendToAll(producer, topic, String.valueOf(round));
                producer.flush();
                if (round % 2 == 0) {
                    producer.commitTransaction();
                } else {
                    producer.abortTransaction();
                }
            }
        }
        expectCommitted(context, topic, List.of("0", "2"));
    }

    /** Offsets of a group are committed with the records. */
    private static void transactionsWithOffsets(Context context) throws Exception {
        String topic = context.topic(TRANSACTION_PARTITIONS);
        String group = context.unique("g");
        TopicPartition place = new TopicPartition(topic, 0);
        Map<String, ?> config = Map.of("transactional.id", context.unique("id"));
        try (KafkaProducer<byte[], byte[]> producer = context.producer(config);
                KafkaConsumer<byte[], byte[]> consumer =
                        context.consumer(Map.of("group.id", group))) {
            consumer.assign(List.of(place));
            producer.initTransactions();
            for (int round = 0; round < 4; round++) {
                producer.beginTransaction();
                sendToAll(producer, topic, String.valueOf(round));
                producer.sendOffsetsToTransaction(
                        Map.of(place, new OffsetAndMetadata(round + 1)), consumer.groupMetadata());
                if (round % 2 == 0) {
                    producer.commitTransaction();
                } else {
                    producer.abortTransaction();
                }
            }
            OffsetAndMetadata committed = consumer.committed(Set.of(place)).get(place);
            Expect.equal(committed.offset(), 3L, "committed offset");
        }
        expectCommitted(context, topic, List.of("0", "2"));
    }

    private static void fencedProducer(Context context) throws Exception {
        String topic = context.topic(TRANSACTION_PARTITIONS);
        Map<String, ?> config = Map.of("transactional.id", context.unique("id"));
        KafkaProducer<byte[], byte[]> former = context.producer(config);
        former.initTransactions();
        former.beginTransaction();
        sendToAll(former, topic, "lost");
        former.flush();
        try (KafkaProducer<byte[], byte[]> next = context.producer(config)) {
            next.initTransactions();
            next.beginTransaction();
            sendToAll(next, topic, "kept");
            next.commitTransaction();
        }
        boolean fenced = false;
        try {
            former.commitTransaction();
        } catch (KafkaException e) {
            fenced = true;
        }
        Expect.holds(fenced, "the former producer is fenced");
        expectCommitted(context, topic, List.of("kept"));
    }

    /** Absent and empty are different things, in keys, values and headers. */
    private static List<ProducerRecord<byte[], byte[]>> samples(String topic) {
        byte[] all = new byte[256];
        for (int i = 0; i < all.length; i++) {
            all[i] = (byte) i;
        }
        List<Header> headers =
                List.of(
                        new RecordHeader("a", bytes("1")),
                        new RecordHeader("a", bytes("2")),
                        new RecordHeader("null", (byte[]) null));
        List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
        for (int i = 0; i < 140; i += 7) {
            records.add(
                    new ProducerRecord<>(
                            topic, 0, START + i, bytes("key"), bytes("value"), headers));
            records.add(new ProducerRecord<>(topic, 0, START + i + 1, null, bytes("no key")));
            records.add(
                    new ProducerRecord<>(
                            topic, 0, START + i + 2, bytes("tombstone"), (byte[]) null));
            records.add(new ProducerRecord<>(topic, 0, START + i + 3, new byte[0], new byte[0]));
            records.add(
                    new ProducerRecord<>(topic, 0, START + i + 4, (byte[]) null, (byte[]) null));
            records.add(
                    new ProducerRecord<>(
                            topic,
                            0,
                            START + i + 5,
                            bytes("ключ"),
                            all,
                            List.of(new RecordHeader("заголовок", all))));
            records.add(
                    new ProducerRecord<>(
                            topic,
                            0,
                            START + i + 6,
                            bytes("long"),
                            bytes("0123456789abcdef".repeat(4096))));
        }
        return records;
    }

    private static void roundTrip(Context context, String compression) throws Exception {
        String topic = context.topic(1);
        List<ProducerRecord<byte[], byte[]>> sent = samples(topic);
        List<RecordMetadata> acknowledged =
                context.produceRecords(
                        Map.of(
                                "compression.type",
                                compression,
                                "linger.ms",
                                50,
                                "batch.size",
                                200_000),
                        sent);
        List<ConsumerRecord<byte[], byte[]>> read =
                context.read(new TopicPartition(topic, 0), sent.size());
        for (int i = 0; i < sent.size(); i++) {
            Expect.equal(acknowledged.get(i).offset(), (long) i, "acknowledged offset");
            Expect.equal(read.get(i).offset(), (long) i, "offset");
            Expect.equal(read.get(i).key(), sent.get(i).key(), "key " + i);
            Expect.equal(read.get(i).value(), sent.get(i).value(), "value " + i);
            Expect.equal(
                    read.get(i).headers().toArray(),
                    sent.get(i).headers().toArray(),
                    "headers " + i);
            Expect.equal(read.get(i).timestamp(), START + i, "timestamp " + i);
            Expect.equal(
                    read.get(i).timestampType(), TimestampType.CREATE_TIME, "kind of timestamp");
        }
    }

    private static void compressionOfTheTopic(Context context) throws Exception {
        String topic = context.topic(Map.of("compression.type", "zstd"));
        context.produce(topic, Map.of("compression.type", "gzip"), numbers(500));
        context.produce(topic, Map.of("compression.type", "none"), numbers(500));
        List<String> both = new ArrayList<>(numbers(500));
        both.addAll(numbers(500));
        Expect.equal(context.readValues(topic, 1000), both, "records");
    }

    private static void acks0(Context context) throws Exception {
        String topic = context.topic(1);
        context.produce(topic, Map.of("acks", "0", "enable.idempotence", false), numbers(100));
        Expect.eventually(() -> context.latest(topic) == 100, 10, "all are stored");
        Expect.equal(context.readValues(topic, 100), numbers(100), "records");
    }

    private static void acknowledged(Context context, String acks) throws Exception {
        String topic = context.topic(Map.of("min.insync.replicas", "1"));
        var config =
                Map.of(
                        "acks",
                        acks,
                        "enable.idempotence",
                        false,
                        "max.in.flight.requests.per.connection",
                        1);
        List<RecordMetadata> acknowledged = context.produce(topic, config, numbers(100));
        Expect.equal(
                acknowledged.stream().map(m -> (int) m.offset()).toList(),
                IntStream.range(0, 100).boxed().toList(),
                "offsets");
        Expect.equal(context.readValues(topic, 100), numbers(100), "records");
    }

    /** Small batches, five requests in flight: each is stored once, in order. */
    private static void idempotentProducer(Context context) throws Exception {
        String topic = context.topic(2);
        List<ProducerRecord<byte[], byte[]>> records =
                IntStream.range(0, 4000)
                        .mapToObj(n -> record(topic, n % 2, null, String.valueOf(n)))
                        .toList();
        List<RecordMetadata> acknowledged =
                context.produceRecords(
                        Map.of("enable.idempotence", true, "linger.ms", 0, "batch.size", 100),
                        records);
        for (int n = 0; n < 4000; n++) {
            Expect.equal(acknowledged.get(n).offset(), (long) n / 2, "offset of " + n);
        }
        for (int partition = 0; partition < 2; partition++) {
            List<ConsumerRecord<byte[], byte[]>> read =
                    context.read(new TopicPartition(topic, partition), 2000);
            for (int n = 0; n < 2000; n++) {
                Expect.equal(
                        Context.text(read.get(n).value()),
                        String.valueOf(2 * n + partition),
                        "record");
            }
        }
    }

    /** max.message.bytes is 1,048,588 by default: a value of 1,000,000 bytes is within it. */
    private static void largeRecord(Context context) throws Exception {
        String topic = context.topic(1);
        byte[] value = new byte[1_000_000];
        Arrays.fill(value, (byte) 7);
        context.produceRecords(
                Map.of("max.request.size", 2_000_000),
                List.of(new ProducerRecord<>(topic, 0, null, value)));
        Expect.equal(context.read(new TopicPartition(topic, 0), 1).get(0).value(), value, "value");
    }

    private static void recordOverTheLimit(Context context) throws Exception {
        String topic = context.topic(Map.of("max.message.bytes", "10000"));
        context.produce(topic, "x".repeat(9000));
        Expect.refused(
                RecordTooLargeException.class,
                () -> context.produce(topic, "x".repeat(10_001)),
                "over the topic's limit");
        String standard = context.topic(1, "default", Map.of());
        Expect.refused(
                RecordTooLargeException.class,
                () ->
                        context.produce(
                                standard,
                                Map.of("max.request.size", 2_000_000),
                                List.of("x".repeat(1_100_000))),
                "over the default limit");
        Expect.equal(
                List.of(context.latest(topic), context.latest(standard)),
                List.of(1L, 0L),
                "end offsets");
        // A batch over the limit whose records are within it: the client splits it and retries.
        List<String> many = IntStream.range(0, 20).mapToObj(n -> "x".repeat(3000)).toList();
        context.produce(
                topic,
                Map.of("batch.size", 50_000, "linger.ms", 200, "enable.idempotence", true),
                many);
        Expect.equal(context.latest(topic), 21L, "a split batch is stored once");
    }

    private static void logAppendTime(Context context) throws Exception {
        String topic = context.topic(Map.of("message.timestamp.type", "LogAppendTime"));
        long before = System.currentTimeMillis();
        RecordMetadata acknowledged = context.produce(topic, "x").get(0);
        ConsumerRecord<byte[], byte[]> read = context.read(new TopicPartition(topic, 0), 1).get(0);
        Expect.equal(read.timestampType(), TimestampType.LOG_APPEND_TIME, "kind of timestamp");
        Expect.equal(acknowledged.timestamp(), read.timestamp(), "the acknowledgement tells it");
        Expect.holds(
                before - 1000 <= read.timestamp()
                        && read.timestamp() <= System.currentTimeMillis() + 1000,
                "the broker's own time");
    }

    /** Ten partitions, 20,000 records, one consumer of all partitions. */
    private static void partitionsKeepOrder(Context context) throws Exception {
        String topic = context.topic(10);
        context.produceRecords(
                Map.of(),
                IntStream.range(0, 20_000)
                        .mapToObj(n -> record(topic, n % 10, null, String.valueOf(n)))
                        .toList());
        KafkaConsumer<byte[], byte[]> consumer = context.consumer(Map.of());
        consumer.assign(Context.partitionsOf(topic, 10));
        consumer.seekToBeginning(List.of());
        Map<Integer, Integer> next = new HashMap<>();
        for (ConsumerRecord<byte[], byte[]> record : Context.take(consumer, 20_000)) {
            int wanted = next.merge(record.partition(), 1, Integer::sum) - 1;
            Expect.equal(record.offset(), (long) wanted, "offset");
            Expect.equal(
                    Context.text(record.value()),
                    String.valueOf(wanted * 10 + record.partition()),
                    "value");
        }
    }

    private static void keysChoosePartitions(Context context) throws Exception {
        String topic = context.topic(8);
        var producer = context.producer(Map.of());
        Map<String, Integer> partitions = new HashMap<>();
        for (int n = 0; n < 200; n++) {
            String key = "key-" + n % 40;
            int partition =
                    done(producer.send(new ProducerRecord<>(topic, bytes(key), bytes("x"))))
                            .partition();
            Expect.equal(partitions.getOrDefault(key, partition), partition, "partition of " + key);
            partitions.put(key, partition);
        }
        Expect.holds(partitions.values().stream().distinct().count() > 4, "keys spread");
        Expect.equal(producer.partitionsFor(topic).size(), 8, "partitions");
    }
}
