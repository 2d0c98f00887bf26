"""Groups of the classic protocol, and the administration of groups and their offsets."""

import threading
import time

from confluent_kafka import (
    OFFSET_INVALID,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import NewPartitions

from .harness import eventually, expect, expect_error, expect_true, next_event, scenario, take
from .membership import Member, churn, owners, settled


@scenario(slow=True)
def classic_rebalance_range(context):
    churn(context, partition_assignment_strategy="range", heartbeat_interval_ms=500)


@scenario(slow=True)
def classic_rebalance_roundrobin(context):
    churn(context, partition_assignment_strategy="roundrobin", heartbeat_interval_ms=500)


@scenario(slow=True)
def classic_rebalance_cooperative(context):
    churn(context, partition_assignment_strategy="cooperative-sticky", heartbeat_interval_ms=500)


@scenario(slow=True)
def classic_static_membership(context):
    """A static member that rejoins in time keeps its partitions; otherwise it loses them."""
    topic = context.topic(partitions=4)
    partitions = [(topic, p) for p in range(4)]
    group = context.unique("g")

    def member(instance):
        return Member(
            context, [topic], group, group_instance_id=instance, session_timeout_ms=6000, heartbeat_interval_ms=500
        )

    one, two = member("one"), member("two")
    settled([one, two], partitions)
    held, rebalances = set(one.assigned), two.assignments
    one.leave()
    one = member("one")
    settled([one, two], partitions)
    expect(set(one.assigned), held, "the returning member's partitions")
    expect(two.assignments, rebalances, "the other member saw no rebalance")
    one.leave()
    settled([two], partitions, 25)
    two.leave()


@scenario(slow=True)
def classic_static_member_is_fenced(context):
    topic = context.topic()
    group = context.unique("g")
    old = Member(context, [topic], group, group_instance_id="same", heartbeat_interval_ms=300)
    settled([old], [(topic, 0)])
    new = Member(context, [topic], group, group_instance_id="same", heartbeat_interval_ms=300)
    eventually(lambda: old.failure, 15, "the older member is told")
    expect(old.failure.args[0].code(), KafkaError._FATAL, "error")
    settled([new], [(topic, 0)])
    new.leave()


@scenario(slow=True)
def classic_inconsistent_protocols(context):
    """Members without a common assignor cannot share a group."""
    topic = context.topic()
    group = context.unique("g")
    first = Member(context, [topic], group, partition_assignment_strategy="range")
    settled([first], [(topic, 0)])
    second = Member(context, [topic], group, partition_assignment_strategy="cooperative-sticky")
    eventually(lambda: second.failure, 10, "the second is refused")
    expect(second.failure.args[0].code(), KafkaError.INCONSISTENT_GROUP_PROTOCOL, "error")
    expect(owners([first])[(topic, 0)], 1, "the first goes on")
    first.leave()


@scenario(slow=True)
def classic_pattern_subscription(context):
    """The client matches topic names, and finds a topic that is created later."""
    first = context.topic(suffix="match-1")
    context.topic(suffix="other")
    member = Member(
        context, ["^" + context.unique("match-")], context.unique("g"), topic_metadata_refresh_interval_ms=500
    )
    settled([member], [(first, 0)])
    second = context.topic(suffix="match-2")
    settled([member], [(first, 0), (second, 0)])
    member.leave()


@scenario(slow=True)
def classic_new_partitions_are_assigned(context):
    topic = context.topic(partitions=1)
    member = Member(context, [topic], context.unique("g"), topic_metadata_refresh_interval_ms=500)
    settled([member], [(topic, 0)])
    context.only(context.admin.create_partitions([NewPartitions(topic, 3)]))
    settled([member], [(topic, p) for p in range(3)])
    member.leave()


@scenario()
def commit_and_resume(context):
    topic = context.topic()
    group = context.unique("g")
    context.produce(topic, [b"%d" % n for n in range(20)])
    consumer = context.consumer(group)
    consumer.subscribe([topic])
    for message in take(consumer, 7):
        last = message
    consumer.commit(last, asynchronous=False)
    consumer.close()
    consumer = context.consumer(group)
    consumer.subscribe([topic])
    expect([m.offset() for m in take(consumer, 13)], list(range(7, 20)), "after the commit")
    consumer.close()
    consumer = context.consumer(group)
    consumer.subscribe([topic])
    expect(take(consumer, 1)[0].offset(), 7, "what was read and not committed comes again")
    other = context.consumer(context.unique("other"))
    other.subscribe([topic])
    expect(take(other, 1)[0].offset(), 0, "another group starts at the beginning")


@scenario()
def auto_commit(context):
    topic = context.topic()
    group = context.unique("g")
    context.produce(topic, [b"%d" % n for n in range(10)])
    consumer = context.consumer(group, enable_auto_commit=True, auto_commit_interval_ms=200)
    consumer.subscribe([topic])
    take(consumer, 10)
    eventually(
        lambda: consumer.poll(0.1) is None and committed(context, group, topic) == 10, 10, "committed in the background"
    )


def committed(context, group, topic, partition=0):
    (found,) = context.consumer(group).committed([TopicPartition(topic, partition)], timeout=10)
    return found.offset


@scenario()
def commit_asynchronously_with_metadata(context):
    topic = context.topic()
    group = context.unique("g")
    context.produce(topic, [b"x"] * 5)
    outcomes = []
    consumer = context.consumer(
        group, on_commit=lambda error, partitions: outcomes.append((error, [p.offset for p in partitions]))
    )
    consumer.subscribe([topic])
    take(consumer, 5)
    consumer.commit(offsets=[TopicPartition(topic, 0, 3, "written by a test: ünïcode")], asynchronous=True)
    eventually(lambda: consumer.poll(0.1) or outcomes, 10, "the callback is called")
    expect(outcomes[0], (None, [3]), "outcome")
    (found,) = context.consumer(group).committed([TopicPartition(topic, 0)], timeout=10)
    expect((found.offset, found.metadata), (3, "written by a test: ünïcode"), "committed")
    (absent,) = context.consumer(context.unique("g2")).committed([TopicPartition(topic, 0)], timeout=10)
    expect(absent.offset, OFFSET_INVALID, "a group that committed nothing")


@scenario()
def commit_without_membership(context):
    """A consumer with assigned partitions commits to a group that it never joins."""
    topic = context.topic()
    group = context.unique("g")
    context.produce(topic, [b"x"] * 5)
    consumer = context.consumer(group)
    consumer.assign([TopicPartition(topic, 0)])
    take(consumer, 5)
    consumer.commit(asynchronous=False)
    expect(committed(context, group, topic), 5, "committed")


@scenario()
def commit_by_a_stranger_is_refused(context):
    """While a group has members, only they may commit."""
    topic = context.topic()
    group = context.unique("g")
    member = Member(context, [topic], group)
    settled([member], [(topic, 0)])
    stranger = context.consumer(group)
    stranger.assign([TopicPartition(topic, 0)])
    expect_error(
        KafkaError.UNKNOWN_MEMBER_ID,
        lambda: stranger.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False),
        "commit from outside",
    )
    member.leave()


@scenario()
def list_and_describe_groups(context):
    topic = context.topic(partitions=2)
    group = context.unique("g")
    member = Member(context, [topic], group, client_id="described", partition_assignment_strategy="range")
    settled([member], [(topic, 0), (topic, 1)])
    listed = context.admin.list_consumer_groups().result(15)
    (found,) = [g for g in listed.valid if g.group_id == group]
    expect(
        (found.state, found.type, found.is_simple_consumer_group),
        (ConsumerGroupState.STABLE, ConsumerGroupType.CLASSIC, False),
        "listing",
    )
    empty = context.admin.list_consumer_groups(states={ConsumerGroupState.EMPTY}).result(15)
    expect_true(group not in [g.group_id for g in empty.valid], "not among the empty ones")
    described = context.only(context.admin.describe_consumer_groups([group]))
    expect(described.state, ConsumerGroupState.STABLE, "state")
    expect(described.partition_assignor, "range", "assignor")
    (one,) = described.members
    expect(one.client_id, "described", "client id")
    expect(
        sorted((p.topic, p.partition) for p in one.assignment.topic_partitions), [(topic, 0), (topic, 1)], "assignment"
    )
    member.leave()
    eventually(
        lambda: context.only(context.admin.describe_consumer_groups([group])).state == ConsumerGroupState.EMPTY,
        10,
        "empty once all left",
    )


@scenario()
def delete_group(context):
    topic = context.topic()
    group = context.unique("g")
    context.produce(topic, [b"x"])
    member = Member(context, [topic], group)
    settled([member], [(topic, 0)])
    eventually(lambda: member.processed, 10, "processed")

    def delete(name):
        return context.only(context.admin.delete_consumer_groups([name]))

    expect_error(KafkaError.NON_EMPTY_GROUP, lambda: delete(group), "a group with members")
    member.leave()
    delete(group)
    expect_true(group not in [g.group_id for g in context.admin.list_consumer_groups().result(15).valid], "not listed")
    expect(committed(context, group, topic), OFFSET_INVALID, "its offsets are gone")
    expect_error(KafkaError.GROUP_ID_NOT_FOUND, lambda: delete(context.unique("absent")), "an absent group")


@scenario()
def list_and_alter_group_offsets(context):
    topic = context.topic(partitions=2)
    group = context.unique("g")
    context.produce(topic, [b"%d" % n for n in range(10)])

    def alter(*offsets):
        wanted = [TopicPartition(topic, partition, offset) for partition, offset in enumerate(offsets)]
        altered = context.only(
            context.admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, wanted)])
        )
        for partition in altered.topic_partitions:
            if partition.error:
                raise KafkaException(partition.error)

    def listed():
        found = context.only(context.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]))
        return sorted((p.partition, p.offset) for p in found.topic_partitions)

    alter(4, 0)
    expect(listed(), [(0, 4), (1, 0)], "offsets of a group made by altering")
    member = Member(context, [topic], group)
    eventually(lambda: len(member.processed) == 6, 15, "the six records from offset 4 on")
    expect_error(
        (KafkaError.UNKNOWN_MEMBER_ID, KafkaError.NON_EMPTY_GROUP), lambda: alter(0, 0), "while a member is there"
    )
    member.leave()
    expect(listed(), [(0, 10), (1, 0)], "offsets after consuming")
    alter(2, 0)
    expect(listed(), [(0, 2), (1, 0)], "rewound")


@scenario(slow=True)
def max_poll_interval(context):
    """A member that stops polling loses its partitions to the others."""
    topic = context.topic(partitions=2)
    group = context.unique("g")
    stuck = context.consumer(group, session_timeout_ms=6000, max_poll_interval_ms=6000, heartbeat_interval_ms=500)
    stuck.subscribe([topic])
    eventually(lambda: stuck.poll(0.1) or len(stuck.assignment()) == 2, 15, "the first has both")
    other = Member(context, [topic], group, heartbeat_interval_ms=500)
    settled([other], [(topic, 0), (topic, 1)], 25)
    other.leave()
    message = next_event(stuck)
    expect(message.error().code(), KafkaError._MAX_POLL_EXCEEDED, "error")


@scenario()
def many_groups(context):
    """Ten groups read the same topic, each on its own."""
    topic = context.topic()
    context.produce(topic, [b"%d" % n for n in range(50)])
    failures = []

    def read(number):
        try:
            consumer = context.consumer(context.unique(f"g{number}"))
            consumer.subscribe([topic])
            expect([m.offset() for m in take(consumer, 50, 30)], list(range(50)), f"group {number}")
            consumer.commit(asynchronous=False)
            consumer.close()
        except (AssertionError, KafkaException) as failure:
            failures.append(failure)

    threads = [threading.Thread(target=read, args=(n,)) for n in range(10)]
    for thread in threads:
        thread.start()
        time.sleep(0.02)
    for thread in threads:
        thread.join(40)
    expect(failures, [], "failures")
