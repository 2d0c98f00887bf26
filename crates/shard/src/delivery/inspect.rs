//! Operators' view of lease groups.

use base::{Level, Offset};
use bytes::Bytes;
use dispatch::SessionId;
use record::SharedRecord;
use serde::{Deserialize, Serialize};

use super::rates::Rates;
use crate::timeline::Shifts;

/// State of a record in a group. A variant is only ever added at the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum RecordState {
    Ready,
    /// Blocked by an earlier, unsettled record of the same key.
    Blocked,
    Leased {
        session: SessionId,
        /// Expiry of the lease, ms since the epoch; `None`: it ends with its session.
        expires_ms: Option<i64>,
    },
    Delayed {
        /// Ms since the epoch.
        due_ms: i64,
    },
    /// The record is being dead-lettered.
    DeadLettering,
}

base::levels!(RecordState {
    Level::FIRST => Ready | Blocked | Leased | Delayed | DeadLettering;
});

/// A record that was peeked at, not leased.
#[derive(Clone, Debug)]
pub struct PeekedRecord {
    pub partition: u32,
    pub offset: Offset,
    pub state: RecordState,
    /// Number of deliveries after which it came back.
    pub attempts: u16,
    pub record: SharedRecord,
}

#[derive(Clone, Debug)]
pub struct PeekOptions {
    /// `None`: all, one after another.
    pub partition: Option<u32>,
    /// First offset in each partition.
    pub from: Offset,
    pub records_max: usize,
}

impl Default for PeekOptions {
    fn default() -> Self {
        Self { partition: None, from: 0, records_max: 100 }
    }
}

/// Counters and gauges of a group.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Counters {
    /// Number of unsettled records.
    pub depth: u64,
    /// Unsettled records that are neither leased, delayed nor being dead-lettered. All count as ready in a
    /// group that is not in use.
    pub ready: u64,
    pub leased: u64,
    pub leased_bytes: u64,
    pub delayed: u64,
    pub consumers: u32,
    /// Timestamp of the oldest unsettled record, ms since the epoch, if known.
    pub oldest_unsettled_ms: Option<i64>,
    /// Since the node started.
    pub delivered: u64,
    pub redelivered: u64,
    pub settled: u64,
    pub dead_letters: u64,
    pub rates: Rates,
}

impl Counters {
    /// Adds the counters of another shard. Consumers are in all shards of their group, so the first shard's
    /// number is the total.
    pub fn and(self, other: Self) -> Self {
        let oldest = [self.oldest_unsettled_ms, other.oldest_unsettled_ms];
        Self {
            depth: self.depth + other.depth,
            ready: self.ready + other.ready,
            leased: self.leased + other.leased,
            leased_bytes: self.leased_bytes + other.leased_bytes,
            delayed: self.delayed + other.delayed,
            consumers: self.consumers,
            oldest_unsettled_ms: oldest.into_iter().flatten().min(),
            delivered: self.delivered + other.delivered,
            redelivered: self.redelivered + other.redelivered,
            settled: self.settled + other.settled,
            dead_letters: self.dead_letters + other.dead_letters,
            rates: self.rates.and(other.rates),
        }
    }
}

/// A record with delayed delivery.
#[derive(Clone, Debug)]
pub struct DelayedRecord {
    pub partition: u32,
    pub offset: Offset,
    /// Ms since the epoch.
    pub due_ms: i64,
    /// Its `postroad.id`.
    pub id: Option<Bytes>,
    pub record: SharedRecord,
}

/// A lease on a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeaseInfo {
    pub partition: u32,
    pub offset: Offset,
    pub attempt: u16,
    pub session: SessionId,
    /// Ms since the epoch; `None`: it ends with its session.
    pub expires_ms: Option<i64>,
}

/// Target of a seek.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SeekTo {
    /// The first stored record.
    Start,
    /// The end of the log.
    End,
    /// The first record at or after this time, ms since the epoch.
    Time(i64),
    /// Positions of single partitions; the others stay.
    Offsets(Vec<(u32, Offset)>),
}

/// Converts an expiry to the wall clock.
#[inline]
pub fn ends(expires_ms: i64, shifts: &Shifts) -> Option<i64> {
    Some(expires_ms).filter(|at| *at != i64::MAX).map(|at| shifts.wall(at))
}

/// Converts the times of a state to the wall clock.
pub fn stands(state: dispatch::RecordState, shifts: &Shifts) -> RecordState {
    match state {
        dispatch::RecordState::Ready => RecordState::Ready,
        dispatch::RecordState::Blocked => RecordState::Blocked,
        dispatch::RecordState::Delayed { due_ms } => {
            RecordState::Delayed { due_ms: shifts.wall(due_ms) }
        }
        dispatch::RecordState::Leased { session, expires_ms, .. } => {
            RecordState::Leased { session, expires_ms: ends(expires_ms, shifts) }
        }
        dispatch::RecordState::Dead { .. } | dispatch::RecordState::Settling => {
            RecordState::DeadLettering
        }
    }
}
