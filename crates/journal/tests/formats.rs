//! Compatibility: stored directories of former versions are opened, served and appended to.
//!
//! `cargo test -p journal --test formats write_a_directory -- --ignored` writes a directory of the
//! current version to `tests/fixtures/new.journal`. Run it before a format changes, and keep the
//! directory under the version's name.

#[allow(unreachable_pub)]
mod common;

use std::collections::BTreeMap;
use std::path::Path;

use bytes::Bytes;
use common::*;
use journal::inspect::Frames;
use journal::{Body, Entry, EntryId, EntryKind, Journal};
use world::{Disk, SimulatedDisk};

const STREAMS: u64 = 4;
/// The snapshot is taken after this entry.
const SNAPSHOT_AT: u64 = 60;
const LAST: u64 = 75;
/// Refused bodies, by entry and place in it.
const REFUSED: [(u64, usize); 4] = [(3, 1), (17, 0), (33, 0), (66, 1)];
const VOTE: &[u8] = b"term 3, for node 1";

/// Batch `place` of entry `index`: each entry has one of two streams, one offset each.
fn body(index: u64, place: usize) -> Body {
    let stream = (index + place as u64) % STREAMS;
    // Every stream has one batch of each two entries.
    let base_offset = taken_before(index, stream);
    let len = 100 + (index * 37 + place as u64 * 11) % 300;
    Body {
        stream,
        base_offset,
        span: 1,
        max_timestamp: 1_000 + index as i64,
        bytes: filling(index << 8 | place as u64, len as usize),
    }
}

fn is_refused(index: u64, place: usize) -> bool {
    REFUSED.contains(&(index, place))
}

/// Number of accepted batches of `stream` in entries before `index`: the offset of its next.
fn taken_before(index: u64, stream: u64) -> u64 {
    let of_entry = |index: u64| (0..2).map(move |place| (index, place));
    let taken = (1..index).flat_map(of_entry).filter(|&(at, place)| {
        (at + place as u64) % STREAMS == stream && !is_refused(at, place as usize)
    });
    taken.count() as u64
}

fn written(index: u64) -> Entry {
    let id = EntryId { term: 3, leader: 1, index };
    let bodies = vec![body(index, 0), body(index, 1)];
    Entry { id, kind: EntryKind::Command, head: filling(index, 20), bodies }
}

/// Effects of applying an entry, besides accepting and refusing.
fn apply(journal: &Journal, index: u64) {
    for place in 0..2 {
        match is_refused(index, place) {
            true => journal.refuse(index, place),
            false => journal.accept(index, place),
        }
    }
    match index {
        // Most of segment 1 and 2, all of 3.
        50 => journal.trim(0, 17),
        51 => journal.trim(1, 17),
        52 => journal.remove(3..4),
        55 => journal.punch(2, 3, 16),
        // Inside a sealed segment, after the snapshot.
        70 => journal.punch(1, 20, 22),
        _ => {}
    }
}

/// Live batches after entry [`LAST`] was applied.
fn live() -> BTreeMap<u64, BTreeMap<u64, Bytes>> {
    let mut live: BTreeMap<u64, BTreeMap<u64, Bytes>> = BTreeMap::new();
    for index in 1..=LAST {
        for place in (0..2).filter(|place| !is_refused(index, *place)) {
            let Body { stream, base_offset, bytes, .. } = body(index, place);
            live.entry(stream).or_default().insert(base_offset, bytes);
        }
        let mut kill = |stream: u64, range: std::ops::Range<u64>| {
            live.entry(stream).or_default().retain(|offset, _| !range.contains(offset));
        };
        match index {
            50 => kill(0, 0..17),
            51 => kill(1, 0..17),
            52 => kill(3, 0..u64::MAX),
            55 => kill(2, 3..16),
            70 => kill(1, 20..22),
            _ => {}
        }
    }
    live
}

fn check(journal: &Journal) {
    for (stream, batches) in live() {
        let mut offset = 0;
        let mut rest = batches.iter();
        loop {
            let read = joined(block_on(journal.read(stream, offset, 2_000)).unwrap());
            if read.is_empty() {
                break;
            }
            let mut read = &read[..];
            while !read.is_empty() {
                let (base, bytes) = rest.next().expect("no more than is live");
                read = read.strip_prefix(&bytes[..]).expect("whole batches, in order");
                offset = base + 1;
            }
        }
        assert!(rest.next().is_none(), "stream {stream} ends at {offset}");
    }
    assert_eq!(journal.vote().unwrap(), VOTE);
}

fn check_log(journal: &Journal) {
    for index in SNAPSHOT_AT + 1..=LAST {
        assert_eq!(journal.entries(index..index + 1, 1).unwrap(), [written(index)]);
    }
}

#[test]
fn a_directory_of_version_1_is_served_and_written_on() {
    let disk = SimulatedDisk::unpack(include_bytes!("fixtures/v1.journal"), Path::new(DIR));
    let names = disk.list(Path::new(DIR)).unwrap();
    for name in ["vote", "00000001.g2.seg", "00000001.g2.idx", "00000004.idx"] {
        assert!(names.iter().any(|it| it == name), "{name} of {names:?}");
    }
    let opened = open(&disk);
    let snapshot = opened.snapshot.expect("a snapshot");
    assert_eq!((snapshot.id.index, &snapshot.machine[..]), (SNAPSHOT_AT, &b"machine"[..]));
    assert_eq!(&snapshot.meta[..], b"meta");
    let journal = opened.journal;
    for index in SNAPSHOT_AT + 1..=LAST {
        apply(&journal, index);
    }
    check(&journal);
    check_log(&journal);
    // New entries are written next to the old ones, and rewritten with them.
    journal.save_vote(VOTE).unwrap();
    let id = EntryId { term: 3, leader: 1, index: LAST + 1 };
    append_durably(&journal, vec![blank(3, LAST + 1)]);
    // A position at which the version before refuses to read, and not one at which it cuts
    // unreadable entries.
    let holder = (1..20).find(|&segment| {
        let frames = Frames::open(&disk, Path::new(DIR), segment);
        let entries = frames.into_iter().flatten().flat_map(|frame| frame.unwrap().entries);
        entries.into_iter().any(|entry| entry.id.index == LAST + 1)
    });
    let holder = Path::new(DIR).join(format!("{:08}.seg", holder.expect("it is written")));
    assert_eq!(disk.content(&holder).unwrap()[4], 2, "{}", holder.display());
    journal.roll();
    append_durably(&journal, vec![blank(3, LAST + 2)]);
    eventually("all segments but the last are sealed", || {
        journal.begin_snapshot(id, Bytes::new()).write(Bytes::new()).unwrap();
        journal.segments().iter().all(|it| it.sealed)
    });
    journal.reclaim().unwrap();
    for segment in journal.segments().iter().filter(|it| it.live_bytes > 0) {
        journal.rewrite(segment.id, &mut |_, _, _| journal::CompactionDecision::Same).unwrap();
    }
    check(&journal);
    journal.close();
    drop(journal);
    let journal = open(&disk.killed()).journal;
    check(&journal);
    journal.close();
}

#[test]
fn sidecars_of_version_1_segments_are_made_again() {
    let disk = SimulatedDisk::unpack(include_bytes!("fixtures/v1.journal"), Path::new(DIR));
    for name in disk.list(Path::new(DIR)).unwrap() {
        if name.ends_with(".idx") {
            disk.lose_file(&Path::new(DIR).join(name));
        }
    }
    let journal = open(&disk).journal;
    for index in SNAPSHOT_AT + 1..=LAST {
        apply(&journal, index);
    }
    check(&journal);
    journal.close();
}

#[test]
#[ignore = "writes what a later version must read"]
fn write_a_directory() {
    let disk = SimulatedDisk::new();
    let journal = open(&disk).journal;
    journal.save_vote(b"term 2, for node 1").unwrap();
    journal.save_vote(VOTE).unwrap();
    for index in 1..=LAST {
        append_durably(&journal, vec![written(index)]);
        apply(&journal, index);
        if index % 15 == 0 {
            journal.roll();
        }
        if index == SNAPSHOT_AT {
            // The next frame rolls: an entry that is truncated again.
            let id = EntryId { term: 2, leader: 1, index: SNAPSHOT_AT + 1 };
            append_durably(&journal, vec![Entry { id, ..written(SNAPSHOT_AT + 1) }]);
            journal.truncate_after(Some(SNAPSHOT_AT)).unwrap();
            eventually("segments are sealed", || {
                journal.segments().iter().filter(|it| it.sealed).count() >= 3
            });
            let id = written(index).id;
            let (meta, machine) = (Bytes::from_static(b"meta"), Bytes::from_static(b"machine"));
            journal.begin_snapshot(id, meta.clone()).write(machine.clone()).unwrap();
            journal.purge(id);
            let reclaimed = journal.reclaim().unwrap();
            assert!(reclaimed.rewritten > 0, "{reclaimed:?}");
        }
    }
    check(&journal);
    journal.close();
    let to = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/new.journal");
    std::fs::write(to, disk.pack()).unwrap();
}
