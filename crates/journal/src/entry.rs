//! Entries of the Raft log, as they are appended. The journal knows an entry's identity and its
//! bodies; only the machine interprets the head.

use bytes::Bytes;

/// Identity of an entry in the log. `term` and `leader` identify the proposer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct EntryId {
    pub term: u64,
    /// Node id of the leader of `term`.
    pub leader: u64,
    /// Position in the log, dense. Consensus decides whether the first entry has index 0 or 1.
    pub index: u64,
}

/// Stored as one byte: keep the numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum EntryKind {
    /// No content: a new leader's first entry.
    Blank = 0,
    /// For the machine.
    Command = 1,
    /// For consensus itself: the voters.
    Membership = 2,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    pub id: EntryId,
    pub kind: EntryKind,
    pub head: Bytes,
    /// One for each stream that receives a batch. Neighbours with clones of one `Bytes` are written
    /// once, and each is served with its own base offset.
    pub bodies: Vec<Body>,
}

/// A batch of records in an entry. Final bytes, but for the base offset that they begin with where
/// several bodies share them: they are served to consumers as they are.
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
    /// Bytes of content, without rows and the frame around it. A shared body counts once.
    pub fn content_bytes(&self) -> usize {
        let mut before: Option<&Body> = None;
        let mut bytes = self.head.len();
        for body in &self.bodies {
            if !before.is_some_and(|before| body.shares_bytes_of(before)) {
                bytes += body.bytes.len();
            }
            before = Some(body);
        }
        bytes
    }
}

impl Body {
    /// Whether this is the batch of `before` for another stream: a clone of its bytes. Such
    /// adjacent bodies of an entry are written once.
    pub fn shares_bytes_of(&self, before: &Self) -> bool {
        let place = |body: &Self| (body.bytes.as_ptr(), body.bytes.len());
        !self.bytes.is_empty()
            && place(self) == place(before)
            && (self.span, self.max_timestamp) == (before.span, before.max_timestamp)
    }
}
