"""Request and reply: direct reply-to, and queues of one's own."""

import threading

from pika import spec

from .harness import expect, expect_true, scenario
from .session import Consumer, cut, get, publish, refused, send
from .wire import Wire

REPLY_TO = "amq.rabbitmq.reply-to"


@scenario()
def direct_reply_to(session):
    connection = session.connect()
    client = connection.channel()
    queue = session.queue(client)
    replies = Consumer(client, REPLY_TO, auto_ack=True)
    server = session.connect().channel()
    for number in range(20):
        publish(client, "", queue, number, reply_to=REPLY_TO, correlation_id=str(number))
        request = get(server, queue)
        name = request.properties.reply_to
        expect_true(name.startswith(f"{REPLY_TO}."), f"reply_to {name}")
        publish(server, "", name, f"reply {number}", correlation_id=request.properties.correlation_id, headers={"a": 1})
        (reply,) = replies.wait(1)
        got = (reply.text, reply.properties.correlation_id, reply.headers, reply.redelivered)
        expect(got, (f"reply {number}", str(number), {"a": 1}, False), "reply")
        expect((reply.method.exchange, reply.method.routing_key), ("", name), "exchange and routing key")


@scenario()
def direct_reply_to_of_many_clients(session):
    queue = session.queue(session.channel())
    server = session.connect()
    own = server.channel()
    answered = threading.Event()

    def answer(channel, method, properties, body):
        publish(channel, "", properties.reply_to, b"re: " + body, correlation_id=properties.correlation_id)
        channel.basic_ack(method.delivery_tag)

    own.basic_consume(queue, answer)

    def serve():
        while not answered.is_set():
            server.process_data_events(0.05)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        clients = []
        for _ in range(10):
            channel = session.connect().channel()
            clients.append((channel, Consumer(channel, REPLY_TO, auto_ack=True)))
        for index, (channel, _) in enumerate(clients):
            for number in range(10):
                publish(channel, "", queue, f"{index}-{number}", reply_to=REPLY_TO)
        for index, (_, replies) in enumerate(clients):
            expect(replies.wait_bodies(10, 20), [f"re: {index}-{number}" for number in range(10)], f"replies to client {index}")
    finally:
        answered.set()
        thread.join(5)


@scenario()
def direct_reply_to_with_a_large_body(session):
    client = session.connect().channel()
    queue = session.queue(client)
    replies = Consumer(client, REPLY_TO, auto_ack=True)
    publish(client, "", queue, "x", reply_to=REPLY_TO)
    server = session.connect().channel()
    body = bytes(range(256)) * 4000
    publish(server, "", get(server, queue).properties.reply_to, body)
    expect_true(replies.wait(1)[0].body == body, "the reply is whole")


@scenario()
def direct_reply_to_refused(session):
    connection = session.connect()
    text = "PRECONDITION_FAILED - reply consumer cannot acknowledge"
    refused(406, text, lambda: Consumer(connection.channel(), REPLY_TO), "a consumer that acknowledges")
    channel = connection.channel()
    Consumer(channel, REPLY_TO, auto_ack=True)
    refused(406, "PRECONDITION_FAILED - reply consumer already set", lambda: Consumer(channel, REPLY_TO, auto_ack=True), "a second one")
    channel = connection.channel()
    channel.confirm_delivery()
    text = "PRECONDITION_FAILED - fast reply consumer does not exist"
    refused(406, text, lambda: publish(channel, "", "q", "x", reply_to=REPLY_TO), "a request without a consumer")


@scenario()
def direct_reply_to_somebody_who_is_gone(session):
    other = session.connect()
    client = other.channel()
    queue = session.queue(session.channel())
    Consumer(client, REPLY_TO, auto_ack=True)
    publish(client, "", queue, "x", reply_to=REPLY_TO)
    server = session.connect().channel()
    name = get(server, queue).properties.reply_to
    expect(server.queue_declare(name, passive=True).method.queue, name, "it is there")
    client.close()
    cut(other)
    channel = session.channel()
    refused(404, f"NOT_FOUND - no queue '{name}' in vhost '/'", lambda: channel.queue_declare(name, passive=True), "it is gone")
    # A reply without a recipient is dropped.
    publish(server, "", name, "late")
    send(server, queue, "the channel goes on")
    expect(get(server, queue).text, "the channel goes on", "message")


@scenario()
def direct_reply_to_cancelled(session):
    client = session.connect().channel()
    first = Consumer(client, REPLY_TO, auto_ack=True)
    client.basic_cancel(first.tag)
    again = Consumer(client, REPLY_TO, auto_ack=True)
    queue = session.queue(client)
    publish(client, "", queue, "x", reply_to=REPLY_TO)
    server = session.connect().channel()
    publish(server, "", get(server, queue).properties.reply_to, "y")
    expect(again.wait_bodies(1), ["y"], "reply")


@scenario()
def replies_by_a_queue_of_ones_own(session):
    client = session.connect().channel()
    own = client.queue_declare("", exclusive=True, auto_delete=True).method.queue
    queue = session.queue(client)
    replies = Consumer(client, own, auto_ack=True)
    server = session.connect().channel()
    for number in range(10):
        publish(client, "", queue, number, reply_to=own, correlation_id=f"c{number}")
        request = get(server, queue)
        publish(server, "", request.properties.reply_to, f"re {request.text}", correlation_id=request.properties.correlation_id)
        (reply,) = replies.wait(1)
        expect((reply.text, reply.properties.correlation_id), (f"re {number}", f"c{number}"), "reply")


@scenario()
def direct_reply_to_cannot_be_bound(session):
    wire = Wire(session)
    wire.open()
    wire.open_channel()
    wire.say(spec.Basic.Consume(queue=REPLY_TO, no_ack=True), 1)
    wire.expect(spec.Basic.ConsumeOk)
    wire.say(spec.Queue.Declare(queue=REPLY_TO, passive=True), 1)
    expect(wire.expect(spec.Queue.DeclareOk).queue, REPLY_TO, "queue")
