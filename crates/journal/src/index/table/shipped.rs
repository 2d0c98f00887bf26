//! The table of a replica after batches of another replica bring it to a later log index.
//!
//! Live batches of this replica stay in place. Those of the other replica are in later segments, as
//! rewritten ones. Offsets that are dead on the other replica are dead here too. A batch that
//! exists here is skipped by its offset: entries, and so batches, are the same on every replica.

use std::io;
use std::num::NonZeroU32;
use std::sync::Arc;

use base::HashSet;

use super::{Content, RunTable, Segment, SharedBytes};
use crate::index::live_offsets::LiveOffsets;
use crate::index::runs::{Run, Runs};
use crate::index::sidecar::{Sidecar, SidecarBytes};

/// Imported segments have the generation of a segment that was rewritten once.
pub(crate) const SHIPPED_GENERATION: u32 = 2;

/// A segment with batches of another replica. Its file and its sidecar are durable.
#[derive(Clone, Debug)]
pub(crate) struct ShippedSegment {
    pub(crate) segment: u32,
    /// Range of log indexes that covers all entries with a batch in it.
    pub(crate) indexes: (u64, u64),
    pub(crate) file_bytes: u64,
    pub(crate) sidecar: Arc<Sidecar>,
}

impl RunTable {
    /// The table as of `up_to`, with the live offsets of `live`. `shipped` ascend, and follow all
    /// segments of this table.
    ///
    /// `renewed` streams were removed and created again since: their batches here belong to the
    /// removed streams, and all batches of the new ones are shipped. The other replica also
    /// applied, before `up_to`, the batches that any other stream has here. If a stream is longer
    /// here, the rest is dead there.
    pub(crate) fn advanced_to(
        &self,
        up_to: u64,
        live: &LiveOffsets,
        renewed: &[u64],
        shipped: impl Iterator<Item = io::Result<ShippedSegment>>,
    ) -> io::Result<Self> {
        let mut table = self.clone();
        let renewed: HashSet<u64> = renewed.iter().copied().collect();
        for (&stream, runs) in self.streams.iter() {
            let end = runs.last().map_or(0, |last| last.next_offset);
            match live.get(stream).filter(|_| !renewed.contains(&stream)) {
                None => table.remove(stream..stream.saturating_add(1)),
                Some(known) if known.end < end => table.punch(stream, known.end, end),
                Some(_) => {}
            }
        }
        for shipped in shipped {
            table.add_shipped(live, &shipped?);
        }
        for known in live.iter() {
            table.trim(known.stream, known.start);
            for &(from, to) in &known.holes {
                table.punch(known.stream, from, to);
            }
        }
        // Entries that left the log are not awaited.
        for segment in table.segments.values_mut() {
            if let Content::Memory { last_index: Some(last_index), .. } = &mut segment.content {
                *last_index = up_to.min(*last_index);
            }
        }
        table.undecided = table.undecided.max(up_to.saturating_add(1));
        table.note_seal_after();
        Ok(table)
    }

    fn add_shipped(&mut self, live: &LiveOffsets, shipped: &ShippedSegment) {
        let ShippedSegment { segment, indexes, file_bytes, sidecar } = shipped;
        let Some(id) = NonZeroU32::new(*segment) else { return };
        let mut live_bytes = 0;
        for (stream, batches) in sidecar.streams() {
            let Some(known) = live.get(stream) else { continue };
            let from = self.runs_of(stream).and_then(Runs::last).map_or(0, |last| last.next_offset);
            let begin = batches.partition_point(|batch| batch.base_offset < from);
            let end = batches.partition_point(|batch| batch.next_offset() <= known.end);
            let new = || (begin..end).map(|place| batches.get(place));
            let (Some(first), Some(last)) = (new().next(), new().next_back()) else { continue };
            let bytes = new().fold(0_u32, |bytes, batch| bytes.saturating_add(batch.len));
            let run = Run {
                segment: id,
                bytes,
                first_offset: first.base_offset,
                next_offset: last.next_offset(),
                max_timestamp: new().map(|batch| batch.max_timestamp).max().unwrap_or(-1),
            };
            live_bytes += u64::from(bytes);
            match self.streams.get_mut(&stream) {
                Some(runs) => runs.push(run),
                None => drop(self.streams.insert(stream, Runs::One(run))),
            }
        }
        let SidecarBytes { once, any_shared } = sidecar.batch_bytes();
        let segment = Segment {
            generation: SHIPPED_GENERATION,
            content: Content::Sealed,
            live_bytes,
            file_bytes: *file_bytes,
            payload_bytes: once,
            refused: Arc::default(),
            indexes: Some(*indexes),
            shared: any_shared.then_some(SharedBytes { once, counted_at: live_bytes }),
            dead_in_snapshot: false,
        };
        self.segments.insert(shipped.segment, segment);
    }
}
