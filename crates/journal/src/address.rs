//! Where a body lies.

/// A batch on disk. Segment ids count up from 1; a rewritten segment keeps its id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Address {
    pub segment: u32,
    /// Byte position of the batch's first byte in the segment's file.
    pub position: u32,
    /// Bytes of the batch.
    pub len: u32,
    /// Offsets that the batch spans: `base_offset .. base_offset + span`.
    pub span: u32,
    pub base_offset: u64,
    /// Largest timestamp in the batch, ms since the epoch; -1 when it has none.
    pub max_timestamp: i64,
}

impl Address {
    /// The offset after the batch.
    pub fn next_offset(&self) -> u64 {
        self.base_offset + u64::from(self.span)
    }
}
