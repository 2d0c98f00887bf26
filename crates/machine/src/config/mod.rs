//! Configuration of topics, of the node, of groups and of lease groups, by Kafka's names where it
//! has one.
//!
//! One table for each (`table`, `node_table`, `group_table`, `lease`) defines the meaning, the
//! valid values and the documentation of a name; parsing, checking and describing all read it. A
//! value is never accepted and ignored: a name either takes effect, or its effect is inherent for
//! every value ([`Effect::Inherent`]), or it is refused unless it has its default
//! ([`Effect::OnlyDefault`]).

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

mod duration;
mod entry;
mod group;
mod group_table;
mod lease;
mod node;
mod node_table;
mod shared;
mod table;
mod traced;

pub use entry::{ConfigEntry, ConfigKind, Effect};
pub use group::{GroupConfig, IsolationLevel, ShareConfig, StartPosition};
pub use group_table::GROUP_CONFIGS;
pub use lease::{Consumers, LEASE_GROUP_CONFIGS, LeaseGroupConfig, LeaseOrdering};
pub use node::{
    BoundedValue, DeadLetterValues, GroupValues, NodeConfig, NodeValues, ShareValues, StreamsValues,
};
pub use node_table::NODE_CONFIGS;
pub(crate) use shared::SharedConfigs;
pub use table::TOPIC_CONFIGS;
pub use traced::{TRACE_CONFIG, level_of};

/// Values by name, as given by a user.
pub type Overrides = BTreeMap<String, String>;

/// A static text, unless it came from another node.
pub type Word = Cow<'static, str>;

/// Sent between nodes, so that its ordinals and fields must not change.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error, Serialize, Deserialize)]
pub enum ConfigError {
    #[error("there is no configuration named {name}")]
    Unknown { name: String },
    #[error("{name} = {value:?} is not valid: it must be {expected}{}", unit_of(name))]
    Invalid { name: Word, value: String, expected: Word },
    #[error("{name} = {value:?} is not offered ({why}); the only value is {default:?}")]
    NotOffered { name: Word, value: String, default: Word, why: Word },
    #[error("{name} = {value} contradicts {with} = {with_value}")]
    Conflict { name: Word, value: String, with: Word, with_value: String },
}

fn unit_of(name: &str) -> &'static str {
    if name.ends_with(".ms") { ", in milliseconds" } else { "" }
}

/// How a topic deletes records: by retention, by compaction, or both.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CleanupPolicy {
    pub delete: bool,
    pub compact: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimestampType {
    CreateTime,
    LogAppendTime,
}

/// Compression of a topic's batches; `Producer` keeps the producer's choice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CompressionType {
    Producer,
    Uncompressed,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

/// When a write is acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// Synced to disk on a quorum.
    Fsync,
    /// In the page caches of a quorum.
    Replicated,
}

/// Order of delivery of records with priorities.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PrioritiesOrder {
    /// Records with the highest priority first.
    #[default]
    Strict,
    /// Two classes: priorities up to 4, and those above. Two of the higher class are delivered,
    /// then one of the lower.
    TwoToOne,
}

/// Handling of a record that would exceed a topic's limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LimitOverflow {
    Reject,
    /// The oldest records are dropped to make room.
    DropOldest,
    /// It is refused, and becomes a dead letter.
    RejectDeadLetter,
}

/// Effective configuration of a topic.
#[derive(Clone, PartialEq, Debug)]
pub struct TopicConfig {
    pub cleanup_policy: CleanupPolicy,
    /// `None`: forever.
    pub retention_ms: Option<i64>,
    /// Per partition; `None`: any size.
    pub retention_bytes: Option<u64>,
    pub segment_bytes: u32,
    pub segment_ms: i64,
    pub max_message_bytes: u32,
    pub timestamp_type: TimestampType,
    /// Maximum age of a record's timestamp relative to the broker's clock.
    pub timestamp_before_max_ms: i64,
    /// Maximum lead of a record's timestamp over the broker's clock.
    pub timestamp_after_max_ms: i64,
    pub compression_type: CompressionType,
    /// -1: the library's default.
    pub compression_gzip_level: i32,
    pub compression_zstd_level: i32,
    pub min_insync_replicas: u32,
    pub delete_retention_ms: i64,
    pub min_cleanable_dirty_ratio: f64,
    pub min_compaction_lag_ms: i64,
    pub max_compaction_lag_ms: i64,
    pub durability: Durability,
    /// `Durability::Fsync` satisfies every value of these two; otherwise only the largest is valid.
    pub flush_messages: i64,
    pub flush_ms: i64,
    /// Records are deleted once every lease group has settled them.
    pub retention_settled: bool,
    /// The highest priority; 0: none.
    pub priorities_max: u8,
    pub priorities_order: PrioritiesOrder,
    /// Limits of unsettled records; `None`: unlimited.
    pub limit_records: Option<u64>,
    pub limit_bytes: Option<u64>,
    pub limit_overflow: LimitOverflow,
    /// How long a record's id is remembered; 0: not at all.
    pub dedup_window_ms: i64,
    /// Maximum number of the topic's ids that a shard remembers.
    pub dedup_ids_max: u64,
    /// Kafka's share groups may use it for their dead letters.
    pub dead_letters_of_groups: bool,
    /// Number of traced records per million; 0: none.
    pub traced_per_million: u32,
}

impl Default for TopicConfig {
    /// Equal to the table's defaults; a test compares them.
    fn default() -> Self {
        Self {
            cleanup_policy: CleanupPolicy { delete: true, compact: false },
            retention_ms: Some(7 * 24 * 60 * 60 * 1000),
            retention_bytes: None,
            segment_bytes: 1 << 30,
            segment_ms: 7 * 24 * 60 * 60 * 1000,
            max_message_bytes: base::limits::BATCH_BYTES_DEFAULT,
            timestamp_type: TimestampType::CreateTime,
            timestamp_before_max_ms: i64::MAX,
            timestamp_after_max_ms: 60 * 60 * 1000,
            compression_type: CompressionType::Producer,
            compression_gzip_level: -1,
            compression_zstd_level: 3,
            min_insync_replicas: 1,
            delete_retention_ms: 24 * 60 * 60 * 1000,
            min_cleanable_dirty_ratio: 0.5,
            min_compaction_lag_ms: 0,
            max_compaction_lag_ms: i64::MAX,
            durability: Durability::Fsync,
            flush_messages: i64::MAX,
            flush_ms: i64::MAX,
            retention_settled: false,
            priorities_max: 0,
            priorities_order: PrioritiesOrder::Strict,
            limit_records: None,
            limit_bytes: None,
            limit_overflow: LimitOverflow::Reject,
            dedup_window_ms: 0,
            dedup_ids_max: base::limits::DEDUP_IDS_MAX as u64,
            dead_letters_of_groups: false,
            traced_per_million: 0,
        }
    }
}

impl TopicConfig {
    /// Effective configuration of a topic with these own values on a node with that configuration.
    pub fn parse(node: &NodeConfig, overrides: &Overrides) -> Result<Self, ConfigError> {
        let mut config = (*node.topic_defaults).clone();
        apply(&TOPIC_CONFIGS, overrides, &mut config)?;
        config.check()?;
        Ok(config)
    }

    /// Checks relations between values.
    fn check(&self) -> Result<(), ConfigError> {
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms {
            return Err(ConfigError::Conflict {
                name: "min.compaction.lag.ms".into(),
                value: self.min_compaction_lag_ms.to_string(),
                with: "max.compaction.lag.ms".into(),
                with_value: self.max_compaction_lag_ms.to_string(),
            });
        }
        // Syncing before the acknowledgement is stricter than any flush interval; replication
        // without sync is not.
        let flush = [("flush.messages", self.flush_messages), ("flush.ms", self.flush_ms)];
        if let (Durability::Replicated, Some((name, value))) =
            (self.durability, flush.into_iter().find(|(_, value)| *value != i64::MAX))
        {
            return Err(ConfigError::Conflict {
                name: name.into(),
                value: value.to_string(),
                with: "durability".into(),
                with_value: "replicated".to_owned(),
            });
        }
        Ok(())
    }
}

/// The entry of a topic's configuration.
pub fn topic_entry(name: &str) -> Option<&'static ConfigEntry<TopicConfig>> {
    TOPIC_CONFIGS.iter().find(|entry| entry.name == name)
}

/// The entry of a topic's configuration whose default the node sets under this name.
pub fn topic_entry_for_node(node_name: &str) -> Option<&'static ConfigEntry<TopicConfig>> {
    TOPIC_CONFIGS.iter().find(|entry| entry.node_name == Some(node_name))
}

fn apply<T>(
    table: &'static [ConfigEntry<T>],
    overrides: &Overrides,
    config: &mut T,
) -> Result<(), ConfigError> {
    for (name, value) in overrides {
        let Some(entry) = table.iter().find(|entry| entry.name == name) else {
            return Err(ConfigError::Unknown { name: name.clone() });
        };
        entry.apply(value, config)?;
    }
    Ok(())
}

/// One configuration as DescribeConfigs shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DescribedSetting<'a> {
    pub name: &'static str,
    pub kind: ConfigKind,
    /// The effective value.
    pub value: &'a str,
    pub source: ConfigSource,
    pub default: &'static str,
    /// For a topic: the name under which the node sets the default, and the node's value if set.
    pub node_name: Option<&'static str>,
    pub node_value: Option<&'a str>,
    pub documentation: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConfigSource {
    /// The topic's, the group's or the lease group's own value.
    Own,
    /// The node's value.
    Node,
    Default,
}

/// Every configuration of a topic with these values of its own.
pub fn describe_topic<'a>(
    overrides: &'a Overrides,
    node: &'a NodeConfig,
) -> impl Iterator<Item = DescribedSetting<'a>> {
    TOPIC_CONFIGS.iter().map(move |entry| {
        let node_value = entry.node_name.and_then(|name| node.overrides.get(name));
        entry.describe(overrides.get(entry.name), node_value)
    })
}

/// Every configuration that the node may set: its own, and the defaults of topics.
pub fn describe_node(node: &NodeConfig) -> impl Iterator<Item = DescribedSetting<'_>> {
    let own = NODE_CONFIGS.iter().map(|entry| entry.describe(None, node.overrides.get(entry.name)));
    let for_topics = TOPIC_CONFIGS.iter().filter_map(|entry| {
        let name = entry.node_name?;
        Some(DescribedSetting { name, ..entry.describe(None, node.overrides.get(name)) })
    });
    own.chain(for_topics)
}

/// Every configuration of a lease group with these values of its own.
pub fn describe_lease_group(overrides: &Overrides) -> impl Iterator<Item = DescribedSetting<'_>> {
    LEASE_GROUP_CONFIGS.iter().map(|entry| entry.describe(overrides.get(entry.name), None))
}

/// Every configuration of a group.
pub fn describe_group(group: &GroupConfig) -> impl Iterator<Item = DescribedSetting<'_>> {
    GROUP_CONFIGS.iter().map(|entry| entry.describe(group.overrides.get(entry.name), None))
}

#[cfg(test)]
mod tests;
