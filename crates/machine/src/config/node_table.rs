//! Every configuration of a node, by the names of Kafka 4 and a few of our own.

use crate::limits::GROUP_MEMBERS_MAX;

use super::NodeValues;
use super::entry::ConfigKind::{Boolean, Int, Long, String};
use super::entry::Effect::Sets;
use super::entry::{ConfigEntry, Value, one_or_more, zero_or_more};

type Node = ConfigEntry<NodeValues>;

const fn group_size(value: &Value<'_>) -> bool {
    matches!(value, Value::Whole(size) if *size >= 1 && *size <= GROUP_MEMBERS_MAX as i64)
}

pub static NODE_CONFIGS: [Node; 40] = [
    Node::new(
        "producer.id.expiration.ms",
        Int,
        "86400000",
        Sets(|node, value| node.producer_id_expiration_ms = value.whole()),
        "After how much silence a producer's sequence is forgotten.",
    )
    .valid("1 or more", one_or_more),
    Node::new(
        "offsets.retention.minutes",
        Int,
        "10080",
        Sets(|node, value| node.offsets_retention_ms = value.whole() * 60_000),
        "How long the committed offsets of a group without members are kept.",
    )
    .valid("1 or more", one_or_more),
    Node::new(
        "log.retention.check.interval.ms",
        Long,
        "300000",
        Sets(|node, value| node.retention_check_interval_ms = value.whole()),
        "How long a record that is older than its topic keeps is there all the same, counted from \
         when it was stored or became too old.",
    )
    .valid("1 or more", one_or_more),
    Node::new(
        "dedup.memory.max.bytes",
        Long,
        "268435456",
        Sets(|node, value| node.dedup_memory_bytes_max = value.whole() as u64),
        "Memory of a node for ids of records in topics with dedup.window.ms, 40 bytes each. Beyond it \
         the oldest ids are forgotten before their window is over. Needs feature level 7.",
    )
    .valid("0 or more", zero_or_more),
    Node::new(
        "group.initial.rebalance.delay.ms",
        Int,
        "3000",
        Sets(|node, value| node.groups.initial_rebalance_delay_ms = value.whole() as i32),
        "How long the first rebalance of a group of the classic protocol waits for more members.",
    )
    .valid("0 or more", zero_or_more),
    Node::new(
        "group.min.session.timeout.ms",
        Int,
        "6000",
        Sets(|node, value| node.groups.session_timeout_ms_min = value.whole() as i32),
        "The shortest session timeout that a member of the classic protocol may ask for.",
    )
    .valid("1 or more", one_or_more),
    Node::new(
        "group.max.session.timeout.ms",
        Int,
        "1800000",
        Sets(|node, value| node.groups.session_timeout_ms_max = value.whole() as i32),
        "The longest session timeout that a member of the classic protocol may ask for.",
    )
    .valid("1 or more", one_or_more),
    Node::new(
        "group.max.size",
        Int,
        "10000",
        Sets(|node, value| node.groups.members_max = value.whole() as usize),
        "How many members a group of the classic protocol may have.",
    )
    .valid("1 to 10000", group_size),
    Node::new(
        "group.consumer.session.timeout.ms",
        Int,
        "45000",
        Sets(|node, value| node.groups.consumer_session_timeout_ms = value.whole() as i32),
        "After how much silence a member of a group of the new protocol is taken out.",
    )
    .valid("1 or more", one_or_more),
    Node::new(
        "group.consumer.heartbeat.interval.ms",
        Int,
        "5000",
        Sets(|node, value| node.groups.consumer_heartbeat_interval_ms = value.whole() as i32),
        "How often a member of a group of the new protocol reports.",
    )
    .valid("1 or more", one_or_more),
    Node::new(
        "group.consumer.max.size",
        Int,
        "10000",
        Sets(|node, value| node.groups.consumer_members_max = value.whole() as usize),
        "How many members a group of the new protocol may have.",
    )
    .valid("1 to 10000", group_size),
    Node::new(
        "group.share.record.lock.duration.ms",
        Int,
        "30000",
        Sets(|node, value| node.share.record_lock_duration_ms.value = value.whole() as i32),
        "How long a record is leased to a member of a share group.",
    )
    .valid("1000 to 3600000", |value| (1000..=3600000).contains(&value.whole())),
    Node::new(
        "group.share.min.record.lock.duration.ms",
        Int,
        "15000",
        Sets(|node, value| node.share.record_lock_duration_ms.least = value.whole() as i32),
        "The least that a share group may set share.record.lock.duration.ms to.",
    )
    .valid("1000 to 3600000", |value| (1000..=3600000).contains(&value.whole())),
    Node::new(
        "group.share.max.record.lock.duration.ms",
        Int,
        "60000",
        Sets(|node, value| node.share.record_lock_duration_ms.most = value.whole() as i32),
        "The most that a share group may set share.record.lock.duration.ms to.",
    )
    .valid("1000 to 3600000", |value| (1000..=3600000).contains(&value.whole())),
    Node::new(
        "group.share.delivery.count.limit",
        Int,
        "5",
        Sets(|node, value| node.share.delivery_count_limit.value = value.whole() as i32),
        "How often a record is delivered to a share group before it is given up.",
    )
    .valid("2 to 32767", |value| (2..=32767).contains(&value.whole())),
    Node::new(
        "group.share.min.delivery.count.limit",
        Int,
        "2",
        Sets(|node, value| node.share.delivery_count_limit.least = value.whole() as i32),
        "The least that a share group may set share.delivery.count.limit to.",
    )
    .valid("2 to 32767", |value| (2..=32767).contains(&value.whole())),
    Node::new(
        "group.share.max.delivery.count.limit",
        Int,
        "10",
        Sets(|node, value| node.share.delivery_count_limit.most = value.whole() as i32),
        "The most that a share group may set share.delivery.count.limit to.",
    )
    .valid("2 to 32767", |value| (2..=32767).contains(&value.whole())),
    Node::new(
        "group.share.partition.max.record.locks",
        Int,
        "2000",
        Sets(|node, value| node.share.partition_record_locks_max.value = value.whole() as i32),
        "How many records of a partition may be leased to a share group at a time.",
    )
    .valid("100 to 10000", |value| (100..=10000).contains(&value.whole())),
    Node::new(
        "group.share.min.partition.max.record.locks",
        Int,
        "100",
        Sets(|node, value| node.share.partition_record_locks_max.least = value.whole() as i32),
        "The least that a share group may set share.partition.max.record.locks to.",
    )
    .valid("100 to 10000", |value| (100..=10000).contains(&value.whole())),
    Node::new(
        "group.share.max.partition.max.record.locks",
        Int,
        "4000",
        Sets(|node, value| node.share.partition_record_locks_max.most = value.whole() as i32),
        "The most that a share group may set share.partition.max.record.locks to.",
    )
    .valid("100 to 10000", |value| (100..=10000).contains(&value.whole())),
    Node::new(
        "group.share.session.timeout.ms",
        Int,
        "45000",
        Sets(|node, value| node.share.session_timeout_ms.value = value.whole() as i32),
        "After how much silence a member of a share group is taken out.",
    )
    .valid("1 to 2147483647", |value| (1..=2147483647).contains(&value.whole())),
    Node::new(
        "group.share.min.session.timeout.ms",
        Int,
        "45000",
        Sets(|node, value| node.share.session_timeout_ms.least = value.whole() as i32),
        "The least that a share group may set share.session.timeout.ms to.",
    )
    .valid("1 to 2147483647", |value| (1..=2147483647).contains(&value.whole())),
    Node::new(
        "group.share.max.session.timeout.ms",
        Int,
        "60000",
        Sets(|node, value| node.share.session_timeout_ms.most = value.whole() as i32),
        "The most that a share group may set share.session.timeout.ms to.",
    )
    .valid("1 to 2147483647", |value| (1..=2147483647).contains(&value.whole())),
    Node::new(
        "group.share.heartbeat.interval.ms",
        Int,
        "5000",
        Sets(|node, value| node.share.heartbeat_interval_ms.value = value.whole() as i32),
        "How often a member of a share group reports.",
    )
    .valid("1 to 2147483647", |value| (1..=2147483647).contains(&value.whole())),
    Node::new(
        "group.share.min.heartbeat.interval.ms",
        Int,
        "5000",
        Sets(|node, value| node.share.heartbeat_interval_ms.least = value.whole() as i32),
        "The least that a share group may set share.heartbeat.interval.ms to.",
    )
    .valid("1 to 2147483647", |value| (1..=2147483647).contains(&value.whole())),
    Node::new(
        "group.share.max.heartbeat.interval.ms",
        Int,
        "15000",
        Sets(|node, value| node.share.heartbeat_interval_ms.most = value.whole() as i32),
        "The most that a share group may set share.heartbeat.interval.ms to.",
    )
    .valid("1 to 2147483647", |value| (1..=2147483647).contains(&value.whole())),
    Node::new(
        "group.share.max.size",
        Int,
        "200",
        Sets(|node, value| node.share.members_max = value.whole() as usize),
        "How many members a share group may have.",
    )
    .valid("10 to 1000", |value| (10..=1000).contains(&value.whole())),
    Node::new(
        "group.share.max.share.sessions",
        Int,
        "2000",
        Sets(|node, value| node.share.sessions_max = value.whole() as usize),
        "How many share sessions a node keeps.",
    )
    .valid("1 or more", one_or_more),
    Node::new(
        "group.streams.session.timeout.ms",
        Int,
        "45000",
        Sets(|node, value| node.streams.session_timeout_ms.value = value.whole() as i32),
        "After how much silence a member of a Streams group is taken out.",
    )
    .valid("1 or more", one_or_more),
    Node::new(
        "group.streams.min.session.timeout.ms",
        Int,
        "45000",
        Sets(|node, value| node.streams.session_timeout_ms.least = value.whole() as i32),
        "The least that a group may set streams.session.timeout.ms to.",
    )
    .valid("1 or more", one_or_more),
    Node::new(
        "group.streams.max.session.timeout.ms",
        Int,
        "60000",
        Sets(|node, value| node.streams.session_timeout_ms.most = value.whole() as i32),
        "The most that a group may set streams.session.timeout.ms to.",
    )
    .valid("1 or more", one_or_more),
    Node::new(
        "group.streams.heartbeat.interval.ms",
        Int,
        "5000",
        Sets(|node, value| node.streams.heartbeat_interval_ms.value = value.whole() as i32),
        "How often a member of a Streams group reports.",
    )
    .valid("1 or more", one_or_more),
    Node::new(
        "group.streams.min.heartbeat.interval.ms",
        Int,
        "5000",
        Sets(|node, value| node.streams.heartbeat_interval_ms.least = value.whole() as i32),
        "The least that a group may set streams.heartbeat.interval.ms to.",
    )
    .valid("1 or more", one_or_more),
    Node::new(
        "group.streams.max.heartbeat.interval.ms",
        Int,
        "15000",
        Sets(|node, value| node.streams.heartbeat_interval_ms.most = value.whole() as i32),
        "The most that a group may set streams.heartbeat.interval.ms to.",
    )
    .valid("1 or more", one_or_more),
    Node::new(
        "group.streams.max.size",
        Int,
        "10000",
        Sets(|node, value| node.streams.members_max = value.whole() as usize),
        "How many members a Streams group may have.",
    )
    .valid("1 to 10000", group_size),
    Node::new(
        "group.streams.num.standby.replicas",
        Int,
        "0",
        Sets(|node, value| node.streams.standby_replicas.value = value.whole() as i32),
        "How many copies of each task with state a Streams group keeps.",
    )
    .valid("0 or more", zero_or_more),
    Node::new(
        "group.streams.max.standby.replicas",
        Int,
        "2",
        Sets(|node, value| node.streams.standby_replicas.most = value.whole() as i32),
        "The most that a group may set streams.num.standby.replicas to.",
    )
    .valid("0 or more", zero_or_more),
    Node::new(
        "group.streams.initial.rebalance.delay.ms",
        Int,
        "3000",
        Sets(|node, value| node.streams.initial_rebalance_delay_ms = value.whole() as i32),
        "How long a new Streams group waits for more members before it gives out tasks.",
    )
    .valid("0 or more", zero_or_more),
    Node::new(
        "errors.deadletterqueue.auto.create.topics.enable",
        Boolean,
        "false",
        Sets(|node, value| node.dead_letters.auto_create_topics = value.boolean()),
        "Whether a dead-letter topic that a share group names is made when it is not there.",
    ),
    Node::new(
        "errors.deadletterqueue.topic.name.prefix",
        String,
        "dlq.",
        Sets(|node, value| {
            value.text().clone_into(&mut node.dead_letters.topic_name_prefix);
        }),
        "What the name of a share group's dead-letter topic must begin with; nothing is any name.",
    ),
];
