//! The Raft log in the journal: its entries, and the position of each.
//!
//! One slot of 40 bytes per entry that is not purged; the entry itself is in the tail cache or in
//! its segment. Entries are placed when their frame is laid out, just before it is written.
//!
//! * [`entries`]: reads entries back
//! * [`truncation`]: truncates the end of the log
//! * [`pins`]: retains the start of the log
//! * [`tail`]: recent entries in memory

mod entries;
mod pins;
mod tail;
mod truncation;

pub(crate) use truncation::TruncatedEntry;

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};

use crate::address::Address;
use crate::entry::EntryId;
use crate::error::ReadError;
use crate::frame::reader::{FrameAt, FrameReader};
use crate::frame::{self, BLOCK, EncodedEntry, EntryLayout};
use crate::index::LogBodies;
use crate::index::files::{FileKind, file_name};
use crate::segment::{FIRST_FRAME, SegmentHeader};
use tail::Tail;
use world::Instant;
use world::disk::{Disk, DiskFile};

/// A position between two frames: the next frame follows the one whose checksum is `previous`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LogPosition {
    pub(crate) segment: u32,
    pub(crate) position: u32,
    pub(crate) previous: u32,
}

impl LogPosition {
    /// Start of a new journal.
    pub(crate) const START: Self = Self { segment: 1, position: FIRST_FRAME as u32, previous: 0 };
}

/// An entry's identity and position.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    pub(crate) term: u64,
    pub(crate) leader: u64,
    /// Position of the entry's first byte.
    pub(crate) position: u32,
    pub(crate) len: u32,
    /// Beginning of the frame; its segment is the entry's. Segment 0: not placed yet.
    pub(crate) frame: LogPosition,
}

impl Slot {
    /// Whether at most a frame's padding and header lie between `before` and this.
    fn is_near(&self, before: &Slot) -> bool {
        let gap = self.position.checked_sub(before.position + before.len);
        self.frame.segment == before.frame.segment
            && gap.is_some_and(|gap| gap as usize <= BLOCK + frame::FRAME_HEADER_BYTES)
    }
}

#[derive(Debug)]
pub(crate) struct Log {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    state: RwLock<LogState>,
    /// The segment of the last entry read: replay reads segments in order.
    last_read: Mutex<Option<(u32, Arc<dyn DiskFile>)>>,
}

#[derive(Debug)]
pub(crate) struct LogState {
    pub(crate) purged: Option<EntryId>,
    /// Index of the first slot.
    first: u64,
    slots: VecDeque<Slot>,
    tail: Tail,
    /// End of the last frame that was laid out.
    end: LogPosition,
    pins: pins::Pins,
}

impl LogState {
    pub(crate) fn new(purged: Option<EntryId>, end: LogPosition, tail_bytes_max: usize) -> Self {
        let first = purged.map_or(0, |id| id.index + 1);
        let (slots, tail) = (VecDeque::new(), Tail::new(tail_bytes_max));
        Self { purged, first, slots, tail, end, pins: pins::Pins::default() }
    }

    /// No entry, or only purged ones.
    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    fn next_index(&self) -> u64 {
        self.first + self.slots.len() as u64
    }

    /// Whether an entry with this index may be appended.
    pub(crate) fn takes(&self, index: u64) -> bool {
        let anywhere = self.slots.is_empty() && self.purged.is_none();
        anywhere || index == self.next_index()
    }

    fn push(&mut self, index: u64, slot: Slot) {
        if self.slots.is_empty() {
            self.first = index;
        }
        self.slots.push_back(slot);
    }

    pub(crate) fn append(&mut self, encoded: &Arc<EncodedEntry>) {
        let EntryId { term, leader, index } = encoded.entry.id;
        assert!(self.takes(index), "entry {index} appended where {} follows", self.next_index());
        let nowhere = LogPosition { segment: 0, position: 0, previous: 0 };
        self.push(index, Slot { term, leader, position: 0, len: encoded.len, frame: nowhere });
        self.tail.push(encoded.clone());
    }

    /// Ends a recovery that read from before the snapshot, which covers the entries up to
    /// `covered`. Returns entries behind the snapshot that do not belong to the log.
    pub(crate) fn recovered(&mut self, covered: EntryId) -> Vec<(u64, Slot)> {
        let last = self.next_index().checked_sub(1);
        let reaches = self.first <= covered.index + 1 && last >= Some(covered.index);
        if self.slots.is_empty() || !reaches || self.first == covered.index + 1 {
            // Entries truncated before the snapshot was taken, and written after it, follow
            // nothing.
            let stray = if reaches { Vec::new() } else { self.placed_from(covered.index + 1) };
            if !reaches {
                self.slots.clear();
                self.first = covered.index + 1;
            }
            self.purged = Some(covered);
            return stray;
        }
        // The entries before the first are gone, and so may be the purged one: the first stands in
        // for it.
        if self.first > 0
            && let Some(first) = self.entry_id(self.first)
        {
            self.purge(first);
        }
        Vec::new()
    }

    /// Recovery found an entry. It replaces an existing one with the same index, and all entries
    /// after that.
    pub(crate) fn found(&mut self, index: u64, slot: Slot) {
        self.truncate_from(index);
        self.push(index, slot);
    }

    /// The placed entries from `index` on.
    pub(crate) fn placed_from(&self, index: u64) -> Vec<(u64, Slot)> {
        let skip = index.saturating_sub(self.first);
        let slots = (self.first..).zip(&self.slots).skip(skip as usize);
        slots.filter(|(_, slot)| slot.frame.segment != 0).map(|(at, slot)| (at, *slot)).collect()
    }

    /// These entries are about to be written as one frame at the end of the log. Bodies of entries
    /// truncated since they were appended go to `orphans`.
    pub(crate) fn place(
        &mut self,
        entries: &[Arc<EncodedEntry>],
        frame: LogPosition,
        end: LogPosition,
        orphans: &mut Vec<(u64, Address)>,
    ) {
        let mut position = frame.position + frame::FRAME_HEADER_BYTES as u32;
        for encoded in entries {
            let slot = encoded.entry.id.index.checked_sub(self.first);
            if !self.tail.place(encoded, frame.segment, position) {
                orphans.extend(encoded.addresses(frame.segment, position));
            } else if let Some(slot) = slot.and_then(|slot| self.slots.get_mut(slot as usize)) {
                slot.position = position;
                slot.frame = frame;
            }
            position += encoded.len;
        }
        self.end = end;
    }

    pub(crate) fn durable(&mut self, batch: &[Arc<EncodedEntry>]) {
        self.tail.durable(batch);
    }

    pub(crate) fn evict_aged(&mut self, now: Instant, age: Duration) -> Vec<Arc<EncodedEntry>> {
        self.tail.evict_aged(now, age)
    }

    pub(crate) fn truncate_from(&mut self, index: u64) {
        let keep = index.saturating_sub(self.first) as usize;
        self.slots.truncate(keep);
        self.tail.truncate_from(index);
    }

    fn purge(&mut self, id: EntryId) {
        if self.purged.is_some_and(|purged| purged.index >= id.index) {
            return;
        }
        let gone = (id.index + 1).saturating_sub(self.first).min(self.slots.len() as u64);
        self.slots.drain(..gone as usize);
        self.first = id.index + 1;
        self.purged = Some(id);
    }

    pub(crate) fn entry_id(&self, index: u64) -> Option<EntryId> {
        if let Some(purged) = self.purged
            && purged.index == index
        {
            return Some(purged);
        }
        let Slot { term, leader, .. } = *self.slot(index)?;
        Some(EntryId { term, leader, index })
    }

    pub(crate) fn last_id(&self) -> Option<EntryId> {
        match self.slots.back() {
            Some(slot) => {
                let index = self.next_index() - 1;
                Some(EntryId { term: slot.term, leader: slot.leader, index })
            }
            None => self.purged,
        }
    }

    /// 0 when there was never an entry.
    pub(crate) fn last_index(&self) -> u64 {
        self.last_id().map_or(0, |id| id.index)
    }

    pub(crate) fn end(&self) -> LogPosition {
        self.end
    }

    pub(crate) fn set_end(&mut self, end: LogPosition) {
        self.end = end;
    }

    /// Whether the entry has no position in a segment yet.
    pub(crate) fn awaits_placement(&self, index: u64) -> bool {
        self.slot(index).is_some_and(|slot| slot.frame.segment == 0)
    }

    fn slot(&self, index: u64) -> Option<&Slot> {
        self.slots.get(index.checked_sub(self.first)? as usize)
    }

    /// Start position of a recovery that finds every entry of the log, and at least those after
    /// `index`.
    pub(crate) fn scan_from_first(&self, index: u64) -> LogPosition {
        match self.slots.front() {
            Some(slot) if self.first <= index && slot.frame.segment != 0 => slot.frame,
            _ => self.scan_from(index),
        }
    }

    /// Start position of a recovery that finds every entry after `index`.
    pub(crate) fn scan_from(&self, index: u64) -> LogPosition {
        match self.slot(index + 1) {
            Some(slot) if slot.frame.segment != 0 => slot.frame,
            _ => self.end,
        }
    }
}

impl Log {
    pub(crate) fn new(disk: Arc<dyn Disk>, dir: &Path, state: LogState) -> Self {
        let state = RwLock::new(state);
        Self { disk, dir: dir.to_owned(), state, last_read: Mutex::new(None) }
    }

    pub(crate) fn read(&self) -> parking_lot::RwLockReadGuard<'_, LogState> {
        self.state.read()
    }

    pub(crate) fn write(&self) -> parking_lot::RwLockWriteGuard<'_, LogState> {
        self.state.write()
    }

    fn damaged(&self, segment: u32, position: u32) -> ReadError {
        let file = self.path(segment);
        ReadError::Damaged {
            file,
            position: position.into(),
            what: "not the entry that was written",
        }
    }

    /// Stream and address of each body of a placed entry; the caller waits for the placement
    /// (`Journal::placed`). Reads memory, or (blocking) the segment.
    pub(crate) fn bodies(&self, index: u64) -> Result<Vec<(u64, Address)>, ReadError> {
        let (slot, encoded) = {
            let state = self.state.read();
            let Some(slot) = state.slot(index) else {
                let last = state.next_index().saturating_sub(1);
                return Err(ReadError::NoSuchEntry { index, first: state.first, last });
            };
            assert!(slot.frame.segment != 0, "entry {index} is applied before it has its place");
            (*slot, state.tail.get(index).cloned())
        };
        self.bodies_at(index, &slot, encoded.as_deref())
    }

    /// The same for an entry in this slot, from memory or else from its segment.
    fn bodies_at(
        &self,
        index: u64,
        slot: &Slot,
        encoded: Option<&EncodedEntry>,
    ) -> Result<Vec<(u64, Address)>, ReadError> {
        match encoded {
            Some(encoded) => Ok(encoded.addresses(slot.frame.segment, slot.position).collect()),
            None => self.stored_bodies(index, slot),
        }
    }

    /// The same for an entry that may have been truncated. Blocking.
    pub(crate) fn stored_bodies(
        &self,
        index: u64,
        slot: &Slot,
    ) -> Result<Vec<(u64, Address)>, ReadError> {
        let (segment, position) = (slot.frame.segment, slot.position);
        // Nearly every table of bodies fits this.
        let mut bytes = self.read_bytes(segment, position, slot.len.min(4096))?;
        match EntryLayout::descriptor_bytes(&bytes) {
            Some(needed) if needed > bytes.len() as u64 && needed <= slot.len.into() => {
                bytes = self.read_bytes(segment, position, needed as u32)?;
            }
            _ => {}
        }
        let layout = EntryLayout::read(&bytes).ok();
        let own = |it: &EntryLayout| it.id.index == index && it.len == slot.len as usize;
        match layout.filter(own) {
            Some(layout) => Ok(layout.addresses(&bytes, segment, position).collect()),
            None => Err(self.damaged(segment, position)),
        }
    }

    fn read_bytes(&self, segment: u32, position: u32, len: u32) -> Result<Vec<u8>, ReadError> {
        let at = u64::from(position);
        let io_error = |source| {
            let file = self.path(segment);
            ReadError::Io { file, position: at, source: Arc::new(source) }
        };
        let file = self.file(segment).map_err(io_error)?;
        let mut bytes = vec![0; len as usize];
        let read = file.read_at(&mut bytes, at).map_err(io_error)?;
        bytes.truncate(read);
        Ok(bytes)
    }

    fn file(&self, segment: u32) -> io::Result<Arc<dyn DiskFile>> {
        let mut last = self.last_read.lock();
        match &*last {
            Some((id, file)) if *id == segment => Ok(file.clone()),
            _ => {
                let file = self.disk.open(&self.path(segment), false)?;
                *last = Some((segment, file.clone()));
                Ok(file)
            }
        }
    }

    fn path(&self, segment: u32) -> PathBuf {
        self.dir.join(file_name(FileKind::Segment, segment, 1))
    }
}

impl LogBodies for Log {
    fn scan(
        &self,
        segment: u32,
        file: &dyn DiskFile,
        found: &mut dyn FnMut(u64, Address),
    ) -> io::Result<()> {
        let header = SegmentHeader::read(file)?;
        let mut frames = FrameReader::new(file, segment, header.map(|header| header.salt))?;
        let mut position = FIRST_FRAME;
        while let FrameAt::Complete(header) = frames.at(position)? {
            for (at, layout) in frame::layouts(frames.content()) {
                let entry_at = header.position + (frame::FRAME_HEADER_BYTES + at) as u32;
                for (stream, address) in
                    layout.addresses(&frames.content()[at..], segment, entry_at)
                {
                    found(stream, address);
                }
            }
            position = header.end();
        }
        match frames.search(position)?.complete {
            None => Ok(()),
            Some(later) => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("damaged between {position} and {later}"),
            )),
        }
    }

    fn recent(&self, address: &Address) -> Option<Bytes> {
        self.state.read().tail.body(address)
    }
}
