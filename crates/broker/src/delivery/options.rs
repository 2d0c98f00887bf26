//! What a session asks for when it consumes, takes and settles.

use serde::{Deserialize, Serialize};
use std::time::Duration;

use base::LeaseGroupId;
use dispatch::{Selection, Settlement};

/// How much a consumer may hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Credit {
    /// `u32::MAX`: any number.
    pub records: u32,
    /// `u64::MAX`: any number. At least one record is delivered if there is any credit at all.
    pub bytes: u64,
}

impl Credit {
    pub const UNLIMITED: Self = Self { records: u32::MAX, bytes: u64::MAX };

    pub const fn records(records: u32) -> Self {
        Self { records, bytes: u64::MAX }
    }
}

/// What gives used credit back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum CreditReturns {
    /// A settle: credit is a window of what is unsettled (a prefetch).
    #[default]
    OnSettle,
    /// [`LeaseSession::grant`](super::LeaseSession::grant) only.
    OnGrant,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ConsumeOptions {
    pub credit: Credit,
    pub credit_returns: CreditReturns,
    /// Higher ones are served first; equals in turn.
    pub priority: i32,
    /// Nobody else may consume or take while it is there.
    pub exclusive: bool,
    /// A record is settled when it is sent: none is leased, none comes back.
    pub settle_on_send: bool,
    /// Instead of the group's `lease.ms`. 0: for as long as the session lives.
    pub lease_ms: Option<i64>,
}

impl Default for ConsumeOptions {
    fn default() -> Self {
        Self {
            credit: Credit::UNLIMITED,
            credit_returns: CreditReturns::default(),
            priority: 0,
            exclusive: false,
            settle_on_send: false,
            lease_ms: None,
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TakeOptions {
    pub records_max: u32,
    /// The first record is given whatever its size.
    pub bytes_max: u64,
    /// How long to wait for the first record when there is none.
    pub wait: Duration,
    /// Instead of the group's `lease.ms`. 0: for as long as the session lives.
    pub lease_ms: Option<i64>,
    /// Only from these partitions, in rising order; empty: from all.
    pub partitions: Vec<u32>,
    /// Not from a partition of which so many records are leased, whoever has them.
    pub leased_max: Option<u32>,
    /// As [`ConsumeOptions::settle_on_send`].
    pub settle_on_send: bool,
}

impl Default for TakeOptions {
    fn default() -> Self {
        Self {
            records_max: 1,
            bytes_max: u64::MAX,
            wait: Duration::ZERO,
            lease_ms: None,
            partitions: Vec::new(),
            leased_max: None,
            settle_on_send: false,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Settle {
    pub group: LeaseGroupId,
    pub what: Selection,
    pub settlement: Settlement,
}
