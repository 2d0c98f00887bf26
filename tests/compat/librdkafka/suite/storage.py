"""Background work of the broker on stored records: compaction and retention."""

import time

from confluent_kafka import KafkaError, TopicPartition

from .harness import eventually, expect, expect_error, expect_true, next_event, scenario

COMPACTED = {
    "cleanup_policy": "compact",
    "segment_ms": "100",
    "min_cleanable_dirty_ratio": "0.01",
    "delete_retention_ms": "100",
    "min_compaction_lag_ms": "0",
}


def contents(context, topic):
    """All records of the partition, oldest first."""
    consumer = context.consumer(enable_partition_eof=True)
    consumer.assign([TopicPartition(topic, 0, 0)])
    messages = []
    while True:
        message = next_event(consumer)
        if message.error():
            break
        messages.append(message)
    consumer.close()
    offsets = [m.offset() for m in messages]
    expect(offsets, sorted(set(offsets)), "offsets grow")
    return messages


def until(context, topic, done, seconds, what):
    """Produces filler records, so that segments roll, until `done` holds for the contents."""

    def check():
        context.produce(topic, [b"filler"], keys=[b"filler"])
        time.sleep(0.4)
        return done([m for m in contents(context, topic) if m.key() != b"filler"])

    eventually(check, seconds, what)


@scenario(slow=True)
def compaction(context):
    topic = context.topic(**COMPACTED)
    for version in range(5):
        context.produce(topic, [b"%d" % version] * 10, keys=[b"key-%d" % n for n in range(10)], compression_type="lz4")
        time.sleep(0.15)

    def only_last(messages):
        last = {m.key(): (m.value(), m.offset()) for m in messages}
        # The last value of each key is always present, at its offset.
        expect(last, {b"key-%d" % n: (b"4", 40 + n) for n in range(10)}, "last values")
        return len(messages) == 10

    until(context, topic, only_last, 60, "one record for each key")


@scenario(slow=True)
def compaction_removes_tombstones(context):
    topic = context.topic(**COMPACTED)
    context.produce(topic, [b"old", b"kept"], keys=[b"dead", b"alive"])
    time.sleep(0.15)
    context.produce(topic, [None], keys=[b"dead"])

    def gone(messages):
        expect([m.value() for m in messages if m.key() == b"alive"], [b"kept"], "the live key")
        return b"dead" not in [m.key() for m in messages]

    until(context, topic, gone, 70, "the tombstone and what it deletes are gone")


@scenario(slow=True)
def compaction_leaves_the_end_in_reach(context):
    """Readers still reach the end when only tombstones are left, and when nothing is left."""
    topic = context.topic(**COMPACTED)
    context.produce(topic, [b"old"], keys=[b"dead"])

    def gone():
        context.produce(topic, [None, None], keys=[b"dead", b"filler"])
        time.sleep(0.4)
        return all(m.value() is None for m in contents(context, topic))

    eventually(gone, 70, "the value is gone")
    # Every read ends, also during compaction.
    for _ in range(10):
        time.sleep(0.5)
        consumer = context.consumer(enable_partition_eof=True)
        consumer.assign([TopicPartition(topic, 0, 0)])
        message = next_event(consumer)
        while not message.error():
            message = next_event(consumer)
        expect(message.error().code(), KafkaError._PARTITION_EOF, "the end")
        expect(message.offset(), context.latest(topic), "where it is")
        consumer.close()


@scenario()
def compacted_topic_needs_keys(context):
    topic = context.topic(cleanup_policy="compact")
    expect_error(KafkaError.INVALID_RECORD, lambda: context.produce(topic, [b"no key"]), "a record without a key")


@scenario(slow=True)
def retention_by_time(context):
    topic = context.topic(retention_ms="1000", segment_ms="500")
    context.produce(topic, [b"old"] * 10)
    eventually(lambda: context.earliest(topic) == 10, 60, "all are deleted once their time is over")
    expect(context.produce(topic, [b"new"])[0].offset(), 10, "offsets go on")


@scenario(slow=True)
def retention_by_size(context):
    topic = context.topic(retention_bytes="200000", segment_bytes="1048576")
    for _ in range(4):
        context.produce(topic, [b"x" * 9_000] * 100, linger_ms=50)
    earliest = eventually(lambda: context.earliest(topic) or False, 60, "the oldest are deleted")
    expect_true(earliest < 400, "not all are deleted")
    expect(context.latest(topic), 400, "end offset")
    first = context.read(topic, 1, offset=earliest)[0].offset()
    expect_true(earliest <= first < 400, "the first that is left, or a later one if more was deleted since")
