//! Changes of the run table by apply and by the log's thread, in log order.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::Arc;

use base::OffsetRanges;

use super::{Content, RunTable, Segment, SharedBytes};
use crate::address::Address;
use crate::index::batches::SegmentBatches;
use crate::index::runs::{Run, Runs};

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

    /// The machine refused the body at `address`. `true` when a sidecar became due.
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

    /// The log no longer writes to `segment`, whose last entry is `last_index`. Repeating it, also
    /// for a sealed segment as in recovery, changes nothing. `true` when a sidecar became due.
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
        // Checked before `get_mut`, which would copy a chunk that a capture shares.
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
        // The rest of the first run may lie in one hole.
        let segment = run.segment();
        self.drop_if_dead(stream, segment);
        self.forget_holes_below(stream);
    }

    /// The offsets `from..to` of `stream` are dead, and so is each batch without another live
    /// offset. A repeated punch only costs the search.
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

    /// Subtracts the batches that the `new` holes killed from a run's live bytes.
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
        // A batch that overlaps a new hole was live until now.
        let before = batches.clone().live(run, None);
        let mut bytes = 0;
        let mut counted = run.first_offset;
        for &(from, to) in new {
            let touched = before.clone().touching(from.max(counted), to);
            let Some(last) = touched.iter().next_back() else { continue };
            let sum = |live: SegmentBatches<'_>| live.iter().map(|batch| batch.len).sum::<u32>();
            let still = batches.clone().live(run, holes).touching(from.max(counted), to);
            bytes += sum(touched) - sum(still);
            counted = last.next_offset();
        }
        run.bytes -= bytes;
        release(&mut self.segments, segment, bytes);
        self.drop_if_dead(stream, segment);
    }

    /// Drops a run if one hole covers it or no offset is left; `true` if it is gone.
    pub(super) fn drop_if_dead(&mut self, stream: u64, segment: u32) -> bool {
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

    /// Drops holes before the first run: its first offset already covers them.
    pub(super) fn forget_holes_below(&mut self, stream: u64) {
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

    /// Everything in these streams is dead.
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

fn append(runs: &mut Runs, stream: u64, run: Run) {
    let last = runs.last_mut().expect("a stream without runs is not in the table");
    // The machine assigns offsets in log order. Overlapping batches would be two different records
    // at one offset.
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
