//! Repeated power losses at any moment, also during recovery from the last one. Acknowledged
//! entries are there, byte for byte and in order; only others may be lost.
//!
//! One seed is one scenario of several lives. `POWER_LOSS_SEED=n cargo test -p journal --test
//! power_loss` runs one of them; `POWER_LOSS_SEEDS=n` runs the first n.

#[allow(unreachable_pub)]
mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use common::*;
use journal::{Entry, EntryId, Journal};
use world::SimulatedDisk;

const LIVES: u64 = 4;

/// Expected content of the journal.
struct Model {
    /// Entry 1 is the first.
    entries: Vec<Entry>,
    acknowledged: Arc<AtomicU64>,
    voted: u64,
}

impl Model {
    fn last(&self) -> u64 {
        self.entries.len() as u64
    }

    /// Checks the journal opened after a crash: only entries that were not acknowledged may be
    /// lost.
    fn check(&mut self, journal: &Journal) {
        let last = journal.last_id().map_or(0, |id| id.index);
        let acknowledged = self.acknowledged.load(Ordering::SeqCst);
        assert!(last >= acknowledged, "entry {acknowledged} was acknowledged, {last} is the last");
        assert!(last <= self.last(), "entry {last} was never appended");
        self.entries.truncate(last as usize);
        let purged = journal.purged_id().map_or(0, |id| id.index);
        assert!(all(journal) == self.entries[purged as usize..], "entries after {purged} differ");
        for index in purged + 1..=last {
            journal.accept(index, 0);
        }
        assert_serves(journal, &self.entries);
        let vote =
            journal.vote().map_or(0, |vote| u64::from_le_bytes((&vote[..]).try_into().unwrap()));
        assert!(vote == self.voted || vote == self.voted + 1, "vote {vote} after {}", self.voted);
        self.voted = vote;
        // Recovered entries are synced: they count as acknowledged from here on.
        self.acknowledged.fetch_max(last, Ordering::SeqCst);
    }
}

/// Uses the journal until the power fails.
fn live(journal: &Journal, model: &mut Model, random: &mut Random, life: u64) {
    let mut applied = model.last();
    for _ in 0..200 {
        let count = 1 + random.below(4);
        let entries: Vec<Entry> = (0..count)
            .map(|i| {
                let index = model.last() + 1 + i;
                let len = match random.below(10) {
                    0 => 1 + random.below(40_000),
                    1 => 512 * (1 + random.below(4)),
                    _ => 1 + random.below(900),
                };
                entry(life, index, index - 1, len as usize)
            })
            .collect();
        model.entries.extend(entries.iter().cloned());
        let (last, acknowledged) = (model.last(), model.acknowledged.clone());
        let appended = journal.append(entries, move |result| {
            if result.is_ok() {
                acknowledged.fetch_max(last, Ordering::SeqCst);
            }
        });
        if appended.is_err() {
            model.entries.truncate((last - count) as usize);
            return;
        }
        match random.below(12) {
            0..3 => {
                // Waits, and applies durable entries, as a machine would.
                let acknowledged = || model.acknowledged.load(Ordering::SeqCst);
                while acknowledged() < last {
                    if journal.append(vec![], |_| {}).is_err() {
                        return;
                    }
                    std::thread::yield_now();
                }
                (applied + 1..=last).for_each(|index| journal.accept(index, 0));
                applied = last;
            }
            3 if applied > 0 => {
                let id = EntryId { index: applied, ..model.entries[applied as usize - 1].id };
                let machine = filling(applied, 3000);
                if journal.begin_snapshot(id, Bytes::new()).write(machine).is_err() {
                    return;
                }
                if random.below(2) == 0 {
                    journal.purge(id);
                }
            }
            4 => {
                if journal.save_vote(&(model.voted + 1).to_le_bytes()).is_err() {
                    return;
                }
                model.voted += 1;
            }
            _ => {}
        }
    }
}

/// Coverage of the scenarios: events that must have occurred.
#[derive(Default, Debug)]
struct PowerLossCoverage {
    opened: u64,
    torn: u64,
    snapshots: u64,
    lost: u64,
    segments: usize,
}

fn scenario(seed: u64, seen: &mut PowerLossCoverage) {
    let mut random = Random(seed);
    let mut disk = SimulatedDisk::new();
    let mut model = Model { entries: Vec::new(), acknowledged: Arc::default(), voted: 0 };
    for life in 1..=LIVES {
        disk.cut_power_after(match random.below(3) {
            0 => random.below(30),
            _ => random.below(400),
        });
        if let Ok(opened) = try_open(&disk, small()) {
            seen.opened += 1;
            seen.torn += u64::from(opened.report.torn_tail.is_some());
            seen.snapshots += u64::from(opened.snapshot.is_some());
            seen.lost += u64::from(opened.report.last_index.unwrap_or(0) < model.last());
            seen.segments = seen.segments.max(opened.report.segments);
            if std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                model.check(&opened.journal)
            }))
            .is_err()
            {
                // The power may have failed during the check, which is then void.
                let dead = opened.journal.save_vote(&model.voted.to_le_bytes()).is_err();
                assert!(dead, "seed {seed}, life {life}");
            } else {
                live(&opened.journal, &mut model, &mut random, life);
            }
        }
        disk = match random.below(4) {
            0 => disk.killed(),
            _ => disk.power_loss(random.below(u64::MAX)),
        };
    }
    let opened = try_open(&disk, small());
    let opened = opened.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    model.check(&opened.journal);
    opened.journal.close();
}

#[test]
fn acknowledged_entries_survive_power_loss() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let mut seen = PowerLossCoverage::default();
    if let Some(seed) = number("POWER_LOSS_SEED") {
        return scenario(seed, &mut seen);
    }
    let seeds = number("POWER_LOSS_SEEDS").unwrap_or(1000);
    for seed in 0..seeds {
        let told =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| scenario(seed, &mut seen)));
        assert!(told.is_ok(), "tell it again with POWER_LOSS_SEED={seed}");
    }
    println!("{seen:?}");
    let often = seeds / 20;
    let dull = seen.opened < seeds || seen.torn < often || seen.snapshots < often;
    assert!(!dull && seen.lost >= often && seen.segments > 3, "{seen:?}");
}
