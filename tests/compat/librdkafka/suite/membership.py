"""A group under churn: members in threads that record every message and commit before the next poll."""

import threading
import time
from collections import Counter

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from .harness import eventually, expect, expect_true


class Member:
    """One consumer in a thread of its own; joins on creation, leaves (or just stops) on request."""

    def __init__(self, context, topics, group, **config):
        self.consumer = context.consumer(group, **config)
        self.topics = topics
        self.processed = []
        self.assigned = []
        self.assignments = 0
        self.failure = None
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()

    def work(self):
        try:
            self.consumer.subscribe(self.topics, on_assign=self.on_assign)
            while not self.stopping.is_set():
                self.step()
            self.consumer.close()
        except Exception as failure:  # told to the scenario by `check`
            self.failure = failure

    def on_assign(self, consumer, partitions):
        self.assignments += 1

    def step(self):
        message = self.consumer.poll(0.05)
        # The assignment changes only inside poll, so this view of it is consistent.
        self.assigned = [(p.topic, p.partition) for p in self.consumer.assignment()]
        if message is None:
            return
        if message.error():
            raise KafkaException(message.error())
        self.processed.append((message.topic(), message.partition(), message.offset()))
        self.commit(message)

    def commit(self, message):
        """Commits synchronously. A rebalance may be in progress, but partitions are revoked only inside `poll`:
        a retry with the client's new generation is correct."""
        position = TopicPartition(message.topic(), message.partition(), message.offset() + 1)
        again = (KafkaError.REBALANCE_IN_PROGRESS, KafkaError.ILLEGAL_GENERATION, KafkaError.STALE_MEMBER_EPOCH)
        for _ in range(100):
            try:
                self.consumer.commit(offsets=[position], asynchronous=False)
                return
            except KafkaException as refused:
                if refused.args[0].code() not in again:
                    raise
                time.sleep(0.1)

    def leave(self):
        self.stopping.set()
        self.thread.join(15)
        expect_true(not self.thread.is_alive(), "the member leaves in time")
        self.check()

    def check(self):
        if self.failure:
            raise self.failure


def owners(members):
    for member in members:
        member.check()
    return Counter(partition for member in members for partition in member.assigned)


def settled(members, partitions, seconds=40, every_member=True):
    """Waits until each of `partitions` has one owner, and each member at least one of them."""

    def check():
        counts = owners(members)
        if set(counts) != set(partitions) or max(counts.values()) != 1:
            return False
        return all(m.assigned for m in members) or not every_member

    eventually(check, seconds, f"the group settles; assigned: {[m.assigned for m in members]}")


def balanced(members, partitions, counts):
    """Waits until the members have these numbers of `partitions`. Meanwhile a member may still own more than its
    share: it revokes the rest with its next heartbeat."""

    def check():
        held = owners(members)
        if set(held) != set(partitions) or max(held.values()) != 1:
            return False
        return sorted(len(m.assigned) for m in members) == counts

    eventually(check, 40, f"the group is balanced as {counts}")


def churn(context, **config):
    """Members come and go while records flow; every record is processed exactly once."""
    topic = context.topic(partitions=6)
    group = context.unique("g")
    partitions = [(topic, p) for p in range(6)]
    producing = threading.Event()
    sent = []

    def produce():
        producer = context.producer(linger_ms=5)
        while not producing.is_set():
            producer.produce(topic, b"%d" % len(sent), partition=len(sent) % 6)
            sent.append(1)
            producer.poll(0.02)
        producer.flush(20)

    feeder = threading.Thread(target=produce, daemon=True)
    feeder.start()
    try:
        first = Member(context, [topic], group, **config)
        settled([first], partitions)
        second = Member(context, [topic], group, **config)
        settled([first, second], partitions)
        third = Member(context, [topic], group, **config)
        balanced([first, second, third], partitions, [2, 2, 2])
        first.leave()
        balanced([second, third], partitions, [3, 3])
    finally:
        producing.set()
        feeder.join(30)
    members = [first, second, third]

    def processed():
        for member in members:
            member.check()
        return sum(len(m.processed) for m in members)

    eventually(lambda: processed() >= len(sent), 20, f"all {len(sent)} records are processed")
    second.leave()
    third.leave()
    counts = Counter(record for m in members for record in m.processed)
    expect(len(counts), len(sent), "distinct records")
    expect([r for r, n in counts.items() if n != 1], [], "records processed twice")
    check_committed(context, group, topic)
    return group


def check_committed(context, group, topic):
    consumer = context.consumer(group)
    partitions = [TopicPartition(topic, p) for p in range(len(context.partitions(topic)))]
    for committed in consumer.committed(partitions, timeout=10):
        expect(committed.offset, context.latest(topic, committed.partition), f"committed of {committed.partition}")
