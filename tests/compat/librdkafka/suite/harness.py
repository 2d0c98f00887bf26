"""The registry of scenarios and the runner: one line each, many at a time.

Scenarios mostly wait (for rebalances, retention, compaction), so they run concurrently in threads and
each keeps to names of its own; the slow ones are started first.
"""

import os
import queue
import threading
import time
import traceback
import uuid
from concurrent.futures import Future
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

AT_ONCE = 12
REQUEST_SECONDS = 15
LEADERS_MOVE = "LEADERS_MOVE" in os.environ
NOT_SERVED_YET = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
)
# Python's own settings keep their underscores; librdkafka's have dots, which a keyword cannot have.
CALLBACKS = {"on_commit": "on_commit"}


@dataclass
class Scenario:
    name: str
    body: callable
    slow: bool
    timeout: float


SCENARIOS: list[Scenario] = []


def scenario(slow=False, timeout=90):
    """Registers a function as a scenario named after it."""

    def register(body):
        SCENARIOS.append(Scenario(body.__name__.replace("_", "-"), body, slow, timeout))
        return body

    return register


class Failure(AssertionError):
    pass


def expect(actual, wanted, what):
    if actual != wanted:
        raise Failure(f"{what}: wanted {brief(wanted)}, got {brief(actual)}")


def brief(value):
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:80]}... ({len(text)} characters)"


def expect_true(condition, what):
    if not condition:
        raise Failure(what)


def expect_error(code, action, what):
    """Runs `action`; it must be refused with one of the protocol's errors in `code`."""
    wanted = code if isinstance(code, tuple) else (code,)
    try:
        result = action()
    except KafkaException as refused:
        got = refused.args[0].code()
        if got not in wanted:
            raise Failure(f"{what}: wanted error {wanted}, got {refused.args[0]!r}") from refused
        return
    raise Failure(f"{what}: wanted error {wanted}, got {result!r}")


def eventually(check, seconds, what):
    """Polls `check` until it returns something true, which is the result."""
    end = time.monotonic() + seconds
    while True:
        value = check()
        if value:
            return value
        if time.monotonic() > end:
            raise Failure(f"not within {seconds} s: {what}")
        time.sleep(0.1)


@dataclass
class Context:
    """Resources of one scenario: unique names, and clients that are closed after it."""

    bootstrap: str
    name: str
    run_id: str
    topics: list[str] = field(default_factory=list)
    open_consumers: list[Consumer] = field(default_factory=list)

    def __post_init__(self):
        self.admin = AdminClient(self.client_config())

    def client_config(self, **more):
        # Many rejections are expected; exceptions report the same as the log.
        config = {"bootstrap.servers": self.bootstrap, "log_level": 2}
        return config | {CALLBACKS.get(key) or key.replace("_", "."): value for key, value in more.items()}

    def unique(self, suffix="t"):
        return f"rdk-{self.name}-{self.run_id}-{suffix}"

    def topic(self, partitions=1, suffix="t", **config):
        name = self.unique(suffix)
        topic = NewTopic(name, partitions, -1, config={key.replace("_", "."): value for key, value in config.items()})
        self.topics.append(name)
        self.done(self.admin.create_topics([topic]))
        eventually(lambda: self.serves(name, partitions), 10, f"{name} is served")
        return name

    def serves(self, topic, partitions):
        """Kafka's metadata may show a topic before its leaders serve; a first idempotent batch would be refused."""
        latest = {TopicPartition(topic, p): OffsetSpec.latest() for p in range(partitions)}
        try:
            return len(self.partitions(topic)) == partitions and self.done(self.admin.list_offsets(latest))
        except KafkaException as refused:
            if refused.args[0].code() not in NOT_SERVED_YET:
                raise
            return False

    def partitions(self, topic):
        # Not list_topics(topic): an admin client's metadata request creates the topic that it names.
        try:
            return self.only(self.admin.describe_topics(TopicCollection([topic]))).partitions
        except KafkaException as refused:
            if refused.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
            return []

    @staticmethod
    def done(futures):
        """The results of an admin call on one or more objects."""
        return {key: future.result(REQUEST_SECONDS) for key, future in futures.items()}

    @staticmethod
    def only(futures):
        (future,) = futures.values() if isinstance(futures, dict) else (futures,)
        return future.result(REQUEST_SECONDS)

    def producer(self, **config):
        return Producer(self.client_config(**config))

    def consumer(self, group=None, **config):
        settings = {
            "group_id": group or self.unique("nogroup"),
            "enable_auto_commit": False,
            "auto_offset_reset": "earliest",
        }
        consumer = Consumer(self.client_config(**settings | config))
        self.open_consumers.append(consumer)
        return consumer

    def produce(self, topic, values, partition=0, keys=None, **config):
        """Produces `values` in order and returns the messages as acknowledged."""
        # One request in flight, or a retry may change the order.
        producer = self.producer(**{"max_in_flight": 1} | config)
        delivered = []

        def on_delivery(error, message):
            delivered.append(error or message)

        for index, value in enumerate(values):
            key = keys[index] if keys else None
            producer.produce(topic, value, key, partition, on_delivery=on_delivery)
        expect(producer.flush(30), 0, "messages left after flush")
        for outcome in delivered:
            if isinstance(outcome, KafkaError):
                raise KafkaException(outcome)
        return delivered

    def read(self, topic, count, partition=0, offset=0, seconds=20, **config):
        """The next `count` messages of a partition, in order."""
        consumer = self.consumer(**config)
        consumer.assign([TopicPartition(topic, partition, offset)])
        messages = take(consumer, count, seconds)
        consumer.close()
        return messages

    def offset_of(self, topic, spec, partition=0):
        where = TopicPartition(topic, partition)
        try:
            return self.only(self.admin.list_offsets({where: spec}))
        except KafkaException as error:
            if error.args[0].code() not in (KafkaError.FENCED_LEADER_EPOCH, KafkaError.NOT_LEADER_FOR_PARTITION):
                raise
            # The client keeps its old leaders and leaves the retry to the application; a new client refreshes them.
            another = AdminClient(self.client_config())
            return self.only(another.list_offsets({where: spec}))

    def earliest(self, topic, partition=0):
        return self.offset_of(topic, OffsetSpec.earliest(), partition).offset

    def latest(self, topic, partition=0):
        return self.offset_of(topic, OffsetSpec.latest(), partition).offset

    def close(self):
        for consumer in self.open_consumers:
            try:
                consumer.close()
            except RuntimeError:
                pass  # the scenario closed it
        if self.topics:
            self.admin.delete_topics(self.topics)


def next_event(consumer, seconds=10):
    """The next message or error event. (A message without a value is false, so `eventually` would miss it.)"""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        message = consumer.poll(0.2)
        if message is not None:
            return message
    raise Failure(f"nothing came within {seconds} s")


def take(consumer, count, seconds=20):
    """Polls until it has `count` messages; an error event is raised."""
    messages = []
    end = time.monotonic() + seconds
    while len(messages) < count:
        message = consumer.poll(0.2)
        if message is not None:
            if message.error():
                raise KafkaException(message.error())
            messages.append(message)
        elif time.monotonic() > end:
            raise Failure(f"{len(messages)} of {count} messages within {seconds} s")
    return messages


def run(bootstrap, name_parts):
    """Runs the chosen scenarios and prints their outcomes; returns how many failed."""
    chosen = [s for s in SCENARIOS if not name_parts or any(part in s.name for part in name_parts)]
    chosen.sort(key=lambda s: not s.slow)
    run_id = uuid.uuid4().hex[:6]
    waiting = queue.SimpleQueue()
    for one in chosen:
        waiting.put(one)
    outcomes = queue.SimpleQueue()
    for _ in range(min(AT_ONCE, len(chosen))):
        threading.Thread(target=work, args=(waiting, outcomes, bootstrap, run_id), daemon=True).start()

    failed = 0
    for _ in chosen:
        name, seconds, reason = outcomes.get()
        print(f"FAIL {name} {reason}" if reason else f"ok {name} {seconds:.1f}s", flush=True)
        failed += bool(reason)
    print(f"{len(chosen) - failed} passed, {failed} failed", flush=True)
    return failed


def work(waiting, outcomes, bootstrap, run_id):
    while True:
        try:
            one = waiting.get_nowait()
        except queue.Empty:
            return
        started = time.monotonic()
        result = Future()
        threading.Thread(target=attempt, args=(one, bootstrap, run_id, result), daemon=True).start()
        try:
            reason = result.result(one.timeout)
        except TimeoutError:
            reason = f"hangs: no end after {one.timeout} s"
        outcomes.put((one.name, time.monotonic() - started, reason))


def attempt(one, bootstrap, run_id, result):
    context = Context(bootstrap, one.name, run_id)
    try:
        one.body(context)
        reason = None
    except Exception as failure:  # a scenario's outcome, whatever it is
        frames = [f for f in traceback.extract_tb(failure.__traceback__) if "/suite/" in f.filename]
        places = [f"{os.path.basename(f.filename)}:{f.lineno}" for f in frames if not f.filename.endswith("harness.py")]
        where = f" ({places[-1]})" if places else ""
        reason = f"{type(failure).__name__}: {failure}{where}".replace("\n", " ")
    result.set_result(reason)
    context.close()
