//! Reads the log frame by frame, from the position in the snapshot to its end.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::candidate::Candidate;
use super::{Sizes, io_error};
use crate::entry::EntryId;
use crate::error::OpenError;
use crate::frame::reader::FrameAt;
use crate::frame::{self, FrameHeader};
use crate::index::files::{FileKind, file_name, parse_name};
use crate::log::{LogPosition, LogState, Slot};
use crate::segment::{self, FIRST_FRAME, FullSegment, OpenSegment, SegmentHeader};
use crate::snapshot::{self, SnapshotFile};
use crate::stats::{RecoveryReport, TornTail};
use crate::vote;
use world::World;

pub(super) struct SegmentWalk<'a> {
    pub(super) world: &'a World,
    pub(super) dir: &'a Path,
    pub(super) segments: BTreeMap<u32, Candidate>,
    pub(super) scan_from: LogPosition,
    pub(super) at: LogPosition,
    /// The directory was empty, and the first segment was just created.
    pub(super) fresh: bool,
    /// The snapshot covers the entries up to here.
    pub(super) covered: Option<u64>,
    /// The same, if the log retains entries that the snapshot covers.
    kept: Option<EntryId>,
    pub(super) last_index: u64,
    /// Segment and start of the last frame read.
    pub(super) last_frame: Option<(u32, u64)>,
    pub(super) log: LogState,
    pub(super) full: Vec<FullSegment>,
    pub(super) replaced: Vec<(u64, Slot)>,
    pub(super) bytes: u64,
    /// Ranges to overwrite with zeros, by segment.
    pub(super) torn: Vec<TornTail>,
    pub(super) report: RecoveryReport,
}

impl<'a> SegmentWalk<'a> {
    pub(super) fn new(
        world: &'a World,
        dir: &'a Path,
        sizes: Sizes,
        snapshot: Option<&SnapshotFile>,
        names: &[String],
    ) -> Result<Self, OpenError> {
        let scan_from = snapshot.map_or(LogPosition::START, |snapshot| snapshot.scan_from);
        let covered = snapshot.map(|snapshot| snapshot.id.index);
        let purged = snapshot.map(|snapshot| snapshot.id);
        let (purged, kept) = if sizes.keep_log { (None, purged) } else { (purged, None) };
        let mut walk = Self {
            world,
            dir,
            segments: BTreeMap::new(),
            scan_from,
            at: scan_from,
            fresh: false,
            covered,
            kept,
            last_index: covered.unwrap_or(0),
            last_frame: None,
            log: LogState::new(purged, scan_from, sizes.tail_cache_bytes),
            full: Vec::new(),
            replaced: Vec::new(),
            bytes: 0,
            torn: Vec::new(),
            report: RecoveryReport { snapshot: covered, ..RecoveryReport::default() },
        };
        walk.find_segments(names)?;
        Ok(walk)
    }

    /// Opens the segments from the starting position on and checks that none is missing.
    fn find_segments(&mut self, names: &[String]) -> Result<(), OpenError> {
        let segments = names.iter().filter_map(|name| match parse_name(name)? {
            (FileKind::Segment, id, generation) => Some((id, generation)),
            (FileKind::Sidecar, ..) => None,
        });
        let segments: Vec<(u32, u32)> = segments.collect();
        self.report.segments = segments.len();
        let unreadable = names.iter().any(|name| snapshot::parse_name(name).is_some());
        let voted = names.iter().any(|name| name == vote::NAME);
        if segments.is_empty() && !unreadable && !voted {
            let made = segment::create_bare(self.world, self.dir, 1)
                .map_err(|source| io_error("make a segment in", self.dir.to_owned(), source))?;
            self.report.segments = 1;
            let OpenSegment { header, file, file_bytes } = made;
            let candidate =
                Candidate { path: self.path(1), file, header: Some(header), file_bytes };
            self.segments.insert(1, candidate);
            self.fresh = true;
            return Ok(());
        }
        let first = self.scan_from.segment;
        for &(id, _) in segments.iter().filter(|(id, generation)| *id >= first && *generation == 1)
        {
            let path = self.path(id);
            let open_error = |source| io_error("read", path.clone(), source);
            let file = self.world.disk.open(&path, false).map_err(open_error)?;
            let header = SegmentHeader::read(&*file).map_err(open_error)?;
            let file_bytes = file.len().map_err(open_error)?;
            self.segments.insert(id, Candidate { path: path.clone(), file, header, file_bytes });
        }
        let mut expected = first;
        for &id in self.segments.keys() {
            if id != expected {
                break;
            }
            expected += 1;
        }
        let last = self.segments.keys().next_back().copied();
        if last.is_some_and(|last| last + 1 == expected) {
            return Ok(());
        }
        let what = match self.covered {
            None if unreadable => "it is missing, and no snapshot can be read to start without it",
            _ => "it is missing, and entries of the log are in it. Restore it from a copy",
        };
        Err(OpenError::Unusable { file: self.path(expected), what: what.to_owned() })
    }

    pub(super) fn path(&self, segment: u32) -> PathBuf {
        self.dir.join(file_name(FileKind::Segment, segment, 1))
    }

    /// Reads frames until the log ends.
    pub(super) fn run(&mut self) -> Result<(), OpenError> {
        while !self.fresh && self.step()? {}
        if let Some(covered) = self.kept {
            self.replaced.extend(self.log.recovered(covered));
        }
        self.report.last_index = self.log.last_id().map(|id| id.index);
        Ok(())
    }

    /// Applies one row of the table; `false` at the end of the log.
    fn step(&mut self) -> Result<bool, OpenError> {
        let LogPosition { segment, position, previous } = self.at;
        let candidate = &self.segments[&segment];
        if let Some(fault) = candidate.fault(segment) {
            return Err(OpenError::Unusable { file: candidate.path.clone(), what: fault });
        }
        let read_error = |source| io_error("read", candidate.path.clone(), source);
        let mut frames = candidate.frames(segment).map_err(read_error)?;
        // Reads all frames of one segment in one loop, to keep the buffer.
        let mut position = u64::from(position);
        let mut previous = previous;
        let found = loop {
            match frames.at(position).map_err(read_error)? {
                FrameAt::Complete(header) if header.previous == previous => {
                    let content = frames.content();
                    let taken = take_frame(
                        &mut self.log,
                        &mut self.replaced,
                        self.covered.filter(|_| self.kept.is_none()),
                        &header,
                        content,
                    );
                    if let Err(what) = taken {
                        let what = format!("{what} in a frame that is whole");
                        return Err(self.damaged(segment, position, what));
                    }
                    self.last_index = self.last_index.max(self.log.last_index());
                    self.report.frames += 1;
                    self.report.entries += u64::from(header.entries);
                    self.bytes += u64::from(header.bytes);
                    self.last_frame = Some((segment, position));
                    position = header.end();
                    previous = header.checksum();
                }
                other => break other,
            }
        };
        drop(frames);
        self.at = LogPosition { segment, position: position as u32, previous };
        self.log.set_end(self.at);
        if let FrameAt::Complete(_) = found {
            let what = "the frame here does not follow the one before it".to_owned();
            return Err(self.damaged(segment, position, what));
        }
        if self.next_segment_follows()? {
            let file_bytes = self.segments[&segment].file_bytes;
            self.full.push(FullSegment { segment, last_index: self.last_index, file_bytes });
            self.at = LogPosition { segment: segment + 1, position: FIRST_FRAME as u32, previous };
            return Ok(true);
        }
        self.end_here(found)?;
        Ok(false)
    }

    /// Whether the next segment's first frame, complete or torn, follows the last one read.
    fn next_segment_follows(&self) -> Result<bool, OpenError> {
        let id = self.at.segment + 1;
        let Some(next) = self.segments.get(&id) else { return Ok(false) };
        let read_error = |source| io_error("read", next.path.clone(), source);
        let mut frames = next.frames(id).map_err(read_error)?;
        let first = frames.at(FIRST_FRAME).map_err(read_error)?;
        // A torn first frame was never acknowledged: the log ends here then.
        Ok(matches!(first, FrameAt::Complete(header) if header.previous == self.at.previous))
    }

    pub(super) fn damaged(&self, segment: u32, position: u64, what: String) -> OpenError {
        let (dir, file) = (self.dir.to_owned(), self.path(segment));
        OpenError::Damaged { dir, file, position, what }
    }
}

/// Appends a frame's entries to the log.
fn take_frame(
    log: &mut LogState,
    replaced: &mut Vec<(u64, Slot)>,
    covered: Option<u64>,
    header: &FrameHeader,
    content: &[u8],
) -> Result<(), String> {
    let frame = LogPosition {
        segment: header.segment,
        position: header.position,
        previous: header.previous,
    };
    for (at, layout) in frame::layouts(content) {
        let index = layout.id.index;
        if covered.is_some_and(|covered| index <= covered) {
            continue;
        }
        let slot = Slot {
            term: layout.id.term,
            leader: layout.id.leader,
            position: header.position + (frame::FRAME_HEADER_BYTES + at) as u32,
            len: layout.len as u32,
            frame,
        };
        if !log.takes(index) {
            let last = log.last_index();
            let cut = log.placed_from(index);
            // Truncated before the snapshot was taken, and written after it: the entries between
            // are in earlier frames, as is the truncated end. The replacing entries come later.
            if cut.is_empty() && log.is_empty() && covered.is_some() {
                replaced.push((index, slot));
                continue;
            }
            if cut.is_empty() {
                return Err(format!("entry {index} follows entry {last}"));
            }
            replaced.extend(cut);
        }
        log.found(index, slot);
    }
    Ok(())
}
