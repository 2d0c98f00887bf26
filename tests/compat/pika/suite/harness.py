"""The registry of scenarios and the runner: one line each, many at a time.

Scenarios mostly wait (for time to live, heartbeats, restarts), so they run concurrently in threads and each
keeps to names of its own; the slow ones are started first.
"""

import os
import queue
import threading
import time
import traceback
import uuid
from concurrent.futures import Future
from dataclasses import dataclass

from .session import Failure, Session

AT_ONCE = 8


@dataclass
class Scenario:
    name: str
    body: callable
    slow: bool
    timeout: float


SCENARIOS: list[Scenario] = []

# Features that a scenario may need besides an AMQP server, each with the environment variable that announces it.
NEEDS = {"kafka": "BOOTSTRAP", "server": "SERVER", "admin": "AMQP_ADMIN", "delayed": "DELAYED_MESSAGES", "keys": "ORDER_BY_KEY"}


def scenario(slow=False, timeout=90, needs=()):
    """Registers a function as a scenario named after it, unless the server lacks what it needs."""

    def register(body):
        if all(os.environ.get(NEEDS[need]) for need in needs):
            SCENARIOS.append(Scenario(body.__name__.replace("_", "-"), body, slow, timeout))
        return body

    return register


def expect(actual, wanted, what):
    if actual != wanted:
        raise Failure(f"{what}: wanted {brief(wanted)}, got {brief(actual)}")


def brief(value):
    text = repr(value)
    return text if len(text) <= 400 else f"{text[:300]}... ({len(text)} characters)"


def expect_true(condition, what):
    if not condition:
        raise Failure(what)


def eventually(check, seconds, what):
    """Polls `check` until it returns something true, which is the result."""
    end = time.monotonic() + seconds
    while True:
        value = check()
        if value:
            return value
        if time.monotonic() > end:
            raise Failure(f"not within {seconds} s: {what}")
        time.sleep(0.05)


def run(name_parts):
    """Runs the chosen scenarios and prints their outcomes; returns how many failed."""
    chosen = [s for s in SCENARIOS if not name_parts or any(part in s.name for part in name_parts)]
    chosen.sort(key=lambda s: not s.slow)
    run_id = uuid.uuid4().hex[:6]
    waiting = queue.SimpleQueue()
    for one in chosen:
        waiting.put(one)
    outcomes = queue.SimpleQueue()
    for _ in range(min(AT_ONCE, len(chosen))):
        threading.Thread(target=work, args=(waiting, outcomes, run_id), daemon=True).start()

    failed = 0
    for _ in chosen:
        name, seconds, reason = outcomes.get()
        print(f"FAIL {name} {reason}" if reason else f"ok {name} {seconds:.1f}s", flush=True)
        failed += bool(reason)
    print(f"{len(chosen) - failed} passed, {failed} failed", flush=True)
    return failed


def work(waiting, outcomes, run_id):
    while True:
        try:
            one = waiting.get_nowait()
        except queue.Empty:
            return
        started = time.monotonic()
        result = Future()
        threading.Thread(target=attempt, args=(one, run_id, result), daemon=True).start()
        try:
            reason = result.result(one.timeout)
        except TimeoutError:
            reason = f"hangs: no end after {one.timeout} s"
        outcomes.put((one.name, time.monotonic() - started, reason))


def attempt(one, run_id, result):
    session = Session(os.environ["AMQP"], one.name, run_id)
    try:
        one.body(session)
        reason = None
    except Exception as failure:  # a scenario's outcome, whatever it is
        own = [f for f in traceback.extract_tb(failure.__traceback__) if "/suite/" in f.filename]
        places = [f"{os.path.basename(f.filename)}:{f.lineno}" for f in own if not f.filename.endswith(("harness.py", "session.py"))]
        where = f" ({places[-1]})" if places else ""
        reason = f"{type(failure).__name__}: {failure}{where}".replace("\n", " ")
    try:
        session.close()
    except Exception:  # it may have broken what is to be closed
        pass
    result.set_result(reason)
