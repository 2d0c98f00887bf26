"""A real worker that does real tasks."""

import datetime
import time

from celery import chain, chord, group
from celery.exceptions import TimeoutError as NotInTime

from .harness import Failure, Worker, eventually, expect, expect_true, notes, scenario
from .tasks import QUEUES, add, app, echo, fail, flaky, hopeless, slow, stamp, total

workers = []


def worker():
    """One worker for all scenarios that do not kill it."""
    if not workers:
        workers.append(Worker(["plain", "quorum"]))
    return workers[0]


def close():
    for one in workers:
        one.stop()


def depth(name):
    with app.connection_or_acquire() as connection, connection.channel() as channel:
        return QUEUES[name](channel).queue_declare(passive=True).message_count


@scenario
def results_come_back():
    worker()
    expect(add.delay(2, 3).get(timeout=20), 5, "result")
    values = [None, 0, "grüße", [1, {"a": [True, None]}], "x" * 300_000]
    for value in values:
        expect(echo.delay(value).get(timeout=20) == value, True, f"result of {str(value)[:30]}")


@scenario
def failures_come_back():
    worker()
    result = fail.delay("no luck")
    try:
        raise Failure(f"a result: {result.get(timeout=20)}")
    except ValueError as error:
        expect(str(error), "no luck", "error")
    expect(result.state, "FAILURE", "state")


@scenario
def two_hundred_tasks():
    worker()
    results = [add.delay(number, number) for number in range(200)]
    expect([result.get(timeout=60) for result in results], [2 * number for number in range(200)], "results")


@scenario
def tasks_by_a_quorum_queue():
    worker()
    results = [add.apply_async((number, 1), queue=QUEUES["quorum"]) for number in range(50)]
    expect([result.get(timeout=60) for result in results], [number + 1 for number in range(50)], "results")


@scenario
def retries_with_a_countdown():
    worker()
    expect(flaky.delay("flaky", 3, 0.5).get(timeout=30), 3, "result")
    times = [moment for moment, _ in notes("flaky")]
    expect([text for _, text in notes("flaky")], ["0", "1", "2", "3"], "attempts")
    gaps = [later - earlier for earlier, later in zip(times, times[1:])]
    expect_true(all(gap >= 0.45 for gap in gaps), f"each attempt waits: {gaps}")


@scenario
def retries_come_to_an_end():
    worker()
    result = hopeless.delay("hopeless")
    try:
        raise Failure(f"a result: {result.get(timeout=30)}")
    except OSError as error:
        expect(str(error), "never", "error")
    expect([text for _, text in notes("hopeless")], ["0", "1", "2"], "attempts")


@scenario
def countdown_and_eta():
    worker()
    begun = time.time()
    later = stamp.apply_async(("eta", "countdown"), countdown=2)
    eta = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=1)
    sooner = stamp.apply_async(("eta", "eta"), eta=eta)
    stamp.delay("eta", "now")
    later.get(timeout=30)
    sooner.get(timeout=30)
    got = notes("eta")
    expect([text for _, text in got], ["now", "eta", "countdown"], "order")
    expect_true(got[1][0] - begun >= 0.95 and got[2][0] - begun >= 1.95, f"none is early: {got}")


@scenario
def task_that_expires():
    one = worker()
    with_time = stamp.apply_async(("expires", "late"), countdown=1.5, expires=0.5)
    try:
        with_time.get(timeout=4)
    except NotInTime:
        pass
    except Exception as error:
        expect(type(error).__name__, "TaskRevokedError", "error")
    expect(notes("expires"), [], "it did not run")
    expect_true(one.process.poll() is None, "the worker runs on")


@scenario
def groups():
    worker()
    result = group(add.s(number, number) for number in range(20)).apply_async()
    expect(result.get(timeout=30), [2 * number for number in range(20)], "results")


@scenario
def chains():
    worker()
    expect(chain(add.s(1, 2), add.s(3), add.s(4))().get(timeout=30), 10, "result")


@scenario
def chords():
    """rpc:// cannot join a chord by itself (Celery refuses): the header's results are joined by their caller."""
    worker()
    try:
        chord((add.s(number, 1) for number in range(5)), total.s())()
        raise Failure("Celery takes chords with rpc:// now: test them")
    except NotImplementedError:
        pass
    header = group(add.s(number, 1) for number in range(5)).apply_async()
    expect(total.delay(header.get(timeout=30)).get(timeout=30), 15, "result")


@scenario
def priorities():
    """Waiting tasks start in the order of their priorities."""
    order = {"a": 1, "b": 9, "c": 5, "d": 9, "e": 0}
    for text, priority in order.items():
        stamp.apply_async(("priorities", text), queue=QUEUES["priority"], priority=priority)
    eventually(lambda: depth("priority") == 5, 20, "all are there")
    own = Worker(["priority"], concurrency=1, pool="solo", extra=["--prefetch-multiplier", "1"])
    try:
        eventually(lambda: len(notes("priorities")) == 5, 30, "all are done")
    finally:
        own.stop()
    expect([text for _, text in notes("priorities")], ["b", "d", "c", "a", "e"], "order")


@scenario
def late_acknowledgement_survives_a_killed_worker():
    """A killed worker's task is run by another worker, and finished tasks are not run again."""
    first = Worker(["late"], concurrency=1, extra=["--prefetch-multiplier", "2"])
    done = slow.apply_async(("late", "done", 0), queue=QUEUES["late"])
    expect(done.get(timeout=30), "done", "result")
    time.sleep(0.5)
    cut = slow.apply_async(("late", "cut", 3), queue=QUEUES["late"])
    waiting = slow.apply_async(("late", "waiting", 0), queue=QUEUES["late"])
    eventually(lambda: any(text == "begin cut" for _, text in notes("late")), 30, "it has begun")
    first.kill()
    second = Worker(["late"], concurrency=1)
    try:
        expect(cut.get(timeout=40), "cut", "result of what was cut")
        expect(waiting.get(timeout=40), "waiting", "result of what waited")
    finally:
        second.stop()
    count = {text: [t for _, t in notes("late")].count(text) for text in ("begin done", "begin cut", "end cut", "end waiting")}
    expect(count, {"begin done": 1, "begin cut": 2, "end cut": 1, "end waiting": 1}, "what happened")
    expect(depth("late"), 0, "depth")


@scenario
def remote_control():
    """A fanout exchange for all workers and a queue for the replies."""
    one = worker()
    answers = eventually(lambda: app.control.ping(timeout=2), 20, "a worker answers")
    expect(f"{one.name}@host" in {name for answer in answers for name in answer}, True, "it is ours")
    active = eventually(lambda: app.control.inspect(timeout=3).active_queues(), 20, "it tells its queues")
    names = {queue["name"] for queue in active.get(f"{one.name}@host", [])}
    expect(names, {QUEUES["plain"].name, QUEUES["quorum"].name}, "queues that it consumes")


@scenario
def revoked_task_does_not_run():
    worker()
    result = stamp.apply_async(("revoked", "ran"), countdown=2)
    time.sleep(0.5)
    result.revoke()
    time.sleep(2.5)
    expect(notes("revoked"), [], "it did not run")


@scenario
def worker_stops_politely():
    """A stopping worker returns its prefetched messages to the queue."""
    own = Worker(["late"], concurrency=1, extra=["--prefetch-multiplier", "10"])
    results = [slow.apply_async(("polite", str(number), 1), queue=QUEUES["late"]) for number in range(5)]
    eventually(lambda: any(text == "begin 0" for _, text in notes("polite")), 30, "it has begun")
    own.stop()
    left = eventually(lambda: depth("late"), 20, "the rest is in the queue")
    expect_true(3 <= left <= 4, f"left: {left}")
    again = Worker(["late"], concurrency=4)
    try:
        expect([result.get(timeout=40) for result in results], [str(number) for number in range(5)], "results")
    finally:
        again.stop()
