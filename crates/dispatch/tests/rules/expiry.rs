use dispatch::*;

use super::bench::{Bench, anything, record, window};

fn expires(expires_ms: i64) -> ScannedRecord {
    ScannedRecord { expires_ms, ..record() }
}

fn policy() -> Policy {
    Policy { dead_letters: true, expire_unattended: true, ..Policy::default() }
}

#[test]
fn expired_record_is_never_delivered() {
    let mut bench = Bench::new(policy(), [expires(900), expires(1_500), expires(1_001), record()]);
    bench.join(1, window(1, 1));
    assert_eq!(bench.offsets(), [1]);
    bench.pass(1);
    bench.engine.grant(1, 9, 0);
    assert_eq!(bench.offsets(), [3]);
    assert_eq!(bench.dead_letter(), [(0, DeadReason::Expired), (2, DeadReason::Expired)]);
}

#[test]
fn the_policys_time_to_live_counts_from_the_timestamp() {
    let at = |timestamp| ScannedRecord { timestamp, ..record() };
    let policy = Policy { record_ttl_ms: Some(100), ..policy() };
    let mut bench = Bench::new(policy, [at(900), at(901), at(2_000)]);
    bench.join(1, anything(1));
    assert_eq!(bench.offsets(), [1, 2]);
}

#[test]
fn zero_time_to_live_expires_a_record_with_a_future_timestamp() {
    let policy = Policy { record_ttl_ms: Some(0), ..policy() };
    let mut bench = Bench::new(policy, [ScannedRecord { timestamp: 1_001, ..record() }]);
    assert_eq!(bench.now_ms, 1_000);
    bench.read();
    bench.join(1, anything(1));
    assert_eq!(bench.offsets(), []);
    assert_eq!(bench.dead_letter(), [(0, DeadReason::Expired)]);
}

#[test]
fn heads_expire_at_their_time_also_without_consumers() {
    let mut bench = Bench::new(policy(), [expires(2_000), record(), expires(3_000)]);
    bench.read();
    assert!(bench.engine.next_deadline().is_some_and(|due| due <= 2_000));
    bench.pass(999);
    assert_eq!(bench.dead_letter(), []);
    bench.pass(1);
    assert_eq!(bench.dead_letter(), [(0, DeadReason::Expired)]);
    bench.pass(5_000);
    assert_eq!(bench.dead_letter(), [], "it is not at the head");
    bench.join(1, anything(1));
    assert_eq!(bench.offsets(), [1]);
    assert_eq!(bench.dead_letter(), [(2, DeadReason::Expired)]);
}

#[test]
fn a_queue_of_retries_by_time_to_live_empties_itself() {
    let at = |timestamp| ScannedRecord { timestamp, ..record() };
    let policy = Policy { record_ttl_ms: Some(500), ..policy() };
    let mut bench = Bench::new(policy, (0..300).map(|number| at(1_000 + number)));
    let mut dead = 0;
    for _ in 0..1_000 {
        bench.read();
        bench.pass(1);
        for (offset, reason) in bench.dead_letter() {
            assert_eq!((offset, reason), (dead, DeadReason::Expired));
            assert_eq!(bench.now_ms, 1_500 + dead as i64, "in time");
            dead += 1;
        }
    }
    assert_eq!((dead, bench.engine.counters().depth), (300, 0));
}

#[test]
fn leased_record_expires_only_after_its_release() {
    let mut bench = Bench::new(policy(), [expires(2_000), expires(2_000)]);
    bench.join(1, anything(1));
    let leases = bench.assign();
    bench.pass(1_500);
    bench.accept(&leases[0]);
    bench.release(&leases[1]);
    assert_eq!(bench.offsets(), []);
    let changes = bench.drain();
    assert_eq!(changes.dead[0].reason, DeadReason::Expired);
    assert_eq!((changes.dead[0].offset, changes.dead[0].attempts), (1, 1));
}

#[test]
fn expired_records_beyond_the_dead_letter_bound_wait() {
    let bounds = Bounds { dead: 10, ..Bounds::default() };
    let mut bench = Bench::with_bounds(policy(), bounds, vec![vec![expires(1_500); 95]]);
    bench.join(1, anything(1));
    bench.pass(600);
    let mut dead = 0;
    for _ in 0..30 {
        assert_eq!(bench.offsets(), []);
        assert!(bench.engine.counters().dead <= 10);
        dead += bench.dead_letter().len();
        bench.pass(1);
    }
    assert_eq!((dead, bench.engine.counters().depth), (95, 0));
}

#[test]
fn record_arriving_while_a_consumer_waits_is_offered_before_it_expires() {
    let mut bench = Bench::new(policy(), []);
    bench.join(1, window(1, 2));
    assert_eq!(bench.offsets(), []);
    // They expire before they can be read.
    bench.append(0, [expires(1_000), expires(1_000), expires(1_000), record()]);
    bench.pass(5);
    let leases = bench.assign();
    assert_eq!(leases.iter().map(|it| it.offset).collect::<Vec<_>>(), [0, 1]);
    bench.pass(0);
    assert_eq!(bench.dead_letter(), [(2, DeadReason::Expired)], "there was no credit for it");
    bench.accept(&leases[0]);
    bench.release(&leases[1]);
    assert_eq!(bench.offsets(), [3], "what comes back is not in time any more");
    assert_eq!(bench.dead_letter(), [(1, DeadReason::Expired)]);
}

#[test]
fn record_that_arrived_before_a_consumer_waited_expires_at_its_time() {
    let mut bench = Bench::new(policy(), [expires(1_000)]);
    bench.join(1, anything(1));
    assert_eq!(bench.offsets(), []);
    // A paused group does not wait either.
    bench.engine.set_paused(true);
    bench.append(0, [expires(1_000)]);
    bench.engine.set_paused(false);
    assert_eq!(bench.offsets(), []);
    assert_eq!(bench.dead_letter(), [(0, DeadReason::Expired), (1, DeadReason::Expired)]);
}

#[test]
fn expired_delayed_record_is_not_delivered_while_dead_letters_are_full() {
    let policy = Policy { record_ttl_ms: Some(100), ..policy() };
    let bounds = Bounds { dead: 1, ..Bounds::default() };
    let over = ScannedRecord { timestamp: 800, ..record() };
    let mut bench = Bench::with_bounds(policy, bounds, vec![vec![over]]);
    bench.read();
    bench.join(1, anything(1));
    bench.append(0, [ScannedRecord { due_ms: 2_000, ..over }]);
    assert_eq!(bench.offsets(), []);
    assert_eq!(bench.dead_letter(), [(0, DeadReason::Expired)]);
    bench.pass(1_000);
    assert_eq!(bench.offsets(), []);
    assert_eq!(bench.dead_letter(), [(1, DeadReason::Expired)]);
}
