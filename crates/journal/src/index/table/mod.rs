//! The run table: the live batches of each stream, and the live bytes of each segment.
//!
//! Pure state and its transitions; locks, files and threads belong to the index. Addresses of
//! single batches are here until their segment is sealed. Then the sidecar has them, and one run
//! per stream and segment remains.
//!
//! **Holes** are dead offsets between live batches: records that were settled out of order and are
//! no longer kept. They are ranges of offsets, not batches, so that a batch which dies piece by
//! piece needs no count of its own: it is dead once one hole covers all of it that is not trimmed.
//! They belong to the stream and not to a segment, so that neither sealing nor rewriting changes
//! them.
//!
//! **Live bytes** are counted by row: a shared body counts for each of its streams, as a stream's
//! retention requires. A segment with shared bodies also keeps an upper bound of its live bytes
//! with each body once; housekeeping recounts it when many of its rows died. Counts are exact, with
//! one exception: trimming or punching *inside* a run of a sealed segment would have to read the
//! sidecar, and both come from apply, which must not wait for a disk. Such a run is *ragged*: it
//! counts in full until housekeeping recounts it ([`RunTable::recount`]). A segment therefore never
//! counts fewer live bytes than it has.

mod changes;
mod housekeeping;
mod segment;
mod shipped;

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{HashMap, OffsetRanges, SharedMap};

use super::runs::{Run, Runs};

pub(crate) use segment::{Content, RefusedBody, Segment, SharedBytes};
pub(crate) use shipped::{SHIPPED_GENERATION, ShippedSegment};

/// Clones share all chunks of streams, so that a capture for a snapshot takes little time.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunTable {
    pub(super) streams: SharedMap<u64, Runs>,
    pub(crate) segments: BTreeMap<u32, Segment>,
    /// Dead offsets between live batches of a stream. Only for streams with runs.
    pub(super) holes: SharedMap<u64, Arc<OffsetRanges>>,
    /// (segment, stream) of runs that were trimmed or punched inside a sealed segment and count in
    /// full.
    pub(super) ragged: SharedMap<(u32, u64), ()>,
    /// Bodies of entries below this index are all accepted or refused.
    pub(super) undecided: u64,
    /// Lowest `last_index` of a full segment: a cheap test whether a sidecar is due.
    pub(super) seal_after: Option<u64>,
}

/// Queries.
impl RunTable {
    pub(crate) fn runs_of(&self, stream: u64) -> Option<&Runs> {
        self.streams.get(&stream)
    }

    pub(crate) fn runs(&self, stream: u64) -> impl Iterator<Item = &Run> {
        self.streams.get(&stream).into_iter().flat_map(Runs::iter)
    }

    pub(crate) fn holes(&self, stream: u64) -> Option<&OffsetRanges> {
        self.holes.get(&stream).map(Arc::as_ref)
    }

    /// Bytes of memory of streams and their runs.
    #[cfg(test)]
    pub(super) fn streams_bytes(&self) -> usize {
        let beside = |runs: &Runs| match runs {
            Runs::One(_) => 0,
            Runs::Many(runs) => {
                2 * size_of::<usize>() + size_of_val(&**runs) + runs.allocation_size()
            }
        };
        self.streams.allocation_size() + self.streams.values().map(beside).sum::<usize>()
    }

    pub(crate) fn run(&self, stream: u64, segment: u32) -> Option<&Run> {
        self.streams.get(&stream)?.find(segment)
    }

    pub(crate) fn is_ragged(&self, segment: u32, stream: u64) -> bool {
        self.ragged.contains_key(&(segment, stream))
    }

    pub(crate) fn segment(&self, segment: u32) -> Option<&Segment> {
        self.segments.get(&segment)
    }

    pub(crate) fn stream_bytes(&self, stream: u64) -> u64 {
        self.runs(stream).map(|run| u64::from(run.bytes)).sum()
    }

    /// Every stream's run in `segment`. Walks all streams: for rebuilding only.
    pub(crate) fn runs_in(&self, segment: u32) -> HashMap<u64, Run> {
        let found = self
            .streams
            .iter()
            .filter_map(|(&stream, runs)| runs.find(segment).map(|run| (stream, *run)));
        found.collect()
    }
}
