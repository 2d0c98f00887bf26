package compat;

import static compat.Context.done;
import static compat.Context.text;

import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DeleteStreamsGroupsOptions;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.ListStreamsGroupOffsetsSpec;
import org.apache.kafka.clients.admin.StreamsGroupDescription;
import org.apache.kafka.clients.admin.StreamsGroupMemberAssignment;
import org.apache.kafka.clients.admin.StreamsGroupMemberDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.GroupIdNotFoundException;
import org.apache.kafka.common.errors.GroupNotEmptyException;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;

import java.nio.file.Files;
import java.time.Duration;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.function.Function;
import java.util.stream.Collectors;

/** Kafka Streams applications with the Streams group protocol (KIP-1071). */
final class Streams {
    private static final int PARTITIONS = 3;

    private Streams() {}

    static void register(Suite suite) {
        suite.addSlow("streams-counts-words-over-a-restart", Streams::countsWords);
        suite.addSlow("streams-keeps-standbys", Streams::keepsStandbys);
        suite.addSlow("streams-waits-for-its-source", Streams::waitsForItsSource);
        suite.add("streams-describe-absent", Streams::describeAbsent);
    }

    /** Counts words: they are repartitioned by word, and the counts have a changelog. */
    private record Application(Context context, String id, String in, String out) {
        static Application of(Context context) throws Exception {
            String id = context.unique("app");
            Application application =
                    new Application(
                            context,
                            id,
                            context.topic(PARTITIONS, "in", Map.of()),
                            context.topic(1, "out", Map.of()));
            for (String internal : application.internal()) {
                context.deleteAfterwards(internal);
            }
            return application;
        }

        String repartition() {
            return id + "-words-repartition";
        }

        String changelog() {
            return id + "-counts-changelog";
        }

        List<String> internal() {
            return List.of(repartition(), changelog());
        }

        KafkaStreams start() throws Exception {
            StreamsBuilder builder = new StreamsBuilder();
            builder.stream(in, Consumed.with(Serdes.String(), Serdes.String()))
                    .flatMapValues(line -> Arrays.asList(line.split(" ")))
                    .groupBy(
                            (key, word) -> word,
                            Grouped.with("words", Serdes.String(), Serdes.String()))
                    .count(
                            Materialized.<String, Long>as(Stores.inMemoryKeyValueStore("counts"))
                                    .withKeySerde(Serdes.String())
                                    .withValueSerde(Serdes.Long()))
                    .toStream()
                    .mapValues(String::valueOf)
                    .to(out, Produced.with(Serdes.String(), Serdes.String()));
            Properties config = new Properties();
            config.put("application.id", id);
            config.put("bootstrap.servers", context.bootstrap());
            config.put("group.protocol", "streams");
            config.put("commit.interval.ms", 100);
            config.put("statestore.cache.max.bytes", 0);
            config.put("state.dir", Files.createTempDirectory("compat-streams").toString());
            KafkaStreams streams = new KafkaStreams(builder.build(), config);
            context.opened(() -> streams.close(Duration.ofSeconds(10)));
            streams.start();
            return streams;
        }

        void write(String... lines) throws Exception {
            for (int n = 0; n < lines.length; n++) {
                context.produceRecords(
                        Map.of(),
                        List.of(Context.record(in, n % PARTITIONS, null, lines[n])));
            }
        }

        /** The last count of each word. */
        Map<String, String> counts() throws Exception {
            TopicPartition partition = new TopicPartition(out, 0);
            Map<String, String> counts = new HashMap<>();
            try (KafkaConsumer<byte[], byte[]> consumer = context.consumer(Map.of())) {
                consumer.assign(List.of(partition));
                consumer.seekToBeginning(List.of(partition));
                long end = consumer.endOffsets(List.of(partition)).get(partition);
                while (consumer.position(partition) < end) {
                    for (ConsumerRecord<byte[], byte[]> record :
                            consumer.poll(Duration.ofMillis(200))) {
                        counts.put(text(record.key()), text(record.value()));
                    }
                }
            }
            return counts;
        }

        void comesTo(Map<String, String> wanted) throws Exception {
            Expect.eventually(
                    () -> counts().equals(wanted), 60, "counts " + wanted);
        }

        StreamsGroupDescription describe() throws Exception {
            return done(context.admin.describeStreamsGroups(List.of(id)).all()).get(id);
        }

        /** Null if the group does not exist. */
        boolean isIn(GroupState state) throws Exception {
            try {
                return describe().groupState() == state;
            } catch (ExecutionException e) {
                if (e.getCause() instanceof GroupIdNotFoundException) {
                    return state == null;
                }
                throw e;
            }
        }

        /** Waits until this number of members runs all tasks, with this number of standby tasks. */
        StreamsGroupDescription settles(int members, int standbys) throws Exception {
            Expect.eventually(() -> !isIn(null), 30, "the group is there");
            Expect.eventually(
                    () -> {
                        StreamsGroupDescription group = describe();
                        return isIn(GroupState.STABLE)
                                && group.members().size() == members
                                && tasks(group, StreamsGroupMemberAssignment::activeTasks).size()
                                        == 2 * PARTITIONS
                                && tasks(group, StreamsGroupMemberAssignment::standbyTasks).size()
                                        == standbys;
                    },
                    60,
                    members + " members settle with " + standbys + " standbys");
            return describe();
        }

        void configure(String name, String value) throws Exception {
            done(
                    context.admin
                            .incrementalAlterConfigs(
                                    Map.of(
                                            new ConfigResource(ConfigResource.Type.GROUP, id),
                                            List.of(
                                                    new AlterConfigOp(
                                                            new ConfigEntry(name, value),
                                                            AlterConfigOp.OpType.SET))))
                            .all());
        }
    }

    private static List<String> tasks(
            StreamsGroupDescription group,
            Function<StreamsGroupMemberAssignment, List<StreamsGroupMemberAssignment.TaskIds>> of) {
        return group.members().stream()
                .map(StreamsGroupMemberDescription::assignment)
                .flatMap(assignment -> of.apply(assignment).stream())
                .flatMap(
                        ids -> ids.partitions().stream().map(p -> ids.subtopologyId() + "_" + p))
                .sorted()
                .toList();
    }

    private static void countsWords(Context context) throws Exception {
        Application application = Application.of(context);
        application.configure("streams.initial.rebalance.delay.ms", "0");
        KafkaStreams first = application.start();
        application.write("a b", "a", "c a");
        application.comesTo(Map.of("a", "3", "b", "1", "c", "1"));

        StreamsGroupDescription group = application.settles(1, 0);
        Expect.equal(group.subtopologies().size(), 2, "subtopologies");
        Expect.equal(
                new TreeSet<>(tasks(group, StreamsGroupMemberAssignment::activeTasks)),
                new TreeSet<>(Set.of("0_0", "0_1", "0_2", "1_0", "1_1", "1_2")),
                "tasks");
        for (String topic : application.internal()) {
            Expect.equal(context.partitions(topic), PARTITIONS, "partitions of " + topic);
        }
        Expect.equal(policy(context, application.changelog()), "compact", "the changelog's policy");
        Expect.equal(policy(context, application.repartition()), "delete", "the other's policy");

        administered(context, application);

        // The state is restored from the changelog.
        first.close(Duration.ofSeconds(20));
        Expect.eventually(
                () -> application.isIn(GroupState.EMPTY),
                20,
                "nobody is left");
        application.write("a", "c");
        KafkaStreams second = application.start();
        application.comesTo(Map.of("a", "4", "b", "1", "c", "2"));
        second.close(Duration.ofSeconds(20));
        Expect.eventually(
                () -> application.isIn(GroupState.EMPTY),
                20,
                "nobody is left again");
        done(
                context.admin
                        .deleteStreamsGroups(
                                List.of(application.id()), new DeleteStreamsGroupsOptions())
                        .all());
        Expect.refused(
                GroupIdNotFoundException.class, application::describe, "a group that is deleted");
    }

    /** The requests of kafka-streams-groups. */
    private static void administered(Context context, Application application) throws Exception {
        Collection<GroupListing> listed =
                done(context.admin.listGroups(ListGroupsOptions.forStreamsGroups()).all());
        GroupListing listing =
                listed.stream()
                        .filter(known -> known.groupId().equals(application.id()))
                        .findFirst()
                        .orElseThrow();
        Expect.equal(listing.type().orElseThrow(), GroupType.STREAMS, "type");
        Expect.eventually(
                () ->
                        done(context.admin
                                        .listStreamsGroupOffsets(
                                                Map.of(
                                                        application.id(),
                                                        new ListStreamsGroupOffsetsSpec()))
                                        .partitionsToOffsetAndMetadata(application.id()))
                                .keySet()
                                .stream()
                                .map(TopicPartition::topic)
                                .collect(Collectors.toSet())
                                .equals(Set.of(application.in(), application.repartition())),
                20,
                "offsets of all sources are committed");
        Expect.refused(
                GroupNotEmptyException.class,
                () ->
                        done(
                                context.admin
                                        .deleteStreamsGroups(
                                                List.of(application.id()),
                                                new DeleteStreamsGroupsOptions())
                                        .all()),
                "deleting a group that has members");
    }

    private static String policy(Context context, String topic) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        Config config = done(context.admin.describeConfigs(List.of(resource)).all()).get(resource);
        return config.get("cleanup.policy").value();
    }

    private static void keepsStandbys(Context context) throws Exception {
        Application application = Application.of(context);
        application.configure("streams.initial.rebalance.delay.ms", "0");
        application.configure("streams.num.standby.replicas", "1");
        KafkaStreams first = application.start();
        application.settles(1, 0);
        KafkaStreams second = application.start();
        application.write("a b", "a", "c a");
        application.comesTo(Map.of("a", "3", "b", "1", "c", "1"));
        application.settles(2, PARTITIONS);

        first.close(Duration.ofSeconds(20));
        application.write("a", "b", "c");
        application.comesTo(Map.of("a", "4", "b", "2", "c", "2"));
        application.settles(1, 0);
        second.close(Duration.ofSeconds(20));
    }

    private static void waitsForItsSource(Context context) throws Exception {
        Application application = Application.of(context);
        application.configure("streams.initial.rebalance.delay.ms", "0");
        done(context.admin.deleteTopics(List.of(application.in())).all());
        Expect.eventually(
                () -> context.partitions(application.in()) == 0, 10, "the source is gone");
        KafkaStreams streams = application.start();
        Expect.eventually(
                () -> application.isIn(GroupState.NOT_READY), 30, "the group is not ready");
        streams.close(Duration.ofSeconds(20));
    }

    private static void describeAbsent(Context context) {
        String group = context.unique("absent");
        Expect.refused(
                GroupIdNotFoundException.class,
                () -> done(context.admin.describeStreamsGroups(List.of(group)).all()),
                "a group that is not there");
    }
}
