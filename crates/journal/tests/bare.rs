//! A journal without entries has no blocks for a log. Its first frame allocates them, even with
//! faults.

#[allow(unreachable_pub)]
mod common;

use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base::checksum::crc32c;
use common::*;
use journal::{DiskRoom, Entry, EntryId, Journal, OpenError, Options};
use world::{Disk, SimulatedDisk};

const HEADER_BYTES: usize = 512;
const SEGMENT_BYTES: usize = 64 << 10;

fn path(name: &str) -> PathBuf {
    Path::new(DIR).join(name)
}

fn segment(id: u32) -> PathBuf {
    path(&format!("{id:08}.seg"))
}

fn len(disk: &SimulatedDisk, id: u32) -> Option<usize> {
    disk.content(&segment(id)).map(|content| content.len())
}

/// Length in the segment's own header; 0 without a header.
fn says(disk: &SimulatedDisk, id: u32) -> u64 {
    let content = disk.content(&segment(id)).unwrap_or_default();
    content.get(16..24).map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().unwrap()))
}

fn segments(disk: &SimulatedDisk) -> Vec<String> {
    let mut names = disk.list(Path::new(DIR)).unwrap();
    names.retain(|name| name.contains(".seg"));
    names.sort();
    names
}

#[test]
fn journal_without_entries_takes_next_to_no_disk_space() {
    let mut disk = SimulatedDisk::new();
    for start in 0..3 {
        let journal = open(&disk).journal;
        // Longer than the interval at which segments are preallocated.
        std::thread::sleep(Duration::from_millis(1_200));
        assert_eq!(journal.room(), DiskRoom::Ok);
        journal.save_vote(&[start]).unwrap();
        journal.roll();
        assert_eq!(journal.last_id(), None);
        journal.close();
        let files = disk.files();
        let bytes: usize = files.iter().filter_map(|it| disk.content(it)).map(|it| it.len()).sum();
        assert_eq!(segments(&disk), ["00000001.seg"]);
        assert!(bytes <= 4 << 10, "{bytes} bytes: {files:?}");
        disk = if start == 0 { disk.killed() } else { disk.power_loss(start.into()) };
    }
    let journal = open(&disk).journal;
    assert_eq!(journal.vote().unwrap(), [2][..]);
    append_durably(&journal, vec![entry(1, 1, 0, 100)]);
    eventually("a segment is made ahead", || len(&disk, 2) == Some(SEGMENT_BYTES));
}

#[test]
fn first_frame_allocates_its_segment_and_a_spare_and_records_the_length() {
    let disk = SimulatedDisk::new();
    let journal = open(&disk).journal;
    assert_eq!((len(&disk, 1), says(&disk, 1)), (Some(HEADER_BYTES), 512));
    append_durably(&journal, vec![entry(1, 1, 0, 100)]);
    assert_eq!(len(&disk, 1), Some(SEGMENT_BYTES));
    eventually("a segment is made ahead", || len(&disk, 2) == Some(SEGMENT_BYTES));
    eventually("the header says it", || says(&disk, 1) == SEGMENT_BYTES as u64);
    journal.close();
    // One frame suffices to detect a truncated file.
    let disk = disk.killed();
    disk.cut_file(&segment(1), HEADER_BYTES as u64);
    match try_open(&disk, small()) {
        Err(OpenError::Unusable { file, what }) => {
            assert!(file == segment(1) && what.contains("cut short"), "{what}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_first_entry_that_is_larger_than_a_segment_gets_a_larger_one() {
    let disk = SimulatedDisk::new();
    let journal = open(&disk).journal;
    let entries = vec![entry(1, 1, 0, 100_000), entry(1, 2, 1, 10)];
    append_durably(&journal, entries[..1].to_vec());
    append_durably(&journal, entries[1..].to_vec());
    assert_eq!(says(&disk, 1), len(&disk, 1).unwrap() as u64);
    journal.close();
    assert!(all(&open(&disk.power_loss(3)).journal) == entries);
}

/// Opens and appends until the power fails. Returns the number of acknowledged entries.
fn begin(disk: &SimulatedDisk, entries: &[Entry]) -> usize {
    let Ok(opened) = try_open(disk, small()) else { return 0 };
    let journal = opened.journal;
    let first = journal.last_id().map_or(0, |id| id.index as usize);
    let mut acknowledged = first;
    for entry in &entries[first..] {
        let (told, hears) = std::sync::mpsc::channel();
        let taken = journal.append(vec![entry.clone()], move |result| drop(told.send(result)));
        if taken.is_err() || hears.recv_timeout(PATIENCE).unwrap().is_err() {
            break;
        }
        acknowledged += 1;
    }
    journal.close();
    acknowledged
}

#[test]
fn power_loss_at_any_step_of_the_first_frames_keeps_acknowledged_entries() {
    let entries: Vec<Entry> = (1..=4).map(|i| entry(1, i, i - 1, 700 * i as usize)).collect();
    let (mut bare, mut long) = (0, 0);
    for step in 0..40 {
        for seed in 0..25 {
            let mut disk = SimulatedDisk::new();
            let mut acknowledged = 0;
            // Again, while it recovers from that.
            for turn in 0..3 {
                disk.cut_power_after(if turn == 0 { step } else { (step * 7 + seed) % 23 });
                acknowledged = acknowledged.max(begin(&disk, &entries));
                disk = disk.power_loss(seed * 3 + turn);
                let bytes = len(&disk, 1);
                bare += u32::from(bytes == Some(HEADER_BYTES));
                // The blocks are durable, the header with the length is not.
                long += u32::from(bytes == Some(SEGMENT_BYTES) && says(&disk, 1) == 512);
            }
            let opened = open(&disk);
            let found = all(&opened.journal);
            assert!(found.len() >= acknowledged, "step {step}, seed {seed}: {}", found.len());
            assert!(found == entries[..found.len()], "step {step}, seed {seed}");
            opened.journal.close();
            assert_eq!(begin(&disk, &entries), 4);
            assert_eq!(says(&disk, 1), len(&disk, 1).unwrap() as u64, "step {step}, seed {seed}");
            let journal = open(&disk.power_loss(seed)).journal;
            assert!(all(&journal) == entries, "step {step}, seed {seed}");
        }
    }
    assert!(bare > 100 && long > 20, "{bare} {long}");
}

#[test]
fn rest_of_a_cut_first_frame_is_not_read_after_the_segment_grows() {
    for seed in 0..200 {
        let disk = SimulatedDisk::new();
        let journal = open(&disk).journal;
        disk.hang_syncs(true);
        let first = append(&journal, vec![entry(1, 1, 0, 9_000)]);
        eventually("the sync hangs", || disk.sync_hangs("00000001.seg"));
        let after = disk.power_loss(seed);
        disk.cut_power_after(0);
        disk.hang_syncs(false);
        drop((first, journal));
        let journal = open(&after).journal;
        let found = all(&journal);
        if !found.is_empty() {
            continue;
        }
        let other = entry(2, 1, 0, 100);
        append_durably(&journal, vec![other.clone()]);
        journal.close();
        assert!(all(&open(&after.power_loss(seed)).journal) == [other], "seed {seed}");
    }
}

#[test]
fn first_entry_waits_on_a_full_disk_until_the_journal_closes() {
    for closes in [false, true] {
        let disk = SimulatedDisk::new();
        let journal = open(&disk).journal;
        disk.set_capacity(Some(16 << 10));
        let first = append(&journal, vec![entry(1, 1, 0, 100)]);
        assert!(first.recv_timeout(Duration::from_millis(100)).is_err(), "it waits");
        if closes {
            journal.close();
            assert!(first.recv_timeout(PATIENCE).unwrap().is_err());
            let journal = open(&disk.killed()).journal;
            assert_eq!(journal.last_id(), None);
            continue;
        }
        disk.set_capacity(None);
        first.recv_timeout(PATIENCE).unwrap().unwrap();
    }
    // Below the reserve the disk is reported full although nothing was written.
    let disk = SimulatedDisk::new();
    disk.set_capacity(Some(1 << 20));
    let journal = try_open(&disk, Options { disk_reserve_bytes: 2 << 20, ..small() });
    let journal = journal.unwrap().journal;
    eventually("it is full", || matches!(journal.room(), DiskRoom::Full { .. }));
}

/// Two empty segments of full size, as created by a version without bare segments.
fn create_full_size_segments(disk: &SimulatedDisk, ids: &[u32]) {
    disk.create_dir(Path::new(DIR)).unwrap();
    for id in ids {
        let mut header = vec![0; SEGMENT_BYTES];
        header[..5].copy_from_slice(b"PRsg\x02");
        header[8..12].copy_from_slice(&id.to_le_bytes());
        header[12..16].copy_from_slice(&[7; 4]);
        header[16..24].copy_from_slice(&(SEGMENT_BYTES as u64).to_le_bytes());
        let checksum = crc32c(&header[..24]);
        header[24..28].copy_from_slice(&checksum.to_le_bytes());
        let file = disk.open(&segment(*id), true).unwrap();
        file.write_at(&mut [IoSlice::new(&header)], 0).unwrap();
        file.sync().unwrap();
    }
    disk.sync_dir(Path::new(DIR)).unwrap();
}

#[test]
fn journal_of_a_version_without_bare_segments_is_opened_unchanged() {
    for ids in [&[1][..], &[1, 2]] {
        let disk = SimulatedDisk::new();
        create_full_size_segments(&disk, ids);
        let before = disk.content(&segment(1)).unwrap();
        let journal = open(&disk).journal;
        eventually("a segment is made ahead", || len(&disk, 2) == Some(SEGMENT_BYTES));
        assert!(disk.content(&segment(1)).unwrap() == before);
        let entries: Vec<Entry> = (1..=30).map(|i| entry(1, i, i - 1, 3_000)).collect();
        entries.iter().for_each(|entry| append_durably(&journal, vec![entry.clone()]));
        journal.close();
        let journal = open(&disk.power_loss(9)).journal;
        assert!(all(&journal) == entries);
    }
}

#[test]
fn snapshot_and_purge_work_after_the_first_frame() {
    let disk = SimulatedDisk::new();
    let journal: Journal = open(&disk).journal;
    append_durably(&journal, vec![entry(1, 1, 0, 100)]);
    journal.accept(1, 0);
    let id = EntryId { term: 1, leader: 1, index: 1 };
    journal.begin_snapshot(id, Default::default()).write(filling(1, 10)).unwrap();
    journal.purge(id);
    journal.close();
    let opened = open(&disk.power_loss(4));
    assert_eq!(opened.snapshot.map(|snapshot| snapshot.id), Some(id));
    append_durably(&opened.journal, vec![entry(1, 2, 1, 100)]);
    assert_eq!(opened.journal.last_id().map(|id| id.index), Some(2));
}
