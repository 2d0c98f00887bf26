//! Targets of records that are not delivered again.

use std::sync::Arc;

use base::topics::is_written_by_nodes;
use base::{LeaseGroupId, Offset, PartitionId, TopicId, headers};
use bytes::Bytes;
use machine::{Catalog, Topic};
use parking_lot::RwLock;
use record::{BatchBuilder, BatchError, Header, SharedRecord};

/// Reason why a record is not delivered any more.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DeathReason {
    Rejected,
    /// The group's limit of attempts is reached.
    Attempts,
    Expired,
    /// The topic was full.
    Overflow,
}

impl DeathReason {
    /// The value of `postroad.death.reason`.
    pub const fn name(self) -> &'static str {
        match self {
            DeathReason::Rejected => headers::DEATH_REASON_REJECTED,
            DeathReason::Attempts => headers::DEATH_REASON_ATTEMPTS,
            DeathReason::Expired => headers::DEATH_REASON_EXPIRED,
            DeathReason::Overflow => headers::DEATH_REASON_OVERFLOW,
        }
    }
}

/// A dead record as a router gets it.
#[derive(Clone, Debug)]
pub struct DeadRecord {
    pub group: LeaseGroupId,
    pub group_name: std::sync::Arc<str>,
    pub topic: TopicId,
    pub topic_name: std::sync::Arc<str>,
    pub partition: u32,
    pub offset: Offset,
    pub reason: DeathReason,
    /// Number of deliveries.
    pub attempts: u16,
    /// Time of death, ms since the epoch.
    pub time_ms: i64,
    pub record: SharedRecord,
}

/// The topic of this name, if dead letters may be appended to it.
pub fn topic_for_letters<'a>(catalog: &'a Catalog, name: &str) -> Option<&'a Topic> {
    let topic = catalog.topic_named(name)?;
    (!is_written_by_nodes(name)).then_some(topic)
}

/// A gateway's routing of dead letters (`dead.letter.route`), in its protocol's terms.
pub trait DeadLetterRouter: Send + Sync + std::fmt::Debug {
    /// The batches to append, one record or more in each, whole and valid (offsets are assigned later). They go
    /// into the same log entry that settles the record: a crash neither loses nor duplicates it. Empty: the
    /// record is dropped. Called by the driver: must not block.
    fn route(&self, route: &str, dead: &DeadRecord) -> Vec<(PartitionId, Bytes)>;
}

impl DeadRecord {
    /// Copies the record into a batch, without headers that would kill or delay the copy, with the headers of
    /// its death, and with `more` headers.
    pub fn copy_into(
        &self,
        builder: &mut BatchBuilder,
        more: &[(&str, &[u8])],
    ) -> Result<(), BatchError> {
        let text = |number: u64| number.to_string().into_bytes();
        let (count, time) = (text(self.attempts.into()), text(self.time_ms.max(0) as u64));
        let (partition, offset) = (text(self.partition.into()), text(self.offset));
        let death: [(&str, &[u8]); 7] = [
            (headers::DEATH_REASON, self.reason.name().as_bytes()),
            (headers::DEATH_COUNT, &count),
            (headers::DEATH_TOPIC, self.topic_name.as_bytes()),
            (headers::DEATH_PARTITION, &partition),
            (headers::DEATH_OFFSET, &offset),
            (headers::DEATH_GROUP, self.group_name.as_bytes()),
            (headers::DEATH_TIME, &time),
        ];
        copy(builder, &self.record, &[&death, more].concat())
    }
}

/// Headers of an earlier death, a delay or an expiry do not apply to the copy.
pub fn copy(
    builder: &mut BatchBuilder,
    record: &SharedRecord,
    more: &[(&str, &[u8])],
) -> Result<(), BatchError> {
    let view = record.view();
    let stays = |header: &Header<'_>| {
        let key = header.key;
        key != headers::DELIVER_AT.as_bytes()
            && key != headers::EXPIRES_AT.as_bytes()
            && !key.starts_with(DEATH_PREFIX)
    };
    let mut all: Vec<Header<'_>> = view.headers.iter().filter(stays).collect();
    all.extend(more.iter().map(|(key, value)| Header { key: key.as_bytes(), value: Some(value) }));
    builder.push(view.timestamp, view.key, view.value, &all)
}

const DEATH_PREFIX: &[u8] = b"postroad.death.";

/// The routers of all gateways. Each has the routes that begin with its scheme and a colon.
#[derive(Debug, Default)]
pub struct Routers(RwLock<Vec<(&'static str, Arc<dyn DeadLetterRouter>)>>);

impl Routers {
    pub fn set(&self, scheme: &'static str, router: Arc<dyn DeadLetterRouter>) {
        let mut routers = self.0.write();
        routers.retain(|(known, _)| *known != scheme);
        routers.push((scheme, router));
    }

    /// The route without its scheme, and the router for it.
    pub fn of<'a>(&self, route: &'a str) -> Option<(&'a str, Arc<dyn DeadLetterRouter>)> {
        let (scheme, rest) = route.split_once(':')?;
        let routers = self.0.read();
        let (_, router) = routers.iter().find(|(known, _)| *known == scheme)?;
        Some((rest, Arc::clone(router)))
    }
}
