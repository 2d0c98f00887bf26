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
//! Otherwise they are exact, with one exception that errs to the safe side: trimming or punching
//! *inside* a run of a sealed segment would have to read the sidecar, and both come from apply, which
//! must not wait for a disk. Such a run is *ragged*: it counts in full until housekeeping recounts it
//! ([`RunTable::recount`]). A segment is therefore never thought emptier than it is.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::Arc;

use base::{HashMap, OffsetRanges, SharedMap};

use super::addresses::Addresses;
use super::batches::{Batches, Live};
use super::runs::{Run, Runs};
use super::sidecar::{Sidecar, SidecarBytes};
use crate::address::Address;

#[derive(Clone, Debug)]
pub(crate) struct Segment {
    /// 1 as the log wrote it, one more for each time it was rewritten.
    pub(crate) generation: u32,
    pub(crate) content: Content,
    pub(crate) live_bytes: u64,
    /// Size of the file; 0 while the log still writes to it.
    pub(crate) file_bytes: u64,
    /// What half of has to be dead before rewriting pays: the file, or, once rewritten, the batches
    /// then in it (so that a segment of tiny batches is not rewritten for its own overhead).
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
    /// To be counted at the next occasion.
    const UNKNOWN: Self = Self { once: u64::MAX, counted_at: u64::MAX };
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
    pub(super) fn new() -> Self {
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

    /// Live bytes in its file, a body that several streams have once: exact where none is shared
    /// and no run ragged, and else never too few.
    pub(crate) fn live_bytes_once(&self) -> u64 {
        self.shared.map_or(self.live_bytes, |shared| shared.once.min(self.live_bytes))
    }

    /// Whether so many rows died since the shared bodies were counted that it pays to look. Less
    /// than a quarter of the file is therefore dead and not yet counted so.
    fn count_is_due(&self) -> bool {
        let Some(SharedBytes { once, counted_at }) = self.shared else { return false };
        let died = counted_at.saturating_sub(self.live_bytes);
        let enough = (counted_at / 8).min(self.payload_bytes / 4);
        // Each row that died frees its body at most.
        let perhaps_live = once.min(self.payload_bytes).saturating_sub(died);
        let may_matter = self.live_bytes > 0 && perhaps_live * 2 < self.payload_bytes;
        self.sealed() && may_matter && died > enough
    }

    fn note_index(&mut self, log_index: u64) {
        let (first, last) = self.indexes.unwrap_or((log_index, log_index));
        self.indexes = Some((first.min(log_index), last.max(log_index)));
    }

    pub(crate) fn sealed(&self) -> bool {
        matches!(self.content, Content::Sealed)
    }

    /// Its addresses, until they are in the sidecar.
    fn addresses(&mut self) -> Option<&mut Addresses> {
        match &mut self.content {
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

/// A copy costs a look at each segment and each chunk of streams, and shares all else: that is how it
/// is captured for a snapshot.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunTable {
    pub(super) streams: SharedMap<u64, Runs>,
    pub(super) segments: BTreeMap<u32, Segment>,
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

/// What is done to it, in log order.
impl RunTable {
    /// The batch at `address` is the stream's next. `true` when a sidecar became due.
    pub(crate) fn accept(&mut self, log_index: u64, stream: u64, address: Address) -> bool {
        let segment = self.segments.entry(address.segment).or_insert_with(Segment::new);
        let addresses = segment.addresses().unwrap_or_else(|| {
            panic!("entry {log_index} lies in segment {}, which is sealed", address.segment)
        });
        debug_assert!(address.len > 0, "a batch has a header at least");
        addresses.push(stream, address);
        segment.live_bytes += u64::from(address.len);
        segment.note_index(log_index);
        match &mut segment.shared {
            Some(shared) => shared.counted_at += u64::from(address.len),
            None if address.shared => {
                let counted_at = segment.live_bytes;
                segment.shared = Some(SharedBytes { once: u64::MAX, counted_at });
            }
            None => {}
        }
        let run = Run {
            segment: NonZeroU32::new(address.segment).expect("segments count from 1"),
            bytes: address.len,
            first_offset: address.base_offset,
            next_offset: address.next_offset(),
            max_timestamp: address.max_timestamp,
        };
        match self.streams.get_mut(&stream) {
            None => {
                self.streams.insert(stream, Runs::One(run));
            }
            Some(runs) => append(runs, stream, run),
        }
        self.decided(log_index)
    }

    /// The machine did not take the body at `address`. `true` when a sidecar became due.
    pub(crate) fn refuse(&mut self, log_index: u64, stream: u64, address: Address) -> bool {
        let segment = self.segments.entry(address.segment).or_insert_with(Segment::new);
        let refused = (address.position, address.shared.then_some(stream));
        if let Err(place) = segment.refused.binary_search(&refused)
            && !segment.sealed()
        {
            Arc::make_mut(&mut segment.refused).insert(place, refused);
        }
        self.decided(log_index)
    }

    /// Every entry below `log_index` is decided. `true` when a sidecar became due.
    pub(crate) fn decided(&mut self, log_index: u64) -> bool {
        self.undecided = self.undecided.max(log_index);
        self.seal_after.is_some_and(|last_index| last_index < self.undecided)
    }

    /// The log writes no more to `segment`, whose last entry is `last_index`. Telling it again, or
    /// of a sealed segment, as recovery does, changes nothing. `true` when a sidecar became due.
    pub(crate) fn full(&mut self, segment: u32, last_index: u64, file_bytes: u64) -> bool {
        let found = self.segments.entry(segment).or_insert_with(Segment::new);
        match &mut found.content {
            Content::Memory { last_index: known, .. } => *known = Some(last_index),
            Content::Sealed => return false,
        }
        found.file_bytes = file_bytes;
        found.payload_bytes = file_bytes;
        self.note_seal_after();
        self.decided(self.undecided)
    }

    /// Everything of `stream` below `start` is dead.
    pub(crate) fn trim(&mut self, stream: u64, start: u64) {
        // Looked at before it is changed: what does not change stays shared with a capture.
        if self.runs_of(stream).and_then(Runs::first).is_none_or(|run| run.first_offset >= start) {
            return;
        }
        let Some(runs) = self.streams.get_mut(&stream) else { return };
        let ends_before = runs.iter().take_while(|run| run.next_offset <= start);
        let dead: Vec<(u32, u32)> = ends_before.map(|run| (run.segment(), run.bytes)).collect();
        for &(segment, bytes) in &dead {
            release(&mut self.segments, segment, bytes);
            self.ragged.remove(&(segment, stream));
        }
        if dead.len() == runs.len() {
            self.streams.remove(&stream);
            self.holes.remove(&stream);
            return;
        }
        for (segment, _) in dead {
            runs.drop_segment(segment);
        }
        let Some(first) = runs.first().map(Run::segment) else { return };
        let Some(run) = runs.find_mut(first) else { return };
        if run.first_offset < start {
            let trimmed = Run { first_offset: start, ..*run };
            match self.segments[&run.segment()].in_memory(stream) {
                None => {
                    self.ragged.insert((run.segment(), stream), ());
                }
                Some(batches) => {
                    let holes = self.holes.get(&stream).map(Arc::as_ref);
                    let bytes = |run| {
                        let live = batches.clone().live(run, holes).touching(0, start);
                        live.iter().map(|batch| batch.len).sum::<u32>()
                    };
                    let bytes = bytes(run) - bytes(&trimmed);
                    run.bytes -= bytes;
                    release(&mut self.segments, trimmed.segment(), bytes);
                }
            }
            run.first_offset = start;
        }
        // What is left of the first run may lie in a hole as a whole.
        let segment = run.segment();
        self.drop_if_dead(stream, segment);
        self.forget_holes_below(stream);
    }

    /// The offsets `from..to` of `stream` are dead, and so are the batches of which that is the
    /// rest. Costs a search, and what it changes: to punch the same again costs no more.
    pub(crate) fn punch(&mut self, stream: u64, from: u64, to: u64) {
        let Some(runs) = self.runs_of(stream) else { return };
        let (Some(first), Some(last)) = (runs.first(), runs.last()) else { return };
        let (from, to) = (from.max(first.first_offset), to.min(last.next_offset));
        if from >= to {
            return;
        }
        let new = self.holes(stream).map_or(vec![(from, to)], |holes| holes.gaps(from, to));
        let (Some(&(begin, _)), Some(&(_, end))) = (new.first(), new.last()) else { return };
        let touched = runs.after(begin).take_while(|run| run.first_offset < end);
        let touched: Vec<u32> = touched.map(Run::segment).collect();
        Arc::make_mut(self.holes.get_or_insert_with(stream, Arc::default)).insert(from, to);
        for segment in touched {
            self.punch_run(stream, segment, &new);
        }
        self.forget_holes_below(stream);
    }

    /// Counts out what the `new` holes took from a run.
    fn punch_run(&mut self, stream: u64, segment: u32, new: &[(u64, u64)]) {
        if self.drop_if_dead(stream, segment) {
            return;
        }
        let holes = self.holes.get(&stream).map(Arc::as_ref);
        let run = self.streams.get_mut(&stream).and_then(|runs| runs.find_mut(segment));
        let (Some(run), Some(found)) = (run, self.segments.get_mut(&segment)) else { return };
        let Some(batches) = found.in_memory(stream) else {
            self.ragged.insert((segment, stream), ());
            return;
        };
        // Each batch that has a part in a new hole was live until now.
        let before = batches.clone().live(run, None);
        let mut bytes = 0;
        let mut counted = run.first_offset;
        for &(from, to) in new {
            let touched = before.clone().touching(from.max(counted), to);
            let Some(last) = touched.iter().next_back() else { continue };
            let sum = |live: Live<'_>| live.iter().map(|batch| batch.len).sum::<u32>();
            let still = batches.clone().live(run, holes).touching(from.max(counted), to);
            bytes += sum(touched) - sum(still);
            counted = last.next_offset();
        }
        run.bytes -= bytes;
        release(&mut self.segments, segment, bytes);
        self.drop_if_dead(stream, segment);
    }

    /// Drops a run if all of it lies in one hole or nothing of it is left; `true` if it is gone.
    fn drop_if_dead(&mut self, stream: u64, segment: u32) -> bool {
        let Some(run) = self.run(stream, segment).copied() else { return true };
        let holes = self.holes.get(&stream).map(Arc::as_ref);
        let hole = holes.and_then(|holes| holes.around(run.first_offset));
        if run.bytes > 0 && hole.is_none_or(|(_, end)| end < run.next_offset) {
            return false;
        }
        release(&mut self.segments, segment, run.bytes);
        self.ragged.remove(&(segment, stream));
        let left = self.streams.get_mut(&stream).is_some_and(|runs| runs.drop_segment(segment));
        if !left {
            self.streams.remove(&stream);
            self.holes.remove(&stream);
        }
        true
    }

    /// Holes before the first run say nothing that the run does not.
    fn forget_holes_below(&mut self, stream: u64) {
        let first = self.runs_of(stream).and_then(Runs::first).map(|run| run.first_offset);
        let begins = self.holes(stream).and_then(OffsetRanges::first).map(|(begin, _)| begin);
        let (Some(first), Some(begins)) = (first, begins) else { return };
        if begins >= first {
            return;
        }
        if let Some(holes) = self.holes.get_mut(&stream) {
            let holes = Arc::make_mut(holes);
            holes.forget_below(first);
            if holes.is_empty() {
                self.holes.remove(&stream);
            }
        }
    }

    /// All of these streams is dead.
    pub(crate) fn remove(&mut self, streams: Range<u64>) {
        let present: Vec<u64> = self.streams.range(streams).map(|(&stream, _)| stream).collect();
        for stream in present {
            self.remove_one(stream);
        }
    }

    fn remove_one(&mut self, stream: u64) {
        let Some(runs) = self.streams.remove(&stream) else { return };
        self.holes.remove(&stream);
        for run in runs.iter() {
            release(&mut self.segments, run.segment(), run.bytes);
            self.ragged.remove(&(run.segment(), stream));
            let segment = self.segments.get_mut(&run.segment());
            if let Some(addresses) = segment.and_then(Segment::addresses) {
                addresses.remove(stream);
            }
        }
    }
}

/// What housekeeping does to it.
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

    /// Counts a stream's live bytes in a sealed segment again, from its sidecar.
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

    /// `segment` now is the file of `generation`, `sidecar` says what is in it. `streams` are those
    /// that the former generation held.
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

    /// Segments of which the shared bodies are to be counted again, with their generations.
    pub(crate) fn counts_due(&self) -> Vec<(u32, u32)> {
        let due = self.segments.iter().filter(|(_, found)| found.count_is_due());
        due.map(|(&id, found)| (id, found.generation)).collect()
    }

    /// There were `once` live bytes in `segment`, each body once, when its runs held `counted_at` or
    /// a little later.
    pub(crate) fn counted(&mut self, segment: u32, once: u64, counted_at: u64) {
        if let Some(found) = self.segments.get_mut(&segment) {
            found.shared = found.shared.map(|_| SharedBytes { once, counted_at });
        }
    }

    /// The segment is on disk in a later generation than this table, an older snapshot's, knows: it
    /// was rewritten since, so all its entries were decided, and counts must be taken again.
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

    /// A durable snapshot's table has these as dead.
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

    /// Segments that rewriting makes at most half as large.
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

    pub(super) fn note_seal_after(&mut self) {
        let last_indexes = self.segments.values().filter_map(|segment| match &segment.content {
            Content::Memory { last_index, .. } => *last_index,
            Content::Sealed => None,
        });
        self.seal_after = last_indexes.min();
    }
}

/// What is asked of it.
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

fn append(runs: &mut Runs, stream: u64, run: Run) {
    let last = runs.last_mut().expect("a stream without runs is not in the table");
    // Offsets are handed out by the machine, in log order: overlapping batches would be two
    // different records under one offset, and no reader could be served right.
    assert!(
        run.first_offset >= last.next_offset,
        "stream {stream}: batch at {} accepted after the end {}",
        run.first_offset,
        last.next_offset
    );
    if last.segment == run.segment {
        last.bytes += run.bytes;
        last.next_offset = run.next_offset;
        last.max_timestamp = last.max_timestamp.max(run.max_timestamp);
    } else {
        assert!(run.segment > last.segment, "stream {stream}: the log went backwards");
        runs.push(run);
    }
}

fn release(segments: &mut BTreeMap<u32, Segment>, segment: u32, bytes: u32) {
    if let Some(found) = segments.get_mut(&segment) {
        found.live_bytes -= u64::from(bytes);
    }
}
