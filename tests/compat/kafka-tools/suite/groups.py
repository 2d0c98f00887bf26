"""kafka-consumer-groups and kafka-groups."""

from .harness import expect, scenario, tool


def groups(*arguments):
    return tool("kafka-consumer-groups", *arguments)


@scenario
def consumer_groups_are_listed_described_reset_and_deleted(place):
    topic, group = place.topic(3), place.name("group")
    place.produce(topic, 30)
    place.consume(topic, 30, "--group", group)
    groups("--list").succeeded().says(group)
    groups("--list", "--state").succeeded().says(group, "Empty")
    groups("--list", "--type").succeeded().says(group)
    tool("kafka-groups", "--list").succeeded().says(group)
    rows = groups("--describe", "--group", group).succeeded().rows()
    rows = [row for row in rows if row.get("TOPIC") == topic]
    expect(sum(int(row["CURRENT-OFFSET"]) for row in rows), 30, "committed offsets")
    expect({row["LAG"] for row in rows}, {"0"}, "lags")
    groups("--describe", "--group", group, "--state").succeeded().says(group, "Empty")
    groups("--describe", "--group", group, "--members").succeeded().says("has no active members")
    groups("--describe", "--group", group, "--offsets", "--verbose").succeeded().says(topic)
    groups("--describe", "--all-groups").succeeded().says(group)

    dry = groups("--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--dry-run").succeeded()
    expect({row["NEW-OFFSET"] for row in dry.rows()}, {"0"}, "offsets that would be set")
    done = groups("--reset-offsets", "--group", group, "--topic", f"{topic}:0", "--shift-by", -1, "--execute").succeeded()
    expect(len(done.rows()), 1, "partitions that were reset")
    again = place_consume_rest(topic, group)
    expect(len(again), 1, "records that are read again")
    groups("--reset-offsets", "--group", group, "--all-topics", "--to-datetime", "2000-01-01T00:00:00.000", "--execute").succeeded()
    expect(len(place_consume_rest(topic, group, 30)), 30, "records that are read again")

    dropped = groups("--delete-offsets", "--group", group, "--topic", f"{topic}:1").succeeded()
    dropped.says("Request succeeded for deleting offsets")
    groups("--delete", "--group", group).succeeded().says("Deletion of requested consumer groups")
    groups("--list").succeeded().says_not(group)
    groups("--describe", "--group", group).says("GroupIdNotFoundException")


def place_consume_rest(topic, group, count=1):
    read = tool("kafka-console-consumer", "--topic", topic, "--group", group, "--max-messages", count, "--timeout-ms", 30000)
    return [line for line in read.succeeded().lines() if line.startswith("value-")]


@scenario
def consumer_groups_of_the_new_protocol_are_described(place):
    topic, group = place.topic(2), place.name("group")
    place.produce(topic, 10)
    place.consume(topic, 10, "--group", group, "--command-property", "group.protocol=consumer")
    groups("--list", "--type", "consumer").succeeded().says(group)
    groups("--list", "--type", "classic").succeeded().says_not(group)
    groups("--describe", "--group", group, "--state").succeeded().says(group, "Empty")
    groups("--delete", "--group", group).succeeded()
