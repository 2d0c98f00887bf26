"""The registry of scenarios and the runner. Scenarios share workers, so they run in sequence; each prints one line."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import uuid

SCENARIOS = []


def scenario(body):
    """Registers a function as a scenario named after it."""
    SCENARIOS.append((body.__name__.replace("_", "-"), body))
    return body


class Failure(AssertionError):
    pass


def expect(actual, wanted, what):
    if actual != wanted:
        raise Failure(f"{what}: wanted {wanted!r}, got {actual!r}"[:500])


def expect_true(condition, what):
    if not condition:
        raise Failure(what)


def eventually(check, seconds, what):
    end = time.monotonic() + seconds
    while True:
        value = check()
        if value:
            return value
        if time.monotonic() > end:
            raise Failure(f"not within {seconds} s: {what}")
        time.sleep(0.1)


class Worker:
    """A `celery worker` process with its forked children."""

    def __init__(self, queues, concurrency=2, pool="prefork", extra=()):
        from . import tasks

        self.name = uuid.uuid4().hex[:8]
        names = ",".join(tasks.QUEUES[queue].name for queue in queues)
        self.log = os.path.join(tasks.DIRECTORY, f"worker-{self.name}.log")
        command = [sys.executable, "-m", "celery", "-A", "suite.tasks", "worker", "-Q", names, "-c", str(concurrency)]
        command += ["-P", pool, "-n", f"{self.name}@host", "-l", "INFO", "--without-gossip", *extra]
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        try:
            eventually(self.is_ready, 60, f"the worker is ready, see {self.log}")
        except Failure:
            if self.process.poll() is None:
                self.kill()
            raise

    def is_ready(self):
        expect_true(self.process.poll() is None, f"the worker ended: {self.text()[-400:]}")
        return " ready." in self.text()

    def text(self):
        with open(self.log) as log:
            return log.read()

    def kill(self):
        """Kills the worker with its children, as a power loss does."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(20)

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()
                raise Failure("the worker does not end after SIGTERM") from None


def notes(name):
    """Notes that tasks wrote under this name: times and texts."""
    from . import tasks

    path = os.path.join(tasks.DIRECTORY, name)
    if not os.path.exists(path):
        return []
    with open(path) as file:
        lines = [line.rstrip("\n").split(" ", 1) for line in file]
    return [(float(moment), text) for moment, text in lines]


def run(name_parts):
    """Runs the chosen scenarios and prints their outcomes; returns how many failed."""
    chosen = [(name, body) for name, body in SCENARIOS if not name_parts or any(part in name for part in name_parts)]
    failed = 0
    for name, body in chosen:
        started = time.monotonic()
        try:
            body()
            reason = None
        except Exception as failure:  # a scenario's outcome, whatever it is
            own = [f for f in traceback.extract_tb(failure.__traceback__) if "/suite/scenarios.py" in f.filename]
            where = f" (scenarios.py:{own[-1].lineno})" if own else ""
            reason = f"{type(failure).__name__}: {failure}{where}".replace("\n", " ")
        print(f"FAIL {name} {reason}" if reason else f"ok {name} {time.monotonic() - started:.1f}s", flush=True)
        failed += bool(reason)
    print(f"{len(chosen) - failed} passed, {failed} failed", flush=True)
    return failed


def directory():
    """Creates a directory for this run, which workers get in their environment."""
    path = tempfile.mkdtemp(prefix="compat-celery-")
    os.environ["RUN"] = uuid.uuid4().hex[:6]
    os.environ["RUN_DIRECTORY"] = path
    return path


def clean(path, keep):
    if not keep:
        shutil.rmtree(path, ignore_errors=True)
