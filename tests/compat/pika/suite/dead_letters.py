"""Dead-letter exchanges, and the header x-death."""

import datetime
import time

from .harness import eventually, expect, expect_true, scenario
from .session import Consumer, depth, expect_empty, get, get_all, publish, send, stays_empty

KINDS = ("classic", "quorum")


def grave(session, channel, kind="classic", suffix="", **arguments):
    """A queue whose dead letters go through an exchange into another queue."""
    exchange = session.exchange(channel, "fanout", f"dlx{suffix}")
    graves = session.bound(channel, exchange, suffix=f"graves{suffix}")
    queue = session.queue(channel, f"q{suffix}", x_queue_type=kind, x_dead_letter_exchange=exchange, **arguments)
    return queue, graves


def death(message, number=0):
    return message.headers["x-death"][number]


def expect_death(message, queue, reason, count, exchange="", keys=None, what=""):
    got = {name: value for name, value in death(message).items() if name != "time"}
    wanted = {"count": count, "reason": reason, "queue": queue, "exchange": exchange, "routing-keys": keys or [queue]}
    expect(got, wanted, f"{what} x-death")
    told = {name: message.headers.get(f"x-first-death-{name}") for name in ("reason", "queue", "exchange")}
    expect(told, {"reason": reason, "queue": queue, "exchange": exchange}, f"{what} x-first-death")


@scenario()
def dead_letter_of_a_rejected_message(session):
    for kind in KINDS:
        channel = session.channel()
        queue, graves = grave(session, channel, kind, f"-{kind}")
        before = int(time.time())
        for body, answer in (
            ("rejected", lambda tag: channel.basic_reject(tag, requeue=False)),
            ("nacked", lambda tag: channel.basic_nack(tag, requeue=False)),
        ):
            publish(channel, "", queue, body, message_id="m", headers={"a": 1}, type="t", priority=3)
            answer(get(channel, queue, auto_ack=False).tag)
            message = get(channel, graves)
            expect((message.text, message.properties.message_id, message.headers["a"]), (body, "m", 1), f"{kind}: message")
            expect((message.properties.type, message.properties.priority, message.properties.delivery_mode), ("t", 3, 2), f"{kind}: properties")
            expect((message.method.routing_key, message.redelivered), (queue, False), f"{kind}: routing key, redelivered")
            expect_death(message, queue, "rejected", 1, what=kind)
            # pika returns a UTC time without a time zone.
            died = death(message)["time"].replace(tzinfo=datetime.timezone.utc).timestamp()
            expect_true(before - 1 <= died <= time.time() + 1, f"{kind}: time {died}")
        expect_empty(channel, queue)


@scenario(slow=True)
def dead_letter_of_an_expired_message(session):
    for kind in KINDS:
        channel = session.channel()
        queue, graves = grave(session, channel, kind, f"-{kind}", x_message_ttl=300)
        send(channel, queue, "by the queue's time")
        message = get(channel, graves)
        expect(message.text, "by the queue's time", "message")
        expect_death(message, queue, "expired", 1, what=kind)
        expect("original-expiration" in death(message), False, f"{kind}: original-expiration")
        publish(channel, "", queue, "by its own", expiration="100")
        message = get(channel, graves)
        expect((message.text, message.properties.expiration), ("by its own", None), f"{kind}: message, expiration")
        expect(death(message)["original-expiration"], "100", f"{kind}: original-expiration")
        expect(death(message)["reason"], "expired", f"{kind}: reason")


@scenario()
def dead_letter_of_an_overflow(session):
    for kind in KINDS:
        channel = session.channel(confirms=True)
        queue, graves = grave(session, channel, kind, f"-{kind}", x_max_length=2)
        send(channel, queue, *range(5))
        messages = [get(channel, graves) for _ in range(3)]
        expect([message.text for message in messages], ["0", "1", "2"], f"{kind}: the oldest")
        expect_death(messages[0], queue, "maxlen", 1, what=kind)
        expect(get_all(channel, queue, 2), ["3", "4"], f"{kind}: the rest")


@scenario()
def dead_letter_of_too_many_deliveries(session):
    channel = session.channel()
    queue, graves = grave(session, channel, "quorum", x_delivery_limit=2)
    send(channel, queue, "x")
    for attempt in range(3):
        message = get(channel, queue, auto_ack=False)
        expect(message.headers.get("x-delivery-count", 0), attempt, "x-delivery-count")
        expect(message.redelivered, attempt > 0, "redelivered")
        channel.basic_nack(message.tag, requeue=True)
    message = get(channel, graves)
    expect(message.text, "x", "message")
    expect_death(message, queue, "delivery_limit", 1)
    expect("x-delivery-count" in message.headers, False, "x-delivery-count of a dead letter")
    expect_empty(channel, queue)


@scenario()
def dead_letter_keeps_its_routing_keys(session):
    channel = session.channel()
    source = session.exchange(channel, "direct", "source")
    exchange = session.exchange(channel, "direct", "dlx")
    queue = session.bound(channel, source, "own", "q", x_dead_letter_exchange=exchange)
    own, copy, blind = (session.bound(channel, exchange, key, key) for key in ("own", "copy", "blind"))
    publish(channel, source, "own", "x", headers={"CC": ["copy"], "BCC": ["blind"]})
    channel.basic_reject(get(channel, queue, auto_ack=False).tag, requeue=False)
    for graves in (own, copy, blind):
        message = get(channel, graves)
        expect((message.method.exchange, message.method.routing_key), (exchange, "own"), "exchange and routing key")
        expect(death(message)["exchange"], source, "where it was published to")
        expect(death(message)["routing-keys"], ["own", "copy"], "routing keys")
        expect(message.headers["CC"], ["copy"], "CC")


@scenario()
def dead_letter_routing_key(session):
    channel = session.channel()
    exchange = session.exchange(channel, "direct", "dlx")
    queue = session.queue(channel, x_dead_letter_exchange=exchange, x_dead_letter_routing_key="grave")
    graves, own, copy = (session.bound(channel, exchange, key, suffix) for key, suffix in (("grave", "g"), (session.unique(), "o"), ("c", "c")))
    send(channel, queue, "x", headers={"CC": ["c"]})
    channel.basic_reject(get(channel, queue, auto_ack=False).tag, requeue=False)
    message = get(channel, graves)
    expect((message.text, message.method.routing_key), ("x", "grave"), "message")
    expect(death(message)["routing-keys"], [queue, "c"], "routing keys before")
    expect("CC" in message.headers, False, "CC of a dead letter with a new key")
    expect_empty(channel, own)
    expect_empty(channel, copy)


@scenario()
def dead_letter_counts(session):
    """Another death for the same reason in the same queue updates its entry, and the newest entry comes first."""
    channel = session.channel()
    exchange = session.exchange(channel, "direct", "dlx")
    one = session.bound(channel, exchange, "one", "one", x_dead_letter_exchange=exchange, x_dead_letter_routing_key="two")
    two = session.bound(channel, exchange, "two", "two", x_dead_letter_exchange=exchange, x_dead_letter_routing_key="one")
    send(channel, one, "x")
    for round_number in range(1, 4):
        channel.basic_reject(get(channel, one, auto_ack=False).tag, requeue=False)
        message = get(channel, two, auto_ack=False)
        deaths = [(entry["queue"], entry["reason"], entry["count"]) for entry in message.headers["x-death"]]
        wanted = [(one, "rejected", round_number)]
        if round_number > 1:
            wanted.append((two, "rejected", round_number - 1))
        expect(deaths, wanted, f"deaths in round {round_number}")
        channel.basic_reject(message.tag, requeue=False)
    message = get(channel, one)
    told = [message.headers[f"x-{which}-death-{name}"] for which in ("first", "last") for name in ("queue", "reason", "exchange")]
    expect(told, [one, "rejected", "", two, "rejected", exchange], "first and last death")
    expect(message.headers["x-death"][1]["exchange"], "", "exchange that it was first published to")


@scenario(slow=True)
def dead_letter_of_several_reasons(session):
    channel = session.channel()
    exchange = session.exchange(channel, "direct", "dlx")
    last = session.bound(channel, exchange, "last", "last")
    second = session.bound(
        channel, exchange, "second", "second", x_message_ttl=200, x_dead_letter_exchange=exchange, x_dead_letter_routing_key="last"
    )
    first = session.queue(channel, "first", x_dead_letter_exchange=exchange, x_dead_letter_routing_key="second")
    send(channel, first, "x")
    channel.basic_reject(get(channel, first, auto_ack=False).tag, requeue=False)
    message = get(channel, last)
    deaths = [(entry["queue"], entry["reason"], entry["count"]) for entry in message.headers["x-death"]]
    expect(deaths, [(second, "expired", 1), (first, "rejected", 1)], "deaths")
    expect(message.headers["x-first-death-queue"], first, "first")
    expect(message.headers["x-last-death-queue"], second, "last")


@scenario(slow=True)
def dead_letter_in_a_circle_is_dropped(session):
    """Without a rejection on the way the message would circulate forever."""
    channel = session.channel(confirms=True)
    exchange = session.exchange(channel, "direct", "dlx")
    one = session.bound(
        channel, exchange, "one", "one", x_message_ttl=200, x_dead_letter_exchange=exchange, x_dead_letter_routing_key="two"
    )
    two = session.bound(
        channel, exchange, "two", "two", x_message_ttl=200, x_dead_letter_exchange=exchange, x_dead_letter_routing_key="one"
    )
    send(channel, one, "x")
    time.sleep(1.2)
    expect_empty(channel, one)
    expect_empty(channel, two)


@scenario(slow=True)
def dead_letter_as_a_retry_with_a_delay(session):
    """The usual retry delay: a queue with a time to live whose dead letters return."""
    connection = session.connect()
    channel = connection.channel()
    work = session.unique("work")
    wait = session.queue(channel, "wait", x_message_ttl=400, x_dead_letter_exchange="", x_dead_letter_routing_key=work)
    session.queue(channel, "work", x_dead_letter_exchange="", x_dead_letter_routing_key=wait)
    send(channel, work, "x")
    consumer = Consumer(channel, work)
    for attempt in range(3):
        (message,) = consumer.wait(1)
        counts = {entry["queue"]: entry["count"] for entry in message.headers.get("x-death", [])}
        expect(counts, {work: attempt, wait: attempt} if attempt else {}, f"deaths before attempt {attempt}")
        channel.basic_reject(message.tag, requeue=False)
        consumer.stays(0, 0.2)
    consumer.wait(1)


@scenario()
def dead_letter_exchange_that_is_not_there(session):
    channel = session.channel()
    name = session.unique("later")
    queue = session.queue(channel, x_dead_letter_exchange=name)
    send(channel, queue, "lost", "found")
    channel.basic_reject(get(channel, queue, auto_ack=False).tag, requeue=False)
    time.sleep(0.2)
    session.exchange(channel, "fanout", "later")
    graves = session.bound(channel, name, suffix="graves")
    channel.basic_reject(get(channel, queue, auto_ack=False).tag, requeue=False)
    message = get(channel, graves)
    expect(message.text, "found", "message")
    expect_empty(channel, graves)


@scenario()
def dead_letter_to_several_queues(session):
    channel = session.channel()
    queue, graves = grave(session, channel)
    exchange = session.unique("dlx")
    more = [session.bound(channel, exchange, suffix=f"more{index}") for index in range(3)]
    send(channel, queue, *range(10))
    held = [get(channel, queue, auto_ack=False) for _ in range(10)]
    channel.basic_nack(held[-1].tag, multiple=True, requeue=False)
    for one in [graves, *more]:
        got = [get(channel, one).text for _ in range(10)]
        expect(sorted(got), [str(number) for number in range(10)], "bodies")


@scenario()
def dead_letter_not_for_what_is_purged_or_acknowledged(session):
    channel = session.channel(confirms=True)
    queue, graves = grave(session, channel)
    send(channel, queue, "a", "b", "c")
    get(channel, queue)
    channel.queue_purge(queue)
    send(channel, queue, "d")
    channel.queue_delete(queue)
    stays_empty(channel, graves, 0.3)


@scenario()
def dead_letter_published_again_by_a_client(session):
    """The broker does not rely on a client's own x-death header, but keeps it visible."""
    channel = session.channel()
    queue, graves = grave(session, channel)
    send(channel, queue, "x")
    channel.basic_reject(get(channel, queue, auto_ack=False).tag, requeue=False)
    message = get(channel, graves)
    publish(channel, "", queue, "again", headers=message.headers)
    channel.basic_reject(get(channel, queue, auto_ack=False).tag, requeue=False)
    again = get(channel, graves)
    expect(death(again)["reason"], "rejected", "reason")
    expect_true(len(again.headers["x-death"]) >= 1, "deaths")


@scenario()
def dead_letters_at_once(session):
    """Many, in order."""
    channel = session.channel(confirms=True)
    queue, graves = grave(session, channel, x_max_length=0)
    for number in range(300):
        send(channel, queue, number)
    eventually(lambda: depth(channel, graves) == 300, 20, "all are dead")
    expect(get_all(channel, graves, 300), [str(number) for number in range(300)], "order")
