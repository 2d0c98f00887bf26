//! Ends of leases by consumers, and the selection of leases.

use base::Offset;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{SessionId, Token};

/// The leases that a settlement selects.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Selection {
    /// The lease of a record in this partition with this token.
    Lease { partition: u32, token: Token },
    /// Every offset of `first..=last` must be leased by the session, or already settled; at least
    /// one must be leased. All or nothing.
    Range { partition: u32, first: Offset, last: Offset },
    /// All leases of the session in the partition up to and including `last`, at least one.
    UpTo { partition: u32, last: Offset },
    /// The lease of this session with this token, for any caller: a client without a connection of
    /// its own may settle it anywhere.
    Held { partition: u32, token: Token, session: SessionId },
}

impl Selection {
    pub fn partition(&self) -> u32 {
        match *self {
            Self::Lease { partition, .. }
            | Self::Range { partition, .. }
            | Self::UpTo { partition, .. }
            | Self::Held { partition, .. } => partition,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Settlement {
    /// The record was processed.
    Accept,
    /// Deliver the record again.
    Release {
        /// `None` = the policy's back-off, or no delay if the release is not counted.
        delay_ms: Option<i64>,
        /// Whether this was an attempt. A record that the consumer did not process is not counted.
        count: bool,
    },
    /// Do not deliver the record again: it becomes a dead letter.
    Reject,
    /// Extends the lease from now: `None` = by the policy's duration.
    Renew { lease_ms: Option<i64> },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum SettleRefused {
    /// The lease was settled, has expired or was revoked; the record may be leased to another
    /// consumer.
    #[error("lease {token} is no longer held")]
    Stale { token: Token },
    /// The lease belongs to another session.
    #[error("lease {token} is held by another session than {session}")]
    NotHolder { token: Token, session: SessionId },
    #[error("record {partition}/{offset} is not leased by this session")]
    NotLeased { partition: u32, offset: Offset },
    #[error("there is no partition {partition}")]
    NoSuchPartition { partition: u32 },
}
