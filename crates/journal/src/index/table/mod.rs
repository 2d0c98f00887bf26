//! The run table: which batches of which stream are live, and how much of each segment that is.
//!
//! Pure state and its transitions; locks, files and threads are the index's. Addresses of single
//! batches are here only until their segment is sealed, then the sidecar has them and a run per
//! stream and segment remains.
//!
//! **Holes** are what is dead between live batches: records that were settled out of their order,
//! and are kept no longer. They are offsets, not batches, so that a batch which dies piece by piece
//! needs no count of its own: it is dead once a hole has all of it that is not trimmed. They are the
//! stream's and not a segment's, so that neither sealing nor rewriting changes them.
//!
//! **Live bytes** are by row: a body that several streams share counts for each of them. That is what
//! a stream's retention asks; for its file a segment that has such bodies keeps a bound of what is
//! live in it, each body once, which housekeeping counts again when much of its rows died.
//! Otherwise they are exact, with one exception: trimming or punching *inside* a run of a sealed
//! segment would have to read the sidecar, and both come from apply, which must not wait for a disk.
//! Such a run is *ragged*: it counts in full until housekeeping recounts it ([`RunTable::recount`]). So
//! a segment never counts fewer live bytes than it has.

mod changes;
mod housekeeping;
mod segment;
mod shipped;

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{HashMap, OffsetRanges, SharedMap};

use super::runs::{Run, Runs};

pub(crate) use segment::{Content, Refused, Segment, SharedBytes};
pub(crate) use shipped::{SHIPPED_GENERATION, Shipped};

/// A copy shares all chunks of streams, so that capturing it for a snapshot takes little time.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunTable {
    pub(super) streams: SharedMap<u64, Runs>,
    pub(crate) segments: BTreeMap<u32, Segment>,
    /// What is dead of a stream between live batches. Only of streams that have runs.
    pub(super) holes: SharedMap<u64, Arc<OffsetRanges>>,
    /// (segment, stream) of runs that were trimmed or punched inside a sealed segment and count in
    /// full.
    pub(super) ragged: SharedMap<(u32, u64), ()>,
    /// Bodies of entries below this index are all accepted or refused.
    pub(super) undecided: u64,
    /// Lowest `last_index` of a full segment: the cheap test whether a sidecar is due.
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

    /// Bytes of memory that streams and their runs take.
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
