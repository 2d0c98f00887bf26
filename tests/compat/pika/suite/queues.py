"""Queues: durability and lifetime, limits, times to live and priorities."""

import time

from pika.exceptions import NackError

from .harness import eventually, expect, expect_true, scenario
from .session import (
    Consumer,
    consumers,
    cut,
    depth,
    drain,
    expect_empty,
    get,
    get_all,
    publish,
    refused,
    send,
    stays_empty,
)


def is_gone(session, queue):
    wanted = f"NOT_FOUND - no queue '{queue}' in vhost '/'"
    channel = session.connection().channel()
    try:
        channel.queue_declare(queue, passive=True)
    except Exception as closed:
        if getattr(closed, "reply_code", 0) == 405:
            return False  # it is another connection's, still
        if getattr(closed, "reply_text", "") != wanted:
            raise
        return True
    channel.close()
    return False


@scenario()
def queue_named_by_the_server(session):
    channel = session.channel()
    names = [channel.queue_declare("", exclusive=True).method.queue for _ in range(3)]
    expect_true(all(name.startswith("amq.gen-") for name in names) and len(set(names)) == 3, f"names: {names}")
    send(channel, names[0], "x")
    expect(get_all(channel, names[0], 1), ["x"], "messages")
    text = "ACCESS_REFUSED - queue name 'amq.mine' contains reserved prefix 'amq.*'"
    refused(403, text, lambda: session.channel().queue_declare("amq.mine"), "a reserved name")
    expect(channel.queue_declare(names[0], passive=True).method.queue, names[0], "passive")


@scenario()
def queue_counts(session):
    channel = session.channel(confirms=True)
    queue = session.queue(channel)
    send(channel, queue, *range(5))
    declared = channel.queue_declare(queue, durable=True).method
    expect((declared.queue, declared.message_count, declared.consumer_count), (queue, 5, 0), "declare-ok")
    other = session.connect().channel()
    other.basic_qos(prefetch_count=2)
    consumer = Consumer(other, queue)
    consumer.wait(2)
    expect((depth(channel, queue), consumers(channel, queue)), (3, 1), "ready messages, consumers")


@scenario()
def queue_exclusive(session):
    connection = session.connect()
    channel = connection.channel()
    queue = session.queue(channel, exclusive=True, durable=False)
    send(channel, queue, "x")
    expect(get_all(connection.channel(), queue, 1), ["x"], "another channel of its connection")
    text = (
        f"RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '{queue}' in vhost '/'. It could be originally declared "
        "on another connection or the exclusive property value does not match that of the original declaration."
    )
    other = session.connect()
    for what, action in (
        ("declare", lambda ch: ch.queue_declare(queue, exclusive=True)),
        ("passive", lambda ch: ch.queue_declare(queue, passive=True)),
        ("consume", lambda ch: Consumer(ch, queue)),
        ("get", lambda ch: ch.basic_get(queue)),
        ("bind", lambda ch: ch.queue_bind(queue, "amq.direct", "k")),
        ("purge", lambda ch: ch.queue_purge(queue)),
        ("delete", lambda ch: ch.queue_delete(queue)),
    ):
        refused(405, text, lambda action=action: action(other.channel()), what)
    publish(other.channel(), "", queue, "anybody may publish")
    expect(get(channel, queue).text, "anybody may publish", "message")
    connection.close()
    expect(is_gone(session, queue), True, "gone when the connection is closed")


@scenario()
def queue_exclusive_goes_with_a_lost_connection(session):
    other = session.connect()
    queue = session.queue(other.channel(), exclusive=True)
    cut(other)
    eventually(lambda: is_gone(session, queue), 10, "it is gone")


@scenario()
def queue_auto_delete(session):
    connection = session.connect()
    channel = connection.channel()
    queue = session.queue(channel, auto_delete=True)
    send(channel, queue, "x")
    expect(get(channel, queue).text, "x", "a get deletes nothing")
    one, two = Consumer(channel, queue), Consumer(channel, queue)
    channel.basic_cancel(one.tag)
    expect(consumers(channel, queue), 1, "consumers")
    channel.basic_cancel(two.tag)
    expect(is_gone(session, queue), True, "gone with its last consumer")
    queue = session.queue(channel, "second", auto_delete=True)
    own = connection.channel()
    Consumer(own, queue)
    own.close()
    eventually(lambda: is_gone(session, queue), 10, "gone with its consumer's channel")


@scenario()
def queue_declared_again(session):
    connection = session.connect()
    channel = connection.channel()
    queue = session.queue(channel, x_message_ttl=60_000, x_max_length=10)
    arguments = {"x-message-ttl": 60_000, "x-max-length": 10}
    channel.queue_declare(queue, durable=True, arguments=arguments)
    where = f"for queue '{queue}' in vhost '/'"
    for what, text, settings in (
        ("durable", "inequivalent arg 'durable' %s: received 'false' but current is 'true'", {"durable": False}),
        ("auto_delete", "inequivalent arg 'auto_delete' %s: received 'true' but current is 'false'", {"auto_delete": True}),
        (
            "x-message-ttl",
            "inequivalent arg 'x-message-ttl' %s: received '1' but current is '60000'",
            {"arguments": arguments | {"x-message-ttl": 1}},
        ),
        (
            "x-max-length",
            "inequivalent arg 'x-max-length' %s: received none but current is the value '10' of type 'signedint'",
            {"arguments": {"x-message-ttl": 60_000}},
        ),
        (
            "x-max-priority",
            "inequivalent arg 'x-max-priority' %s: received the value '3' of type 'signedint' but current is none",
            {"arguments": arguments | {"x-max-priority": 3}},
        ),
        (
            "x-queue-type",
            "inequivalent arg 'x-queue-type' %s: received 'quorum' but current is 'classic'",
            {"arguments": arguments | {"x-queue-type": "quorum"}},
        ),
    ):
        settings = {"durable": True, "arguments": arguments} | settings
        text = f"PRECONDITION_FAILED - {text % where}"
        refused(406, text, lambda settings=settings: connection.channel().queue_declare(queue, **settings), what)
    locked = (
        f"RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '{queue}' in vhost '/'. It could be originally declared "
        "on another connection or the exclusive property value does not match that of the original declaration."
    )
    refused(405, locked, lambda: connection.channel().queue_declare(queue, durable=True, exclusive=True, arguments=arguments), "exclusive")


WRONG_ARGUMENTS = (
    ({"x-message-ttl": "60"}, 'invalid arg \'x-message-ttl\' %s: "expected integer, got longstr"'),
    ({"x-message-ttl": -1}, "invalid arg 'x-message-ttl' %s: {value_negative,-1}"),
    ({"x-expires": 0}, "invalid arg 'x-expires' %s: {value_zero,0}"),
    ({"x-expires": -1}, "invalid arg 'x-expires' %s: {value_negative,-1}"),
    ({"x-max-length": -1}, "invalid arg 'x-max-length' %s: {value_negative,-1}"),
    ({"x-max-length-bytes": True}, 'invalid arg \'x-max-length-bytes\' %s: "expected integer, got bool"'),
    ({"x-max-priority": 256}, "invalid arg 'x-max-priority' %s: {max_value_exceeded,256}"),
    ({"x-max-priority": -1}, "invalid arg 'x-max-priority' %s: {value_negative,-1}"),
    ({"x-overflow": "explode"}, "invalid arg 'x-overflow' %s: invalid_overflow"),
    ({"x-dead-letter-exchange": 1}, None),
    ({"x-dead-letter-routing-key": "k"}, "invalid arg 'x-dead-letter-routing-key' %s: routing_key_but_no_dlx_defined"),
    ({"x-queue-type": "fast"}, "invalid arg 'x-queue-type' %s: \"unsupported queue type 'fast'\""),
    ({"x-queue-mode": "eager"}, "invalid arg 'x-queue-mode' %s: \"unsupported queue mode 'eager'\""),
    ({"x-single-active-consumer": "yes"}, "invalid arg 'x-single-active-consumer' %s: {unacceptable_type,longstr}"),
    ({"x-queue-type": "quorum", "x-max-priority": 3}, "invalid arg 'x-max-priority' %s of queue type rabbit_quorum_queue"),
    ({"x-max-age": "1D"}, "invalid arg 'x-max-age' %s of queue type rabbit_classic_queue"),
    ({"x-queue-type": "stream", "x-message-ttl": 1}, "invalid arg 'x-message-ttl' %s of queue type rabbit_stream_queue"),
    ({"x-queue-type": "stream", "x-max-age": "5x"}, "invalid arg 'x-max-age' %s: invalid_max_age"),
)


@scenario()
def queue_arguments_refused(session):
    connection = session.connect()
    queue = session.unique()
    for arguments, text in WRONG_ARGUMENTS:
        if text is None:
            text = f"PRECONDITION_FAILED - invalid type 'signedint' for arg 'x-dead-letter-exchange' in queue '{queue}' in vhost '/'"
        else:
            where = f"for queue '{queue}' in vhost '/'"
            text = f"PRECONDITION_FAILED - {text % where}"
        refused(406, text, lambda arguments=arguments: connection.channel().queue_declare(queue, durable=True, arguments=arguments), str(arguments))
    expect(is_gone(session, queue), True, "and no queue was made")


@scenario()
def queue_properties_refused(session):
    connection = session.connect()
    queue = session.unique()
    for kind in ("quorum", "stream"):
        arguments = {"x-queue-type": kind}
        for what, settings in (
            ("non-durable", {"durable": False}),
            ("auto-delete", {"durable": True, "auto_delete": True}),
            ("exclusive-owner", {"durable": True, "exclusive": True}),
        ):
            text = f"PRECONDITION_FAILED - invalid property '{what}' for queue '{queue}' in vhost '/'"
            if kind == "quorum" and what == "auto-delete":
                continue  # RabbitMQ 4 takes it
            refused(406, text, lambda settings=settings: connection.channel().queue_declare(queue, arguments=arguments, **settings), f"{kind} {what}")
        module = f"rabbit_{kind}_queue"
        text = f"PRECONDITION_FAILED - Cannot declare a server-named queue for type {module}"
        refused(406, text, lambda: connection.channel().queue_declare("", durable=True, arguments=arguments), f"{kind} without a name")


@scenario()
def queue_arguments_of_long_ago_are_taken(session):
    channel = session.channel()
    session.queue(channel, "lazy", x_queue_mode="lazy")
    session.queue(channel, "version", x_queue_version=2)
    session.queue(channel, "unknown", x_something_else="anything")


@scenario()
def queue_not_durable(session):
    channel = session.channel()
    queue = session.queue(channel, durable=False)
    send(channel, queue, "x")
    expect(get_all(channel, queue, 1), ["x"], "messages")


@scenario()
def queue_purge(session):
    channel = session.channel(confirms=True)
    queue = session.queue(channel)
    send(channel, queue, *range(10))
    held = get(channel, queue, auto_ack=False)
    expect(channel.queue_purge(queue).method.message_count, 9, "messages")
    expect(channel.queue_purge(queue).method.message_count, 0, "messages, again")
    channel.basic_nack(held.tag, requeue=True)
    expect(get_all(channel, queue, 1), ["0"], "what was not acknowledged is not purged")
    send(channel, queue, "x")
    expect(get_all(channel, queue, 1), ["x"], "and it goes on")


@scenario()
def queue_delete(session):
    channel = session.channel(confirms=True)
    queue = session.queue(channel)
    send(channel, queue, *range(3))
    expect(channel.queue_delete(queue).method.message_count, 3, "messages")
    expect(channel.queue_delete(queue).method.message_count, 0, "what is not there is deleted already")
    queue = session.queue(channel)
    expect(depth(channel, queue), 0, "a new one of the same name is empty")


@scenario()
def queue_delete_conditions(session):
    connection = session.connect()
    channel = connection.channel()
    channel.confirm_delivery()
    queue = session.queue(channel)
    send(channel, queue, "x")
    where = f"queue '{queue}' in vhost '/'"
    refused(406, f"PRECONDITION_FAILED - {where} not empty", lambda: connection.channel().queue_delete(queue, if_empty=True))
    own = connection.channel()
    Consumer(own, queue)
    refused(406, f"PRECONDITION_FAILED - {where} in use", lambda: connection.channel().queue_delete(queue, if_unused=True))
    own.close()
    get(channel, queue)
    channel.queue_delete(queue, if_unused=True, if_empty=True)
    expect(is_gone(session, queue), True, "gone")


@scenario(slow=True)
def message_ttl_of_a_queue(session):
    for kind in ("classic", "quorum"):
        channel = session.channel(confirms=True)
        queue = session.queue(channel, kind, x_message_ttl=500, x_queue_type=kind)
        send(channel, queue, "a")
        expect(get(channel, queue).text, "a", f"{kind}: in time")
        send(channel, queue, "b", "c")
        time.sleep(1)
        expect_empty(channel, queue)
        eventually(lambda: depth(channel, queue) == 0, 5, f"{kind}: depth is 0")


@scenario(slow=True)
def message_ttl_of_a_message(session):
    for kind in ("classic", "quorum"):
        channel = session.channel(confirms=True)
        queue = session.queue(channel, kind, x_queue_type=kind)
        publish(channel, "", queue, "short", expiration="300")
        publish(channel, "", queue, "long", expiration="60000")
        publish(channel, "", queue, "none")
        time.sleep(0.7)
        first = get(channel, queue)
        expect((first.text, first.properties.expiration), ("long", "60000"), f"{kind}: message")
        expect(get_all(channel, queue, 1), ["none"], f"{kind}: the last")


@scenario(slow=True)
def message_ttl_the_shorter_counts(session):
    channel = session.channel(confirms=True)
    queue = session.queue(channel, x_message_ttl=400)
    publish(channel, "", queue, "long by itself", expiration="60000")
    time.sleep(0.9)
    expect_empty(channel, queue)
    queue = session.queue(channel, "second", x_message_ttl=60_000)
    publish(channel, "", queue, "short by itself", expiration="300")
    time.sleep(0.7)
    expect_empty(channel, queue)


@scenario(slow=True)
def message_ttl_of_what_is_not_acknowledged(session):
    """An unacknowledged message does not expire; a requeued one does."""
    connection = session.connect()
    channel = connection.channel()
    queue = session.queue(channel, x_message_ttl=500)
    send(channel, queue, "a", "b")
    consumer = Consumer(channel, queue)
    first, second = consumer.wait(2)
    time.sleep(1)
    channel.basic_ack(first.tag)
    channel.basic_cancel(consumer.tag)
    channel.basic_nack(second.tag, requeue=True)
    stays_empty(channel, queue, 0.3)


@scenario()
def message_ttl_zero(session):
    """A message with a time to live of 0 reaches only a consumer that is already waiting."""
    connection = session.connect()
    channel = connection.channel()
    channel.confirm_delivery()
    queue = session.queue(channel)
    publish(channel, "", queue, "nobody", expiration="0")
    expect_empty(channel, queue)
    consumer = Consumer(channel, queue, auto_ack=True)
    publish(channel, "", queue, "somebody", expiration="0")
    expect(consumer.wait_bodies(1), ["somebody"], "message")
    queue = session.queue(channel, "second", x_message_ttl=0)
    send(channel, queue, "nobody")
    expect_empty(channel, queue)


@scenario(slow=True)
def queue_expires(session):
    channel = session.channel()
    queue = session.queue(channel, x_expires=1000)
    send(channel, queue, "x")
    for _ in range(4):
        time.sleep(0.5)
        channel.queue_declare(queue, durable=True, arguments={"x-expires": 1000})
    # A new declaration restarts the timer; an unused queue is deleted with its messages.
    eventually(lambda: is_gone_after(session, queue, 1.6), 12, "it is gone")


def is_gone_after(session, queue, seconds):
    """A passive declare counts as use, so it must not be repeated too often."""
    time.sleep(seconds)
    return is_gone(session, queue)


@scenario(slow=True)
def queue_expires_not_while_it_is_consumed(session):
    connection = session.connect()
    channel = connection.channel()
    queue = session.queue(channel, x_expires=700)
    consumer = Consumer(channel, queue, auto_ack=True)
    consumer.stays(0, 2)
    send(channel, queue, "x")
    expect(consumer.wait_bodies(1), ["x"], "message")
    channel.basic_cancel(consumer.tag)
    time.sleep(1.5)
    eventually(lambda: is_gone_after(session, queue, 1), 12, "gone once nobody consumes it")


@scenario()
def max_length_drops_the_oldest(session):
    for kind in ("classic", "quorum"):
        channel = session.channel(confirms=True)
        queue = session.queue(channel, kind, x_max_length=3, x_queue_type=kind)
        send(channel, queue, *range(10))
        eventually(lambda: depth(channel, queue) == 3, 5, f"{kind}: depth is 3")
        expect(get_all(channel, queue, 3), ["7", "8", "9"], f"{kind}: the newest")


@scenario()
def max_length_counts_ready_messages_only(session):
    channel = session.channel(confirms=True)
    queue = session.queue(channel, x_max_length=2)
    send(channel, queue, "a", "b")
    held = get(channel, queue, auto_ack=False)
    send(channel, queue, "c")
    expect(depth(channel, queue), 2, "what is not acknowledged does not count")
    send(channel, queue, "d")
    expect(get_all(channel, queue, 2), ["c", "d"], "messages")
    channel.basic_ack(held.tag)


@scenario()
def max_length_zero(session):
    channel = session.channel(confirms=True)
    queue = session.queue(channel, x_max_length=0)
    send(channel, queue, "lost")
    expect_empty(channel, queue)
    consumer = Consumer(channel, queue, auto_ack=True)
    send(channel, queue, "handed on")
    expect(consumer.wait_bodies(1), ["handed on"], "message")


@scenario()
def max_length_bytes(session):
    for kind in ("classic", "quorum"):
        channel = session.channel(confirms=True)
        queue = session.queue(channel, kind, x_max_length_bytes=2500, x_queue_type=kind)
        for number in range(10):
            send(channel, queue, f"{number}" * 1000)
        bodies = [body[0] for body in drain(channel, queue)]
        expect_true(bodies in (["8", "9"], ["9"]) and len(bodies) > 0, f"{kind}: the newest that fit: {bodies}")


@scenario()
def max_length_bytes_rejects(session):
    channel = session.channel(confirms=True)
    queue = session.queue(channel, x_max_length_bytes=2500, x_overflow="reject-publish")
    taken = 0
    for number in range(10):
        try:
            send(channel, queue, f"{number}" * 1000)
            taken += 1
        except NackError:
            pass
    expect_true(2 <= taken <= 3, f"taken: {taken}")
    expect([body[0] for body in drain(channel, queue)], ["0", "1", "2"][:taken], "the oldest")


@scenario()
def overflow_reject_of_a_quorum_queue(session):
    channel = session.channel()
    queue = session.queue(channel, x_queue_type="quorum", x_max_length=5, x_overflow="reject-publish")
    publisher = session.channel(confirms=True)
    refusals = 0
    for number in range(30):
        try:
            send(publisher, queue, number)
        except NackError:
            refusals += 1
    # A quorum queue may accept a few messages above its limit.
    expect_true(15 <= refusals <= 25, f"refused: {refusals}")
    expect(drain(channel, queue), [str(number) for number in range(30 - refusals)], "the oldest")


@scenario()
def overflow_rejects_and_buries(session):
    channel = session.channel(confirms=True)
    graves = session.queue(channel, "graves")
    queue = session.queue(
        channel, x_max_length=2, x_overflow="reject-publish-dlx", x_dead_letter_exchange="", x_dead_letter_routing_key=graves
    )
    refusals = []
    for number in range(4):
        try:
            send(channel, queue, number)
        except NackError:
            refusals.append(number)
    expect(refusals, [2, 3], "refused")
    expect(get_all(channel, queue, 2), ["0", "1"], "taken")
    for number in (2, 3):
        message = get(channel, graves)
        expect((message.text, message.headers["x-death"][0]["reason"]), (str(number), "maxlen"), "buried")


@scenario()
def priorities(session):
    channel = session.channel(confirms=True)
    queue = session.queue(channel, x_max_priority=5)
    for body, priority in (("a", None), ("b", 3), ("c", 1), ("d", 3), ("e", 5), ("f", 0), ("g", 200)):
        publish(channel, "", queue, body, priority=priority)
    # A priority above the maximum counts as the highest, a missing one as the lowest.
    expect(get_all(channel, queue, 7), ["e", "g", "b", "d", "c", "a", "f"], "order")


@scenario()
def priorities_of_what_comes_back(session):
    channel = session.channel(confirms=True)
    queue = session.queue(channel, x_max_priority=2)
    publish(channel, "", queue, "low", priority=0)
    publish(channel, "", queue, "high", priority=2)
    held = get(channel, queue, auto_ack=False)
    expect(held.text, "high", "first")
    publish(channel, "", queue, "middle", priority=1)
    channel.basic_nack(held.tag, requeue=True)
    expect(get_all(channel, queue, 3), ["high", "middle", "low"], "order")


@scenario()
def priorities_while_it_is_consumed(session):
    connection = session.connect()
    channel = connection.channel()
    queue = session.queue(channel, x_max_priority=10)
    channel.basic_qos(prefetch_count=1)
    consumer = Consumer(channel, queue)
    publish(channel, "", queue, "first", priority=0)
    (message,) = consumer.wait(1)
    for priority in (2, 9, 5, 9):
        publish(channel, "", queue, priority, priority=priority)
    connection.process_data_events(0.3)
    order = []
    for _ in range(4):
        channel.basic_ack(message.tag)
        (message,) = consumer.wait(1)
        order.append(message.text)
    expect(order, ["9", "9", "5", "2"], "order")


@scenario()
def priorities_mean_nothing_without_the_argument(session):
    channel = session.channel(confirms=True)
    queue = session.queue(channel)
    for body, priority in (("a", 1), ("b", 9), ("c", None)):
        publish(channel, "", queue, body, priority=priority)
    expect(get_all(channel, queue, 3), ["a", "b", "c"], "order")


@scenario(timeout=60)
def many_queues(session):
    connection = session.connect()
    channel = connection.channel()
    channel.confirm_delivery()
    queues = [session.queue(channel, f"q{index}", durable=False, exclusive=True) for index in range(300)]
    exchange = session.exchange(channel, "fanout")
    for queue in queues:
        channel.queue_bind(queue, exchange)
    publish(channel, exchange, "", "to all")
    for queue in queues:
        expect(get(channel, queue).text, "to all", queue)
    session.queues.clear()
    connection.close()
    eventually(lambda: is_gone(session, queues[-1]) and is_gone(session, queues[0]), 20, "all go with their connection")


@scenario()
def names_of_any_kind(session):
    channel = session.channel(confirms=True)
    for suffix in ("with space", "ünïcode ✓", "a/b\\c", "dots.and_under-scores", "#*?", "x" * 150, "tab\there"):
        queue = session.queue(channel, suffix)
        exchange = session.exchange(channel, "direct", suffix)
        channel.queue_bind(queue, exchange, suffix)
        publish(channel, exchange, suffix, "x")
        message = get(channel, queue)
        expect((message.method.exchange, message.method.routing_key), (exchange, suffix), "exchange and routing key")
    one, two = session.queue(channel, "a.b"), session.queue(channel, "a_b")
    send(channel, one, "dot")
    send(channel, two, "underscore")
    expect((get_all(channel, one, 1), get_all(channel, two, 1)), (["dot"], ["underscore"]), "names that differ little")


@scenario(needs=["admin"])
def policies_by_name_pattern(session):
    from .restarting import admin

    channel = session.channel(confirms=True)
    graves = session.queue(channel, "graves")
    before = session.queue(channel, "mine-before")
    other = session.queue(channel, "other")
    name = session.unique("policy")
    pattern = f"^{session.unique('mine')}"
    definition = f'{{"max-length": 2, "dead-letter-exchange": "", "dead-letter-routing-key": "{graves}"}}'
    session.at_end.append(lambda: admin("no-policy", "/", name))
    admin("policy", "/", name, pattern, "queues", definition)
    after = session.queue(channel, "mine-after")
    for queue in (before, after, other):
        send(channel, queue, *range(4))
    for queue in (before, after):
        expect(get_all(channel, queue, 2), ["2", "3"], queue)
        expect([get(channel, graves).text for _ in range(2)], ["0", "1"], f"dead letters of {queue}")
    expect(get_all(channel, other, 4), ["0", "1", "2", "3"], "a queue that it does not fit")
    admin("no-policy", "/", name)
    send(channel, before, *range(4))
    expect(get_all(channel, before, 4), ["0", "1", "2", "3"], "without the policy")


@scenario()
def declare_by_several_at_once(session):
    connections = [session.connect() for _ in range(4)]
    queue = session.unique()
    session.queues.append(queue)
    for _ in range(10):
        for connection in connections:
            connection.channel().queue_declare(queue, durable=True)
    channel = connections[0].channel()
    for _ in range(20):
        channel.queue_delete(queue)
        channel.queue_declare(queue, durable=True)
        send(channel, queue, "x")
        expect(get_all(channel, queue, 1), ["x"], "messages")
