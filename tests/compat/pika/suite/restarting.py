"""Servers of a scenario's own, which it kills; and the state that survives.

SERVER names a program that runs a server in the foreground: SERVER DATA AMQP_PORT KAFKA_PORT [low-on-disk].
AMQP_ADMIN names one that creates vhosts, policies and users: vhost NAME, no-vhost NAME,
policy VHOST NAME PATTERN APPLY-TO DEFINITION, no-policy VHOST NAME,
user NAME PASSWORD, no-user NAME, allow NAME VHOST CONFIGURE WRITE READ.
"""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import pika
from pika.exceptions import AMQPError

from .harness import eventually, expect, expect_true, scenario
from .publishing import Confirms
from .session import Consumer, Failure, depth, drain, expect_empty, get, publish, send


def admin(*arguments):
    subprocess.run([os.environ["AMQP_ADMIN"], *arguments], check=True, stdout=subprocess.DEVNULL, timeout=60)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class OwnServer:
    def __init__(self, session, *options):
        self.session, self.options = session, options
        self.host, self.port, self.kafka_port = "127.0.0.1", free_port(), free_port()
        self.data = tempfile.mkdtemp(prefix="compat-amqp-", dir=os.environ.get("SERVER_DATA"))

    def __enter__(self):
        self.start()
        return self

    def start(self):
        with open(f"{self.data}.log", "a") as log:
            command = [os.environ["SERVER"], self.data, str(self.port), str(self.kafka_port), *self.options]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

        def serves():
            expect_true(self.process.poll() is None, f"the server ended, see {self.data}.log")
            try:
                self.connect().close()
                return True
            except (AMQPError, OSError):
                return False

        eventually(serves, 60, "the server answers")

    def kill(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)

    def connect(self, **more):
        parameters = self.session.parameters(host=self.host, port=self.port, **more)
        return pika.BlockingConnection(parameters)

    def parameters(self):
        return self.session.parameters(host=self.host, port=self.port)

    def __exit__(self, *_):
        self.kill()
        for path in (self.data, f"{self.data}.log"):
            shutil.rmtree(path, ignore_errors=True) if os.path.isdir(path) else os.unlink(path)


@scenario(slow=True, timeout=180, needs=["server"])
def kill_keeps_what_is_durable(session):
    with OwnServer(session) as server:
        channel = server.connect().channel()
        channel.exchange_declare("durable", "topic", durable=True)
        channel.exchange_declare("next", "fanout", durable=True)
        channel.exchange_bind("next", "durable", "a.#")
        channel.queue_declare("classic", durable=True, arguments={"x-max-priority": 3})
        channel.queue_declare("quorum", durable=True, arguments={"x-queue-type": "quorum"})
        channel.queue_declare("stream", durable=True, arguments={"x-queue-type": "stream"})
        channel.queue_declare("transient", durable=False)
        for queue in ("classic", "quorum", "stream", "transient"):
            channel.queue_bind(queue, "next")
        channel.exchange_declare("passing", "fanout", durable=False)
        channel.confirm_delivery()
        for number in range(50):
            publish(channel, "durable", "a.b", number, message_id=str(number), headers={"n": number}, priority=1)
        held = [get(channel, "classic", auto_ack=False) for _ in range(5)]
        channel.basic_ack(held[0].tag)
        channel.basic_reject(held[1].tag, requeue=False)
        channel.basic_ack(get(channel, "quorum", auto_ack=False).tag)
        # An acknowledgement has no reply; this later call has one. On a classic queue RabbitMQ writes both later.
        channel.queue_declare("classic", passive=True)
        time.sleep(1)
        server.kill()
        server.start()
        channel = server.connect().channel()
        channel.confirm_delivery()
        for name, count in (("classic", 48), ("quorum", 49)):
            eventually(lambda name=name, count=count: depth(channel, name) == count, 20, f"{name} has {count}")
            first = get(channel, name, auto_ack=False)
            wanted = 50 - count
            got = (first.text, first.properties.message_id, first.headers["n"])
            expect(got, (str(wanted), str(wanted), wanted), f"first of {name}")
            channel.basic_nack(first.tag)
        expect(len(drain(channel, "classic")), 48, "messages")
        publish(channel, "durable", "a.c", "after")
        expect(get(channel, "classic").text, "after", "bindings are there still")
        reader = server.connect().channel()
        reader.basic_qos(prefetch_count=100)
        stream = Consumer(reader, "stream", x_stream_offset="first").wait(51, 20)
        expect([message.text for message in stream], [*map(str, range(50)), "after"], "stream")
        for what, missing in (
            ("queue", lambda ch: ch.queue_declare("transient", passive=True)),
            ("exchange", lambda ch: ch.exchange_declare("passing", passive=True)),
        ):
            own = server.connect()
            try:
                missing(own.channel())
            except AMQPError:
                own.close()
                continue
            raise Failure(f"a {what} that is not durable is there still")


@scenario(slow=True, timeout=180, needs=["server"])
def kill_while_publishing_loses_nothing_confirmed(session):
    with OwnServer(session) as server:
        channel = server.connect().channel()
        arguments = {"x-queue-type": "quorum"}
        channel.queue_declare("q", durable=True, arguments=arguments)
        session.host, session.port = server.host, server.port
        confirms = Confirms(session)
        confirms.publish("", "q", range(20_000), delivery_mode=2)
        eventually(lambda: confirms.answers, 30, "some are confirmed")
        server.kill()
        time.sleep(0.5)
        taken = {number for number, acknowledged in confirms.outcomes().items() if acknowledged}
        server.start()
        channel = server.connect().channel()
        bodies = drain_when_ready(channel)
        lost = [number for number in taken if str(number - 1) not in bodies]
        expect(lost, [], f"numbers that were confirmed and are lost, of {len(taken)}")


def drain_when_ready(channel):
    """A queue may need a moment after a start."""
    return set(eventually(lambda: drain(channel, "q"), 30, "there is something"))


@scenario(slow=True, timeout=180, needs=["server"])
def kill_redelivers_what_was_not_acknowledged(session):
    with OwnServer(session) as server:
        channel = server.connect().channel()
        channel.confirm_delivery()
        channel.queue_declare("q", durable=True, arguments={"x-queue-type": "quorum"})
        send(channel, "q", *range(10))
        held = [get(channel, "q", auto_ack=False) for _ in range(10)]
        channel.basic_ack(held[4].tag, multiple=True)
        # Its reply comes after the acknowledgement is stored.
        channel.queue_declare("q", passive=True)
        time.sleep(1)
        server.kill()
        server.start()
        channel = server.connect().channel()
        got = [get(channel, "q", 30, auto_ack=False).text for _ in range(5)]
        # RabbitMQ may requeue them in another order.
        expect(sorted(got), ["5", "6", "7", "8", "9"], "bodies")
        expect_empty(channel, "q")
