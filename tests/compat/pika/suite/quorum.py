"""Quorum queues where they differ from classic ones."""

from pika.exceptions import ChannelClosedByBroker

from .harness import eventually, expect, expect_true, scenario
from .session import Consumer, cut, depth, expect_empty, get, get_all, publish, send, stays_empty


@scenario()
def quorum_queue(session):
    channel = session.channel(confirms=True)
    queue = session.queue(channel, x_queue_type="quorum")
    send(channel, queue, *range(20))
    consumer = Consumer(channel, queue)
    messages = consumer.wait(20)
    expect([message.text for message in messages], [str(number) for number in range(20)], "bodies")
    expect({"x-delivery-count" in message.headers for message in messages}, {False}, "x-delivery-count at first")
    channel.basic_ack(messages[9].tag, multiple=True)
    channel.basic_nack(messages[10].tag, requeue=False)
    channel.basic_cancel(consumer.tag)
    channel.close()
    channel = session.channel()
    # A quorum queue requeues a consumer's messages once it detects that the consumer is gone.
    eventually(lambda: depth(channel, queue) == 9, 10, "9 are back")
    got = [get(channel, queue) for _ in range(9)]
    expect([message.text for message in got], [str(number) for number in range(11, 20)], "what comes back, in order")
    expect({message.redelivered for message in got}, {True}, "redelivered")
    expect_empty(channel, queue)


@scenario()
def quorum_delivery_count(session):
    channel = session.channel()
    queue = session.queue(channel, x_queue_type="quorum")
    publish(channel, "", queue, "x", headers={"a": 1})
    for attempt in range(5):
        message = get(channel, queue, auto_ack=False)
        expect(message.headers, {"a": 1} | ({"x-delivery-count": attempt} if attempt else {}), "headers")
        channel.basic_nack(message.tag, requeue=True)
    message = get(channel, queue)
    expect(message.headers["x-delivery-count"], 5, "x-delivery-count")


@scenario()
def quorum_delivery_limit_drops(session):
    channel = session.channel()
    queue = session.queue(channel, x_queue_type="quorum", x_delivery_limit=1)
    send(channel, queue, "x", "y")
    for _ in range(2):
        channel.basic_nack(get(channel, queue, auto_ack=False).tag, requeue=True)
    expect(get_all(channel, queue, 1), ["y"], "messages")


@scenario()
def quorum_delivery_limit_zero(session):
    channel = session.channel()
    queue = session.queue(channel, x_queue_type="quorum", x_delivery_limit=0)
    send(channel, queue, "x")
    channel.basic_nack(get(channel, queue, auto_ack=False).tag, requeue=True)
    stays_empty(channel, queue, 0.3)


@scenario()
def quorum_delivery_limit_by_lost_connections(session):
    """A message whose consumer crashes each time becomes a dead letter."""
    channel = session.channel()
    graves = session.queue(channel, "graves")
    queue = session.queue(
        channel, x_queue_type="quorum", x_delivery_limit=2, x_dead_letter_exchange="", x_dead_letter_routing_key=graves
    )
    send(channel, queue, "poison")
    for _ in range(3):
        other = session.connect()
        Consumer(other.channel(), queue).wait(1)
        cut(other)
    message = get(channel, graves)
    expect((message.text, message.headers["x-death"][0]["reason"]), ("poison", "delivery_limit"), "message")


@scenario()
def quorum_delivery_limit_by_default(session):
    """The default delivery limit is 20."""
    channel = session.channel()
    queue = session.queue(channel, x_queue_type="quorum")
    unlimited = session.queue(channel, "unlimited", x_queue_type="quorum", x_delivery_limit=-1)
    for name, survives in ((queue, False), (unlimited, True)):
        send(channel, name, "x")
        for _ in range(21):
            channel.basic_nack(get(channel, name, auto_ack=False).tag, requeue=True)
        if survives:
            expect(get_all(channel, name, 1), ["x"], "without a limit")
        else:
            stays_empty(channel, name, 0.3)


@scenario()
def quorum_classic_counts_nothing(session):
    channel = session.channel()
    queue = session.queue(channel)
    send(channel, queue, "x")
    for _ in range(30):
        message = get(channel, queue, auto_ack=False)
        expect("x-delivery-count" in message.headers, False, "x-delivery-count")
        channel.basic_nack(message.tag, requeue=True)
    expect(get_all(channel, queue, 1), ["x"], "messages")


@scenario()
def quorum_with_a_limit_for_the_channel(session):
    """Quorum queues support a prefetch per consumer only; RabbitMQ rejects basic.consume otherwise."""
    connection = session.connect()
    channel = connection.channel()
    queue = session.queue(channel, x_queue_type="quorum")
    channel.basic_qos(prefetch_count=5, global_qos=True)
    try:
        Consumer(channel, queue)
    except ChannelClosedByBroker as refused:
        expect_true(refused.reply_code == 540, f"reply code {refused.reply_code}")
    except Exception as refused:
        expect(getattr(refused, "reply_code", None), 540, "reply code")


@scenario()
def quorum_declared_again(session):
    channel = session.channel()
    queue = session.queue(channel, x_queue_type="quorum", x_delivery_limit=5)
    arguments = {"x-queue-type": "quorum", "x-delivery-limit": 5}
    expect(channel.queue_declare(queue, durable=True, arguments=arguments).method.message_count, 0, "depth")


@scenario()
def quorum_transient_messages_are_kept_alike(session):
    channel = session.channel(confirms=True)
    queue = session.queue(channel, x_queue_type="quorum")
    publish(channel, "", queue, "x", delivery_mode=1)
    message = get(channel, queue)
    expect((message.text, message.properties.delivery_mode), ("x", 1), "message")
