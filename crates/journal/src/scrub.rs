//! Looking through what is stored, a little at a time: what has changed at rest is found before it is asked for.
//!
//! All of a file is looked at, past the page cache: what a disk holds is not what a cache remembers of it, and
//! what consumers have in the cache stays there. A sealed segment is looked through frame by frame, or block by
//! block once it was rewritten; nothing but the checksums there counts, so that what no reader would notice is
//! found too. What is damaged is noted as by a reader that came across it.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::ahead::Ahead;
use crate::damage::is_loss;
use crate::frame_reader::{FrameAt, FrameReader};
use crate::index::{FileKind, LoadError, check_block};
use crate::journal::Journal;
use crate::read_only::ReadOnly;
use crate::segment::{FIRST_FRAME, SegmentHeader};
use crate::shared::Shared;
use crate::snapshot::{self, OpenSnapshot};

/// A step ends once it has looked at as much.
const STEP_BYTES: u64 = 256 << 10;

/// A pass over all that is stored.
#[derive(Debug)]
pub struct Scrub {
    shared: Arc<Shared>,
    left: VecDeque<Piece>,
    current: Option<Looking>,
    bytes: u64,
    of_bytes: u64,
    bad_snapshots: u32,
}

#[derive(Clone, Copy, Debug)]
enum Piece {
    Snapshot { index: u64 },
    Segment { segment: u32, generation: u32, bytes: u64 },
}

/// The segment that is being looked through.
#[derive(Debug)]
struct Looking {
    segment: u32,
    generation: u32,
    bytes: u64,
    file: ReadOnly<Ahead>,
    position: u64,
}

/// What came of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scrubbed {
    /// That were read.
    pub bytes: u64,
}

impl Journal {
    /// Begins to look through the snapshots and the segments that are there now. Blocking.
    pub fn scrub(&self) -> io::Result<Scrub> {
        let shared = Arc::clone(self.shared());
        let mut left = VecDeque::new();
        let mut of_bytes = 0;
        for index in snapshot::list(&*shared.disk, &shared.dir)? {
            of_bytes += self.snapshot_bytes();
            left.push_back(Piece::Snapshot { index });
        }
        for info in self.segments().into_iter().filter(|it| it.sealed && it.live_bytes > 0) {
            let (segment, generation, bytes) = (info.id, info.generation, info.file_bytes);
            of_bytes += bytes;
            left.push_back(Piece::Segment { segment, generation, bytes });
        }
        Ok(Scrub { shared, left, current: None, bytes: 0, of_bytes, bad_snapshots: 0 })
    }
}

impl Scrub {
    /// About how much was looked at, of how much.
    pub fn progress(&self) -> (u64, u64) {
        (self.bytes, self.of_bytes.max(self.bytes))
    }

    /// Snapshots that cannot be read: others are to be written.
    pub fn bad_snapshots(&self) -> u32 {
        self.bad_snapshots
    }

    /// Looks a little further: at some frames or blocks, or one snapshot. `None`: that was all. Blocking.
    pub fn step(&mut self) -> Option<Scrubbed> {
        let mut bytes = 0;
        while bytes < STEP_BYTES {
            let read = match self.current.take() {
                Some(looking) => self.look(looking),
                None => match self.left.pop_front() {
                    None if bytes == 0 => return None,
                    None => break,
                    Some(Piece::Snapshot { index }) => self.look_at_snapshot(index),
                    Some(Piece::Segment { segment, generation, bytes }) => {
                        self.begin(segment, generation, bytes)
                    }
                },
            };
            bytes += read;
        }
        self.bytes += bytes;
        Some(Scrubbed { bytes })
    }

    fn look_at_snapshot(&mut self, index: u64) -> u64 {
        let (disk, dir) = (&*self.shared.disk, &self.shared.dir);
        match OpenSnapshot::open_uncached(disk, dir, index) {
            Ok(opened) => opened.bytes(),
            // A newer one took its place.
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

    /// One that is not the newest would be fallen back on, which it is no good for.
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

    /// Looks at the sidecar, and opens the segment.
    fn begin(&mut self, segment: u32, generation: u32, bytes: u64) -> u64 {
        let index = &self.shared.index;
        if !index.is_current(segment, generation) {
            return bytes;
        }
        let read = index.look_at_sidecar(segment, generation);
        let path = index.files().path(FileKind::Segment, segment, generation);
        match self.shared.disk.open_uncached(&path) {
            Ok(file) => {
                let position = if generation > 1 { 0 } else { FIRST_FRAME };
                let file = Ahead::read(file);
                self.current = Some(Looking { segment, generation, bytes, file, position });
            }
            Err(error) => drop(index.is_unreadable(segment, generation, 0, error)),
        }
        read
    }

    fn look(&mut self, mut looking: Looking) -> u64 {
        let Looking { segment, generation, position, .. } = looking;
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
            Err(error) => {
                // Only what says so for certain; a segment that was deleted meanwhile is none.
                if let LoadError::Read(error) =
                    index.is_unreadable(segment, generation, position, error)
                {
                    tracing::debug!(%error, "a segment is not looked through");
                }
                looking.bytes.saturating_sub(position)
            }
        }
    }

    /// Where the frame ends that begins there; `None` at the end of the log's part of the segment.
    fn next_frame(&self, looking: &Looking) -> io::Result<Option<u64>> {
        let Looking { segment, ref file, position, .. } = *looking;
        let damaged = |what: &str| Err(io::Error::new(io::ErrorKind::InvalidData, what.to_owned()));
        let Some(header) = SegmentHeader::read(file)? else {
            return damaged("its header is damaged");
        };
        let mut frames = FrameReader::new(file, segment, Some(header.salt))?;
        if let FrameAt::Complete(header) = frames.at(position)? {
            return Ok(Some(header.end()));
        }
        if let Some(later) = frames.search(position)?.complete {
            return damaged(&format!("what comes before {later} is not a frame"));
        }
        match self.shared.index.last_live_end(segment, 1) {
            Some(end) if end > position => damaged("the frames end before the last batch"),
            _ => Ok(None),
        }
    }
}
