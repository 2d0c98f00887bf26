//! Consumers and pulls: limits on the records of each.

use base::Offset;
use thiserror::Error;

use crate::{ConsumerId, SessionId};

/// How credit is replenished.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Credit {
    /// A window over the leased records: the end of a lease returns credit.
    Window,
    /// Consumed for good; only [`crate::Dispatch::grant`] adds more.
    Grants,
}

/// A consumer that records are pushed to. A record fits its credit if the bytes fit, or if the
/// consumer holds nothing: a record larger than the whole window must not wait forever.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PushConsumer {
    pub session: SessionId,
    /// `u32::MAX` = unlimited.
    pub records: u32,
    /// `u64::MAX` = unlimited.
    pub bytes: u64,
    pub credit: Credit,
    /// Consumers with higher priority are served first, as long as they have credit.
    pub priority: i32,
    /// Excludes all other consumers.
    pub exclusive: bool,
    /// Settled on delivery: no lease, no second attempt.
    pub settle_on_send: bool,
    /// `None` = the policy's value; `Some(0)` = until the session ends.
    pub lease_ms: Option<i64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum JoinRefused {
    /// There is an exclusive consumer.
    #[error("consumer {by} consumes exclusively")]
    Exclusive { by: ConsumerId },
    /// Exclusive use was requested, and there are other consumers.
    #[error("{consumers} consumers are there already")]
    InUse { consumers: usize },
    #[error("consumer {consumer} is there already")]
    Known { consumer: ConsumerId },
}

/// Handling of a consumer's leases when it leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leases {
    /// Its session still settles them.
    Keep,
    /// They are released, counted as attempts.
    Release,
}

/// Limits a pull to a part of the group.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PullScope<'a> {
    /// Ascending; empty = all.
    pub partitions: &'a [u32],
    /// A partition with this many leased records, of any session, delivers no more.
    pub leased_max: Option<u32>,
    /// With priorities: nothing is delivered before each partition is known up to here
    /// ([`crate::Dispatch::knows`]). Empty = no such condition.
    pub known_to: &'a [Offset],
}

/// A pull: up to this many records now, for a session that need not have joined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PullRequest {
    pub session: SessionId,
    /// Appears in assignments and listings; its credit is ignored.
    pub consumer: ConsumerId,
    pub records_max: u32,
    /// The first record always fits.
    pub bytes_max: u64,
    /// Settled on delivery.
    pub settle_on_send: bool,
    /// `None` = the policy's value; `Some(0)` = until the session ends.
    pub lease_ms: Option<i64>,
}

/// Reasons why a consumer cannot get the next record. None of them if no record is ready.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CreditShortage {
    /// There is a record for the consumer, unless something else is missing.
    pub ready: bool,
    pub records: bool,
    pub bytes: bool,
    /// Its session's pool is exhausted.
    pub pool: bool,
}
