//! The engine compared with a naive model: a vector of records, each with its state, and rules that
//! inspect all of them each time. A history is a random sequence of actions of a driver, its
//! consumers, its operators and its crashes; after each step the two must agree.
//!
//! `HISTORIES=10000 cargo test --release -p dispatch --test model` runs more of them.

mod found;
mod model;
mod world;

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

use world::{Setup, Step, World};

fn histories() -> u32 {
    std::env::var("HISTORIES").ok().and_then(|count| count.parse().ok()).unwrap_or(400)
}

fn setup() -> impl Strategy<Value = Setup> {
    let choices = (0u8..4, any::<bool>(), 0u8..4, 0u8..3, any::<bool>(), 0u8..4);
    let more = (any::<bool>(), any::<bool>(), any::<bool>(), 1usize..4);
    (choices, more).prop_map(|(first, second)| {
        let (ordering, single_active, attempts, backoff, ttl, priorities) = first;
        let (dead_letters, unattended, tight, partitions) = second;
        Setup {
            ordering: [0, 0, 1, 2][usize::from(ordering)],
            single_active,
            attempts_max: [None, Some(1), Some(2), Some(4)][usize::from(attempts)],
            backoff_first_ms: [0, 10, 200][usize::from(backoff)],
            record_ttl_ms: ttl.then_some(3_000),
            priorities: [0, 0, 3, 255][usize::from(priorities)],
            dead_letters,
            unattended,
            tight,
            partitions,
        }
    })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (0u8..100, any::<u16>(), any::<u16>(), any::<u16>());
    prop::collection::vec(step.prop_map(|(kind, a, b, c)| Step { kind, a, b, c }), 20..160)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: histories(),
        max_shrink_iters: 20_000,
        failure_persistence: Some(Box::new(FileFailurePersistence::Off)),
        ..ProptestConfig::default()
    })]

    #[test]
    fn each_record_ends_once_and_in_order_in_any_history(setup in setup(), steps in steps()) {
        let mut world = World::new(setup);
        for step in steps {
            world.step(step);
        }
        world.run_to_completion();
    }
}

#[test]
fn same_history_gives_the_same_assignments() {
    let run = || {
        let mut world = World::new(Setup {
            ordering: 1,
            single_active: false,
            attempts_max: Some(3),
            backoff_first_ms: 10,
            record_ttl_ms: None,
            priorities: 0,
            dead_letters: true,
            unattended: false,
            tight: false,
            partitions: 3,
        });
        let mut state = 7_u64;
        for _ in 0..2_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let [kind, _, a0, a1, b0, b1, c0, c1] = state.rotate_left(17).to_be_bytes();
            let word = |high, low| u16::from_be_bytes([high, low]);
            let (a, b, c) = (word(a0, a1), word(b0, b1), word(c0, c1));
            world.step(Step { kind: kind % 100, a, b, c });
        }
        world.trace
    };
    assert_eq!(run(), run());
}
