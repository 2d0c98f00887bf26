//! Every configuration of a group, by the names of Kafka 4 and a few of our own.

use super::entry::ConfigKind::{Boolean, Int, Long, String};
use super::entry::Effect::Sets;
use super::entry::{ConfigEntry, one_or_more, topic_or_none, zero_or_more};
use super::{GroupConfig, IsolationLevel, LeaseOrdering, StartPosition};

type Group = ConfigEntry<GroupConfig>;

pub static GROUP_CONFIGS: [Group; 19] = [
    Group::new(
        "consumer.session.timeout.ms",
        Int,
        "45000",
        Sets(|group, value| group.session_timeout_ms = Some(value.whole() as i32)),
        "After how much silence a member of a group of the new protocol is taken out.",
    )
    .valid("1 or more", one_or_more),
    Group::new(
        "consumer.heartbeat.interval.ms",
        Int,
        "5000",
        Sets(|group, value| group.heartbeat_interval_ms = Some(value.whole() as i32)),
        "How often a member of a group of the new protocol reports.",
    )
    .valid("1 or more", one_or_more),
    Group::new(
        "streams.session.timeout.ms",
        Int,
        "45000",
        Sets(|group, value| group.streams.session_timeout_ms = Some(value.whole() as i32)),
        "After how much silence a member of the Streams group is taken out.",
    )
    .valid("1 or more", one_or_more),
    Group::new(
        "streams.heartbeat.interval.ms",
        Int,
        "5000",
        Sets(|group, value| group.streams.heartbeat_interval_ms = Some(value.whole() as i32)),
        "How often a member of the Streams group reports.",
    )
    .valid("1 or more", one_or_more),
    Group::new(
        "streams.num.standby.replicas",
        Int,
        "0",
        Sets(|group, value| group.streams.standby_replicas = Some(value.whole() as i32)),
        "How many copies of each task with state the Streams group keeps.",
    )
    .valid("0 or more", zero_or_more),
    Group::new(
        "streams.initial.rebalance.delay.ms",
        Int,
        "3000",
        Sets(|group, value| {
            group.streams.initial_rebalance_delay_ms = Some(value.whole() as i32);
        }),
        "How long the Streams group, while it is new, waits for more members.",
    )
    .valid("0 or more", zero_or_more),
    Group::new(
        "share.record.lock.duration.ms",
        Int,
        "30000",
        Sets(|group, value| group.share.record_lock_duration_ms = Some(value.whole() as i32)),
        "How long a record is leased to a member of the share group.",
    )
    .valid("1000 or more", |value| value.whole() >= 1000),
    Group::new(
        "share.delivery.count.limit",
        Int,
        "5",
        Sets(|group, value| group.share.delivery_count_limit = Some(value.whole() as i32)),
        "How often a record is delivered to the share group before it is given up.",
    )
    .valid("2 or more", |value| value.whole() >= 2),
    Group::new(
        "share.partition.max.record.locks",
        Int,
        "2000",
        Sets(|group, value| group.share.partition_record_locks_max = Some(value.whole() as i32)),
        "How many records of a partition may be leased to the share group at a time.",
    )
    .valid("100 or more", |value| value.whole() >= 100),
    Group::new(
        "share.session.timeout.ms",
        Int,
        "45000",
        Sets(|group, value| group.share.session_timeout_ms = Some(value.whole() as i32)),
        "After how much silence a member of the share group is taken out.",
    )
    .valid("1 or more", one_or_more),
    Group::new(
        "share.heartbeat.interval.ms",
        Int,
        "5000",
        Sets(|group, value| group.share.heartbeat_interval_ms = Some(value.whole() as i32)),
        "How often a member of the share group reports.",
    )
    .valid("1 or more", one_or_more),
    Group::new(
        "share.auto.offset.reset",
        String,
        "latest",
        Sets(|group, value| {
            if let Some(start) = StartPosition::parse(value.text()) {
                group.share.start = start;
            }
        }),
        "Where the share group begins in a partition that is new to it.",
    )
    .valid("latest, earliest or by_duration:PnDTnHnMn.nS", |value| {
        StartPosition::parse(value.text()).is_some()
    }),
    Group::new(
        "share.isolation.level",
        String,
        "read_uncommitted",
        Sets(|group, value| {
            if let Some(level) = IsolationLevel::parse(value.text()) {
                group.share.isolation_level = level;
            }
        }),
        "Whether the share group is delivered records of transactions that are not committed.",
    )
    .valid("read_uncommitted or read_committed", |value| {
        IsolationLevel::parse(value.text()).is_some()
    }),
    Group::new(
        "share.renew.acknowledge.enable",
        Boolean,
        "true",
        Sets(|group, value| group.share.renew_enabled = value.boolean()),
        "Whether a member of the share group may renew the lease of a record.",
    ),
    Group::new(
        "errors.deadletterqueue.topic.name",
        String,
        "",
        Sets(|group, value| {
            let topic = Some(value.text().to_owned());
            group.share.dead_letter_topic = topic.filter(|topic| !topic.is_empty());
        }),
        "The topic for records that the share group gives up; without one they are dropped.",
    )
    .valid("a topic's name, or nothing", topic_or_none),
    Group::new(
        "errors.deadletterqueue.copy.record.enable",
        Boolean,
        "false",
        Sets(|group, value| group.share.dead_letter_copies_record = value.boolean()),
        "Whether a dead letter has the record's key and value, and not only headers that name it.",
    ),
    Group::new(
        "share.ordering",
        String,
        "free",
        Sets(|group, value| {
            if let Some(ordering) = LeaseOrdering::parse(value.text()) {
                group.share.ordering = ordering;
            }
        }),
        "What may be leased to the share group at a time: any record (free), one of each key in \
         its order (key), or one of each partition in its order (partition). Kafka knows free only.",
    )
    .valid("free, key or partition", |value| LeaseOrdering::parse(value.text()).is_some()),
    Group::new(
        "share.retry.backoff.ms",
        Long,
        "0",
        Sets(|group, value| group.share.retry_backoff_ms = value.whole()),
        "How long a record that was released or timed out waits before the share group is \
         delivered it a second time; it doubles with each. Kafka does not wait.",
    )
    .valid("0 or more", zero_or_more),
    Group::new(
        "share.retry.backoff.max.ms",
        Long,
        "60000",
        Sets(|group, value| group.share.retry_backoff_max_ms = value.whole()),
        "The longest that a record which came back from the share group waits.",
    )
    .valid("0 or more", zero_or_more),
];
