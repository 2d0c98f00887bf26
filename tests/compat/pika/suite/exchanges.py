"""Exchanges of each type, bindings, alternates, copies."""

import time
from collections import Counter
from decimal import Decimal

from .harness import eventually, expect, expect_true, scenario
from .session import depth, drain, expect_empty, get, get_all, publish, refused, send, stays_empty


@scenario()
def default_exchange(session):
    channel = session.channel()
    queue = session.queue(channel)
    send(channel, queue, "a", "b")
    message = get(channel, queue)
    expect((message.method.exchange, message.method.routing_key, message.text), ("", queue, "a"), "message")
    expect(get(channel, queue).text, "b", "next")
    refused_text = "ACCESS_REFUSED - operation not permitted on the default exchange"
    refused(403, refused_text, lambda: session.channel().queue_bind(queue, "", "key"), "bind")
    refused(403, refused_text, lambda: session.channel().queue_unbind(queue, "", queue), "unbind")
    refused(403, refused_text, lambda: session.channel().exchange_delete(""), "delete")
    refused(403, refused_text, lambda: session.channel().exchange_declare("", "direct", durable=True), "declare")


@scenario()
def direct_exchange(session):
    channel = session.channel()
    exchange = session.exchange(channel, "direct")
    red = session.bound(channel, exchange, "red", "red")
    both = session.bound(channel, exchange, "red", "both")
    channel.queue_bind(both, exchange, "green")
    for key in ("red", "green", "blue", "RED"):
        publish(channel, exchange, key, key)
    expect(get_all(channel, red, 1), ["red"], "red")
    expect(get_all(channel, both, 2), ["red", "green"], "both")


@scenario()
def fanout_exchange(session):
    channel = session.channel()
    exchange = session.exchange(channel, "fanout")
    queues = [session.bound(channel, exchange, key, f"q{index}") for index, key in enumerate(("", "a", "b"))]
    publish(channel, exchange, "whatever", "x")
    for queue in queues:
        message = get(channel, queue)
        expect((message.text, message.method.exchange, message.method.routing_key), ("x", exchange, "whatever"), "message")


TOPICS = {
    "#": ("", "a", "a.b", "a.b.c", "quick.orange.rabbit", "..", "a..b"),
    "*": ("a",),
    "*.*": ("a.b",),
    "a.#": ("a", "a.b", "a.b.c", "a..b"),
    "#.c": ("a.b.c",),
    "a.*.c": ("a.b.c",),
    "*.orange.*": ("quick.orange.rabbit",),
    "#.orange.#": ("quick.orange.rabbit",),
    "a.b": ("a.b",),
    "": ("",),
}


@scenario()
def topic_exchange(session):
    channel = session.channel()
    exchange = session.exchange(channel, "topic")
    queues = {pattern: session.bound(channel, exchange, pattern, f"q{index}") for index, pattern in enumerate(TOPICS)}
    keys = []
    for wanted in TOPICS.values():
        keys += [key for key in wanted if key not in keys]
    for key in keys:
        publish(channel, exchange, key, key)
    for pattern, queue in queues.items():
        expect(drain(channel, queue), [key for key in keys if key in TOPICS[pattern]], f"keys that fit {pattern!r}")


@scenario()
def topic_exchange_empty_words(session):
    channel = session.channel()
    exchange = session.exchange(channel, "topic")
    patterns = ("*", "*.*", "#", "", "a.*.b", "*.b", ".", "#.")
    queues = {pattern: session.bound(channel, exchange, pattern, f"q{index}") for index, pattern in enumerate(patterns)}
    wanted = {
        "": {"#", ""},
        ".": {"*.*", "#", ".", "#."},
        "a..b": {"#", "a.*.b"},
        ".b": {"*.*", "#", "*.b"},
    }
    for key, matching in wanted.items():
        publish(channel, exchange, key, "x")
        got = {pattern for pattern, queue in queues.items() if channel.basic_get(queue, auto_ack=True)[0]}
        expect(got, matching, f"patterns that key {key!r} fits")


@scenario()
def topic_message_comes_once(session):
    """A message arrives once, even if several bindings of a queue match."""
    channel = session.channel()
    exchange = session.exchange(channel, "topic")
    queue = session.bound(channel, exchange, "#")
    for pattern in ("a.*", "*.b", "a.b", "#.b"):
        channel.queue_bind(queue, exchange, pattern)
    publish(channel, exchange, "a.b", "x")
    expect(get_all(channel, queue, 1), ["x"], "messages")


@scenario()
def headers_exchange(session):
    channel = session.channel()
    exchange = session.exchange(channel, "headers")
    bindings = {
        "all": {"x-match": "all", "a": 1, "b": "two"},
        "any": {"x-match": "any", "a": 1, "b": "two"},
        "default": {"a": 1, "b": "two"},
        "present": {"x-match": "all", "a": None},
        "x-ignored": {"x-match": "all", "x-a": "1", "a": 1},
        "all-with-x": {"x-match": "all-with-x", "x-a": "1", "a": 1},
        "any-with-x": {"x-match": "any-with-x", "x-a": "1", "a": 7},
        "nothing": {"x-match": "all"},
        "nothing-any": {"x-match": "any"},
    }
    queues = {name: session.bound(channel, exchange, "", name, arguments) for name, arguments in bindings.items()}
    wanted = [
        ({"a": 1, "b": "two", "c": 3}, {"all", "any", "default", "present", "x-ignored", "nothing"}),
        ({"a": 1}, {"any", "present", "x-ignored", "nothing"}),
        ({"b": "two"}, {"any", "nothing"}),
        ({"a": "1"}, {"present", "nothing"}),
        ({"a": 1, "x-a": "1"}, {"any", "present", "x-ignored", "all-with-x", "any-with-x", "nothing"}),
        ({"x-a": "1"}, {"any-with-x", "nothing"}),
        ({}, {"nothing"}),
        (None, {"nothing"}),
    ]
    for headers, matching in wanted:
        publish(channel, exchange, "", "x", headers=headers)
        got = {name for name, queue in queues.items() if channel.basic_get(queue, auto_ack=True)[0]}
        expect(got, matching, f"bindings that {headers} fits")


@scenario()
def headers_exchange_compares_numbers_by_value(session):
    channel = session.channel()
    exchange = session.exchange(channel, "headers")
    queue = session.bound(channel, exchange, "", arguments={"x-match": "all", "n": 7})
    for value, fits in ((7, True), (2**40, False), ("7", False), (Decimal(7), False), (True, False)):
        publish(channel, exchange, "", "x", headers={"n": value})
        expect(bool(channel.basic_get(queue, auto_ack=True)[0]), fits, f"{value!r} fits 7")


@scenario()
def headers_exchange_refuses_a_wrong_match(session):
    connection = session.connect()
    exchange = session.exchange(connection.channel(), "headers")
    queue = session.queue(connection.channel())
    text = "PRECONDITION_FAILED - Invalid x-match field value <<\"some\">>; expected all, any, all-with-x, or any-with-x"
    refused(406, text, lambda: connection.channel().queue_bind(queue, exchange, "", {"x-match": "some"}))
    text = "PRECONDITION_FAILED - Invalid x-match field type signedint (value 1); expected longstr"
    refused(406, text, lambda: connection.channel().queue_bind(queue, exchange, "", {"x-match": 1}))


@scenario()
def consistent_hash_exchange(session):
    channel = session.channel(confirms=True)
    exchange = session.exchange(channel, "x-consistent-hash")
    queues = [session.bound(channel, exchange, weight, f"q{index}") for index, weight in enumerate(("1", "1", "3"))]
    for number in range(1000):
        publish(channel, exchange, f"key-{number}", number)
    depths = [depth(channel, queue) for queue in queues]
    expect(sum(depths), 1000, "each message is in one queue")
    expect_true(100 < depths[0] < 330 and 100 < depths[1] < 330 and 450 < depths[2] < 750, f"by weight: {depths}")
    # A key stays with its queue.
    for queue in queues:
        channel.queue_purge(queue)
    for _ in range(20):
        publish(channel, exchange, "the-same", "x")
    expect(sorted(depth(channel, queue) for queue in queues), [0, 0, 20], "one key")


@scenario()
def consistent_hash_moves_few_keys(session):
    """A new queue takes over its share of the keys; the others stay."""
    channel = session.channel(confirms=True)
    exchange = session.exchange(channel, "x-consistent-hash")
    queues = [session.bound(channel, exchange, "10", f"q{index}") for index in range(4)]

    def places():
        for number in range(300):
            publish(channel, exchange, f"key-{number}", number)
        found = {}
        for queue in queues:
            found |= {get(channel, queue).text: queue for _ in range(depth(channel, queue))}
        expect(len(found), 300, "each message is in one queue")
        return found

    before = places()
    queues.append(session.bound(channel, exchange, "10", "q4"))
    after = places()
    moved = [key for key in before if before[key] != after[key]]
    expect({after[key] for key in moved}, {queues[4]}, "where keys moved to")
    expect_true(20 < len(moved) < 140, f"about a fifth moved: {len(moved)}")
    channel.queue_unbind(queues[4], exchange, "10")
    queues.pop()
    expect(places(), before, "all back where they were")


@scenario()
def consistent_hash_on_header_and_property(session):
    channel = session.channel(confirms=True)
    for arguments, properties in (
        ({"hash-header": "who"}, lambda n: {"headers": {"who": f"user-{n % 50}"}}),
        ({"hash-property": "correlation_id"}, lambda n: {"correlation_id": f"user-{n % 50}"}),
        ({"hash-property": "message_id"}, lambda n: {"message_id": f"user-{n % 50}"}),
        ({"hash-property": "timestamp"}, lambda n: {"timestamp": 1_700_000_000 + n % 50}),
    ):
        label = "-".join(arguments.values()).replace("_", "")
        exchange = session.unique(label)
        session.exchanges.append(exchange)
        channel.exchange_declare(exchange, "x-consistent-hash", durable=True, arguments=arguments)
        queues = [session.bound(channel, exchange, "5", f"{label}{index}") for index in range(3)]
        for number in range(200):
            publish(channel, exchange, f"other-{number}", number % 50, **properties(number))
        places = Counter()
        for queue in queues:
            places.update({get(channel, queue).text for _ in range(depth(channel, queue))})
        expect(set(places.values()), {1}, f"{arguments}: queues of one value")
        expect(len(places), 50, f"{arguments}: values")


@scenario()
def consistent_hash_refuses(session):
    connection = session.connect()
    exchange = session.exchange(connection.channel(), "x-consistent-hash")
    queue = session.queue(connection.channel())
    for key, text in (
        ("heavy", 'The binding key must be an integer: <<"heavy">>'),
        ("0", "The binding key must be greater than 0"),
        ("-1", "The binding key must be greater than 0"),
    ):
        refused(406, f"PRECONDITION_FAILED - {text}", lambda key=key: connection.channel().queue_bind(queue, exchange, key), key)
    for arguments, text in (
        ({"hash-header": "a", "hash-property": "message_id"}, "hash-header and hash-property are mutually exclusive"),
        ({"hash-property": "app_id"}, "Unsupported property: app_id"),
    ):
        refused(
            406,
            f"PRECONDITION_FAILED - {text}",
            lambda arguments=arguments: connection.channel().exchange_declare(session.unique("no"), "x-consistent-hash", arguments=arguments),
            str(arguments),
        )


@scenario(needs=["delayed"])
def delayed_message_exchange(session):
    channel = session.channel(confirms=True)
    exchange = session.exchange(channel, "x-delayed-message", x_delayed_type="direct")
    queue = session.bound(channel, exchange, "k")
    started = time.monotonic()
    for delay in (1500, 500, 1000):
        publish(channel, exchange, "k", delay, headers={"x-delay": delay})
    publish(channel, exchange, "k", "none")
    publish(channel, exchange, "k", "zero", headers={"x-delay": 0})
    publish(channel, exchange, "other", "unbound", headers={"x-delay": 100})
    expect(get_all(channel, queue, 2), ["none", "zero"], "what is not delayed comes at once")
    expect_true(time.monotonic() - started < 0.5, "at once")
    for delay in (500, 1000, 1500):
        message = get(channel, queue)
        late = (time.monotonic() - started) * 1000 - delay
        expect(message.text, str(delay), "in order of their times")
        expect_true(-5 <= late < 1500, f"due after {delay} ms, came {late:.0f} ms after that")
        expect(message.headers, {"x-delay": -delay}, "the delay that was served is told with a minus")
    expect_empty(channel, queue)


@scenario(needs=["delayed"])
def delayed_message_by_topic_and_fanout(session):
    channel = session.channel(confirms=True)
    topic = session.exchange(channel, "x-delayed-message", "t", x_delayed_type="topic")
    fanout = session.exchange(channel, "x-delayed-message", "f", x_delayed_type="fanout")
    one = session.bound(channel, topic, "a.#", "one")
    two = session.bound(channel, fanout, "", "two")
    three = session.bound(channel, fanout, "", "three")
    publish(channel, topic, "a.b", "t", headers={"x-delay": 300})
    publish(channel, topic, "b.b", "no", headers={"x-delay": 300})
    publish(channel, fanout, "", "f", headers={"x-delay": 300})
    for queue in (one, two, three):
        expect(channel.basic_get(queue)[0], None, "nothing yet")
    expect(get_all(channel, one, 1), ["t"], "topic")
    expect(get_all(channel, two, 1), ["f"], "fanout")
    expect(get_all(channel, three, 1), ["f"], "fanout")


@scenario(needs=["delayed"])
def delayed_message_properties_and_expiration(session):
    """A message's own time to live starts when it is due."""
    channel = session.channel(confirms=True)
    exchange = session.exchange(channel, "x-delayed-message", x_delayed_type="direct")
    queue = session.bound(channel, exchange, "k")
    publish(channel, exchange, "k", "x", headers={"x-delay": 600, "a": "b"}, message_id="m", expiration="400")
    time.sleep(0.3)
    message = get(channel, queue)
    expect((message.text, message.headers["a"], message.properties.message_id), ("x", "b", "m"), "message")
    publish(channel, exchange, "k", "y", headers={"x-delay": 300}, expiration="200")
    time.sleep(0.9)
    expect_empty(channel, queue)


@scenario(needs=["delayed"])
def delayed_message_refuses(session):
    connection = session.connect()
    text = "PRECONDITION_FAILED - Invalid argument, 'x-delayed-type' must be an existing exchange type"
    refused(406, text, lambda: connection.channel().exchange_declare(session.unique("a"), "x-delayed-message"))
    text = "PRECONDITION_FAILED - Invalid argument, 'x-delayed-message' can't be used for 'x-delayed-type'"
    arguments = {"x-delayed-type": "x-delayed-message"}
    refused(406, text, lambda: connection.channel().exchange_declare(session.unique("b"), "x-delayed-message", arguments=arguments))


@scenario()
def exchange_to_exchange(session):
    channel = session.channel()
    source = session.exchange(channel, "topic", "source")
    middle = session.exchange(channel, "fanout", "middle")
    target = session.exchange(channel, "direct", "target")
    channel.exchange_bind(middle, source, "a.#")
    channel.exchange_bind(target, middle)
    queue = session.bound(channel, target, "a.b")
    publish(channel, source, "a.b", "through")
    publish(channel, source, "a.c", "lost at the target")
    publish(channel, source, "b", "lost at the source")
    message = get(channel, queue)
    expect((message.text, message.method.exchange, message.method.routing_key), ("through", source, "a.b"), "message")
    expect_empty(channel, queue)
    channel.exchange_unbind(target, middle)
    publish(channel, source, "a.b", "lost in the middle")
    expect_empty(channel, queue)


@scenario()
def exchange_to_exchange_in_a_circle(session):
    channel = session.channel()
    one, two = session.exchange(channel, "fanout", "one"), session.exchange(channel, "fanout", "two")
    channel.exchange_bind(one, two)
    channel.exchange_bind(two, one)
    channel.exchange_bind(one, one)
    queue = session.bound(channel, one)
    channel.queue_bind(queue, two)
    publish(channel, one, "", "x")
    expect(get_all(channel, queue, 1), ["x"], "once")


@scenario()
def exchange_to_exchange_refused(session):
    connection = session.connect()
    exchange = session.exchange(connection.channel(), "fanout")
    gone = session.unique("gone")
    text = f"NOT_FOUND - no exchange '{gone}' in vhost '/'"
    refused(404, text, lambda: connection.channel().exchange_bind(gone, exchange), "destination")
    refused(404, text, lambda: connection.channel().exchange_bind(exchange, gone), "source")
    queue = session.queue(connection.channel())
    refused(404, text, lambda: connection.channel().queue_bind(queue, gone, "k"), "queue.bind")
    text = f"NOT_FOUND - no queue '{gone}' in vhost '/'"
    refused(404, text, lambda: connection.channel().queue_bind(gone, exchange, "k"), "queue")


@scenario()
def alternate_exchange(session):
    channel = session.channel()
    last = session.exchange(channel, "fanout", "last")
    second = session.exchange(channel, "direct", "second", alternate_exchange=last)
    first = session.exchange(channel, "direct", "first", alternate_exchange=second)
    queues = [
        session.bound(channel, exchange, key, key) for exchange, key in ((first, "one"), (second, "two"), (last, "three"))
    ]
    for key in ("one", "two", "three", "four"):
        publish(channel, first, key, key)
    expect(get_all(channel, queues[0], 1), ["one"], "first")
    expect(get_all(channel, queues[1], 1), ["two"], "second")
    expect(get_all(channel, queues[2], 2), ["three", "four"], "last")
    publish(channel, first, "lost", "x")
    expect(get(channel, queues[2]).method.exchange, first, "the exchange it was published to")


@scenario()
def alternate_exchange_counts_as_routed(session):
    channel = session.channel(confirms=True)
    alternate = session.exchange(channel, "fanout", "alternate")
    exchange = session.exchange(channel, "direct", alternate_exchange=alternate)
    queue = session.bound(channel, alternate)
    publish(channel, exchange, "k", "x", mandatory=True)
    expect(get_all(channel, queue, 1), ["x"], "messages")


@scenario()
def alternate_exchange_that_is_not_there(session):
    channel = session.channel(confirms=True)
    exchange = session.exchange(channel, "direct", alternate_exchange=session.unique("gone"))
    publish(channel, exchange, "k", "x")
    own = session.unique("circle")
    session.exchanges.append(own)
    channel.exchange_declare(own, "direct", durable=True, arguments={"alternate-exchange": own})
    publish(channel, own, "k", "x")
    queue = session.bound(channel, own, "k")
    publish(channel, own, "k", "y")
    expect(get_all(channel, queue, 1), ["y"], "messages")


@scenario()
def internal_exchange(session):
    connection = session.connect()
    channel = connection.channel()
    internal = session.exchange(channel, "fanout", internal=True)
    front = session.exchange(channel, "fanout", "front")
    channel.exchange_bind(internal, front)
    queue = session.bound(channel, internal)
    publish(channel, front, "", "x")
    expect(get_all(channel, queue, 1), ["x"], "through a binding")
    text = f"ACCESS_REFUSED - cannot publish to internal exchange '{internal}' in vhost '/'"
    other = connection.channel()
    other.confirm_delivery()
    refused(403, text, lambda: publish(other, internal, "", "x"), "publish")


@scenario()
def cc_and_bcc(session):
    channel = session.channel()
    exchange = session.exchange(channel, "direct")
    queues = {key: session.bound(channel, exchange, key, key) for key in ("to", "copy", "blind", "other")}
    publish(channel, exchange, "to", "x", headers={"CC": ["copy", "to"], "BCC": ["blind"], "a": "b"})
    for key in ("to", "copy", "blind"):
        message = get(channel, queues[key])
        expect(message.headers, {"CC": ["copy", "to"], "a": "b"}, f"headers in {key}")
        expect(message.method.routing_key, "to", f"routing key in {key}")
        expect_empty(channel, queues[key])
    expect_empty(channel, queues["other"])


@scenario()
def cc_by_the_default_exchange(session):
    channel = session.channel()
    one, two = session.queue(channel, "one"), session.queue(channel, "two")
    publish(channel, "", one, "x", headers={"CC": [two]})
    expect(get_all(channel, one, 1), ["x"], "to")
    expect(get_all(channel, two, 1), ["x"], "copy")
    publish(channel, "", session.unique("nowhere"), "y", headers={"BCC": [two]})
    expect(get_all(channel, two, 1), ["y"], "blind copy of one that goes nowhere")


@scenario()
def cc_of_a_wrong_type(session):
    connection = session.connect()
    queue = session.queue(connection.channel())
    for name in ("CC", "BCC"):
        channel = connection.channel()
        channel.confirm_delivery()
        text = f"PRECONDITION_FAILED - invalid message: {{unacceptable_type_in_header,\"{name}\",longstr}}"
        refused(406, text, lambda channel=channel, name=name: publish(channel, "", queue, "x", headers={name: "text"}), name)


@scenario()
def unbind(session):
    channel = session.channel()
    exchange = session.exchange(channel, "direct")
    queue = session.bound(channel, exchange, "k")
    channel.queue_bind(queue, exchange, "k", {"a": 1})
    channel.queue_bind(queue, exchange, "k")
    channel.queue_unbind(queue, exchange, "k")
    publish(channel, exchange, "k", "x")
    expect(get_all(channel, queue, 1), ["x"], "the binding with arguments is another one")
    channel.queue_unbind(queue, exchange, "k", {"a": 1})
    publish(channel, exchange, "k", "y")
    expect_empty(channel, queue)
    channel.queue_unbind(queue, exchange, "never")


@scenario()
def binding_goes_with_its_queue(session):
    channel = session.channel(confirms=True)
    exchange = session.exchange(channel, "fanout")
    queue = session.bound(channel, exchange)
    channel.queue_delete(queue)
    publish(channel, exchange, "", "x")
    session.queue(channel)
    publish(channel, exchange, "", "y")
    stays_empty(channel, queue, 0.2)


@scenario()
def exchange_declared_again(session):
    connection = session.connect()
    channel = connection.channel()
    exchange = session.exchange(channel, "direct")
    channel.exchange_declare(exchange, "direct", durable=True)
    channel.exchange_declare(exchange, passive=True)
    for name, current, received, settings in (
        ("type", "'direct'", "'fanout'", {"exchange_type": "fanout"}),
        ("durable", "'true'", "'false'", {"durable": False}),
        ("auto_delete", "'false'", "'true'", {"auto_delete": True}),
        ("internal", "'false'", "'true'", {"internal": True}),
    ):
        text = f"PRECONDITION_FAILED - inequivalent arg '{name}' for exchange '{exchange}' in vhost '/': received {received} but current is {current}"
        settings = {"exchange_type": "direct", "durable": True} | settings
        refused(406, text, lambda settings=settings: connection.channel().exchange_declare(exchange, **settings), name)
    text = (
        f"PRECONDITION_FAILED - inequivalent arg 'alternate-exchange' for exchange '{exchange}' in vhost '/': "
        "received the value 'x' of type 'longstr' but current is none"
    )
    arguments = {"alternate-exchange": "x"}
    refused(406, text, lambda: connection.channel().exchange_declare(exchange, "direct", durable=True, arguments=arguments), "argument")


@scenario()
def exchange_refused(session):
    connection = session.connect()
    gone = session.unique("gone")
    text = f"NOT_FOUND - no exchange '{gone}' in vhost '/'"
    refused(404, text, lambda: connection.channel().exchange_declare(gone, passive=True), "passive")
    text = "ACCESS_REFUSED - exchange name 'amq.mine' contains reserved prefix 'amq.*'"
    refused(403, text, lambda: connection.channel().exchange_declare("amq.mine", "direct"), "reserved")
    text = "ACCESS_REFUSED - deletion of system exchange 'amq.topic' in vhost '/' not allowed"
    refused(403, text, lambda: connection.channel().exchange_delete("amq.topic"), "system exchange")
    connection.channel().exchange_delete(gone)
    text = "PRECONDITION_FAILED - unknown exchange type 'x-strange'"
    refused(406, text, lambda: connection.channel().exchange_declare(gone, "x-strange"), "type")


@scenario()
def exchanges_that_are_there_from_the_start(session):
    channel = session.channel()
    for name, kind in (
        ("amq.direct", "direct"),
        ("amq.fanout", "fanout"),
        ("amq.topic", "topic"),
        ("amq.headers", "headers"),
        ("amq.match", "headers"),
    ):
        channel.exchange_declare(name, kind, durable=True)
    queue = session.queue(channel)
    for name in ("amq.direct", "amq.topic"):
        channel.queue_bind(queue, name, queue)
        publish(channel, name, queue, name)
        expect(get_all(channel, queue, 1), [name], name)


@scenario()
def exchange_delete_if_unused(session):
    connection = session.connect()
    channel = connection.channel()
    exchange = session.exchange(channel, "fanout")
    queue = session.bound(channel, exchange)
    text = f"PRECONDITION_FAILED - exchange '{exchange}' in vhost '/' in use"
    refused(406, text, lambda: connection.channel().exchange_delete(exchange, if_unused=True))
    channel.queue_unbind(queue, exchange, "")
    channel.exchange_delete(exchange, if_unused=True)
    refused(404, f"NOT_FOUND - no exchange '{exchange}' in vhost '/'", lambda: channel.exchange_declare(exchange, passive=True))


@scenario()
def exchange_auto_delete(session):
    connection = session.connect()
    channel = connection.channel()
    exchange = session.exchange(channel, "fanout", auto_delete=True)
    queue = session.bound(channel, exchange)
    other = session.bound(channel, exchange, suffix="other")
    channel.queue_unbind(queue, exchange, "")
    channel.exchange_declare(exchange, passive=True)
    channel.queue_delete(other)
    gone = f"NOT_FOUND - no exchange '{exchange}' in vhost '/'"
    refused(404, gone, lambda: connection.channel().exchange_declare(exchange, passive=True), "after its last binding")
    # Deleting the destination also deletes the binding of its source.
    channel = connection.channel()
    source = session.exchange(channel, "fanout", "source", auto_delete=True)
    target = session.exchange(channel, "fanout", "target")
    channel.exchange_bind(target, source)
    channel.exchange_delete(target)
    gone = f"NOT_FOUND - no exchange '{source}' in vhost '/'"
    refused(404, gone, lambda: connection.channel().exchange_declare(source, passive=True), "after its destination")


@scenario()
def publish_to_an_exchange_that_is_not_there(session):
    connection = session.connect()
    gone = session.unique("gone")
    channel = connection.channel()
    channel.confirm_delivery()
    refused(404, f"NOT_FOUND - no exchange '{gone}' in vhost '/'", lambda: publish(channel, gone, "k", "x"))
    expect_true(connection.is_open, "the connection stays")


@scenario()
def many_bindings(session):
    connection = session.connect()
    channel = connection.channel()
    exchange = session.exchange(channel, "direct")
    queues = [session.queue(channel, f"q{index}") for index in range(5)]
    for number in range(500):
        channel.queue_bind(queues[number % 5], exchange, f"key-{number}")
    channel.confirm_delivery()
    for number in range(0, 500, 7):
        publish(channel, exchange, f"key-{number}", number)
    for index, queue in enumerate(queues):
        wanted = [str(number) for number in range(0, 500, 7) if number % 5 == index]
        expect(get_all(channel, queue, len(wanted)), wanted, f"queue {index}")
    expect(eventually(lambda: depth(channel, queues[0]) == 0, 5, "settled"), True, "depth")
