package compat;

import static compat.Context.numbers;
import static compat.Context.take;
import static compat.Context.text;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.NoOffsetForPartitionException;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.FutureTask;
import java.util.stream.IntStream;

/**
 * Reading without a group: start, seek, wait and reset of a consumer, with both implementations
 * of the client.
 */
final class Consuming {
    /** Young enough for the default retention, old enough to differ from the time of appending. */
    private static final long START = System.currentTimeMillis() - 3_600_000;

    private Consuming() {}

    static void register(Suite suite) {
        // The two group protocols are two consumers: each has its own fetcher.
        for (String protocol : List.of("classic", "consumer")) {
            Map<String, String> config = Map.of("group.protocol", protocol);
            suite.add(protocol + "-client-seek", context -> seek(context, config));
            suite.add(protocol + "-client-seek-by-time", context -> seekByTime(context, config));
            suite.add(
                    protocol + "-client-reset-when-out-of-range",
                    context -> resetWhenOutOfRange(context, config));
            suite.add(
                    protocol + "-client-fetch-waits-for-data",
                    context -> fetchWaitsForData(context, config));
            suite.add(
                    protocol + "-client-read-committed", context -> readCommitted(context, config));
        }
        suite.add("reset-by-duration", Consuming::resetByDuration);
        suite.add("fetch-min-bytes", Consuming::fetchMinBytes);
        suite.add("fetch-limits-below-a-record", Consuming::fetchLimitsBelowARecord);
        suite.add("pause-and-resume", Consuming::pauseAndResume);
        suite.add("many-topics", Consuming::manyTopics);
    }

    /** A consumer that is assigned partition 0 of the topic. */
    private static KafkaConsumer<byte[], byte[]> assigned(
            Context context, String topic, Map<String, ?> config, Object... more) {
        Map<String, Object> all = new HashMap<>(config);
        all.put("group.id", context.unique("nogroup"));
        for (int i = 0; i < more.length; i += 2) {
            all.put((String) more[i], more[i + 1]);
        }
        KafkaConsumer<byte[], byte[]> consumer = context.consumer(all);
        consumer.assign(List.of(new TopicPartition(topic, 0)));
        return consumer;
    }

    private static void seek(Context context, Map<String, String> config) throws Exception {
        String topic = context.topic(1);
        TopicPartition partition = new TopicPartition(topic, 0);
        context.produce(topic, Map.of(), numbers(100));
        KafkaConsumer<byte[], byte[]> consumer = assigned(context, topic, config);
        Expect.equal(
                consumer.beginningOffsets(List.of(partition)), Map.of(partition, 0L), "beginning");
        Expect.equal(consumer.endOffsets(List.of(partition)), Map.of(partition, 100L), "end");
        for (long offset : new long[] {50, 3, 99}) {
            consumer.seek(partition, offset);
            Expect.equal(take(consumer, 1).get(0).offset(), offset, "after seek");
        }
        consumer.seekToBeginning(List.of(partition));
        Expect.equal(
                take(consumer, 100).stream().map(r -> text(r.value())).toList(),
                numbers(100),
                "from the beginning");
        consumer.seekToEnd(List.of(partition));
        Expect.equal(consumer.position(partition), 100L, "position at the end");
        context.produce(topic, "last");
        Expect.equal(text(take(consumer, 1).get(0).value()), "last", "from the end");
    }

    private static void seekByTime(Context context, Map<String, String> config) throws Exception {
        String topic = context.topic(1);
        TopicPartition partition = new TopicPartition(topic, 0);
        context.produceRecords(
                Map.of(),
                IntStream.range(0, 100)
                        .mapToObj(
                                n ->
                                        new ProducerRecord<byte[], byte[]>(
                                                topic,
                                                0,
                                                START + 1000L * n,
                                                null,
                                                Context.bytes("" + n)))
                        .toList());
        KafkaConsumer<byte[], byte[]> consumer = assigned(context, topic, config);
        OffsetAndTimestamp found =
                consumer.offsetsForTimes(Map.of(partition, START + 39_001)).get(partition);
        Expect.equal(
                List.of(found.offset(), found.timestamp()),
                List.of(40L, START + 40_000),
                "first at or after");
        Expect.equal(
                consumer.offsetsForTimes(Map.of(partition, 0L)).get(partition).offset(),
                0L,
                "before all");
        Expect.equal(
                consumer.offsetsForTimes(Map.of(partition, START + 10_000_000)).get(partition),
                null,
                "after all");
        consumer.seek(partition, found.offset());
        Expect.equal(text(take(consumer, 1).get(0).value()), "40", "first record read");
    }

    private static void resetWhenOutOfRange(Context context, Map<String, String> config)
            throws Exception {
        String topic = context.topic(1);
        TopicPartition partition = new TopicPartition(topic, 0);
        context.produce(topic, Map.of(), numbers(10));
        KafkaConsumer<byte[], byte[]> consumer =
                assigned(context, topic, config, "auto.offset.reset", "earliest");
        consumer.seek(partition, 1000);
        Expect.equal(take(consumer, 1).get(0).offset(), 0L, "reset to earliest");

        KafkaConsumer<byte[], byte[]> late =
                assigned(context, topic, config, "auto.offset.reset", "latest");
        late.seek(partition, 1000);
        Expect.eventually(
                () -> late.poll(Duration.ofMillis(200)).isEmpty() && late.position(partition) == 10,
                10,
                "reset to latest");
        context.produce(topic, "new");
        Expect.equal(text(take(late, 1).get(0).value()), "new", "after the reset");

        KafkaConsumer<byte[], byte[]> strict =
                assigned(context, topic, config, "auto.offset.reset", "none");
        Expect.refused(
                NoOffsetForPartitionException.class,
                () -> take(strict, 1),
                "no offset to start from");
        strict.seek(partition, 1000);
        Expect.refused(OffsetOutOfRangeException.class, () -> take(strict, 1), "out of range");
    }

    private static void resetByDuration(Context context) throws Exception {
        String topic = context.topic(1);
        long now = System.currentTimeMillis();
        for (long age : new long[] {7_200_000, 60_000, 0}) {
            context.produceRecords(
                    Map.of(),
                    List.of(new ProducerRecord<>(topic, 0, now - age, null, Context.bytes("x"))));
        }
        KafkaConsumer<byte[], byte[]> consumer =
                assigned(context, topic, Map.of("auto.offset.reset", "by_duration:PT1H"));
        Expect.equal(take(consumer, 2).get(0).offset(), 1L, "the first within the hour");
    }

    /** An empty fetch returns as soon as a record arrives, not when its wait is over. */
    private static void fetchWaitsForData(Context context, Map<String, String> config)
            throws Exception {
        String topic = context.topic(1);
        KafkaConsumer<byte[], byte[]> consumer =
                assigned(
                        context,
                        topic,
                        config,
                        "fetch.max.wait.ms",
                        10_000,
                        "request.timeout.ms",
                        20_000);
        consumer.poll(Duration.ofMillis(500));
        FutureTask<Long> acknowledged =
                new FutureTask<>(
                        () -> {
                            Thread.sleep(500);
                            context.produce(topic, "x");
                            return System.nanoTime();
                        });
        Suite.start(acknowledged);
        take(consumer, 1);
        Expect.holds(
                System.nanoTime() - acknowledged.get() < 3_000_000_000L,
                "the record came within 3 s of its acknowledgement");
    }

    private static void readCommitted(Context context, Map<String, String> config)
            throws Exception {
        String topic = context.topic(1);
        context.produce(topic, Map.of(), numbers(10));
        KafkaConsumer<byte[], byte[]> consumer =
                assigned(context, topic, config, "isolation.level", "read_committed");
        Expect.equal(
                take(consumer, 10).stream().map(r -> text(r.value())).toList(),
                numbers(10),
                "records");
        Expect.equal(
                consumer.endOffsets(consumer.assignment()).values().iterator().next(),
                10L,
                "last stable offset");
    }

    private static void fetchMinBytes(Context context) throws Exception {
        String topic = context.topic(1);
        context.produce(topic, "tiny");
        KafkaConsumer<byte[], byte[]> consumer =
                assigned(
                        context,
                        topic,
                        Map.of("fetch.min.bytes", 100_000, "fetch.max.wait.ms", 1500));
        long start = System.nanoTime();
        Expect.equal(text(take(consumer, 1).get(0).value()), "tiny", "the record comes in the end");
        Expect.holds(
                System.nanoTime() - start > 1_000_000_000L, "held back until the wait was over");
    }

    /** A record larger than every fetch limit is still delivered. */
    private static void fetchLimitsBelowARecord(Context context) throws Exception {
        String topic = context.topic(1);
        List<String> values = List.of("a".repeat(200_000), "b".repeat(300_000), "c");
        context.produce(topic, Map.of("linger.ms", 0), values);
        KafkaConsumer<byte[], byte[]> consumer =
                assigned(
                        context,
                        topic,
                        Map.of("fetch.max.bytes", 1000, "max.partition.fetch.bytes", 1000));
        Expect.equal(
                take(consumer, 3).stream().map(r -> text(r.value())).toList(), values, "records");
    }

    private static void pauseAndResume(Context context) throws Exception {
        String topic = context.topic(2);
        List<TopicPartition> both = Context.partitionsOf(topic, 2);
        context.produceRecords(
                Map.of(),
                IntStream.range(0, 10)
                        .mapToObj(n -> Context.record(topic, n % 2, null, "" + n))
                        .toList());
        KafkaConsumer<byte[], byte[]> consumer = context.consumer(Map.of());
        consumer.assign(both);
        consumer.seekToBeginning(both);
        consumer.pause(both.subList(0, 1));
        Expect.equal(
                take(consumer, 5).stream().map(ConsumerRecord::partition).distinct().toList(),
                List.of(1),
                "while 0 is paused");
        Expect.equal(consumer.poll(Duration.ofMillis(500)).count(), 0, "while 0 is paused");
        consumer.resume(both.subList(0, 1));
        Expect.equal(
                take(consumer, 5).stream().map(ConsumerRecord::partition).distinct().toList(),
                List.of(0),
                "after resume");
    }

    private static void manyTopics(Context context) throws Exception {
        KafkaConsumer<byte[], byte[]> consumer = context.consumer(Map.of());
        List<TopicPartition> partitions = new ArrayList<>();
        for (int n = 0; n < 20; n++) {
            String topic = context.topic(1, "t" + n, Map.of());
            partitions.add(new TopicPartition(topic, 0));
        }
        context.produceRecords(
                Map.of(),
                partitions.stream()
                        .map(p -> Context.record(p.topic(), 0, null, p.topic()))
                        .toList());
        consumer.assign(partitions);
        consumer.seekToBeginning(partitions);
        take(consumer, 20).forEach(r -> Expect.equal(text(r.value()), r.topic(), "record"));
    }
}
