//! Changes of the run table by housekeeping: sealing, counting, rewriting, deleting.

use std::sync::Arc;

use super::{Content, RunTable, Segment, SharedBytes};
use crate::index::addresses::Addresses;
use crate::index::sidecar::{Sidecar, SidecarBytes};

impl RunTable {
    /// Full segments in which every entry is decided, with all their addresses.
    pub(crate) fn due(&self) -> Vec<(u32, Addresses)> {
        let due = self.segments.iter().filter_map(|(&id, segment)| match &segment.content {
            Content::Memory { addresses, last_index: Some(last_index) }
                if *last_index < self.undecided =>
            {
                Some((id, addresses.clone()))
            }
            _ => None,
        });
        due.collect()
    }

    /// The sidecar of `segment` is durable.
    pub(crate) fn seal(&mut self, segment: u32) {
        if let Some(found) = self.segments.get_mut(&segment) {
            found.content = Content::Sealed;
        }
        self.note_seal_after();
    }

    /// Recounts a stream's live bytes in a sealed segment from its sidecar.
    pub(crate) fn recount(&mut self, segment: u32, stream: u64, sidecar: &Sidecar) {
        self.ragged.remove(&(segment, stream));
        let Some(runs) = self.streams.get_mut(&stream) else { return };
        let Some(run) = runs.find_mut(segment) else { return };
        let live = sidecar.batches(stream).live(run, self.holes.get(&stream).map(Arc::as_ref));
        let before = run.bytes;
        run.bytes = live.iter().map(|batch| batch.len).sum();
        run.max_timestamp = live.iter().map(|batch| batch.max_timestamp).max().unwrap_or(-1);
        let after = run.bytes;
        if let Some(found) = self.segments.get_mut(&segment) {
            found.live_bytes = found.live_bytes + u64::from(after) - u64::from(before);
        }
        self.drop_if_dead(stream, segment);
        self.forget_holes_below(stream);
    }

    /// The file of `segment` is now the one of `generation` with the content of `sidecar`.
    /// `streams` are those of the former generation.
    pub(crate) fn rewritten(
        &mut self,
        segment: u32,
        generation: u32,
        file_bytes: u64,
        sidecar: &Sidecar,
        streams: &[u64],
    ) {
        for &stream in streams {
            self.recount(segment, stream, sidecar);
        }
        if let Some(found) = self.segments.get_mut(&segment) {
            found.generation = generation;
            found.file_bytes = file_bytes;
            let SidecarBytes { once, any_shared } = sidecar.batch_bytes();
            found.payload_bytes = once;
            found.refused = Arc::default();
            let counted_at = found.live_bytes;
            found.shared = any_shared.then_some(SharedBytes { once, counted_at });
        }
    }

    /// Segments whose shared bodies must be recounted, with their generations.
    pub(crate) fn counts_due(&self) -> Vec<(u32, u32)> {
        let due = self.segments.iter().filter(|(_, found)| found.count_is_due());
        due.map(|(&id, found)| (id, found.generation)).collect()
    }

    /// Records the live bytes of `segment`, each body once, as counted when its runs had
    /// `counted_at` bytes or a little later.
    pub(crate) fn counted(&mut self, segment: u32, once: u64, counted_at: u64) {
        if let Some(found) = self.segments.get_mut(&segment) {
            found.shared = found.shared.map(|_| SharedBytes { once, counted_at });
        }
    }

    /// The segment on disk has a later generation than in this table of an older snapshot: it was
    /// rewritten since. So all its entries were decided, and its bytes must be recounted.
    pub(crate) fn adopt_generation(&mut self, segment: u32, generation: u32, file_bytes: u64) {
        let Some(found) = self.segments.get_mut(&segment) else { return };
        found.generation = generation;
        found.content = Content::Sealed;
        found.file_bytes = file_bytes;
        found.payload_bytes = file_bytes;
        found.refused = Arc::default();
        found.shared = found.shared.map(|_| SharedBytes::UNKNOWN);
        let of_segment = self.streams.iter().filter(|(_, runs)| runs.find(segment).is_some());
        self.ragged.extend(of_segment.map(|(&stream, _)| ((segment, stream), ())));
        self.note_seal_after();
    }

    /// The segment's file is gone.
    pub(crate) fn forget(&mut self, segment: u32) {
        let known = self.segments.remove(&segment);
        debug_assert!(known.is_none_or(|found| found.live_bytes == 0));
        self.note_seal_after();
    }

    /// These segments are dead in a durable snapshot's table.
    pub(crate) fn dead_in_snapshot(&mut self, segments: &[u32]) {
        for segment in segments {
            if let Some(found) = self.segments.get_mut(segment) {
                found.dead_in_snapshot = true;
            }
        }
    }

    pub(crate) fn ragged(&self) -> Vec<(u32, u64)> {
        self.ragged.keys().copied().collect()
    }

    /// Segments that may be deleted.
    pub(crate) fn droppable(&self) -> impl Iterator<Item = u32> {
        self.segments.iter().filter(|(_, found)| found.droppable()).map(|(&id, _)| id)
    }

    /// Segments that a rewrite at least halves.
    pub(crate) fn mostly_dead(&self) -> impl Iterator<Item = u32> {
        let mostly_dead = |(_, found): &(&u32, &Segment)| {
            let live_bytes = found.live_bytes_once();
            found.sealed() && live_bytes > 0 && live_bytes * 2 < found.payload_bytes
        };
        self.segments.iter().filter(mostly_dead).map(|(&id, _)| id)
    }

    /// Sealed segments without a live byte.
    pub(crate) fn dead(&self) -> Vec<u32> {
        let dead =
            self.segments.iter().filter(|(_, found)| found.sealed() && found.live_bytes == 0);
        dead.map(|(&id, _)| id).collect()
    }

    pub(in crate::index) fn note_seal_after(&mut self) {
        let last_indexes = self.segments.values().filter_map(|segment| match &segment.content {
            Content::Memory { last_index, .. } => *last_index,
            Content::Sealed => None,
        });
        self.seal_after = last_indexes.min();
    }
}
