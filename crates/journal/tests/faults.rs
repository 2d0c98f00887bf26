//! A full, broken or hung disk: acknowledged entries stay, and all waiting callers get an error.

#[allow(unreachable_pub)]
mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::*;
use journal::{DiskRoom, Entry, Journal, JournalFailed, Options};
use world::{Disk, SimulatedDisk};

fn write(journal: &Journal, from: u64, count: u64) -> Vec<Entry> {
    let entries: Vec<_> = (from..from + count).map(|i| entry(1, i, i - 1, 2000)).collect();
    entries.iter().for_each(|entry| append_durably(journal, vec![entry.clone()]));
    entries
}

fn counted_failures(journal: &Journal) -> Arc<AtomicU64> {
    let failures = Arc::new(AtomicU64::new(0));
    let counted = failures.clone();
    journal.on_fatal(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
    });
    failures
}

#[test]
fn a_failed_sync_poisons_the_journal_and_a_restart_has_all_that_was_acknowledged() {
    for seed in 0..50 {
        let disk = SimulatedDisk::new();
        let journal = open(&disk).journal;
        let failures = counted_failures(&journal);
        let entries = write(&journal, 1, 5);
        disk.fail_sync("00000001.seg", 0);
        let failed = append(&journal, vec![entry(1, 6, 5, 2000)]);
        let error = failed.recv_timeout(PATIENCE).unwrap().unwrap_err();
        assert!(matches!(&error, JournalFailed::Io { operation: "sync", .. }), "{error}");
        // The disk works again, but its losses are unknown.
        assert!(journal.append(vec![entry(1, 7, 6, 10)], |_| panic!("acknowledged")).is_err());
        assert!(journal.save_vote(b"v").is_err());
        assert_eq!(failures.load(Ordering::SeqCst), 1);
        assert_eq!(counted_failures(&journal).load(Ordering::SeqCst), 1);
        drop(journal);
        let log = all(&open(&disk.power_loss(seed)).journal);
        assert!(log[..5] == entries && log.len() <= 6, "seed {seed}");
    }
}

#[test]
fn pages_of_a_failed_sync_survive_a_later_power_loss() {
    for seed in 0..20 {
        let disk = SimulatedDisk::new();
        let journal = open(&disk).journal;
        write(&journal, 1, 5);
        disk.fail_sync("00000001.seg", 0);
        let failed = append(&journal, vec![entry(1, 6, 5, 2000)]);
        failed.recv_timeout(PATIENCE).unwrap().unwrap_err();
        drop(journal);
        // The pages can be read, and are clean for the kernel.
        let disk = disk.killed();
        let journal = open(&disk).journal;
        assert_eq!(all(&journal).len(), 6);
        append_durably(&journal, vec![entry(1, 7, 6, 10)]);
        drop(journal);
        assert_eq!(all(&open(&disk.power_loss(seed)).journal).len(), 7, "seed {seed}");
    }
}

#[test]
fn a_failed_write_fails_all_waiting_callers() {
    let disk = SimulatedDisk::new();
    let journal = open(&disk).journal;
    let entries = write(&journal, 1, 3);
    disk.hang_syncs(true);
    let first = append(&journal, vec![entry(1, 4, 3, 10)]);
    eventually("the sync hangs", || disk.sync_hangs("00000001.seg"));
    let rest: Vec<_> = (5..20).map(|i| append(&journal, vec![entry(1, i, i - 1, 10)])).collect();
    disk.fail_write("00000001.seg", 0);
    disk.hang_syncs(false);
    first.recv_timeout(PATIENCE).unwrap().unwrap();
    for waiting in rest {
        let error = waiting.recv_timeout(PATIENCE).unwrap().unwrap_err();
        assert!(matches!(error, JournalFailed::Io { operation: "write", .. }), "{error}");
    }
    eventually("nothing is queued", || journal.stats().queued_bytes == 0);
    block_on(journal.queue_room());
    drop(journal);
    let log = all(&open(&disk.power_loss(3)).journal);
    assert!(log[..3] == entries && log[3] == entry(1, 4, 3, 10));
}

#[test]
fn a_hung_sync_keeps_its_callers_waiting_and_shows_in_the_figures() {
    let disk = SimulatedDisk::new();
    let journal = open(&disk).journal;
    write(&journal, 1, 1);
    assert_eq!(journal.stats().busy_for, None);
    disk.hang_syncs(true);
    let durable = append(&journal, vec![entry(1, 2, 1, 100)]);
    eventually("the sync hangs", || disk.sync_hangs("00000001.seg"));
    assert!(journal.stats().queued_bytes > 100);
    assert!(durable.try_recv().is_err());
    assert!(journal.stats().busy_for.is_some());
    disk.hang_syncs(false);
    durable.recv_timeout(PATIENCE).unwrap().unwrap();
    assert!(journal.stats().last_sync_micros > 0);
}

#[test]
fn full_disk_refuses_records_but_accepts_small_commands_and_recovers_by_itself() {
    let disk = SimulatedDisk::new();
    let journal = open(&disk).journal;
    let mut entries = write(&journal, 1, 1);
    eventually("a segment is made ahead", || {
        disk.list(std::path::Path::new(DIR)).unwrap().contains(&"00000002.seg".to_owned())
    });
    assert_eq!(journal.room(), DiskRoom::Ok);
    // No space beyond the two existing segments.
    disk.set_capacity(Some(2 * (64 << 10)));
    entries.extend(write(&journal, 2, 34));
    eventually("the disk is full", || matches!(journal.room(), DiskRoom::Full { .. }));
    // Both are full now: the next entries wait, and are not refused.
    let mut waiting = Vec::new();
    for index in 36..=80 {
        entries.push(entry(1, index, index - 1, 2000));
        waiting.push(append(&journal, vec![entry(1, index, index - 1, 2000)]));
    }
    eventually("the segments are used up", || journal.stats().queued_bytes > 0);
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert!(waiting.last().unwrap().try_recv().is_err());
    assert_eq!(journal.entry_id(80).map(|id| id.index), Some(80));
    disk.set_capacity(None);
    waiting.iter().for_each(|it| it.recv_timeout(PATIENCE).unwrap().unwrap());
    eventually("there is room again", || journal.room() == DiskRoom::Ok);
    drop(journal);
    assert!(all(&open(&disk.power_loss(5)).journal) == entries);
}

#[test]
fn a_full_disk_does_not_keep_the_journal_from_closing() {
    let disk = SimulatedDisk::new();
    let journal = open(&disk).journal;
    let entries = write(&journal, 1, 10);
    disk.set_capacity(Some(2 * (64 << 10)));
    let waiting: Vec<_> =
        (11..=100).map(|i| append(&journal, vec![entry(1, i, i - 1, 2000)])).collect();
    journal.close();
    let answers: Vec<_> = waiting.iter().map(|it| it.recv_timeout(PATIENCE).unwrap()).collect();
    let kept = answers.iter().take_while(|answer| answer.is_ok()).count();
    assert!(kept < 90 && answers[kept..].iter().all(|answer| answer.is_err()));
    disk.set_capacity(None);
    let log = all(&open(&disk.power_loss(5)).journal);
    assert!(log[..10] == entries && log.len() >= 10 + kept);
}

#[test]
fn the_reserve_is_kept_free() {
    let disk = SimulatedDisk::new();
    disk.set_capacity(Some(1 << 20));
    let options = Options { disk_reserve_bytes: 950 << 10, ..small() };
    let journal = try_open(&disk, options).unwrap().journal;
    let reserve_bytes = 950 << 10;
    append_durably(&journal, vec![blank(1, 1)]);
    eventually("two segments are made", || {
        matches!(journal.room(), DiskRoom::Full { reserve_bytes: told, free_bytes }
            if told == reserve_bytes && free_bytes < reserve_bytes)
    });
    append_durably(&journal, vec![blank(1, 2)]);
}

#[test]
fn a_broken_disk_fails_the_journal_instead_of_keeping_it_waiting_for_a_segment() {
    let disk = SimulatedDisk::new();
    let journal = open(&disk).journal;
    write(&journal, 1, 1);
    disk.fail_write("00000003.seg", 0);
    let mut index = 1;
    let error = loop {
        index += 1;
        let durable = append_or_error(&journal, entry(1, index, index - 1, 2000));
        match durable {
            Ok(()) if index < 100 => {}
            Ok(()) => return, // The attempt of the next second went well.
            Err(error) => break error,
        }
    };
    assert!(matches!(error, JournalFailed::Io { .. }), "{error}");
}

fn append_or_error(journal: &Journal, entry: Entry) -> Result<(), JournalFailed> {
    let (told, hears) = std::sync::mpsc::channel();
    journal.append(vec![entry], move |result| drop(told.send(result)))?;
    hears.recv_timeout(PATIENCE).expect("an answer")
}

#[test]
fn the_written_hook_is_called_before_the_sync() {
    let disk = SimulatedDisk::new();
    let journal = open(&disk).journal;
    let written = Arc::new(AtomicU64::new(0));
    let told = written.clone();
    journal.on_written(move |index| told.store(index, Ordering::SeqCst));
    disk.hang_syncs(true);
    let durable = append(&journal, vec![entry(1, 1, 0, 10), entry(1, 2, 1, 10)]);
    eventually("it is written", || written.load(Ordering::SeqCst) == 2);
    assert!(durable.try_recv().is_err());
    disk.hang_syncs(false);
    durable.recv_timeout(PATIENCE).unwrap().unwrap();
}

#[test]
fn producers_wait_while_too_much_is_queued() {
    let disk = SimulatedDisk::new();
    let options = Options { segment_bytes: 128 << 20, ..small() };
    let journal = try_open(&disk, options).unwrap().journal;
    block_on(journal.queue_room());
    disk.hang_syncs(true);
    let bytes = 33 << 20;
    drop(append(&journal, vec![entry(1, 1, 0, bytes)]));
    block_on(journal.queue_room());
    let second = append(&journal, vec![entry(1, 2, 1, bytes)]);
    let waits = block_on(async {
        let wait = std::time::Duration::from_millis(20);
        tokio::time::timeout(wait, journal.queue_room()).await.is_err()
    });
    assert!(waits);
    disk.hang_syncs(false);
    block_on(journal.queue_room());
    second.recv_timeout(PATIENCE).unwrap().unwrap();
}

#[test]
fn last_handle_can_be_dropped_in_a_callback() {
    let journal = open(&SimulatedDisk::new()).journal;
    let last = journal.clone();
    let (told, hears) = std::sync::mpsc::channel();
    journal
        .append(vec![blank(1, 1)], move |_| {
            drop(last);
            told.send(()).unwrap();
        })
        .unwrap();
    drop(journal);
    hears.recv_timeout(PATIENCE).unwrap();
}

#[test]
fn placed_waits_until_the_entry_has_its_place_or_the_journal_fails() {
    for fails in [false, true] {
        let disk = SimulatedDisk::new();
        let journal = open(&disk).journal;
        append_durably(&journal, vec![entry(1, 1, 0, 100)]);
        block_on(journal.placed(1)).unwrap();
        disk.hang_syncs(true);
        let first = append(&journal, vec![entry(1, 2, 1, 100)]);
        eventually("the sync hangs", || disk.sync_hangs("00000001.seg"));
        let second = append(&journal, vec![entry(1, 3, 2, 100)]);
        // The second waits in the queue: other nodes' disks may already have it.
        block_on(journal.placed(2)).unwrap();
        let waiting = journal.clone();
        let (told, hears) = std::sync::mpsc::channel();
        let waiter = std::thread::spawn(move || told.send(block_on(waiting.placed(3)).is_ok()));
        let early = hears.recv_timeout(std::time::Duration::from_millis(50));
        assert!(early.is_err(), "it is not placed: {early:?}");
        if fails {
            disk.fail_sync("00000001.seg", 0);
        }
        disk.hang_syncs(false);
        assert_eq!(hears.recv_timeout(PATIENCE).unwrap(), !fails);
        waiter.join().unwrap().unwrap();
        assert_eq!(first.recv_timeout(PATIENCE).unwrap().is_ok(), !fails);
        assert_eq!(second.recv_timeout(PATIENCE).unwrap().is_ok(), !fails);
        // Entries never appended, or purged, are not awaited.
        block_on(journal.placed(99)).unwrap();
    }
}
