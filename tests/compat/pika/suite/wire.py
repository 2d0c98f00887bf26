"""A minimal client that sends exactly the given bytes, for frames that pika would not send."""

import socket
import struct

from pika import frame, spec
from pika.spec import BasicProperties

from .session import Failure

HEADER = b"AMQP\x00\x00\x09\x01"


class Wire:
    def __init__(self, session, **more):
        self.socket = socket.create_connection((session.host, session.port), timeout=10)
        session.at_end.append(self.socket.close)
        self.buffer = b""
        self.closed = False

    def say(self, method, channel=0):
        self.socket.sendall(frame.Method(channel, method).marshal())

    def send(self, data):
        self.socket.sendall(data)

    def frame(self, kind, channel, payload):
        self.send(struct.pack(">BHL", kind, channel, len(payload)) + payload + b"\xce")

    def read(self, count):
        """`count` bytes, or fewer at the end."""
        while len(self.buffer) < count:
            try:
                data = self.socket.recv(65536)
            except ConnectionResetError:
                data = b""
            if not data:
                break
            self.buffer += data
        taken, self.buffer = self.buffer[:count], self.buffer[count:]
        return taken

    def next_raw(self):
        """Kind, channel and payload of the next frame; none at the end."""
        head = self.read(7)
        if len(head) < 7:
            return None
        kind, channel, length = struct.unpack(">BHL", head)
        payload = self.read(length + 1)
        if payload[-1:] != b"\xce":
            raise Failure(f"a frame without its end: {payload[-8:]!r}")
        return kind, channel, payload[:-1]

    def next(self):
        """The next frame as pika decodes it, heartbeats left out."""
        while True:
            raw = self.next_raw()
            if raw is None:
                return None
            kind, channel, payload = raw
            if kind == spec.FRAME_HEARTBEAT:
                continue
            data = struct.pack(">BHL", kind, channel, len(payload)) + payload + b"\xce"
            return frame.decode_frame(data)[1]

    def expect(self, kind):
        got = self.next()
        method = getattr(got, "method", None)
        if not isinstance(method, kind):
            raise Failure(f"wanted {kind.__name__}, got {got!r}")
        return method

    def start(self):
        self.send(HEADER)
        return self.expect(spec.Connection.Start)

    def login(self, mechanism="PLAIN", response=b"\0guest\0guest", capabilities=None):
        start = self.start()
        properties = {"product": "suite", "capabilities": capabilities or {"authentication_failure_close": True}}
        self.say(spec.Connection.StartOk(properties, mechanism, response, "en_US"))
        return start

    def open(self, frame_max=131072, channel_max=2047, heartbeat=0, vhost="/", **more):
        self.login(**more)
        tune = self.expect(spec.Connection.Tune)
        self.say(spec.Connection.TuneOk(channel_max, frame_max, heartbeat))
        self.say(spec.Connection.Open(vhost))
        self.expect(spec.Connection.OpenOk)
        return tune

    def open_channel(self, number=1):
        self.say(spec.Channel.Open(), number)
        self.expect(spec.Channel.OpenOk)

    def expect_close(self, code, text, channel=False):
        close = self.expect(spec.Channel.Close if channel else spec.Connection.Close)
        if (close.reply_code, close.reply_text) != (code, text):
            raise Failure(f"wanted {code} {text!r}, got {close.reply_code} {close.reply_text!r}")
        return close

    def expect_end(self):
        got = self.next()
        if got is not None:
            raise Failure(f"wanted the connection's end, got {got!r}")

    def publish(self, exchange, key, body, channel=1, headers=b"", properties=None, frame_bytes=131072 - 8):
        """`headers` is the raw property section, flags included."""
        self.say(spec.Basic.Publish(exchange=exchange, routing_key=key), channel)
        section = headers or b"".join((properties or BasicProperties()).encode())
        self.frame(spec.FRAME_HEADER, channel, struct.pack(">HHQ", 60, 0, len(body)) + section)
        for start in range(0, len(body), frame_bytes):
            self.frame(spec.FRAME_BODY, channel, body[start : start + frame_bytes])

    def content(self):
        """The content after basic.deliver or basic.get-ok: the raw property section, and the body."""
        kind, _, payload = self.next_raw()
        if kind != spec.FRAME_HEADER:
            raise Failure(f"wanted a content header, got frame type {kind}")
        size = struct.unpack(">Q", payload[4:12])[0]
        body, sizes = b"", []
        while len(body) < size:
            kind, _, part = self.next_raw()
            if kind != spec.FRAME_BODY:
                raise Failure(f"wanted a body frame, got frame type {kind}")
            body += part
            sizes.append(len(part) + 8)
        return payload[12:], body, sizes
