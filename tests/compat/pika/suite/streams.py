"""Streams: every consumer reads all messages from its own offset."""

import datetime
import time

from .harness import eventually, expect, expect_true, scenario
from .session import Consumer, Failure, depth, publish, refused, send


def stream(session, channel, count=0, **arguments):
    queue = session.queue(channel, x_queue_type="stream", **arguments)
    send(channel, queue, *range(count))
    return queue


def read(session, queue, offset=None, prefetch=100, **more):
    channel = session.connect().channel()
    channel.basic_qos(prefetch_count=prefetch)
    arguments = {} if offset is None else {"x_stream_offset": offset}
    return Consumer(channel, queue, **arguments, **more)


def numbers(messages):
    return [int(message.text) for message in messages]


@scenario()
def stream_from_the_first(session):
    channel = session.channel(confirms=True)
    queue = stream(session, channel, 20)
    for _ in range(2):
        messages = read(session, queue, "first").wait(20)
        expect(numbers(messages), list(range(20)), "bodies")
        expect([message.headers["x-stream-offset"] for message in messages], list(range(20)), "x-stream-offset")
        expect({message.redelivered for message in messages}, {False}, "redelivered")


@scenario()
def stream_from_an_offset(session):
    channel = session.channel(confirms=True)
    queue = stream(session, channel, 20)
    messages = read(session, queue, 13).wait(7)
    expect(numbers(messages), list(range(13, 20)), "bodies")
    expect(messages[0].headers["x-stream-offset"], 13, "x-stream-offset")


@scenario()
def stream_from_the_next(session):
    channel = session.channel(confirms=True)
    queue = stream(session, channel, 5)
    explicit, default = read(session, queue, "next"), read(session, queue)
    explicit.stays(0, 0.3)
    send(channel, queue, 5, 6)
    for consumer in (explicit, default):
        expect(numbers(consumer.wait(2)), [5, 6], "bodies")


@scenario()
def stream_from_the_last(session):
    """The last chunk, which holds at least the last message."""
    channel = session.channel(confirms=True)
    queue = stream(session, channel, 5)
    consumer = read(session, queue, "last")
    got = []
    while not got or got[-1] != 4:
        got += numbers(consumer.wait(1))
    expect(got, list(range(got[0], 5)), "bodies")
    send(channel, queue, 5)
    expect(numbers(consumer.wait(1)), [5], "and what follows")


@scenario(slow=True)
def stream_from_a_time(session):
    channel = session.channel(confirms=True)
    queue = stream(session, channel, 5)
    time.sleep(2.2)
    middle = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(seconds=0.5)
    time.sleep(0.8)
    send(channel, queue, *range(5, 10))
    expect(numbers(read(session, queue, middle).wait(5)), list(range(5, 10)), "bodies from a time on")
    long_ago = datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc)
    expect(numbers(read(session, queue, long_ago).wait(10)), list(range(10)), "bodies from long ago on")
    expect(numbers(read(session, queue, "1h").wait(10)), list(range(10)), "bodies of the last hour")


@scenario()
def stream_offset_malformed(session):
    connection = session.connect()
    queue = stream(session, connection.channel())
    channel = connection.channel()
    channel.basic_qos(prefetch_count=10)
    try:
        Consumer(channel, queue, x_stream_offset="yesterday")
    except Exception as error:
        # RabbitMQ ends the whole connection, with an internal error.
        expect_true(getattr(error, "reply_code", None) in (406, 541), f"refused with {error!r}")
        return
    raise Failure("it was taken")


@scenario()
def stream_needs_a_prefetch(session):
    connection = session.connect()
    queue = stream(session, connection.channel())
    text = f"PRECONDITION_FAILED - consumer prefetch count is not set for stream queue '{queue}' in vhost '/'"
    channel = connection.channel()
    refused(406, text, lambda: Consumer(channel, queue, x_stream_offset="first"))


@scenario()
def stream_credit_comes_back_with_acknowledgements(session):
    channel = session.channel(confirms=True)
    queue = stream(session, channel, 30)
    consumer = read(session, queue, "first", prefetch=10)
    got = []
    for _ in range(3):
        messages = consumer.wait(10)
        consumer.stays(0, 0.2)
        got += numbers(messages)
        consumer.channel.basic_ack(messages[-1].tag, multiple=True)
    expect(got, list(range(30)), "bodies")


@scenario()
def stream_nack_settles_nothing(session):
    """A nack neither removes nor redelivers a message."""
    channel = session.channel(confirms=True)
    queue = stream(session, channel, 5)
    consumer = read(session, queue, "first")
    messages = consumer.wait(5)
    consumer.channel.basic_nack(messages[0].tag, requeue=True)
    consumer.channel.basic_reject(messages[1].tag, requeue=False)
    consumer.stays(0, 0.3)
    expect(numbers(read(session, queue, "first").wait(5)), list(range(5)), "bodies for another")


@scenario()
def stream_refuses(session):
    connection = session.connect()
    queue = stream(session, connection.channel())
    where = f"queue '{queue}' in vhost '/'"
    for text, action in (
        (f"NOT_IMPLEMENTED - basic.get not supported by stream queues {where}", lambda ch: ch.basic_get(queue)),
        (f"NOT_IMPLEMENTED - queue.purge not supported by stream queues {where}", lambda ch: ch.queue_purge(queue)),
    ):
        own = session.connect()
        refused(540, text, lambda action=action, own=own: action(own.channel()), connection=True)


@scenario()
def stream_of_a_fanout(session):
    channel = session.channel(confirms=True)
    exchange = session.exchange(channel, "fanout")
    queue = stream(session, channel)
    classic = session.bound(channel, exchange, suffix="classic")
    channel.queue_bind(queue, exchange)
    publish(channel, exchange, "key", "x", message_id="m", headers={"a": "b", "n": 7})
    (message,) = read(session, queue, "first").wait(1)
    got = (message.text, message.properties.message_id, message.headers["a"], message.headers["n"], message.method.exchange, message.method.routing_key)
    expect(got, ("x", "m", "b", 7, exchange, "key"), "message")
    expect(depth(channel, classic), 1, "in the classic queue")


@scenario()
def stream_consumers_are_apart(session):
    channel = session.channel(confirms=True)
    queue = stream(session, channel, 10)
    several = [read(session, queue, offset) for offset in ("first", 5, "next", "first")]
    send(channel, queue, *range(10, 15))
    for consumer, start in zip(several, (0, 5, 10, 0)):
        expect(numbers(consumer.wait(15 - start)), list(range(start, 15)), f"bodies from {start}")


@scenario()
def stream_deleted_cancels(session):
    channel = session.channel(confirms=True)
    queue = stream(session, channel, 3)
    consumer = read(session, queue, "first")
    consumer.wait(3)
    channel.queue_delete(queue)
    consumer.until_cancelled()


@scenario(timeout=60)
def stream_of_many(session):
    channel = session.channel()
    queue = stream(session, channel)
    for number in range(5000):
        channel.basic_publish("", queue, str(number).encode())
    consumer = read(session, queue, "first", prefetch=1000)
    seen = []
    while len(seen) < 5000:
        messages = consumer.wait(100, 30)
        seen += numbers(messages)
        consumer.channel.basic_ack(messages[-1].tag, multiple=True)
    expect(seen, list(range(5000)), "bodies")


@scenario()
def stream_count(session):
    channel = session.channel(confirms=True)
    queue = stream(session, channel, 10)
    eventually(lambda: depth(channel, queue) == 10, 10, "depth is 10")
    consumer = read(session, queue, "first")
    messages = consumer.wait(10)
    consumer.channel.basic_ack(messages[-1].tag, multiple=True)
    time.sleep(0.2)
    expect_true(depth(channel, queue) == 10, "reading takes nothing away")
