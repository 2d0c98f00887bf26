//! Histories in which runs of the model test found faults.

use crate::world::{Setup, Step, World};

const PLAIN: Setup = Setup {
    ordering: 0,
    single_active: false,
    attempts_max: None,
    backoff_first_ms: 0,
    record_ttl_ms: None,
    priorities: 0,
    dead_letters: false,
    unattended: false,
    tight: false,
    partitions: 1,
};

// Kinds of steps, see [`World::step`].
const APPEND: u8 = 0;
const READ: u8 = 18;
const DISPATCH: u8 = 28;
const TAKE: u8 = 44;
const SETTLE: u8 = 50;
const PASS: u8 = 68;
const JOIN: u8 = 73;
const LEAVE: u8 = 77;
const SEEK: u8 = 88;
const TRIM: u8 = 89;
const HAND_OVER: u8 = 90;
const CHANGE_POLICY: u8 = 95;

fn run(setup: Setup, steps: &[(u8, u16, u16, u16)]) {
    let mut world = World::new(setup);
    for &(kind, a, b, c) in steps {
        world.step(Step { kind, a, b, c });
    }
    world.run_to_completion();
}

/// A timer that was set before a seek removed the back-off of a record after a later lease, so the
/// engine of the next term delivered the record early.
#[test]
fn back_off_survives_a_seek_and_a_change_of_terms() {
    run(
        Setup { attempts_max: Some(2), backoff_first_ms: 10, partitions: 3, ..PLAIN },
        &[
            (APPEND, 21_858, 3_753, 2_267),
            (JOIN, 1_171, 1_831, 454),
            (READ, 0, 0, 0),
            (DISPATCH, 0, 0, 0),
            (APPEND, 15_750, 0, 0),
            (SETTLE, 11_227, 55_046, 10),
            (SEEK, 250, 0, 20_648),
            (APPEND, 0, 0, 0),
            (APPEND, 0, 0, 0),
            (DISPATCH, 0, 0, 0),
            (PASS, 15_900, 0, 0),
            (HAND_OVER, 0, 14_714, 0),
        ],
    );
}

/// A record that was delivered before the partition became ordered was behind a full window of
/// others, all of which waited for it, and was not looked up.
#[test]
fn holder_of_a_partition_is_looked_up_behind_a_full_window() {
    run(
        Setup {
            single_active: true,
            attempts_max: Some(2),
            backoff_first_ms: 10,
            priorities: 3,
            tight: true,
            partitions: 3,
            ..PLAIN
        },
        &[
            (APPEND, 22_960, 0, 0),
            (APPEND, 28_251, 3_755, 34_589),
            (APPEND, 17_209, 24_214, 9_261),
            (APPEND, 52_247, 29_465, 30_224),
            (JOIN, 76, 3_462, 15_535),
            (APPEND, 438, 1_685, 0),
            (APPEND, 17_545, 4_188, 572),
            (READ, 56_570, 20_996, 0),
            (DISPATCH, 0, 0, 0),
            (CHANGE_POLICY, 17_645, 35_930, 0),
            (PASS, 27_062, 0, 0),
        ],
    );
}

#[test]
fn deleting_a_released_record_of_an_earlier_term_frees_its_key() {
    run(
        Setup { ordering: 1, ..PLAIN },
        &[
            (APPEND, 11_651, 1_420, 0),
            (TAKE, 0, 55, 0),
            (READ, 34_370, 0, 0),
            (TAKE, 1, 385, 0),
            (HAND_OVER, 0, 9_200, 0),
            (SETTLE, 0, 30_028, 10),
            (TRIM, 2_437, 0, 0),
            (APPEND, 2_132, 29_989, 0),
        ],
    );
}

/// The active consumer waited for records of the former one, and was not queued when all could take records.
#[test]
fn active_consumer_gets_records_when_all_may_get_some() {
    run(
        Setup { single_active: true, ..PLAIN },
        &[
            (JOIN, 1, 0, 1),
            (JOIN, 1, 1_485, 1),
            (APPEND, 1_310, 335, 0),
            (DISPATCH, 0, 0, 0),
            (LEAVE, 41_478, 632, 0),
            (CHANGE_POLICY, 37_209, 5_807, 0),
            (APPEND, 37, 12_261, 0),
            (DISPATCH, 0, 0, 0),
        ],
    );
}

/// The record had expired when it was read, without room for another dead letter. Then the time limit
/// was removed.
#[test]
fn scheduled_record_that_does_not_expire_after_all_is_delivered_in_time() {
    run(
        Setup { backoff_first_ms: 10, priorities: 3, dead_letters: true, tight: true, ..PLAIN },
        &[
            (CHANGE_POLICY, 3_349, 24_078, 0),
            (APPEND, 31, 0, 0),
            (APPEND, 5_311, 12_233, 0),
            (READ, 0, 0, 0),
            (APPEND, 39_290, 40_551, 0),
            (JOIN, 1_912, 50_286, 1),
            (APPEND, 3, 4_772, 0),
            (READ, 800, 11_114, 0),
            (DISPATCH, 0, 0, 0),
            (PASS, 286, 0, 0),
            (HAND_OVER, 0, 10_026, 0),
            (READ, 680, 7_013, 0),
            (CHANGE_POLICY, 5_059, 311, 0),
        ],
    );
}
