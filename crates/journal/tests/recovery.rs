//! The truth table of recovery (`src/recover`, docs/internals/recovery.md), row by row. Each
//! test is named after its row. A journal that is refused is left as it was.

#[allow(unreachable_pub)]
mod common;

use std::io::IoSlice;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use common::*;
use journal::inspect::{FrameInfo, Frames, Verdict};
use journal::{Entry, EntryId, Journal, OpenError, Opened};
use world::{Disk, SimulatedDisk};

fn path(name: &str) -> PathBuf {
    Path::new(DIR).join(name)
}

fn segment_path(segment: u32) -> PathBuf {
    path(&format!("{segment:08}.seg"))
}

fn frames(disk: &SimulatedDisk, segment: u32) -> Vec<FrameInfo> {
    let frames = Frames::open(disk, Path::new(DIR), segment).unwrap();
    frames.map(Result::unwrap).filter(|frame| frame.verdict == Verdict::Complete).collect()
}

/// One frame per entry.
fn write_some(journal: &Journal, term: u64, indexes: std::ops::RangeInclusive<u64>) -> Vec<Entry> {
    let entries: Vec<Entry> = indexes.map(|i| entry(term, i, i - 1, 3000)).collect();
    entries.iter().for_each(|entry| append_durably(journal, vec![entry.clone()]));
    entries
}

/// A closed journal with one frame for each of so many entries; about 20 fill a segment.
fn written(count: u64) -> (SimulatedDisk, Vec<Entry>) {
    let disk = SimulatedDisk::new();
    let journal = open(&disk).journal;
    let entries = write_some(&journal, 1, 1..=count);
    journal.close();
    (disk.killed(), entries)
}

/// And the segment that was made ahead is there.
fn written_and_ahead(count: u64, ahead: &str) -> (SimulatedDisk, Vec<Entry>) {
    let disk = SimulatedDisk::new();
    let journal = open(&disk).journal;
    let entries = write_some(&journal, 1, 1..=count);
    wait_for_files(&disk, ahead, 1);
    journal.close();
    (disk.killed(), entries)
}

/// Waits for what the journal does beside its writing, and closing does not wait for: the next
/// segment, sidecars.
fn wait_for_files(disk: &SimulatedDisk, ending: &str, count: usize) {
    let are_there = |name: &String| name.ends_with(ending);
    eventually(&format!("{count} files {ending}"), || {
        disk.list(Path::new(DIR)).unwrap().iter().filter(|name| are_there(name)).count() >= count
    });
}

/// Another disk with the same files.
fn copy(disk: &SimulatedDisk) -> SimulatedDisk {
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

fn files(disk: &SimulatedDisk) -> Vec<(String, Vec<u8>)> {
    let mut names = disk.list(Path::new(DIR)).unwrap();
    names.sort();
    let content = |name: String| (name.clone(), disk.content(&path(&name)).unwrap());
    names.into_iter().map(content).collect()
}

/// Refused, and nothing was changed by that.
fn refused(disk: &SimulatedDisk) -> OpenError {
    let before = files(disk);
    let error = try_open(disk, small()).unwrap_err();
    assert!(files(disk) == before, "{error}");
    error
}

fn refused_as_damaged(disk: &SimulatedDisk, segment: u32, place: u64) {
    match refused(disk) {
        OpenError::Damaged { file, position, .. } => {
            assert_eq!((file, position), (segment_path(segment), place));
        }
        other => panic!("{other}"),
    }
}

fn refused_as_unusable(disk: &SimulatedDisk, name: &str, why: &str) {
    match refused(disk) {
        OpenError::Unusable { file, what } => {
            assert_eq!(file, path(name));
            assert!(what.contains(why), "{what}");
        }
        other => panic!("{other}"),
    }
}

/// Opens, and the log is this; then it takes more, and still has all after another crash.
fn opens_with(disk: &SimulatedDisk, entries: &[Entry]) -> Opened {
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

#[test]
fn use_and_end() {
    let (disk, entries) = written(5);
    let opened = opens_with(&disk, &entries);
    assert_eq!((opened.report.frames, opened.report.torn_tail), (5, None));
}

#[test]
fn stranger() {
    let (disk, _) = written(2);
    let twin = copy(&disk);
    for (disk, term) in [(&disk, 3), (&twin, 4)] {
        write_some(&open(disk).journal, term, 3..=4);
    }
    // The last frame of one future behind the first frame of the other.
    let place = &frames(&disk, 1)[3];
    let end = (place.position + place.bytes) as usize;
    let other = twin.content(&segment_path(1)).unwrap()[place.position as usize..end].to_vec();
    let disk = disk.killed();
    disk.damage(&segment_path(1), place.position, &other);
    refused_as_damaged(&disk, 1, place.position);
}

#[test]
fn next() {
    let (disk, entries) = written_and_ahead(50, "00000004.seg");
    let opened = opens_with(&disk, &entries);
    assert!(opened.report.segments > 3);
    assert_eq!(opened.report.frames, 50);
}

#[test]
fn next_although_what_is_left_of_the_segment_is_garbage() {
    let (disk, entries) = written(50);
    let last = frames(&disk, 1).pop().unwrap();
    disk.damage(&segment_path(1), last.position + last.bytes, &[0xAB; 700]);
    opens_with(&disk, &entries);
}

#[test]
fn torn() {
    for lost in [512, 1024, 3072] {
        let (disk, entries) = written(5);
        let last = frames(&disk, 1).pop().unwrap();
        disk.damage(&segment_path(1), last.position + last.bytes - lost, &vec![0; lost as usize]);
        let torn = opens_with(&disk, &entries[..4]).report.torn_tail.unwrap();
        assert_eq!((torn.segment, torn.position), (1, last.position));
    }
}

#[test]
fn torn_at_the_beginning_of_a_segment() {
    let (disk, entries) = written(50);
    let before = frames(&disk, 1).len();
    let (disk, entries) = (disk, &entries[..before]);
    let second = frames(&disk, 2).remove(0);
    let len = disk.content(&segment_path(2)).unwrap().len();
    disk.damage(&segment_path(2), second.position + 1024, &vec![0; len - 512 - 1024]);
    // All after it has to be gone as well, or it were damage.
    let later: Vec<u32> = (3..10).filter(|id| disk.content(&segment_path(*id)).is_some()).collect();
    later.iter().for_each(|id| disk.lose_file(&segment_path(*id)));
    let torn = opens_with(&disk, entries).report.torn_tail.unwrap();
    assert_eq!((torn.segment, torn.position), (2, second.position));
}

#[test]
fn headless() {
    for filling in [0x00, 0xCD] {
        let (disk, entries) = written(5);
        let last = frames(&disk, 1).pop().unwrap();
        disk.damage(&segment_path(1), last.position, &[filling; 512]);
        let torn = opens_with(&disk, &entries[..4]).report.torn_tail.unwrap();
        assert_eq!((torn.segment, torn.position), (1, last.position));
    }
}

#[test]
fn stale() {
    let (disk, entries) = written(50);
    let (other, last) = (frames(&disk, 2), frames(&disk, 3).pop().unwrap());
    assert_eq!(disk.content(&segment_path(5)), None);
    let content = disk.content(&segment_path(2)).unwrap();
    // The rest of the last segment holds whole frames of another one.
    let from = other[0].position as usize;
    let stale = &content[from..content.len() - last.position as usize];
    disk.damage(&segment_path(3), last.position + last.bytes, &stale[..8 * 1024]);
    let opened = open(&disk);
    assert!(all(&opened.journal) == entries);
    assert_eq!(opened.report.torn_tail, None);
}

#[test]
fn damage_in_a_frames_content() {
    let (disk, _) = written(5);
    for place in 0..4 {
        let disk = copy(&disk);
        let frame = &frames(&disk, 1)[place];
        disk.flip_bit(&segment_path(1), frame.position + 1000, 2);
        refused_as_damaged(&disk, 1, frame.position);
    }
}

#[test]
fn damage_in_a_frames_header() {
    let (disk, _) = written(5);
    for byte in [0, 4, 8, 13, 16, 20, 24, 28, 32, 36, 40, 48] {
        let disk = copy(&disk);
        let frame = &frames(&disk, 1)[2];
        disk.flip_bit(&segment_path(1), frame.position + byte, 2);
        refused_as_damaged(&disk, 1, frame.position);
    }
}

#[test]
fn damage_that_looks_like_the_end() {
    let (disk, _) = written(5);
    let frame = &frames(&disk, 1)[1];
    disk.damage(&segment_path(1), frame.position, &vec![0; frame.bytes as usize]);
    refused_as_damaged(&disk, 1, frame.position);
}

#[test]
fn damage_at_the_end_of_a_segment_that_is_not_the_last() {
    let (disk, _) = written(50);
    let last = frames(&disk, 1).pop().unwrap();
    disk.flip_bit(&segment_path(1), last.position + 800, 0);
    refused_as_damaged(&disk, 1, last.position);
}

#[test]
fn damage_at_the_beginning_of_a_segment() {
    let (disk, _) = written(50);
    let first = &frames(&disk, 2)[0];
    disk.flip_bit(&segment_path(2), first.position + 800, 0);
    refused_as_damaged(&disk, 2, first.position);
}

#[test]
fn damage_by_a_frame_that_was_written_elsewhere() {
    let (disk, _) = written(5);
    let found = frames(&disk, 1);
    let content = disk.content(&segment_path(1)).unwrap();
    let frame = &content[found[1].position as usize..][..found[1].bytes as usize];
    disk.damage(&segment_path(1), found[2].position, frame);
    refused_as_damaged(&disk, 1, found[2].position);
}

#[test]
fn fresh() {
    let opened = open(&SimulatedDisk::new());
    assert_eq!((opened.report.segments, opened.report.last_index), (1, None));
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
        // At a frame's end, so that nothing but the length tells.
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
    // The one that was made ahead was found, and not made again.
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
fn unread_and_the_log_no_longer_goes_back_to_the_one_before() {
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
    // Not read: what is damaged there is noticed when it is asked for.
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

/// A journal whose last frame was torn, and carried a body with a frame in it: whole, and where a
/// frame could begin. It names the segment's salt, or not.
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
