//! Reads a journal's directory without opening the journal: `postroad journal inspect`.
//!
//! Reads only, takes no lock, and continues behind damage, which recovery would refuse. It may read
//! a journal that is in use; its end may then appear torn.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use crate::address::Address;
use crate::entry::{EntryId, EntryKind};
use crate::frame::reader::{FrameAt, FrameReader};
use crate::frame::{self, FRAME_HEADER_BYTES, FrameHeader};
use crate::index::files::{FileKind, file_name, parse_name};
use crate::received::marker;
use crate::segment::{FIRST_FRAME, SegmentHeader};
use crate::snapshot;
use crate::vote;
use world::disk::{self, Disk, DiskFile};

/// All files of a journal, by kind.
#[derive(Clone, Debug, Default)]
pub struct Inspection {
    /// Ascending by id.
    pub segments: Vec<SegmentFile>,
    /// Newest first.
    pub snapshots: Vec<SnapshotFileInfo>,
    pub vote: Option<VoteFile>,
    /// Files that do not belong to the journal, or drafts that the next opening removes.
    pub others: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct SegmentFile {
    pub id: u32,
    /// 1 as the log wrote it: only then it has frames. Rewritten ones hold live batches.
    pub generation: u32,
    pub path: PathBuf,
    pub file_bytes: u64,
    /// Its own header is present and right (not checked for rewritten segments).
    pub header_sound: bool,
    pub has_sidecar: bool,
}

#[derive(Clone, Debug)]
pub struct SnapshotFileInfo {
    pub path: PathBuf,
    pub file_bytes: u64,
    /// `None`: it is damaged.
    pub content: Option<SnapshotContent>,
}

#[derive(Clone, Copy, Debug)]
pub struct SnapshotContent {
    pub id: EntryId,
    /// Recovery reads the log from here on.
    pub scan_segment: u32,
    pub scan_position: u32,
    pub meta_bytes: usize,
    pub machine_bytes: usize,
    pub index_bytes: usize,
}

#[derive(Clone, Debug)]
pub struct VoteFile {
    pub path: PathBuf,
    /// `None`: it is damaged.
    pub vote: Option<Bytes>,
}

/// A frame, or the bytes found in place of one.
#[derive(Clone, Debug)]
pub struct FrameInfo {
    pub segment: u32,
    pub position: u64,
    /// Length of the frame, or of the bytes in place of one.
    pub bytes: u64,
    pub verdict: Verdict,
    /// Entries of a complete frame.
    pub entries: Vec<EntryInfo>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Complete, and it follows the frame before.
    Complete,
    /// Complete, but frames before it are missing.
    Stranger,
    /// Incomplete, and nothing follows in this segment: cut short by a crash, or damaged.
    Torn,
    /// Incomplete or missing, while complete frames follow: damaged.
    Damaged,
    /// Left over from a former use of the blocks.
    Stale,
    /// End of the frames in this segment.
    Unused,
}

#[derive(Clone, Debug)]
pub struct EntryInfo {
    pub id: EntryId,
    pub kind: EntryKind,
    pub position: u32,
    pub bytes: u32,
    /// For the machine or for consensus, according to `kind`.
    pub head: Bytes,
    /// Stream and address of each body.
    pub bodies: Vec<(u64, Address)>,
}

/// Lists the journal files in `dir`.
pub fn inspect(disk: &dyn Disk, dir: &Path) -> io::Result<Inspection> {
    let mut found = Inspection::default();
    let mut names = disk.list(dir)?;
    names.sort_unstable();
    for name in &names {
        let path = dir.join(name);
        if let Some((kind, id, generation)) = parse_name(name) {
            if kind == FileKind::Segment {
                let has_sidecar = names.contains(&file_name(FileKind::Sidecar, id, generation));
                found.segments.push(segment(disk, path, id, generation, has_sidecar)?);
            }
        } else if let Some(index) = snapshot::parse_name(name) {
            found.snapshots.push(snapshot_info(disk, dir, path, index)?);
        } else if name == vote::NAME {
            let vote = vote::decode(&disk::read_whole(disk, &path)?);
            found.vote = Some(VoteFile { path, vote });
        } else if name != "LOCK" && name != marker::NAME {
            found.others.push(name.clone());
        }
    }
    found.segments.sort_unstable_by_key(|segment| (segment.id, segment.generation));
    found.snapshots.reverse();
    Ok(found)
}

fn segment(
    disk: &dyn Disk,
    path: PathBuf,
    id: u32,
    generation: u32,
    has_sidecar: bool,
) -> io::Result<SegmentFile> {
    let file = disk.open(&path, false)?;
    let file_bytes = file.len()?;
    let header = SegmentHeader::read(&*file)?;
    let header_sound = generation > 1 || header.is_some_and(|header| header.id == id);
    Ok(SegmentFile { id, generation, path, file_bytes, header_sound, has_sidecar })
}

fn snapshot_info(
    disk: &dyn Disk,
    dir: &Path,
    path: PathBuf,
    index: u64,
) -> io::Result<SnapshotFileInfo> {
    let file_bytes = disk.open(&path, false)?.len()?;
    let content = snapshot::read(disk, dir, index)?.map(|found| SnapshotContent {
        id: found.id,
        scan_segment: found.scan_from.segment,
        scan_position: found.scan_from.position,
        meta_bytes: found.meta.len(),
        machine_bytes: found.machine.len(),
        index_bytes: found.table.len(),
    });
    Ok(SnapshotFileInfo { path, file_bytes, content })
}

/// The machine's part of a sound snapshot.
pub fn snapshot_machine(
    disk: &dyn Disk,
    dir: &Path,
    snapshot: &SnapshotContent,
) -> io::Result<Option<Bytes>> {
    Ok(snapshot::read(disk, dir, snapshot.id.index)?.map(|found| found.machine))
}

/// The frames of a segment of generation 1, in order.
#[derive(Debug)]
pub struct Frames {
    file: Arc<dyn DiskFile>,
    segment: u32,
    salt: Option<u32>,
    position: u64,
    /// Checksum of the frame before; unknown at the beginning.
    previous: Option<u32>,
    done: bool,
}

impl Frames {
    pub fn open(disk: &dyn Disk, dir: &Path, segment: u32) -> io::Result<Self> {
        let file = disk.open(&dir.join(file_name(FileKind::Segment, segment, 1)), false)?;
        let header = SegmentHeader::read(&*file)?.filter(|header| header.id == segment);
        Ok(Self {
            file,
            segment,
            salt: header.map(|header| header.salt),
            position: FIRST_FRAME,
            previous: None,
            done: false,
        })
    }

    fn step(&mut self) -> io::Result<FrameInfo> {
        let file = self.file.clone();
        let mut frames = FrameReader::new(&*file, self.segment, self.salt)?;
        let position = self.position;
        let found = frames.at(position)?;
        if let FrameAt::Complete(header) = found {
            let follows = self.previous.is_none_or(|previous| header.previous == previous);
            self.previous = Some(header.checksum());
            self.position = header.end();
            let verdict = if follows { Verdict::Complete } else { Verdict::Stranger };
            let entries = entries(&header, frames.content());
            let bytes = header.bytes.into();
            return Ok(FrameInfo { segment: self.segment, position, bytes, verdict, entries });
        }
        let search = frames.search(position)?;
        self.position = search.complete.unwrap_or(search.used_end);
        self.done = search.complete.is_none();
        let verdict = match found {
            _ if search.complete.is_some() => Verdict::Damaged,
            FrameAt::Stale => Verdict::Stale,
            _ if !frames.may_be_torn(position)? => Verdict::Damaged,
            _ if search.used_end > position => Verdict::Torn,
            _ => Verdict::Unused,
        };
        let end = if verdict == Verdict::Unused { file.len()? } else { self.position };
        let bytes = end.saturating_sub(position);
        Ok(FrameInfo { segment: self.segment, position, bytes, verdict, entries: Vec::new() })
    }
}

impl Iterator for Frames {
    type Item = io::Result<FrameInfo>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let step = self.step();
        self.done |= step.is_err();
        Some(step)
    }
}

fn entries(header: &FrameHeader, content: &[u8]) -> Vec<EntryInfo> {
    let entries = frame::layouts(content).map(|(at, layout)| {
        let position = header.position + (FRAME_HEADER_BYTES + at) as u32;
        EntryInfo {
            id: layout.id,
            kind: layout.kind,
            position,
            bytes: layout.len as u32,
            head: Bytes::copy_from_slice(&content[at..][layout.head.clone()]),
            bodies: layout.addresses(&content[at..], header.segment, position).collect(),
        }
    });
    entries.collect()
}
