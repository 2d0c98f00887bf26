"""Across protocols: Kafka clients produce and pika consumes, and vice versa."""

import os
import time
import uuid

from .harness import eventually, expect, expect_true, scenario
from .session import Consumer, depth, get, get_all, publish, send

if os.environ.get("BOOTSTRAP"):
    from confluent_kafka import Consumer as KafkaConsumer
    from confluent_kafka import Producer, TopicPartition
    from confluent_kafka.admin import AdminClient, NewTopic


def produce(session, topic, *messages):
    producer = Producer({"bootstrap.servers": os.environ["BOOTSTRAP"]})
    failures = []
    for message in messages:
        producer.produce(topic, on_delivery=lambda error, _message: error and failures.append(error), **message)
    expect(producer.flush(20), 0, "messages left")
    expect(failures, [], "failures")


def fetch(topic, count, partition=0):
    settings = {"bootstrap.servers": os.environ["BOOTSTRAP"], "group.id": uuid.uuid4().hex, "enable.auto.commit": False}
    consumer = KafkaConsumer(settings)
    consumer.assign([TopicPartition(topic, partition, 0)])
    messages, end = [], time.monotonic() + 20
    while len(messages) < count:
        message = consumer.poll(0.2)
        if message and not message.error():
            messages.append(message)
        expect_true(time.monotonic() < end, f"{len(messages)} of {count} records")
    consumer.close()
    return messages


def topic(session, partitions=1):
    name = session.unique("topic")
    admin = AdminClient({"bootstrap.servers": os.environ["BOOTSTRAP"]})
    admin.create_topics([NewTopic(name, partitions, -1)])[name].result(15)
    session.at_end.append(lambda: admin.delete_topics([name]))
    return name


@scenario(needs=["kafka"])
def kafka_to_amqp(session):
    name = topic(session)
    moment = int(time.time() * 1000) - 60_000
    headers = [("text", b"grin"), ("empty", b""), ("none", None), ("binary", b"\xff\x00")]
    produce(session, name, {"key": b"the key", "value": b"the value", "headers": headers, "timestamp": moment})
    produce(session, name, {"value": b"bare"}, {"key": b"tombstone", "value": None})
    channel = session.channel()
    message = get(channel, name)
    expect(message.text, "the value", "body")
    wanted = {"text": "grin", "empty": "", "none": None, "binary": b"\xff\x00", "postroad.key": "the key"}
    expect(message.headers, wanted, "headers")
    expect(message.properties.timestamp, moment // 1000, "timestamp")
    expect((message.method.exchange, message.method.routing_key), ("", name), "exchange and routing key")
    bare = get(channel, name)
    expect((bare.text, bare.properties.headers), ("bare", None), "a record without anything")
    grave = get(channel, name)
    expect((grave.body, grave.headers), (b"", {"postroad.key": "tombstone"}), "a record without a value")


@scenario(needs=["kafka"])
def amqp_to_kafka(session):
    channel = session.channel(confirms=True)
    queue = session.queue(channel)
    exchange = session.exchange(channel, "topic")
    channel.queue_bind(queue, exchange, "#")
    publish(
        channel,
        exchange,
        "a.b",
        "body",
        headers={"text": "t", "number": 7, "postroad.key": "the key", "yes": True},
        content_type="text/plain",
        correlation_id="c",
        message_id="m",
        priority=4,
        reply_to="r",
        type="t",
        app_id="app",
        timestamp=1_700_000_000,
    )
    (record,) = fetch(queue, 1)
    expect((record.value(), record.key()), (b"body", b"the key"), "value and key")
    headers = dict(record.headers())
    wanted = {
        "amqp.exchange": exchange.encode(),
        "amqp.routing-key": b"a.b",
        "amqp.content-type": b"text/plain",
        "amqp.correlation-id": b"c",
        "amqp.message-id": b"m",
        "amqp.priority": b"4",
        "amqp.reply-to": b"r",
        "amqp.type": b"t",
        "amqp.app-id": b"app",
        "amqp.timestamp": b"1700000000",
        "amqp.delivery-mode": b"2",
        "text": b"t",
        "number": b"7",
        "yes": b"true",
    }
    expect({name: headers.get(name) for name in wanted}, wanted, "headers")
    expect_true(abs(record.timestamp()[1] - time.time() * 1000) < 60_000, "the record's time is when it was published")


@scenario(needs=["kafka"])
def amqp_to_kafka_and_back(session):
    """A record that a Kafka client copies, header by header, is an equal message."""
    channel = session.channel(confirms=True)
    queue = session.queue(channel)
    headers = {"text": "t", "number": 2**40, "list": [1, "a", {"b": None}], "nothing": None, "yes": False, "bytes": b"\xff"}
    publish(channel, "", queue, "body", headers=headers, correlation_id="c", expiration="60000", priority=9, delivery_mode=1)
    (record,) = fetch(queue, 1)
    original = get(channel, queue)
    copy = session.queue(channel, "copy")
    produce(session, copy, {"key": record.key(), "value": record.value(), "headers": record.headers()})
    message = get(channel, copy)
    expect((message.body, message.headers), (b"body", headers), "body and headers")
    expect(message.properties.__dict__, original.properties.__dict__, "properties")


@scenario(needs=["kafka"])
def kafka_to_a_queue_that_was_declared(session):
    channel = session.channel()
    graves = session.queue(channel, "graves")
    queue = session.queue(channel, x_max_length=100, x_dead_letter_exchange="", x_dead_letter_routing_key=graves)
    consumer = Consumer(channel, queue)
    produce(session, queue, *({"value": str(number).encode(), "key": b"k"} for number in range(20)))
    messages = consumer.wait(20)
    expect([message.text for message in messages], [str(number) for number in range(20)], "order")
    channel.basic_ack(messages[-1].tag, multiple=True)
    produce(session, queue, {"value": b"poison", "key": b"k", "headers": [("a", b"b")]})
    channel.basic_reject(consumer.wait(1)[0].tag, requeue=False)
    letter = get(channel, graves)
    expect((letter.text, letter.headers["a"], letter.headers["postroad.key"]), ("poison", "b", "k"), "dead letter")
    expect(letter.headers["x-death"][0]["queue"], queue, "x-death")


@scenario(needs=["kafka"])
def kafka_topic_of_several_partitions_as_a_queue(session):
    name = topic(session, 4)
    produce(session, name, *({"value": str(number).encode(), "key": str(number % 10).encode()} for number in range(200)))
    channel = session.channel(confirms=True)
    channel.basic_qos(prefetch_count=50)
    consumer = Consumer(channel, name)
    seen = []
    while len(seen) < 200:
        messages = consumer.wait(min(50, 200 - len(seen)))
        seen += [(message.headers["postroad.key"], int(message.text)) for message in messages]
        for message in messages:
            channel.basic_ack(message.tag)
    expect(sorted(number for _, number in seen), list(range(200)), "each once")
    for key in range(10):
        own = [number for name_of, number in seen if name_of == str(key)]
        expect(own, sorted(own), f"order of key {key}")
    # Publishing by AMQP into the topic: the key selects the partition, as for Kafka clients.
    for number in range(20):
        publish(channel, "", name, number, headers={"postroad.key": "same"})
    consumer.wait(20)


@scenario(needs=["kafka"])
def one_topic_as_a_log_and_a_queue(session):
    """A Kafka consumer reads all records, independent of settles by the queue's consumers."""
    channel = session.channel(confirms=True)
    name = topic(session)
    produce(session, name, *({"value": f"k{number}".encode()} for number in range(5)))
    send(channel, name, *(f"a{number}" for number in range(5)))
    wanted = [f"k{number}" for number in range(5)] + [f"a{number}" for number in range(5)]
    expect(get_all(channel, name, 10), wanted, "as a queue")
    expect([record.value().decode() for record in fetch(name, 10)], wanted, "as a log")
    eventually(lambda: depth(channel, name) == 0, 10, "depth is 0")


@scenario(needs=["kafka"])
def kafka_topic_as_a_stream(session):
    name = topic(session)
    produce(session, name, *({"value": str(number).encode()} for number in range(10)))
    channel = session.channel()
    channel.basic_qos(prefetch_count=100)
    messages = Consumer(channel, name, x_stream_offset=4).wait(6)
    expect([message.text for message in messages], [str(number) for number in range(4, 10)], "bodies")
    expect([message.headers["x-stream-offset"] for message in messages], list(range(4, 10)), "x-stream-offset")
