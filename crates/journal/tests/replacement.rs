//! A follower's log: entries of one leader are truncated and replaced by those of the next, at any
//! moment between an append and its sync, with power loss at each write. After each recovery the
//! log is one that Raft allows: a state of the log at some moment, with all entries that were
//! acknowledged by then and not replaced since. Never a mixture of two leaders' entries.
//!
//! `REPLACEMENT_SEED=n cargo test -p journal --test replacement` runs one scenario;
//! `REPLACEMENT_SEEDS=n` runs the first n.

#[allow(unreachable_pub)]
mod common;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use common::*;
use journal::{Entry, EntryId, Journal, OpenedJournal, Options};
use tasks::Workers;
use world::{SimulatedDisk, World};

const LIVES: u64 = 4;

fn open_stepped(disk: &SimulatedDisk, keep_log: bool) -> Result<OpenedJournal, journal::OpenError> {
    let world = World {
        workers: Workers::Tasks(Arc::new(|_| Duration::ZERO)),
        ..World::on(Arc::new(disk.clone()))
    };
    Journal::open(&world, Path::new(DIR), Options { keep_log, ..small() })
}

/// The log for Raft; entry n is at n - 1.
type Log = Vec<Entry>;

enum Change {
    Append(Entry),
    /// The entries after this one are truncated.
    Cut(u64),
}

struct Model {
    /// Changes of the log since the journal was opened, when it was `begun`.
    changes: Vec<Change>,
    begun: Log,
    /// Number of the changes acknowledged as durable.
    acknowledged: Arc<AtomicUsize>,
    /// Entries up to here are applied: committed, and therefore never truncated.
    applied: u64,
    snapshot: u64,
    keep_log: bool,
    purged: u64,
    voted: u64,
    term: u64,
}

impl Model {
    /// The log after this many of the changes.
    fn after(&self, changes: usize) -> Log {
        let mut log = self.begun.clone();
        for change in &self.changes[..changes] {
            match change {
                Change::Append(entry) => log.push(entry.clone()),
                Change::Cut(last) => log.truncate(*last as usize),
            }
        }
        log
    }

    fn log(&self) -> Log {
        self.after(self.changes.len())
    }

    /// The journal was opened after a crash.
    fn check(&mut self, opened: &OpenedJournal) {
        let journal = &opened.journal;
        let purged = journal.purged_id().map_or(0, |id| id.index);
        let snapshot = opened.snapshot.as_ref().map_or(0, |snapshot| snapshot.id.index);
        assert!(
            snapshot == self.snapshot || snapshot == self.applied,
            "the snapshot at {snapshot}"
        );
        // A retained log starts at most one entry later than before.
        let least = if self.keep_log { self.purged + 1 } else { snapshot };
        assert!(purged <= snapshot && purged <= least.max(self.purged), "{purged} {least}");
        let found = all(journal);
        let acknowledged = self.acknowledged.load(Ordering::SeqCst);
        let allowed = (acknowledged..=self.changes.len())
            .map(|changes| self.after(changes))
            .find(|log| log.get(purged as usize..).unwrap_or_default() == found);
        let Some(log) = allowed else {
            let ids: Vec<_> = found.iter().map(|entry| (entry.id.term, entry.id.index)).collect();
            panic!("no log that there was after {acknowledged} changes is {ids:?} after {purged}");
        };
        assert!(log.len() as u64 >= self.applied, "something committed is gone");
        let vote = journal.vote().map_or(0, |vote| number(&vote));
        assert!(vote == self.voted || vote == self.voted + 1, "vote {vote} after {}", self.voted);
        self.begun = log;
        self.changes.clear();
        self.acknowledged = Arc::default();
        (self.voted, self.snapshot, self.purged) = (vote, snapshot, purged);
        self.applied = self.applied.max(snapshot);
        (snapshot + 1..=self.applied).for_each(|index| journal.accept(index, 0));
    }

    fn last(&self) -> u64 {
        self.log().len() as u64
    }
}

fn number(vote: &[u8]) -> u64 {
    u64::from_le_bytes(vote.try_into().expect("eight bytes"))
}

async fn pause(random: &mut Random) {
    for _ in 0..random.below(12) {
        tokio::task::yield_now().await;
    }
}

/// Uses the journal until the power fails, or for a while.
async fn live(
    journal: &Journal,
    model: &mut Model,
    random: &mut Random,
    seen: &mut ReplacementCoverage,
) {
    for _ in 0..60 {
        match random.below(10) {
            0..4 => {
                let last = model.last();
                append_some(journal, model, random, last);
            }
            4..7 => {
                // A later leader's entries, over some that may be durable, placed, or neither.
                let last = model.last();
                let keep = last.saturating_sub(random.below(8)).max(model.applied);
                let durable = model.acknowledged.load(Ordering::SeqCst);
                seen.cut_unwritten += u64::from(durable < model.changes.len() && keep < last);
                model.term += 1;
                if journal.truncate_after(Some(keep)).is_err() {
                    return;
                }
                model.changes.push(Change::Cut(keep));
                assert_eq!(journal.last_id().map_or(0, |id| id.index), keep);
                seen.cuts += 1;
                append_some(journal, model, random, keep);
            }
            7 => {
                let durable = model.after(model.acknowledged.load(Ordering::SeqCst));
                let log = model.log();
                // Durable entries that were not truncated since may be committed.
                let same = log.iter().zip(&durable).take_while(|(one, other)| one == other).count();
                for index in model.applied + 1..=same as u64 {
                    journal.accept(index, 0);
                }
                model.applied = model.applied.max(same as u64);
            }
            8 if model.applied > model.snapshot => {
                let id = EntryId { ..model.log()[model.applied as usize - 1].id };
                let pending = journal.begin_snapshot(id, Bytes::new());
                if pending.write(filling(model.applied, 3000)).is_err() {
                    return;
                }
                model.snapshot = model.applied;
                seen.snapshots += 1;
                let log = model.log();
                let least = model.purged.max(1);
                let purge = if model.keep_log {
                    least + random.below(model.applied - least + 1)
                } else {
                    model.applied
                };
                if !model.keep_log || random.below(2) == 0 {
                    journal.purge(log[purge as usize - 1].id);
                    model.purged = purge;
                }
            }
            9 => {
                if journal.save_vote(&(model.voted + 1).to_le_bytes()).is_err() {
                    return;
                }
                model.voted += 1;
            }
            _ => {}
        }
        let log = model.log();
        let purged = journal.purged_id().map_or(0, |id| id.index) as usize;
        match journal.held_entries(purged as u64 + 1..u64::MAX, usize::MAX) {
            Ok(Some(held)) => assert!(log[purged..].starts_with(&held), "what is held differs"),
            Ok(None) => {}
            Err(error) => panic!("{error}"),
        }
        pause(random).await;
    }
}

fn append_some(journal: &Journal, model: &mut Model, random: &mut Random, last: u64) {
    let new: Vec<Entry> = (last + 1..=last + 1 + random.below(5))
        .map(|index| {
            let len = if random.below(10) == 0 { random.below(20_000) } else { random.below(900) };
            entry(model.term, index, index - 1, 1 + len as usize)
        })
        .collect();
    let changes = model.changes.len() + new.len();
    let acknowledged = Arc::clone(&model.acknowledged);
    let durable = move |result: Result<(), _>| {
        if result.is_ok() {
            acknowledged.store(changes, Ordering::SeqCst);
        }
    };
    if journal.append(new.clone(), durable).is_ok() {
        model.changes.extend(new.into_iter().map(Change::Append));
    }
}

/// Coverage of the scenarios: events that must have occurred.
#[derive(Default, Debug)]
struct ReplacementCoverage {
    cuts: u64,
    cut_unwritten: u64,
    snapshots: u64,
    torn: u64,
    /// A recovery restored truncated entries.
    undone: u64,
}

async fn scenario(seed: u64, seen: &mut ReplacementCoverage) {
    let mut random = Random(seed);
    let keep_log = seed % 2 == 1;
    let mut disk = SimulatedDisk::new();
    let mut model = Model {
        changes: Vec::new(),
        begun: Vec::new(),
        acknowledged: Arc::default(),
        applied: 0,
        snapshot: 0,
        keep_log,
        purged: 0,
        voted: 0,
        term: 1,
    };
    for life in 1..=LIVES {
        let opened =
            open_stepped(&disk, keep_log).unwrap_or_else(|error| panic!("life {life}: {error}"));
        seen.torn += u64::from(opened.report.torn_tail.is_some());
        let latest = model.log();
        model.check(&opened);
        seen.undone +=
            u64::from(model.begun.last().map(|it| it.id) > latest.last().map(|it| it.id));
        seen.undone += u64::from(!latest.starts_with(&model.begun));
        model.term += 1;
        disk.cut_power_after(random.below(150));
        live(&opened.journal, &mut model, &mut random, seen).await;
        let found = match random.below(4) {
            0 => disk.killed(),
            _ => disk.power_loss(random.below(u64::MAX)),
        };
        drop(opened);
        disk = found;
    }
    let opened = open_stepped(&disk, keep_log).unwrap_or_else(|error| panic!("{error}"));
    model.check(&opened);
    let rest = &model.begun[model.snapshot as usize..];
    for index in model.applied + 1..=model.begun.len() as u64 {
        opened.journal.accept(index, 0);
    }
    let offset = rest.first().map(|first| first.bodies[0].base_offset);
    if let Some(offset) = offset {
        let read = opened.journal.read(7, offset, 1 << 20).await.expect("it is read");
        let served = joined(read);
        let expected: Vec<u8> = rest.iter().flat_map(|it| it.bodies[0].bytes.to_vec()).collect();
        assert!(expected.starts_with(&served) && !served.is_empty(), "what is served differs");
    }
}

#[tokio::test]
async fn recovered_log_is_a_former_state_with_all_acknowledged_entries() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let only = number("REPLACEMENT_SEED");
    let seeds = only.map_or(0..number("REPLACEMENT_SEEDS").unwrap_or(600), |seed| seed..seed + 1);
    let mut seen = ReplacementCoverage::default();
    for seed in seeds.clone() {
        let told = ended_well(scenario(seed, &mut seen)).await;
        assert!(told, "tell it again with REPLACEMENT_SEED={seed}");
    }
    println!("{seen:?}");
    let often = (seeds.end - seeds.start) / 20;
    let least = [seen.cuts, seen.cut_unwritten, seen.snapshots, seen.torn, seen.undone];
    assert!(only.is_some() || least.into_iter().all(|seen| seen > often), "{seen:?}");
}

/// Whether the scenario ended without a panic.
async fn ended_well(story: impl Future<Output = ()>) -> bool {
    let mut story = std::pin::pin!(story);
    std::future::poll_fn(|context| {
        let polled = std::panic::AssertUnwindSafe(|| story.as_mut().poll(context));
        match std::panic::catch_unwind(polled) {
            Ok(polled) => polled.map(|()| true),
            Err(_) => std::task::Poll::Ready(false),
        }
    })
    .await
}
