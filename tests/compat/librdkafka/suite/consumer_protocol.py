"""The group protocol of KIP-848: the broker assigns, members heartbeat."""

from confluent_kafka import ConsumerGroupState, ConsumerGroupType, KafkaError, KafkaException

from .harness import LEADERS_MOVE, eventually, expect, expect_true, scenario
from .membership import Member, churn, settled

PROTOCOL = {"group_protocol": "consumer"}
# Time without a heartbeat after which a member is removed.
SESSION_SECONDS = 45


@scenario(slow=True)
def consumer_protocol_rebalance_uniform(context):
    churn(context, group_remote_assignor="uniform", **PROTOCOL)


@scenario(slow=True)
def consumer_protocol_rebalance_range(context):
    churn(context, group_remote_assignor="range", **PROTOCOL)


@scenario(slow=True)
def consumer_protocol_range_aligns_topics(context):
    """The range assignor gives the same partition of two topics to one member."""
    left, right = context.topic(partitions=4, suffix="left"), context.topic(partitions=4, suffix="right")
    group = context.unique("g")
    members = [Member(context, [left, right], group, group_remote_assignor="range", **PROTOCOL) for _ in range(2)]
    settled(members, [(t, p) for t in (left, right) for p in range(4)])
    for member in members:
        of_topic = [sorted(p for t, p in member.assigned if t == topic) for topic in (left, right)]
        expect(of_topic[0], of_topic[1], "the same partitions of both topics")
    for member in members:
        member.leave()


@scenario(slow=True)
def consumer_protocol_unknown_assignor(context):
    topic = context.topic()
    member = Member(context, [topic], context.unique("g"), group_remote_assignor="no-such-assignor", **PROTOCOL)
    eventually(lambda: member.failure, 10, "the member is refused")
    expect(member.failure.args[0].code(), KafkaError._FATAL, "error")


@scenario(slow=True, timeout=150)
def consumer_protocol_static_membership(context):
    topic = context.topic(partitions=4)
    partitions = [(topic, p) for p in range(4)]
    group = context.unique("g")

    def member(instance):
        return Member(context, [topic], group, group_instance_id=instance, **PROTOCOL)

    one, two = member("one"), member("two")
    settled([one, two], partitions)
    held = set(one.assigned)
    one.leave()
    one = member("one")
    try:
        settled([one, two], partitions)
        expect(set(one.assigned), held, "the returning member's partitions")
    except KafkaException as refused:
        # The client sends its leave only once, and does not retry if the coordinator has just moved
        # (rd_kafka_cgrp_consumer_leave of librdkafka 2.x): its session must expire first, and the consumer is unusable.
        expect_true(LEADERS_MOVE and "instance id is still used" in str(refused).lower(), f"refused: {refused}")
        settled([two], partitions, SESSION_SECONDS + 15)
        one = member("one")
        settled([one, two], partitions)
    one.leave()
    two.leave()


@scenario(slow=True)
def consumer_protocol_regex(context):
    """The broker matches topic names, and finds a topic that is created later."""
    first = context.topic(suffix="match-1")
    context.topic(suffix="other")
    member = Member(context, ["^" + context.unique("match-") + ".*"], context.unique("g"), **PROTOCOL)
    settled([member], [(first, 0)])
    second = context.topic(suffix="match-2")
    settled([member], [(first, 0), (second, 0)], 60)
    member.leave()


@scenario(slow=True)
def consumer_protocol_describe(context):
    topic = context.topic(partitions=2)
    group = context.unique("g")
    member = Member(context, [topic], group, client_id="described", **PROTOCOL)
    settled([member], [(topic, 0), (topic, 1)])
    described = context.only(context.admin.describe_consumer_groups([group]))
    expect(
        (described.state, described.type, described.partition_assignor),
        (ConsumerGroupState.STABLE, ConsumerGroupType.CONSUMER, "uniform"),
        "group",
    )
    (one,) = described.members
    expect(one.client_id, "described", "client id")
    expect(
        sorted((p.topic, p.partition) for p in one.assignment.topic_partitions), [(topic, 0), (topic, 1)], "assignment"
    )
    listed = context.admin.list_consumer_groups(types={ConsumerGroupType.CONSUMER}).result(15)
    expect([g.type for g in listed.valid if g.group_id == group], [ConsumerGroupType.CONSUMER], "listed by type")
    member.leave()
    context.only(context.admin.delete_consumer_groups([group]))


@scenario(slow=True)
def consumer_protocol_commit_and_resume(context):
    topic = context.topic()
    group = context.unique("g")
    context.produce(topic, [b"%d" % n for n in range(10)])
    member = Member(context, [topic], group, **PROTOCOL)
    eventually(lambda: len(member.processed) == 10, 20, "ten records")
    member.leave()
    context.produce(topic, [b"more"])
    # The group is empty, so a member of the classic protocol may convert it.
    member = Member(context, [topic], group)
    eventually(lambda: member.processed, 20, "the next record")
    member.leave()
    expect(member.processed, [(topic, 0, 10)], "records after the commit")
