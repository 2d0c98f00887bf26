"""librdkafka with `client.rack` against three nodes of three racks (KIP-392).

The node that records were read from is known by its counter of delivered bytes.
"""

import os
import re
import sys
import tempfile
import threading
import time
import traceback
import urllib.request
import uuid
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

sys.path.append(str(Path(__file__).resolve().parents[1] / "servers"))
from three_nodes import NODES, ThreeNodes  # noqa: E402

SOON_S = 60

SCENARIOS = []


def scenario(function):
    SCENARIOS.append((function.__name__.replace("_", "-"), function))
    return function


class Failure(AssertionError):
    pass


def expect(actual, wanted, what):
    if actual != wanted:
        raise Failure(f"{what}: wanted {wanted!r}, got {actual!r}")


def until(condition, what, seconds=SOON_S):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise Failure(f"{what} did not come about in {seconds} s")
        time.sleep(0.05)


def rack(node):
    return f"rack-{node}"


class Cluster(ThreeNodes):
    """Three nodes, each in a rack of its own."""

    def arguments(self, node):
        return ["--rack", rack(node)]

    def bootstrap(self):
        return ",".join(f"127.0.0.1:{self.kafka[it]}" for it in NODES)

    def delivered(self, node):
        """Bytes that Kafka's clients have read from a node."""
        with urllib.request.urlopen(f"{self.url(node)}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        found = re.search(r'^postroad_delivered_bytes(?:_total)?\{[^}]*protocol="kafka"[^}]*\} (\S+)', text, re.M)
        return float(found.group(1)) if found else 0.0

    def topic(self, partitions):
        topic = f"near-{uuid.uuid4().hex[:8]}"
        client = AdminClient({"bootstrap.servers": self.bootstrap()})
        for future in client.create_topics([NewTopic(topic, partitions)]).values():
            future.result(SOON_S)
        return topic

    def leaders(self, topic):
        client = AdminClient({"bootstrap.servers": self.bootstrap(), "log_level": 0})
        partitions = client.list_topics(topic, timeout=SOON_S).topics[topic].partitions
        return {index: it.leader for index, it in partitions.items()}

    def is_whole(self, topic):
        """Whether every partition has a leader and a full ISR."""
        client = AdminClient({"bootstrap.servers": self.bootstrap(), "log_level": 0})
        partitions = client.list_topics(topic, timeout=SOON_S).topics[topic].partitions
        return all(it.leader > 0 and len(it.isrs) == len(NODES) for it in partitions.values())

    def consumer(self, node, **more):
        """A consumer in the rack of a node; `None`: without a rack."""
        config = {
            "bootstrap.servers": self.bootstrap(),
            "group.id": f"near-{uuid.uuid4().hex[:8]}",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "log_level": 0,
            **more,
        }
        if node is not None:
            config["client.rack"] = rack(node)
        return Consumer(config)

    def producer(self):
        return Producer({"bootstrap.servers": self.bootstrap(), "enable.idempotence": True, "linger.ms": 5, "log_level": 0})


def read(consumer, count, seconds=SOON_S):
    """Reads `count` messages."""
    found, deadline = [], time.monotonic() + seconds
    while len(found) < count:
        if time.monotonic() > deadline:
            raise Failure(f"{len(found)} of {count} records were read in {seconds} s")
        message = consumer.poll(0.2)
        if message is None:
            continue
        if message.error():
            if message.error().fatal() or message.error().code() == KafkaError._AUTO_OFFSET_RESET:
                raise Failure(str(message.error()))
            continue
        found.append(message)
    return found


def assigned(cluster, node, topic, partitions):
    consumer = cluster.consumer(node)
    consumer.assign([TopicPartition(topic, it, OFFSET_BEGINNING) for it in range(partitions)])
    return consumer


@scenario
def records_are_read_from_the_node_of_the_clients_rack(cluster):
    count, partitions = 3000, 3
    topic, producer = cluster.topic(partitions), cluster.producer()
    for number in range(count):
        producer.produce(topic, value=f"{number:0200}", partition=number % partitions)
    expect(producer.flush(SOON_S), 0, "records that are not acknowledged")
    expect(sorted(cluster.leaders(topic).values()), NODES, "each node leads a partition")
    for near in NODES:
        before = {node: cluster.delivered(node) for node in NODES}
        consumer = assigned(cluster, near, topic, partitions)
        values = sorted(int(message.value()) for message in read(consumer, count))
        consumer.close()
        expect(values, list(range(count)), "what was read")
        grown = {node: cluster.delivered(node) - before[node] for node in NODES}
        expect(grown[near] > count * 200, True, f"bytes of the near node {near}, {grown}")
        others = [grown[node] for node in NODES if node != near]
        expect(others, [0, 0], f"bytes of the others, where node {near} is near")
    before = {node: cluster.delivered(node) for node in NODES}
    consumer = assigned(cluster, None, topic, partitions)
    read(consumer, count)
    consumer.close()
    grown = [cluster.delivered(node) - before[node] for node in NODES]
    expect(all(it > count * 200 / 3 for it in grown), True, f"bytes of each leader, for who is in no rack, {grown}")


class Reading:
    """A consumer in a rack that reads one partition in order, all the time."""

    def __init__(self, cluster, node, topic):
        self.consumer = assigned(cluster, node, topic, 1)
        self.messages, self.failure, self.stopping = [], None, False
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while not self.stopping:
            message = self.consumer.poll(0.1)
            if message is None:
                continue
            if message.error():
                if message.error().fatal() or message.error().code() == KafkaError._AUTO_OFFSET_RESET:
                    self.failure = str(message.error())
                    return
                continue
            self.messages.append((message.offset(), message.value()))

    def stop(self):
        self.stopping = True
        self.thread.join(SOON_S)
        self.consumer.close()
        if self.failure:
            raise Failure(f"the consumer failed: {self.failure}")


class Writing:
    """Writes numbers to one partition, one after the other; keeps those that were acknowledged."""

    def __init__(self, cluster, topic):
        self.producer, self.topic = cluster.producer(), topic
        self.acknowledged, self.refused, self.stopping = [], [], False
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        number = 0
        while not self.stopping:
            def done(error, message, number=number):
                (self.refused if error else self.acknowledged).append(number)

            self.producer.produce(self.topic, value=str(number), partition=0, on_delivery=done)
            self.producer.poll(0)
            number += 1
            time.sleep(0.002)

    def stop(self):
        self.stopping = True
        self.thread.join(SOON_S)
        expect(self.producer.flush(SOON_S), 0, "records that are not acknowledged")
        return self.acknowledged


@scenario
def nothing_is_lost_or_doubled_while_the_leader_and_then_the_near_node_are_killed(cluster):
    topic = cluster.topic(1)
    writing = Writing(cluster, topic)
    leader = cluster.leaders(topic)[0]
    near = next(node for node in NODES if node != leader)
    reading = Reading(cluster, near, topic)

    def goes_on(what):
        """Checks that newly written records are read."""
        mark = len(writing.acknowledged) + 200
        until(lambda: len(writing.acknowledged) > mark, f"{what}: more is acknowledged")
        wanted = str(writing.acknowledged[-1]).encode()
        until(lambda: any(value == wanted for _, value in reading.messages[-2000:]) or reading.failure, f"{what}: it is read")

    def reads_at(node, what):
        """Checks that newly written records are read from that node."""
        def is_so():
            before = cluster.delivered(node)
            goes_on(what)
            return cluster.delivered(node) > before
        until(is_so, f"{what}: it is read from node {node}")

    reads_at(near, "at first")
    cluster.kill(leader)
    goes_on("the leader is killed")
    reads_at(near, "the leader is killed")
    cluster.start(leader)
    until(lambda: cluster.is_whole(topic), "all nodes are there")
    cluster.kill(near)
    goes_on("the near node is killed")
    cluster.start(near)
    until(lambda: cluster.is_whole(topic), "all nodes are there")
    reads_at(near, "the near node is back")

    acknowledged = writing.stop()
    expect(writing.refused, [], "records that were refused")
    count = len(acknowledged)
    until(lambda: len(reading.messages) >= count or reading.failure, "everything is read")
    reading.stop()
    offsets = [offset for offset, _ in reading.messages]
    expect(offsets, list(range(len(offsets))), "offsets that were read, in their order")
    values = [int(value) for _, value in reading.messages]
    expect(values, sorted(set(values)), "values that were read: each once, in their order")
    expect(set(acknowledged) - set(values), set(), "values that were acknowledged and not read")


@scenario
def a_group_of_consumers_in_different_racks_reads_every_record(cluster):
    count, partitions = 3000, 6
    topic, producer = cluster.topic(partitions), cluster.producer()
    group = f"near-{uuid.uuid4().hex[:8]}"
    members = [cluster.consumer(node, **{"group.id": group, "auto.offset.reset": "earliest"}) for node in NODES]
    for member in members:
        member.subscribe([topic])
    for number in range(count):
        producer.produce(topic, value=f"{number}", partition=number % partitions)
    expect(producer.flush(SOON_S), 0, "records that are not acknowledged")
    values, deadline = [], time.monotonic() + SOON_S
    while len(values) < count and time.monotonic() < deadline:
        for member in members:
            message = member.poll(0.02)
            if message is not None and not message.error():
                values.append(int(message.value()))
    for member in members:
        member.close()
    # A member that joins later takes over partitions without a committed offset.
    expect(sorted(set(values)), list(range(count)), "what was read")


def main(parts):
    wanted = [(name, body) for name, body in SCENARIOS if not parts or any(part in name for part in parts)]
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        cluster = Cluster(folder)
        for name, body in wanted:
            begun = time.monotonic()
            try:
                body(cluster)
                print(f"ok {name} {time.monotonic() - begun:.1f}", flush=True)
            except Exception as error:  # noqa: BLE001  (whatever it is, the scenario failed)
                failed += 1
                at = [it for it in traceback.extract_tb(error.__traceback__) if it.filename.endswith("suite.py")]
                text = " ".join(str(error).split())
                text = text if len(text) < 500 else f"{text[:500]}..."
                print(f"FAIL {name} {text or repr(error)} (suite.py:{at[-1].lineno})", flush=True)
        cluster.stop()
        if failed:
            for node in NODES:
                with open(f"{folder}/node-{node}.log") as log:
                    sys.stderr.write(f"node {node}:\n{log.read()[-4000:]}\n")
    print(f"{len(wanted) - failed} passed, {failed} failed")
    return failed


if __name__ == "__main__":
    failed = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(1 if failed else 0)
