//! Configuration of a node: its own values, and the defaults of topics and groups.

use std::sync::Arc;

use super::{ConfigError, NODE_CONFIGS, Overrides, TopicConfig, topic_entry_for_node};

/// Configuration of the node: its own values, and the defaults of topics.
#[derive(Clone, PartialEq, Debug)]
pub struct NodeConfig {
    pub overrides: Overrides,
    /// Configuration of a topic without values of its own.
    pub topic_defaults: Arc<TopicConfig>,
    pub own: NodeValues,
}

/// The node's own values, by subject.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeValues {
    pub producer_id_expiration_ms: i64,
    pub offsets_retention_ms: i64,
    /// A record is stored for at least this long before retention by time deletes it.
    pub retention_check_interval_ms: i64,
    /// Memory limit of a node for ids of records.
    pub dedup_memory_bytes_max: u64,
    pub groups: GroupValues,
    pub share: ShareValues,
    pub streams: StreamsValues,
    pub dead_letters: DeadLetterValues,
}

/// Values for every group, and defaults for groups of the new protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupValues {
    pub initial_rebalance_delay_ms: i32,
    pub session_timeout_ms_min: i32,
    pub session_timeout_ms_max: i32,
    pub members_max: usize,
    pub consumer_session_timeout_ms: i32,
    pub consumer_heartbeat_interval_ms: i32,
    pub consumer_members_max: usize,
}

impl GroupValues {
    pub const DEFAULT: Self = Self {
        initial_rebalance_delay_ms: 3_000,
        session_timeout_ms_min: 6_000,
        session_timeout_ms_max: 30 * 60 * 1000,
        members_max: crate::limits::GROUP_MEMBERS_MAX,
        consumer_session_timeout_ms: 45_000,
        consumer_heartbeat_interval_ms: 5_000,
        consumer_members_max: crate::limits::GROUP_MEMBERS_MAX,
    };

    /// Checks relations between values.
    fn check(&self) -> Result<(), ConfigError> {
        let ordered = [
            (
                ("group.min.session.timeout.ms", self.session_timeout_ms_min),
                ("group.max.session.timeout.ms", self.session_timeout_ms_max),
            ),
            // A member that reports at the configured interval must not time out between two
            // reports.
            (
                ("group.consumer.heartbeat.interval.ms", self.consumer_heartbeat_interval_ms),
                ("group.consumer.session.timeout.ms", self.consumer_session_timeout_ms),
            ),
        ];
        ordered.into_iter().try_for_each(|(least, most)| check_ordered(least, most))
    }
}

/// A value of share groups (Kafka's KIP-932): the default of groups, and its bounds. A group's
/// value that a later bound excludes is replaced by the bound (KIP-1240).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BoundedValue {
    pub least: i32,
    pub value: i32,
    pub most: i32,
}

impl BoundedValue {
    const fn new(least: i32, value: i32, most: i32) -> Self {
        Self { least, value, most }
    }

    /// Effective value of a group whose own value is `own`.
    pub fn holds(&self, own: Option<i32>) -> i32 {
        // Not `clamp`, which panics: a node's bounds are validated one by one only.
        own.unwrap_or(self.value).min(self.most).max(self.least)
    }
}

/// Defaults of share groups.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShareValues {
    pub record_lock_duration_ms: BoundedValue,
    pub delivery_count_limit: BoundedValue,
    /// Maximum number of concurrently leased records of one partition.
    pub partition_record_locks_max: BoundedValue,
    pub session_timeout_ms: BoundedValue,
    pub heartbeat_interval_ms: BoundedValue,
    pub members_max: usize,
    /// Maximum number of share sessions of a node.
    pub sessions_max: usize,
}

impl ShareValues {
    pub const DEFAULT: Self = Self {
        record_lock_duration_ms: BoundedValue::new(15_000, 30_000, 60_000),
        delivery_count_limit: BoundedValue::new(2, 5, 10),
        partition_record_locks_max: BoundedValue::new(100, 2_000, 4_000),
        session_timeout_ms: BoundedValue::new(45_000, 45_000, 60_000),
        heartbeat_interval_ms: BoundedValue::new(5_000, 5_000, 15_000),
        members_max: 200,
        sessions_max: 2_000,
    };

    /// Checks relations between values.
    fn check(&self) -> Result<(), ConfigError> {
        let names = [
            (
                "group.share.min.record.lock.duration.ms",
                "group.share.record.lock.duration.ms",
                "group.share.max.record.lock.duration.ms",
                self.record_lock_duration_ms,
            ),
            (
                "group.share.min.delivery.count.limit",
                "group.share.delivery.count.limit",
                "group.share.max.delivery.count.limit",
                self.delivery_count_limit,
            ),
            (
                "group.share.min.partition.max.record.locks",
                "group.share.partition.max.record.locks",
                "group.share.max.partition.max.record.locks",
                self.partition_record_locks_max,
            ),
            (
                "group.share.min.session.timeout.ms",
                "group.share.session.timeout.ms",
                "group.share.max.session.timeout.ms",
                self.session_timeout_ms,
            ),
            (
                "group.share.min.heartbeat.interval.ms",
                "group.share.heartbeat.interval.ms",
                "group.share.max.heartbeat.interval.ms",
                self.heartbeat_interval_ms,
            ),
        ];
        for (least, name, most, bounded) in names {
            check_ordered((least, bounded.least), (name, bounded.value))?;
            check_ordered((name, bounded.value), (most, bounded.most))?;
        }
        check_ordered(
            ("group.share.heartbeat.interval.ms", self.heartbeat_interval_ms.value),
            ("group.share.session.timeout.ms", self.session_timeout_ms.value),
        )
    }
}

/// Defaults of Streams groups (KIP-1071).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamsValues {
    pub session_timeout_ms: BoundedValue,
    pub heartbeat_interval_ms: BoundedValue,
    /// Copies of each stateful task.
    pub standby_replicas: BoundedValue,
    pub initial_rebalance_delay_ms: i32,
    pub members_max: usize,
}

impl StreamsValues {
    pub const DEFAULT: Self = Self {
        session_timeout_ms: BoundedValue::new(45_000, 45_000, 60_000),
        heartbeat_interval_ms: BoundedValue::new(5_000, 5_000, 15_000),
        standby_replicas: BoundedValue::new(0, 0, 2),
        initial_rebalance_delay_ms: 3_000,
        members_max: crate::limits::GROUP_MEMBERS_MAX,
    };

    /// Checks relations between values.
    fn check(&self) -> Result<(), ConfigError> {
        let names = [
            (
                "group.streams.min.session.timeout.ms",
                "group.streams.session.timeout.ms",
                "group.streams.max.session.timeout.ms",
                self.session_timeout_ms,
            ),
            (
                "group.streams.min.heartbeat.interval.ms",
                "group.streams.heartbeat.interval.ms",
                "group.streams.max.heartbeat.interval.ms",
                self.heartbeat_interval_ms,
            ),
        ];
        for (least, name, most, bounded) in names {
            check_ordered((least, bounded.least), (name, bounded.value))?;
            check_ordered((name, bounded.value), (most, bounded.most))?;
        }
        check_ordered(
            ("group.streams.num.standby.replicas", self.standby_replicas.value),
            ("group.streams.max.standby.replicas", self.standby_replicas.most),
        )?;
        check_ordered(
            ("group.streams.heartbeat.interval.ms", self.heartbeat_interval_ms.value),
            ("group.streams.session.timeout.ms", self.session_timeout_ms.value),
        )
    }
}

/// Dead letters of share groups (KIP-1191).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeadLetterValues {
    /// A missing dead-letter topic is created.
    pub auto_create_topics: bool,
    /// Required prefix of its name.
    pub topic_name_prefix: String,
}

impl Default for DeadLetterValues {
    fn default() -> Self {
        Self { auto_create_topics: false, topic_name_prefix: "dlq.".to_owned() }
    }
}

pub(super) fn check_ordered(
    (name, least): (&'static str, i32),
    (with, most): (&'static str, i32),
) -> Result<(), ConfigError> {
    if least > most {
        let (value, with_value) = (least.to_string(), most.to_string());
        let (name, with) = (name.into(), with.into());
        return Err(ConfigError::Conflict { name, value, with, with_value });
    }
    Ok(())
}

impl Default for NodeConfig {
    fn default() -> Self {
        Self {
            overrides: Overrides::new(),
            topic_defaults: Arc::new(TopicConfig::default()),
            own: NodeValues {
                producer_id_expiration_ms: crate::limits::PRODUCER_ID_EXPIRATION.as_millis() as i64,
                offsets_retention_ms: crate::limits::OFFSETS_RETENTION.as_millis() as i64,
                retention_check_interval_ms: crate::limits::RETENTION_CHECK_INTERVAL.as_millis()
                    as i64,
                dedup_memory_bytes_max: crate::limits::DEDUP_BYTES_DEFAULT,
                groups: GroupValues::DEFAULT,
                share: ShareValues::DEFAULT,
                streams: StreamsValues::DEFAULT,
                dead_letters: DeadLetterValues::default(),
            },
        }
    }
}

impl NodeConfig {
    pub fn parse(overrides: &Overrides) -> Result<Self, ConfigError> {
        let mut config = Self { overrides: overrides.clone(), ..Self::default() };
        let mut topic_defaults = TopicConfig::default();
        for (name, value) in overrides {
            if let Some(entry) = NODE_CONFIGS.iter().find(|entry| entry.name == name) {
                entry.apply(value, &mut config.own)?;
            } else if let Some(entry) = topic_entry_for_node(name) {
                entry.apply(value, &mut topic_defaults)?;
            } else {
                return Err(ConfigError::Unknown { name: name.clone() });
            }
        }
        topic_defaults.check()?;
        config.own.groups.check()?;
        config.own.share.check()?;
        config.own.streams.check()?;
        config.topic_defaults = Arc::new(topic_defaults);
        Ok(config)
    }
}
