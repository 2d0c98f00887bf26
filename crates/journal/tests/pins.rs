//! A pinned log stays readable across snapshots and reclaim, and restarts still succeed.

#[allow(unreachable_pub)]
mod common;

use bytes::Bytes;
use journal::{Journal, Options};
use world::SimulatedDisk;

use crate::common::*;

/// Appends entries, and applies each.
fn grow(journal: &Journal, entries: std::ops::Range<u64>) {
    for index in entries {
        append_durably(journal, vec![entry(1, index, index, 900)]);
        journal.accept(index, 0);
    }
}

fn save(journal: &Journal, index: u64) {
    let id = journal.entry_id(index).unwrap();
    journal.begin_snapshot(id, Bytes::new()).write(Bytes::new()).unwrap();
    journal.purge(id);
}

#[test]
fn pinned_log_stays_readable_until_its_pin_advances_and_restarts_drop_pins() {
    for keep_log in [false, true] {
        let disk = SimulatedDisk::new();
        let options = || Options { keep_log, ..small() };
        let journal = try_open(&disk, options()).unwrap().journal;
        grow(&journal, 1..200);
        save(&journal, 150);
        let pin = journal.pin_log();
        // Several segments, none of which is reclaimed.
        for upto in [400, 600, 800] {
            grow(&journal, upto - 200..upto);
            save(&journal, upto - 10);
            journal.reclaim().unwrap();
        }
        let mut next = 151;
        while next < 800 {
            let entries = journal.encoded_entries(next..800, 40_000).unwrap();
            assert_eq!(entries[0].entry(), &entry(1, next, next, 900));
            next = entries.last().unwrap().id().index + 1;
        }
        let killed = disk.killed();
        let again = try_open(&killed, options()).unwrap();
        assert_eq!(again.snapshot.unwrap().id.index, 790);
        let again = again.journal;
        assert_eq!(again.last_id().unwrap().index, 799);
        let first = again.purged_id().map(|id| id.index);
        assert_eq!(first == Some(790), !keep_log, "{first:?}");
        grow(&again, 800..820);

        pin.advance(700);
        assert_eq!(journal.purged_id().unwrap().index, 699);
        drop(pin);
        assert_eq!(journal.purged_id().unwrap().index, 790);
    }
}
