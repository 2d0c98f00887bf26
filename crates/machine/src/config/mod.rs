//! Configuration of topics, of the node and of groups, by Kafka's names.
//!
//! One table for each ([`table`]) says what a name means, what it may be and why; parsing,
//! checking and describing all read it. A value is never accepted and ignored: a name either takes
//! effect, or is met whatever its value ([`Effect::Inherent`]), or is refused unless it has its
//! default ([`Effect::OnlyDefault`]).

use std::collections::BTreeMap;
use std::sync::Arc;

mod entry;
mod table;

pub use entry::{ConfigEntry, ConfigKind, Effect};
pub use table::{GROUP_CONFIGS, NODE_CONFIGS, TOPIC_CONFIGS};

/// Values by name, as a user gave them.
pub type Overrides = BTreeMap<String, String>;

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("there is no configuration named {name}")]
    Unknown { name: String },
    #[error("{name} = {value:?} is not valid: it must be {expected}")]
    Invalid { name: &'static str, value: String, expected: &'static str },
    #[error("{name} = {value:?} is not offered ({why}); the only value is {default:?}")]
    NotOffered { name: &'static str, value: String, default: &'static str, why: &'static str },
    #[error("{name} = {value} contradicts {with} = {with_value}")]
    Conflict { name: &'static str, value: String, with: &'static str, with_value: String },
}

/// What retention and compaction do with a topic; both may.
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

/// What a topic's batches are compressed with; `Producer` keeps what the producer chose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CompressionType {
    Producer,
    Uncompressed,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

/// When a record counts as written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// Synced to disk on a quorum.
    Fsync,
    /// In the page caches of a quorum.
    Replicated,
}

/// What holds for a topic.
#[derive(Clone, PartialEq, Debug)]
pub struct TopicConfig {
    pub cleanup_policy: CleanupPolicy,
    /// `None`: for ever.
    pub retention_ms: Option<i64>,
    /// Per partition; `None`: any size.
    pub retention_bytes: Option<u64>,
    pub segment_bytes: u32,
    pub segment_ms: i64,
    pub max_message_bytes: u32,
    pub timestamp_type: TimestampType,
    /// How far a record's timestamp may lie behind the broker's clock.
    pub timestamp_before_max_ms: i64,
    /// How far it may lie ahead.
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
    /// Every value of these two is met by `Durability::Fsync`, and none but the largest otherwise.
    pub flush_messages: i64,
    pub flush_ms: i64,
}

impl Default for TopicConfig {
    /// What the table's defaults say; a test holds the two together.
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
        }
    }
}

impl TopicConfig {
    /// What holds for a topic with these values of its own on a node with that configuration.
    pub fn parse(node: &NodeConfig, overrides: &Overrides) -> Result<Self, ConfigError> {
        let mut config = (*node.topic_defaults).clone();
        apply(&TOPIC_CONFIGS, overrides, &mut config)?;
        config.check()?;
        Ok(config)
    }

    /// What no value breaks by itself.
    fn check(&self) -> Result<(), ConfigError> {
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms {
            return Err(ConfigError::Conflict {
                name: "min.compaction.lag.ms",
                value: self.min_compaction_lag_ms.to_string(),
                with: "max.compaction.lag.ms",
                with_value: self.max_compaction_lag_ms.to_string(),
            });
        }
        // Synced before it is acknowledged is stricter than any flush interval; unsynced is not.
        let flush = [("flush.messages", self.flush_messages), ("flush.ms", self.flush_ms)];
        if let (Durability::Replicated, Some((name, value))) =
            (self.durability, flush.into_iter().find(|(_, value)| *value != i64::MAX))
        {
            return Err(ConfigError::Conflict {
                name,
                value: value.to_string(),
                with: "durability",
                with_value: "replicated".to_owned(),
            });
        }
        Ok(())
    }
}

/// What holds for the node: values of its own, and those of topics that say nothing themselves.
#[derive(Clone, PartialEq, Debug)]
pub struct NodeConfig {
    pub overrides: Overrides,
    /// What a topic without values of its own has.
    pub topic_defaults: Arc<TopicConfig>,
    pub own: NodeValues,
}

/// The node's own values, by what they are about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeValues {
    pub producer_id_expiration_ms: i64,
    pub offsets_retention_ms: i64,
    pub groups: GroupValues,
}

/// What holds for every group, and for those of the new protocol unless they say otherwise.
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
        initial_rebalance_delay_ms: 0,
        session_timeout_ms_min: 6_000,
        session_timeout_ms_max: 30 * 60 * 1000,
        members_max: base::limits::GROUP_MEMBERS_MAX,
        consumer_session_timeout_ms: 45_000,
        consumer_heartbeat_interval_ms: 5_000,
        consumer_members_max: base::limits::GROUP_MEMBERS_MAX,
    };

    /// What no value breaks by itself.
    fn check(&self) -> Result<(), ConfigError> {
        let ordered = [
            (
                ("group.min.session.timeout.ms", self.session_timeout_ms_min),
                ("group.max.session.timeout.ms", self.session_timeout_ms_max),
            ),
            // A member that reports as it is told must not time out between two reports.
            (
                ("group.consumer.heartbeat.interval.ms", self.consumer_heartbeat_interval_ms),
                ("group.consumer.session.timeout.ms", self.consumer_session_timeout_ms),
            ),
        ];
        for ((name, least), (with, most)) in ordered {
            if least > most {
                let (value, with_value) = (least.to_string(), most.to_string());
                return Err(ConfigError::Conflict { name, value, with, with_value });
            }
        }
        Ok(())
    }
}

impl Default for NodeConfig {
    fn default() -> Self {
        Self {
            overrides: Overrides::new(),
            topic_defaults: Arc::new(TopicConfig::default()),
            own: NodeValues {
                producer_id_expiration_ms: base::limits::PRODUCER_ID_EXPIRATION.as_millis() as i64,
                offsets_retention_ms: base::limits::OFFSETS_RETENTION.as_millis() as i64,
                groups: GroupValues::DEFAULT,
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
        config.topic_defaults = Arc::new(topic_defaults);
        Ok(config)
    }
}

/// What holds for a group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupConfig {
    pub overrides: Overrides,
    /// `None`: the node's default. For the KIP-848 protocol, where the group decides.
    pub session_timeout_ms: Option<i32>,
    pub heartbeat_interval_ms: Option<i32>,
}

impl GroupConfig {
    pub const DEFAULT: Self =
        Self { overrides: Overrides::new(), session_timeout_ms: None, heartbeat_interval_ms: None };

    pub fn parse(overrides: &Overrides) -> Result<Self, ConfigError> {
        let mut config = Self { overrides: overrides.clone(), ..Self::DEFAULT };
        apply(&GROUP_CONFIGS, overrides, &mut config)?;
        Ok(config)
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
pub struct Described<'a> {
    pub name: &'static str,
    pub kind: ConfigKind,
    /// What holds.
    pub value: &'a str,
    pub source: ConfigSource,
    pub default: &'static str,
    /// For a topic: under which name the node sets the default, and to what if it does.
    pub node_name: Option<&'static str>,
    pub node_value: Option<&'a str>,
    pub documentation: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConfigSource {
    /// The topic's or the group's own value.
    Own,
    /// The node's value.
    Node,
    Default,
}

/// Every configuration of a topic with these values of its own.
pub fn describe_topic<'a>(
    overrides: &'a Overrides,
    node: &'a NodeConfig,
) -> impl Iterator<Item = Described<'a>> {
    TOPIC_CONFIGS.iter().map(move |entry| {
        let node_value = entry.node_name.and_then(|name| node.overrides.get(name));
        entry.describe(overrides.get(entry.name), node_value)
    })
}

/// Every configuration that the node may set: its own, and the defaults of topics.
pub fn describe_node(node: &NodeConfig) -> impl Iterator<Item = Described<'_>> {
    let own = NODE_CONFIGS.iter().map(|entry| entry.describe(None, node.overrides.get(entry.name)));
    let for_topics = TOPIC_CONFIGS.iter().filter_map(|entry| {
        let name = entry.node_name?;
        Some(Described { name, ..entry.describe(None, node.overrides.get(name)) })
    });
    own.chain(for_topics)
}

/// Every configuration of a group.
pub fn describe_group(group: &GroupConfig) -> impl Iterator<Item = Described<'_>> {
    GROUP_CONFIGS.iter().map(|entry| entry.describe(group.overrides.get(entry.name), None))
}

#[cfg(test)]
mod tests;
