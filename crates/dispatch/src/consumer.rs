//! Consumers and pulls: how many records each may take at a time.

use base::Offset;
use thiserror::Error;

use crate::{ConsumerId, SessionId};

/// What makes credit come back after a record used it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Credit {
    /// A window over what is leased: the end of a lease gives back.
    Window,
    /// Used up; only [`crate::Dispatch::grant`] gives more.
    Grants,
}

/// A consumer that records are pushed to. A record fits its credit if the bytes fit, or if the
/// consumer holds nothing: a record larger than the whole window must not wait for ever.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Joined {
    pub session: SessionId,
    /// `u32::MAX` = any number.
    pub records: u32,
    /// `u64::MAX` = any number.
    pub bytes: u64,
    pub credit: Credit,
    /// Higher ones are served first, for as long as they have credit.
    pub priority: i32,
    /// No other consumer beside this one.
    pub exclusive: bool,
    /// Settled as it is handed out: no lease, no second attempt.
    pub settle_on_send: bool,
    /// `None` = what the policy says; `Some(0)` = as long as the session lives.
    pub lease_ms: Option<i64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum JoinRefused {
    /// An exclusive consumer is there.
    #[error("consumer {by} consumes exclusively")]
    Exclusive { by: ConsumerId },
    /// Exclusive use was asked for, and others are there.
    #[error("{consumers} consumers are there already")]
    InUse { consumers: usize },
    #[error("consumer {consumer} is there already")]
    Known { consumer: ConsumerId },
}

/// What becomes of a consumer's leases as it leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leases {
    /// Its session still settles them.
    Keep,
    /// They come back, counted as attempts.
    Release,
}

/// Limits a pull to a part of the group.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Within<'a> {
    /// Ascending; empty = all.
    pub partitions: &'a [u32],
    /// A partition with so many leased records, of any session, gives no more.
    pub leased_max: Option<u32>,
    /// Where there are priorities: nothing before each partition is known so far
    /// ([`crate::Dispatch::knows`]). Empty = whatever is known.
    pub known_to: &'a [Offset],
}

/// A pull: so many records now, for a session that need not have joined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Take {
    pub session: SessionId,
    /// Stands in the assignments and the listings; no credit is looked at.
    pub consumer: ConsumerId,
    pub records_max: u32,
    /// The first record fits always.
    pub bytes_max: u64,
    /// Settled as it is handed out.
    pub settle_on_send: bool,
    /// `None` = what the policy says; `Some(0)` = as long as the session lives.
    pub lease_ms: Option<i64>,
}
