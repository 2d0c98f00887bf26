package compat;

import static compat.Context.take;

import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.FencedInstanceIdException;
import org.apache.kafka.common.errors.InconsistentGroupProtocolException;
import org.apache.kafka.common.errors.InvalidSessionTimeoutException;

import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.regex.Pattern;

/** Groups of the classic protocol: the members assign. */
final class ClassicGroups {
    private static final Map<String, Object> QUICK = Map.of("heartbeat.interval.ms", 500);

    private ClassicGroups() {}

    static void register(Suite suite) {
        Map<String, Class<?>> assignors =
                Map.of(
                        "range", RangeAssignor.class,
                        "roundrobin", RoundRobinAssignor.class,
                        "sticky", StickyAssignor.class,
                        "cooperative", CooperativeStickyAssignor.class);
        assignors.forEach(
                (name, assignor) ->
                        suite.addSlow(
                                "classic-rebalance-" + name,
                                context ->
                                        Churn.run(
                                                context,
                                                with(
                                                        "partition.assignment.strategy",
                                                        assignor.getName()))));
        suite.addSlow("classic-static-membership", ClassicGroups::staticMembership);
        suite.addSlow("classic-static-member-is-fenced", ClassicGroups::staticMemberIsFenced);
        suite.addSlow("classic-inconsistent-protocols", ClassicGroups::inconsistentProtocols);
        suite.addSlow("classic-pattern-subscription", ClassicGroups::patternSubscription);
        suite.addSlow(
                "classic-new-partitions-are-assigned", ClassicGroups::newPartitionsAreAssigned);
        suite.add("classic-session-timeout-refused", ClassicGroups::sessionTimeoutRefused);
    }

    private static Map<String, Object> with(String key, Object value) {
        return Map.of("heartbeat.interval.ms", 500, key, value);
    }

    /**
     * A static member that rejoins in time keeps its partitions; otherwise it loses them.
     */
    private static void staticMembership(Context context) throws Exception {
        String topic = context.topic(4);
        String group = context.unique("g");
        List<TopicPartition> partitions = Context.partitionsOf(topic, 4);
        Map<String, Object> one =
                Map.of(
                        "group.instance.id",
                        "one",
                        "session.timeout.ms",
                        6000,
                        "heartbeat.interval.ms",
                        500);
        Map<String, Object> two =
                Map.of(
                        "group.instance.id",
                        "two",
                        "session.timeout.ms",
                        6000,
                        "heartbeat.interval.ms",
                        500);
        Member first = new Member(context, group, one, topic);
        Member second = new Member(context, group, two, topic);
        Member.settled(List.of(first, second), partitions);
        Set<TopicPartition> held = first.assigned;
        int rebalances = second.assignments.get();
        first.leave();
        first = new Member(context, group, one, topic);
        Member.settled(List.of(first, second), partitions);
        Expect.equal(first.assigned, held, "the returning member's partitions");
        Expect.equal(second.assignments.get(), rebalances, "rebalances that the other member saw");
        first.leave();
        Member.settled(List.of(second), partitions, 25);
        second.leave();
    }

    private static void staticMemberIsFenced(Context context) throws Exception {
        String topic = context.topic(1);
        String group = context.unique("g");
        Map<String, Object> same = with("group.instance.id", "same");
        Member older = new Member(context, group, same, topic);
        Member.settled(List.of(older), Context.partitionsOf(topic, 1));
        Member newer = new Member(context, group, same, topic);
        Expect.eventually(() -> older.failure != null, 15, "the older member is told");
        Expect.refused(
                FencedInstanceIdException.class,
                () -> {
                    throw older.failure;
                },
                "the older member");
        Member.settled(List.of(newer), Context.partitionsOf(topic, 1));
        newer.leave();
    }

    /** Members without a common assignor cannot share a group. */
    private static void inconsistentProtocols(Context context) throws Exception {
        String topic = context.topic(1);
        String group = context.unique("g");
        Member first =
                new Member(
                        context,
                        group,
                        with("partition.assignment.strategy", RangeAssignor.class.getName()),
                        topic);
        Member.settled(List.of(first), Context.partitionsOf(topic, 1));
        Member second =
                new Member(
                        context,
                        group,
                        with("partition.assignment.strategy", RoundRobinAssignor.class.getName()),
                        topic);
        Expect.eventually(() -> second.failure != null, 10, "the second member is refused");
        Expect.equal(second.failure.getClass(), InconsistentGroupProtocolException.class, "error");
        first.check();
        first.leave();
    }

    private static void sessionTimeoutRefused(Context context) throws Exception {
        String topic = context.topic(1);
        // Kafka allows 6 s (group.min.session.timeout.ms) to 30 min.
        Map<String, Object> tooShort =
                Map.of(
                        "group.id",
                        context.unique("g"),
                        "session.timeout.ms",
                        100,
                        "heartbeat.interval.ms",
                        50);
        KafkaConsumer<byte[], byte[]> consumer = context.consumer(tooShort);
        consumer.subscribe(List.of(topic));
        Expect.refused(InvalidSessionTimeoutException.class, () -> take(consumer, 1), "100 ms");
    }

    /** The client matches topic names, and finds a topic that is created later. */
    private static void patternSubscription(Context context) throws Exception {
        String first = context.topic(1, "match-1", Map.of());
        context.topic(1, "other", Map.of());
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
        Member member =
                new Member(context, context.unique("g"), with("metadata.max.age.ms", 500), topic);
        Member.settled(List.of(member), Context.partitionsOf(topic, 1));
        Context.done(
                context.admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(3))).all());
        Member.settled(List.of(member), Context.partitionsOf(topic, 3));
        member.leave();
    }
}
