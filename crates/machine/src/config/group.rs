//! Configuration of a group: one of the new consumer protocol (KIP-848), or a share group
//! (KIP-932).

use super::duration::duration_ms;
use super::node::BoundedValue;
use super::{ConfigError, GROUP_CONFIGS, LeaseOrdering, NodeValues, Overrides, apply};

/// Start position of a group in a partition without a committed offset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StartPosition {
    Earliest,
    Latest,
    /// The first record that is at most this old.
    Since {
        ms_ago: i64,
    },
}

impl StartPosition {
    /// Parses Kafka's syntax: `earliest`, `latest`, `by_duration:PnDTnHnMn.nS`.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "earliest" => Some(Self::Earliest),
            "latest" => Some(Self::Latest),
            _ => {
                let ms_ago = duration_ms(text.strip_prefix("by_duration:")?)?;
                Some(Self::Since { ms_ago })
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IsolationLevel {
    ReadUncommitted,
    ReadCommitted,
}

impl IsolationLevel {
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "read_uncommitted" => Some(Self::ReadUncommitted),
            "read_committed" => Some(Self::ReadCommitted),
            _ => None,
        }
    }
}

/// Configuration of a group. `None` means the node's value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupConfig {
    pub overrides: Overrides,
    /// For the KIP-848 protocol, where the group's value applies.
    pub session_timeout_ms: Option<i32>,
    pub heartbeat_interval_ms: Option<i32>,
    pub share: ShareConfig,
    pub streams: StreamsConfig,
}

/// A Streams group's own values.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StreamsConfig {
    pub session_timeout_ms: Option<i32>,
    pub heartbeat_interval_ms: Option<i32>,
    pub standby_replicas: Option<i32>,
    pub initial_rebalance_delay_ms: Option<i32>,
}

/// Configuration of a share group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShareConfig {
    pub record_lock_duration_ms: Option<i32>,
    pub delivery_count_limit: Option<i32>,
    pub partition_record_locks_max: Option<i32>,
    pub session_timeout_ms: Option<i32>,
    pub heartbeat_interval_ms: Option<i32>,
    pub start: StartPosition,
    pub isolation_level: IsolationLevel,
    pub renew_enabled: bool,
    /// `None`: undeliverable records are dropped.
    pub dead_letter_topic: Option<String>,
    /// A dead letter contains the record's key and value, and not only headers that identify it.
    pub dead_letter_copies_record: bool,
    pub ordering: LeaseOrdering,
    pub retry_backoff_ms: i64,
    pub retry_backoff_max_ms: i64,
}

impl ShareConfig {
    pub const DEFAULT: Self = Self {
        record_lock_duration_ms: None,
        delivery_count_limit: None,
        partition_record_locks_max: None,
        session_timeout_ms: None,
        heartbeat_interval_ms: None,
        start: StartPosition::Latest,
        isolation_level: IsolationLevel::ReadUncommitted,
        renew_enabled: true,
        dead_letter_topic: None,
        dead_letter_copies_record: false,
        ordering: LeaseOrdering::Free,
        retry_backoff_ms: 0,
        retry_backoff_max_ms: 60_000,
    };

    /// The own values of the lease groups behind this share group.
    pub fn lease_group_config(&self, node: &NodeValues) -> Overrides {
        let share = &node.share;
        let lease_ms = share.record_lock_duration_ms.holds(self.record_lock_duration_ms);
        let attempts_max = share.delivery_count_limit.holds(self.delivery_count_limit);
        let values = [
            ("ordering", self.ordering.name().to_owned()),
            ("lease.ms", lease_ms.to_string()),
            ("attempts.max", attempts_max.to_string()),
            ("retry.backoff.ms", self.retry_backoff_ms.to_string()),
            ("retry.backoff.max.ms", self.retry_backoff_max_ms.to_string()),
            ("dead.letter.topic", self.dead_letter_topic.clone().unwrap_or_default()),
        ];
        values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

impl GroupConfig {
    pub const DEFAULT: Self = Self {
        overrides: Overrides::new(),
        session_timeout_ms: None,
        heartbeat_interval_ms: None,
        share: ShareConfig::DEFAULT,
        streams: StreamsConfig {
            session_timeout_ms: None,
            heartbeat_interval_ms: None,
            standby_replicas: None,
            initial_rebalance_delay_ms: None,
        },
    };

    pub fn parse(overrides: &Overrides) -> Result<Self, ConfigError> {
        let mut config = Self { overrides: overrides.clone(), ..Self::DEFAULT };
        apply(&GROUP_CONFIGS, overrides, &mut config)?;
        super::lease::check_backoff(
            ("share.retry.backoff.ms", config.share.retry_backoff_ms),
            ("share.retry.backoff.max.ms", config.share.retry_backoff_max_ms),
        )?;
        Ok(config)
    }

    fn check_streams(&self, node: &NodeValues) -> Result<(), ConfigError> {
        let (own, bounds) = (&self.streams, &node.streams);
        within(
            "streams.session.timeout.ms",
            own.session_timeout_ms,
            bounds.session_timeout_ms,
            ("group.streams.min.session.timeout.ms", "group.streams.max.session.timeout.ms"),
        )?;
        within(
            "streams.heartbeat.interval.ms",
            own.heartbeat_interval_ms,
            bounds.heartbeat_interval_ms,
            ("group.streams.min.heartbeat.interval.ms", "group.streams.max.heartbeat.interval.ms"),
        )?;
        within(
            "streams.num.standby.replicas",
            own.standby_replicas,
            bounds.standby_replicas,
            ("group.streams.num.standby.replicas", "group.streams.max.standby.replicas"),
        )
    }

    /// Checks the node's bounds when a value is set, as Kafka does.
    pub fn check(&self, node: &NodeValues) -> Result<(), ConfigError> {
        self.check_streams(node)?;
        let (share, bounds) = (&self.share, &node.share);
        let locks = (share.partition_record_locks_max, bounds.partition_record_locks_max);
        within(
            "share.record.lock.duration.ms",
            share.record_lock_duration_ms,
            bounds.record_lock_duration_ms,
            ("group.share.min.record.lock.duration.ms", "group.share.max.record.lock.duration.ms"),
        )?;
        within(
            "share.delivery.count.limit",
            share.delivery_count_limit,
            bounds.delivery_count_limit,
            ("group.share.min.delivery.count.limit", "group.share.max.delivery.count.limit"),
        )?;
        within(
            "share.partition.max.record.locks",
            locks.0,
            locks.1,
            (
                "group.share.min.partition.max.record.locks",
                "group.share.max.partition.max.record.locks",
            ),
        )?;
        within(
            "share.session.timeout.ms",
            share.session_timeout_ms,
            bounds.session_timeout_ms,
            ("group.share.min.session.timeout.ms", "group.share.max.session.timeout.ms"),
        )?;
        within(
            "share.heartbeat.interval.ms",
            share.heartbeat_interval_ms,
            bounds.heartbeat_interval_ms,
            ("group.share.min.heartbeat.interval.ms", "group.share.max.heartbeat.interval.ms"),
        )
    }
}

/// Whether a group's value is within the node's bounds, which have these names.
fn within(
    name: &'static str,
    own: Option<i32>,
    bounds: BoundedValue,
    (least, most): (&'static str, &'static str),
) -> Result<(), ConfigError> {
    let conflict = |value: i32, with: &'static str, bound: i32| {
        let (value, with_value) = (value.to_string(), bound.to_string());
        let (name, with) = (name.into(), with.into());
        Err(ConfigError::Conflict { name, value, with, with_value })
    };
    match own {
        Some(value) if value < bounds.least => conflict(value, least, bounds.least),
        Some(value) if value > bounds.most => conflict(value, most, bounds.most),
        _ => Ok(()),
    }
}
