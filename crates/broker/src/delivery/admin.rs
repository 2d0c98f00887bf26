//! Looking at lease groups, and changing them from outside: peek, purge, delete, seek, redrive,
//! delayed records, counters.

use base::{LeaseGroupId, Offset};
use record::SharedRecord;

use crate::broker::Broker;

use super::session::LeaseSession;

/// Where a record of a group stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordState {
    Ready,
    Leased {
        session: super::SessionId,
        /// When the lease ends, ms since the epoch; `None`: with its session.
        expires_ms: Option<i64>,
    },
    Delayed {
        /// Ms since the epoch.
        due_ms: i64,
    },
    /// On its way to the dead letters.
    Dying,
    Settled,
}

/// A record that was looked at and not taken.
#[derive(Clone, Debug)]
pub struct Peeked {
    pub partition: u32,
    pub offset: Offset,
    pub state: RecordState,
    /// How often it was delivered and came back.
    pub attempts: u16,
    pub record: SharedRecord,
}

#[derive(Clone, Debug)]
pub struct PeekOptions {
    /// `None`: all, one after another.
    pub partition: Option<u32>,
    /// In each partition; what is settled below the floor is never shown.
    pub from: Offset,
    pub records_max: usize,
    /// Also records above the floor that are settled and not yet gone.
    pub settled: bool,
}

impl Default for PeekOptions {
    fn default() -> Self {
        Self { partition: None, from: 0, records_max: 100, settled: false }
    }
}

/// What a group holds and does.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Counters {
    /// Records that are not settled.
    pub depth: u64,
    /// Of those, neither leased nor delayed nor dying.
    pub ready: u64,
    pub leased: u64,
    pub delayed: u64,
    pub consumers: u32,
    /// When the oldest unsettled record was made, ms since the epoch, as far as is known.
    pub oldest_unsettled_ms: Option<i64>,
    /// Since the node started.
    pub delivered: u64,
    pub redelivered: u64,
    pub settled: u64,
    pub dead_letters: u64,
}

/// A record that waits for its time.
#[derive(Clone, Debug)]
pub struct DelayedRecord {
    pub partition: u32,
    pub offset: Offset,
    /// Ms since the epoch.
    pub due_ms: i64,
}

/// Which dead letters go back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedriveWhat {
    All,
    /// `(partition, offset)` in the dead-letter topic.
    Records(Vec<(u32, Offset)>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedriveTo {
    /// The topic and partition that its headers name.
    Source,
    Topic(base::TopicId),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Redriven {
    pub moved: u64,
    /// They name no source, or one that is no more. They stay.
    pub left: u64,
}

/// What [`crate::Broker::leases`] shows.
#[derive(Clone, Debug)]
pub struct LeaseInfo {
    pub group: LeaseGroupId,
    pub partition: u32,
    pub offset: Offset,
    pub attempt: u16,
    pub session: super::SessionId,
    pub expires_ms: Option<i64>,
}

impl Broker {
    /// A new session that consumes and takes by lease.
    pub fn lease_session(&self) -> LeaseSession {
        LeaseSession::open(self.delivery().clone())
    }
}
