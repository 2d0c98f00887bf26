package compat;

import static compat.Context.done;
import static compat.Context.record;

import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.DeletedRecords;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.DescribeTopicsOptions;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.admin.TopicListing;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.InvalidPartitionsException;
import org.apache.kafka.common.errors.InvalidReplicationFactorException;
import org.apache.kafka.common.errors.InvalidTopicException;
import org.apache.kafka.common.errors.OffsetOutOfRangeException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicIdException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.stream.IntStream;

/** Administration of topics: create, describe, add partitions, delete records, delete. */
final class Topics {
    /** The number of brokers. */
    static final int BROKERS =
            Optional.ofNullable(System.getenv("BROKERS")).map(Integer::parseInt).orElse(1);

    private Topics() {}

    static void register(Suite suite) {
        suite.add("describe-cluster", Topics::describeCluster);
        suite.add("describe-features", Topics::describeFeatures);
        suite.add("create-topic", Topics::createTopic);
        suite.add("create-topic-with-defaults", Topics::createTopicWithDefaults);
        suite.add("create-topic-with-replica-assignment", Topics::createTopicWithReplicaAssignment);
        suite.add("create-topic-validate-only", Topics::createTopicValidateOnly);
        suite.add("create-topic-refused", Topics::createTopicRefused);
        suite.add("describe-topic-in-pages", Topics::describeTopicInPages);
        suite.add("delete-topic", Topics::deleteTopic);
        suite.add("delete-topic-by-id", Topics::deleteTopicById);
        suite.add("create-partitions", Topics::createPartitions);
        suite.add("list-offsets", Topics::listOffsets);
        suite.add("delete-records", Topics::deleteRecords);
        suite.add("describe-log-dirs", Topics::describeLogDirs);
        suite.add("unknown-topic", Topics::unknownTopic);
        suite.add("auto-create-by-producing", Topics::autoCreateByProducing);
        suite.add("auto-create-by-consuming", Topics::autoCreateByConsuming);
        suite.add("auto-create-refuses-illegal-name", Topics::autoCreateRefusesIllegalName);
    }

    static int brokerId(Context context) throws Exception {
        return done(context.admin.describeCluster().nodes()).iterator().next().id();
    }

    /** Waits for all brokers, since a restarting one is missing from the metadata. */
    static List<Integer> allBrokers(Context context) throws Exception {
        Expect.eventually(() -> brokers(context).size() == BROKERS, 30, BROKERS + " nodes");
        return brokers(context);
    }

    private static List<Integer> brokers(Context context) throws Exception {
        return done(context.admin.describeCluster().nodes()).stream()
                .map(n -> n.id())
                .sorted()
                .toList();
    }

    private static TopicDescription describe(Context context, String topic) throws Exception {
        return done(context.admin.describeTopics(List.of(topic)).allTopicNames()).get(topic);
    }

    private static boolean listed(Context context, String topic) throws Exception {
        return done(context.admin.listTopics().names()).contains(topic);
    }

    private static void describeCluster(Context context) throws Exception {
        DescribeClusterResult cluster = context.admin.describeCluster();
        Expect.holds(!done(cluster.clusterId()).isEmpty(), "the cluster has an id");
        Expect.holds(
                allBrokers(context).contains(done(cluster.controller()).id()),
                "the controller is a node");
    }

    private static void describeFeatures(Context context) throws Exception {
        Expect.holds(
                done(context.admin.describeFeatures().featureMetadata()) != null,
                "features are told");
    }

    private static void createTopic(Context context) throws Exception {
        String topic = context.topic(3, "t", Map.of("retention.ms", "3600000"));
        TopicDescription described = describe(context, topic);
        Expect.equal(described.name(), topic, "name");
        Expect.equal(described.isInternal(), false, "internal");
        Expect.holds(!described.topicId().equals(Uuid.ZERO_UUID), "the topic has an id");
        Expect.equal(
                described.partitions().stream().map(p -> p.partition()).toList(),
                List.of(0, 1, 2),
                "partitions");
        described
                .partitions()
                .forEach(
                        p -> {
                            Expect.equal(p.replicas().size(), BROKERS, "replicas");
                            Expect.holds(p.isr().contains(p.leader()), "the leader is in sync");
                            Expect.holds(
                                    p.replicas().containsAll(p.isr()),
                                    "who is in sync is a replica");
                        });
        TopicListing listing = done(context.admin.listTopics().namesToListings()).get(topic);
        Expect.equal(listing.topicId(), described.topicId(), "id in the listing");
        TopicDescription byId =
                done(context.admin
                                .describeTopics(
                                        TopicCollection.ofTopicIds(List.of(described.topicId())))
                                .allTopicIds())
                        .get(described.topicId());
        Expect.equal(byId.name(), topic, "described by id");
    }

    private static void createTopicWithDefaults(Context context) throws Exception {
        String topic = context.unique("t");
        context.deleteAfterwards(topic);
        var created =
                context.admin.createTopics(
                        List.of(new NewTopic(topic, Optional.empty(), Optional.empty())));
        Expect.holds(
                done(created.numPartitions(topic)) >= 1,
                "the answer tells the number of partitions");
        Expect.equal(
                done(created.replicationFactor(topic)),
                BROKERS,
                "the answer tells the replication factor");
        Expect.holds(
                done(created.config(topic)).get("retention.ms") != null,
                "the answer tells the topic's config");
        Expect.holds(
                !done(created.topicId(topic)).equals(Uuid.ZERO_UUID),
                "the answer tells the topic's id");
    }

    private static void createTopicWithReplicaAssignment(Context context) throws Exception {
        String topic = context.unique("t");
        context.deleteAfterwards(topic);
        List<Integer> all = allBrokers(context);
        done(
                context.admin
                        .createTopics(List.of(new NewTopic(topic, Map.of(0, all, 1, all))))
                        .all());
        Expect.eventually(() -> context.partitions(topic) == 2, 10, "two partitions");
    }

    private static void createTopicValidateOnly(Context context) throws Exception {
        String topic = context.unique("t");
        var options = new CreateTopicsOptions().validateOnly(true);
        done(context.admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1)), options).all());
        Expect.holds(!listed(context, topic), "validateOnly creates nothing");
    }

    private static void createTopicRefused(Context context) throws Exception {
        String existing = context.topic(1);
        Expect.refused(
                TopicExistsException.class,
                () -> create(context, existing, 1, 1),
                "existing topic");
        for (String illegal : List.of("with space", "sla/sh", "..", "x".repeat(250))) {
            Expect.refused(
                    InvalidTopicException.class,
                    () -> create(context, illegal, 1, 1),
                    "name " + illegal);
        }
        String topic = context.unique("refused");
        Expect.refused(
                InvalidPartitionsException.class,
                () -> create(context, topic, 0, 1),
                "no partitions");
        Expect.refused(
                InvalidReplicationFactorException.class,
                () -> create(context, topic, 1, 9),
                "more replicas than brokers");
        Expect.refused(
                InvalidReplicationFactorException.class,
                () -> create(context, topic, 1, 0),
                "no replicas");
        Expect.holds(!listed(context, topic), "nothing was created");
    }

    private static Void create(Context context, String topic, int partitions, int replicas)
            throws Exception {
        return done(
                context.admin
                        .createTopics(List.of(new NewTopic(topic, partitions, (short) replicas)))
                        .all());
    }

    private static void describeTopicInPages(Context context) throws Exception {
        String topic = context.topic(25);
        var options = new DescribeTopicsOptions().partitionSizeLimitPerResponse(10);
        TopicDescription described =
                done(context.admin.describeTopics(List.of(topic), options).allTopicNames())
                        .get(topic);
        Expect.equal(
                described.partitions().stream().map(p -> p.partition()).toList(),
                IntStream.range(0, 25).boxed().toList(),
                "partitions over three pages");
    }

    private static void deleteTopic(Context context) throws Exception {
        String topic = context.topic(2);
        Uuid id = describe(context, topic).topicId();
        context.produce(topic, "old", "older");
        done(context.admin.deleteTopics(List.of(topic)).all());
        Expect.eventually(() -> !listed(context, topic), 10, "gone from metadata");
        Expect.refused(
                UnknownTopicOrPartitionException.class,
                () -> done(context.admin.deleteTopics(List.of(topic)).all()),
                "deleted twice");
        context.topic(1);
        Expect.holds(
                !describe(context, topic).topicId().equals(id),
                "a topic of the same name has another id");
        context.produce(topic, "new");
        Expect.equal(context.latest(topic), 1L, "and starts empty");
        Expect.equal(context.readValues(topic, 1), List.of("new"), "records");
    }

    private static void deleteTopicById(Context context) throws Exception {
        String topic = context.topic(1);
        TopicCollection byId =
                TopicCollection.ofTopicIds(List.of(describe(context, topic).topicId()));
        done(context.admin.deleteTopics(byId).all());
        Expect.eventually(() -> !listed(context, topic), 10, "gone from metadata");
        Expect.refused(
                UnknownTopicIdException.class,
                () -> done(context.admin.deleteTopics(byId).all()),
                "deleted twice");
    }

    private static void createPartitions(Context context) throws Exception {
        String topic = context.topic(2);
        context.produceRecords(Map.of(), List.of(record(topic, 1, null, "kept")));
        grow(context, topic, 5);
        Expect.eventually(() -> context.partitions(topic) == 5, 10, "five partitions");
        context.produceRecords(Map.of(), List.of(record(topic, 4, null, "fresh")));
        Expect.equal(
                context.read(new TopicPartition(topic, 1), 1).get(0).value(),
                Context.bytes("kept"),
                "old partition");
        Expect.equal(
                context.read(new TopicPartition(topic, 4), 1).get(0).value(),
                Context.bytes("fresh"),
                "new partition");
        Expect.refused(
                InvalidPartitionsException.class,
                () -> grow(context, topic, 3),
                "fewer partitions");
        Expect.refused(
                InvalidPartitionsException.class, () -> grow(context, topic, 5), "the same number");
        Expect.refused(
                UnknownTopicOrPartitionException.class,
                () -> grow(context, context.unique("absent"), 2),
                "absent topic");
    }

    private static Void grow(Context context, String topic, int count) throws Exception {
        return done(
                context.admin
                        .createPartitions(Map.of(topic, NewPartitions.increaseTo(count)))
                        .all());
    }

    private static void listOffsets(Context context) throws Exception {
        String topic = context.topic(1);
        long start = System.currentTimeMillis() - 3_600_000;
        for (long moment : new long[] {100, 300, 200}) {
            var record =
                    new ProducerRecord<byte[], byte[]>(
                            topic, 0, start + moment, null, Context.bytes("x"));
            context.produceRecords(Map.of(), List.of(record));
        }
        Expect.equal(context.earliest(topic), 0L, "earliest");
        Expect.equal(context.latest(topic), 3L, "latest");
        TopicPartition partition = new TopicPartition(topic, 0);
        ListOffsetsResultInfo max =
                done(
                        context.admin
                                .listOffsets(Map.of(partition, OffsetSpec.maxTimestamp()))
                                .partitionResult(partition));
        Expect.equal(
                List.of(max.offset(), max.timestamp()), List.of(1L, start + 300), "max timestamp");
        Expect.equal(context.offset(topic, OffsetSpec.forTimestamp(start)), 0L, "before all");
        Expect.equal(
                context.offset(topic, OffsetSpec.forTimestamp(start + 101)),
                1L,
                "first at or after");
        Expect.equal(context.offset(topic, OffsetSpec.forTimestamp(start + 301)), -1L, "after all");
    }

    private static void deleteRecords(Context context) throws Exception {
        String topic = context.topic(1);
        context.produce(topic, Map.of(), Context.numbers(10));
        Expect.equal(deleteBefore(context, topic, 4).lowWatermark(), 4L, "low watermark");
        Expect.equal(
                List.of(context.earliest(topic), context.latest(topic)),
                List.of(4L, 10L),
                "earliest and latest");
        Expect.equal(
                context.readValues(topic, 6),
                Context.numbers(10).subList(4, 10),
                "reset from a deleted offset");
        Expect.refused(
                OffsetOutOfRangeException.class,
                () -> deleteBefore(context, topic, 11),
                "beyond the end");
        Expect.equal(
                deleteBefore(context, topic, -1).lowWatermark(), 10L, "-1 deletes up to the end");
        Expect.equal(context.produce(topic, "next").get(0).offset(), 10L, "offsets go on");
    }

    private static DeletedRecords deleteBefore(Context context, String topic, long offset)
            throws Exception {
        TopicPartition partition = new TopicPartition(topic, 0);
        return done(
                context.admin
                        .deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(offset)))
                        .lowWatermarks()
                        .get(partition));
    }

    private static void describeLogDirs(Context context) throws Exception {
        String topic = context.topic(1);
        context.produce(topic, "x".repeat(10_000));
        int broker = brokerId(context);
        Map<String, LogDirDescription> dirs =
                done(context.admin.describeLogDirs(List.of(broker)).allDescriptions()).get(broker);
        TopicPartition partition = new TopicPartition(topic, 0);
        var replicas =
                dirs.values().stream()
                        .filter(d -> d.replicaInfos().containsKey(partition))
                        .toList();
        Expect.equal(replicas.size(), 1, "folders with the partition");
        Expect.equal(replicas.get(0).error(), null, "error");
        Expect.holds(
                replicas.get(0).replicaInfos().get(partition).size() >= 10_000,
                "the partition's size");
        Expect.equal(
                replicas.get(0).replicaInfos().get(partition).isFuture(),
                false,
                "a future replica");
    }

    private static void unknownTopic(Context context) throws Exception {
        String absent = context.unique("absent");
        Expect.refused(
                UnknownTopicOrPartitionException.class,
                () -> describe(context, absent),
                "describe");
        Expect.refused(
                UnknownTopicIdException.class,
                () ->
                        done(
                                context.admin
                                        .describeTopics(
                                                TopicCollection.ofTopicIds(
                                                        List.of(Uuid.randomUuid())))
                                        .allTopicIds()),
                "describe by id");
        Expect.refused(
                UnknownTopicOrPartitionException.class, () -> context.latest(absent), "offsets");
        KafkaConsumer<byte[], byte[]> consumer = context.consumer(Map.of());
        Expect.equal(
                consumer.partitionsFor(absent, Duration.ofSeconds(10)),
                List.of(),
                "partitions for a consumer");
        consumer.assign(List.of(new TopicPartition(absent, 0)));
        consumer.poll(Duration.ofMillis(500));
        Expect.holds(!listed(context, absent), "nothing was created");
    }

    private static void autoCreateByProducing(Context context) throws Exception {
        String topic = context.unique("t");
        context.deleteAfterwards(topic);
        context.produceRecords(
                Map.of(), List.of(new ProducerRecord<>(topic, Context.bytes("first"))));
        Expect.equal(context.readValues(topic, 1), List.of("first"), "records");
    }

    private static void autoCreateByConsuming(Context context) throws Exception {
        String topic = context.unique("t");
        context.deleteAfterwards(topic);
        KafkaConsumer<byte[], byte[]> consumer =
                context.consumer(
                        Map.of("allow.auto.create.topics", true, "group.id", context.unique("g")));
        consumer.subscribe(List.of(topic));
        Expect.eventually(
                () -> {
                    consumer.poll(Duration.ofMillis(100));
                    return listed(context, topic);
                },
                10,
                "subscribing creates the topic");
    }

    private static void autoCreateRefusesIllegalName(Context context) throws Exception {
        Expect.refused(
                InvalidTopicException.class,
                () -> context.produce("not a legal name", "x"),
                "produce");
        Expect.refused(
                InvalidTopicException.class,
                () -> context.consumer(Map.of()).partitionsFor("not a legal name"),
                "metadata");
    }
}
