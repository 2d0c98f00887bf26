//! The truth table of recovery (`src/recover`, docs/internals/recovery.md), row by row. Each test
//! is named after its row. A refused journal stays unchanged.

#[allow(unreachable_pub)]
#[path = "../common/mod.rs"]
mod common;
mod files;
mod frames;

use std::io::IoSlice;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use common::*;
use journal::inspect::{FrameInfo, Frames, Verdict};
use journal::{Entry, EntryId, Journal, OpenError, OpenedJournal};
use world::{Disk, SimulatedDisk};

pub(crate) fn path(name: &str) -> PathBuf {
    Path::new(DIR).join(name)
}

pub(crate) fn segment_path(segment: u32) -> PathBuf {
    path(&format!("{segment:08}.seg"))
}

pub(crate) fn frames(disk: &SimulatedDisk, segment: u32) -> Vec<FrameInfo> {
    let frames = Frames::open(disk, Path::new(DIR), segment).unwrap();
    frames.map(Result::unwrap).filter(|frame| frame.verdict == Verdict::Complete).collect()
}

/// One frame per entry.
pub(crate) fn write_some(
    journal: &Journal,
    term: u64,
    indexes: std::ops::RangeInclusive<u64>,
) -> Vec<Entry> {
    let entries: Vec<Entry> = indexes.map(|i| entry(term, i, i - 1, 3000)).collect();
    entries.iter().for_each(|entry| append_durably(journal, vec![entry.clone()]));
    entries
}

/// A closed journal with one frame for each of `count` entries; about 20 fill a segment.
pub(crate) fn written(count: u64) -> (SimulatedDisk, Vec<Entry>) {
    let disk = SimulatedDisk::new();
    let journal = open(&disk).journal;
    let entries = write_some(&journal, 1, 1..=count);
    journal.close();
    (disk.killed(), entries)
}

/// The same, once the preallocated segment exists.
pub(crate) fn written_and_ahead(count: u64, ahead: &str) -> (SimulatedDisk, Vec<Entry>) {
    let disk = SimulatedDisk::new();
    let journal = open(&disk).journal;
    let entries = write_some(&journal, 1, 1..=count);
    wait_for_files(&disk, ahead, 1);
    journal.close();
    (disk.killed(), entries)
}

/// Waits for background work that closing does not await: the next segment, sidecars.
pub(crate) fn wait_for_files(disk: &SimulatedDisk, ending: &str, count: usize) {
    let are_there = |name: &String| name.ends_with(ending);
    eventually(&format!("{count} files {ending}"), || {
        disk.list(Path::new(DIR)).unwrap().iter().filter(|name| are_there(name)).count() >= count
    });
}

/// Another disk with the same files.
pub(crate) fn copy(disk: &SimulatedDisk) -> SimulatedDisk {
    let twin = SimulatedDisk::new();
    twin.create_dir(Path::new(DIR)).unwrap();
    for name in disk.list(Path::new(DIR)).unwrap() {
        let content = disk.content(&path(&name)).unwrap();
        let file = twin.open(&path(&name), true).unwrap();
        file.write_at(&mut [IoSlice::new(&content)], 0).unwrap();
        file.sync().unwrap();
    }
    twin.sync_dir(Path::new(DIR)).unwrap();
    twin
}

pub(crate) fn files(disk: &SimulatedDisk) -> Vec<(String, Vec<u8>)> {
    let mut names = disk.list(Path::new(DIR)).unwrap();
    names.sort();
    let content = |name: String| (name.clone(), disk.content(&path(&name)).unwrap());
    names.into_iter().map(content).collect()
}

/// The opening fails, and changes nothing.
pub(crate) fn refused(disk: &SimulatedDisk) -> OpenError {
    let before = files(disk);
    let error = try_open(disk, small()).unwrap_err();
    assert!(files(disk) == before, "{error}");
    error
}

pub(crate) fn refused_as_damaged(disk: &SimulatedDisk, segment: u32, place: u64) {
    match refused(disk) {
        OpenError::Damaged { file, position, .. } => {
            assert_eq!((file, position), (segment_path(segment), place));
        }
        other => panic!("{other}"),
    }
}

pub(crate) fn refused_as_unusable(disk: &SimulatedDisk, name: &str, why: &str) {
    match refused(disk) {
        OpenError::Unusable { file, what } => {
            assert_eq!(file, path(name));
            assert!(what.contains(why), "{what}");
        }
        other => panic!("{other}"),
    }
}

/// Opens with exactly these entries, accepts more, and still has all after another crash.
pub(crate) fn opens_with(disk: &SimulatedDisk, entries: &[Entry]) -> OpenedJournal {
    let opened = open(disk);
    assert!(all(&opened.journal) == entries);
    let last = entries.len() as u64;
    let mut expected = entries.to_vec();
    expected.extend(write_some(&opened.journal, 2, last + 1..=last + 3));
    opened.journal.close();
    let again = open(&copy(disk));
    assert!(all(&again.journal) == expected);
    assert_eq!(again.report.torn_tail, None);
    opened
}
