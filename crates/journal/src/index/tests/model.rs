//! Random operations: the index returns the same as the model.

use proptest::prelude::*;

use super::world::World;
use crate::index::files::FileKind;

#[derive(Clone, Debug)]
enum Step {
    Append {
        slot: usize,
        span: u32,
        len: u32,
        time: i64,
        roll: bool,
    },
    Refused {
        slot: usize,
        span: u32,
        len: u32,
    },
    /// One body for several slots, some of which refuse it.
    FanOut {
        slots: [Option<bool>; SLOTS],
        span: u32,
        len: u32,
        time: i64,
        roll: bool,
    },
    Trim {
        slot: usize,
        percent: u64,
    },
    Punch {
        slot: usize,
        percent: u64,
        len: u64,
    },
    Remove {
        slot: usize,
    },
    Roll,
    Seal,
    Snapshot,
    Reclaim,
    Compact {
        pick: u32,
        every: u64,
    },
    Reopen {
        lose_sidecar: Option<u32>,
        power_loss: Option<u64>,
    },
}

const SLOTS: usize = 4;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let slot = 0..SLOTS;
    let append = (slot.clone(), 1..6_u32, 1..300_u32, 0..50_i64, prop::bool::weighted(0.1));
    let step = prop_oneof![
        30 => append.prop_map(|(slot, span, len, time, roll)| {
            Step::Append { slot, span, len, time, roll }
        }),
        4 => (slot.clone(), 1..6_u32, 1..300_u32)
            .prop_map(|(slot, span, len)| Step::Refused { slot, span, len }),
        15 => (any::<[Option<bool>; SLOTS]>(), 1..6_u32, 1..900_u32, 0..50_i64, prop::bool::weighted(0.1))
            .prop_map(|(slots, span, len, time, roll)| Step::FanOut { slots, span, len, time, roll }),
        6 => (slot.clone(), 0..120_u64).prop_map(|(slot, percent)| Step::Trim { slot, percent }),
        10 => (slot.clone(), 0..100_u64, 1..40_u64)
            .prop_map(|(slot, percent, len)| Step::Punch { slot, percent, len }),
        1 => slot.prop_map(|slot| Step::Remove { slot }),
        4 => Just(Step::Roll),
        4 => Just(Step::Seal),
        3 => Just(Step::Snapshot),
        3 => Just(Step::Reclaim),
        2 => (0..8_u32, 2..6_u64).prop_map(|(pick, every)| Step::Compact { pick, every }),
        2 => (prop::option::of(0..8_u32), prop::option::of(any::<u64>()))
            .prop_map(|(lose_sidecar, power_loss)| Step::Reopen { lose_sidecar, power_loss }),
    ];
    prop::collection::vec(step, 1..80)
}

/// Streams by slot; a slot gets a new number when its stream is removed, as topics do.
struct Streams([u64; SLOTS]);

fn run(world: &mut World, streams: &mut Streams, step: &Step) {
    match *step {
        Step::Append { slot, span, len, time, roll } => {
            world.append(streams.0[slot], span, len, time, roll);
        }
        Step::Refused { slot, span, len } => world.append_refused(streams.0[slot], span, len),
        Step::FanOut { slots, span, len, time, roll } => {
            let taken = slots.iter().zip(streams.0);
            let taken = taken.filter_map(|(taken, stream)| taken.map(|taken| (stream, taken)));
            let taken: Vec<(u64, bool)> = taken.collect();
            if !taken.is_empty() {
                world.fan_out(&taken, span, len, time, roll);
            }
        }
        Step::Trim { slot, percent } => {
            let stream = streams.0[slot];
            // Never beyond the end: the machine ensures that.
            let start = (world.end(stream) * percent / 100).min(world.end(stream));
            world.trim(stream, start);
        }
        Step::Punch { slot, percent, len } => {
            let stream = streams.0[slot];
            let from = world.end(stream) * percent / 100;
            world.punch(stream, from, from + len);
        }
        Step::Remove { slot } => {
            world.remove(streams.0[slot]);
            streams.0[slot] += SLOTS as u64;
        }
        Step::Roll => world.roll(),
        Step::Seal => world.seal().unwrap(),
        Step::Snapshot => world.take_snapshot(),
        Step::Reclaim => {
            world.index.reclaim().unwrap();
            world.check_exact_bytes();
        }
        Step::Compact { pick, every } => world.compact(pick % world.active() + 1, every),
        Step::Reopen { lose_sidecar, power_loss } => {
            let disk = match power_loss {
                Some(seed) => world.disk.power_loss(seed),
                None => world.disk.killed(),
            };
            if let Some(pick) = lose_sidecar {
                for generation in 1..4 {
                    let segment = pick % world.active() + 1;
                    disk.lose_file(&world.path(FileKind::Sidecar, segment, generation));
                }
            }
            world.reopen(disk);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn index_agrees_with_a_map(steps in steps()) {
        let mut world = World::new();
        let mut streams = Streams(std::array::from_fn(|slot| slot as u64));
        for step in &steps {
            run(&mut world, &mut streams, step);
        }
        world.check();
        let disk = world.disk.killed();
        world.reopen(disk);
        world.check();
    }

    #[test]
    fn space_of_dead_batches_is_reclaimed(steps in steps()) {
        let mut world = World::new();
        let mut streams = Streams(std::array::from_fn(|slot| slot as u64));
        for step in &steps {
            run(&mut world, &mut streams, step);
        }
        world.roll();
        world.seal().unwrap();
        world.take_snapshot();
        let mut passes = 0;
        loop {
            let reclaimed = world.index.reclaim().unwrap();
            world.take_snapshot();
            if (reclaimed.removed, reclaimed.rewritten, reclaimed.waiting) == (0, 0, 0) {
                break;
            }
            passes += 1;
            prop_assert!(passes < 10, "reclaim does not come to rest: {:?}", reclaimed);
        }
        world.check();
        world.check_exact_bytes();
        // Batches here are smaller than real ones: their descriptors are counted separately.
        let batches: usize = world.model.values().map(|batches| batches.len()).sum();
        let describing = batches as u64 * 100 + u64::from(world.active()) * 128;
        let (files, live) = (world.full_bytes(), world.live_bytes());
        // With shared bodies, up to a quarter of a file may be dead and still counted as live.
        prop_assert!(files <= 4 * live + describing, "{files} bytes for {live} live ones");
    }
}
