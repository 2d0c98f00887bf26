//! The journal as a Raft log: appended entries stay readable, in order, after any event.

#[allow(unreachable_pub)]
mod common;

use std::sync::mpsc::channel;

use bytes::Bytes;
use common::*;
use journal::{Entry, EntryId, Journal, OpenError, Options, ReadError};
use proptest::collection::vec;
use proptest::prelude::*;
use world::SimulatedDisk;
use world::World;

#[test]
fn an_empty_journal_has_nothing() {
    let opened = open(&SimulatedDisk::new());
    assert_eq!(opened.snapshot, None);
    assert_eq!(opened.journal.last_id(), None);
    assert_eq!(opened.journal.purged_id(), None);
    assert_eq!(opened.journal.vote(), None);
    assert_eq!(opened.journal.entries(0..10, 1000).unwrap(), []);
}

#[test]
fn appended_entries_are_readable_at_once_and_durable_when_called_back() {
    let disk = SimulatedDisk::new();
    let journal = open(&disk).journal;
    disk.hang_syncs(true);
    let durable = append(&journal, vec![entry(1, 1, 0, 100), blank(1, 2)]);
    assert_eq!(all(&journal), [entry(1, 1, 0, 100), blank(1, 2)]);
    eventually("the sync hangs", || disk.sync_hangs("00000001.seg"));
    assert!(durable.try_recv().is_err());
    disk.hang_syncs(false);
    durable.recv_timeout(PATIENCE).unwrap().unwrap();
    assert_eq!(journal.last_id(), Some(EntryId { term: 1, leader: 1, index: 2 }));
    assert_eq!(journal.entry_id(1), Some(EntryId { term: 1, leader: 1, index: 1 }));
    assert_eq!(journal.entry_id(3), None);
}

#[test]
fn entries_waiting_for_a_sync_become_one_frame() {
    let disk = SimulatedDisk::new();
    let journal = open(&disk).journal;
    disk.hang_syncs(true);
    let first = append(&journal, vec![entry(1, 1, 0, 10)]);
    eventually("the sync hangs", || disk.sync_hangs("00000001.seg"));
    let rest: Vec<_> = (2..50).map(|i| append(&journal, vec![entry(1, i, i - 1, 10)])).collect();
    disk.hang_syncs(false);
    first.recv_timeout(PATIENCE).unwrap().unwrap();
    rest.iter().for_each(|durable| durable.recv_timeout(PATIENCE).unwrap().unwrap());
    // Callers are notified before the counters are updated.
    eventually("all is counted", || journal.stats().entries == 49);
    assert_eq!(journal.stats().frames, 2);
    eventually("nothing is queued", || journal.stats().queued_bytes == 0);
}

#[test]
fn callbacks_run_in_order_including_those_of_empty_appends() {
    let journal = open(&SimulatedDisk::new()).journal;
    let (told, hears) = channel();
    for turn in 0..200_u64 {
        let entries = if turn % 3 == 0 { vec![] } else { vec![blank(1, turn - turn / 3)] };
        let told = told.clone();
        journal.append(entries, move |result| told.send((turn, result.is_ok())).unwrap()).unwrap();
    }
    for turn in 0..200 {
        assert_eq!(hears.recv_timeout(PATIENCE), Ok((turn, true)));
    }
}

#[test]
fn entries_over_many_segments_are_there_after_a_clean_close() {
    let disk = SimulatedDisk::new();
    let entries: Vec<_> =
        (1..400).map(|i| entry(1, i, i - 1, (i * 37 % 3000 + 1) as usize)).collect();
    {
        let journal = open(&disk).journal;
        entries.iter().for_each(|entry| drop(append(&journal, vec![entry.clone()])));
        journal.close();
        assert!(journal.append(vec![blank(1, 400)], |_| {}).is_err());
        assert!(all(&journal) == entries);
    }
    let opened = open(&disk);
    assert!(all(&opened.journal) == entries);
    assert_eq!(opened.report.torn_tail, None);
    assert!(opened.report.segments > 5, "{}", opened.report);
    assert_eq!(opened.report.last_index, Some(399));
}

#[test]
fn an_entry_larger_than_a_segment_gets_a_larger_segment() {
    let disk = SimulatedDisk::new();
    let large: Vec<_> = [300_000, 10, 200_000, 70_000, 5]
        .into_iter()
        .zip(1..)
        .map(|(len, index)| entry(1, index, index - 1, len))
        .collect();
    {
        let journal = open(&disk).journal;
        large.iter().for_each(|entry| append_durably(&journal, vec![entry.clone()]));
        assert!(all(&journal) == large);
    }
    assert!(all(&open(&disk.power_loss(1)).journal) == large);
}

#[test]
fn reads_are_bounded_by_bytes_but_return_at_least_one_entry() {
    let journal = open(&SimulatedDisk::new()).journal;
    append_durably(&journal, (1..20).map(|i| entry(1, i, i - 1, 1000)).collect());
    assert_eq!(journal.entries(3..10, 1).unwrap(), [entry(1, 3, 2, 1000)]);
    assert_eq!(journal.entries(3..10, 3500).unwrap().len(), 3);
    assert_eq!(journal.entries(3..10, usize::MAX).unwrap().len(), 7);
    assert_eq!(journal.entries(18..100, usize::MAX).unwrap().len(), 2);
    assert_eq!(journal.entries(3..3, usize::MAX).unwrap().len(), 0);
}

#[test]
fn truncated_entries_stay_replaced_after_a_restart() {
    let disk = SimulatedDisk::new();
    let journal = open(&disk).journal;
    append_durably(&journal, (1..=10).map(|i| entry(1, i, i - 1, 50)).collect());
    journal.truncate_after(Some(6)).unwrap();
    assert_eq!(journal.last_id().unwrap().index, 6);
    append_durably(&journal, vec![entry(2, 7, 6, 60), entry(2, 8, 7, 60)]);
    let expected: Vec<_> = (1..=6)
        .map(|i| entry(1, i, i - 1, 50))
        .chain([entry(2, 7, 6, 60), entry(2, 8, 7, 60)])
        .collect();
    assert_eq!(all(&journal), expected);
    drop(journal);
    let journal = open(&disk.killed()).journal;
    assert_eq!(all(&journal), expected);
    journal.truncate_after(None).unwrap();
    assert_eq!(journal.last_id(), None);
    append_durably(&journal, vec![blank(3, 1)]);
    assert_eq!(all(&journal), [blank(3, 1)]);
}

#[test]
fn entries_truncated_while_queued_do_not_replace_newer_ones() {
    let disk = SimulatedDisk::new();
    let journal = open(&disk).journal;
    disk.hang_syncs(true);
    drop(append(&journal, vec![entry(1, 1, 0, 10)]));
    eventually("the sync hangs", || disk.sync_hangs("00000001.seg"));
    drop(append(&journal, vec![entry(1, 2, 1, 10), entry(1, 3, 2, 10)]));
    journal.truncate_after(Some(1)).unwrap();
    let newer = append(&journal, vec![entry(2, 2, 1, 20)]);
    disk.hang_syncs(false);
    newer.recv_timeout(PATIENCE).unwrap().unwrap();
    let expected = [entry(1, 1, 0, 10), entry(2, 2, 1, 20)];
    assert_eq!(all(&journal), expected);
    journal.accept(1, 0);
    journal.accept(2, 0);
    drop(journal);
    assert_eq!(all(&open(&disk.power_loss(3)).journal), expected);
}

#[derive(Clone, Debug)]
enum Step {
    Append {
        count: u64,
        len: usize,
    },
    /// Truncates this many entries, and replaces them by others.
    Replace {
        cut: u64,
        count: u64,
    },
    Snapshot {
        keep: u64,
    },
    Roll,
    Restart {
        power_loss: bool,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1..20_u64, 1..5000_usize).prop_map(|(count, len)| Step::Append { count, len }),
        2 => (1..30_u64, 1..5_u64).prop_map(|(cut, count)| Step::Replace { cut, count }),
        1 => (0..30_u64).prop_map(|keep| Step::Snapshot { keep }),
        1 => Just(Step::Roll),
        2 => any::<bool>().prop_map(|power_loss| Step::Restart { power_loss }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn log_agrees_with_a_vector(steps in vec(step(), 1..25)) {
        let mut disk = SimulatedDisk::new();
        let mut journal = open(&disk).journal;
        // Entry n is at n - 1. Entries up to `applied` are applied: Raft never truncates them.
        let (mut model, mut applied, mut term): (Vec<Entry>, u64, u64) = (Vec::new(), 0, 1);
        let mut snapshot = 0;
        for step in steps {
            match step {
                Step::Append { count, len } => {
                    let last = model.len() as u64;
                    let new: Vec<_> =
                        (last + 1..=last + count).map(|i| entry(term, i, i - 1, len)).collect();
                    append_durably(&journal, new.clone());
                    model.extend(new);
                }
                Step::Replace { cut, count } => {
                    term += 1;
                    let keep = (model.len() as u64).saturating_sub(cut).max(applied);
                    journal.truncate_after(Some(keep)).unwrap();
                    model.truncate(keep as usize);
                    let new: Vec<_> =
                        (keep + 1..=keep + count).map(|i| entry(term, i, i - 1, 700)).collect();
                    append_durably(&journal, new.clone());
                    model.extend(new);
                }
                Step::Snapshot { keep } => {
                    let last = model.len() as u64;
                    (applied + 1..=last).for_each(|index| journal.accept(index, 0));
                    applied = last;
                    if last > 0 {
                        let id = model[last as usize - 1].id;
                        journal.begin_snapshot(id, Bytes::new()).write(Bytes::new()).unwrap();
                        snapshot = last;
                        let purged = last.saturating_sub(keep).max(1);
                        journal.purge(model[purged as usize - 1].id);
                    }
                }
                Step::Roll => journal.roll(),
                Step::Restart { power_loss } => {
                    drop(journal);
                    disk = if power_loss { disk.power_loss(applied) } else { disk.killed() };
                    let opened = open(&disk);
                    prop_assert_eq!(opened.report.torn_tail, None);
                    journal = opened.journal;
                    prop_assert_eq!(journal.purged_id().map_or(0, |id| id.index), snapshot);
                    (snapshot + 1..=applied).for_each(|index| journal.accept(index, 0));
                }
            }
            let purged = journal.purged_id().map_or(0, |id| id.index) as usize;
            prop_assert!(all(&journal) == model[purged..]);
            prop_assert_eq!(journal.last_id(), model.last().map(|entry| entry.id));
        }
        let last = model.len() as u64;
        (applied + 1..=last).for_each(|index| journal.accept(index, 0));
        assert_serves(&journal, &model);
    }
}

#[test]
fn recovery_starts_at_the_snapshot_and_purged_entries_are_gone() {
    let disk = SimulatedDisk::new();
    let journal = open(&disk).journal;
    for i in 1..=300 {
        append_durably(&journal, vec![entry(1, i, i - 1, 1000)]);
        journal.accept(i, 0);
    }
    let id = EntryId { term: 1, leader: 1, index: 290 };
    // The index already knows 300; a machine would stop at the snapshot's entry.
    let pending = journal.begin_snapshot(EntryId { index: 300, ..id }, Bytes::from_static(b"meta"));
    let before = journal.bytes_since_snapshot();
    let bytes = pending.write(Bytes::from_static(b"machine")).unwrap();
    assert!(before > 300_000 && journal.bytes_since_snapshot() < 1000);
    journal.purge(id);
    assert_eq!(journal.purged_id(), Some(id));
    assert!(matches!(
        journal.entries(5..8, 100),
        Err(ReadError::NoSuchEntry { index: 5, first: 291, last: 300 })
    ));
    append_durably(&journal, vec![entry(1, 301, 300, 1000)]);
    drop(journal);

    let opened = open(&disk.power_loss(1));
    let snapshot = opened.snapshot.unwrap();
    assert_eq!((snapshot.id.index, &snapshot.meta[..]), (300, &b"meta"[..]));
    assert_eq!(snapshot.machine, "machine");
    // The whole size, including the part of the index.
    assert!(bytes > 80 + 11 && snapshot.bytes == bytes, "{bytes}");
    assert_eq!(opened.report.entries, 1);
    assert_eq!(all(&opened.journal), [entry(1, 301, 300, 1000)]);
    opened.journal.accept(301, 0);
    let entries: Vec<_> = (1..=301).map(|i| entry(1, i, i - 1, 1000)).collect();
    assert_serves(&opened.journal, &entries);
}

#[test]
fn the_vote_is_there_after_power_loss() {
    let disk = SimulatedDisk::new();
    let journal = open(&disk).journal;
    journal.save_vote(b"term 3, node 1").unwrap();
    assert_eq!(journal.vote().unwrap(), "term 3, node 1");
    drop(journal);
    assert_eq!(open(&disk.power_loss(9)).journal.vote().unwrap(), "term 3, node 1");
}

#[test]
fn a_directory_belongs_to_one_journal_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let open = || Journal::open(&World::real(), dir.path(), small());
    let first = open().unwrap().journal;
    assert!(matches!(open(), Err(OpenError::InUse { .. })));
    first.close();
    open().unwrap();
}

#[test]
fn invalid_options_are_refused() {
    let options = Options { segment_bytes: 1000, ..small() };
    let refused = try_open(&SimulatedDisk::new(), options).unwrap_err();
    assert!(matches!(refused, OpenError::Option { name: "segment_bytes", .. }), "{refused}");
}

#[test]
fn entries_are_read_back_from_a_real_disk() {
    let dir = tempfile::tempdir().unwrap();
    let open = || {
        let options = Options { disk_reserve_bytes: 0, segment_bytes: 1 << 20, ..small() };
        Journal::open(&World::real(), dir.path(), options).unwrap().journal
    };
    let entries: Vec<_> =
        (1..200).map(|i| entry(1, i, i - 1, (i * 97 % 20_000 + 1) as usize)).collect();
    {
        let journal = open();
        for some in entries.chunks(7) {
            drop(append(&journal, some.to_vec()));
        }
    }
    let journal = open();
    assert!(all(&journal) == entries);
    for i in 1..200 {
        journal.accept(i, 0);
    }
    assert_serves(&journal, &entries);
}
