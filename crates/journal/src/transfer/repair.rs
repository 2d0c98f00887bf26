//! Rewrites a damaged segment from another replica's batches of the same entries.
//!
//! The other replica sends its batches of the log indexes that the segment covers, from its own
//! segments and in their order; batches of other segments are skipped. Batches that it lacks,
//! because it compacted the stream, are copied from the damaged segment if they are sound. The
//! result is a new generation, as of any rewrite: until it has its final name the damaged one
//! stays, and readers get an error.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use base::HashMap;
use bytes::Bytes;
use tracing::info;
use world::DiskFile;

use super::import::{ImportError, LastRow, check_order};
use super::manifest::{ListedSegment, decode_segments};
use super::piece;
use crate::address::{Address, put_base_offset};
use crate::damage::Damage;
use crate::index::{BlockWriter, FileKind, Sidecar};
use crate::journal::Journal;
use crate::shared::Shared;
use crate::stats::DiskRoom;

/// Why a damaged segment cannot be rewritten yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RepairDeferral {
    /// There is nothing to do: it was deleted or rewritten.
    Gone,
    /// The log writes to it, or some of its entries are not decided.
    Unsealed,
    /// No snapshot covers its entries, or the log retained for other nodes begins before its end.
    Claimed,
}

/// A segment being repaired.
#[derive(Debug)]
pub struct Repair {
    shared: Arc<Shared>,
    segment: u32,
    /// The damaged generation.
    generation: u32,
    indexes: Option<(u64, u64)>,
    covers: CoveredEntries,
    streams: HashMap<u64, Stream>,
    /// The damaged file, if it can be opened.
    file: Option<Arc<dyn DiskFile>>,
    writer: BlockWriter,
    /// `None` until the other replica's list has arrived.
    listed: Option<Vec<ListedSegment>>,
    next: usize,
    /// Last row received of the other replica's current segment.
    last: LastRow,
}

/// Range of log indexes whose batches are wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CoveredEntries {
    pub first: u64,
    pub last: u64,
}

/// Wanted batches of a stream.
#[derive(Debug, Default)]
struct Stream {
    /// The segment has the batches that end after `from` and not after `to`.
    from: u64,
    to: u64,
    /// Live batches here that are not written yet, as far as they are known.
    here: VecDeque<Address>,
    written_to: u64,
}

impl Journal {
    /// The segments with known damage.
    pub fn damaged(&self) -> Vec<Damage> {
        self.shared().index.damaged().list()
    }

    /// Resolves when more damage was found since the last call resolved.
    pub async fn damage_found(&self) {
        self.shared().index.damaged().found().await;
    }

    /// Begins to rewrite a damaged segment. Blocking.
    pub fn repair(&self, segment: u32) -> io::Result<Result<Repair, RepairDeferral>> {
        let shared = Arc::clone(self.shared());
        let index = &shared.index;
        let (generation, indexes) = {
            let table = index.table().read();
            let found = table.segment(segment).filter(|found| found.live_bytes > 0);
            let Some(found) = found else {
                // Perhaps a part of the log without a live batch. Nothing reads it once the log has
                // left it.
                let is_left = segment < index.claimed_from();
                drop(table);
                if is_left {
                    index.damaged().is_gone(segment, u32::MAX);
                    return Ok(Err(RepairDeferral::Gone));
                }
                return Ok(Err(RepairDeferral::Claimed));
            };
            if !found.sealed() {
                return Ok(Err(RepairDeferral::Unsealed));
            }
            (found.generation, found.indexes)
        };
        if !self.damaged().iter().any(|it| (it.segment, it.generation) == (segment, generation)) {
            index.damaged().is_gone(segment, generation - 1);
            return Ok(Err(RepairDeferral::Gone));
        }
        if index.rewritable(segment).is_err() {
            return Ok(Err(RepairDeferral::Claimed));
        }
        // Without known bounds, everything older than the snapshot may be in it.
        let covered = shared.snapshot.lock().map_or(0, |id| id.index);
        let (first, last) = indexes.unwrap_or((1, covered));
        let file = index.files().segment(segment, generation).ok();
        let sidecar = index.sidecar(segment, generation).ok();
        let runs = index.table().read().runs_in(segment);
        let streams = runs.into_iter().map(|(stream, run)| {
            let of = |sidecar: &Arc<Sidecar>| index.live(segment, stream, sidecar.batches(stream));
            let here = sidecar.as_ref().map(of).unwrap_or_default().into();
            let (from, to) = (run.first_offset, run.next_offset);
            (stream, Stream { from, to, here, written_to: 0 })
        });
        let streams = streams.collect();
        let draft = index.files().begin(FileKind::Segment, segment, generation + 1)?;
        let writer = BlockWriter::new(draft, segment, generation + 1, indexes)?;
        let covers = CoveredEntries { first, last };
        let (listed, next, last) = (None, 0, None);
        let repair = Repair {
            covers,
            segment,
            generation,
            indexes,
            streams,
            file,
            writer,
            listed,
            next,
            last,
            shared: Arc::clone(&shared),
        };
        Ok(Ok(repair))
    }
}

impl Repair {
    pub fn covers(&self) -> CoveredEntries {
        self.covers
    }

    /// Accepts the other replica's list of segments with entries from `covers().first` on.
    pub fn expect(&mut self, segments: &[u8]) -> Result<(), ImportError> {
        let mut listed = decode_segments(segments)
            .ok_or(ImportError::Refused("a list of segments that makes no sense"))?;
        // Segments after the one with the last entry have no batch of this segment.
        let enough = listed.iter().position(|it| it.covered >= self.covers.last);
        if enough.is_none() && !listed.is_empty() {
            return Err(ImportError::Refused("a list of segments that ends too early"));
        }
        listed.truncate(enough.map_or(0, |last| last + 1));
        self.listed = Some(listed);
        Ok(())
    }

    /// The list place of the segment to request; `None` once all are complete.
    pub fn next_segment(&self) -> Option<u64> {
        let listed = self.listed.as_ref()?;
        (self.next < listed.len()).then_some(self.next as u64)
    }

    /// Accepts the next rows of the requested segment; after an error the repair starts over.
    /// Blocking.
    pub fn push(&mut self, piece: Bytes) -> Result<(), ImportError> {
        if matches!(self.shared.spares.room(), DiskRoom::Full { .. }) {
            return Err(ImportError::NoRoom);
        }
        for row in piece::decode(piece).map_err(ImportError::Refused)? {
            check_order(&mut self.last, row.stream, &row.address)?;
            self.push_row(row)?;
        }
        Ok(())
    }

    fn push_row(&mut self, row: piece::Row) -> Result<(), ImportError> {
        let piece::Row { stream, address, batch } = row;
        let end = address.next_offset();
        let known = self.streams.get(&stream);
        let wanted = known.is_some_and(|known| end > known.from && end <= known.to);
        // A later stream may want a shared batch, which is not sent again.
        if !wanted && !address.shared {
            return Ok(());
        }
        if known.is_some_and(|known| address.base_offset < known.written_to) {
            return Err(ImportError::Refused("batches that overlap"));
        }
        self.write_own(stream, address.base_offset)?;
        self.writer.begin_stream(stream)?;
        match batch {
            Some(batch) if self.shared.index.is_sound(&address, &batch) => {
                self.writer.push(address, batch)?;
            }
            Some(_) => return Err(ImportError::Refused("a batch with another checksum")),
            None if self.writer.push_shared(address)? => {}
            None => return Err(ImportError::Refused("a batch that did not come before")),
        }
        let known = self.streams.entry(stream).or_default();
        while known.here.front().is_some_and(|it| it.base_offset < end) {
            known.here.pop_front();
        }
        known.written_to = end;
        Ok(())
    }

    /// Copies sound batches before this offset that the other replica lacks.
    fn write_own(&mut self, stream: u64, before: u64) -> io::Result<()> {
        let Some(wanted) = self.streams.get_mut(&stream) else { return Ok(()) };
        let count = wanted.here.partition_point(|it| it.base_offset < before);
        let own: Vec<Address> = wanted.here.drain(..count).collect();
        for address in own {
            let Some(bytes) = self.read_own(&address) else { continue };
            self.writer.begin_stream(stream)?;
            self.writer.push(Address { shared: false, ..address }, bytes)?;
        }
        Ok(())
    }

    fn read_own(&self, address: &Address) -> Option<Bytes> {
        let mut bytes = vec![0; address.len as usize];
        let read = self.file.as_ref()?.read_at(&mut bytes, address.position.into()).ok()?;
        if read < bytes.len() || !self.shared.index.is_sound(address, &bytes) {
            return None;
        }
        put_base_offset(&mut bytes, address.base_offset);
        Some(bytes.into())
    }

    /// Completes the requested segment, of which all rows have arrived. Blocking.
    pub fn finish_segment(&mut self) -> Result<(), ImportError> {
        self.writer.forget_shared()?;
        (self.next, self.last) = (self.next + 1, None);
        Ok(())
    }

    /// Replaces the damaged segment by the received one. Call it once all entries that the other
    /// replica had applied are applied here, too: batches that it lacks are then dead here or were
    /// compacted there. Blocking.
    pub fn finish(mut self) -> Result<(), ImportError> {
        if self.next_segment().is_some() || self.listed.is_none() {
            return Err(ImportError::Refused("segments are missing"));
        }
        let mut streams: Vec<u64> = self.streams.keys().copied().collect();
        streams.sort_unstable();
        for &stream in &streams {
            self.write_own(stream, u64::MAX)?;
        }
        let Self { shared, segment, generation, indexes, writer, .. } = self;
        let index = &shared.index;
        let _one = index.reclaiming().lock();
        let is_same = index.rewritable(segment).is_ok_and(|(now, _)| now == generation);
        if !is_same {
            return Err(ImportError::Refused("the segment is another one by now"));
        }
        let bytes = index.replace_generation(segment, generation, indexes, writer, &streams)?;
        info!(segment, generation = generation + 1, bytes, "a damaged segment is rewritten");
        Ok(())
    }
}
