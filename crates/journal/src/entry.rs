//! What is appended: entries of the Raft log. The journal knows an entry's identity and its
//! bodies; what the head says is the machine's business.

use bytes::Bytes;

/// Identity of an entry in the log. `term` and `leader` say who proposed it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct EntryId {
    pub term: u64,
    /// Node id of the leader of `term`.
    pub leader: u64,
    /// Place in the log, dense. The first entry has index 0 or 1, as consensus likes.
    pub index: u64,
}

/// Stored as one byte: keep the numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum EntryKind {
    /// Says nothing: a new leader's first entry.
    Blank = 0,
    /// For the machine.
    Command = 1,
    /// Consensus' own: who votes.
    Membership = 2,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    pub id: EntryId,
    pub kind: EntryKind,
    pub head: Bytes,
    pub bodies: Vec<Body>,
}

/// A batch of records in an entry. Final bytes: they are served to consumers as they are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Body {
    /// The partition, as an opaque number (`base::PartitionId::stream`).
    pub stream: u64,
    /// Offset of the first record.
    pub base_offset: u64,
    /// Offsets taken: the batch ends at `base_offset + span - 1`. At least 1.
    pub span: u32,
    /// Largest timestamp of a record in it, ms since the epoch; -1 when it has none.
    pub max_timestamp: i64,
    pub bytes: Bytes,
}

impl Entry {
    /// Bytes of content, without the frame around it.
    pub fn content_bytes(&self) -> usize {
        self.head.len() + self.bodies.iter().map(|body| body.bytes.len()).sum::<usize>()
    }
}
