//! Configuration of a lease group: delivery, retries and dead letters. The machine stores it; the
//! leader applies it.

use std::sync::Arc;

use super::entry::ConfigKind::{Int, Long, String};
use super::entry::Effect::Sets;
use super::entry::{ConfigEntry, minus_one_or_more, route_or_none, topic_or_none, zero_or_more};
use super::{ConfigError, Overrides, apply};

/// Records of a topic that may be leased concurrently.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LeaseOrdering {
    /// Any record.
    Free,
    /// One record of each key, in order.
    Key,
    /// One record of each partition, in order.
    Partition,
}

impl LeaseOrdering {
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Free, Self::Key, Self::Partition].into_iter().find(|one| one.name() == name)
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Key => "key",
            Self::Partition => "partition",
        }
    }
}

/// Consumers of a lease group that receive deliveries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Consumers {
    All,
    /// One; when it leaves, the next takes over.
    SingleActive,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeaseGroupConfig {
    pub ordering: LeaseOrdering,
    pub consumers: Consumers,
    /// `None`: until the session ends.
    pub lease_ms: Option<i64>,
    /// `None`: any number.
    pub attempts_max: Option<u16>,
    /// Delay before the second delivery; doubles with each.
    pub retry_backoff_ms: i64,
    pub retry_backoff_max_ms: i64,
    /// Name of a topic. `None`: rejected and exhausted records are settled, and so dropped.
    pub dead_letter_topic: Option<Arc<str>>,
    /// A gateway's route for dead letters; opaque here.
    pub dead_letter_route: Option<Arc<str>>,
    /// `None`: records do not expire for the group, unless they carry their own expiry.
    pub record_ttl_ms: Option<i64>,
}

impl Default for LeaseGroupConfig {
    /// Equal to the table's defaults; a test compares them.
    fn default() -> Self {
        Self {
            ordering: LeaseOrdering::Free,
            consumers: Consumers::All,
            lease_ms: Some(30_000),
            attempts_max: None,
            retry_backoff_ms: 0,
            retry_backoff_max_ms: 60_000,
            dead_letter_topic: None,
            dead_letter_route: None,
            record_ttl_ms: None,
        }
    }
}

impl LeaseGroupConfig {
    pub fn parse(overrides: &Overrides) -> Result<Self, ConfigError> {
        let mut config = Self::default();
        apply(&LEASE_GROUP_CONFIGS, overrides, &mut config)?;
        check_backoff(
            ("retry.backoff.ms", config.retry_backoff_ms),
            ("retry.backoff.max.ms", config.retry_backoff_max_ms),
        )?;
        Ok(config)
    }
}

pub(super) fn check_backoff(
    (name, first): (&'static str, i64),
    (with, most): (&'static str, i64),
) -> Result<(), ConfigError> {
    if first > most {
        let (value, with_value) = (first.to_string(), most.to_string());
        let (name, with) = (name.into(), with.into());
        return Err(ConfigError::Conflict { name, value, with, with_value });
    }
    Ok(())
}

fn text(value: &str) -> Option<Arc<str>> {
    (!value.is_empty()).then(|| Arc::from(value))
}

type Lease = ConfigEntry<LeaseGroupConfig>;

pub static LEASE_GROUP_CONFIGS: [Lease; 9] = [
    Lease::new(
        "ordering",
        String,
        "free",
        Sets(|group, value| {
            if let Some(ordering) = LeaseOrdering::parse(value.text()) {
                group.ordering = ordering;
            }
        }),
        "What may be leased at a time: any record (free), one of each key in its order (key), or \
         one of each partition in its order (partition).",
    )
    .valid("free, key or partition", |value| LeaseOrdering::parse(value.text()).is_some()),
    Lease::new(
        "consumers",
        String,
        "shared",
        Sets(|group, value| {
            group.consumers = match value.text() {
                "single-active" => Consumers::SingleActive,
                _ => Consumers::All,
            };
        }),
        "Whether all consumers are served, or one until it leaves and then the next.",
    )
    .valid("shared or single-active", |value| matches!(value.text(), "shared" | "single-active")),
    Lease::new(
        "lease.ms",
        Long,
        "30000",
        Sets(|group, value| group.lease_ms = Some(value.whole()).filter(|&ms| ms > 0)),
        "How long a record is a consumer's before it is delivered again; 0 is as long as the \
         consumer's session lives.",
    )
    .valid("0 or more", zero_or_more),
    Lease::new(
        "attempts.max",
        Int,
        "0",
        Sets(|group, value| {
            group.attempts_max = u16::try_from(value.whole()).ok().filter(|&most| most > 0);
        }),
        "How often a record is delivered before it becomes a dead letter; 0 is any number.",
    )
    .valid("0 to 65535", |value| (0..=i64::from(u16::MAX)).contains(&value.whole())),
    Lease::new(
        "retry.backoff.ms",
        Long,
        "0",
        Sets(|group, value| group.retry_backoff_ms = value.whole()),
        "How long a record that came back waits before its second delivery; it doubles with each.",
    )
    .valid("0 or more", zero_or_more),
    Lease::new(
        "retry.backoff.max.ms",
        Long,
        "60000",
        Sets(|group, value| group.retry_backoff_max_ms = value.whole()),
        "The longest that a record which came back waits.",
    )
    .valid("0 or more", zero_or_more),
    Lease::new(
        "dead.letter.topic",
        String,
        "",
        Sets(|group, value| group.dead_letter_topic = text(value.text())),
        "The topic for records that are rejected, expired, or were delivered too often; without \
         one, and without a route, they are dropped.",
    )
    .valid("a topic's name, or nothing", topic_or_none),
    Lease::new(
        "dead.letter.route",
        String,
        "",
        Sets(|group, value| group.dead_letter_route = text(value.text())),
        "What a gateway finds the place of a dead letter by, where that is not one topic. The \
         gateway that sets it reads it; until it does, dead letters wait.",
    )
    .valid("a gateway's scheme, a colon and what it reads, or nothing", route_or_none),
    Lease::new(
        "record.ttl.ms",
        Long,
        "-1",
        Sets(|group, value| group.record_ttl_ms = Some(value.whole()).filter(|&ms| ms >= 0)),
        "How long after its timestamp a record is delivered; then it is a dead letter. -1 is for \
         ever.",
    )
    .valid("-1 or more", minus_one_or_more),
];
