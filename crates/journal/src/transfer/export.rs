//! The sender: serves a snapshot in sections, and the segments that a receiver lacks in pieces.
//! Backups use it too, by [`Journal::export_all`].
//!
//! An export holds the snapshot's open file, the positions of the batches of the segment being
//! sent, and that segment's open file. Each of these files may be replaced or removed: an open file
//! can still be read. Nothing else is retained.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use base::HashSet;
use base::checksum::crc32c;
use bytes::Bytes;
use world::{Disk, DiskFile};

use super::manifest::{ListedSegment, Manifest, Section, SectionSize, encode_segments};
use super::piece::{self, ROW_BYTES};
use crate::address::Address;
use crate::file_readers::CacheBypassFile;
use crate::index::{Batches, FileKind, Index, LiveOffsets, LoadError, RunTable};
use crate::journal::Journal;
use crate::read::extents;
use crate::reclaim::load_error;
use crate::snapshot::{OpenSnapshot, SnapshotSection};

/// Maximum number of rows in a piece, for tiny batches.
const PIECE_ROWS_MAX: usize = 4_096;

/// A snapshot being sent to one receiver.
#[derive(Debug)]
pub struct Export {
    index: Arc<Index>,
    snapshot: OpenSnapshot,
    live: LiveOffsets,
    live_bytes: Bytes,
    /// Ids of the segments to send, in order.
    segments: Vec<u32>,
    segment_bytes: Bytes,
    /// Set if segments are read past the page cache.
    past_cache: Option<Arc<dyn Disk>>,
    current: Option<SegmentExport>,
}

/// The segment being sent.
#[derive(Debug)]
struct SegmentExport {
    place: usize,
    segment: u32,
    generation: u32,
    /// `None`: the segment has no live batch any more.
    file: Option<Arc<dyn DiskFile>>,
    rows: Vec<RowPlace>,
}

/// A live batch of the segment, by stream and offset.
#[derive(Clone, Copy, Debug)]
struct RowPlace {
    stream: u64,
    address: Address,
    /// A shared batch of which an earlier row has the bytes.
    came_before: bool,
}

/// Encoded batches of a segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SegmentPiece {
    pub bytes: Bytes,
    /// The row to request next; `None` at the end of the segment.
    pub next: Option<u64>,
}

impl Journal {
    /// Begins to send the newest snapshot to a receiver that has everything up to the log index
    /// `have`. `None` if there is no snapshot. Blocking.
    pub fn export(&self, have: u64) -> io::Result<Option<Export>> {
        self.export_of(have, false)
    }

    /// The same for everything, without populating the page cache: for a caller with low priority.
    /// Blocking.
    pub fn export_all(&self) -> io::Result<Option<Export>> {
        self.export_of(0, true)
    }

    fn export_of(&self, have: u64, past_cache: bool) -> io::Result<Option<Export>> {
        let shared = self.shared();
        let snapshot = {
            // While the lock is held no newer snapshot removes this one.
            let newest = shared.snapshot.lock();
            let Some(id) = *newest else { return Ok(None) };
            match past_cache {
                true => OpenSnapshot::open_uncached(&*shared.disk, &shared.dir, id.index)?,
                false => OpenSnapshot::open(&*shared.disk, &shared.dir, id.index)?,
            }
        };
        let table = snapshot.read_whole(&snapshot.table)?;
        let table = RunTable::decode(&table)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        let live = LiveOffsets::of(&table);
        drop(table);
        let (segments, listed) = shared.index.missing_segments(have, snapshot.id.index);
        Ok(Some(Export {
            index: Arc::clone(&shared.index),
            snapshot,
            live_bytes: live.encode().into(),
            live,
            segments,
            segment_bytes: encode_segments(&listed).into(),
            past_cache: past_cache.then(|| Arc::clone(&shared.disk)),
            current: None,
        }))
    }
}

impl Index {
    /// The segments with live batches, of entries up to `up_to`, that a receiver with all up to
    /// `have` lacks.
    ///
    /// The ranges of segments may overlap, their batches do not: a segment that was received covers
    /// entries that were in the log before it was installed, and their batches were retained. So
    /// the range of a segment begins after the last entry of the segment before it.
    fn missing_segments(&self, have: u64, up_to: u64) -> (Vec<u32>, Vec<ListedSegment>) {
        let table = self.table().read();
        let (mut ids, mut listed) = (Vec::new(), Vec::new());
        let (mut later_first, mut later_last) = (up_to.saturating_add(1), up_to);
        for (&id, segment) in table.segments.iter().rev() {
            // A segment with unknown indexes may have any entry before those of later segments.
            let (first, last) = segment.indexes.unwrap_or((0, later_first.saturating_sub(1)));
            let covered = last.min(later_last);
            if segment.live_bytes > 0 && last > have && first <= up_to {
                ids.push(id);
                listed.push(ListedSegment { covered, bytes: segment.live_bytes_once() });
            }
            if segment.indexes.is_some() {
                (later_first, later_last) = (later_first.min(first), covered);
            }
        }
        ids.reverse();
        listed.reverse();
        // A receiver of the last segment has everything.
        if let Some(last) = listed.last_mut() {
            last.covered = up_to;
        }
        (ids, listed)
    }

    /// The live batches in the current generation of a segment, restricted to those in `live`.
    /// Blocking.
    fn rows(&self, segment: u32, live: &LiveOffsets) -> io::Result<SegmentExport> {
        loop {
            let mut rows = Vec::new();
            let mut add = |stream: u64, batches: Vec<Address>| {
                let Some(known) = live.get(stream) else { return };
                let sent =
                    |it: &Address| it.next_offset() > known.start && it.next_offset() <= known.end;
                let sent = batches.into_iter().filter(sent);
                rows.extend(sent.map(|address| RowPlace { stream, address, came_before: false }));
            };
            let sealed = {
                let table = self.table().read();
                match table.segment(segment) {
                    Some(found) if found.live_bytes > 0 => match found.addresses_in_memory() {
                        Some(addresses) => {
                            for (stream, list) in addresses.iter() {
                                let Some(run) = table.run(stream, segment) else { continue };
                                let live = Batches::from_list(list).live(run, table.holes(stream));
                                add(stream, live.iter().collect());
                            }
                            None
                        }
                        None => Some(found.generation),
                    },
                    _ => {
                        let (place, generation) = (0, 0);
                        return Ok(SegmentExport { place, segment, generation, file: None, rows });
                    }
                }
            };
            let generation = sealed.unwrap_or(1);
            // Opened before the sidecar is read: then both are of this generation, or it is gone.
            let file = match self.files().segment(segment, generation) {
                Ok(file) => file,
                Err(_) if !self.is_current(segment, generation) => continue,
                Err(error) => {
                    return Err(load_error(self.is_unreadable(segment, generation, 0, error)));
                }
            };
            if sealed.is_some() {
                let sidecar = match self.sidecar(segment, generation) {
                    Ok(sidecar) => sidecar,
                    Err(LoadError::Gone) => continue,
                    Err(error) => return Err(load_error(error)),
                };
                for (stream, batches) in sidecar.streams() {
                    add(stream, self.live(segment, stream, batches));
                }
            }
            let mut shared: HashSet<u32> = HashSet::default();
            for row in rows.iter_mut().filter(|row| row.address.shared) {
                row.came_before = !shared.insert(row.address.position);
            }
            return Ok(SegmentExport { place: 0, segment, generation, file: Some(file), rows });
        }
    }
}

impl Export {
    /// Number of segments sent.
    pub fn segments(&self) -> u64 {
        self.segments.len() as u64
    }

    pub fn manifest(&self) -> Manifest {
        let of_part = |part: &SnapshotSection| SectionSize { bytes: part.bytes(), crc: part.crc };
        let of_bytes =
            |bytes: &Bytes| SectionSize { bytes: bytes.len() as u64, crc: crc32c(bytes) };
        let sections = [
            of_part(&self.snapshot.meta),
            of_part(&self.snapshot.machine),
            of_bytes(&self.live_bytes),
            of_bytes(&self.segment_bytes),
        ];
        Manifest { id: self.snapshot.id, sections }
    }

    /// Up to `bytes_max` bytes of a section, beginning at `from`. Blocking.
    pub fn section(&self, section: Section, from: u64, bytes_max: usize) -> io::Result<Bytes> {
        let of_bytes = |bytes: &Bytes| {
            let from = from.min(bytes.len() as u64) as usize;
            bytes.slice(from..from.saturating_add(bytes_max).min(bytes.len()))
        };
        match section {
            Section::Meta => self.read(&self.snapshot.meta, from, bytes_max),
            Section::Machine => self.read(&self.snapshot.machine, from, bytes_max),
            Section::Live => Ok(of_bytes(&self.live_bytes)),
            Section::Segments => Ok(of_bytes(&self.segment_bytes)),
        }
    }

    fn read(&self, part: &SnapshotSection, from: u64, bytes_max: usize) -> io::Result<Bytes> {
        Ok(self.snapshot.read(part, from, bytes_max)?.into())
    }

    /// Batches of the segment at this place of the list, from the row `from` on: at least one, then
    /// as many as fit in `bytes_max`. The segment's rows are fixed by the first request for it.
    /// `None`: the list has no such place, or the segment no such row. Blocking.
    pub fn segment(
        &mut self,
        place: u64,
        from: u64,
        bytes_max: usize,
    ) -> io::Result<Option<SegmentPiece>> {
        let place = usize::try_from(place).unwrap_or(usize::MAX);
        let Some(&segment) = self.segments.get(place) else { return Ok(None) };
        if self.current.as_ref().is_none_or(|current| current.place != place) {
            // Rows fixed at another moment would not continue those of the receiver.
            if from > 0 {
                return Ok(None);
            }
            self.current = None;
            let mut current = SegmentExport { place, ..self.index.rows(segment, &self.live)? };
            if let Some(disk) = &self.past_cache
                && let Some(file) = current.file.take()
            {
                let (segment, generation) = (current.segment, current.generation);
                let path = self.index.files().path(FileKind::Segment, segment, generation);
                // If the file is gone by now, the open one is read.
                let past = CacheBypassFile::open(&**disk, &path, Arc::clone(&file));
                current.file = Some(past.unwrap_or(file));
            }
            self.current = Some(current);
        }
        let Some(current) = &self.current else { return Ok(None) };
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        let Some(rest) = current.rows.get(from..) else { return Ok(None) };
        let mut bytes = 0;
        let fits = |row: &&RowPlace| {
            bytes += ROW_BYTES + if row.came_before { 0 } else { row.address.len as usize };
            bytes <= bytes_max
        };
        let count = rest.iter().take(PIECE_ROWS_MAX).take_while(fits_first(fits)).count();
        let rows = current.read(&self.index, from..from + count)?;
        let next = (from + count < current.rows.len()).then_some((from + count) as u64);
        Ok(Some(SegmentPiece { bytes: piece::encode(&rows).into(), next }))
    }
}

/// Accepts the first item in any case.
fn fits_first<T>(mut fits: impl FnMut(&T) -> bool) -> impl FnMut(&T) -> bool {
    let mut first = true;
    move |it| fits(it) | std::mem::take(&mut first)
}

impl SegmentExport {
    /// Reads rows and verifies their batches: damaged ones are not sent.
    fn read(&self, index: &Index, places: Range<usize>) -> io::Result<Vec<piece::Row>> {
        let Self { segment, generation, .. } = *self;
        let rows = &self.rows[places];
        let here: Vec<Address> =
            rows.iter().filter(|row| !row.came_before).map(|row| row.address).collect();
        let mut batches = Vec::with_capacity(here.len());
        for extent in extents(&here) {
            let Some(file) = &self.file else { break };
            let mut bytes = vec![0; extent.len];
            let read = file.read_at(&mut bytes, extent.position).map_err(|error| {
                load_error(index.is_unreadable(segment, generation, extent.position, error))
            })?;
            if read < extent.len {
                let (at, what) = (extent.position + read as u64, "it ends within a batch");
                return Err(load_error(index.is_damaged(segment, generation, at, what)));
            }
            let bytes = Bytes::from(bytes);
            for address in &here[extent.places] {
                let start = (u64::from(address.position) - extent.position) as usize;
                let batch = bytes.slice(start..start + address.len as usize);
                if !index.is_sound(address, &batch) {
                    let (at, what) = (address.position.into(), "a batch with another checksum");
                    return Err(load_error(index.is_damaged(segment, generation, at, what)));
                }
                batches.push(batch);
            }
        }
        let mut batches = batches.into_iter();
        let rows = rows.iter().map(|row| piece::Row {
            stream: row.stream,
            address: row.address,
            batch: if row.came_before { None } else { batches.next() },
        });
        Ok(rows.collect())
    }
}
