//! Options of consume, take and settle.

use serde::{Deserialize, Serialize};
use std::time::Duration;

use base::LeaseGroupId;
use dispatch::{Selection, Settlement};

/// Limit of the records that a consumer may hold.
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

/// Event that returns used credit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum CreditReturns {
    /// A settle: credit is a window of unsettled records (a prefetch).
    #[default]
    OnSettle,
    /// `LeaseSession::grant` only.
    OnGrant,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ConsumeOptions {
    pub credit: Credit,
    pub credit_returns: CreditReturns,
    /// Higher ones are served first, equal ones in turn.
    pub priority: i32,
    /// No other consumer or take is admitted while it exists.
    pub exclusive: bool,
    /// A record is settled when it is sent: none is leased, none comes back.
    pub settle_on_send: bool,
    /// Instead of the group's `lease.ms`. 0: until the session ends.
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
    /// How long to wait for the first record if none is ready.
    pub wait: Duration,
    /// Instead of the group's `lease.ms`. 0: until the session ends.
    pub lease_ms: Option<i64>,
    /// Only from these partitions, in ascending order; empty: from all.
    pub partitions: Vec<u32>,
    /// Not from a partition with this many leased records, of any session.
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
