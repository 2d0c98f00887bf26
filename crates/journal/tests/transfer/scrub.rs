//! A pass over all stored data finds damage that nothing has read.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use journal::Journal;

use crate::common::*;
use crate::repair::{both, left, read_and_repair};
use crate::replica::{Replica, STREAMS};

/// Runs a full pass. Returns the number of damaged snapshots.
fn pass(journal: &Journal) -> u32 {
    let mut scrub = journal.scrub().unwrap();
    let (_, of_bytes) = scrub.progress();
    assert!(of_bytes > 0);
    let mut last = 0;
    while let Some(step) = scrub.step() {
        let (bytes, of) = scrub.progress();
        assert!(bytes == last + step.bytes && bytes <= of);
        last = bytes;
    }
    scrub.bad_snapshots()
}

#[test]
fn scrub_of_sound_files_finds_no_damage() {
    for seed in 0..6 {
        let (history, sound, other) = both(&mut Random(seed));
        for replica in [&sound, &other] {
            assert_eq!(pass(&replica.journal), 0);
            assert_eq!(replica.journal.damaged(), []);
            replica.check(&history);
        }
    }
}

#[test]
fn flipped_bit_in_any_live_batch_is_found_and_its_segment_repaired() {
    for seed in 0..12 {
        let mut random = Random(seed);
        let (history, sound, damaged) = both(&mut random);
        let journal = &damaged.journal;
        let mut flipped = BTreeSet::new();
        for (segment, file) in left(journal) {
            let all = (0..STREAMS).flat_map(|stream| journal.batches(stream, 0).unwrap());
            let all: Vec<_> = all.filter(|batch| batch.segment == segment).collect();
            let batch = all[random.below(all.len() as u64) as usize];
            let place = u64::from(batch.position) + random.below(batch.len.into());
            damaged.disk.flip_bit(&file, place, random.below(8) as u8);
            flipped.insert(segment);
        }
        assert_eq!(pass(journal), 0);
        let found: BTreeSet<u32> = journal.damaged().iter().map(|it| it.segment).collect();
        assert_eq!(found, flipped, "seed {seed}");
        while let Some(damage) = journal.damaged().first() {
            crate::repair::repair(journal, damage.segment, &sound.journal).unwrap();
        }
        pass(journal);
        assert_eq!(journal.damaged(), [], "seed {seed}");
        assert_eq!(read_and_repair(&history, &damaged, &sound), 0);
        damaged.check(&history);
    }
}

#[test]
fn damaged_sidecar_is_rebuilt_and_damaged_snapshot_is_reported() {
    let (history, _, damaged) = both(&mut Random(2));
    let (_, file) = left(&damaged.journal).swap_remove(0);
    let sidecar = file.with_extension("idx");
    damaged.disk.flip_bit(&sidecar, 70, 1);
    let bad = damaged.disk.content(&sidecar).unwrap();
    assert_eq!(pass(&damaged.journal), 0);
    let anew = damaged.disk.content(&sidecar).unwrap();
    assert_eq!(pass(&damaged.journal), 0);
    assert_ne!(anew, bad);
    assert_eq!(damaged.disk.content(&sidecar).unwrap(), anew, "it was damaged still");
    damaged.disk.lose_file(&sidecar);
    assert_eq!(pass(&damaged.journal), 0);
    assert_eq!(damaged.disk.content(&sidecar).unwrap(), anew);
    assert_eq!(damaged.journal.damaged(), []);

    let snapshots = || {
        let mut names = damaged.files();
        names.retain(|name| name.starts_with("snapshot-"));
        names.sort();
        names
    };
    let newest = snapshots().pop().unwrap();
    damaged.disk.flip_bit(&Path::new(DIR).join(&newest), 300, 1);
    assert_eq!(pass(&damaged.journal), 1);
    damaged.snapshot().unwrap();
    assert_eq!(pass(&damaged.journal), 0, "the same one was written again");
    // A damaged snapshot that is not the newest is removed.
    let all = snapshots();
    if let [older, _] = &all[..] {
        damaged.disk.flip_bit(&Path::new(DIR).join(older), 300, 1);
        assert_eq!(pass(&damaged.journal), 1);
        assert_eq!(snapshots(), all[1..]);
    }
    damaged.check(&history);
}

/// The segment that is written to, with its file, and the end of the written frames.
fn written_to(replica: &Replica) -> (u32, PathBuf, u64) {
    let id = (1..).find(|id| replica.journal.is_written_to(*id)).unwrap();
    let file = Path::new(DIR).join(format!("{id:08}.seg"));
    let content = replica.disk.content(&file).unwrap();
    let end = content.iter().rposition(|byte| *byte != 0).unwrap();
    (id, file, end as u64)
}

#[test]
fn flipped_bit_in_the_segment_that_is_written_to_is_found() {
    for seed in 0..12 {
        let mut random = Random(seed);
        let (mut history, _, mut damaged) = both(&mut random);
        (0..20).for_each(|_| history.grow(&mut random));
        damaged.follow(&history, history.last());
        let (segment, file, end) = written_to(&damaged);
        // No checksum covers the padding behind a frame's content: take bytes before the last
        // non-zero one.
        let first = 512;
        let mut content = damaged.disk.content(&file).unwrap();
        content.truncate(end as usize);
        let used: Vec<u64> = (first..end).filter(|at| content[*at as usize] != 0).collect();
        let place = used[random.below(used.len() as u64) as usize];
        damaged.disk.flip_bit(&file, place, random.below(8) as u8);
        assert_eq!(pass(&damaged.journal), 0);
        let found: Vec<u32> = damaged.journal.damaged().iter().map(|it| it.segment).collect();
        assert_eq!(found, [segment], "seed {seed}, at {place} of {end}");
    }
}

#[test]
fn frames_written_during_a_pass_are_not_reported_as_damage() {
    for seed in 0..12 {
        let mut random = Random(seed);
        let (mut history, _, mut replica) = both(&mut random);
        let mut scrub = replica.journal.scrub().unwrap();
        loop {
            (0..5).for_each(|_| history.grow(&mut random));
            replica.follow(&history, history.last());
            if random.below(3) == 0 {
                replica.journal.roll();
            }
            if scrub.step().is_none() {
                break;
            }
        }
        assert_eq!(replica.journal.damaged(), [], "seed {seed}");
    }
}
