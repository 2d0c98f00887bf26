package compat;

import static compat.Context.done;

import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.GroupIdNotFoundException;
import org.apache.kafka.common.errors.GroupNotEmptyException;
import org.apache.kafka.common.errors.GroupSubscribedToTopicException;
import org.apache.kafka.common.errors.UnknownMemberIdException;

import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Set;

/** Administration of groups and their offsets, and commits from outside of a group. */
final class GroupAdministration {
    private GroupAdministration() {}

    static void register(Suite suite) {
        suite.add("list-and-describe-groups", GroupAdministration::listAndDescribe);
        suite.add("describe-absent-group", GroupAdministration::describeAbsent);
        suite.add("delete-group", GroupAdministration::delete);
        suite.add("list-and-alter-group-offsets", GroupAdministration::listAndAlterOffsets);
        suite.add("delete-group-offsets", GroupAdministration::deleteOffsets);
        suite.add("remove-members-from-group", GroupAdministration::removeMembers);
        suite.add("deleted-topic-loses-its-offsets", GroupAdministration::deletedTopic);
        suite.addSlow("max-poll-interval", GroupAdministration::maxPollInterval);
    }

    private static ConsumerGroupDescription describe(Context context, String group)
            throws Exception {
        return done(context.admin.describeConsumerGroups(List.of(group)).all()).get(group);
    }

    static Map<TopicPartition, OffsetAndMetadata> offsets(Context context, String group)
            throws Exception {
        return done(context.admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata());
    }

    private static boolean listed(Context context, String group, ListGroupsOptions options)
            throws Exception {
        Collection<GroupListing> all = done(context.admin.listGroups(options).all());
        return all.stream().anyMatch(g -> g.groupId().equals(group));
    }

    private static void listAndDescribe(Context context) throws Exception {
        String topic = context.topic(2);
        String group = context.unique("g");
        Member member =
                new Member(
                        context,
                        group,
                        Map.of("client.id", "described", "group.instance.id", "static-one"),
                        topic);
        Member.settled(List.of(member), Context.partitionsOf(topic, 2));
        Expect.holds(listed(context, group, new ListGroupsOptions()), "listed");
        Expect.holds(
                listed(
                        context,
                        group,
                        new ListGroupsOptions().inGroupStates(Set.of(GroupState.STABLE))),
                "listed by state");
        Expect.holds(
                !listed(
                        context,
                        group,
                        new ListGroupsOptions().inGroupStates(Set.of(GroupState.EMPTY))),
                "not among the empty ones");
        Expect.holds(
                listed(
                        context,
                        group,
                        new ListGroupsOptions().withTypes(Set.of(GroupType.CLASSIC))),
                "listed by type");
        Expect.holds(
                !listed(
                        context,
                        group,
                        new ListGroupsOptions().withTypes(Set.of(GroupType.CONSUMER))),
                "not of the other type");
        ConsumerGroupDescription described = describe(context, group);
        Expect.equal(
                List.of(described.groupState(), described.type(), described.partitionAssignor()),
                List.of(GroupState.STABLE, GroupType.CLASSIC, "range"),
                "state, type and assignor");
        var one = described.members().iterator().next();
        Expect.equal(one.clientId(), "described", "client id");
        Expect.equal(one.groupInstanceId().get(), "static-one", "instance id");
        Expect.holds(!one.host().isEmpty(), "host");
        Expect.equal(
                one.assignment().topicPartitions(),
                Set.copyOf(Context.partitionsOf(topic, 2)),
                "assignment");
        Expect.holds(
                    Topics.allBrokers(context).contains(described.coordinator().id()),
                    "a node coordinates");
        member.leave();
    }

    private static void describeAbsent(Context context) throws Exception {
        Expect.refused(
                GroupIdNotFoundException.class,
                () -> describe(context, context.unique("absent")),
                "describe");
        Expect.equal(offsets(context, context.unique("absent")), Map.of(), "offsets");
    }

    private static void delete(Context context) throws Exception {
        String topic = context.topic(1);
        String group = context.unique("g");
        context.produce(topic, "x");
        Member member = new Member(context, group, Map.of(), topic);
        Expect.eventually(() -> member.processed.size() == 1, 20, "processed");
        Expect.refused(
                GroupNotEmptyException.class,
                () -> deleteGroup(context, group),
                "a group with members");
        member.leave();
        deleteGroup(context, group);
        Expect.holds(!listed(context, group, new ListGroupsOptions()), "not listed");
        Expect.equal(offsets(context, group), Map.of(), "its offsets are gone");
        Expect.refused(
                GroupIdNotFoundException.class,
                () -> deleteGroup(context, group),
                "an absent group");
    }

    private static Void deleteGroup(Context context, String group) throws Exception {
        return done(context.admin.deleteConsumerGroups(List.of(group)).all());
    }

    private static Void alter(
            Context context, String group, Map<TopicPartition, OffsetAndMetadata> offsets)
            throws Exception {
        return done(context.admin.alterConsumerGroupOffsets(group, offsets).all());
    }

    private static void listAndAlterOffsets(Context context) throws Exception {
        String topic = context.topic(2);
        String group = context.unique("g");
        context.produce(topic, Map.of(), Context.numbers(10));
        Map<TopicPartition, OffsetAndMetadata> wanted =
                Map.of(
                        new TopicPartition(topic, 0),
                        new OffsetAndMetadata(4, "note"),
                        new TopicPartition(topic, 1),
                        new OffsetAndMetadata(0));
        alter(context, group, wanted);
        Expect.equal(offsets(context, group), wanted, "offsets of a group made by altering");
        Member member = new Member(context, group, Map.of(), topic);
        Expect.eventually(
                () -> member.processed.size() == 6, 20, "the six records from offset 4 on");
        Expect.refused(
                UnknownMemberIdException.class,
                () -> alter(context, group, wanted),
                "while a member is there");
        member.leave();
        Expect.equal(
                offsets(context, group).get(new TopicPartition(topic, 0)).offset(),
                10L,
                "after consuming");
        alter(context, group, wanted);
        Expect.equal(offsets(context, group), wanted, "rewound");
    }

    private static void deleteOffsets(Context context) throws Exception {
        String topic = context.topic(2);
        String group = context.unique("g");
        TopicPartition first = new TopicPartition(topic, 0);
        TopicPartition second = new TopicPartition(topic, 1);
        alter(
                context,
                group,
                Map.of(first, new OffsetAndMetadata(1), second, new OffsetAndMetadata(2)));
        Member member = new Member(context, group, Map.of(), topic);
        Member.settled(List.of(member), List.of(first, second));
        Expect.refused(
                GroupSubscribedToTopicException.class,
                () -> deleteOffset(context, group, first),
                "while subscribed");
        member.leave();
        deleteOffset(context, group, first);
        Expect.equal(offsets(context, group).keySet(), Set.of(second), "offsets that are left");
        Expect.refused(
                GroupIdNotFoundException.class,
                () -> deleteOffset(context, context.unique("absent"), first),
                "an absent group");
    }

    private static Void deleteOffset(Context context, String group, TopicPartition partition)
            throws Exception {
        return done(
                context.admin
                        .deleteConsumerGroupOffsets(group, Set.of(partition))
                        .partitionResult(partition));
    }

    private static void removeMembers(Context context) throws Exception {
        String topic = context.topic(1);
        String group = context.unique("g");
        Member member = new Member(context, group, Map.of("group.instance.id", "removed"), topic);
        Member.settled(List.of(member), Context.partitionsOf(topic, 1));
        member.leave();
        Expect.equal(
                describe(context, group).members().size(),
                1,
                "a static member that stopped is still a member");
        var options =
                new RemoveMembersFromConsumerGroupOptions(Set.of(new MemberToRemove("removed")));
        done(context.admin.removeMembersFromConsumerGroup(group, options).all());
        Expect.eventually(
                () -> describe(context, group).groupState() == GroupState.EMPTY, 10, "removed");
    }

    private static void deletedTopic(Context context) throws Exception {
        String topic = context.topic(1);
        String group = context.unique("g");
        alter(context, group, Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(0)));
        done(context.admin.deleteTopics(List.of(topic)).all());
        Expect.eventually(
                () -> offsets(context, group).isEmpty(), 10, "a deleted topic's offsets are gone");
    }

    /** A member that stops polling loses its partitions to the others. */
    private static void maxPollInterval(Context context) throws Exception {
        String topic = context.topic(2);
        String group = context.unique("g");
        Map<String, Object> config =
                Map.of(
                        "group.id",
                        group,
                        "session.timeout.ms",
                        6000,
                        "heartbeat.interval.ms",
                        500,
                        "max.poll.interval.ms",
                        3000);
        KafkaConsumer<byte[], byte[]> stuck = context.consumer(config);
        stuck.subscribe(List.of(topic));
        Expect.eventually(
                () ->
                        stuck.poll(Duration.ofMillis(100)).isEmpty()
                                && stuck.assignment().size() == 2,
                15,
                "the first has both");
        Member other = new Member(context, group, Map.of("heartbeat.interval.ms", 500), topic);
        Member.settled(List.of(other), Context.partitionsOf(topic, 2), 25);
        Expect.refused(
                CommitFailedException.class,
                () -> {
                    stuck.commitSync(
                            Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(1)));
                    return null;
                },
                "a commit of the member that was put out");
        other.leave();
    }
}
