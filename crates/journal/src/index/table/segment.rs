//! A segment's entry in the run table.

use std::sync::Arc;

use crate::index::addresses::Addresses;
use crate::index::batches::Batches;

#[derive(Clone, Debug)]
pub(crate) struct Segment {
    /// 1 as the log wrote it, one more for each time it was rewritten.
    pub(crate) generation: u32,
    pub(crate) content: Content,
    pub(crate) live_bytes: u64,
    /// Size of the file; 0 while the log still writes to it.
    pub(crate) file_bytes: u64,
    /// A rewrite pays off once half of these bytes are dead. They are those of the file or, once
    /// rewritten, of the batches then in it, so that a segment of tiny batches is not rewritten for
    /// its own overhead.
    pub(crate) payload_bytes: u64,
    /// Bodies that the machine refused, ascending. The log does not distinguish them: without this
    /// list a lost sidecar could not be rebuilt.
    pub(crate) refused: Arc<Vec<RefusedBody>>,
    /// Log indexes of the first and last entry with an accepted batch here, rewritten or not.
    /// `None` for segments of versions that did not record them.
    pub(crate) indexes: Option<(u64, u64)>,
    /// Set once the segment has had shared bodies.
    pub(crate) shared: Option<SharedBytes>,
    /// The newest durable snapshot lists the segment as dead, so that a restart does not expect its
    /// file.
    pub(crate) dead_in_snapshot: bool,
}

/// A refused body: its position and, if it is shared, the refusing stream; `None` stands for all
/// streams.
pub(crate) type RefusedBody = (u32, Option<u64>);

/// Live bytes of a segment with shared bodies, whose runs count a body once for each stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SharedBytes {
    /// Live bytes, each body once, at the last count: an upper bound of the current ones.
    pub(crate) once: u64,
    /// The sum of the runs at that time. Before the first count the sum of all accepted bodies.
    pub(crate) counted_at: u64,
}

impl SharedBytes {
    /// Not counted yet: the next pass of reclaim counts it.
    pub(super) const UNKNOWN: Self = Self { once: u64::MAX, counted_at: u64::MAX };
}

/// Where a segment's addresses are.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    /// In memory. `last_index` is known once the log no longer writes to the segment; when that
    /// entry is decided, the addresses are complete and the sidecar is due.
    Memory { addresses: Addresses, last_index: Option<u64> },
    /// In the sidecar.
    Sealed,
}

impl Segment {
    pub(crate) fn new() -> Self {
        Self {
            generation: 1,
            content: Content::Memory { addresses: Addresses::new(), last_index: None },
            live_bytes: 0,
            file_bytes: 0,
            payload_bytes: 0,
            refused: Arc::default(),
            indexes: None,
            shared: None,
            dead_in_snapshot: false,
        }
    }

    /// Live bytes in the file, each shared body once. Exact if no body is shared and no run is
    /// ragged, else an upper bound.
    pub(crate) fn live_bytes_once(&self) -> u64 {
        self.shared.map_or(self.live_bytes, |shared| shared.once.min(self.live_bytes))
    }

    /// Whether enough rows died since the last count to recount the shared bodies. This bounds dead
    /// bytes that are still counted as live to a quarter of the file.
    pub(super) fn count_is_due(&self) -> bool {
        let Some(SharedBytes { once, counted_at }) = self.shared else { return false };
        let died = counted_at.saturating_sub(self.live_bytes);
        let enough = (counted_at / 8).min(self.payload_bytes / 4);
        // A dead row frees at most its body.
        let perhaps_live = once.min(self.payload_bytes).saturating_sub(died);
        let may_matter = self.live_bytes > 0 && perhaps_live * 2 < self.payload_bytes;
        self.sealed() && may_matter && died > enough
    }

    pub(super) fn note_index(&mut self, log_index: u64) {
        let (first, last) = self.indexes.unwrap_or((log_index, log_index));
        self.indexes = Some((first.min(log_index), last.max(log_index)));
    }

    pub(crate) fn sealed(&self) -> bool {
        matches!(self.content, Content::Sealed)
    }

    /// Addresses in memory, until they are in the sidecar.
    pub(super) fn addresses(&mut self) -> Option<&mut Addresses> {
        match &mut self.content {
            Content::Memory { addresses, .. } => Some(addresses),
            Content::Sealed => None,
        }
    }

    /// All addresses in memory, until they are in the sidecar.
    pub(crate) fn addresses_in_memory(&self) -> Option<&Addresses> {
        match &self.content {
            Content::Memory { addresses, .. } => Some(addresses),
            Content::Sealed => None,
        }
    }

    /// Nothing in it is live, not even after a restart.
    pub(crate) fn droppable(&self) -> bool {
        self.sealed() && self.live_bytes == 0 && self.dead_in_snapshot
    }

    /// A stream's batches while they are in memory; `None` once they are in the sidecar.
    pub(crate) fn in_memory(&self, stream: u64) -> Option<Batches<'_>> {
        let Content::Memory { addresses, .. } = &self.content else { return None };
        Some(Batches::from_list(addresses.of(stream)))
    }
}
