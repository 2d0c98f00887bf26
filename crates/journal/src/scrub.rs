//! Verifies stored data in small steps, to find latent damage before a reader does.
//!
//! Reads whole files, past the page cache: the cache may hide damage on the disk, and the working
//! set of consumers stays cached. Segments of the log are read up to the last durable frame. A
//! sealed segment is verified frame by frame, or block by block once it was rewritten. Verification
//! relies only on the checksums there, so that it also finds damage that no reader would notice.
//! Damage is recorded as if a reader had found it.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::damage::{Damage, is_loss};
use crate::file_readers::{ReadAheadFile, ReadOnly};
use crate::frame::reader::{FrameAt, FrameReader};
use crate::index::{FileKind, LoadError, check_block};
use crate::journal::Journal;
use crate::segment::{FIRST_FRAME, SegmentHeader};
use crate::shared::Shared;
use crate::snapshot::{self, OpenSnapshot};
use crate::stats::SegmentInfo;

/// A step ends once it has read this many bytes.
const STEP_BYTES: u64 = 256 << 10;

/// A pass over all stored data.
#[derive(Debug)]
pub struct Scrub {
    shared: Arc<Shared>,
    left: VecDeque<ScrubItem>,
    current: Option<ScrubbedSegment>,
    bytes: u64,
    of_bytes: u64,
    bad_snapshots: u32,
}

#[derive(Clone, Copy, Debug)]
enum ScrubItem {
    Snapshot {
        index: u64,
    },
    Segment {
        segment: u32,
        generation: u32,
        bytes: u64,
    },
    /// The segment that is written to, up to its last durable frame.
    Active {
        segment: u32,
        end: u64,
    },
}

/// The segment that is being verified.
#[derive(Debug)]
struct ScrubbedSegment {
    segment: u32,
    generation: u32,
    bytes: u64,
    file: ReadOnly<ReadAheadFile>,
    position: u64,
    /// End of the last durable frame, if the segment was written to when the pass began.
    durable_end: Option<u64>,
}

/// Result of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScrubStep {
    /// Bytes read.
    pub bytes: u64,
}

impl Journal {
    /// Begins a pass over the current snapshots and segments. Blocking.
    pub fn scrub(&self) -> io::Result<Scrub> {
        let shared = Arc::clone(self.shared());
        let mut left = VecDeque::new();
        let mut of_bytes = 0;
        for index in snapshot::list(&*shared.disk, &shared.dir)? {
            of_bytes += self.snapshot_bytes();
            left.push_back(ScrubItem::Snapshot { index });
        }
        let (active, end) = shared.durable_end.get();
        // Frames that are not durable yet may be torn; they follow the durable end.
        let is_read = |it: &SegmentInfo| it.id < active && (it.live_bytes > 0 || !it.sealed);
        for info in self.segments().into_iter().filter(is_read) {
            let (segment, generation, bytes) = (info.id, info.generation, info.file_bytes);
            of_bytes += bytes;
            left.push_back(ScrubItem::Segment { segment, generation, bytes });
        }
        if end > FIRST_FRAME {
            of_bytes += end;
            left.push_back(ScrubItem::Active { segment: active, end });
        }
        Ok(Scrub { shared, left, current: None, bytes: 0, of_bytes, bad_snapshots: 0 })
    }
}

impl Scrub {
    /// Approximate bytes verified, and the total.
    pub fn progress(&self) -> (u64, u64) {
        (self.bytes, self.of_bytes.max(self.bytes))
    }

    /// Number of unreadable snapshots, which must be replaced.
    pub fn bad_snapshots(&self) -> u32 {
        self.bad_snapshots
    }

    /// Verifies some more frames or blocks, or one snapshot. `None` at the end of the pass.
    /// Blocking.
    pub fn step(&mut self) -> Option<ScrubStep> {
        let mut bytes = 0;
        while bytes < STEP_BYTES {
            let read = match self.current.take() {
                Some(looking) => self.verify(looking),
                None => match self.left.pop_front() {
                    None if bytes == 0 => return None,
                    None => break,
                    Some(ScrubItem::Snapshot { index }) => self.verify_snapshot(index),
                    Some(ScrubItem::Segment { segment, generation, bytes }) => {
                        self.begin(segment, generation, bytes)
                    }
                    Some(ScrubItem::Active { segment, end }) => self.begin_active(segment, end),
                },
            };
            bytes += read;
        }
        self.bytes += bytes;
        Some(ScrubStep { bytes })
    }

    fn verify_snapshot(&mut self, index: u64) -> u64 {
        let (disk, dir) = (&*self.shared.disk, &self.shared.dir);
        match OpenSnapshot::open_uncached(disk, dir, index) {
            Ok(opened) => opened.bytes(),
            // A newer snapshot replaced it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(error) => {
                if is_loss(&error) {
                    let file = dir.join(snapshot::file_name(index));
                    tracing::error!(file = %file.display(), %error, "a snapshot is damaged");
                    self.bad_snapshots += 1;
                    self.remove_older(index);
                }
                self.shared.snapshot_bytes.load(Ordering::Relaxed)
            }
        }
    }

    /// Removes a damaged snapshot that is not the newest: it is useless as a fallback.
    fn remove_older(&self, index: u64) {
        let newest = self.shared.snapshot.lock();
        if newest.is_some_and(|newest| newest.index > index) {
            let (disk, dir) = (&*self.shared.disk, &self.shared.dir);
            let removed = disk.remove(&dir.join(snapshot::file_name(index)));
            if let Err(error) = removed.and_then(|()| disk.sync_dir(dir)) {
                tracing::warn!(%error, "a damaged snapshot cannot be removed");
            }
        }
    }

    /// Verifies the sidecar, and opens the segment.
    fn begin(&mut self, segment: u32, generation: u32, bytes: u64) -> u64 {
        let index = &self.shared.index;
        if !index.is_current(segment, generation) {
            return bytes;
        }
        let is_sealed = index.table().read().segment(segment).is_some_and(|it| it.sealed());
        // A segment with undecided entries has no sidecar yet.
        let read = if is_sealed { index.verify_sidecar(segment, generation) } else { 0 };
        let path = index.files().path(FileKind::Segment, segment, generation);
        match self.shared.disk.open_uncached(&path) {
            Ok(file) => {
                let position = if generation > 1 { 0 } else { FIRST_FRAME };
                let file = ReadAheadFile::read(file);
                let durable_end = None;
                self.current = Some(ScrubbedSegment {
                    segment,
                    generation,
                    bytes,
                    file,
                    position,
                    durable_end,
                });
            }
            Err(error) => drop(index.is_unreadable(segment, generation, 0, error)),
        }
        read
    }

    /// Opens the segment that is written to.
    fn begin_active(&mut self, segment: u32, end: u64) -> u64 {
        let path = self.shared.index.files().path(FileKind::Segment, segment, 1);
        match self.shared.disk.open_uncached(&path) {
            Ok(file) => {
                let (file, position) = (ReadAheadFile::read(file), FIRST_FRAME);
                let (generation, bytes, durable_end) = (1, end, Some(end));
                self.current = Some(ScrubbedSegment {
                    segment,
                    generation,
                    bytes,
                    file,
                    position,
                    durable_end,
                });
                0
            }
            Err(error) => {
                self.note_in_log(segment, 0, error);
                end
            }
        }
    }

    /// Records damage in the log, whether the index has batches of the segment or not.
    fn note_in_log(&self, segment: u32, position: u64, error: io::Error) {
        let index = &self.shared.index;
        let is_replaced = || {
            let table = index.table().read();
            table.segment(segment).is_some_and(|found| found.generation > 1)
        };
        // The log may have left it in the meantime, and its file may be rewritten or gone.
        if is_loss(&error) && segment >= index.claimed_from() && !is_replaced() {
            let file = index.files().path(FileKind::Segment, segment, 1);
            let what = error.to_string();
            index.damaged().note(Damage { segment, generation: 1, file, position, what });
        }
    }

    fn verify(&mut self, mut looking: ScrubbedSegment) -> u64 {
        let ScrubbedSegment { segment, generation, position, .. } = looking;
        let index = &self.shared.index;
        let next = match generation {
            1 => self.next_frame(&looking),
            _ => check_block(&looking.file, segment, generation, position),
        };
        match next {
            Ok(Some(next)) => {
                looking.position = next;
                self.current = Some(looking);
                next - position
            }
            Ok(None) => looking.bytes.saturating_sub(position),
            Err(error) if looking.durable_end.is_some() => {
                self.note_in_log(segment, position, error);
                looking.bytes.saturating_sub(position)
            }
            Err(error) => {
                // Only certain damage counts; a segment that was deleted in the meantime is none.
                if let LoadError::Read(error) =
                    index.is_unreadable(segment, generation, position, error)
                {
                    tracing::debug!(%error, "a segment is not looked through");
                }
                looking.bytes.saturating_sub(position)
            }
        }
    }

    /// End of the frame at this position; `None` at the end of the log's part of the segment.
    fn next_frame(&self, looking: &ScrubbedSegment) -> io::Result<Option<u64>> {
        let ScrubbedSegment { segment, ref file, position, durable_end, .. } = *looking;
        if durable_end.is_some_and(|end| position >= end) {
            return Ok(None);
        }
        let damaged = |what: &str| Err(io::Error::new(io::ErrorKind::InvalidData, what.to_owned()));
        let Some(header) = SegmentHeader::read(file)? else {
            return damaged("its header is damaged");
        };
        let mut frames = FrameReader::new(file, segment, Some(header.salt))?;
        let found = frames.at(position)?;
        if let FrameAt::Complete(header) = found {
            return Ok(Some(header.end()));
        }
        if let Some(end) = durable_end {
            return damaged(&format!("no frame of the log before {end} begins here"));
        }
        if let Some(later) = frames.search(position)?.complete {
            return damaged(&format!("what comes before {later} is not a frame"));
        }
        let is_sealed =
            self.shared.index.table().read().segment(segment).is_none_or(|it| it.sealed());
        if !is_sealed {
            // All frames of a segment that the log has left are durable.
            return match found {
                FrameAt::Incomplete(_) => damaged("its last frame has changed"),
                _ => Ok(None),
            };
        }
        match self.shared.index.last_live_end(segment, 1) {
            Some(end) if end > position => damaged("the frames end before the last batch"),
            _ => Ok(None),
        }
    }
}
