"""kafka-metadata-quorum, kafka-features, kafka-broker-api-versions, kafka-cluster."""

import re

from .harness import expect, nodes, scenario, tool


@scenario
def metadata_quorum_has_its_status_and_replication(place):
    status = tool("kafka-metadata-quorum", "describe", "--status").succeeded()
    status.says("ClusterId:", "LeaderId:", "LeaderEpoch:", "HighWatermark:", "CurrentVoters:", "CurrentObservers:")
    leader = int(re.search(r"LeaderId:\s+(\d+)", status.out).group(1))
    expect(leader in nodes(), True, "the leader is a broker")
    voters = [int(it) for it in re.findall(r'"id": (\d+)', re.search(r"CurrentVoters:.*", status.out).group(0))]
    expect(sorted(voters), nodes(), "voters")
    lag = int(re.search(r"MaxFollowerLag:\s+(-?\d+)", status.out).group(1))
    expect(0 <= lag < 1000, True, f"the largest lag, {lag}")
    rows = tool("kafka-metadata-quorum", "describe", "--replication").succeeded().out.splitlines()
    rows = [re.split(r"\t+|\s{2,}", row.strip()) for row in rows if row.strip()]
    heads, rows = rows[0], [dict(zip(rows[0], row)) for row in rows[1:]]
    expect("NodeId" in heads and "LogEndOffset" in heads and "Lag" in heads, True, f"headings, {heads}")
    expect(sorted(int(row["NodeId"]) for row in rows), nodes(), "members")
    expect([row["Status"] for row in rows if int(row["NodeId"]) == leader], ["Leader"], "the leader's status")
    for row in rows:
        expect(int(row["LogEndOffset"]) > 0, True, f"the end of the log of {row['NodeId']}")
        expect(0 <= int(row["Lag"]) < 1000, True, f"the lag of {row['NodeId']}, {row['Lag']}")
    human = tool("kafka-metadata-quorum", "describe", "--replication", "--human-readable").succeeded()
    human.says("Leader", "ms ago")


@scenario
def features_are_described_and_stay(place):
    described = tool("kafka-features", "describe").succeeded()
    described.says("Feature: metadata.version", "SupportedMinVersion:", "FinalizedVersionLevel:")
    features = re.findall(r"Feature: (\S+)\s+SupportedMinVersion: (\S+)\s+SupportedMaxVersion: (\S+)", described.out)
    expect("group.version" in [it[0] for it in features], True, f"groups of the new protocol, {features}")
    tool("kafka-features", "upgrade", "--feature", "group.version=99").failed()
    tool("kafka-features", "upgrade", "--feature", "no.such.feature=1").failed()


@scenario
def broker_api_versions_of_each_broker(place):
    printed = tool("kafka-broker-api-versions").succeeded()
    brokers = re.split(r"^\S+ \(id: ", printed.out, flags=re.M)[1:]
    expect(len(brokers), len(nodes()), "brokers")
    for broker in brokers:
        for api in ["Produce(0)", "Fetch(1)", "Metadata(3)", "ElectLeaders(43)", "AlterPartitionReassignments(45)",
                    "ConsumerGroupHeartbeat(68)", "ShareFetch(78)"]:
            line = next((line for line in broker.splitlines() if line.strip().startswith(api)), None)
            expect(line is not None and "UNSUPPORTED" not in line, True, f"{api}: {line}")


@scenario
def cluster_has_an_id_and_endpoints(place):
    printed = tool("kafka-cluster", "cluster-id").succeeded().says("Cluster ID: ")
    expect(len(printed.lines()), 1, "lines")
    listed = tool("kafka-cluster", "list-endpoints").succeeded()
    rows = [line.split() for line in listed.lines()]
    expect(rows[0][0], "ID", "the heading")
    expect(sorted(int(row[0]) for row in rows[1:]), nodes(), "brokers")
    tool("kafka-cluster", "unregister", "--id", 9999).says_not("is no longer registered")
