//! Space reclamation, for housekeeping.

use std::io;
use std::time::Duration;

use world::Instant;

use super::Journal;
use crate::address::Address;
use crate::received;
use crate::reclaim::CompactionDecision;
use crate::stats::{DiskRoom, ReclaimReport, SegmentInfo};

impl Journal {
    pub fn segments(&self) -> Vec<SegmentInfo> {
        self.inner.shared.index.segments()
    }

    /// Seals the active segment before the next frame.
    pub fn roll(&self) {
        self.inner.shared.queue.roll();
    }

    /// Whether the log ends in this segment.
    pub fn is_written_to(&self, segment: u32) -> bool {
        self.inner.shared.log.read().end().segment == segment
    }

    /// Whether recovery would read the segment, so that it must stay as it is.
    pub fn is_claimed(&self, segment: u32) -> bool {
        segment >= self.inner.shared.index.claimed_from()
    }

    /// Whether all of the segment's entries are decided, and the log no longer writes to it.
    pub fn is_sealed(&self, segment: u32) -> bool {
        let table = self.inner.shared.index.table().read();
        table.segment(segment).is_none_or(|found| found.sealed())
    }

    /// Evicts entries from the tail cache that have been durable for `age`, and frees read buffers
    /// unused for as long. Call it periodically. Evicted entries are read from their segments.
    pub fn rest(&self, age: Duration) {
        let now = Instant::now();
        self.inner.shared.index.buffers().free_aged(now, age);
        let aged = self.inner.shared.log.write().evict_aged(now, age);
        // Freeing many entries takes time: do it without the lock.
        drop(aged);
    }

    /// Deletes dead segments and rewrites mostly dead ones. Blocking.
    pub fn reclaim(&self) -> io::Result<ReclaimReport> {
        received::discard_obsolete(&self.inner.shared)?;
        self.inner.shared.index.reclaim()
    }

    /// Rewrites a sealed segment; `keep` decides each of its live batches. Blocking.
    pub fn rewrite(
        &self,
        segment: u32,
        keep: &mut dyn FnMut(u64, &Address, &[u8]) -> CompactionDecision,
    ) -> io::Result<()> {
        self.inner.shared.index.rewrite(segment, keep)
    }

    pub fn room(&self) -> DiskRoom {
        self.inner.shared.spares.room()
    }
}
