"""Resources of one scenario: connections that are closed after it, and unique names."""

import socket
import time

import pika
from pika.exceptions import AMQPError, ChannelClosedByBroker, ConnectionClosedByBroker

SECONDS = 10


class Failure(AssertionError):
    pass


class Session:
    def __init__(self, address, name, run_id):
        self.host, port = address.rsplit(":", 1)
        self.port = int(port)
        self.name, self.run_id = name, run_id
        self.connections = []
        self.queues, self.exchanges = [], []
        self.main = None
        self.at_end = []

    def parameters(self, **more):
        settings = {
            "host": self.host,
            "port": self.port,
            "credentials": pika.PlainCredentials("guest", "guest"),
            "heartbeat": 0,
            "socket_timeout": SECONDS,
            "blocked_connection_timeout": 60,
        }
        return pika.ConnectionParameters(**settings | more)

    def connect(self, **more):
        connection = pika.BlockingConnection(self.parameters(**more))
        self.connections.append(connection)
        return connection

    def connection(self):
        if self.main is None or not self.main.is_open:
            self.main = self.connect()
        return self.main

    def channel(self, confirms=False):
        channel = self.connection().channel()
        if confirms:
            channel.confirm_delivery()
        return channel

    def unique(self, suffix="q"):
        return f"pika-{self.name}-{self.run_id}-{suffix}"

    def queue(self, channel, suffix="q", durable=True, exclusive=False, auto_delete=False, **arguments):
        """Declares a queue; `x_max_length` is the argument `x-max-length`."""
        name = self.unique(suffix)
        self.queues.append(name)
        channel.queue_declare(name, durable=durable, exclusive=exclusive, auto_delete=auto_delete, arguments=dashed(arguments))
        return name

    def exchange(self, channel, kind, suffix="x", durable=True, auto_delete=False, internal=False, **arguments):
        name = self.unique(suffix)
        self.exchanges.append(name)
        channel.exchange_declare(name, kind, durable=durable, auto_delete=auto_delete, internal=internal, arguments=dashed(arguments))
        return name

    def bound(self, channel, exchange, key="", suffix="q", arguments=None, **queue_arguments):
        """A queue that is bound to an exchange."""
        name = self.queue(channel, suffix, **queue_arguments)
        channel.queue_bind(name, exchange, key, arguments)
        return name

    def close(self):
        for action in self.at_end:
            action()
        try:
            channel = self.connect().channel()
            for name in self.queues:
                channel.queue_delete(name)
            for name in self.exchanges:
                channel.exchange_delete(name)
        except (AMQPError, OSError):
            pass  # a queue of another connection, or a server that is gone
        for connection in self.connections:
            try:
                if connection.is_open:
                    connection.close()
            except (AMQPError, OSError, ValueError):
                pass


def dashed(arguments):
    return {name.replace("_", "-"): value for name, value in arguments.items()} or None


def cut(connection):
    """Ends a connection as a crash would: no close, no goodbye."""
    connection._impl._transport._sock.shutdown(socket.SHUT_RDWR)


def publish(channel, exchange, key, body=b"", mandatory=False, **properties):
    properties.setdefault("delivery_mode", 2)
    channel.basic_publish(exchange, key, as_bytes(body), pika.BasicProperties(**properties), mandatory)


def send(channel, queue, *bodies, **properties):
    for body in bodies:
        publish(channel, "", queue, body, **properties)


def as_bytes(body):
    return body if isinstance(body, bytes) else str(body).encode()


class Message:
    def __init__(self, method, properties, body):
        self.method, self.properties, self.body = method, properties, body
        self.text = body.decode(errors="replace")
        self.tag = method.delivery_tag
        self.redelivered = method.redelivered
        self.headers = properties.headers or {}


def get(channel, queue, seconds=SECONDS, auto_ack=True):
    """The next message; it must arrive within the time."""
    end = time.monotonic() + seconds
    while True:
        method, properties, body = channel.basic_get(queue, auto_ack=auto_ack)
        if method:
            return Message(method, properties, body)
        if time.monotonic() > end:
            raise Failure(f"no message in {queue} within {seconds} s")
        time.sleep(0.02)


def get_all(channel, queue, count, seconds=SECONDS):
    """The bodies of the next `count` messages, and that there are no more."""
    bodies = [get(channel, queue, seconds).text for _ in range(count)]
    expect_empty(channel, queue)
    return bodies


def expect_empty(channel, queue):
    method, _, body = channel.basic_get(queue, auto_ack=True)
    if method:
        raise Failure(f"{queue} should be empty and has {body[:80]!r}")


def drain(channel, queue):
    """The bodies of all messages in the queue."""
    bodies = []
    while True:
        method, _, body = channel.basic_get(queue, auto_ack=True)
        if not method:
            return bodies
        bodies.append(body.decode())


def stays_empty(channel, queue, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        expect_empty(channel, queue)
        time.sleep(0.05)


def depth(channel, queue):
    """RabbitMQ may reply before it has processed recent publishes of the channel."""
    return channel.queue_declare(queue, passive=True).method.message_count


def consumers(channel, queue):
    return channel.queue_declare(queue, passive=True).method.consumer_count


class Consumer:
    """Collects the deliveries of one consumer; never acknowledges by itself."""

    def __init__(self, channel, queue, auto_ack=False, exclusive=False, tag=None, **arguments):
        self.channel, self.messages, self.cancelled = channel, [], False
        channel.add_on_cancel_callback(self.on_cancel)
        self.tag = channel.basic_consume(
            queue,
            lambda _channel, method, properties, body: self.messages.append(Message(method, properties, body)),
            auto_ack,
            exclusive,
            tag,
            dashed(arguments),
        )

    def on_cancel(self, frame):
        if frame.method.consumer_tag == self.tag:
            self.cancelled = True

    def pump(self, seconds=0.0):
        self.channel.connection.process_data_events(seconds)

    def wait(self, count, seconds=SECONDS):
        """Waits for `count` messages that were not taken yet, and takes them."""
        end = time.monotonic() + seconds
        while len(self.messages) < count:
            self.pump(0.05)
            if time.monotonic() > end:
                raise Failure(f"{len(self.messages)} of {count} deliveries within {seconds} s: {self.bodies()}")
        taken, self.messages = self.messages[:count], self.messages[count:]
        return taken

    def wait_bodies(self, count, seconds=SECONDS):
        return [message.text for message in self.wait(count, seconds)]

    def stays(self, count, seconds=0.5):
        """Checks that only the `count` messages that have arrived already are delivered."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.pump(0.05)
            if len(self.messages) > count:
                raise Failure(f"{len(self.messages)} deliveries, but no more than {count} should come: {self.bodies()}")

    def bodies(self):
        return [message.text for message in self.messages[:10]]

    def until_cancelled(self, seconds=SECONDS):
        end = time.monotonic() + seconds
        while not self.cancelled:
            self.pump(0.05)
            if time.monotonic() > end:
                raise Failure(f"consumer {self.tag} is not cancelled within {seconds} s")


def refused(code, text, action, what="", connection=False):
    """Runs `action`, which must close the channel, or the connection, with `code` and `text`."""
    wanted = ConnectionClosedByBroker if connection else ChannelClosedByBroker
    try:
        result = action()
    except (ChannelClosedByBroker, ConnectionClosedByBroker) as closed:
        got = f"{type(closed).__name__} {closed.reply_code} {closed.reply_text}"
        if not (isinstance(closed, wanted) and closed.reply_code == code and closed.reply_text == text):
            raise Failure(f"{what}: wanted {wanted.__name__} {code} {text!r}, got {got!r}") from closed
        return
    raise Failure(f"{what}: wanted {code} {text!r}, got {result!r}")


def closes(channel, code, text, what="", connection=False, seconds=SECONDS):
    """The server must close the channel, or the connection, of its own accord."""

    def wait():
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            channel.connection.process_data_events(0.05)
            if not channel.is_open:
                # pika reports the reason only to a call in progress.
                raise channel._closing_reason
        raise Failure(f"{what}: wanted {code} {text!r}, nothing happened for {seconds} s")

    refused(code, text, wait, what, connection)
