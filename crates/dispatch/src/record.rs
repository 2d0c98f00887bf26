//! Records as they enter the engine and leave it, always without their bodies.

use base::{Offset, OffsetRanges};
use serde::{Deserialize, Serialize};

use crate::claim::Terms;
use crate::{ConsumerId, Selection, SessionId, Token};

/// Where a partition stands when the engine starts on it: the durable progress of the group, and
/// the log's ends.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PartitionStart {
    /// Everything below is settled.
    pub floor: Offset,
    /// What is settled above the floor.
    pub settled: OffsetRanges,
    /// How often unsettled records were delivered and came back.
    pub attempts: Vec<(Offset, u16)>,
    /// Records below may have been delivered once though `attempts` does not count it: another engine, whose leases are
    /// lost, had them.
    pub seen_below: Offset,
    /// First offset that is stored.
    pub log_start: Offset,
    /// One past the last offset that may be delivered.
    pub end: Offset,
}

/// A record as the reader of the log found it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scanned {
    pub offset: Offset,
    pub bytes: u32,
    /// Bytes of its value.
    pub value_bytes: u32,
    /// Milliseconds since the epoch.
    pub timestamp: i64,
    /// A hash of the key, never 0; `None` = no key, which is free in key order.
    pub key: Option<u64>,
    pub priority: u8,
    /// Not to be delivered before; `i64::MIN` = now.
    pub due_ms: i64,
    /// Not to be delivered from then on; `i64::MAX` = never.
    pub expires_ms: i64,
}

/// The offsets to read next: answer with [`crate::Dispatch::scanned`], or with
/// [`crate::Dispatch::scan_failed`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Want {
    pub partition: u32,
    pub from: Offset,
    /// Where the need ends. The answer may stop before, and may go beyond.
    pub up_to: Offset,
    /// All of them have been read before; single records are looked up.
    pub known: bool,
}

/// A record leased to a consumer: read it and send it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Assignment {
    pub consumer: ConsumerId,
    pub session: SessionId,
    /// The lease's fencing token; of no use where the record was settled on send.
    pub token: Token,
    pub partition: u32,
    pub offset: Offset,
    /// 1 = the first delivery.
    pub attempt: u16,
    /// `None` where the record was settled on send.
    pub terms: Option<Terms>,
}

impl Assignment {
    /// What names this lease in a settle.
    pub fn selection(&self) -> Selection {
        Selection::Lease { partition: self.partition, token: self.token }
    }
}

/// Why a record will not be delivered any more.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum DeadReason {
    /// A consumer said so.
    Rejected,
    /// It came back from its last attempt.
    Attempts,
    /// Its time to live was over.
    Expired,
}

/// What is known about a record, as seen from outside.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum RecordState {
    Ready,
    /// Ready but for an earlier record of its key that is not settled yet.
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
    /// An entry of the log that settles it is under way.
    Settling,
    /// A dead letter that is not in the log yet.
    Dead {
        reason: DeadReason,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Peeked {
    pub partition: u32,
    pub offset: Offset,
    pub state: RecordState,
    /// How often it was delivered and came back.
    pub attempts: u16,
}

/// A record that waits for its time.
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
    /// `i64::MAX` = as long as its session lives.
    pub expires_ms: i64,
}
