//! Contents of a possible frame position.

use world::SimulatedDisk;

use crate::common::*;
use crate::*;

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
fn next_although_the_rest_of_the_segment_is_garbage() {
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
    // All later segments must be gone as well, or it would be damage.
    let later: Vec<u32> = (3..10).filter(|id| disk.content(&segment_path(*id)).is_some()).collect();
    later.iter().for_each(|id| disk.lose_file(&segment_path(*id)));
    let torn = opens_with(&disk, entries).report.torn_tail.unwrap();
    assert_eq!((torn.segment, torn.position), (2, second.position));
}

#[test]
fn headless() {
    let (disk, entries) = written(5);
    let last = frames(&disk, 1).pop().unwrap();
    disk.damage(&segment_path(1), last.position, &[0; 512]);
    let torn = opens_with(&disk, &entries[..4]).report.torn_tail.unwrap();
    assert_eq!((torn.segment, torn.position), (1, last.position));
}

#[test]
fn whole() {
    let (disk, _) = written(5);
    let last = frames(&disk, 1).pop().unwrap();
    for byte in (0..52).chain((64..last.bytes - 512).step_by(61)) {
        let disk = copy(&disk);
        disk.flip_bit(&segment_path(1), last.position + byte, 2);
        refused_as_damaged(&disk, 1, last.position);
    }
    for block in 0..last.bytes / 512 - 1 {
        let disk = copy(&disk);
        disk.damage(&segment_path(1), last.position + block * 512, &[0xCD; 512]);
        refused_as_damaged(&disk, 1, last.position);
    }
}

#[test]
fn whole_at_the_beginning_of_a_segment() {
    let (disk, _) = written(50);
    let before = frames(&disk, 1).len() as u64;
    let disk = SimulatedDisk::new();
    write_some(&open(&disk).journal, 1, 1..=before + 1);
    let disk = disk.killed();
    let first = frames(&disk, 2).pop().unwrap();
    disk.flip_bit(&segment_path(2), first.position + 700, 5);
    refused_as_damaged(&disk, 2, first.position);
}

#[test]
fn whole_and_in_one_block() {
    let disk = SimulatedDisk::new();
    let journal = open(&disk).journal;
    append_durably(&journal, vec![entry(1, 1, 0, 10)]);
    append_durably(&journal, vec![entry(1, 2, 1, 10)]);
    journal.close();
    let disk = disk.killed();
    let last = frames(&disk, 1).pop().unwrap();
    assert_eq!(last.bytes, 512);
    for byte in [3, 20, 70, 120] {
        let disk = copy(&disk);
        disk.flip_bit(&segment_path(1), last.position + byte, 2);
        refused_as_damaged(&disk, 1, last.position);
    }
}

#[test]
fn torn_where_a_sound_entry_of_the_frame_has_zeros() {
    let disk = SimulatedDisk::new();
    let journal = open(&disk).journal;
    let first = write_some(&journal, 1, 1..=1);
    let mut zeros = entry(1, 2, 1, 3000);
    zeros.bodies[0].bytes = vec![0; 3000].into();
    append_durably(&journal, vec![zeros, entry(1, 3, 2, 3000)]);
    journal.close();
    let disk = disk.killed();
    let last = frames(&disk, 1).pop().unwrap();
    let second = last.bytes - 1024;
    let damaged = copy(&disk);
    damaged.flip_bit(&segment_path(1), last.position + second, 1);
    refused_as_damaged(&damaged, 1, last.position);
    disk.damage(&segment_path(1), last.position + second, &[0; 512]);
    opens_with(&disk, &first);
}

#[test]
fn end_although_zeros_behind_it_changed() {
    let (disk, entries) = written(5);
    let last = frames(&disk, 1).pop().unwrap();
    for behind in [0, 5, 600, 30_000] {
        let disk = copy(&disk);
        disk.flip_bit(&segment_path(1), last.position + last.bytes + behind, 2);
        opens_with(&disk, &entries);
    }
}

#[test]
fn stale() {
    let (disk, entries) = written(50);
    let (other, last) = (frames(&disk, 2), frames(&disk, 3).pop().unwrap());
    assert_eq!(disk.content(&segment_path(5)), None);
    let content = disk.content(&segment_path(2)).unwrap();
    // The rest of the last segment holds complete frames of another one.
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
