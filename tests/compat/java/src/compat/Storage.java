package compat;

import static compat.Context.text;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.InvalidRecordException;
import org.apache.kafka.common.TopicPartition;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;

/** Background work of the broker on stored records: compaction and retention. */
final class Storage {
    private static final Map<String, String> COMPACTED =
            Map.of(
                    "cleanup.policy",
                    "compact",
                    "segment.ms",
                    "100",
                    "min.cleanable.dirty.ratio",
                    "0.01",
                    "delete.retention.ms",
                    "100");

    private Storage() {}

    static void register(Suite suite) {
        suite.addSlow("compaction", Storage::compaction);
        suite.addSlow("compaction-removes-tombstones", Storage::compactionRemovesTombstones);
        suite.addSlow("compaction-leaves-the-end-in-reach", Storage::compactionLeavesTheEnd);
        suite.add("compacted-topic-needs-keys", Storage::compactedTopicNeedsKeys);
        suite.addSlow("retention-by-time", Storage::retentionByTime);
        suite.addSlow("retention-by-size", Storage::retentionBySize);
    }

    private interface Check {
        boolean holds(List<ConsumerRecord<byte[], byte[]>> records) throws Exception;
    }

    /** All records of the partition, oldest first, without the fillers. */
    private static List<ConsumerRecord<byte[], byte[]>> contents(Context context, String topic)
            throws Exception {
        TopicPartition partition = new TopicPartition(topic, 0);
        List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
        try (KafkaConsumer<byte[], byte[]> consumer = context.consumer(Map.of())) {
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            long end = consumer.endOffsets(List.of(partition)).get(partition);
            while (consumer.position(partition) < end) {
                consumer.poll(Duration.ofMillis(200)).forEach(records::add);
            }
        }
        for (int i = 1; i < records.size(); i++) {
            Expect.holds(records.get(i - 1).offset() < records.get(i).offset(), "offsets grow");
        }
        return records.stream().filter(r -> !"filler".equals(text(r.key()))).toList();
    }

    /** Produces filler records, so that segments roll, until the check holds for the contents. */
    private static void until(Context context, String topic, int seconds, String what, Check check)
            throws Exception {
        Expect.eventually(
                () -> {
                    context.produceRecords(
                            Map.of(), List.of(Context.record(topic, 0, "filler", "filler")));
                    Thread.sleep(400);
                    return check.holds(contents(context, topic));
                },
                seconds,
                what);
    }

    private static void compaction(Context context) throws Exception {
        String topic = context.topic(COMPACTED);
        Map<String, String> wanted = new HashMap<>();
        for (int version = 0; version < 5; version++) {
            String value = "" + version;
            context.produceRecords(
                    Map.of("compression.type", "zstd"),
                    IntStream.range(0, 10)
                            .mapToObj(n -> Context.record(topic, 0, "key-" + n, value))
                            .toList());
            Thread.sleep(150);
        }
        IntStream.range(0, 10).forEach(n -> wanted.put("key-" + n, "4@" + (40 + n)));
        until(
                context,
                topic,
                60,
                "one record for each key",
                records -> {
                    Map<String, String> last = new HashMap<>();
                    records.forEach(
                            r -> last.put(text(r.key()), text(r.value()) + "@" + r.offset()));
                    // The last value of each key is always present, at its offset.
                    Expect.equal(last, wanted, "last values");
                    return records.size() == 10;
                });
    }

    private static void compactionRemovesTombstones(Context context) throws Exception {
        String topic = context.topic(COMPACTED);
        context.produceRecords(
                Map.of(),
                List.of(
                        Context.record(topic, 0, "dead", "old"),
                        Context.record(topic, 0, "alive", "kept")));
        Thread.sleep(150);
        context.produceRecords(Map.of(), List.of(Context.record(topic, 0, "dead", null)));
        until(
                context,
                topic,
                70,
                "the tombstone and what it deletes are gone",
                records -> {
                    Expect.equal(
                            records.stream()
                                    .filter(r -> text(r.key()).equals("alive"))
                                    .map(r -> text(r.value()))
                                    .toList(),
                            List.of("kept"),
                            "the live key");
                    return records.stream().noneMatch(r -> text(r.key()).equals("dead"));
                });
    }

    /** Readers still reach the end when only tombstones are left, and when nothing is left. */
    private static void compactionLeavesTheEnd(Context context) throws Exception {
        String topic = context.topic(COMPACTED);
        context.produceRecords(Map.of(), List.of(Context.record(topic, 0, "dead", "old")));
        Expect.eventually(
                () -> {
                    context.produceRecords(
                            Map.of(),
                            List.of(
                                    Context.record(topic, 0, "dead", null),
                                    Context.record(topic, 0, "filler", null)));
                    Thread.sleep(400);
                    return contents(context, topic).stream().noneMatch(r -> r.value() != null);
                },
                70,
                "the value is gone");
        // Every read ends, also during compaction.
        for (int round = 0; round < 10; round++) {
            Thread.sleep(500);
            contents(context, topic);
        }
    }

    private static void compactedTopicNeedsKeys(Context context) throws Exception {
        String topic = context.topic(Map.of("cleanup.policy", "compact"));
        Expect.refused(
                InvalidRecordException.class,
                () -> context.produce(topic, "no key"),
                "a record without a key");
    }

    private static void retentionByTime(Context context) throws Exception {
        String topic = context.topic(Map.of("retention.ms", "1000", "segment.ms", "500"));
        context.produce(topic, Map.of(), Context.numbers(10));
        Expect.eventually(
                () -> context.earliest(topic) == 10, 60, "all are deleted once their time is over");
        Expect.equal(context.produce(topic, "new").get(0).offset(), 10L, "offsets go on");
    }

    private static void retentionBySize(Context context) throws Exception {
        String topic =
                context.topic(Map.of("retention.bytes", "200000", "segment.bytes", "1048576"));
        for (int round = 0; round < 4; round++) {
            context.produce(
                    topic,
                    Map.of(),
                    IntStream.range(0, 100).mapToObj(n -> "x".repeat(9000)).toList());
        }
        Expect.eventually(() -> context.earliest(topic) > 0, 60, "the oldest are deleted");
        long earliest = context.earliest(topic);
        Expect.holds(earliest < 400, "not all are deleted");
        Expect.equal(context.latest(topic), 400L, "end offset");
        long first = context.read(new TopicPartition(topic, 0), 1).get(0).offset();
        Expect.holds(
                earliest <= first && first < 400,
                "the first that is left, or a later one if more was deleted since");
    }
}
