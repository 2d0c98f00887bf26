use dispatch::*;

use super::bench::{Bench, anything, record};

fn limited(attempts_max: u16) -> Policy {
    Policy { attempts_max: Some(attempts_max), dead_letters: true, ..Policy::default() }
}

#[test]
fn a_release_an_expiry_and_a_sessions_end_count_one_attempt_each() {
    let mut bench = Bench::new(Policy::default(), [record()]);
    let first = bench.take(1, 1);
    bench.release(&first[0]);
    let second = bench.take(1, 1);
    assert_eq!(second[0].attempt, 2);
    bench.pass(30_000);
    let third = bench.take(1, 1);
    assert_eq!(third[0].attempt, 3);
    bench.engine.end_session(1, bench.now_ms);
    assert_eq!(bench.take(2, 1)[0].attempt, 4);
    assert_eq!(bench.drain().partitions[0].attempts, [(0, 3)]);
}

#[test]
fn only_the_first_of_racing_releases_counts_an_attempt() {
    let mut bench = Bench::new(Policy::default(), [record()]);
    let lease = bench.take(1, 1)[0];
    bench.pass(30_000);
    let release = Settlement::Release { delay_ms: None, count: true };
    let late = bench.engine.settle(1, lease.selection(), release, bench.now_ms);
    assert_eq!(late, Err(SettleRefused::Stale { token: lease.token }));
    bench.engine.end_session(1, bench.now_ms);
    assert_eq!(bench.drain().partitions[0].attempts, [(0, 1)]);
    assert_eq!(bench.take(2, 1)[0].attempt, 2);
}

#[test]
fn an_uncounted_release_is_no_attempt_and_has_no_back_off() {
    let policy = Policy { backoff_first_ms: 1_000, ..limited(1) };
    let mut bench = Bench::new(policy, [record()]);
    let lease = bench.take(1, 1)[0];
    bench.settle(&lease, Settlement::Release { delay_ms: None, count: false });
    assert_eq!(bench.take(1, 1)[0].attempt, 1);
    assert_eq!(bench.drain().partitions, []);
}

#[test]
fn record_released_from_its_last_attempt_is_dead_until_its_dead_letter_is_logged() {
    let mut bench = Bench::new(limited(2), [record()]);
    for _ in 0..2 {
        let lease = bench.take(1, 1)[0];
        bench.release(&lease);
    }
    assert_eq!(bench.take(1, 1), []);
    let counters = bench.engine.counters();
    assert_eq!((counters.depth, counters.dead, counters.ready), (1, 1, 0));
    let changes = bench.drain();
    let letter = DeadLetter { partition: 0, offset: 0, reason: DeadReason::Attempts, attempts: 2 };
    assert_eq!(changes.dead, [letter]);
    assert_eq!(changes.partitions[0].settled, []);
    bench.engine.ended(0, 0);
    bench.engine.ended(0, 0);
    // The entry with the dead letter also has the settle.
    assert_eq!(bench.drain().partitions, []);
    assert_eq!(bench.engine.counters().depth, 0);
}

#[test]
fn rejected_record_becomes_a_dead_letter_with_attempts_left() {
    let mut bench = Bench::new(limited(9), [record(), record()]);
    let lease = bench.take(1, 1)[0];
    bench.settle(&lease, Settlement::Reject);
    assert_eq!(bench.dead_letter(), [(0, DeadReason::Rejected)]);
    assert_eq!(bench.dead_lettered[0].attempts, 1);
    assert_eq!(bench.engine.floor(0), Some(1));
}

#[test]
fn rejected_record_is_settled_at_once_without_dead_letters() {
    let mut bench = Bench::new(Policy::default(), [record()]);
    let lease = bench.take(1, 1)[0];
    bench.settle(&lease, Settlement::Reject);
    let changes = bench.drain();
    assert_eq!((changes.dead.len(), &changes.partitions[0].settled[..]), (0, &[(0, 1)][..]));
}

#[test]
fn attempts_from_before_a_restart_count() {
    let start = PartitionStart { attempts: vec![(0, 2), (1, 1)], end: 2, ..Default::default() };
    let mut bench = Bench::new(limited(2), [record(), record()]);
    bench.engine.reset_partition(0, start);
    let leases = bench.take(1, 9);
    assert_eq!(leases.iter().map(|it| (it.offset, it.attempt)).collect::<Vec<_>>(), [(1, 2)]);
    assert_eq!(bench.dead_letter(), [(0, DeadReason::Attempts)]);
}

#[test]
fn back_off_doubles_up_to_its_maximum() {
    let policy = Policy { backoff_first_ms: 100, backoff_max_ms: 350, ..Policy::default() };
    let mut bench = Bench::new(policy, [record()]);
    bench.join(1, anything(1));
    for wait_ms in [100, 200, 350, 350] {
        let lease = bench.assign()[0];
        bench.release(&lease);
        bench.pass(wait_ms - 1);
        assert_eq!(bench.offsets(), []);
        assert_eq!(bench.engine.counters().delayed, 1);
        bench.pass(1);
    }
    assert_eq!(bench.assign()[0].attempt, 5);
}

#[test]
fn a_release_may_set_its_own_delay() {
    let policy = Policy { backoff_first_ms: 100, ..Policy::default() };
    let mut bench = Bench::new(policy, [record()]);
    bench.join(1, anything(1));
    let lease = bench.assign()[0];
    bench.settle(&lease, Settlement::Release { delay_ms: Some(0), count: true });
    let lease = bench.assign()[0];
    bench.settle(&lease, Settlement::Release { delay_ms: Some(5_000), count: true });
    bench.pass(4_999);
    assert_eq!(bench.offsets(), []);
    bench.pass(1);
    assert_eq!(bench.offsets(), [0]);
}

#[test]
fn a_doubled_back_off_never_overflows() {
    let policy = Policy { backoff_first_ms: 60_000, backoff_max_ms: i64::MAX, ..Policy::default() };
    assert_eq!(policy.backoff_ms(0), 0);
    assert_eq!(policy.backoff_ms(3), 240_000);
    assert_eq!(policy.backoff_ms(u16::MAX), i64::MAX);
}

#[test]
fn record_that_may_have_been_delivered_counts_as_delivered_once() {
    let start = PartitionStart {
        attempts: vec![(0, 2)],
        seen_below: 2,
        end: 3,
        ..PartitionStart::default()
    };
    let mut bench = Bench::new(limited(3), vec![record(); 3]);
    bench.engine.reset_partition(0, start);
    let leases = bench.take(1, 9);
    assert_eq!(leases.iter().map(|it| it.attempt).collect::<Vec<_>>(), [3, 2, 1]);
    assert_eq!(bench.engine.peek(0, 1, 1)[0].attempts, 1);
    bench.release(&leases[1]);
    assert_eq!(bench.take(1, 9)[0].attempt, 3);
    // Never so often that it is not delivered.
    let mut bench = Bench::new(limited(1), [record()]);
    let start = PartitionStart { seen_below: 1, end: 1, ..PartitionStart::default() };
    bench.engine.reset_partition(0, start);
    assert_eq!(bench.take(1, 9)[0].attempt, 2);
}
