//! Crashes and damage at every position.

use super::world::World;
use crate::index::RunTable;
use crate::index::files::FileKind;
use crate::reclaim::CompactionDecision;

/// Three full segments of three streams, all sealed and covered by a snapshot; most of the first
/// is dead, all of the second.
fn mostly_dead() -> World {
    let mut world = World::new();
    for segment in 0..4 {
        for round in 0..6 {
            // Stream 7 lives in the first segment only and stays.
            let streams = if segment == 0 { [1, 2, 7] } else { [1, 2, 3] };
            for stream in streams {
                world.append(stream, 2, 100 + round * 7, i64::from(round), false);
            }
        }
        world.append_refused(1, 2, 50);
        // Shared bodies: one stream refuses them, and most streams lose them soon.
        let kept = if segment == 0 { (8, true) } else { (9, false) };
        world.fan_out(&[(1, true), (2, true), (3, false), kept], 1, 90, 6, false);
        world.fan_out(&[(1, true), (2, false), (3, true)], 1, 700, 6, false);
        world.roll();
    }
    world.seal().unwrap();
    world.trim(1, world.end(1) / 2 + 1);
    world.trim(2, world.end(2) / 2 + 3);
    // Holes between live batches; some batches die only by two calls together.
    world.punch(1, world.end(1) - 9, world.end(1) - 6);
    world.punch(1, world.end(1) - 6, world.end(1) - 3);
    world.punch(7, 3, 7);
    world.remove(3);
    world.append(1, 1, 10, 5, false);
    world.take_snapshot();
    world
}

#[test]
fn a_crash_at_any_step_of_reclaim_loses_no_live_batch() {
    let steps = {
        let world = mostly_dead();
        let before = world.disk.operations();
        let reclaimed = world.index.reclaim().unwrap();
        assert!(reclaimed.removed > 0 && reclaimed.rewritten > 0, "{reclaimed:?}");
        world.disk.operations() - before
    };
    for step in 1..=steps + 1 {
        for seed in 0..12 {
            let mut world = mostly_dead();
            world.disk.cut_power_after(step);
            let _ = world.index.reclaim();
            let disk = if seed == 0 { world.disk.killed() } else { world.disk.power_loss(seed) };
            world.reopen(disk);
            world.check();
            // The leftovers of the crash are completed and removed.
            world.index.reclaim().unwrap();
            world.check();
            world.check_exact_bytes();
        }
    }
}

#[test]
fn a_crash_at_any_step_of_sealing_loses_nothing() {
    let fill = || {
        let mut world = World::new();
        for number in 0..20 {
            world.append(number % 3, 1, 120, 0, false);
            if number % 7 == 6 {
                world.roll();
            }
        }
        world
    };
    let steps = {
        let world = fill();
        let before = world.disk.operations();
        world.seal().unwrap();
        world.disk.operations() - before
    };
    for step in 1..=steps + 1 {
        for seed in 0..12 {
            let mut world = fill();
            world.disk.cut_power_after(step);
            let _ = world.seal();
            let disk = if seed == 0 { world.disk.killed() } else { world.disk.power_loss(seed) };
            world.reopen(disk);
            world.seal().unwrap();
            world.take_snapshot();
            world.check();
            let disk = world.disk.killed();
            world.reopen(disk);
            world.check();
        }
    }
}

#[test]
fn sidecar_with_any_damaged_byte_is_rebuilt() {
    for generation in [1, 2] {
        let make = || {
            let mut world = mostly_dead();
            if generation == 2 {
                world.index.reclaim().unwrap();
                world.take_snapshot();
            }
            world
        };
        let world = make();
        let path = world.path(FileKind::Sidecar, 1, generation);
        let good = world.disk.content(&path).unwrap();
        for position in 0..good.len() as u64 {
            let mut world = make();
            let disk = world.disk.killed();
            disk.flip_bit(&path, position, position as u8);
            world.reopen(disk);
            world.check();
            let now = world.disk.content(&path).unwrap();
            assert_ne!(now.len(), 0);
            // Batches that are dead as a whole may be missing.
            assert!(now == good || now.len() < good.len(), "byte {position}");
        }
    }
}

#[test]
fn a_missing_segment_is_reported_and_a_deleted_one_is_not() {
    let mut world = mostly_dead();
    let table = RunTable::decode(&world.index.capture().table.encode()).unwrap();
    assert!(!table.dead().is_empty());
    // Deleted before the crash: the snapshot still lists it, as dead.
    world.index.reclaim().unwrap();
    let disk = world.disk.killed();
    world.reopen(disk);
    world.check();

    let mut world = mostly_dead();
    let disk = world.disk.killed();
    disk.lose_file(&world.path(FileKind::Segment, 1, 1));
    let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.reopen(disk)));
    assert!(refused.is_err());
}

#[test]
fn a_full_disk_leaves_addresses_in_memory_and_segments_as_they_are() {
    let mut world = World::new();
    for _ in 0..10 {
        world.append(1, 1, 200, 0, false);
    }
    world.roll();
    world.disk.set_capacity(Some(0));
    assert!(world.seal().is_err());
    world.check();
    world.disk.set_capacity(None);
    world.seal().unwrap();
    world.check();

    let world = mostly_dead();
    world.disk.set_capacity(Some(0));
    let failed = world.index.reclaim();
    assert!(failed.is_err());
    world.check();
    world.disk.set_capacity(None);
    world.index.reclaim().unwrap();
    world.check();
}

#[test]
fn shared_body_is_stored_once_until_its_last_row_dies() {
    let mut world = World::new();
    let streams = [(1, true), (2, true), (3, true), (4, true), (5, true)];
    for _ in 0..10 {
        world.fan_out(&streams, 1, 1_000, 0, false);
        world.append(9, 1, 30, 0, false);
    }
    world.roll();
    world.seal().unwrap();
    let full = world.full_bytes();
    assert!(full < 11_000, "{full} bytes for ten bodies of 1,000");
    let rewrite = |world: &mut World| {
        world.take_snapshot();
        let reclaimed = world.index.reclaim().unwrap();
        world.check();
        world.check_exact_bytes();
        (reclaimed.removed, reclaimed.rewritten)
    };
    // Four of five rows are dead, and not one byte can be freed.
    for stream in 1..5 {
        world.trim(stream, 10);
        assert_eq!(rewrite(&mut world), (0, 0), "stream {stream}");
    }
    // Half of the last row's bodies die, one by one.
    for offset in 0..5 {
        assert_eq!(rewrite(&mut world), (0, 0), "offset {offset}");
        world.punch(5, offset, offset + 1);
    }
    assert_eq!(rewrite(&mut world), (0, 1));
    assert!(world.full_bytes() < 6_500, "{} bytes", world.full_bytes());
    let disk = world.disk.killed();
    world.reopen(disk);
    world.check();
    world.trim(5, 10);
    world.trim(9, 10);
    assert_eq!(rewrite(&mut world), (1, 0));
    assert_eq!(world.full_bytes(), 0);
}

#[test]
fn rewriting_keeps_one_copy_and_gives_the_last_row_its_own() {
    let mut world = World::new();
    for _ in 0..10 {
        world.fan_out(&[(1, true), (2, true), (3, true)], 1, 1_000, 0, false);
    }
    world.roll();
    world.seal().unwrap();
    // Only stream 3 keeps the first five.
    world.trim(1, 5);
    world.trim(2, 5);
    for generation in 2..5 {
        world.take_snapshot();
        world.index.rewrite(1, &mut |_, _, _| CompactionDecision::Same).unwrap();
        assert!(world.full_bytes() < 11_500, "{} bytes", world.full_bytes());
        world.check();
        let shared = |stream| {
            let found = world.index.batches(stream, 0).unwrap();
            found.iter().filter(|it| it.shared).count()
        };
        assert_eq!([shared(1), shared(2), shared(3)], [5, 5, 5]);
        let disk = world.disk.killed();
        disk.lose_file(&world.path(FileKind::Sidecar, 1, generation));
        world.reopen(disk);
        world.check();
    }
    // Three streams keep a batch of their own each of their shared ones.
    world.compact(1, 2);
    world.check();
    let disk = world.disk.killed();
    world.reopen(disk);
    world.check();
}

#[test]
fn segment_keeps_the_log_indexes_of_its_batches() {
    let mut world = World::new();
    world.append_refused(1, 1, 50);
    world.append(1, 1, 50, 0, false);
    world.fan_out(&[(1, true), (2, true)], 1, 50, 0, false);
    world.append_refused(1, 1, 50);
    world.roll();
    world.append(1, 1, 50, 0, false);
    world.roll();
    world.seal().unwrap();
    world.take_snapshot();
    world.index.rewrite(1, &mut |_, _, _| CompactionDecision::Same).unwrap();
    let indexes = |world: &World| {
        let of = |segment, generation| {
            let sidecar = world.index.sidecar(segment, generation).unwrap();
            assert_eq!(sidecar.indexes(), world.index.indexes(segment));
            sidecar.indexes()
        };
        [of(1, 2), of(2, 1)]
    };
    assert_eq!(indexes(&world), [Some((1, 3)), Some((5, 5))]);
    let disk = world.disk.killed();
    world.reopen(disk);
    assert_eq!(indexes(&world), [Some((1, 3)), Some((5, 5))]);
}

#[test]
fn punched_offsets_stay_dead_after_any_crash() {
    // Snapshot, punch, rewrite by the punch, crash: the table has neither, the file has both.
    let mut world = mostly_dead();
    world.punch(7, 0, 3);
    world.index.reclaim().unwrap();
    let disk = world.disk.killed();
    world.reopen(disk);
    world.check();
    world.index.reclaim().unwrap();
    world.check_exact_bytes();

    // Snapshot between punch and rewrite: the holes come from it, not from a replay.
    let mut world = mostly_dead();
    world.punch(7, 0, 3);
    world.take_snapshot();
    let disk = world.disk.killed();
    world.reopen(disk);
    world.check();
    // Lose its sidecar: the rebuilt one has the dead batches too, and they are still not served.
    let disk = world.disk.killed();
    disk.lose_file(&world.path(FileKind::Sidecar, 1, 1));
    world.reopen(disk);
    world.check();
    world.index.reclaim().unwrap();
    world.check_exact_bytes();
}

#[test]
fn a_segment_that_was_punched_to_the_last_batch_is_deleted() {
    for sealed_before in [false, true] {
        let mut world = World::new();
        for segment in 0..3 {
            for _ in 0..5 {
                world.append(1, 2, 100, 0, false);
            }
            if segment < 2 {
                world.roll();
            }
        }
        if sealed_before {
            world.seal().unwrap();
        }
        // One by one and out of order, the second segment's.
        for offset in (10..20).rev() {
            world.punch(1, offset, offset + 1);
            world.check();
        }
        world.seal().unwrap();
        world.take_snapshot();
        assert_eq!(world.index.reclaim().unwrap().removed, 1);
        world.check();
        let disk = world.disk.killed();
        world.reopen(disk);
        world.check();
    }
}

#[test]
fn run_tables_of_former_versions_are_still_read() {
    for version in [1, 2] {
        let mut world = World::new();
        for round in 0..3 {
            world.append(1, 2, 100, round, false);
            world.append_refused(2, 1, 50);
        }
        world.roll();
        world.append(1, 2, 100, 9, false);
        world.seal().unwrap();
        if version > 1 {
            world.punch(1, 2, 4);
        }
        let table = RunTable::decode(&world.index.capture().table.encode()).unwrap();
        let old = RunTable::decode(&table.encode_version(version)).unwrap();
        // Former versions encode everything but the log indexes.
        assert_eq!(old.encode_version(version), table.encode_version(version));
        assert_ne!(old.encode(), table.encode());
        let newer = [&table.encode()[..4], &[9], &table.encode()[5..]].concat();
        assert!(RunTable::decode(&newer).is_err());
    }
}

#[test]
fn reader_keeps_its_file_while_the_segment_is_rewritten() {
    use crate::index::{Plan, SegmentRead};
    use crate::read::read_part;

    let world = mostly_dead();
    // Sidecars are loaded so that the plan is complete.
    let all = world.index.batches(7, 0).unwrap();
    let Plan::Ready(parts) = world.index.plan(7, 0, usize::MAX, None) else { panic!("not loaded") };
    let SegmentRead { segment, generation, .. } = parts[0];
    let handle = world.index.files().segment(segment, generation).unwrap();
    world.index.reclaim().unwrap();
    assert!(!world.index.is_current(segment, generation));
    let mut first = vec![0; all[0].len as usize];
    handle.read_at(&mut first, u64::from(all[0].position)).unwrap();
    assert_eq!(first, world.model[&7][&0].bytes);
    // A plan from before the rewrite without a handle must be repeated.
    assert!(read_part(&world.index, &parts[0], &mut Vec::new()).is_err());
    world.check();
}

#[test]
fn reader_of_a_just_deleted_segment_has_to_plan_again() {
    use crate::index::{LoadError, Plan};
    use crate::read::read_part;

    let mut world = mostly_dead();
    world.index.batches(7, 0).unwrap();
    let Plan::Ready(parts) = world.index.plan(7, 0, usize::MAX, None) else { panic!("not loaded") };
    let part = &parts[0];
    for stream in [1, 2, 7, 8] {
        world.trim(stream, world.end(stream));
    }
    world.take_snapshot();
    // In the middle of a deletion the file is gone but still in the table.
    world.index.files().remove_segment(part.segment, part.generation).unwrap();
    let read = read_part(&world.index, part, &mut Vec::new());
    assert!(matches!(read, Err(LoadError::Gone)), "{read:?}");
}

#[test]
fn garbage_is_never_decoded_as_a_run_table() {
    let good = mostly_dead().index.capture().table.encode();
    assert!(RunTable::decode(&good).is_ok());
    for position in 0..good.len() {
        let mut bad = good.clone();
        bad[position] ^= 1 << (position % 8);
        assert!(RunTable::decode(&bad).is_err(), "byte {position}");
        assert!(RunTable::decode(&good[..position]).is_err(), "cut at {position}");
        // Even with a right checksum nothing panics or allocates much memory.
        let content = bad.len() - 4;
        let crc = base::checksum::crc32c(&bad[..content]).to_le_bytes();
        bad[content..].copy_from_slice(&crc);
        let _ = RunTable::decode(&bad);
    }
}

#[test]
fn tail_cache_serves_no_position_of_a_rewritten_segment() {
    let mut world = World::new();
    for _ in 0..3 {
        world.append(1, 1, 72, 0, false);
    }
    world.roll();
    world.seal().unwrap();
    world.take_snapshot();
    let before = world.index.batches(1, 0).unwrap();
    world.index.rewrite(1, &mut |_, _, _| CompactionDecision::Same).unwrap();
    // The first batch is now where the log wrote the second, which is still in the tail cache.
    assert_eq!(world.index.batches(1, 0).unwrap()[0].position, before[1].position);
    world.check();
}
