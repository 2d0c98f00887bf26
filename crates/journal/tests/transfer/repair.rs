//! Damaged segments: none of their batches is served, and another replica's batches replace them.
//!
//! `TRANSFER_SEED=n` runs one scenario.

use std::path::{Path, PathBuf};

use journal::transfer::{Export, ImportError, Repair, RepairDeferral, Section};
use journal::{CompactionDecision, Journal};

use crate::common::*;
use crate::replica::{History, Replica, options, section};

/// Bytes of a piece.
const PIECE_BYTES: usize = 3_000;

/// Two replicas with the same data in segments of their own, in files that the log has left.
pub(crate) fn both(random: &mut Random) -> (History, Replica, Replica) {
    let (mut history, mut sound, mut damaged) = (History::new(), Replica::new(), Replica::new());
    for _ in 0..6 {
        for _ in 0..10 + random.below(80) {
            history.grow(random);
        }
        for replica in [&mut sound, &mut damaged] {
            if random.below(3) > 0 {
                replica.follow(&history, history.last());
            }
            match random.below(4) {
                0 => replica.journal.roll(),
                1 => {
                    replica.snapshot().unwrap();
                    replica.journal.reclaim().unwrap();
                }
                _ => {}
            }
        }
    }
    for replica in [&mut sound, &mut damaged] {
        replica.follow(&history, history.last());
        replica.journal.roll();
    }
    history.grow(random);
    for replica in [&mut sound, &mut damaged] {
        replica.follow(&history, history.last());
        leave(replica);
    }
    (history, sound, damaged)
}

/// Lets the log begin in the segment that it is written to.
pub(crate) fn leave(replica: &mut Replica) {
    replica.snapshot().unwrap();
    replica.journal.purge(journal::EntryId { term: 1, leader: 1, index: replica.applied });
    replica.snapshot().unwrap();
    let sealed = || {
        let all = replica.journal.segments();
        let mut written = all.iter().filter(|it| !it.sealed);
        written.all(|it| replica.journal.is_written_to(it.id))
    };
    eventually("all that the log has left is sealed", sealed);
}

/// Files of the segments that the log has left and that have live batches.
pub(crate) fn left(journal: &Journal) -> Vec<(u32, PathBuf)> {
    let segments = journal.segments().into_iter().filter(|it| it.sealed && it.live_bytes > 0);
    let name = |id: u32, generation: u32| match generation {
        1 => format!("{id:08}.seg"),
        _ => format!("{id:08}.g{generation}.seg"),
    };
    segments.map(|it| (it.id, Path::new(DIR).join(name(it.id, it.generation)))).collect()
}

fn repairing(journal: &Journal, segment: u32, from: &Journal) -> (Repair, Export) {
    // After a start its sidecar may not be written yet.
    eventually("it is sealed", || journal.is_sealed(segment));
    let mut repair = journal.repair(segment).unwrap().expect("it may be repaired");
    let export = from.export(repair.covers().first.saturating_sub(1)).unwrap().unwrap();
    assert!(export.manifest().id.index >= repair.covers().last);
    repair.expect(&section(&export, Section::Segments).unwrap()).unwrap();
    (repair, export)
}

pub(crate) fn repair(journal: &Journal, segment: u32, from: &Journal) -> Result<(), ImportError> {
    let (mut repair, mut export) = repairing(journal, segment, from);
    while let Some(place) = repair.next_segment() {
        let mut row = Some(0);
        while let Some(at) = row {
            let piece = export.segment(place, at, PIECE_BYTES)?.expect("it is listed");
            repair.push(piece.bytes)?;
            row = piece.next;
        }
        repair.finish_segment()?;
    }
    repair.finish()
}

/// Reads everything and repairs damage until none is found.
pub(crate) fn read_and_repair(history: &History, damaged: &Replica, sound: &Replica) -> u32 {
    let mut repaired = 0;
    while !damaged.serves_all_live_batches(history) {
        let found = damaged.journal.damaged();
        assert!(!found.is_empty(), "it is not known what cannot be read");
        for damage in found {
            repair(&damaged.journal, damage.segment, &sound.journal).unwrap();
            repaired += 1;
        }
    }
    assert_eq!(damaged.journal.damaged(), []);
    repaired
}

fn scenario(seed: u64) -> u32 {
    let mut random = Random(seed);
    let (history, sound, mut damaged) = both(&mut random);
    let files = left(&damaged.journal);
    assert!(!files.is_empty(), "seed {seed}");
    let mut disk = damaged.disk.killed();
    let mut missing = false;
    for (_, file) in files {
        let len = disk.content(&file).unwrap().len() as u64;
        let sidecar = file.with_extension("idx");
        match random.below(8) {
            0 => disk.lose_file(&sidecar),
            1 => {
                let len = disk.content(&sidecar).unwrap().len() as u64;
                disk.flip_bit(&sidecar, random.below(len), random.below(8) as u8);
                disk.flip_bit(&file, random.below(len), random.below(8) as u8);
            }
            2 => {
                // The expected length of a segment rewritten since the snapshot is unknown.
                missing |= !file.to_str().unwrap().contains(".g");
                match random.below(2) {
                    0 => disk.lose_file(&file),
                    _ => disk.cut_file(&file, random.below(len)),
                }
            }
            3 => {}
            _ => {
                for _ in 0..=random.below(3) {
                    disk.flip_bit(&file, random.below(len), random.below(8) as u8);
                }
            }
        }
    }
    if missing {
        disk = disk.killed();
        let refused = try_open(&disk, options());
        assert!(refused.is_err(), "seed {seed}: alone a node does not start without its records");
        disk = disk.killed();
    }
    damaged.reopen_repairable(disk, &history);
    let repaired = read_and_repair(&history, &damaged, &sound);
    damaged.check(&history);
    // The rewritten segments are complete, and nothing is left over.
    let disk = damaged.disk.killed();
    damaged.reopen(disk, &history);
    damaged.check(&history);
    assert!(damaged.files().iter().all(|name| !name.ends_with(".tmp")));
    repaired
}

#[test]
fn damage_in_any_file_is_never_served_and_is_repaired_from_another_replica() {
    if let Ok(seed) = std::env::var("TRANSFER_SEED") {
        scenario(seed.parse().unwrap());
        return;
    }
    let repaired: u32 = (0..60).map(scenario).sum();
    assert!(repaired > 60, "only {repaired} segments were repaired");
}

/// A replica whose first segment is known to be damaged.
fn known(seed: u64) -> (History, Replica, Replica, u32) {
    let (history, sound, mut damaged) = both(&mut Random(seed));
    let (segment, file) = left(&damaged.journal).swap_remove(0);
    let disk = damaged.disk.killed();
    let len = disk.content(&file).unwrap().len() as u64;
    for place in (700..len).step_by(64) {
        disk.flip_bit(&file, place, 2);
    }
    damaged.reopen_repairable(disk, &history);
    assert!(!damaged.serves_all_live_batches(&history));
    assert_eq!(damaged.journal.damaged()[0].segment, segment);
    (history, sound, damaged, segment)
}

#[test]
fn damaged_segment_is_neither_rewritten_nor_sent_but_others_are() {
    let (history, sound, damaged, segment) = known(3);
    let journal = &damaged.journal;
    journal.reclaim().unwrap();
    assert!(journal.rewrite(segment, &mut |_, _, _| CompactionDecision::Same).is_err());
    let mut export = journal.export(0).unwrap().unwrap();
    let (mut place, mut refused) = (0, 0);
    'segments: loop {
        let mut row = Some(0);
        while let Some(at) = row {
            match export.segment(place, at, PIECE_BYTES) {
                Ok(None) => break 'segments,
                Ok(Some(piece)) => row = piece.next,
                Err(_) => {
                    refused += 1;
                    break;
                }
            }
        }
        place += 1;
    }
    assert_eq!(refused, 1, "of {place}");
    read_and_repair(&history, &damaged, &sound);
    damaged.check(&history);
}

#[test]
fn unsealed_or_claimed_segment_is_not_repaired_yet() {
    let (mut history, sound, mut damaged) = both(&mut Random(5));
    let mut random = Random(7);
    (0..40).for_each(|_| history.grow(&mut random));
    damaged.follow(&history, history.last());
    damaged.snapshot().unwrap();
    let all = damaged.journal.segments();
    let written = all.into_iter().find(|it| damaged.journal.is_written_to(it.id)).unwrap().id;
    assert_eq!(damaged.journal.repair(written).unwrap().unwrap_err(), RepairDeferral::Unsealed);
    // It is read from the disk, since it does not fit into the cache.
    let disk = damaged.disk.clone();
    let file = Path::new(DIR).join(format!("{written:08}.seg"));
    for place in 0..40 {
        disk.flip_bit(&file, 700 + place * 300, 1);
    }
    assert!(!damaged.serves_all_live_batches(&history));
    damaged.journal.roll();
    history.grow(&mut random);
    damaged.follow(&history, history.last());
    let sealed = || damaged.journal.is_sealed(written);
    eventually("it is sealed", sealed);
    assert_eq!(damaged.journal.repair(written).unwrap().unwrap_err(), RepairDeferral::Claimed);
    leave(&mut damaged);
    let mut sound = sound;
    sound.follow(&history, history.last());
    sound.snapshot().unwrap();
    read_and_repair(&history, &damaged, &sound);
    damaged.check(&history);
    assert_eq!(damaged.journal.repair(written).unwrap().unwrap_err(), RepairDeferral::Gone);
    assert_eq!(damaged.journal.repair(99_999).unwrap().unwrap_err(), RepairDeferral::Claimed);
}

#[test]
fn sound_batches_that_the_other_replica_compacted_are_kept() {
    let (history, sound, damaged, _) = known(8);
    let mut dropped = Vec::new();
    for (segment, _) in left(&sound.journal) {
        let mut keep = |stream: u64, address: &journal::Address, _: &[u8]| {
            if address.base_offset.is_multiple_of(2) {
                dropped.push((stream, address.base_offset));
                return CompactionDecision::Drop;
            }
            CompactionDecision::Same
        };
        sound.journal.rewrite(segment, &mut keep).unwrap();
    }
    assert!(!dropped.is_empty());
    let before: Vec<bool> = served(&damaged, &history);
    while let Some(damage) = damaged.journal.damaged().first() {
        repair(&damaged.journal, damage.segment, &sound.journal).unwrap();
        served(&damaged, &history);
    }
    let mut kept = 0;
    let all = history.live_at(damaged.applied).iter();
    let all = all.flat_map(|(stream, live)| live.keys().map(|offset| (*stream, *offset)));
    for ((place, now), before) in all.zip(served(&damaged, &history)).zip(before) {
        assert!(now || !before, "{place:?} was served before");
        assert!(now || dropped.contains(&place), "{place:?} is gone");
        kept += u32::from(now && dropped.contains(&place));
    }
    assert!(kept > 0);
}

/// For each live batch, whether it is served; served batches must be right.
fn served(replica: &Replica, history: &History) -> Vec<bool> {
    let mut all = Vec::new();
    for (&stream, live) in history.live_at(replica.applied) {
        for (&offset, bytes) in live {
            let read = block_on(replica.journal.read(stream, offset, 1));
            all.push(read.is_ok_and(|read| joined(read) == *bytes));
        }
    }
    all
}

#[test]
fn inconsistent_repair_is_refused_and_the_damaged_file_stays() {
    let (history, sound, damaged, segment) = known(11);
    let before = damaged.files();
    let refused = |pushed: Result<(), ImportError>| {
        assert!(matches!(pushed, Err(ImportError::Refused(_))), "{pushed:?}");
    };
    let (repair, export) = repairing(&damaged.journal, segment, &sound.journal);
    refused(repair.finish());
    let segments = section(&export, Section::Segments).unwrap();
    let begin = || repairing(&damaged.journal, segment, &sound.journal);
    let (mut repair, mut export) = begin();
    let piece = export.segment(0, 0, PIECE_BYTES).unwrap().unwrap().bytes;
    repair.push(piece.clone()).unwrap();
    refused(repair.push(piece.clone()));
    let (mut repair, _) = begin();
    refused(repair.push(piece.slice(..piece.len() - 1)));
    let (mut repair, _) = begin();
    refused(repair.expect(&segments[1..]));
    drop(repair);
    assert_eq!(damaged.files(), before);
    // The list of a replica that lags behind.
    let mut behind = Replica::new();
    behind.follow(&history, 3);
    behind.snapshot().unwrap();
    let export = behind.journal.export(0).unwrap().unwrap();
    let mut repair = damaged.journal.repair(segment).unwrap().unwrap();
    assert!(repair.covers().last > 3);
    refused(repair.expect(&section(&export, Section::Segments).unwrap()));
    drop(repair);
    read_and_repair(&history, &damaged, &sound);
    damaged.check(&history);
}
