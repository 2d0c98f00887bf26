"""Logging in, tuning, heartbeats, channels, and the ways a connection ends."""

import time

import pika
from pika import spec
from pika.data import encode_table
from pika.exceptions import ConnectionClosedByBroker, ProbableAccessDeniedError, ProbableAuthenticationError

from .harness import eventually, expect, expect_true, scenario
from .session import Consumer, Failure, closes, cut, get, publish, refused, send
from .wire import Wire

CAPABILITIES = (
    "publisher_confirms",
    "exchange_exchange_bindings",
    "basic.nack",
    "consumer_cancel_notify",
    "connection.blocked",
    "consumer_priorities",
    "authentication_failure_close",
    "per_consumer_qos",
    "direct_reply_to",
)


@scenario()
def login_plain(session):
    channel = session.channel()
    queue = session.queue(channel)
    send(channel, queue, "a")
    expect(get(channel, queue).text, "a", "message")


class AmqPlain:
    """Credentials as pika takes them from elsewhere."""

    TYPE = "AMQPLAIN"

    def __init__(self, name, password):
        self.name, self.password = name, password

    def response_for(self, start):
        if self.TYPE not in bytes(start.mechanisms).decode().split():
            return None, None
        pieces = []
        encode_table(pieces, {"LOGIN": self.name, "PASSWORD": self.password})
        return self.TYPE, b"".join(pieces)[4:]

    def erase_credentials(self):
        pass


@scenario()
def login_amqplain(session):
    wire = Wire(session)
    pieces = []
    encode_table(pieces, {"LOGIN": "guest", "PASSWORD": "guest"})
    start = wire.start()
    missing = {"PLAIN", "AMQPLAIN"} - set(bytes(start.mechanisms).decode().split())
    expect(missing, set(), "mechanisms that are missing")
    wire.say(spec.Connection.StartOk({}, "AMQPLAIN", b"".join(pieces)[4:], "en_US"))
    wire.expect(spec.Connection.Tune)


@scenario()
def login_amqplain_refused(session):
    pieces = []
    encode_table(pieces, {"LOGIN": "guest", "PASSWORD": "wrong"})
    wire = Wire(session)
    wire.login("AMQPLAIN", b"".join(pieces)[4:])
    text = "ACCESS_REFUSED - Login was refused using authentication mechanism AMQPLAIN. For details see the broker logfile."
    wire.expect_close(403, text)


@scenario()
def login_by_pika_with_amqplain(session):
    if AmqPlain not in pika.credentials.VALID_TYPES:
        pika.credentials.VALID_TYPES.append(AmqPlain)
    channel = session.connect(credentials=AmqPlain("guest", "guest")).channel()
    queue = session.queue(channel)
    send(channel, queue, "a")
    expect(get(channel, queue).text, "a", "message")


@scenario()
def login_refused(session):
    text = "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. For details see the broker logfile."
    for name, password in (("guest", "wrong"), ("nobody", "guest"), ("", "")):
        try:
            session.connect(credentials=pika.PlainCredentials(name, password))
        except ProbableAuthenticationError as error:
            expect_true(text in str(error), f"the reason is told: {error}")
            continue
        raise Failure(f"{name}:{password} may log in")


@scenario(slow=True)
def login_refused_without_a_word(session):
    """A client without the capability authentication_failure_close gets no reason."""
    wire = Wire(session)
    wire.login(response=b"\0guest\0wrong", capabilities={"authentication_failure_close": False})
    wire.expect_end()


@scenario(slow=True)
def login_unknown_mechanism(session):
    wire = Wire(session)
    wire.login("KERBEROS", b"")
    answer = wire.next()
    # RabbitMQ closes without a reason; a server may also send one.
    if answer is not None:
        expect(type(answer.method), spec.Connection.Close, "answer")


@scenario()
def server_properties(session):
    wire = Wire(session)
    properties = wire.start().server_properties
    missing = [name for name in CAPABILITIES if properties["capabilities"].get(name) is not True]
    expect(missing, [], "capabilities that are missing")
    for name in ("product", "version", "platform", "cluster_name"):
        expect_true(properties.get(name), f"server property {name}")


@scenario()
def tuning_as_offered(session):
    tune = Wire(session).open()
    expect((tune.channel_max, tune.frame_max, tune.heartbeat), (2047, 131072, 60), "channel_max, frame_max, heartbeat")


@scenario(slow=True)
def tuning_refused(session):
    """RabbitMQ closes without a reason; a server may also send one."""
    for wanted in ({"frame_max": 131073}, {"frame_max": 1000}, {"channel_max": 2048}, {"channel_max": 0}):
        wire = Wire(session)
        wire.login()
        wire.expect(spec.Connection.Tune)
        settings = {"channel_max": 2047, "frame_max": 131072} | wanted
        wire.say(spec.Connection.TuneOk(settings["channel_max"], settings["frame_max"], 0))
        wire.say(spec.Connection.Open("/"))
        answer = wire.next()
        if answer is not None:
            expect((type(answer.method), answer.method.reply_code), (spec.Connection.Close, 530), f"answer to {wanted}")


@scenario()
def small_frames(session):
    """Bodies are split into frames of the negotiated size, and accepted in any smaller ones."""
    wire = Wire(session)
    wire.open(frame_max=8192)
    wire.open_channel()
    channel = session.channel()
    queue = session.queue(channel)
    body = bytes(range(256)) * 100
    wire.publish("", queue, body, frame_bytes=1000)
    eventually(lambda: channel.queue_declare(queue, passive=True).method.message_count, 10, "it is there")
    wire.say(spec.Basic.Get(queue=queue, no_ack=True), 1)
    wire.expect(spec.Basic.GetOk)
    _, got, sizes = wire.content()
    expect(got, body, "body")
    expect(max(sizes), 8192, "largest frame")


@scenario()
def other_protocol_is_told_which(session):
    for header in (b"GET / HT", b"AMQP\x01\x01\x07\x00", b"AMQP\x00\x00\x0a\x00"):
        wire = Wire(session)
        wire.send(header)
        answer = wire.read(8)
        expect((answer[:4], len(answer)), (b"AMQP", 8), f"answer {answer}")
        expect(wire.read(1), b"", "and the end")


@scenario()
def vhost_unknown(session):
    try:
        session.connect(virtual_host="no-such-vhost")
    except (ProbableAccessDeniedError, ConnectionClosedByBroker) as error:
        expect_true("NOT_ALLOWED - vhost no-such-vhost not found" in str(error), f"the reason is told: {error}")
        return
    raise Failure("a vhost that is not there was opened")


@scenario(slow=True)
def heartbeats_are_sent(session):
    wire = Wire(session)
    wire.open(heartbeat=2)
    wire.socket.settimeout(5)
    raw = wire.next_raw()
    expect(raw, (spec.FRAME_HEARTBEAT, 0, b""), "a heartbeat")


@scenario(slow=True)
def heartbeat_missed_ends_the_connection(session):
    wire = Wire(session)
    wire.open(heartbeat=1)
    started = time.monotonic()
    while wire.next_raw() is not None:
        expect_true(time.monotonic() - started < 10, "a silent client is cut off")
    expect_true(time.monotonic() - started > 1.5, "but not before two intervals or so")


@scenario(slow=True)
def heartbeats_keep_the_connection(session):
    connection = session.connect(heartbeat=2)
    channel = connection.channel()
    queue = session.queue(channel)
    connection.process_data_events(7)
    send(channel, queue, "a")
    expect(get(channel, queue).text, "a", "message")


@scenario(slow=True)
def heartbeat_zero_is_none(session):
    wire = Wire(session)
    wire.open(heartbeat=0)
    wire.socket.settimeout(4)
    try:
        raise Failure(f"a frame without heartbeats: {wire.next_raw()}")
    except TimeoutError:
        wire.open_channel()


@scenario()
def many_channels(session):
    connection = session.connect()
    channels = [connection.channel() for _ in range(500)]
    queue = session.queue(channels[0])
    for index, channel in enumerate(channels):
        channel.basic_publish("", queue, str(index).encode())
    taken = {get(channel, queue).text for channel in channels}
    expect(taken, {str(index) for index in range(500)}, "one message by each channel")


@scenario()
def channel_max_is_kept(session):
    wire = Wire(session)
    wire.open(channel_max=3)
    for number in (1, 2, 3):
        wire.open_channel(number)
    wire.say(spec.Channel.Open(), 4)
    wire.expect_close(530, "NOT_ALLOWED - number of channels opened (3) has reached the negotiated channel_max (3)")


@scenario()
def channel_number_can_be_used_again(session):
    connection = session.connect()
    queue = session.queue(connection.channel(7))
    for _ in range(20):
        channel = connection.channel(9)
        send(channel, queue, "a")
        expect(get(channel, queue, auto_ack=False).text, "a", "message")
        channel.basic_ack(1)
        channel.close()


@scenario()
def channel_closed_by_an_error_leaves_the_others(session):
    connection = session.connect()
    good, bad = connection.channel(), connection.channel()
    queue = session.queue(good)
    refused(404, f"NOT_FOUND - no queue '{queue}-not' in vhost '/'", lambda: bad.basic_get(f"{queue}-not"))
    send(good, queue, "a")
    expect(get(good, queue).text, "a", "message")
    again = connection.channel()
    expect(again.queue_declare(queue, passive=True).method.message_count, 0, "depth")


@scenario()
def channel_flow_off_is_refused(session):
    wire = Wire(session)
    wire.open()
    wire.open_channel()
    wire.say(spec.Channel.Flow(True), 1)
    expect(wire.expect(spec.Channel.FlowOk).active, True, "active")
    wire.say(spec.Channel.Flow(False), 1)
    wire.expect_close(540, "NOT_IMPLEMENTED - active=false")


@scenario()
def connection_closed_while_publishing_keeps_what_was_confirmed(session):
    channel = session.channel()
    queue = session.queue(channel)
    other = session.connect()
    publisher = other.channel()
    publisher.confirm_delivery()
    for number in range(50):
        send(publisher, queue, number)
    cut(other)
    eventually(lambda: channel.queue_declare(queue, passive=True).method.message_count == 50, 10, "all 50 are there")


@scenario(needs=["server"])
def connection_blocked_when_low_on_disk(session):
    from .restarting import OwnServer

    with OwnServer(session, "low-on-disk") as server:
        connection = server.connect()
        told = []
        connection.add_on_connection_blocked_callback(lambda _connection, frame: told.append(frame.method.reason))
        channel = connection.channel()
        queue = session.unique()
        channel.queue_declare(queue, durable=True)
        send(channel, queue, "a")

        def blocked():
            connection.process_data_events(0.05)
            return told

        eventually(blocked, 10, "the publisher is told that it is blocked")
        expect(told, ["low on disk"], "reason")
        # A consumer is not blocked.
        consumer = server.connect()
        expect(consumer.channel().queue_declare(queue, passive=True).method.message_count, 0, "nothing was taken")


@scenario(needs=["admin"])
def vhosts_are_apart(session):
    from .restarting import admin

    names = [session.unique("one"), session.unique("two")]
    for name in names:
        admin("vhost", name)
        session.at_end.append(lambda name=name: admin("no-vhost", name))
    channels = [session.connect(virtual_host=name).channel() for name in [*names, "/"]]
    queue = session.unique()
    session.queues.append(queue)
    for number, channel in enumerate(channels):
        channel.queue_declare(queue, durable=True)
        channel.queue_bind(queue, "amq.direct", queue)
        publish(channel, "amq.direct", queue, number)
    for number, channel in enumerate(channels):
        expect(get(channel, queue).text, str(number), f"message of vhost {number}")
        expect(channel.basic_get(queue)[0], None, "and no other")
    refused(404, f"NOT_FOUND - no queue 'q' in vhost '{names[0]}'", lambda: channels[0].basic_get("q"), "an error names the vhost")


@scenario(needs=["admin"])
def vhost_deleted_closes_its_connections(session):
    from .restarting import admin

    name = session.unique("gone")
    admin("vhost", name)
    channel = session.connect(virtual_host=name).channel()
    queue = channel.queue_declare("q", durable=True).method.queue
    Consumer(channel, queue)
    admin("no-vhost", name)
    closes(channel, 320, f"CONNECTION_FORCED - vhost '{name}' is deleted", "connection", connection=True)


def app(session, vhost="/"):
    """The name of a user of the scenario's own, and a connection's parameters with it."""
    from .restarting import admin

    name = session.unique("app")
    admin("user", name, "se:cret")
    session.at_end.append(lambda: admin("no-user", name))
    return name, {"credentials": pika.PlainCredentials(name, "se:cret"), "virtual_host": vhost}


@scenario(needs=["admin"])
def user_permissions(session):
    from .restarting import admin

    user, credentials = app(session)
    guest = session.channel()
    mine, other = session.unique("mine"), session.queue(guest, "other")
    target, source = session.exchange(guest, "topic", "mine-x"), session.exchange(guest, "topic", "other-x")
    session.queues.append(mine)
    admin("allow", user, "/", f"^{mine}", f"^{mine}|^amq\\.topic$", f"^{mine}|^amq\\.fanout$")
    connection = session.connect(**credentials)

    def no(permission, what, action):
        text = f"ACCESS_REFUSED - {permission} access to {what} in vhost '/' refused for user '{user}'"
        refused(403, text, lambda: action(connection.channel()), f"{permission} {what}")

    channel = connection.channel()
    channel.queue_declare(mine, durable=True)
    channel.queue_bind(mine, "amq.fanout")
    publish(guest, "amq.fanout", "", "x")
    expect(get(channel, mine).text, "x", "message")
    publish(channel, "amq.topic", "nowhere", "x")
    where = f"queue '{other}'"
    # RabbitMQ needs no permission here. A user without access to a queue gets the same reply whether it exists or not.
    no("read", where, lambda ch: ch.queue_declare(other, passive=True))
    no("configure", where, lambda ch: ch.queue_declare(other, durable=True))
    no("configure", where, lambda ch: ch.queue_delete(other))
    no("read", where, lambda ch: ch.basic_get(other))
    no("read", where, lambda ch: ch.basic_consume(other, print))
    no("read", where, lambda ch: ch.queue_purge(other))
    no("write", where, lambda ch: ch.queue_bind(other, "amq.fanout"))
    no("read", f"exchange '{source}'", lambda ch: ch.queue_bind(mine, source))
    no("write", f"exchange '{source}'", lambda ch: ch.exchange_bind(source, "amq.fanout"))
    no("read", "exchange 'amq.topic'", lambda ch: ch.exchange_bind(target, "amq.topic"))
    no("configure", f"exchange '{source}'", lambda ch: ch.exchange_declare(source, "topic", durable=True))
    no("configure", f"exchange '{source}'", lambda ch: ch.exchange_delete(source))
    graves = {"x-dead-letter-exchange": source}
    no("write", f"exchange '{source}'", lambda ch: ch.queue_declare(mine + "-dlx", arguments=graves))
    for exchange, named in ((source, source), ("", "amq.default")):
        text = f"ACCESS_REFUSED - write access to exchange '{named}' in vhost '/' refused for user '{user}'"
        channel = connection.channel()
        publish(channel, exchange, "k", "x")
        closes(channel, 403, text, f"publish to {named}")


@scenario(needs=["admin"])
def user_without_permissions_is_refused_the_vhost(session):
    user, credentials = app(session)
    try:
        session.connect(**credentials)
    except ConnectionClosedByBroker as error:
        expect((error.reply_code, error.reply_text), (530, f"NOT_ALLOWED - access to vhost '/' refused for user '{user}'"), "reason")
    except ProbableAccessDeniedError as error:
        expect_true(f"NOT_ALLOWED - access to vhost '/' refused for user '{user}'" in str(error), f"the reason is told: {error}")
    else:
        raise Failure("the vhost was opened")


@scenario(needs=["admin"])
def user_deleted_closes_its_connections(session):
    from .restarting import admin

    user, credentials = app(session)
    admin("allow", user, "/", ".*", ".*", ".*")
    channel = session.connect(**credentials).channel()
    admin("no-user", user)
    closes(channel, 320, f"CONNECTION_FORCED - user '{user}' is deleted", "connection", connection=True)
