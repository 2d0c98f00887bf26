//! Share groups (KIP-932): records are leased one by one, and settled one by one.
//!
//! * [`session`]: the requests of a share session and their replies, without I/O
//! * [`member`]: a member with its heartbeats, over two pipelines

pub mod member;
pub mod session;

use bytes::Bytes;
use uuid::Uuid;

pub use member::ShareMember;
pub use session::{ShareLimits, ShareSession};

/// A partition, by its topic's id: requests of share groups contain no names.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SharePartition {
    pub topic: Uuid,
    pub partition: i32,
}

/// A record leased by a member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeasedRecord {
    pub topic: Uuid,
    pub partition: i32,
    pub offset: i64,
    /// 1 for the first delivery.
    pub attempt: i16,
    pub key: Option<Bytes>,
    pub value: Bytes,
}

impl LeasedRecord {
    pub fn settle(&self, settlement: Settlement) -> Settle {
        let LeasedRecord { topic, partition, offset, .. } = *self;
        Settle { topic, partition, offset, settlement }
    }
}

/// The settlement of a record, by the numbers of the protocol (`AcknowledgeTypes`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Settlement {
    Accept = 1,
    /// The record may be leased again.
    Release = 2,
    /// The record is not delivered again.
    Reject = 3,
}

/// The settlement of one record. Ordered by topic, partition and offset, as requests name them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Settle {
    pub topic: Uuid,
    pub partition: i32,
    pub offset: i64,
    pub settlement: Settlement,
}
