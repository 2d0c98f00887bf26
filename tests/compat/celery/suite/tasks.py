"""The application: its configuration, and tasks that do a little of everything.

Workers and the suite both import it; RUN distinguishes the queues of different runs.
"""

import os
import time

from celery import Celery
from kombu import Exchange, Queue

RUN = os.environ["RUN"]
DIRECTORY = os.environ["RUN_DIRECTORY"]

app = Celery("suite", broker=f"amqp://guest:guest@{os.environ['AMQP']}//", backend="rpc://")


def queue(name, **arguments):
    full = f"celery-{RUN}-{name}"
    return Queue(full, Exchange(full, type="direct"), routing_key=full, queue_arguments=arguments or None)


QUEUES = {
    "plain": queue("plain"),
    "late": queue("late"),
    "priority": queue("priority", **{"x-max-priority": 10}),
    "quorum": queue("quorum", **{"x-queue-type": "quorum"}),
}

app.conf.update(
    task_queues=list(QUEUES.values()),
    task_default_queue=QUEUES["plain"].name,
    task_default_exchange=QUEUES["plain"].name,
    task_default_routing_key=QUEUES["plain"].name,
    result_expires=600,
    broker_connection_retry_on_startup=True,
    broker_transport_options={"confirm_publish": True},
    worker_hijack_root_logger=False,
    worker_detect_quorum_queues=True,
    # A chord needs a backend that others can read.
    result_persistent=False,
    timezone="UTC",
)


def note(name, text):
    """Appends one line to a file of the run, from any process."""
    with open(os.path.join(DIRECTORY, name), "a") as file:
        file.write(f"{time.time()} {text}\n")


@app.task
def add(a, b):
    return a + b


@app.task
def echo(value):
    return value


@app.task
def total(numbers):
    return sum(numbers)


@app.task
def fail(text):
    raise ValueError(text)


@app.task(bind=True, max_retries=3)
def flaky(self, name, failures, countdown):
    note(name, self.request.retries)
    if self.request.retries < failures:
        raise self.retry(countdown=countdown)
    return self.request.retries


@app.task(bind=True, autoretry_for=(OSError,), retry_backoff=False, default_retry_delay=0.2, max_retries=2)
def hopeless(self, name):
    note(name, self.request.retries)
    raise OSError("never")


@app.task
def stamp(name, text):
    note(name, text)
    return text


@app.task(acks_late=True, reject_on_worker_lost=True)
def slow(name, text, seconds):
    note(name, f"begin {text}")
    time.sleep(seconds)
    note(name, f"end {text}")
    return text
