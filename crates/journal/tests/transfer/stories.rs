//! Scenarios by seed. `TRANSFER_SEED=n cargo test -p journal --test transfer` runs one,
//! `TRANSFER_SEEDS=n` the first n.

use std::panic::{AssertUnwindSafe, catch_unwind};

use journal::transfer::ImportError;

use crate::common::Random;
use crate::replica::{History, Replica, SnapshotReceiver};

/// Coverage of the scenarios: events that must have occurred.
#[derive(Default, Debug)]
struct TransferCoverage {
    installed: u64,
    /// Crashes of the receiver that left the old state, and the new one.
    old: u64,
    new: u64,
    /// Attempts that resumed an earlier one.
    resumed: u64,
    sender_restarts: u64,
    segments: u64,
}

/// The sender continues meanwhile: it appends, takes snapshots, reclaims space.
fn use_sender(sender: &mut Replica, history: &mut History, random: &mut Random) {
    for _ in 0..random.below(6) {
        history.grow(random);
    }
    sender.follow(history, history.last());
    match random.below(6) {
        0 => sender.snapshot().unwrap(),
        1 => _ = sender.journal.reclaim().unwrap(),
        2 => sender.journal.roll(),
        _ => {}
    }
}

/// Whether the receiver completed the snapshot. `sent_at` is the sender's applied index at the end.
fn attempt(
    sender: &mut Replica,
    receiver: &mut Replica,
    history: &mut History,
    random: &mut Random,
    seen: &mut TransferCoverage,
    sent_at: &mut u64,
) -> Result<bool, ImportError> {
    let import = receiver.journal.import()?;
    seen.resumed += u64::from(import.have() > receiver.applied);
    let Some(mut export) = sender.journal.export(import.have())? else { return Ok(false) };
    *sent_at = (*sent_at).max(sender.applied);
    if export.manifest().id.index <= receiver.applied {
        return Ok(false);
    }
    let mut receiving = SnapshotReceiver::begin(import, &export)?;
    let given_up = random.below(4) == 0;
    while receiving.step(&mut export)? {
        *sent_at = sender.applied;
        seen.segments += 1;
        if random.below(3) == 0 {
            use_sender(sender, history, random);
        }
        if given_up && random.below(12) == 0 {
            return Ok(false);
        }
        if random.below(60) == 0 {
            // The sender loses the export; the receiver gets an error and starts over.
            let disk = sender.disk.killed();
            sender.reopen(disk, history);
            seen.sender_restarts += 1;
            return Ok(false);
        }
    }
    let received = receiving.received(&export)?;
    if receiving.import.is_resumed()
        && !history.renewed(receiver.applied, received.id.index).is_empty()
    {
        receiving.import.discard()?;
        return Ok(false);
    }
    if random.below(2) == 0 {
        // At a random disk operation of the installation.
        receiver.disk.cut_power_after(random.below(30));
    }
    receiver.install(history, receiving, received, *sent_at)?;
    seen.installed += 1;
    Ok(true)
}

fn scenario(seed: u64, seen: &mut TransferCoverage) {
    let mut random = Random(seed);
    let mut history = History::new();
    let (mut sender, mut receiver) = (Replica::new(), Replica::new());
    for round in 0..3 {
        // The receiver follows for a while, or is empty, and may have entries without a quorum.
        if round > 0 || random.below(3) > 0 {
            for _ in 0..random.below(80) {
                history.grow(&mut random);
            }
            receiver.follow(&history, history.last());
            if random.below(2) == 0 {
                receiver.snapshot().unwrap();
            }
            if random.below(2) == 0 {
                receiver.append_unreplicated(random.below(40), &mut random);
            }
        }
        for _ in 0..40 + random.below(250) {
            history.grow(&mut random);
            if random.below(30) == 0 {
                use_sender(&mut sender, &mut history, &mut random);
            }
        }
        sender.follow(&history, history.last());
        sender.snapshot().unwrap();
        let mut sent_at = 0;
        loop {
            let crash = random.below(3) > 0;
            if crash {
                receiver.disk.cut_power_after(random.below(120));
            }
            let attempted = catch_unwind(AssertUnwindSafe(|| {
                let before = receiver.applied;
                let ended = attempt(
                    &mut sender,
                    &mut receiver,
                    &mut history,
                    &mut random,
                    seen,
                    &mut sent_at,
                );
                (before, ended)
            }));
            let dead = receiver.disk.is_dead();
            match attempted {
                Ok((_, Ok(true))) if !dead => break,
                Ok((_, Ok(_))) => {}
                Ok((_, Err(error))) => assert!(dead, "seed {seed}: {error}"),
                Err(_) => assert!(dead, "seed {seed}"),
            }
            if dead || random.below(4) == 0 {
                let had = receiver.applied;
                let disk = match random.below(3) {
                    0 if !dead => receiver.disk.killed(),
                    _ => receiver.disk.power_loss(random.below(u64::MAX)),
                };
                receiver.journal.close();
                receiver.reopen(disk, &history);
                match receiver.applied > had {
                    true => seen.new += 1,
                    false => seen.old += 1,
                }
                receiver.note_installed(sent_at);
                receiver.check(&history);
            } else {
                receiver.disk.cut_power_after(u64::MAX >> 1);
            }
            if receiver.applied >= sender.applied {
                break;
            }
            if random.below(3) == 0 {
                use_sender(&mut sender, &mut history, &mut random);
                sender.snapshot().unwrap();
            }
        }
        receiver.disk.cut_power_after(u64::MAX >> 1);
        if receiver.disk.is_dead() {
            let disk = receiver.disk.power_loss(random.below(u64::MAX));
            receiver.journal.close();
            receiver.reopen(disk, &history);
        }
        receiver.check(&history);
        // It continues as any other replica.
        receiver.follow(&history, history.last());
        receiver.check(&history);
        if random.below(2) == 0 {
            receiver.snapshot().unwrap();
        }
        receiver.journal.reclaim().unwrap();
        receiver.check(&history);
        if random.below(4) == 0 {
            check_copy(&receiver, &history);
        }
        if random.below(2) == 0 {
            let disk = receiver.disk.power_loss(random.below(u64::MAX));
            receiver.journal.close();
            receiver.reopen(disk, &history);
            receiver.follow(&history, history.last());
            receiver.check(&history);
        }
        if random.below(2) == 0 {
            // A receiver can become a sender.
            std::mem::swap(&mut sender, &mut receiver);
            sender.follow(&history, history.last());
        }
    }
}

/// The receiver installs the sender's newest snapshot. Without effect if the sender has none.
fn copy(sender: &Replica, receiver: &mut Replica, history: &History) {
    let import = receiver.journal.import().unwrap();
    let Some(mut export) = sender.journal.export(import.have()).unwrap() else { return };
    let mut receiving = SnapshotReceiver::begin(import, &export).unwrap();
    while receiving.step(&mut export).unwrap() {}
    let received = receiving.received(&export).unwrap();
    receiver.install(history, receiving, received, sender.applied).unwrap();
    receiver.check(history);
}

/// An empty replica receives all that this one has: also batches of entries that this one both
/// appended and received. It sends all of them, too, to a replica that has the first entries.
fn check_copy(sender: &Replica, history: &History) {
    sender.snapshot().unwrap();
    let mut empty = Replica::new();
    copy(sender, &mut empty, history);
    let mut lagging = Replica::new();
    lagging.follow(history, sender.applied / 4);
    lagging.snapshot().unwrap();
    copy(&empty, &mut lagging, history);
}

#[test]
fn lagging_replica_catches_up_despite_faults_on_both_sides() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let mut seen = TransferCoverage::default();
    if let Some(seed) = number("TRANSFER_SEED") {
        return scenario(seed, &mut seen);
    }
    let seeds = number("TRANSFER_SEEDS").unwrap_or(30);
    for seed in 0..seeds {
        let told = catch_unwind(AssertUnwindSafe(|| scenario(seed, &mut seen)));
        assert!(told.is_ok(), "tell it again with TRANSFER_SEED={seed}");
    }
    println!("{seen:?}");
    let often = seeds / 4;
    let dull = [seen.installed, seen.old, seen.new, seen.resumed, seen.sender_restarts];
    assert!(dull.into_iter().all(|times| times >= often), "{seen:?}");
}

#[test]
fn replica_that_received_entries_of_its_own_log_sends_all_of_them() {
    for seed in 0..20 {
        let (mut random, mut history) = (Random(seed), History::new());
        (0..40).for_each(|_| history.grow(&mut random));
        let (mut sender, mut receiver) = (Replica::new(), Replica::new());
        sender.follow(&history, history.last());
        sender.snapshot().unwrap();
        // Without a snapshot of its own it receives everything, and keeps the batches that it has.
        receiver.follow(&history, 25);
        copy(&sender, &mut receiver, &history);
        check_copy(&receiver, &history);
    }
}
