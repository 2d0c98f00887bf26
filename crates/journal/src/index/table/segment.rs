//! What the run table knows of a segment.

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
    /// Rewriting pays once half of these bytes are dead: those of the file or, once rewritten, of the
    /// batches then in it (so that a segment of tiny batches is not rewritten for its own overhead).
    pub(crate) payload_bytes: u64,
    /// Bodies that the machine did not take, ascending. They look like the others in the log:
    /// without this list a lost sidecar could not be rebuilt.
    pub(crate) refused: Arc<Vec<Refused>>,
    /// Log indexes of the first and the last entry of which a batch was taken here, rewritten or
    /// not. Not known of segments from before this was kept.
    pub(crate) indexes: Option<(u64, u64)>,
    /// There are, or were, bodies that several streams share.
    pub(crate) shared: Option<SharedBytes>,
    /// The newest durable snapshot knows that nothing in it is live, so that a restart does not
    /// look for it.
    pub(crate) dead_in_snapshot: bool,
}

/// A body that the machine did not take: its position, and the stream that did not take it where
/// several share it; `None` stands for all.
pub(crate) type Refused = (u32, Option<u64>);

/// How much of a segment is really live where its runs count a body once for each stream that has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SharedBytes {
    /// Live bytes, each body once, when they were counted last: never fewer than there are now.
    pub(crate) once: u64,
    /// The sum of the runs then. Before the first count the sum of all that was taken.
    pub(crate) counted_at: u64,
}

impl SharedBytes {
    /// Not counted yet: to be counted by the next pass of reclaim.
    pub(super) const UNKNOWN: Self = Self { once: u64::MAX, counted_at: u64::MAX };
}

/// Where a segment's addresses are.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    /// In memory. Once the log writes no more to the segment its last entry is known; when that
    /// one is decided the addresses are complete and the sidecar is due.
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

    /// Live bytes in its file, where a shared body counts once. Exact if no body is shared and no run
    /// ragged, else an upper bound.
    pub(crate) fn live_bytes_once(&self) -> u64 {
        self.shared.map_or(self.live_bytes, |shared| shared.once.min(self.live_bytes))
    }

    /// Whether enough rows died since the shared bodies were counted to count again. So less than a
    /// quarter of the file is dead and still counted as live.
    pub(super) fn count_is_due(&self) -> bool {
        let Some(SharedBytes { once, counted_at }) = self.shared else { return false };
        let died = counted_at.saturating_sub(self.live_bytes);
        let enough = (counted_at / 8).min(self.payload_bytes / 4);
        // A row that died frees at most its body.
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

    /// Its addresses, until they are in the sidecar.
    pub(super) fn addresses(&mut self) -> Option<&mut Addresses> {
        match &mut self.content {
            Content::Memory { addresses, .. } => Some(addresses),
            Content::Sealed => None,
        }
    }

    /// All of them, until they are in the sidecar.
    pub(crate) fn addresses_in_memory(&self) -> Option<&Addresses> {
        match &self.content {
            Content::Memory { addresses, .. } => Some(addresses),
            Content::Sealed => None,
        }
    }

    /// Nothing in it is live, also after a restart.
    pub(crate) fn droppable(&self) -> bool {
        self.sealed() && self.live_bytes == 0 && self.dead_in_snapshot
    }

    /// A stream's batches while they are in memory; `None` once they are in the sidecar.
    pub(crate) fn in_memory(&self, stream: u64) -> Option<Batches<'_>> {
        let Content::Memory { addresses, .. } = &self.content else { return None };
        Some(Batches::of_list(addresses.of(stream)))
    }
}
