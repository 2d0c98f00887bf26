//! Missing and damaged segments, snapshots and sidecars; and client bytes that look like a frame.

use std::path::Path;

use world::{Disk, SimulatedDisk};

use crate::common::*;
use crate::*;

#[test]
fn fresh() {
    let opened = open(&SimulatedDisk::new());
    assert_eq!((opened.report.segments, opened.report.last_index), (1, None));
}

#[test]
fn bare() {
    let disk = SimulatedDisk::new();
    open(&disk).journal.close();
    let disk = disk.killed();
    assert_eq!(disk.content(&segment_path(1)).unwrap().len(), 512);
    let opened = opens_with(&disk, &[]);
    assert_eq!((opened.report.segments, opened.report.torn_tail), (1, None));
    // A version without bare segments would extend it for its first frame, and continue in the next
    // segment.
    let disk = SimulatedDisk::new();
    open(&disk).journal.close();
    let disk = disk.killed();
    disk.open(&segment_path(1), false).unwrap().allocate(1 << 10).unwrap();
    opens_with(&disk, &[]);
}

#[test]
fn beginless() {
    let (disk, _) = written(50);
    disk.lose_file(&segment_path(1));
    refused_as_unusable(&disk, "00000001.seg", "missing");
}

#[test]
fn missing() {
    let (disk, _) = written(50);
    disk.lose_file(&segment_path(2));
    refused_as_unusable(&disk, "00000002.seg", "missing");
}

#[test]
fn short() {
    let (disk, _) = written(50);
    for segment in [1, 2] {
        let disk = copy(&disk);
        // Cut at a frame's end, so that only the length reveals it.
        let cut = frames(&disk, segment).pop().unwrap();
        disk.cut_file(&segment_path(segment), cut.position);
        refused_as_unusable(&disk, &format!("{segment:08}.seg"), "cut short");
    }
}

#[test]
fn short_at_the_end_of_the_log() {
    let (disk, _) = written(5);
    let last = frames(&disk, 1).pop().unwrap();
    disk.cut_file(&segment_path(1), last.position);
    refused_as_unusable(&disk, "00000001.seg", "cut short");
    disk.cut_file(&segment_path(1), 0);
    refused_as_unusable(&disk, "00000001.seg", "header is damaged");
}

#[test]
fn nameless() {
    let (disk, _) = written(50);
    for segment in [1, 2, 3] {
        let disk = copy(&disk);
        disk.flip_bit(&segment_path(segment), 9, 1);
        refused_as_unusable(&disk, &format!("{segment:08}.seg"), "header is damaged");
    }
}

#[test]
fn swapped_segments_are_not_taken_for_each_other() {
    let (disk, _) = written(50);
    let (one, two) = (segment_path(1), segment_path(2));
    disk.rename(&one, &path("x")).unwrap();
    disk.rename(&two, &one).unwrap();
    disk.rename(&path("x"), &two).unwrap();
    refused_as_unusable(&disk, "00000001.seg", "that of segment 2");
}

#[test]
fn ahead() {
    let (disk, entries) = written_and_ahead(5, "00000002.seg");
    let opened = opens_with(&disk, &entries);
    // The preallocated segment was found, and not allocated again.
    assert_eq!(opened.report.segments, 2);
}

#[test]
fn emptied() {
    let disk = SimulatedDisk::new();
    let journal = open(&disk).journal;
    journal.save_vote(b"vote").unwrap();
    journal.close();
    let disk = disk.killed();
    for name in disk.list(Path::new(DIR)).unwrap() {
        if name.ends_with(".seg") {
            disk.lose_file(&path(&name));
        }
    }
    refused_as_unusable(&disk, "00000001.seg", "missing");
}

#[test]
fn draft() {
    let (disk, entries) = written(5);
    disk.open(&path("00000009.seg.tmp"), true).unwrap();
    disk.open(&path("vote.tmp"), true).unwrap();
    open(&disk).journal.close();
    let names = disk.list(Path::new(DIR)).unwrap();
    assert!(names.iter().all(|name| !name.ends_with(".tmp")), "{names:?}");
    opens_with(&disk, &entries);
}

/// A journal with two snapshots, and entries after each.
fn with_snapshots() -> (SimulatedDisk, Vec<Entry>) {
    let disk = SimulatedDisk::new();
    let journal = open(&disk).journal;
    let mut entries = Vec::new();
    for (from, to) in [(1, 30), (31, 60)] {
        entries.extend(write_some(&journal, 1, from..=to));
        (from..=to).for_each(|index| journal.accept(index, 0));
        let id = EntryId { term: 1, leader: 1, index: to };
        let machine = Bytes::from(to.to_string());
        journal.begin_snapshot(id, Bytes::new()).write(machine).unwrap();
    }
    entries.extend(write_some(&journal, 1, 61..=70));
    wait_for_files(&disk, ".idx", 2);
    journal.close();
    (disk.killed(), entries)
}

#[test]
fn unread() {
    let (disk, entries) = with_snapshots();
    let newest = path("snapshot-00000000000000000060");
    disk.flip_bit(&newest, 90, 1);
    let opened = open(&disk);
    assert_eq!(opened.snapshot.unwrap().machine, "30");
    assert!(all(&opened.journal) == entries[30..]);
    (31..=70).for_each(|index| opened.journal.accept(index, 0));
    assert_serves(&opened.journal, &entries);
}

#[test]
fn unread_and_the_log_does_not_reach_back_to_the_one_before() {
    let (disk, _) = with_snapshots();
    disk.flip_bit(&path("snapshot-00000000000000000060"), 90, 1);
    disk.lose_file(&segment_path(2));
    refused_as_unusable(&disk, "00000002.seg", "missing");
    disk.flip_bit(&path("snapshot-00000000000000000030"), 90, 1);
    refused_as_unusable(&disk, "00000002.seg", "no snapshot can be read");
}

#[test]
fn below() {
    let (disk, entries) = with_snapshots();
    let from = disk.content(&segment_path(1)).unwrap();
    // Recovery does not read it: a read finds the damage.
    disk.damage(&segment_path(1), 2000, &[0xEE; 100]);
    let opened = open(&disk);
    assert_eq!(opened.report.frames, 10);
    assert!(all(&opened.journal) == entries[60..]);
    opened.journal.close();
    disk.damage(&segment_path(1), 0, &from);
    disk.lose_file(&segment_path(1));
    refused_as_unusable(&disk, "00000001.seg", "missing");
}

#[test]
fn sidecars_are_made_again_when_they_are_missing_or_damaged() {
    let (disk, entries) = with_snapshots();
    let sidecars: Vec<String> = disk.list(Path::new(DIR)).unwrap();
    let sidecars: Vec<_> = sidecars.iter().filter(|name| name.ends_with(".idx")).collect();
    assert!(!sidecars.is_empty());
    for (place, name) in sidecars.iter().enumerate() {
        match place % 2 {
            0 => disk.lose_file(&path(name)),
            _ => disk.flip_bit(&path(name), 30, 0),
        }
    }
    let journal = open(&disk).journal;
    (61..=70).for_each(|index| journal.accept(index, 0));
    assert_serves(&journal, &entries);
}

/// A journal whose last frame was torn, and carried a body with a frame in it: complete, and at a
/// possible frame position, with or without the segment's salt.
fn with_forged_frame(knows_the_salt: bool) -> (SimulatedDisk, u64) {
    let (disk, _) = written(3);
    let last = frames(&disk, 1).pop().unwrap();
    let content = disk.content(&segment_path(1)).unwrap();
    let mut frame = content[last.position as usize..][..last.bytes as usize].to_vec();

    let mut carrier = entry(1, 4, 3, 20_000);
    // Frame header, entry header, a row, the head.
    let body_at = last.position + last.bytes + 64 + 48 + 32 + carrier.head.len() as u64;
    let place = body_at.next_multiple_of(512) + 512;
    frame[16..20].copy_from_slice(&(place as u32).to_le_bytes());
    frame[24] ^= u8::from(!knows_the_salt);
    let checksum = base::checksum::crc32c(&frame[..48]);
    frame[48..52].copy_from_slice(&checksum.to_le_bytes());
    let mut body = carrier.bodies[0].bytes.to_vec();
    body[(place - body_at) as usize..][..frame.len()].copy_from_slice(&frame);
    carrier.bodies[0].bytes = body.into();

    let journal = open(&disk).journal;
    append_durably(&journal, vec![carrier]);
    journal.close();
    let disk = disk.killed();
    let frame = frames(&disk, 1).pop().unwrap();
    disk.damage(&segment_path(1), frame.position + frame.bytes - 512, &[0; 512]);
    (disk, frame.position)
}

#[test]
fn a_clients_bytes_do_not_pass_for_a_frame_without_the_salt() {
    let (disk, position) = with_forged_frame(false);
    assert_eq!(open(&disk).report.torn_tail.unwrap().position, position);
    // The salt prevents that: no client knows it.
    let (disk, position) = with_forged_frame(true);
    refused_as_damaged(&disk, 1, position);
}
