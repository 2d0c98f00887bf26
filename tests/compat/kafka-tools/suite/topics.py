"""kafka-topics, kafka-reassign-partitions, kafka-leader-election."""

import json
import os
import subprocess

from .harness import BOOTSTRAP, described, expect, nodes, scenario, tool, tool_file, until


@scenario
def topics_are_made_described_altered_and_deleted(place):
    topic, count = place.topic(6), len(nodes())
    tool("kafka-topics", "--list").succeeded().says(topic)
    printed = tool("kafka-topics", "--describe", "--topic", topic).succeeded()
    printed.says(f"Topic: {topic}", "PartitionCount: 6", f"ReplicationFactor: {count}")
    found = described(topic)
    expect(sorted(found), list(range(6)), "partitions")
    for leader, replicas, in_sync in found.values():
        expect(sorted(replicas), nodes(), "replicas")
        expect(sorted(in_sync), nodes(), "replicas in sync")
        expect(leader in replicas, True, "the leader is one of them")
    leaders = {leader for leader, _, _ in found.values()}
    expect(sorted(leaders), nodes(), "each broker leads some of six partitions")
    for what in ["--under-replicated-partitions", "--unavailable-partitions", "--under-min-isr-partitions"]:
        tool("kafka-topics", "--describe", "--topic", topic, what).succeeded().says_not(topic)
    tool("kafka-topics", "--alter", "--topic", topic, "--partitions", 8).succeeded()
    expect(len(described(topic)), 8, "partitions after --alter")
    tool("kafka-topics", "--alter", "--topic", topic, "--partitions", 4).failed().says("InvalidPartitionsException")
    tool("kafka-topics", "--delete", "--topic", topic).succeeded()
    until(lambda: topic not in tool("kafka-topics", "--list").out, "the topic is gone")


@scenario
def topics_that_cannot_be_made_are_refused_with_a_reason(place):
    topic = place.topic()
    tool("kafka-topics", "--create", "--topic", topic).failed().says("TopicExistsException", topic)
    tool("kafka-topics", "--create", "--topic", topic, "--if-not-exists").succeeded()
    many = len(nodes()) + 4
    refused = tool("kafka-topics", "--create", "--topic", place.name("many"), "--replication-factor", many)
    refused.failed().says("InvalidReplicationFactorException")
    wrong = tool("kafka-topics", "--create", "--topic", place.name("wrong"), "--config", "no.such.config=1")
    wrong.failed().says("InvalidConfigurationException")
    tool("kafka-topics", "--describe", "--topic", place.name("none")).failed().says("does not exist")


@scenario
def topics_have_a_replica_on_each_broker_that_is_named(place):
    assignment = ":".join(str(it) for it in nodes())
    topic = place.name("assigned")
    place.topics.append(topic)
    tool("kafka-topics", "--create", "--topic", topic, "--replica-assignment", f"{assignment},{assignment}").succeeded()
    for _, replicas, _ in described(topic).values():
        expect(sorted(replicas), nodes(), "replicas")


def reassignment(topic, replicas):
    partitions = [
        {"topic": topic, "partition": partition, "replicas": of, "log_dirs": ["any"] * len(of)}
        for partition, of in replicas.items()
    ]
    return tool_file({"version": 1, "partitions": partitions})


@scenario
def reassign_partitions_generates_executes_and_verifies_what_is_so(place):
    topic = place.topic(3)
    wanted = tool_file({"version": 1, "topics": [{"topic": topic}]})
    brokers = ",".join(str(it) for it in nodes())
    generated = tool(
        "kafka-reassign-partitions", "--topics-to-move-json-file", wanted, "--broker-list", brokers, "--generate"
    ).succeeded()
    generated.says("Current partition replica assignment", "Proposed partition reassignment configuration")
    documents = [json.loads(line) for line in generated.lines() if line.startswith("{")]
    expect(len(documents), 2, "the current and the proposed assignment")
    now = {it["partition"]: it["replicas"] for it in documents[0]["partitions"]}
    expect(now, {partition: it[1] for partition, it in described(topic).items()}, "the current assignment")
    file = reassignment(topic, now)
    executed = tool("kafka-reassign-partitions", "--reassignment-json-file", file, "--execute").succeeded()
    executed.says("Successfully started partition reassignments for")
    verified = tool("kafka-reassign-partitions", "--reassignment-json-file", file, "--verify").succeeded()
    for partition in now:
        verified.says(f"Reassignment of partition {topic}-{partition} is completed.")
    tool("kafka-reassign-partitions", "--list").succeeded().says("No partition reassignments found.")
    cancelled = tool("kafka-reassign-partitions", "--reassignment-json-file", file, "--cancel").succeeded()
    cancelled.says("None of the specified partition moves are active.")


@scenario
def reassign_partitions_to_other_brokers_is_refused_with_what_to_type(place):
    topic = place.topic(1)
    replicas = nodes()[:-1] if len(nodes()) > 1 else [nodes()[0] + 1]
    file = reassignment(topic, {0: replicas})
    refused = tool("kafka-reassign-partitions", "--reassignment-json-file", file, "--execute")
    if len(nodes()) > 1:
        refused.says("Error reassigning partition(s)", "postroad node replace N --with NEW")
    else:
        refused.failed()
    tool("kafka-reassign-partitions", "--list").succeeded().says("No partition reassignments found.")


# A broker with a slow disk, as on a busy machine, is not elected for a minute.
ELECTED_SECONDS = 180


def elects_the_first(topic):
    """Whether the first replica of each partition is its leader; if not, requests an election for all."""
    if all(leader == replicas[0] for leader, replicas, _ in described(topic).values()):
        return True
    tool("kafka-leader-election", "--election-type", "preferred", "--all-topic-partitions")
    return False


@scenario
def leader_election_of_preferred_leaders_is_needless_where_they_lead(place):
    topic = place.topic(3)
    until(lambda: elects_the_first(topic), "each partition is led by its first replica", ELECTED_SECONDS)
    one = tool("kafka-leader-election", "--election-type", "preferred", "--topic", topic, "--partition", 0)
    one.succeeded().says("Valid replica already elected for partitions")
    unclean = tool("kafka-leader-election", "--election-type", "unclean", "--topic", topic, "--partition", 0)
    unclean.succeeded().says("Valid replica already elected for partitions")


@scenario
def leader_election_leaves_each_shard_with_its_first_replica(place):
    # Moving a leader needs Postroad's own command.
    postroad = os.environ.get("POSTROAD")
    if postroad is None or len(nodes()) < 3:
        return
    topic = place.topic(6)
    before = described(topic)
    node = before[1][0]

    def type_to(*arguments):
        subprocess.run([postroad, "node", *arguments, "--bootstrap", BOOTSTRAP], check=True, capture_output=True)

    type_to("drain", str(node))
    try:
        gone = lambda: all(leader not in (node, None) for leader, _, _ in described(topic).values())
        until(gone, f"broker {node} leads nothing")
        for _, replicas, _ in described(topic).values():
            expect(replicas[-1], node, "a drained broker is the last that is to lead")
        until(lambda: elects_the_first(topic), "each partition is led by the first of the others", ELECTED_SECONDS)
    finally:
        type_to("resume", str(node))
    replicas = lambda found: {partition: it[1] for partition, it in found.items()}
    until(lambda: replicas(described(topic)) == replicas(before), "the broker is first among replicas again")
    # The node may lead its shards again by now; then no election is needed.
    until(lambda: elects_the_first(topic), "each partition is led by its first replica", ELECTED_SECONDS)
