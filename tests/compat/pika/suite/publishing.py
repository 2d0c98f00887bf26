"""Confirms, returns, transactions, and the allowed content of messages."""

import contextlib
import datetime
import random
import struct
import threading
import time
from decimal import Decimal

import pika
from pika import spec
from pika.exceptions import NackError, UnroutableError

from .harness import eventually, expect, expect_true, scenario
from .session import (
    Consumer,
    Failure,
    as_bytes,
    closes,
    depth,
    drain,
    expect_empty,
    get,
    get_all,
    publish,
    refused,
    send,
)
from .wire import Wire


class Confirms:
    """A publisher that does not wait for each confirm: pika's own loop in a thread."""

    def __init__(self, session):
        self.answers, self.returned, self.numbers = [], [], 0
        self.condition = threading.Condition()
        self.ready = threading.Event()
        self.connection = pika.SelectConnection(session.parameters(), on_open_callback=self.on_open)
        self.thread = threading.Thread(target=self.connection.ioloop.start, daemon=True)
        self.thread.start()
        session.at_end.append(self.close)
        if not self.ready.wait(10):
            raise Failure("no channel within 10 s")

    def on_open(self, connection):
        connection.channel(on_open_callback=self.on_channel)

    def on_channel(self, channel):
        self.channel = channel
        channel.add_on_return_callback(lambda _channel, method, properties, body: self.returned.append((method, properties, body)))
        channel.confirm_delivery(self.on_confirm, lambda _frame: self.ready.set())

    def on_confirm(self, frame):
        with self.condition:
            self.answers.append(frame.method)
            self.condition.notify_all()

    def publish(self, exchange, key, bodies, mandatory=False, **properties):
        def now():
            for body in bodies:
                self.channel.basic_publish(exchange, key, as_bytes(body), pika.BasicProperties(**properties), mandatory)

        self.numbers += len(bodies)
        self.connection.ioloop.add_callback_threadsafe(now)

    def outcomes(self):
        """True for each number that was acknowledged, false for each that was refused."""
        outcomes = {}
        for method in self.answers:
            first = method.delivery_tag
            if method.multiple:
                first = next((n for n in range(1, method.delivery_tag + 1) if n not in outcomes), method.delivery_tag)
            for number in range(first, method.delivery_tag + 1):
                if method.multiple and number in outcomes:
                    continue
                if number in outcomes:
                    raise Failure(f"number {number} is answered twice: {self.answers}")
                outcomes[number] = isinstance(method, spec.Basic.Ack)
        return outcomes

    def wait(self, seconds=20):
        end = time.monotonic() + seconds
        with self.condition:
            while len(self.outcomes()) < self.numbers:
                left = end - time.monotonic()
                if left < 0 or not self.condition.wait(left):
                    raise Failure(f"{len(self.outcomes())} of {self.numbers} confirms within {seconds} s")
        return self.outcomes()

    def close(self):
        self.connection.ioloop.add_callback_threadsafe(lambda: self.connection.is_open and self.connection.close())


@scenario()
def confirm_each(session):
    channel = session.channel(confirms=True)
    queue = session.queue(channel)
    for number in range(20):
        send(channel, queue, number)
    expect(get_all(channel, queue, 20), [str(number) for number in range(20)], "messages")


@scenario()
def confirm_many(session):
    channel = session.channel()
    queue = session.queue(channel)
    confirms = Confirms(session)
    confirms.publish("", queue, range(2000), delivery_mode=2)
    expect(set(confirms.wait().values()), {True}, "outcomes")
    expect(sorted(confirms.outcomes()), list(range(1, 2001)), "numbers")
    eventually(lambda: depth(channel, queue) == 2000, 10, "all are there")
    expect(drain(channel, queue), [str(number) for number in range(2000)], "order")


@scenario()
def confirm_what_goes_to_several_queues(session):
    channel = session.channel()
    exchange = session.exchange(channel, "fanout")
    queues = [session.bound(channel, exchange, suffix="classic"), session.bound(channel, exchange, suffix="quorum", x_queue_type="quorum")]
    confirms = Confirms(session)
    confirms.publish(exchange, "", range(300), delivery_mode=2)
    expect(set(confirms.wait().values()), {True}, "outcomes")
    for queue in queues:
        eventually(lambda queue=queue: depth(channel, queue) == 300, 10, "all are there")


@scenario()
def confirm_what_goes_nowhere(session):
    confirms = Confirms(session)
    confirms.publish("amq.direct", session.unique("nowhere"), range(10))
    expect(set(confirms.wait().values()), {True}, "outcomes")
    expect(confirms.returned, [], "returned")


@scenario()
def confirm_select_again(session):
    wire = Wire(session)
    wire.open()
    wire.open_channel()
    for _ in range(2):
        wire.say(spec.Confirm.Select(), 1)
        wire.expect(spec.Confirm.SelectOk)
    queue = session.queue(session.channel())
    wire.publish("", queue, b"a")
    expect(wire.expect(spec.Basic.Ack).delivery_tag, 1, "number")
    wire.say(spec.Tx.Select(), 1)
    wire.expect_close(406, "PRECONDITION_FAILED - cannot switch from confirm to tx mode", channel=True)


@scenario()
def confirm_begins_where_it_is_selected(session):
    wire = Wire(session)
    wire.open()
    wire.open_channel()
    queue = session.queue(session.channel())
    for _ in range(3):
        wire.publish("", queue, b"before")
    wire.say(spec.Confirm.Select(), 1)
    wire.expect(spec.Confirm.SelectOk)
    wire.publish("", queue, b"after")
    expect(wire.expect(spec.Basic.Ack).delivery_tag, 1, "number of the first message after confirm.select")


@scenario()
def confirm_nack_on_overflow(session):
    channel = session.channel()
    queue = session.queue(channel, x_max_length=3, x_overflow="reject-publish")
    publisher = session.channel(confirms=True)
    refusals = 0
    for number in range(6):
        try:
            send(publisher, queue, number)
        except NackError:
            refusals += 1
    expect(refusals, 3, "refused")
    expect(get_all(channel, queue, 3), ["0", "1", "2"], "messages")
    send(publisher, queue, "again")
    expect(get_all(channel, queue, 1), ["again"], "room is room")


@scenario()
def confirm_nack_on_overflow_of_one_queue_of_two(session):
    channel = session.channel()
    exchange = session.exchange(channel, "fanout")
    small = session.bound(channel, exchange, suffix="small", x_max_length=2, x_overflow="reject-publish")
    large = session.bound(channel, exchange, suffix="large")
    publisher = session.channel(confirms=True)
    refusals = []
    for number in range(4):
        try:
            publish(publisher, exchange, "", number)
        except NackError:
            refusals.append(number)
    expect(refusals, [2, 3], "refused")
    expect(get_all(channel, small, 2), ["0", "1"], "in the small one")
    expect(get_all(channel, large, 4), ["0", "1", "2", "3"], "in the large one")


@scenario()
def confirm_nack_among_acks(session):
    """Pipelined publishes, so that cumulative acks and nacks are mixed."""
    channel = session.channel()
    exchange = session.exchange(channel, "direct")
    session.bound(channel, exchange, "small", "small", x_max_length=5, x_overflow="reject-publish")
    session.bound(channel, exchange, "large", "large")
    confirms = Confirms(session)
    for number in range(100):
        confirms.publish(exchange, "small" if number % 2 else "large", [number])
    outcomes = confirms.wait()
    refusals = [number for number, taken in outcomes.items() if not taken]
    expect(len(refusals), 45, "refused")
    expect({number % 2 for number in refusals}, {0}, "only what went to the small queue")


@scenario()
def mandatory_returns(session):
    channel = session.channel()
    returned = []
    channel.add_on_return_callback(lambda _channel, method, properties, body: returned.append((method, properties, body)))
    exchange = session.exchange(channel, "direct")
    publish(channel, exchange, "nowhere", "x", mandatory=True, message_id="m", headers={"a": 1, "BCC": ["b"]})

    def came():
        channel.connection.process_data_events(0.05)
        return returned

    eventually(came, 10, "the message is returned")
    ((method, properties, body),) = returned
    got = (method.reply_code, method.reply_text, method.exchange, method.routing_key)
    expect(got, (312, "NO_ROUTE", exchange, "nowhere"), "basic.return")
    expect((properties.message_id, properties.headers, body), ("m", {"a": 1}, b"x"), "message")


@scenario()
def mandatory_return_comes_before_its_confirm(session):
    channel = session.channel(confirms=True)
    queue = session.queue(channel)
    try:
        publish(channel, "", session.unique("nowhere"), "x", mandatory=True)
        raise Failure("it was not returned")
    except UnroutableError as error:
        expect([message.body for message in error.messages], [b"x"], "returned")
    publish(channel, "", queue, "y", mandatory=True)
    expect(get_all(channel, queue, 1), ["y"], "what can be routed is not returned")
    wire = Wire(session)
    wire.open()
    wire.open_channel()
    wire.say(spec.Confirm.Select(), 1)
    wire.expect(spec.Confirm.SelectOk)
    wire.say(spec.Basic.Publish(routing_key=session.unique("nowhere"), mandatory=True), 1)
    wire.frame(spec.FRAME_HEADER, 1, struct.pack(">HHQH", 60, 0, 0, 0))
    wire.expect(spec.Basic.Return)
    wire.content()
    expect(wire.expect(spec.Basic.Ack).delivery_tag, 1, "number")


@scenario()
def immediate_is_not_implemented(session):
    wire = Wire(session)
    wire.open()
    wire.open_channel()
    wire.say(spec.Basic.Publish(routing_key="q", immediate=True), 1)
    wire.frame(spec.FRAME_HEADER, 1, struct.pack(">HHQH", 60, 0, 0, 0))
    wire.expect_close(540, "NOT_IMPLEMENTED - immediate=true")


@scenario()
def tx_commit_and_rollback(session):
    channel = session.channel()
    queue = session.queue(channel)
    publisher = session.channel()
    publisher.tx_select()
    send(publisher, queue, "a", "b")
    time.sleep(0.2)
    expect_empty(channel, queue)
    publisher.tx_commit()
    expect(get_all(channel, queue, 2), ["a", "b"], "committed")
    send(publisher, queue, "c")
    publisher.tx_rollback()
    publisher.tx_commit()
    send(publisher, queue, "d")
    publisher.tx_commit()
    expect(get_all(channel, queue, 1), ["d"], "after a rollback")
    send(publisher, queue, "e")
    publisher.close()
    time.sleep(0.2)
    expect_empty(channel, queue)


@scenario()
def tx_acknowledgements(session):
    connection = session.connect()
    channel = connection.channel()
    queue, other = session.queue(channel), session.queue(channel, "other")
    send(channel, queue, "a", "b")
    worker = connection.channel()
    worker.tx_select()
    first = get(worker, queue, auto_ack=False)
    worker.basic_ack(first.tag)
    send(worker, other, "made of a")
    worker.tx_rollback()
    expect_empty(channel, other)
    worker.basic_ack(first.tag)
    send(worker, other, "made of a, again")
    worker.tx_commit()
    expect(get_all(channel, other, 1), ["made of a, again"], "published")
    second = get(worker, queue, auto_ack=False)
    worker.basic_ack(second.tag)
    # Uncommitted acknowledgements are undone, and the messages are redelivered.
    worker.close()
    message = get(channel, queue)
    expect((message.text, message.redelivered), ("b", True), "message")
    expect_empty(channel, queue)


@scenario()
def tx_reject(session):
    channel = session.channel()
    queue = session.queue(channel)
    send(channel, queue, "a", "b")
    worker = session.channel()
    worker.tx_select()
    tags = [get(worker, queue, auto_ack=False).tag for _ in range(2)]
    worker.basic_reject(tags[0], requeue=True)
    worker.basic_reject(tags[1], requeue=False)
    time.sleep(0.2)
    expect_empty(channel, queue)
    worker.tx_commit()
    expect(get_all(channel, queue, 1), ["a"], "messages")


@scenario()
def tx_returns_at_commit(session):
    channel = session.channel()
    returned = []
    channel.add_on_return_callback(lambda _channel, method, _properties, body: returned.append((method.reply_code, body)))
    channel.tx_select()
    publish(channel, "", session.unique("nowhere"), "x", mandatory=True)
    channel.connection.process_data_events(0.3)
    expect(returned, [], "returned before it is committed")
    channel.tx_commit()
    channel.connection.process_data_events(0.3)
    expect(returned, [(312, b"x")], "returned")


@scenario()
def tx_refused(session):
    connection = session.connect()
    text = "PRECONDITION_FAILED - channel is not transactional"
    refused(406, text, lambda: connection.channel().tx_commit(), "commit")
    refused(406, text, lambda: connection.channel().tx_rollback(), "rollback")
    channel = connection.channel()
    channel.tx_select()
    channel.tx_select()
    refused(406, "PRECONDITION_FAILED - cannot switch from tx to confirm mode", channel.confirm_delivery, "confirm.select")


@scenario()
def properties_round_trip(session):
    channel = session.channel()
    queue = session.queue(channel)
    properties = {
        "content_type": "application/json",
        "content_encoding": "gzip",
        "headers": {"a": "b"},
        "delivery_mode": 2,
        "priority": 7,
        "correlation_id": "corrélation",
        "reply_to": "reply",
        "expiration": "60000",
        "message_id": "message",
        "timestamp": 1_700_000_000,
        "type": "type",
        "user_id": "guest",
        "app_id": "app",
        "cluster_id": "cluster",
    }
    publish(channel, "", queue, "x", **properties)
    got = get(channel, queue).properties
    expect({name: getattr(got, name) for name in properties}, properties, "properties")
    # Each property alone, and no property.
    for name in properties:
        channel.basic_publish("", queue, b"x", pika.BasicProperties(**{name: properties[name]}))
        expect(get(channel, queue).properties.__dict__, pika.BasicProperties(**{name: properties[name]}).__dict__, name)
    channel.basic_publish("", queue, b"x")
    expect(get(channel, queue).properties.__dict__, pika.BasicProperties().__dict__, "no properties")
    publish(channel, "", queue, "x", message_id="", headers={}, type="ü" * 127, priority=0, timestamp=0, delivery_mode=1)
    got = get(channel, queue).properties
    kept = (got.message_id, got.headers, got.type, got.priority, got.timestamp, got.delivery_mode)
    expect(kept, ("", {}, "ü" * 127, 0, 0, 1), "empty and longest")


HEADERS = {
    "text": "grüße",
    "empty": "",
    "bytes": bytes(range(256)),
    "true": True,
    "false": False,
    "small": 1,
    "negative": -(2**31),
    "large": 2**62,
    "largest": -(2**63),
    "decimal": Decimal("12.345"),
    "time": datetime.datetime(2024, 2, 29, 12, 0, 0, tzinfo=datetime.timezone.utc),
    "nothing": None,
    "list": ["a", 1, None, True, ["nested", {"deep": [1, 2]}], {}],
    "empty list": [],
    "table": {"a": {"b": {"c": "d"}}, "e": [], "f": None},
    "long": "x" * 70_000,
    "ключ": "Unicode in a name",
    "amqp.header": "a name that means something to somebody",
    "n" * 128: "the longest name that pika says",
}


@scenario()
def headers_round_trip(session):
    channel = session.channel()
    queue = session.queue(channel)
    # RabbitMQ only accepts a content header in one frame.
    publish(channel, "", queue, "x", headers=HEADERS)
    got = get(channel, queue).headers
    wanted = dict(HEADERS)
    for name, value in wanted.items():
        if name == "time":
            got[name] = got[name].replace(tzinfo=datetime.timezone.utc)
        expect(got.get(name), value, f"header {name[:20]!r}")
    expect(set(got), set(wanted), "their names")


def field(name, kind, value):
    return bytes([len(name)]) + name.encode() + kind.encode() + value


def long(data):
    return struct.pack(">L", len(data)) + data


# Every field type in RabbitMQ's encoding (its errata to the specification), sorted by name as RabbitMQ does.
FIELDS = b"".join(
    (
        field("A", "A", long(b"I" + struct.pack(">l", 1) + b"t\x00" + b"S" + long(b"a"))),
        field("B", "B", b"\xff"),
        field("D", "D", b"\x03" + struct.pack(">L", 12345)),
        field("F", "F", long(field("F", "F", long(b"")) + field("f", "f", struct.pack(">f", -2.5)))),
        field("I", "I", b"\x80\x00\x00\x00"),
        field("S", "S", long(b"text")),
        field("T", "T", struct.pack(">Q", 1_700_000_000)),
        field("V", "V", b""),
        field("b", "b", b"\x80"),
        field("d", "d", struct.pack(">d", 0.1)),
        field("d2", "d", struct.pack(">d", -1e300)),
        field("f", "f", struct.pack(">f", 1.5)),
        field("i", "i", b"\xff\xff\xff\xff"),
        field("l", "l", b"\x80" + bytes(7)),
        field("s", "s", b"\x80\x00"),
        field("t", "t", b"\x01"),
        field("u", "u", b"\xff\xff"),
        field("x", "x", long(b"\x00\xff")),
    )
)


@scenario()
def headers_of_every_type_byte_for_byte(session):
    queue = session.queue(session.channel())
    wire = Wire(session)
    wire.open()
    wire.open_channel()
    section = struct.pack(">H", 1 << 13) + long(FIELDS)
    wire.publish("", queue, b"body", headers=section)
    time.sleep(0.2)
    wire.say(spec.Basic.Get(queue=queue, no_ack=True), 1)
    wire.expect(spec.Basic.GetOk)
    got, body, _ = wire.content()
    expect((got, body), (section, b"body"), "property section and body")


@scenario()
def headers_malformed(session):
    queue = session.queue(session.channel())
    wire = Wire(session)
    wire.open()
    wire.open_channel()
    section = struct.pack(">H", 1 << 13) + long(b"\x01aS\xff\xff\xff\xff")
    wire.publish("", queue, b"body", headers=section)
    close = wire.expect(spec.Connection.Close)
    expect_true(close.reply_code in (501, 502, 541), f"reply code {close.reply_code}")


@scenario(timeout=60)
def bodies_of_any_size(session):
    channel = session.channel(confirms=True)
    queue = session.queue(channel)
    one_frame = 131072 - 8
    for size in (0, 1, 4096, one_frame - 1, one_frame, one_frame + 1, 2 * one_frame, 2 * one_frame + 1, 1_000_000, 5_000_000):
        body = random.Random(size).randbytes(size)
        publish(channel, "", queue, body, headers={"size": size})
        message = get(channel, queue, auto_ack=False)
        expect_true(message.body == body, f"body of {size} bytes: {len(message.body)} came")
        expect(message.headers, {"size": size}, "headers")
        channel.basic_ack(message.tag)


@scenario()
def bodies_consumed_side_by_side(session):
    """Large and small bodies of several channels on one connection."""
    connection = session.connect()
    channels = [connection.channel() for _ in range(4)]
    queues = [session.queue(channels[0], f"q{index}") for index in range(4)]
    consumers = [Consumer(channel, queue) for channel, queue in zip(channels, queues)]
    bodies = [random.Random(size).randbytes(size) for size in (300_000, 0, 5, 131_072)]
    for _ in range(3):
        for queue in queues:
            for body in bodies:
                publish(channels[0], "", queue, body)
    for consumer in consumers:
        got = [message.body for message in consumer.wait(12, 30)]
        expect_true(got == bodies * 3, f"bodies, of sizes {[len(body) for body in got]}")


@scenario()
def body_over_the_limit(session):
    queue = session.queue(session.channel())
    wire = Wire(session)
    wire.open()
    wire.open_channel()
    wire.publish("", queue, bytes((16 << 20) + 1))
    text = "PRECONDITION_FAILED - message size 16777217 is larger than configured max size 16777216"
    wire.expect_close(406, text, channel=True)


@scenario(timeout=60)
def body_at_the_limit(session):
    channel = session.channel(confirms=True)
    queue = session.queue(channel)
    body = bytes(1 << 20) * 16
    publish(channel, "", queue, body)
    expect(len(get(channel, queue, 30).body), 16 << 20, "bytes")


@scenario()
def user_id_is_checked(session):
    connection = session.connect()
    queue = session.queue(connection.channel())
    channel = connection.channel()
    publish(channel, "", queue, "x", user_id="guest")
    expect(get(channel, queue).properties.user_id, "guest", "user_id")
    channel.confirm_delivery()
    text = "PRECONDITION_FAILED - user_id property set to 'somebody' but authenticated user was 'guest'"
    refused(406, text, lambda: publish(channel, "", queue, "x", user_id="somebody"))


@scenario()
def expiration_malformed(session):
    connection = session.connect()
    queue = session.queue(connection.channel())
    for expiration, why in (
        ("soon", "no_integer"),
        ("-1", "{value_negative,-1}"),
        ("1.5", '{leftover_string,".5"}'),
        ("60s", '{leftover_string,"s"}'),
        ("999999999999999", "{value_too_large,999999999999999}"),
    ):
        channel = connection.channel()
        channel.confirm_delivery()
        text = f"PRECONDITION_FAILED - invalid expiration '{expiration}': {why}"
        refused(406, text, lambda channel=channel, expiration=expiration: publish(channel, "", queue, "x", expiration=expiration), expiration)


@scenario()
def publish_by_many_connections(session):
    channel = session.channel()
    queue = session.queue(channel)
    failures = []

    def work(number):
        try:
            own = session.connect().channel()
            own.confirm_delivery()
            for index in range(50):
                send(own, queue, f"{number}-{index}")
        except Exception as error:  # told by the scenario's own thread
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    [thread.start() for thread in threads]
    [thread.join(60) for thread in threads]
    expect(failures, [], "failures")
    bodies = drain(channel, queue)
    expect(len(bodies), 400, "messages")
    for number in range(8):
        own = [body for body in bodies if body.startswith(f"{number}-")]
        expect(own, [f"{number}-{index}" for index in range(50)], f"order of publisher {number}")


@scenario()
def closed_channel_takes_no_more(session):
    """Messages published after an error, and before the client received it, are lost with the channel."""
    connection = session.connect()
    channel = connection.channel()
    queue = session.queue(channel)
    wrong = connection.channel()
    publish(wrong, "", queue, "before")
    publish(wrong, session.unique("gone"), "k", "mistake")
    # The reply may arrive before the next call.
    with contextlib.suppress(pika.exceptions.ChannelClosedByBroker):
        publish(wrong, "", queue, "after")
    gone = session.unique("gone")
    closes(wrong, 404, f"NOT_FOUND - no exchange '{gone}' in vhost '/'")
    expect(get_all(channel, queue, 1), ["before"], "messages")
