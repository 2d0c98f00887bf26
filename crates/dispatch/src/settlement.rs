//! How a consumer ends leases, and selects them.

use base::Offset;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{SessionId, Token};

/// Which leases a settlement is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Selection {
    /// The lease of a record in this partition that has this token.
    Lease { partition: u32, token: Token },
    /// Every offset of `first..=last` must be leased by the session, or settled already; at least
    /// one must be leased. All or nothing.
    Range { partition: u32, first: Offset, last: Offset },
    /// Whatever the session has leased of the partition up to and with `last`, at least one.
    UpTo { partition: u32, last: Offset },
    /// The lease that has this token, of this session, whoever settles it: a client that has no connection of its own
    /// may do so anywhere.
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
    /// The record is done.
    Accept,
    /// The record is to be delivered again.
    Release {
        /// `None` = what the policy's back-off says, and at once where it is not counted.
        delay_ms: Option<i64>,
        /// Whether this was an attempt. A record that the consumer did not process is not counted.
        count: bool,
    },
    /// The record is not to be delivered again: a dead letter.
    Reject,
    /// The lease lives on, from now: `None` = for as long as the policy says.
    Renew { lease_ms: Option<i64> },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum SettleRefused {
    /// The lease was settled, has run out or was taken away; the record may be another's now.
    #[error("lease {token} is no longer held")]
    Stale { token: Token },
    /// The lease is another session's.
    #[error("lease {token} is held by another session than {session}")]
    NotHolder { token: Token, session: SessionId },
    #[error("record {partition}/{offset} is not leased by this session")]
    NotLeased { partition: u32, offset: Offset },
    #[error("there is no partition {partition}")]
    NoSuchPartition { partition: u32 },
}
