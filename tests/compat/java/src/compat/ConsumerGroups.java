package compat;

import static compat.Context.done;

import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.MemberDescription;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidRegularExpression;
import org.apache.kafka.common.errors.UnreleasedInstanceIdException;
import org.apache.kafka.common.errors.UnsupportedAssignorException;

import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/** The group protocol of KIP-848: the broker assigns, members heartbeat. */
final class ConsumerGroups {
    private static final Map<String, Object> PROTOCOL = Map.of("group.protocol", "consumer");

    private ConsumerGroups() {}

    static void register(Suite suite) {
        for (String assignor : List.of("uniform", "range")) {
            suite.addSlow(
                    "consumer-protocol-rebalance-" + assignor,
                    context -> Churn.run(context, with("group.remote.assignor", assignor)));
        }
        suite.addSlow("consumer-protocol-range-aligns-topics", ConsumerGroups::rangeAlignsTopics);
        suite.addSlow("consumer-protocol-unknown-assignor", ConsumerGroups::unknownAssignor);
        suite.addSlow("consumer-protocol-static-membership", ConsumerGroups::staticMembership);
        suite.addSlow("consumer-protocol-regex", ConsumerGroups::regex);
        suite.addSlow("consumer-protocol-regex-refused", ConsumerGroups::regexRefused);
        suite.addSlow(
                "consumer-protocol-pattern-subscription", ConsumerGroups::patternSubscription);
        suite.addSlow(
                "consumer-protocol-new-partitions-are-assigned",
                ConsumerGroups::newPartitionsAreAssigned);
        suite.addSlow("consumer-protocol-describe", ConsumerGroups::describe);
        suite.addSlow(
                "consumer-protocol-takes-over-classic-group",
                ConsumerGroups::takesOverClassicGroup);
    }

    private static Map<String, Object> with(String key, Object value) {
        return Map.of("group.protocol", "consumer", key, value);
    }

    /** The range assignor gives the same partitions of two topics to one member. */
    private static void rangeAlignsTopics(Context context) throws Exception {
        String left = context.topic(4, "left", Map.of());
        String right = context.topic(4, "right", Map.of());
        String group = context.unique("g");
        List<Member> members =
                Stream.generate(
                                () ->
                                        new Member(
                                                context,
                                                group,
                                                with("group.remote.assignor", "range"),
                                                left,
                                                right))
                        .limit(2)
                        .toList();
        Member.settled(
                members,
                Stream.of(left, right).flatMap(t -> Context.partitionsOf(t, 4).stream()).toList());
        for (Member member : members) {
            Expect.equal(
                    numbersOf(member, left),
                    numbersOf(member, right),
                    "the same partitions of both topics");
        }
        for (Member member : members) {
            member.leave();
        }
    }

    private static Set<Integer> numbersOf(Member member, String topic) {
        return member.assigned.stream()
                .filter(p -> p.topic().equals(topic))
                .map(TopicPartition::partition)
                .collect(Collectors.toSet());
    }

    private static void refused(Member member, Class<? extends Exception> wanted) throws Exception {
        Expect.eventually(() -> member.failure != null, 15, "the member is refused");
        Expect.equal(member.failure.getClass(), wanted, "error");
    }

    private static void unknownAssignor(Context context) throws Exception {
        String topic = context.topic(1);
        refused(
                new Member(
                        context,
                        context.unique("g"),
                        with("group.remote.assignor", "no-such-assignor"),
                        topic),
                UnsupportedAssignorException.class);
    }

    /**
     * A static member that leaves for a while keeps its partitions. While it is a member, no other
     * one can use its instance id.
     */
    private static void staticMembership(Context context) throws Exception {
        String topic = context.topic(4);
        String group = context.unique("g");
        List<TopicPartition> partitions = Context.partitionsOf(topic, 4);
        Member first = new Member(context, group, with("group.instance.id", "one"), topic);
        Member second = new Member(context, group, with("group.instance.id", "two"), topic);
        Member.settled(List.of(first, second), partitions);
        refused(
                new Member(context, group, with("group.instance.id", "two"), topic),
                UnreleasedInstanceIdException.class);
        Set<TopicPartition> held = first.assigned;
        Set<TopicPartition> others = second.assigned;
        first.leave();
        first = new Member(context, group, with("group.instance.id", "one"), topic);
        Member.settled(List.of(first, second), partitions);
        Expect.equal(first.assigned, held, "the returning member's partitions");
        Expect.equal(second.assigned, others, "the other member's partitions");
        first.leave();
        second.leave();
    }

    /** The broker matches topic names, and finds a topic that is created later. */
    private static void regex(Context context) throws Exception {
        String first = context.topic(1, "match-1", Map.of());
        context.topic(1, "other", Map.of());
        SubscriptionPattern pattern = new SubscriptionPattern(context.unique("match-") + "[0-9]+");
        Member member =
                new Member(
                        context,
                        context.unique("g"),
                        PROTOCOL,
                        (c, listener) -> c.subscribe(pattern, listener));
        TopicPartition early = new TopicPartition(first, 0);
        Member.settled(List.of(member), List.of(early));
        String second = context.topic(1, "match-22", Map.of());
        Member.settled(List.of(member), List.of(early, new TopicPartition(second, 0)), 60);
        member.leave();
    }

    private static void regexRefused(Context context) throws Exception {
        SubscriptionPattern broken = new SubscriptionPattern("broken-[");
        Member member =
                new Member(
                        context,
                        context.unique("g"),
                        PROTOCOL,
                        (c, listener) -> c.subscribe(broken, listener));
        refused(member, InvalidRegularExpression.class);
    }

    /** The client matches topic names. */
    private static void patternSubscription(Context context) throws Exception {
        String first = context.topic(1, "match-1", Map.of());
        Pattern pattern = Pattern.compile(context.unique("match-") + ".*");
        Member member =
                new Member(
                        context,
                        context.unique("g"),
                        with("metadata.max.age.ms", 500),
                        (c, listener) -> c.subscribe(pattern, listener));
        TopicPartition early = new TopicPartition(first, 0);
        Member.settled(List.of(member), List.of(early));
        String second = context.topic(1, "match-2", Map.of());
        Member.settled(List.of(member), List.of(early, new TopicPartition(second, 0)));
        member.leave();
    }

    private static void newPartitionsAreAssigned(Context context) throws Exception {
        String topic = context.topic(1);
        Member member = new Member(context, context.unique("g"), PROTOCOL, topic);
        Member.settled(List.of(member), Context.partitionsOf(topic, 1));
        done(context.admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(3))).all());
        Member.settled(List.of(member), Context.partitionsOf(topic, 3));
        member.leave();
    }

    private static void describe(Context context) throws Exception {
        String topic = context.topic(2);
        String group = context.unique("g");
        Member member = new Member(context, group, with("client.id", "described"), topic);
        Member.settled(List.of(member), Context.partitionsOf(topic, 2));
        Expect.eventually(() -> state(context, group) == GroupState.STABLE, 15, "stable");
        ConsumerGroupDescription described = description(context, group);
        Expect.equal(
                List.of(described.type(), described.partitionAssignor()),
                List.of(GroupType.CONSUMER, "uniform"),
                "type and assignor");
        Expect.holds(
                described.groupEpoch().get() > 0 && described.targetAssignmentEpoch().get() > 0,
                "epochs");
        MemberDescription one = described.members().iterator().next();
        Expect.equal(one.clientId(), "described", "client id");
        Expect.equal(
                one.assignment().topicPartitions(),
                Set.copyOf(Context.partitionsOf(topic, 2)),
                "assignment");
        Expect.equal(
                one.targetAssignment().get().topicPartitions(),
                one.assignment().topicPartitions(),
                "target");
        Expect.holds(one.memberEpoch().get() > 0, "member epoch");
        member.leave();
        Expect.eventually(
                () -> state(context, group) == GroupState.EMPTY, 15, "empty once all left");
        done(context.admin.deleteConsumerGroups(List.of(group)).all());
    }

    private static ConsumerGroupDescription description(Context context, String group)
            throws Exception {
        return done(context.admin.describeConsumerGroups(List.of(group)).all()).get(group);
    }

    private static GroupState state(Context context, String group) throws Exception {
        return description(context, group).groupState();
    }

    /** An empty group of the classic protocol becomes one of the new protocol, with its offsets. */
    private static void takesOverClassicGroup(Context context) throws Exception {
        String topic = context.topic(1);
        String group = context.unique("g");
        context.produce(topic, Map.of(), Context.numbers(10));
        Member classic = new Member(context, group, Map.of(), topic);
        Expect.eventually(() -> classic.processed.size() == 10, 20, "ten records");
        classic.leave();
        context.produce(topic, "more");
        Member member = new Member(context, group, PROTOCOL, topic);
        Expect.eventually(() -> !member.processed.isEmpty(), 20, "the next record");
        Expect.equal(description(context, group).type(), GroupType.CONSUMER, "type");
        member.leave();
        Expect.equal(
                member.processed.stream().map(r -> r.offset()).toList(),
                List.of(10L),
                "records after the commit");
    }
}
