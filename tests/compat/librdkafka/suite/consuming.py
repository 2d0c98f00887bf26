"""Reading without a group: start, seek, wait and reset of a consumer."""

import threading
import time

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaError, KafkaException, TopicPartition

from .harness import eventually, expect, expect_error, next_event, scenario, take

# Young enough for the default retention, old enough to differ from the time of appending.
START = int(time.time() * 1000) - 3_600_000


def numbers(count):
    return [b"%d" % n for n in range(count)]


def assigned(context, topic, offset=OFFSET_BEGINNING, **config):
    consumer = context.consumer(**config)
    consumer.assign([TopicPartition(topic, 0, offset)])
    return consumer


def seek(consumer, topic, offset):
    # A seek is rejected until the assignment's first fetch is in flight.
    def attempt():
        try:
            consumer.seek(TopicPartition(topic, 0, offset))
        except KafkaException as refused:
            if refused.args[0].code() != KafkaError._STATE:
                raise
            return False
        return True

    eventually(attempt, 5, "seek")


@scenario()
def seek_to_offsets(context):
    topic = context.topic()
    context.produce(topic, numbers(100))
    consumer = assigned(context, topic)
    expect(take(consumer, 1)[0].offset(), 0, "start")
    for offset in (50, 3, 99):
        seek(consumer, topic, offset)
        expect(take(consumer, 1)[0].offset(), offset, "after seek")
    seek(consumer, topic, OFFSET_BEGINNING)
    expect([m.offset() for m in take(consumer, 100)], list(range(100)), "from the beginning")
    seek(consumer, topic, OFFSET_END)
    consumer.poll(0.5)
    context.produce(topic, [b"last"])
    expect(take(consumer, 1)[0].value(), b"last", "from the end")


@scenario()
def seek_by_time(context):
    topic = context.topic()
    producer = context.producer(linger_ms=20)
    for n in range(100):
        producer.produce(topic, b"%d" % n, partition=0, timestamp=START + 1000 * n)
    expect(producer.flush(15), 0, "left over")
    consumer = context.consumer()

    def offset_at(moment):
        (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, moment)], timeout=10)
        return found.offset

    expect(offset_at(START + 40_000), 40, "exactly a record's time")
    expect(offset_at(START + 40_001), 41, "just after it")
    expect(offset_at(0), 0, "before all")
    expect(offset_at(START + 10_000_000), OFFSET_END, "after all")
    consumer.assign([TopicPartition(topic, 0, offset_at(START + 40_000))])
    expect(take(consumer, 1)[0].value(), b"40", "first record read")


@scenario()
def reset_when_out_of_range(context):
    topic = context.topic()
    context.produce(topic, numbers(10))
    consumer = assigned(context, topic, 1000, auto_offset_reset="earliest")
    expect(take(consumer, 1)[0].offset(), 0, "reset to earliest")

    consumer = assigned(context, topic, 1000, auto_offset_reset="latest")
    eventually(lambda: poll_counts(consumer) == 0, 5, "nothing is there")
    time.sleep(0.5)
    context.produce(topic, [b"new"])
    expect(take(consumer, 1)[0].value(), b"new", "reset to latest")

    consumer = assigned(context, topic, 1000, auto_offset_reset="error")
    expect_error(KafkaError._AUTO_OFFSET_RESET, lambda: take(consumer, 1), "no reset")


def poll_counts(consumer):
    return len(consumer.consume(1, 0.3))


@scenario()
def fetch_waits_for_data(context):
    """An empty fetch returns as soon as a record arrives, not when its wait is over."""
    topic = context.topic()
    consumer = assigned(context, topic, fetch_wait_max_ms=10_000)
    expect(consumer.poll(1), None, "an empty topic")
    sent = []

    def produce():
        time.sleep(0.5)
        context.produce(topic, [b"x"])
        sent.append(time.monotonic())

    threading.Thread(target=produce).start()
    take(consumer, 1, 8)
    arrived = time.monotonic()
    eventually(lambda: sent[0] if sent else None, 5, "produced")
    if arrived - sent[0] > 3:
        raise AssertionError(f"the record came {arrived - sent[0]:.1f} s after its acknowledgement")


@scenario()
def fetch_min_bytes(context):
    """fetch.min.bytes delays the response until the wait is over."""
    topic = context.topic()
    context.produce(topic, [b"tiny"])
    consumer = assigned(context, topic, fetch_min_bytes=100_000, fetch_wait_max_ms=1500)
    expect(take(consumer, 1)[0].value(), b"tiny", "the record comes in the end")


@scenario()
def fetch_limits_below_a_record(context):
    """A record larger than every fetch limit is still delivered."""
    topic = context.topic()
    values = [b"a" * 200_000, b"b" * 300_000, b"c"]
    context.produce(topic, values, linger_ms=0)
    consumer = assigned(context, topic, fetch_message_max_bytes=1000, fetch_max_bytes=1000, message_max_bytes=1000)
    expect([m.value() for m in take(consumer, 3)], values, "records")


@scenario()
def read_committed(context):
    topic = context.topic()
    context.produce(topic, numbers(10))
    consumer = assigned(context, topic, isolation_level="read_committed")
    expect([m.value() for m in take(consumer, 10)], numbers(10), "records")


@scenario()
def end_of_partition(context):
    topic = context.topic()
    context.produce(topic, numbers(3))
    consumer = assigned(context, topic, enable_partition_eof=True)
    events = [next_event(consumer) for _ in range(4)]
    expect([e.error() is None for e in events], [True, True, True, False], "three records, then the end")
    expect((events[3].error().code(), events[3].offset()), (KafkaError._PARTITION_EOF, 3), "end of partition")


@scenario()
def pause_and_resume(context):
    topic = context.topic(partitions=2)
    context.produce(topic, numbers(5), partition=0)
    context.produce(topic, numbers(5), partition=1)
    consumer = context.consumer()
    consumer.assign([TopicPartition(topic, 0, 0), TopicPartition(topic, 1, 0)])
    consumer.pause([TopicPartition(topic, 0)])
    expect([m.partition() for m in take(consumer, 5)], [1] * 5, "while 0 is paused")
    expect(consumer.poll(0.5), None, "while 0 is paused")
    consumer.resume([TopicPartition(topic, 0)])
    expect([m.value() for m in take(consumer, 5)], numbers(5), "after resume")
    expect(
        [p.offset for p in consumer.position([TopicPartition(topic, 0), TopicPartition(topic, 1)])], [5, 5], "positions"
    )


@scenario()
def many_topics(context):
    topics = [context.topic(suffix=f"t{n}") for n in range(20)]
    for topic in topics:
        context.produce(topic, [topic.encode()])
    consumer = context.consumer()
    consumer.assign([TopicPartition(topic, 0, 0) for topic in topics])
    expect(sorted(m.value().decode() for m in take(consumer, 20)), sorted(topics), "a record of each")
