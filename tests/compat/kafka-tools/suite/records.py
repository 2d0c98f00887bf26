"""kafka-get-offsets, kafka-delete-records, and the two performance tools."""

import json
import re

from .harness import expect, nodes, scenario, tool, tool_file


def offsets(topic, time, *more):
    printed = tool("kafka-get-offsets", "--topic", topic, "--time", time, *more).succeeded()
    found = re.findall(rf"^{re.escape(topic)}:(\d+):(-?\d*)$", printed.out, re.M)
    return {int(partition): offset for partition, offset in found}


@scenario
def offsets_and_deleted_records(place):
    topic = place.topic(2)
    place.produce(topic, 40)
    ends = {partition: int(offset) for partition, offset in offsets(topic, -1).items()}
    expect(sum(ends.values()), 40, "records")
    expect(offsets(topic, -2), {0: "0", 1: "0"}, "first offsets")
    latest = offsets(topic, "max-timestamp")
    expect(sorted(latest), [0, 1], "partitions with a largest timestamp")
    expect(offsets(topic, 0), {0: "0", 1: "0"}, "offsets of the first records")
    expect(list(offsets(topic, -1, "--partitions", "1")), [1], "one partition")

    file = tool_file({"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 5}]})
    deleted = tool("kafka-delete-records", "--offset-json-file", file).succeeded()
    deleted.says("Records delete operation completed", f"partition: {topic}-0 low_watermark: 5")
    expect(offsets(topic, -2), {0: "5", 1: "0"}, "first offsets")
    beyond = tool_file({"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 1000}]})
    tool("kafka-delete-records", "--offset-json-file", beyond).says("OffsetOutOfRangeException")
    read = place.consume(topic, 35)
    expect(len([line for line in read.lines() if line.startswith("value-")]), 35, "records that are left")


@scenario
def log_dirs_have_each_partition_on_each_broker(place):
    topic = place.topic(2)
    place.produce(topic, 20)
    printed = tool("kafka-log-dirs", "--describe", "--topic-list", topic).succeeded()
    document = json.loads(next(line for line in printed.lines() if line.startswith("{")))
    expect(sorted(it["broker"] for it in document["brokers"]), nodes(), "brokers")
    for broker in document["brokers"]:
        directories = broker["logDirs"]
        expect([it["error"] for it in directories], [None], "errors")
        sizes = {it["partition"]: it["size"] for it in directories[0]["partitions"]}
        expect(sorted(sizes), [f"{topic}-0", f"{topic}-1"], "partitions")
        expect(sum(sizes.values()) > 200, True, f"bytes on broker {broker['broker']}, {sizes}")
    one = tool("kafka-log-dirs", "--describe", "--topic-list", topic, "--broker-list", nodes()[-1]).succeeded()
    document = json.loads(next(line for line in one.lines() if line.startswith("{")))
    expect([it["broker"] for it in document["brokers"]], [nodes()[-1]], "the broker that was asked for")


@scenario
def perf_tests_write_and_read(place):
    topic, count = place.topic(3), 20000
    wrote = tool(
        "kafka-producer-perf-test", "--topic", topic, "--num-records", count, "--record-size", 200, "--throughput", -1,
        "--command-property", "acks=all", seconds=120,
    ).succeeded()
    wrote.says(f"{count} records sent", "MB/sec", "99th")
    read = tool(
        "kafka-consumer-perf-test", "--topic", topic, "--num-records", count, "--timeout", 30000, seconds=120,
    ).succeeded()
    figures = next(line for line in read.lines() if re.match(r"\d{4}-\d\d-\d\d", line)).split(", ")
    expect(int(float(figures[4])) >= count, True, f"records that were read: {figures}")
