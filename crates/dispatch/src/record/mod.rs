//! Records entering and leaving the engine, always without their bodies.

mod meta;

use base::{Offset, OffsetRanges};
use serde::{Deserialize, Serialize};

use crate::{ConsumerId, SessionId, Token};
pub(crate) use meta::Meta;

/// Initial state of a partition: the durable progress of the group, and the log's bounds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PartitionStart {
    /// Everything below is settled.
    pub floor: Offset,
    /// Settled ranges above the floor.
    pub settled: OffsetRanges,
    /// Unsettled records with their number of deliveries.
    pub attempts: Vec<(Offset, u16)>,
    /// Records below may have been delivered once without a count in `attempts`: by another engine,
    /// whose leases are lost.
    pub seen_below: Offset,
    /// First stored offset.
    pub log_start: Offset,
    /// One past the last deliverable offset.
    pub end: Offset,
}

/// A record as read from the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScannedRecord {
    pub offset: Offset,
    pub bytes: u32,
    /// Bytes of its value.
    pub value_bytes: u32,
    /// Milliseconds since the epoch.
    pub timestamp: i64,
    /// A hash of the key, never 0; `None` = no key: such records are unordered.
    pub key: Option<u64>,
    pub priority: u8,
    /// Earliest delivery time; `i64::MIN` = now.
    pub due_ms: i64,
    /// Expiry time; `i64::MAX` = never.
    pub expires_ms: i64,
}

/// The offsets to read next: respond with [`crate::Dispatch::scanned`], or with
/// [`crate::Dispatch::scan_failed`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadRange {
    pub partition: u32,
    pub from: Offset,
    /// End of the needed range. The result may stop before, and may extend beyond.
    pub up_to: Offset,
    /// All of them were read before; single records are looked up.
    pub known: bool,
}

/// Why a record will not be delivered any more.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum DeadReason {
    /// A consumer rejected it.
    Rejected,
    /// It was released after its last attempt.
    Attempts,
    /// Its time to live has passed.
    Expired,
}

/// State of a record for users and operators.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum RecordState {
    Ready,
    /// Ready except for an unsettled earlier record of its key.
    Blocked,
    Delayed {
        due_ms: i64,
    },
    Leased {
        consumer: ConsumerId,
        session: SessionId,
        token: Token,
        expires_ms: i64,
    },
    /// A pending entry of the log settles it.
    Settling,
    /// A dead letter that is not in the log yet.
    Dead {
        reason: DeadReason,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RecordInfo {
    pub partition: u32,
    pub offset: Offset,
    pub state: RecordState,
    /// Number of times that it was delivered and released.
    pub attempts: u16,
}

/// A record waiting for its due time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Delayed {
    pub due_ms: i64,
    pub partition: u32,
    pub offset: Offset,
}

/// A lease, for operators.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LeaseView {
    pub partition: u32,
    pub offset: Offset,
    pub token: Token,
    pub session: SessionId,
    pub consumer: ConsumerId,
    pub attempt: u16,
    pub bytes: u32,
    pub timestamp: i64,
    /// `i64::MAX` = until its session ends.
    pub expires_ms: i64,
}
