"""Administration of topics: create, describe, alter, add partitions, delete records, delete."""

import os
import time

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from .harness import eventually, expect, expect_error, expect_true, next_event, scenario


def topic_resource(name, **changes):
    resource = ConfigResource(ResourceType.TOPIC, name)
    for key, (operation, value) in changes.items():
        resource.add_incremental_config(ConfigEntry(key.replace("_", "."), value, incremental_operation=operation))
    return resource


def config_of(context, topic):
    return context.only(context.admin.describe_configs([topic_resource(topic)]))


BROKERS = int(os.environ.get("BROKERS", "1"))


def cluster_of(context):
    """Waits for all brokers, since a restarting one is missing from the metadata."""
    eventually(lambda: len(context.admin.describe_cluster().result(15).nodes) == BROKERS, 30, f"{BROKERS} nodes")
    return context.admin.describe_cluster().result(15)


def broker_id(context):
    return context.admin.describe_cluster().result(15).nodes[0].id


@scenario()
def describe_cluster(context):
    cluster = cluster_of(context)
    expect_true(cluster.cluster_id, "the cluster has an id")
    expect_true(cluster.controller.id in [node.id for node in cluster.nodes], "the controller is a node")
    metadata = context.admin.list_topics(timeout=15)
    expect(metadata.cluster_id, cluster.cluster_id, "cluster id in metadata")
    node = metadata.brokers[cluster.nodes[0].id]
    expect_true(node.host and node.port > 0, "the broker has an address")


@scenario()
def create_topic(context):
    name = context.topic(partitions=3, retention_ms="3600000", cleanup_policy="compact,delete")
    described = context.only(context.admin.describe_topics(TopicCollection([name])))
    expect(described.name, name, "name")
    expect(len(described.partitions), 3, "partitions")
    expect([p.id for p in described.partitions], [0, 1, 2], "partition ids")
    brokers = {node.id for node in cluster_of(context).nodes}
    for partition in described.partitions:
        replicas, in_sync = ({node.id for node in nodes} for nodes in (partition.replicas, partition.isr))
        expect(replicas, brokers, "replicas")
        expect_true(partition.leader.id in in_sync and in_sync <= replicas, "the leader is in sync, as replicas are")
    expect_true(str(described.topic_id) != "AAAAAAAAAAAAAAAAAAAAAA", "the topic has an id")
    config = config_of(context, name)
    expect(config["retention.ms"].value, "3600000", "retention.ms")
    expect(config["cleanup.policy"].value, "compact,delete", "cleanup.policy")
    expect_true(name in context.admin.list_topics(timeout=15).topics, "listed")


@scenario()
def create_topic_with_defaults(context):
    name = context.unique()
    context.topics.append(name)
    context.only(context.admin.create_topics([NewTopic(name, -1, -1)]))
    eventually(lambda: len(context.partitions(name)) >= 1, 10, "the topic has the default number of partitions")


@scenario()
def create_topic_validate_only(context):
    name = context.unique()
    context.only(context.admin.create_topics([NewTopic(name, 1, 1)], validate_only=True))
    expect_true(name not in context.admin.list_topics(timeout=15).topics, "validate_only creates nothing")


@scenario()
def create_topic_refused(context):
    def create(name, partitions=1, replicas=1, **config):
        return lambda: context.only(context.admin.create_topics([NewTopic(name, partitions, replicas, config=config)]))

    existing = context.topic()
    expect_error(KafkaError.TOPIC_ALREADY_EXISTS, create(existing), "existing topic")
    for illegal in ("with space", "sla/sh", "..", "x" * 250, "ünïcode"):
        expect_error(KafkaError.TOPIC_EXCEPTION, create(illegal), f"name {illegal[:10]!r}")
    name = context.unique("refused")
    expect_error(KafkaError.INVALID_REPLICATION_FACTOR, create(name, replicas=9), "more replicas than brokers")
    expect_error(KafkaError.INVALID_CONFIG, create(name, **{"no.such.config": "1"}), "unknown config")
    expect_error(KafkaError.INVALID_CONFIG, create(name, **{"retention.ms": "soon"}), "ill-typed config")
    expect_error(KafkaError.INVALID_CONFIG, create(name, **{"cleanup.policy": "burn"}), "unknown policy")
    expect_true(name not in context.admin.list_topics(timeout=15).topics, "nothing was created")


@scenario()
def delete_topic(context):
    name = context.topic(partitions=2)
    context.produce(name, [b"old"] * 5)
    context.only(context.admin.delete_topics([name]))
    eventually(lambda: name not in context.admin.list_topics(timeout=15).topics, 10, "gone from metadata")
    expect_error(
        KafkaError.UNKNOWN_TOPIC_OR_PART, lambda: context.only(context.admin.delete_topics([name])), "deleted twice"
    )
    context.topic(partitions=1)
    context.produce(name, [b"new"])
    expect(context.latest(name), 1, "a topic of the same name starts empty")
    expect([m.value() for m in context.read(name, 1)], [b"new"], "records")


@scenario()
def create_partitions(context):
    name = context.topic(partitions=2)
    context.produce(name, [b"kept"], partition=1)

    def grow(count):
        return context.only(context.admin.create_partitions([NewPartitions(name, count)]))

    grow(5)
    eventually(lambda: len(context.partitions(name)) == 5, 10, "five partitions")
    context.produce(name, [b"fresh"], partition=4)
    expect([m.value() for m in context.read(name, 1, partition=1)], [b"kept"], "old partition")
    expect([m.value() for m in context.read(name, 1, partition=4)], [b"fresh"], "new partition")
    expect_error(KafkaError.INVALID_PARTITIONS, lambda: grow(3), "fewer partitions")
    expect_error(KafkaError.INVALID_PARTITIONS, lambda: grow(5), "the same number")
    absent = [NewPartitions(context.unique("absent"), 2)]
    expect_error(
        KafkaError.UNKNOWN_TOPIC_OR_PART, lambda: context.only(context.admin.create_partitions(absent)), "absent topic"
    )


@scenario()
def topic_config(context):
    name = context.topic(retention_ms="60000")
    config = config_of(context, name)
    expect(config["retention.ms"].source, ConfigSource.DYNAMIC_TOPIC_CONFIG.value, "source of a set value")
    expect_true(not config["retention.ms"].is_default, "a set value is not a default")
    expect(config["cleanup.policy"].value, "delete", "default cleanup.policy")
    expect_true(config["cleanup.policy"].source != ConfigSource.DYNAMIC_TOPIC_CONFIG.value, "source of a default")
    for key in (
        "max.message.bytes",
        "segment.bytes",
        "message.timestamp.type",
        "compression.type",
        "min.insync.replicas",
    ):
        expect_true(key in config, f"{key} is described")

    def alter(validate_only=False, **changes):
        futures = context.admin.incremental_alter_configs(
            [topic_resource(name, **changes)], validate_only=validate_only
        )
        return context.only(futures)

    alter(max_message_bytes=(AlterConfigOpType.SET, "2000"), cleanup_policy=(AlterConfigOpType.APPEND, "compact"))
    eventually(lambda: config_of(context, name)["max.message.bytes"].value == "2000", 5, "altered")
    config = config_of(context, name)
    expect(set(config["cleanup.policy"].value.split(",")), {"delete", "compact"}, "appended")
    expect(config["retention.ms"].value, "60000", "untouched by an incremental change")
    alter(retention_ms=(AlterConfigOpType.DELETE, None), cleanup_policy=(AlterConfigOpType.SUBTRACT, "compact"))
    eventually(lambda: config_of(context, name)["retention.ms"].value == "604800000", 5, "back to the default")
    expect(config_of(context, name)["cleanup.policy"].value, "delete", "subtracted")
    alter(validate_only=True, retention_ms=(AlterConfigOpType.SET, "1234"))
    expect(config_of(context, name)["retention.ms"].value, "604800000", "after validate_only")


@scenario()
def topic_config_legacy_alter(context):
    """AlterConfigs replaces every dynamic value of the topic."""
    name = context.topic(retention_ms="60000")
    context.only(
        context.admin.alter_configs([ConfigResource(ResourceType.TOPIC, name, set_config={"segment.ms": "70000"})])
    )
    eventually(lambda: config_of(context, name)["segment.ms"].value == "70000", 5, "altered")
    expect(config_of(context, name)["retention.ms"].value, "604800000", "a value that was left out")


@scenario()
def topic_config_refused(context):
    name = context.topic()

    def set_to(topic, **values):
        changes = {key: (AlterConfigOpType.SET, value) for key, value in values.items()}
        return lambda: context.only(context.admin.incremental_alter_configs([topic_resource(topic, **changes)]))

    expect_error(KafkaError.INVALID_CONFIG, set_to(name, no_such_config="1"), "unknown config")
    expect_error(KafkaError.INVALID_CONFIG, set_to(name, retention_ms="x"), "ill-typed value")
    expect_error(KafkaError.INVALID_CONFIG, set_to(name, compression_type="rar"), "unknown compression")
    expect_error(KafkaError.UNKNOWN_TOPIC_OR_PART, set_to(context.unique("absent"), retention_ms="1"), "absent topic")
    absent = [topic_resource(context.unique("absent"))]
    expect_error(
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        lambda: context.only(context.admin.describe_configs(absent)),
        "describe absent topic",
    )


@scenario()
def broker_config(context):
    resource = ConfigResource(ResourceType.BROKER, str(broker_id(context)))
    config = context.only(context.admin.describe_configs([resource]))
    for key in ("message.max.bytes", "num.partitions", "auto.create.topics.enable"):
        expect_true(key in config, f"{key} is described")


@scenario()
def list_offsets(context):
    name = context.topic()
    start = int(time.time() * 1000) - 3_600_000
    producer = context.producer()
    for index, moment in enumerate((100, 300, 200)):
        producer.produce(name, b"%d" % index, partition=0, timestamp=start + moment)
        expect(producer.flush(15), 0, "left over")

    def offset(spec):
        return context.offset_of(name, spec)

    expect(offset(OffsetSpec.earliest()).offset, 0, "earliest")
    expect(offset(OffsetSpec.latest()).offset, 3, "latest")
    expect(offset(OffsetSpec.max_timestamp()).offset, 1, "max timestamp")
    expect(offset(OffsetSpec.max_timestamp()).timestamp, start + 300, "the greatest timestamp")
    expect(offset(OffsetSpec.for_timestamp(start)).offset, 0, "before all")
    expect(offset(OffsetSpec.for_timestamp(start + 101)).offset, 1, "first at or after")
    expect(offset(OffsetSpec.for_timestamp(start + 301)).offset, -1, "after all")
    consumer = context.consumer()
    expect(consumer.get_watermark_offsets(TopicPartition(name, 0)), (0, 3), "watermarks")


@scenario()
def delete_records(context):
    name = context.topic()
    context.produce(name, [b"%d" % n for n in range(10)])

    def delete_before(offset):
        """librdkafka uses its cached leader, and leaves a retry at another one to the application."""
        patience = time.monotonic() + 20
        while True:
            try:
                return context.only(context.admin.delete_records([TopicPartition(name, 0, offset)]))
            except KafkaException as error:
                moved = error.args[0].code() == KafkaError.NOT_LEADER_FOR_PARTITION
                if not moved or time.monotonic() > patience:
                    raise
            context.admin.list_topics(name, timeout=15)

    expect(delete_before(4).low_watermark, 4, "low watermark")
    expect(context.earliest(name), 4, "earliest")
    expect(context.latest(name), 10, "latest")
    expect([m.offset() for m in context.read(name, 6, offset=4)], list(range(4, 10)), "what is left")
    expect([m.offset() for m in context.read(name, 6, offset=0)], list(range(4, 10)), "reset from a deleted offset")
    expect_error(KafkaError.OFFSET_OUT_OF_RANGE, lambda: delete_before(11), "beyond the end")
    expect(delete_before(-1).low_watermark, 10, "-1 deletes up to the end")
    expect((context.earliest(name), context.latest(name)), (10, 10), "an empty partition")
    expect(context.produce(name, [b"next"])[0].offset(), 10, "offsets go on")


@scenario()
def unknown_topic(context):
    absent = context.unique("absent")
    consumer = context.consumer(topic_metadata_propagation_max_ms=500)
    topic = consumer.list_topics(absent, timeout=15).topics[absent]
    expect(topic.error.code(), KafkaError.UNKNOWN_TOPIC_OR_PART, "metadata without auto-creation")
    described = context.admin.describe_topics(TopicCollection([absent]))
    expect_error(KafkaError.UNKNOWN_TOPIC_OR_PART, lambda: context.only(described), "describe")
    consumer.subscribe([absent])
    message = next_event(consumer)
    expect(message.error().code(), KafkaError.UNKNOWN_TOPIC_OR_PART, "subscription")
    expect_true(absent not in context.admin.list_topics(timeout=15).topics, "a consumer creates nothing")


@scenario()
def auto_create_by_producing(context):
    name = context.unique()
    context.topics.append(name)
    delivered = context.produce(name, [b"first"], partition=-1)
    expect(delivered[0].topic(), name, "topic")
    expect([m.value() for m in context.read(name, 1, partition=delivered[0].partition())], [b"first"], "records")


@scenario()
def auto_create_refuses_illegal_name(context):
    expect_error(
        (KafkaError.TOPIC_EXCEPTION, KafkaError._UNKNOWN_TOPIC),
        lambda: context.produce("not a legal name", [b"x"], partition=-1, message_timeout_ms=4000),
        "produce",
    )
