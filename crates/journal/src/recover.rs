//! Opening a journal: what is on the disk becomes the log, or the journal is not opened.
//!
//! Everything rests on one rule of the writer: frame N+1 is written only after the sync of frame N
//! returned. So after a crash at most one frame is torn, it is the last, and nobody was told that
//! it is durable: it is cut. A gap that something complete follows is damage instead: what is
//! missing was acknowledged. It is never cut; the journal is refused with file and position.
//!
//! Frames are read from the place that the newest readable snapshot names. At each place where a
//! frame could begin:
//!
//! | row | header here | follows the frame before | content | next segment's first frame follows | complete frame later | decision |
//! |-----|-------------|-----|----------|-----|-----|--------|
//! | use       | own     | yes | complete | -   | -   | use it, go on behind it |
//! | stranger  | own     | no  | complete | -   | -   | **refuse**: a frame before it is missing |
//! | next      | any other case ||       | yes | -   | go on in the next segment |
//! | torn      | own     | -   | not complete | no | no | cut: the crash came while it was written |
//! | headless  | garbage, or none but garbage behind || | no | no | cut: the same, its first block was lost |
//! | end       | none    | -   | -        | no  | no  | the end of the log |
//! | stale     | of another segment or place ||     | no | no | the end: the blocks had a former use |
//! | damage    | any of the last four ||            | no | yes | **refuse**: acknowledged entries would be lost |
//!
//! "Own" means: sound, and naming this segment, this place and this segment's salt. And of files:
//!
//! | row | what | decision |
//! |-----|------|----------|
//! | fresh     | no segment, no snapshot, no vote | make segment 1 |
//! | beginless | no snapshot to start from, and segment 1 is missing | **refuse** |
//! | missing   | a segment from the starting place on is missing | **refuse** |
//! | short     | a segment is shorter than it was made | **refuse** |
//! | nameless  | a segment's own header is damaged | **refuse** |
//! | ahead     | an empty segment behind the end of the log | kept as the next one; a second one is removed |
//! | emptied   | no segment, but a vote | **refuse**: the log was lost, an empty one must not vote |
//! | unread    | a snapshot cannot be read | the one before, if the log still goes back to it; else **refuse** |
//! | draft     | `*.tmp` | removed |
//! | older     | the last segment has a header of version 1 | go on in the next one; an empty one gets a header of version 2 |
//! | below     | a segment before the starting place | not read; the index checks that it is there |
//!
//! What is found may be only in the page cache (the process was killed): names are synced before
//! anything is read, and the last segment before anything in it counts.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::commit::WriteEnd;
use crate::error::OpenError;
use crate::frame::{self, BLOCK, FrameHeader};
use crate::index::RunTable;
use crate::index::files::{FileKind, file_name, parse_name};
use crate::log::{LogPosition, LogState, Slot};
use crate::segment::{self, FIRST_FRAME, OpenSegment, SegmentHeader};
use crate::snapshot::{self, SnapshotFile};
use crate::stats::{RecoveryReport, TornTail};
use crate::vote;
use crate::walk::{Found, FrameReader, Search};
use world::{Disk, DiskFile, Instant, World};

/// What there is once recovery is done.
#[derive(Debug)]
pub(crate) struct Recovered {
    pub(crate) log: LogState,
    pub(crate) end: WriteEnd,
    /// The segment that was made ahead.
    pub(crate) spare: Option<OpenSegment>,
    pub(crate) snapshot: Option<SnapshotFile>,
    pub(crate) table: RunTable,
    pub(crate) scan_from: LogPosition,
    /// Segments that the log went beyond while it was read.
    pub(crate) full: Vec<Full>,
    /// Entries that later ones replaced.
    pub(crate) replaced: Vec<(u64, Slot)>,
    /// Bytes of the frames read.
    pub(crate) bytes: u64,
    pub(crate) report: RecoveryReport,
}

/// A segment that the log has left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Full {
    pub(crate) segment: u32,
    pub(crate) last_index: u64,
    pub(crate) file_bytes: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) segment_bytes: u64,
    pub(crate) frame_bytes_max: usize,
    pub(crate) tail_cache_bytes: usize,
}

/// The directory must be locked.
pub(crate) fn recover(world: &World, dir: &Path, sizes: Sizes) -> Result<Recovered, OpenError> {
    let disk = &*world.disk;
    let dir_error = |operation| move |source| io_error(operation, dir.to_owned(), source);
    let names = disk.list(dir).map_err(dir_error("list"))?;
    for draft in names.iter().filter(|name| name.ends_with(".tmp")) {
        disk.remove(&dir.join(draft)).map_err(dir_error("remove drafts in"))?;
    }
    // A killed process may have left names that only the page cache knows: a vote, a snapshot, a
    // segment. From here on they are relied upon.
    disk.sync_dir(dir).map_err(dir_error("sync"))?;
    let begun = Instant::now();
    let (snapshot, table) = newest_snapshot(disk, dir)?;
    let snapshot_took = begun.elapsed();
    let mut walk = Walk::new(world, dir, sizes, snapshot.as_ref(), &names)?;
    walk.run()?;
    walk.report.snapshot_took = snapshot_took;
    walk.report.log_took = begun.elapsed() - snapshot_took;
    let spare = walk.settle()?;
    let end = walk.write_end()?;
    walk.report.stored_bytes = stored_bytes(disk, dir, &names).map_err(dir_error("measure"))?;
    let Walk { log, full, replaced, bytes, report, scan_from, .. } = walk;
    Ok(Recovered { log, end, spare, snapshot, table, scan_from, full, replaced, bytes, report })
}

/// The newest snapshot that can be read, and its run table.
fn newest_snapshot(
    disk: &dyn Disk,
    dir: &Path,
) -> Result<(Option<SnapshotFile>, RunTable), OpenError> {
    let indexes =
        snapshot::list(disk, dir).map_err(|source| io_error("list", dir.to_owned(), source))?;
    for index in indexes {
        let path = dir.join(snapshot::file_name(index));
        let found = snapshot::read(disk, dir, index)
            .map_err(|source| io_error("read", path.clone(), source))?;
        let Some(found) = found else {
            tracing::error!(file = %path.display(), "a snapshot is damaged, trying the one before");
            continue;
        };
        match RunTable::decode(&found.table) {
            Ok(table) => return Ok((Some(found), table)),
            Err(error) => {
                tracing::error!(file = %path.display(), %error, "a snapshot makes no sense");
            }
        }
    }
    Ok((None, RunTable::default()))
}

fn stored_bytes(disk: &dyn Disk, dir: &Path, names: &[String]) -> io::Result<u64> {
    let mut bytes = 0;
    for name in names {
        if matches!(parse_name(name), Some((FileKind::Segment, _, _))) {
            // The walk may have removed it.
            bytes += disk.open(&dir.join(name), false).map_or(Ok(0), |file| file.len())?;
        }
    }
    Ok(bytes)
}

/// A segment that frames may be read from.
#[derive(Debug)]
struct Candidate {
    path: PathBuf,
    file: Arc<dyn DiskFile>,
    header: Option<SegmentHeader>,
    file_bytes: u64,
}

impl Candidate {
    /// Why it cannot be used; `None` when it can.
    fn fault(&self, id: u32) -> Option<String> {
        match self.header {
            None => Some("its header is damaged".to_owned()),
            Some(header) if header.id != id => {
                Some(format!("its header is that of segment {}", header.id))
            }
            Some(header) if self.file_bytes < header.bytes => {
                let has = self.file_bytes;
                Some(format!("it has {has} bytes and was made with {}: cut short", header.bytes))
            }
            Some(_) => None,
        }
    }

    fn frames(&self, id: u32) -> io::Result<FrameReader<'_>> {
        // A header that is not this segment's says nothing about its salt.
        let own = self.header.filter(|header| header.id == id);
        FrameReader::new(&*self.file, id, own.map(|header| header.salt))
    }
}

struct Walk<'a> {
    world: &'a World,
    dir: &'a Path,
    sizes: Sizes,
    segments: BTreeMap<u32, Candidate>,
    scan_from: LogPosition,
    at: LogPosition,
    /// There was nothing, and the first segment has just been made.
    fresh: bool,
    /// Entries up to here are in the snapshot.
    covered: Option<u64>,
    last_index: u64,
    log: LogState,
    full: Vec<Full>,
    replaced: Vec<(u64, Slot)>,
    bytes: u64,
    /// What to overwrite with zeros, by segment.
    torn: Vec<TornTail>,
    report: RecoveryReport,
}

impl<'a> Walk<'a> {
    fn new(
        world: &'a World,
        dir: &'a Path,
        sizes: Sizes,
        snapshot: Option<&SnapshotFile>,
        names: &[String],
    ) -> Result<Self, OpenError> {
        let scan_from = snapshot.map_or(LogPosition::START, |snapshot| snapshot.scan_from);
        let covered = snapshot.map(|snapshot| snapshot.id.index);
        let mut walk = Self {
            world,
            dir,
            sizes,
            segments: BTreeMap::new(),
            scan_from,
            at: scan_from,
            fresh: false,
            covered,
            last_index: covered.unwrap_or(0),
            log: LogState::new(
                snapshot.map(|snapshot| snapshot.id),
                scan_from,
                sizes.tail_cache_bytes,
            ),
            full: Vec::new(),
            replaced: Vec::new(),
            bytes: 0,
            torn: Vec::new(),
            report: RecoveryReport { snapshot: covered, ..RecoveryReport::default() },
        };
        walk.find_segments(names)?;
        Ok(walk)
    }

    /// Opens the segments from the starting place on and checks that none is missing.
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
            let made = segment::create(self.world, self.dir, 1, self.sizes.segment_bytes)
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

    fn path(&self, segment: u32) -> PathBuf {
        self.dir.join(file_name(FileKind::Segment, segment, 1))
    }

    /// Reads frames until the log ends.
    fn run(&mut self) -> Result<(), OpenError> {
        while !self.fresh && self.step()? {}
        self.report.last_index = self.log.last_id().map(|id| id.index);
        Ok(())
    }

    /// One row of the table; `false` at the end of the log.
    fn step(&mut self) -> Result<bool, OpenError> {
        let LogPosition { segment, position, previous } = self.at;
        let candidate = &self.segments[&segment];
        if let Some(fault) = candidate.fault(segment) {
            return Err(OpenError::Unusable { file: candidate.path.clone(), what: fault });
        }
        let read_error = |source| io_error("read", candidate.path.clone(), source);
        let mut frames = candidate.frames(segment).map_err(read_error)?;
        // The frames of one segment in a row, to keep the buffer.
        let mut position = u64::from(position);
        let mut previous = previous;
        let found = loop {
            match frames.at(position).map_err(read_error)? {
                Found::Complete(header) if header.previous == previous => {
                    let content = frames.content();
                    let taken = take_frame(
                        &mut self.log,
                        &mut self.replaced,
                        self.covered,
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
                    position = header.end();
                    previous = header.checksum();
                }
                other => break other,
            }
        };
        drop(frames);
        self.at = LogPosition { segment, position: position as u32, previous };
        self.log.set_end(self.at);
        if let Found::Complete(_) = found {
            let what = "the frame here does not follow the one before it".to_owned();
            return Err(self.damaged(segment, position, what));
        }
        if self.next_segment_follows()? {
            let file_bytes = self.segments[&segment].file_bytes;
            self.full.push(Full { segment, last_index: self.last_index, file_bytes });
            self.at = LogPosition { segment: segment + 1, position: FIRST_FRAME as u32, previous };
            return Ok(true);
        }
        self.end_here(found)?;
        Ok(false)
    }

    /// Whether the next segment's first frame, whole or torn, follows the last one read.
    fn next_segment_follows(&self) -> Result<bool, OpenError> {
        let id = self.at.segment + 1;
        let Some(next) = self.segments.get(&id) else { return Ok(false) };
        let read_error = |source| io_error("read", next.path.clone(), source);
        let mut frames = next.frames(id).map_err(read_error)?;
        let first = frames.at(FIRST_FRAME).map_err(read_error)?;
        // A torn one was never acknowledged: then the log ends here as well as there.
        Ok(matches!(first, Found::Complete(header) if header.previous == self.at.previous))
    }

    /// The log ends here, unless something complete follows: then it is damaged here.
    fn end_here(&mut self, found: Found) -> Result<(), OpenError> {
        let LogPosition { segment, position, .. } = self.at;
        let mut torn = Vec::new();
        for (&id, candidate) in self.segments.range(segment..) {
            let from = if id == segment { u64::from(position) } else { FIRST_FRAME };
            let read_error = |source| io_error("read", candidate.path.clone(), source);
            let mut frames = candidate.frames(id).map_err(read_error)?;
            let Search { complete, used_end } = frames.search(from).map_err(read_error)?;
            if let Some(later) = complete {
                let next = format!("the next whole one begins at {later} of segment {id}");
                let first = if id == segment {
                    found
                } else {
                    frames.at(FIRST_FRAME).map_err(read_error)?
                };
                return Err(match first {
                    Found::Incomplete(header) if header.previous == self.at.previous => {
                        self.damaged(id, from, format!("a frame is damaged; {next}"))
                    }
                    _ => self.damaged(
                        segment,
                        position.into(),
                        format!("a frame is missing; {next}"),
                    ),
                });
            }
            if let Some(fault) = candidate.fault(id) {
                // No crash leaves that: it got its name when it was whole.
                let what = format!("{fault}. If it never held entries, remove it");
                return Err(OpenError::Unusable { file: candidate.path.clone(), what });
            }
            // What a former use of the blocks left is no torn frame.
            let stale = id == segment && found == Found::Stale;
            if used_end > from && !stale {
                torn.push(TornTail { segment: id, position: from, bytes: used_end - from });
            }
        }
        self.report.torn_tail = torn.first().copied();
        self.torn = torn;
        Ok(())
    }

    /// Cuts what is torn, makes the end of the log durable, and keeps one segment ahead of it.
    fn settle(&mut self) -> Result<Option<OpenSegment>, OpenError> {
        let active = self.at.segment;
        let ahead = self.segments.split_off(&(active + 1));
        for torn in std::mem::take(&mut self.torn) {
            let candidate = self.segments.get(&torn.segment).or_else(|| ahead.get(&torn.segment));
            let Some(candidate) = candidate else { continue };
            self.cut(candidate, torn).map_err(|source| {
                io_error("cut the torn tail of", candidate.path.clone(), source)
            })?;
        }
        let last = &self.segments[&active];
        if !self.fresh {
            last.file.sync().map_err(|source| io_error("sync", last.path.clone(), source))?;
        }

        let (mut spare, mut removed) = (None, false);
        for (id, candidate) in ahead {
            match candidate.header {
                Some(mut header) if id == active + 1 => {
                    let Candidate { file, file_bytes, path, .. } = candidate;
                    if !header.takes_entries() {
                        let io_error = |source| io_error("write the header of", path, source);
                        header.upgrade(&*file).map_err(io_error)?;
                    }
                    spare = Some(OpenSegment { header, file, file_bytes });
                }
                _ => {
                    // Made while the one before it was about to be used.
                    let remove_error = |source| io_error("remove", candidate.path.clone(), source);
                    self.world.disk.remove(&candidate.path).map_err(remove_error)?;
                    self.report.segments -= 1;
                    removed = true;
                }
            }
        }
        if removed {
            let sync_error = |source| io_error("sync", self.dir.to_owned(), source);
            self.world.disk.sync_dir(self.dir).map_err(sync_error)?;
        }
        Ok(spare)
    }

    /// Overwrites what a torn frame can have left, so that it is not found again. Nothing relies on
    /// that: its remains cannot pass for a frame that follows.
    fn cut(&self, candidate: &Candidate, torn: TornTail) -> io::Result<()> {
        let TornTail { segment, position, bytes } = torn;
        tracing::warn!(segment, position, bytes, "cut a frame that a crash left torn");
        let zeros = vec![0; (bytes as usize).min(2 * self.sizes.frame_bytes_max)];
        candidate.file.write_at(&mut [IoSlice::new(&zeros)], position)?;
        candidate.file.sync()
    }

    fn write_end(&mut self) -> Result<WriteEnd, OpenError> {
        let LogPosition { segment, position, previous } = self.at;
        let Some(Candidate { file, header: Some(mut header), file_bytes, path }) =
            self.segments.remove(&segment)
        else {
            let what = "its header is damaged".to_owned();
            return Err(OpenError::Unusable { file: self.path(segment), what });
        };
        let position = u64::from(position);
        // One with frames in it is left behind before the first is written.
        if !header.takes_entries() && position == FIRST_FRAME {
            let io_error = |source| io_error("write the header of", path, source);
            header.upgrade(&*file).map_err(io_error)?;
        }
        let segment = OpenSegment { header, file, file_bytes };
        Ok(WriteEnd { segment, position, previous, last_index: self.last_index })
    }

    fn damaged(&self, segment: u32, position: u64, what: String) -> OpenError {
        let (dir, file) = (self.dir.to_owned(), self.path(segment));
        OpenError::Damaged { dir, file, position, what }
    }
}

/// Puts a frame's entries into the log.
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
        if !log.takes(index) {
            let last = log.last_index();
            let cut = log.placed_from(index);
            if cut.is_empty() {
                return Err(format!("entry {index} follows entry {last}"));
            }
            replaced.extend(cut);
        }
        let slot = Slot {
            term: layout.id.term,
            leader: layout.id.leader,
            position: header.position + (frame::FRAME_HEADER_BYTES + at) as u32,
            len: layout.len as u32,
            frame,
        };
        log.found(index, slot);
    }
    Ok(())
}

fn io_error(operation: &'static str, path: PathBuf, source: io::Error) -> OpenError {
    OpenError::Io { operation, path, source }
}

// Cutting writes whole blocks from where a frame would begin.
const _: () = assert!((FIRST_FRAME as usize).is_multiple_of(BLOCK));
