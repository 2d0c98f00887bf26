package compat;

import static compat.Context.done;

import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.NotLeaderOrFollowerException;
import org.apache.kafka.common.errors.UnknownServerException;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/** A share consumer with the common operations of scenarios. */
final class ShareMember implements AutoCloseable {
    /** Leaders change while the scenarios run, and nodes are killed. */
    static final boolean LEADERS_MOVE = System.getenv("LEADERS_MOVE") != null;

    final KafkaShareConsumer<byte[], byte[]> consumer;

    private ShareMember(
            Context context, String group, Map<String, ?> config, Collection<String> topics) {
        Map<String, Object> all = new HashMap<>(config);
        all.put("group.id", group);
        consumer = context.shareConsumer(all);
        consumer.subscribe(topics);
    }

    /** Acknowledges its records with the next poll. */
    static ShareMember implicit(Context context, String group, String... topics) {
        return new ShareMember(context, group, Map.of(), List.of(topics));
    }

    /** Acknowledges each record individually. */
    static ShareMember explicit(Context context, String group, String... topics) {
        return explicit(context, group, Map.of(), topics);
    }

    static ShareMember explicit(
            Context context, String group, Map<String, ?> config, String... topics) {
        Map<String, Object> all = new HashMap<>(config);
        all.put("share.acknowledgement.mode", "explicit");
        return new ShareMember(context, group, all, List.of(topics));
    }

    // Groups

    /** A share group of the scenario's own that begins with existing records. */
    static String group(Context context) throws Exception {
        return group(context, Map.of("share.auto.offset.reset", "earliest"));
    }

    static String group(Context context, Map<String, String> config) throws Exception {
        String group = context.unique("g");
        configure(context, group, config);
        return group;
    }

    static void configure(Context context, String group, Map<String, String> config)
            throws Exception {
        List<AlterConfigOp> changes =
                config.entrySet().stream()
                        .map(
                                e ->
                                        new AlterConfigOp(
                                                new ConfigEntry(e.getKey(), e.getValue()),
                                                AlterConfigOp.OpType.SET))
                        .toList();
        done(context.admin.incrementalAlterConfigs(Map.of(resource(group), changes)).all());
    }

    static Map<String, String> configOf(Context context, String group) throws Exception {
        ConfigResource resource = resource(group);
        Map<String, String> values = new HashMap<>();
        done(context.admin.describeConfigs(List.of(resource)).all())
                .get(resource)
                .entries()
                .forEach(e -> values.put(e.name(), e.value()));
        return values;
    }

    static ConfigResource resource(String group) {
        return new ConfigResource(ConfigResource.Type.GROUP, group);
    }

    /** Whether the broker knows a setting of groups; some of them are not Kafka's. */
    static boolean offers(Context context, String name) throws Exception {
        return configOf(context, context.unique("probe")).containsKey(name);
    }

    // Records

    /** Polls until it has at least this many records; an explicit member accepts none of them. */
    List<ConsumerRecord<byte[], byte[]>> take(int count) throws Exception {
        List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
        long end = System.nanoTime() + 30_000_000_000L;
        while (records.size() < count) {
            consumer.poll(Duration.ofMillis(200)).forEach(records::add);
            Expect.holds(
                    System.nanoTime() < end,
                    records.size() + " of " + count + " records within 30 s");
        }
        return records;
    }

    /**
     * Polls once for the first records. The client must not fetch more by itself: a poll during the
     * arrival of records would continue to fetch, and acquire records whose own lock has expired.
     */
    List<ConsumerRecord<byte[], byte[]>> takeAtOnce() {
        List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
        consumer.poll(Duration.ofSeconds(30)).forEach(records::add);
        Expect.holds(!records.isEmpty(), "records within 30 s");
        return records;
    }

    /** Polls, with the same acknowledgement for each record, until it has this many records. */
    List<ConsumerRecord<byte[], byte[]>> take(int count, AcknowledgeType type) throws Exception {
        List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
        long end = System.nanoTime() + 30_000_000_000L;
        while (records.size() < count) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                consumer.acknowledge(record, type);
                records.add(record);
            }
            commit();
            Expect.holds(
                    System.nanoTime() < end,
                    records.size() + " of " + count + " records within 30 s");
        }
        return records;
    }

    /** Commits acknowledgements; every partition must succeed. */
    void commit() {
        Map<TopicIdPartition, Optional<KafkaException>> outcome = consumer.commitSync();
        outcome.forEach((p, e) -> Expect.holds(e.isEmpty(), "commit of " + p + ": " + e));
    }

    /** Commits acknowledgements of one partition, and returns the error, if there is one. */
    Optional<KafkaException> refusal() {
        return consumer.commitSync().values().stream().flatMap(Optional::stream).findFirst();
    }

    /**
     * Whether the client dropped its records without a request. It reports NOT_LEADER_OR_FOLLOWER
     * once its metadata names another leader than the one that delivered the records, or once its
     * session with that one is lost. It reports UNKNOWN_SERVER_ERROR when the connection breaks
     * before the response. No broker can prevent either if a node dies. If none dies, the client
     * learns of another leader only by fetching, so neither may happen.
     */
    static boolean gaveUp(KafkaException refusal) {
        return LEADERS_MOVE
                && (refusal instanceof NotLeaderOrFollowerException
                        || refusal instanceof UnknownServerException);
    }

    void acknowledgeAll(
            Collection<ConsumerRecord<byte[], byte[]>> records, AcknowledgeType type) {
        records.forEach(record -> consumer.acknowledge(record, type));
    }

    /** Nothing is delivered for a while. */
    void expectNothing(int seconds) {
        for (ConsumerRecord<byte[], byte[]> record : within(seconds)) {
            throw new AssertionError(
                    "delivered at offset " + record.offset() + ", " + deliveries(record));
        }
    }

    /** The first records that are delivered within a while, if there are any. */
    List<ConsumerRecord<byte[], byte[]>> within(int seconds) {
        List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
        long end = System.nanoTime() + seconds * 1_000_000_000L;
        while (records.isEmpty() && System.nanoTime() < end) {
            consumer.poll(Duration.ofMillis(200)).forEach(records::add);
        }
        return records;
    }

    static List<String> values(Collection<ConsumerRecord<byte[], byte[]>> records) {
        return records.stream().map(r -> Context.text(r.value())).toList();
    }

    static int deliveries(ConsumerRecord<byte[], byte[]> record) {
        return record.deliveryCount().orElse((short) -1);
    }

    static List<Integer> allDeliveries(Collection<ConsumerRecord<byte[], byte[]>> records) {
        return records.stream().map(ShareMember::deliveries).distinct().toList();
    }

    @Override
    public void close() {
        consumer.close();
    }
}
