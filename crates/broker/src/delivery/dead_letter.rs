//! Where a record goes that is not delivered again.

use base::{LeaseGroupId, Offset, PartitionId, TopicId, headers};
use bytes::Bytes;
use record::SharedRecord;

/// Why a record is not delivered any more.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DeathReason {
    Rejected,
    /// It was delivered as often as the group allows.
    Attempts,
    Expired,
    /// The topic held too much.
    Overflow,
}

impl DeathReason {
    /// As written into `postroad.death.reason`.
    pub const fn name(self) -> &'static str {
        match self {
            DeathReason::Rejected => headers::DEATH_REASON_REJECTED,
            DeathReason::Attempts => headers::DEATH_REASON_ATTEMPTS,
            DeathReason::Expired => headers::DEATH_REASON_EXPIRED,
            DeathReason::Overflow => headers::DEATH_REASON_OVERFLOW,
        }
    }
}

/// A record at its end, as a router sees it.
#[derive(Clone, Debug)]
pub struct DeadRecord {
    pub group: LeaseGroupId,
    pub group_name: std::sync::Arc<str>,
    pub topic: TopicId,
    pub topic_name: std::sync::Arc<str>,
    pub partition: u32,
    pub offset: Offset,
    pub reason: DeathReason,
    /// How often it was delivered.
    pub attempts: u16,
    /// When, ms since the epoch.
    pub time_ms: i64,
    pub record: SharedRecord,
}

/// A gateway's way to route dead letters (`dead.letter.route`), in its protocol's words.
pub trait DeadLetterRouter: Send + Sync + std::fmt::Debug {
    /// The batches to append, one record or more in each, whole and valid (offsets are given
    /// later). They go into the same log entry that settles the record: a crash neither loses nor
    /// doubles it. Nothing: the record is dropped. Called by the driver: must not wait.
    fn route(&self, route: &str, dead: &DeadRecord) -> Vec<(PartitionId, Bytes)>;
}
