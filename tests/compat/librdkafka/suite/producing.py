"""Produced records are read back exactly, at every level of acknowledgement and with every compression."""

import time

from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from .harness import eventually, expect, expect_error, expect_true, scenario, take

# Young enough for the default retention, old enough to differ from the time of appending.
START = int(time.time() * 1000) - 3_600_000

# (key, value, headers): absent and empty are different things.
RECORDS = [
    (b"key", b"value", [("a", b"1"), ("a", b"2"), ("b", b"")]),
    (None, b"no key", None),
    (b"tombstone", None, None),
    (b"", b"", [("null", None)]),
    (None, None, None),
    ("ключ".encode(), bytes(range(256)), [("заголовок", "значение".encode())]),
    (b"long", b"0123456789abcdef" * 4096, None),
]


def round_trip(context, compression):
    topic = context.topic()
    producer = context.producer(compression_type=compression, linger_ms=50, max_in_flight=1)
    acknowledged = []
    many = RECORDS * 20
    for index, (key, value, headers) in enumerate(many):
        producer.produce(
            topic,
            value,
            key,
            0,
            timestamp=START + index,
            headers=headers or [],
            on_delivery=lambda e, m: acknowledged.append(e or m.offset()),
        )
    expect(producer.flush(20), 0, "left over")
    expect(acknowledged, list(range(len(many))), "acknowledged offsets")
    for index, message in enumerate(context.read(topic, len(many), check_crcs=True)):
        key, value, headers = many[index]
        expect(message.offset(), index, "offset")
        expect(message.key(), key, f"key {index}")
        expect(message.value(), value, f"value {index}")
        expect(message.headers(), headers, f"headers {index}")
        expect(message.timestamp(), (TIMESTAMP_CREATE_TIME, START + index), f"timestamp {index}")


@scenario()
def compression_none(context):
    round_trip(context, "none")


@scenario()
def compression_gzip(context):
    round_trip(context, "gzip")


@scenario()
def compression_snappy(context):
    round_trip(context, "snappy")


@scenario()
def compression_lz4(context):
    round_trip(context, "lz4")


@scenario()
def compression_zstd(context):
    round_trip(context, "zstd")


@scenario()
def compression_of_the_topic(context):
    """A topic's own compression.type does not change what a consumer reads."""
    topic = context.topic(compression_type="zstd")
    context.produce(topic, [b"x" * 1000] * 50, compression_type="gzip", linger_ms=50)
    context.produce(topic, [b"y" * 1000] * 50, linger_ms=50)
    expect([m.value() for m in context.read(topic, 100)], [b"x" * 1000] * 50 + [b"y" * 1000] * 50, "records")


@scenario()
def acks_0(context):
    topic = context.topic()
    context.produce(topic, [b"%d" % n for n in range(100)], acks=0)
    eventually(lambda: context.latest(topic) == 100, 10, "all are stored")
    expect([m.value() for m in context.read(topic, 100)], [b"%d" % n for n in range(100)], "records")


@scenario()
def acks_1(context):
    topic = context.topic()
    delivered = context.produce(topic, [b"%d" % n for n in range(100)], acks=1)
    expect([m.offset() for m in delivered], list(range(100)), "offsets")


@scenario()
def acks_all(context):
    topic = context.topic(min_insync_replicas="1")
    delivered = context.produce(topic, [b"%d" % n for n in range(100)], acks="all")
    expect([m.offset() for m in delivered], list(range(100)), "offsets")


@scenario()
def idempotent_producer(context):
    """Several small batches in flight: each is stored once, in order."""
    topic = context.topic(partitions=2)
    producer = context.producer(enable_idempotence=True, linger_ms=0, batch_num_messages=7)
    offsets = {0: [], 1: []}
    for n in range(2000):
        producer.produce(
            topic, b"%d" % n, partition=n % 2, on_delivery=lambda e, m: offsets[m.partition()].append(e or m.offset())
        )
        producer.poll(0)
    expect(producer.flush(20), 0, "left over")
    for partition in (0, 1):
        expect(offsets[partition], list(range(1000)), "offsets")
        values = [int(m.value()) for m in context.read(topic, 1000, partition=partition)]
        expect(values, list(range(partition, 2000, 2)), "records")


@scenario()
def large_record(context):
    """max.message.bytes is 1,048,588 by default: a value of 1,000,000 bytes is within it."""
    topic = context.topic()
    value = bytes(range(250)) * 4000
    context.produce(topic, [value], message_max_bytes=2_000_000)
    expect(context.read(topic, 1)[0].value(), value, "value")


@scenario()
def record_over_the_limit(context):
    topic = context.topic(max_message_bytes="10000")
    context.produce(topic, [b"x" * 9000])
    expect_error(
        KafkaError.MSG_SIZE_TOO_LARGE, lambda: context.produce(topic, [b"x" * 10001]), "over the topic's limit"
    )
    default = context.topic(suffix="default")
    expect_error(
        KafkaError.MSG_SIZE_TOO_LARGE,
        lambda: context.produce(default, [b"x" * 1_100_000], message_max_bytes=2_000_000),
        "over the default limit",
    )
    expect((context.latest(topic), context.latest(default)), (1, 0), "end offsets")
    raised = context.topic(suffix="raised", max_message_bytes="3000000")
    context.produce(raised, [b"x" * 2_500_000], message_max_bytes=3_000_000)
    expect(len(context.read(raised, 1)[0].value()), 2_500_000, "a raised limit")


@scenario()
def log_append_time(context):
    topic = context.topic(message_timestamp_type="LogAppendTime")
    before = int(time.time() * 1000)
    context.produce(topic, [b"a", b"b"])
    for message in context.read(topic, 2):
        kind, moment = message.timestamp()
        expect(kind, TIMESTAMP_LOG_APPEND_TIME, "kind of timestamp")
        expect_true(before - 1000 <= moment <= time.time() * 1000 + 1000, "the broker's own time")


@scenario()
def partitions_keep_order(context):
    """Ten partitions, 20,000 records, one consumer of all partitions."""
    topic = context.topic(partitions=10)
    producer = context.producer(linger_ms=5, enable_idempotence=True)
    for n in range(20_000):
        producer.produce(topic, b"%d" % n, partition=n % 10)
    expect(producer.flush(30), 0, "left over")
    consumer = context.consumer()
    consumer.assign([TopicPartition(topic, p, 0) for p in range(10)])
    seen = {p: [] for p in range(10)}
    for message in take(consumer, 20_000, 30):
        expect(message.offset(), len(seen[message.partition()]), "offset")
        seen[message.partition()].append(int(message.value()))
    for partition, values in seen.items():
        expect(values, list(range(partition, 20_000, 10)), f"records of partition {partition}")


@scenario()
def produce_to_absent_partition(context):
    topic = context.topic()
    expect_error(
        (KafkaError._UNKNOWN_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART),
        lambda: context.produce(topic, [b"x"], partition=5, message_timeout_ms=3000),
        "produce",
    )


@scenario()
def refused_records_are_named(context):
    """KIP-467: the invalid records of a batch are named in the error."""
    topic = context.topic(cleanup_policy="compact")
    producer = context.producer(linger_ms=2000, enable_idempotence=False)
    codes = {}
    for n in range(100):
        key = None if n % 10 == 3 else b"key"
        delivered = lambda e, m, n=n: codes.update({n: e.code() if e else 0})
        producer.produce(topic, b"value", key, 0, on_delivery=delivered)
    expect(producer.flush(20), 0, "left over")
    blamed = sorted(n for n, code in codes.items() if code == KafkaError.INVALID_RECORD)
    expect(blamed, [10 * ten + 3 for ten in range(10)], "records that are to blame")
    expect(sum(code != 0 for code in codes.values()), 100, "records of the refused batch")


def in_transaction(producer, topic, value):
    producer.begin_transaction()
    for partition in range(3):
        producer.produce(topic, value, partition=partition)
    producer.flush(20)


def expect_committed(context, topic, values):
    for partition in range(3):
        read = context.read(topic, len(values), partition=partition, isolation_level="read_committed")
        expect([m.value() for m in read], values, f"committed records of partition {partition}")


@scenario()
def transactions(context):
    """Records of all partitions, and offsets of a group, become visible together or never."""
    topic, group = context.topic(partitions=3), context.unique("g")
    producer = context.producer(transactional_id=context.unique("id"))
    consumer = context.consumer(group_id=group)
    producer.init_transactions(20)
    for n in range(4):
        in_transaction(producer, topic, b"%d" % n)
        offsets = [TopicPartition(topic, 0, n + 1)]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 20)
        if n % 2 == 0:
            producer.commit_transaction(20)
        else:
            producer.abort_transaction(20)
    expect_committed(context, topic, [b"0", b"2"])
    (committed,) = consumer.committed([TopicPartition(topic, 0)], 20)
    expect(committed.offset, 3, "committed offset")


@scenario()
def transactions_fence_the_former_producer(context):
    topic, name = context.topic(partitions=3), context.unique("id")
    former = context.producer(transactional_id=name)
    former.init_transactions(20)
    in_transaction(former, topic, b"lost")
    following = context.producer(transactional_id=name)
    following.init_transactions(20)
    in_transaction(following, topic, b"kept")
    following.commit_transaction(20)
    try:
        former.commit_transaction(20)
    except KafkaException:
        pass
    else:
        raise AssertionError("the former producer is not fenced")
    expect_committed(context, topic, [b"kept"])
