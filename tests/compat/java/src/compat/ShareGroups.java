package compat;

import static compat.Context.done;

import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ShareGroupDescription;
import org.apache.kafka.clients.admin.ShareMemberDescription;
import org.apache.kafka.clients.admin.SharePartitionOffsetInfo;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.GroupIdNotFoundException;
import org.apache.kafka.common.errors.GroupNotEmptyException;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;

import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.atomic.AtomicReference;

/** Administration of share groups. */
final class ShareGroups {
    private ShareGroups() {}

    static void register(Suite suite) {
        suite.add("share-list-and-describe", ShareGroups::listAndDescribe);
        suite.add("share-describe-absent", ShareGroups::describeAbsent);
        suite.add("share-divides-partitions", ShareGroups::dividesPartitions);
        suite.add("share-group-offsets", ShareGroups::offsets);
        suite.add("share-alter-offsets", ShareGroups::alterOffsets);
        suite.add("share-delete-offsets", ShareGroups::deleteOffsets);
        suite.add("share-delete-group", ShareGroups::delete);
        suite.add("share-group-config", ShareGroups::config);
        suite.add("share-group-config-refused", ShareGroups::configRefused);
        suite.add("share-is-no-consumer-group", ShareGroups::noConsumerGroup);
    }

    private static ShareGroupDescription describe(Context context, String group)
            throws Exception {
        return done(context.admin.describeShareGroups(List.of(group)).all()).get(group);
    }

    /** Empty if the group does not exist: the first member that joins creates it. */
    private static Collection<ShareMemberDescription> membersOf(Context context, String group)
            throws Exception {
        try {
            return describe(context, group).members();
        } catch (ExecutionException e) {
            if (e.getCause() instanceof GroupIdNotFoundException) {
                return List.of();
            }
            throw e;
        }
    }

    private static boolean listed(Context context, String group, ListGroupsOptions options)
            throws Exception {
        Collection<GroupListing> all = done(context.admin.listGroups(options).all());
        return all.stream().anyMatch(g -> g.groupId().equals(group));
    }

    private static Map<TopicPartition, SharePartitionOffsetInfo> offsetsOf(
            Context context, String group) throws Exception {
        return done(
                context.admin
                        .listShareGroupOffsets(Map.of(group, new ListShareGroupOffsetsSpec()))
                        .partitionsToOffsetInfo(group));
    }

    /** Kafka's start offset is stale until the group's state is written again; the lag is not. */
    private static void expectLag(
            Context context, String group, TopicPartition partition, long startMax, long lag)
            throws Exception {
        AtomicReference<SharePartitionOffsetInfo> last = new AtomicReference<>();
        long end = System.nanoTime() + 10_000_000_000L;
        while (last.get() == null || last.get().lag().orElse(-1L) != lag) {
            Expect.holds(System.nanoTime() < end, "wanted lag " + lag + ", got " + last.get());
            last.set(offsetsOf(context, group).get(partition));
            Thread.sleep(200);
        }
        long start = last.get().startOffset();
        Expect.holds(start >= 0 && start <= startMax, "start offset: " + start);
    }

    private static void listAndDescribe(Context context) throws Exception {
        String topic = context.topic(2);
        String group = ShareMember.group(context);
        try (ShareMember member =
                ShareMember.explicit(context, group, Map.of("client.id", "described"), topic)) {
            context.produce(topic, "one");
            member.take(1, AcknowledgeType.ACCEPT);
            Expect.holds(
                    listed(context, group, ListGroupsOptions.forShareGroups()),
                    "listed as a share group");
            Expect.holds(
                    !listed(context, group, ListGroupsOptions.forConsumerGroups()),
                    "not as a consumer group");
            Expect.holds(
                    listed(
                            context,
                            group,
                            new ListGroupsOptions()
                                    .withTypes(Set.of(GroupType.SHARE))
                                    .inGroupStates(Set.of(GroupState.STABLE))),
                    "listed by state");
            ShareGroupDescription described = describe(context, group);
            Expect.equal(described.groupState(), GroupState.STABLE, "state");
            Expect.equal(described.members().size(), 1, "members");
            ShareMemberDescription one = described.members().iterator().next();
            Expect.equal(one.clientId(), "described", "client id");
            Expect.holds(!one.host().isEmpty() && !one.consumerId().isEmpty(), "host and id");
            Expect.equal(
                    one.assignment().topicPartitions(),
                    Set.copyOf(Context.partitionsOf(topic, 2)),
                    "assignment");
            Expect.holds(
                    Topics.allBrokers(context).contains(described.coordinator().id()),
                    "a node coordinates");
            Expect.holds(described.groupEpoch() > 0, "group epoch");
        }
        Expect.eventually(
                () -> describe(context, group).groupState() == GroupState.EMPTY,
                20,
                "the group is empty");
        Expect.holds(
                listed(context, group, ListGroupsOptions.forShareGroups()), "listed when empty");
    }

    private static void describeAbsent(Context context) throws Exception {
        String absent = context.unique("absent");
        Expect.refused(
                GroupIdNotFoundException.class, () -> describe(context, absent), "describe");
        Expect.refused(
                GroupIdNotFoundException.class,
                () -> done(context.admin.deleteShareGroups(List.of(absent)).all()),
                "delete");
    }

    /** With enough partitions each has one member; with more members, each of them has one. */
    private static void dividesPartitions(Context context) throws Exception {
        String topic = context.topic(4);
        String group = ShareMember.group(context);
        try (ShareMember one = ShareMember.explicit(context, group, topic);
                ShareMember two = ShareMember.explicit(context, group, topic)) {
            Expect.eventually(
                    () -> {
                        one.consumer.poll(Duration.ofMillis(100));
                        two.consumer.poll(Duration.ofMillis(100));
                        Set<TopicPartition> all = new HashSet<>();
                        int count = 0;
                        for (ShareMemberDescription m : membersOf(context, group)) {
                            Set<TopicPartition> had = m.assignment().topicPartitions();
                            all.addAll(had);
                            count += had.size() == 2 ? had.size() : 100;
                        }
                        return count == 4 && all.size() == 4;
                    },
                    40,
                    "two partitions for each");
        }
    }

    private static void offsets(Context context) throws Exception {
        String topic = context.topic(1);
        TopicPartition partition = new TopicPartition(topic, 0);
        String group = ShareMember.group(context);
        context.produce(topic, Map.of(), Context.numbers(10));
        try (ShareMember member = ShareMember.explicit(context, group, topic)) {
            var records = member.take(10);
            member.acknowledgeAll(records.subList(0, 4), AcknowledgeType.ACCEPT);
            member.acknowledgeAll(records.subList(4, 6), AcknowledgeType.RELEASE);
            member.acknowledgeAll(records.subList(6, 8), AcknowledgeType.ACCEPT);
            member.acknowledgeAll(records.subList(8, 10), AcknowledgeType.RELEASE);
            member.commit();
        }
        // Four records are left: two at the end, two between settled ones.
        expectLag(context, group, partition, 4, 4);
        ListShareGroupOffsetsSpec spec =
                new ListShareGroupOffsetsSpec().topicPartitions(List.of(partition));
        SharePartitionOffsetInfo asked =
                done(
                                context.admin
                                        .listShareGroupOffsets(Map.of(group, spec))
                                        .partitionsToOffsetInfo(group))
                        .get(partition);
        Expect.equal(asked.lag().orElse(-1L), 4L, "one that was asked for");
    }

    private static void alterOffsets(Context context) throws Exception {
        String topic = context.topic(1);
        TopicPartition partition = new TopicPartition(topic, 0);
        String group = ShareMember.group(context);
        context.produce(topic, Map.of(), Context.numbers(10));
        try (ShareMember member = ShareMember.explicit(context, group, topic)) {
            member.take(10, AcknowledgeType.ACCEPT);
            Expect.refused(
                    GroupNotEmptyException.class,
                    () ->
                            done(
                                    context.admin
                                            .alterShareGroupOffsets(group, Map.of(partition, 3L))
                                            .partitionResult(partition)),
                    "while it has members");
        }
        Expect.eventually(
                () -> describe(context, group).groupState() == GroupState.EMPTY,
                20,
                "the group is empty");
        done(context.admin.alterShareGroupOffsets(group, Map.of(partition, 7L)).all());
        try (ShareMember member = ShareMember.explicit(context, group, topic)) {
            var again = member.take(3, AcknowledgeType.ACCEPT);
            Expect.equal(ShareMember.values(again), List.of("7", "8", "9"), "rewound");
            Expect.equal(ShareMember.allDeliveries(again), List.of(1), "deliveries");
        }
        TopicPartition absent = new TopicPartition(context.unique("absent"), 0);
        Expect.refused(
                UnknownTopicOrPartitionException.class,
                () ->
                        done(
                                context.admin
                                        .alterShareGroupOffsets(group, Map.of(absent, 0L))
                                        .partitionResult(absent)),
                "of a topic that is not there");
    }

    private static void deleteOffsets(Context context) throws Exception {
        String topic = context.topic(1);
        String group = ShareMember.group(context);
        context.produce(topic, Map.of(), Context.numbers(3));
        try (ShareMember member = ShareMember.explicit(context, group, topic)) {
            member.take(3, AcknowledgeType.ACCEPT);
            Expect.refused(
                    GroupNotEmptyException.class,
                    () ->
                            done(
                                    context.admin
                                            .deleteShareGroupOffsets(group, Set.of(topic))
                                            .all()),
                    "while it has members");
        }
        Expect.eventually(
                () -> describe(context, group).groupState() == GroupState.EMPTY,
                20,
                "the group is empty");
        done(context.admin.deleteShareGroupOffsets(group, Set.of(topic)).all());
        // It starts as a new group does.
        try (ShareMember member = ShareMember.explicit(context, group, topic)) {
            Expect.equal(
                    ShareMember.values(member.take(3, AcknowledgeType.ACCEPT)),
                    Context.numbers(3),
                    "from the start");
        }
    }

    private static void delete(Context context) throws Exception {
        String topic = context.topic(1);
        String group = ShareMember.group(context);
        context.produce(topic, "one");
        try (ShareMember member = ShareMember.explicit(context, group, topic)) {
            member.take(1, AcknowledgeType.ACCEPT);
            Expect.refused(
                    GroupNotEmptyException.class,
                    () -> done(context.admin.deleteShareGroups(List.of(group)).all()),
                    "while it has members");
        }
        Expect.eventually(
                () -> describe(context, group).groupState() == GroupState.EMPTY,
                20,
                "the group is empty");
        done(context.admin.deleteShareGroups(List.of(group)).all());
        Expect.refused(
                GroupIdNotFoundException.class, () -> describe(context, group), "describe");
        Expect.holds(
                !listed(context, group, ListGroupsOptions.forShareGroups()), "no longer listed");
    }

    private static void config(Context context) throws Exception {
        String group = context.unique("g");
        Map<String, String> values = ShareMember.configOf(context, group);
        Map<String, String> defaults =
                new HashMap<>(
                        Map.of(
                                "share.auto.offset.reset", "latest",
                                "share.isolation.level", "read_uncommitted",
                                "share.record.lock.duration.ms", "30000",
                                "share.delivery.count.limit", "5",
                                "share.session.timeout.ms", "45000",
                                "share.heartbeat.interval.ms", "5000",
                                "share.partition.max.record.locks", "2000",
                                "share.renew.acknowledge.enable", "true"));
        values.keySet().retainAll(defaults.keySet());
        Expect.equal(values, defaults, "defaults");
        Map<String, String> own =
                Map.of(
                        "share.auto.offset.reset", "by_duration:P1DT2H",
                        "share.isolation.level", "read_committed",
                        "share.record.lock.duration.ms", "20000",
                        "share.delivery.count.limit", "7");
        ShareMember.configure(context, group, own);
        defaults.putAll(own);
        Expect.eventually(
                () -> {
                    Map<String, String> now = ShareMember.configOf(context, group);
                    now.keySet().retainAll(defaults.keySet());
                    return now.equals(defaults);
                },
                10,
                "values of its own");
    }

    private static void configRefused(Context context) throws Exception {
        String group = context.unique("g");
        for (Map.Entry<String, String> bad :
                Map.of(
                                "share.auto.offset.reset", "sometime",
                                "share.isolation.level", "none",
                                "share.record.lock.duration.ms", "5",
                                "share.delivery.count.limit", "1000",
                                "share.unknown", "1")
                        .entrySet()) {
            Expect.refused(
                    InvalidConfigurationException.class,
                    () -> {
                        ShareMember.configure(
                                context, group, Map.of(bad.getKey(), bad.getValue()));
                        return null;
                    },
                    bad.toString());
        }
    }

    private static void noConsumerGroup(Context context) throws Exception {
        String topic = context.topic(1);
        String group = ShareMember.group(context);
        context.produce(topic, "one");
        try (ShareMember member = ShareMember.explicit(context, group, topic)) {
            member.take(1, AcknowledgeType.ACCEPT);
            Expect.refused(
                    GroupIdNotFoundException.class,
                    () ->
                            done(context.admin.describeConsumerGroups(List.of(group)).all())
                                    .get(group),
                    "describe as a consumer group");
        }
    }
}
