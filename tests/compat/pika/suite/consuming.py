"""Consumers, acknowledgements, prefetch, and basic.get."""

import time

from pika import spec

from .harness import eventually, expect, expect_true, scenario
from .session import (
    Consumer,
    closes,
    consumers,
    cut,
    depth,
    expect_empty,
    get,
    get_all,
    publish,
    refused,
    send,
)
from .wire import Wire


@scenario()
def consume_in_order(session):
    channel = session.channel()
    queue = session.queue(channel)
    send(channel, queue, *range(100))
    consumer = Consumer(channel, queue)
    messages = consumer.wait(100)
    expect([message.text for message in messages], [str(number) for number in range(100)], "bodies")
    expect([message.tag for message in messages], list(range(1, 101)), "delivery tags")
    expect({message.redelivered for message in messages}, {False}, "redelivered")
    expect({message.method.consumer_tag for message in messages}, {consumer.tag}, "consumer tag")
    channel.basic_ack(100, multiple=True)
    expect(depth(channel, queue), 0, "depth")
    send(channel, queue, "later")
    expect(consumer.wait_bodies(1), ["later"], "what comes later")


@scenario()
def consume_without_acknowledging(session):
    connection = session.connect()
    channel = connection.channel()
    queue = session.queue(channel)
    send(channel, queue, *range(50))
    consumer = Consumer(channel, queue, auto_ack=True)
    expect(len(consumer.wait(50)), 50, "deliveries")
    channel.close()
    expect_empty(connection.channel(), queue)


@scenario()
def acknowledge_one_by_one_in_any_order(session):
    connection = session.connect()
    channel = connection.channel()
    queue = session.queue(channel)
    send(channel, queue, *range(10))
    messages = Consumer(channel, queue).wait(10)
    for index in (9, 0, 5, 3):
        channel.basic_ack(messages[index].tag)
    channel.close()
    expect(get_all(connection.channel(), queue, 6), ["1", "2", "4", "6", "7", "8"], "what comes back")


@scenario()
def acknowledge_multiple(session):
    connection = session.connect()
    channel = connection.channel()
    queue = session.queue(channel)
    send(channel, queue, *range(10))
    consumer = Consumer(channel, queue)
    consumer.wait(10)
    channel.basic_ack(7, multiple=True)
    channel.basic_nack(9, multiple=True, requeue=False)
    channel.close()
    expect(get_all(connection.channel(), queue, 1), ["9"], "what comes back")


@scenario()
def acknowledge_all(session):
    """Delivery tag 0 with multiple acknowledges all messages."""
    connection = session.connect()
    channel = connection.channel()
    queue = session.queue(channel)
    send(channel, queue, *range(10))
    Consumer(channel, queue).wait(10)
    channel.basic_ack(0, multiple=True)
    channel.basic_ack(0, multiple=True)
    channel.close()
    expect_empty(connection.channel(), queue)


@scenario()
def nack_requeues(session):
    channel = session.channel()
    queue = session.queue(channel)
    send(channel, queue, "a", "b", "c")
    consumer = Consumer(channel, queue)
    first, second, third = consumer.wait(3)
    channel.basic_nack(second.tag, requeue=True)
    (again,) = consumer.wait(1)
    expect((again.text, again.redelivered, again.tag), ("b", True, 4), "delivered again")
    channel.basic_nack(third.tag, multiple=True, requeue=True)
    expect([(m.text, m.redelivered) for m in consumer.wait(2)], [("a", True), ("c", True)], "both again, in order")
    channel.basic_ack(0, multiple=True)
    expect_empty(channel, queue)
    del first


@scenario()
def nack_drops(session):
    connection = session.connect()
    channel = connection.channel()
    queue = session.queue(channel)
    send(channel, queue, "a", "b", "c", "d")
    messages = Consumer(channel, queue).wait(4)
    channel.basic_nack(messages[1].tag, multiple=True, requeue=False)
    channel.basic_reject(messages[2].tag, requeue=False)
    channel.close()
    expect(get_all(connection.channel(), queue, 1), ["d"], "what is left")


@scenario()
def reject_requeues_to_its_place(session):
    channel = session.channel()
    queue = session.queue(channel)
    send(channel, queue, *range(5))
    tags = [get(channel, queue, auto_ack=False).tag for _ in range(3)]
    channel.basic_reject(tags[1], requeue=True)
    channel.basic_reject(tags[0], requeue=True)
    got = [get(channel, queue) for _ in range(4)]
    expect([message.text for message in got], ["0", "1", "3", "4"], "order")
    expect([message.redelivered for message in got], [True, True, False, False], "redelivered")
    channel.basic_ack(tags[2])


@scenario()
def redelivered_after_a_lost_connection(session):
    channel = session.channel()
    queue = session.queue(channel)
    send(channel, queue, *range(10))
    other = session.connect()
    own = other.channel()
    own.basic_qos(prefetch_count=6)
    messages = Consumer(own, queue).wait(6)
    own.basic_ack(messages[1].tag)
    other.process_data_events(0.2)
    cut(other)
    eventually(lambda: depth(channel, queue) == 9, 10, "all but one are back")
    got = [get(channel, queue) for _ in range(9)]
    expect([message.text for message in got], [str(n) for n in range(10) if n != 1], "order")
    # The acknowledgement made room for one more.
    expect([message.redelivered for message in got], [True] * 6 + [False] * 3, "redelivered")


@scenario()
def redelivered_after_a_closed_channel(session):
    connection = session.connect()
    channel = connection.channel()
    queue = session.queue(channel)
    send(channel, queue, "a", "b")
    get(channel, queue, auto_ack=False)
    channel.close()
    channel = connection.channel()
    first, second = get(channel, queue, auto_ack=False), get(channel, queue, auto_ack=False)
    expect((first.text, first.redelivered), ("a", True), "first")
    expect((second.text, second.redelivered), ("b", False), "second")


@scenario()
def recover(session):
    connection = session.connect()
    channel = connection.channel()
    queue = session.queue(channel)
    send(channel, queue, "a", "b")
    consumer = Consumer(channel, queue)
    consumer.wait(2)
    channel.basic_recover(requeue=True)
    again = consumer.wait(2)
    expect([(m.text, m.redelivered, m.tag) for m in again], [("a", True, 3), ("b", True, 4)], "deliveries")
    refused(540, "NOT_IMPLEMENTED - requeue=false", lambda: channel.basic_recover(requeue=False), connection=True)


@scenario()
def unknown_delivery_tag(session):
    connection = session.connect()
    queue = session.queue(connection.channel())
    for answer in (
        lambda channel: channel.basic_ack(1),
        lambda channel: channel.basic_nack(1),
        lambda channel: channel.basic_reject(1),
        lambda channel: channel.basic_ack(1, multiple=True),
    ):
        channel = connection.channel()
        answer(channel)
        closes(channel, 406, "PRECONDITION_FAILED - unknown delivery tag 1")
    channel = connection.channel()
    send(channel, queue, "a")
    tag = get(channel, queue, auto_ack=False).tag
    channel.basic_ack(tag)
    channel.basic_ack(tag)
    closes(channel, 406, "PRECONDITION_FAILED - unknown delivery tag 1", "twice")
    channel = connection.channel()
    send(channel, queue, "a")
    get(channel, queue, auto_ack=True)
    channel.basic_ack(1)
    closes(channel, 406, "PRECONDITION_FAILED - unknown delivery tag 1", "what needs no answer")


@scenario()
def prefetch_of_a_consumer(session):
    connection = session.connect()
    channel = connection.channel()
    queue = session.queue(channel)
    send(channel, queue, *range(20))
    channel.basic_qos(prefetch_count=3)
    one = Consumer(channel, queue)
    channel.basic_qos(prefetch_count=5)
    two = Consumer(channel, queue)
    first, second = one.wait(3), two.wait(5)
    one.stays(0)
    two.stays(0)
    channel.basic_ack(first[0].tag)
    one.wait(1)
    channel.basic_ack(second[0].tag)
    channel.basic_ack(second[1].tag)
    two.wait(2)
    one.stays(0)
    expect(depth(channel, queue), 9, "depth")


@scenario()
def prefetch_of_a_channel(session):
    """`global` in RabbitMQ's sense: one limit for all consumers of the channel."""
    connection = session.connect()
    channel = connection.channel()
    queues = [session.queue(channel, "one"), session.queue(channel, "two")]
    for queue in queues:
        send(channel, queue, *range(10))
    channel.basic_qos(prefetch_count=4, global_qos=True)
    several = [Consumer(channel, queue) for queue in queues]

    def deliveries():
        several[0].pump(0.05)
        return sum(len(consumer.messages) for consumer in several)

    eventually(lambda: deliveries() == 4, 10, "4 deliveries")
    several[0].stays(4)
    expect(deliveries(), 4, "no more than 4")
    tag = next(consumer for consumer in several if consumer.messages).messages[0].tag
    channel.basic_ack(tag)
    eventually(lambda: deliveries() == 5, 10, "one more")
    time.sleep(0.2)
    expect(deliveries(), 5, "and no more")
    channel.basic_qos(prefetch_count=0, global_qos=True)
    eventually(lambda: deliveries() == 20, 10, "all, without a limit")


@scenario()
def prefetch_of_both(session):
    connection = session.connect()
    channel = connection.channel()
    queue = session.queue(channel)
    send(channel, queue, *range(20))
    channel.basic_qos(prefetch_count=3)
    channel.basic_qos(prefetch_count=5, global_qos=True)
    one, two = Consumer(channel, queue), Consumer(channel, queue)
    eventually(lambda: one.pump(0.05) or len(one.messages) + len(two.messages) == 5, 10, "5 deliveries")
    one.stays(3)
    expect(len(one.messages) + len(two.messages), 5, "no more than 5")
    expect_true(len(one.messages) <= 3 and len(two.messages) <= 3, "no more than 3 each")


@scenario()
def prefetch_in_bytes_is_not_implemented(session):
    connection = session.connect()
    channel = connection.channel()
    refused(540, "NOT_IMPLEMENTED - prefetch_size!=0 (1)", lambda: channel.basic_qos(prefetch_size=1), connection=True)


@scenario()
def prefetch_does_not_count_gets(session):
    channel = session.channel()
    queue = session.queue(channel)
    send(channel, queue, *range(10))
    channel.basic_qos(prefetch_count=2)
    for _ in range(3):
        get(channel, queue, auto_ack=False)
    consumer = Consumer(channel, queue)
    expect(consumer.wait_bodies(2), ["3", "4"], "deliveries")
    consumer.stays(0, 0.3)


@scenario()
def prefetch_does_not_count_without_acknowledging(session):
    channel = session.channel()
    queue = session.queue(channel)
    send(channel, queue, *range(10))
    channel.basic_qos(prefetch_count=2)
    expect(len(Consumer(channel, queue, auto_ack=True).wait(10)), 10, "deliveries")


@scenario()
def get_counts(session):
    connection = session.connect()
    channel = connection.channel(1)
    queue = session.queue(channel)
    channel.confirm_delivery()
    expect(channel.basic_get(queue)[0], None, "get-empty")
    send(channel, queue, "a", "b", "c")
    for number, (body, left) in enumerate((("a", 2), ("b", 1), ("c", 0)), start=1):
        message = get(channel, queue, auto_ack=False)
        expect((message.text, message.method.message_count, message.tag), (body, left, number), "get-ok")
    expect(channel.basic_get(queue)[0], None, "get-empty")
    channel.basic_nack(2, requeue=True)
    expect(get(channel, queue).method.message_count, 0, "messages left")


@scenario()
def get_of_a_queue_that_is_consumed(session):
    channel = session.channel()
    queue = session.queue(channel)
    channel.basic_qos(prefetch_count=1)
    consumer = Consumer(channel, queue)
    send(channel, queue, "a", "b")
    consumer.wait(1)
    expect(get(channel, queue).text, "b", "message")


@scenario()
def cancel(session):
    connection = session.connect()
    channel = connection.channel()
    queue = session.queue(channel)
    send(channel, queue, "a")
    consumer = Consumer(channel, queue, tag="mine")
    expect(consumer.tag, "mine", "tag")
    (message,) = consumer.wait(1)
    channel.basic_cancel("mine")
    expect(consumers(channel, queue), 0, "consumers")
    send(channel, queue, "b")
    consumer.stays(0, 0.3)
    expect(get(channel, queue).text, "b", "what comes after")
    channel.basic_ack(message.tag)
    wire = Wire(session)
    wire.open()
    wire.open_channel()
    wire.say(spec.Basic.Cancel("never"), 1)
    expect(wire.expect(spec.Basic.CancelOk).consumer_tag, "never", "an unknown tag is cancelled all the same")


@scenario()
def cancel_leaves_what_is_not_acknowledged(session):
    connection = session.connect()
    channel = connection.channel()
    queue = session.queue(channel)
    send(channel, queue, "a", "b")
    consumer = Consumer(channel, queue)
    first, second = consumer.wait(2)
    channel.basic_cancel(consumer.tag)
    expect_empty(connection.channel(), queue)
    channel.basic_ack(first.tag)
    channel.basic_nack(second.tag, requeue=True)
    expect(get_all(channel, queue, 1), ["b"], "messages")


@scenario()
def consumer_tags(session):
    connection = session.connect()
    channel = connection.channel()
    queue = session.queue(channel)
    wire = Wire(session)
    wire.open()
    wire.open_channel()
    tags = []
    for _ in range(2):
        wire.say(spec.Basic.Consume(queue=queue), 1)
        tags.append(wire.expect(spec.Basic.ConsumeOk).consumer_tag)
    expect_true(all(tag.startswith("amq.ctag-") for tag in tags) and tags[0] != tags[1], f"generated tags: {tags}")
    wire.say(spec.Basic.Consume(queue=queue, consumer_tag=tags[0]), 1)
    wire.expect_close(530, f"NOT_ALLOWED - attempt to reuse consumer tag '{tags[0]}'")


@scenario()
def consume_without_waiting(session):
    """no-wait methods get no reply."""
    queue = session.queue(session.channel())
    wire = Wire(session)
    wire.open()
    wire.open_channel()
    wire.say(spec.Queue.Declare(queue=queue, durable=True, nowait=True), 1)
    wire.say(spec.Queue.Bind(queue=queue, exchange="amq.direct", routing_key=queue, nowait=True), 1)
    wire.say(spec.Exchange.Declare(exchange=session.unique("x"), nowait=True), 1)
    wire.say(spec.Exchange.Delete(exchange=session.unique("x"), nowait=True), 1)
    wire.say(spec.Queue.Purge(queue=queue, nowait=True), 1)
    wire.say(spec.Confirm.Select(nowait=True), 1)
    wire.say(spec.Basic.Consume(queue=queue, consumer_tag="t", no_ack=True, nowait=True), 1)
    wire.publish("amq.direct", queue, b"x")
    kinds = sorted(type(wire.next().method).__name__ for _ in range(1))
    while kinds != ["Ack", "Deliver"]:
        if kinds[-1] == "Deliver" and len(kinds) == 1:
            wire.content()
        kinds = sorted([*kinds, type(wire.next().method).__name__])
    wire_two = Wire(session)
    wire_two.open()
    wire_two.open_channel()
    wire_two.say(spec.Basic.Consume(queue=queue, consumer_tag="t", nowait=True), 1)
    wire_two.say(spec.Basic.Cancel("t", nowait=True), 1)
    wire_two.say(spec.Queue.Delete(queue=session.unique("never"), nowait=True), 1)
    wire_two.say(spec.Queue.Declare(queue=queue, passive=True), 1)
    expect(wire_two.expect(spec.Queue.DeclareOk).consumer_count, 1, "consumers")


@scenario()
def cancel_notification(session):
    """The server sends basic.cancel when the queue of a consumer is deleted."""
    connection = session.connect()
    channel = connection.channel()
    queue = session.queue(channel)
    consumer, other = Consumer(channel, queue), Consumer(connection.channel(), queue)
    session.channel().queue_delete(queue)
    consumer.until_cancelled()
    other.until_cancelled()
    expect_true(channel.is_open, "the channel stays")


@scenario()
def cancel_notification_only_if_wanted(session):
    queue = session.queue(session.channel())
    wire = Wire(session)
    wire.open()  # says nothing of consumer_cancel_notify
    wire.open_channel()
    wire.say(spec.Basic.Consume(queue=queue), 1)
    wire.expect(spec.Basic.ConsumeOk)
    session.channel().queue_delete(queue)
    time.sleep(0.3)
    wire.say(spec.Channel.Open(), 2)
    wire.expect(spec.Channel.OpenOk)


@scenario()
def consumer_priorities(session):
    connection = session.connect()
    channel = connection.channel()
    queue = session.queue(channel)
    channel.basic_qos(prefetch_count=2)
    low = Consumer(channel, queue, x_priority=-1)
    normal = Consumer(channel, queue)
    high = Consumer(channel, queue, x_priority=10)
    send(channel, queue, *range(2))
    expect(high.wait_bodies(2), ["0", "1"], "the highest first")
    send(channel, queue, *range(2, 4))
    expect(normal.wait_bodies(2), ["2", "3"], "the next while the highest is full")
    send(channel, queue, 4)
    expect(low.wait_bodies(1), ["4"], "the lowest when nobody else can")
    channel.basic_ack(1)
    channel.basic_ack(2)
    send(channel, queue, 5, 6)
    expect(high.wait_bodies(2), ["5", "6"], "the highest again")


@scenario()
def consumer_priority_malformed(session):
    connection = session.connect()
    queue = session.queue(connection.channel())
    channel = connection.channel()
    text = f"PRECONDITION_FAILED - invalid arg 'x-priority' for queue '{queue}' in vhost '/': \"expected integer, got longstr\""
    refused(406, text, lambda: Consumer(channel, queue, x_priority="high"))


@scenario()
def consumers_share_fairly(session):
    connection = session.connect()
    queue = session.queue(connection.channel())
    several = [Consumer(connection.channel(), queue) for _ in range(4)]
    publisher = connection.channel()
    for number in range(100):
        send(publisher, queue, number)
    eventually(lambda: several[0].pump(0.05) or sum(len(c.messages) for c in several) == 100, 10, "all are delivered")
    counts = [len(consumer.messages) for consumer in several]
    expect_true(all(10 <= count <= 40 for count in counts), f"shares: {counts}")


@scenario()
def consumer_exclusive(session):
    connection = session.connect()
    queue = session.queue(connection.channel())
    channel = connection.channel()
    consumer = Consumer(channel, queue, exclusive=True)
    text = f"ACCESS_REFUSED - queue '{queue}' in vhost '/' in exclusive use"
    refused(403, text, lambda: Consumer(connection.channel(), queue), "another one")
    refused(403, text, lambda: Consumer(connection.channel(), queue, exclusive=True), "another exclusive one")
    channel.basic_cancel(consumer.tag)
    ordinary = Consumer(connection.channel(), queue)
    refused(403, text, lambda: Consumer(connection.channel(), queue, exclusive=True), "beside an ordinary one")
    send(connection.channel(), queue, "a")
    expect(ordinary.wait_bodies(1), ["a"], "message")


@scenario()
def single_active_consumer(session):
    connection = session.connect()
    for kind in ("classic", "quorum"):
        channel = connection.channel()
        queue = session.queue(channel, kind, x_single_active_consumer=True, x_queue_type=kind)
        channels = [connection.channel() for _ in range(3)]
        one, two, three = (Consumer(own, queue) for own in channels)
        send(channel, queue, *range(5))
        messages = one.wait(5)
        two.stays(0, 0.2)
        three.stays(0, 0.2)
        channels[0].basic_ack(messages[0].tag)
        # The active consumer leaves; the next one takes over and gets the unacknowledged messages.
        channels[0].close()
        again = two.wait(4)
        expect([message.text for message in again], ["1", "2", "3", "4"], f"{kind}: what comes back, in order")
        expect({message.redelivered for message in again}, {True}, f"{kind}: redelivered")
        three.stays(0, 0.2)
        channels[1].basic_ack(0, multiple=True)
        channels[1].basic_cancel(two.tag)
        send(channel, queue, "last")
        expect(three.wait_bodies(1), ["last"], f"{kind}: the third")


@scenario(needs=["keys"])
def one_message_of_each_key(session):
    """Any number of keys, each in order, over more consumers than the queue has partitions."""
    connection = session.connect()
    for kind in ("classic", "quorum"):
        channel = connection.channel()
        channel.confirm_delivery()
        queue = session.queue(channel, kind, x_postroad_ordering="key", x_queue_type=kind)
        for number in range(3):
            for key in ("anna", "bert"):
                publish(channel, "", queue, f"{key} {number}", headers={"postroad.key": key})
        publish(channel, "", queue, "nobody's 0")
        publish(channel, "", queue, "nobody's 1")
        consumers = []
        for own in (connection.channel(), connection.channel()):
            own.basic_qos(prefetch_count=2)
            consumers.append(Consumer(own, queue))
        out = [(consumer, message) for consumer in consumers for message in consumer.wait(2)]
        texts = sorted(message.text for _, message in out)
        expect(texts, ["anna 0", "bert 0", "nobody's 0", "nobody's 1"], f"{kind}: what may be out at a time")
        # A requeued message precedes the rest of its key, and blocks no other key.
        for consumer, message in out:
            if message.text == "anna 0":
                consumer.channel.basic_nack(message.tag, requeue=True)
            else:
                consumer.channel.basic_ack(message.tag)
        seen = []
        while len(seen) < 5:
            consumer = next((one for one in consumers if one.messages), None)
            if consumer is None:
                eventually(lambda: any(one.pump() or one.messages for one in consumers), 10, "the rest")
                continue
            (message,) = consumer.wait(1)
            seen.append(message.text)
            consumer.channel.basic_ack(message.tag)
        order = {key: [text for text in seen if text.startswith(key)] for key in ("anna", "bert")}
        wanted = {"anna": ["anna 0", "anna 1", "anna 2"], "bert": ["bert 1", "bert 2"]}
        expect(order, wanted, f"{kind}: order of each key")


@scenario(needs=["keys"])
def an_order_that_is_none_is_refused(session):
    connection = session.connect()
    text = "PRECONDITION_FAILED - invalid arg 'x-postroad-ordering' for queue 'q' in vhost '/': invalid_ordering"
    arguments = {"x-postroad-ordering": "keys"}
    refused(406, text, lambda: connection.channel().queue_declare("q", arguments=arguments))


@scenario()
def single_active_consumer_refuses(session):
    connection = session.connect()
    queue = session.queue(connection.channel(), x_single_active_consumer=True)
    text = f"ACCESS_REFUSED - queue '{queue}' in vhost '/' in exclusive use"
    refused(403, text, lambda: Consumer(connection.channel(), queue, exclusive=True), "an exclusive consumer")


@scenario()
def consume_from_a_queue_that_is_not_there(session):
    connection = session.connect()
    gone = session.unique("gone")
    text = f"NOT_FOUND - no queue '{gone}' in vhost '/'"
    refused(404, text, lambda: Consumer(connection.channel(), gone), "consume")
    refused(404, text, lambda: connection.channel().basic_get(gone), "get")
    refused(404, text, lambda: connection.channel().queue_purge(gone), "purge")


@scenario()
def the_queue_declared_last_needs_no_name(session):
    channel = session.channel()
    name = channel.queue_declare("", exclusive=True).method.queue
    channel.queue_bind("", "amq.fanout")
    channel.queue_bind("", "amq.direct", "")
    wire = Wire(session)
    wire.open()
    wire.open_channel()
    wire.say(spec.Basic.Get(queue=""), 1)
    wire.expect_close(404, "NOT_FOUND - no previously declared queue", channel=True)
    publish(channel, "amq.direct", name, "x")
    consumer = Consumer(channel, "", auto_ack=True)
    expect(consumer.wait_bodies(1), ["x"], "bound under its own name")


@scenario(timeout=60)
def many_consumers(session):
    connection = session.connect()
    channel = connection.channel()
    queue = session.queue(channel)
    several = [Consumer(channel, queue, auto_ack=True) for _ in range(200)]
    expect(consumers(channel, queue), 200, "consumers")
    send(channel, queue, *range(1000))
    eventually(lambda: channel.connection.process_data_events(0.05) or sum(len(c.messages) for c in several) == 1000, 20, "all are delivered")
    expect_true(sum(1 for consumer in several if consumer.messages) > 100, "most consumers have some")


@scenario(timeout=60)
def throughput_with_prefetch(session):
    """Ten thousand messages by one consumer with acknowledgements in steps; none twice, none lost."""
    channel = session.channel()
    queue = session.queue(channel)
    for number in range(10_000):
        channel.basic_publish("", queue, str(number).encode())
    own = session.connect().channel()
    own.basic_qos(prefetch_count=100)
    consumer = Consumer(own, queue)
    seen = []
    while len(seen) < 10_000:
        for message in consumer.wait(50, 30):
            seen.append(message.text)
        own.basic_ack(message.tag, multiple=True)
    expect(seen, [str(number) for number in range(10_000)], "bodies")
    consumer.stays(0, 0.2)
    expect_true(own.is_open, "the channel is open")
