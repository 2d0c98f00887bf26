use dispatch::*;

use super::bench::{Bench, anything, record, window};

fn bench(records: usize) -> Bench {
    Bench::new(Policy::default(), vec![record(); records])
}

fn consumers(assigned: &[Assignment]) -> Vec<ConsumerId> {
    assigned.iter().map(|it| it.consumer).collect()
}

#[test]
fn consumers_of_equal_priority_are_served_round_robin() {
    let mut bench = bench(6);
    for consumer in [1, 2, 3] {
        bench.join(consumer, anything(consumer));
    }
    assert_eq!(consumers(&bench.assign()), [1, 2, 3, 1, 2, 3]);
}

#[test]
fn the_highest_priority_is_served_as_long_as_it_has_credit() {
    let mut bench = bench(6);
    bench.join(1, anything(1));
    bench.join(2, PushConsumer { priority: 5, ..window(2, 2) });
    bench.join(3, PushConsumer { priority: -5, ..anything(3) });
    let assigned = bench.assign();
    assert_eq!(consumers(&assigned), [2, 2, 1, 1, 1, 1]);
    bench.append(0, vec![record(); 2]);
    bench.accept(&assigned[0]);
    assert_eq!(consumers(&bench.assign()), [2, 1]);
}

#[test]
fn window_is_never_exceeded_and_settles_return_credit() {
    let mut bench = bench(9);
    bench.join(1, window(1, 3));
    let assigned = bench.assign();
    assert_eq!(assigned.len(), 3);
    assert_eq!(bench.offsets(), []);
    bench.accept(&assigned[1]);
    bench.settle(&assigned[2], Settlement::Reject);
    assert_eq!(bench.offsets(), [3, 4]);
    bench.engine.set_credit(1, 1, u64::MAX);
    bench.accept(&assigned[0]);
    assert_eq!(bench.offsets(), []);
    bench.engine.grant(1, 3, 0);
    assert_eq!(bench.offsets(), [5, 6]);
}

#[test]
fn settles_do_not_return_granted_credit() {
    let mut bench = bench(9);
    bench.join(1, PushConsumer { credit: Credit::Grants, ..window(1, 2) });
    let assigned = bench.assign();
    assert_eq!(assigned.len(), 2);
    bench.accept(&assigned[0]);
    assert_eq!(bench.offsets(), []);
    bench.engine.grant(1, 1, 0);
    assert_eq!(bench.offsets(), [2]);
}

#[test]
fn byte_credit_limits_deliveries_but_one_oversized_record_is_delivered_alone() {
    let large = ScannedRecord { bytes: 100, ..record() };
    let mut bench = Bench::new(Policy::default(), [record(), record(), record(), large, record()]);
    bench.join(1, PushConsumer { bytes: 25, ..anything(1) });
    let two = bench.assign();
    assert_eq!(two.len(), 2);
    bench.accept(&two[0]);
    let third = bench.assign();
    assert_eq!(third.len(), 1);
    bench.accept(&two[1]);
    assert_eq!(bench.offsets(), []);
    bench.accept(&third[0]);
    let alone = bench.assign();
    assert_eq!(alone.iter().map(|it| it.offset).collect::<Vec<_>>(), [3]);
    bench.accept(&alone[0]);
    assert_eq!(bench.offsets(), [4]);
}

#[test]
fn a_consumer_that_cannot_take_the_next_record_keeps_its_turn_and_delays_no_other() {
    let large = ScannedRecord { bytes: 100, ..record() };
    let mut bench = Bench::new(Policy::default(), [record(), record(), large]);
    bench.join(1, PushConsumer { bytes: 50, ..anything(1) });
    bench.join(2, anything(2));
    assert_eq!(consumers(&bench.assign()), [1, 2, 2]);
    bench.append(0, [record()]);
    assert_eq!(consumers(&bench.assign()), [1]);
}

#[test]
fn a_session_shares_its_pool_over_its_consumers() {
    let mut bench = bench(9);
    bench.pools.set_limit(1, Some(3));
    bench.join(1, anything(1));
    bench.join(2, anything(1));
    let assigned = bench.assign();
    assert_eq!(consumers(&assigned), [1, 2, 1]);
    bench.accept(&assigned[0]);
    bench.settle(&assigned[1], Settlement::Release { delay_ms: None, count: true });
    assert_eq!(bench.pools.used(1), Some(3), "given back as the pools are at hand");
    bench.engine.return_to(&mut bench.pools);
    assert_eq!(bench.pools.used(1), Some(1));
    assert_eq!(bench.assign().len(), 2);
    bench.pools.set_limit(1, None);
    assert_eq!(bench.assign().len(), 5);
}

#[test]
fn exclusive_consumer_excludes_all_others() {
    let mut bench = bench(1);
    bench.join(1, PushConsumer { exclusive: true, ..anything(1) });
    let refused = Err(JoinRefused::Exclusive { by: 1 });
    assert_eq!(bench.engine.join(2, anything(2)), refused);
    bench.engine.leave(1, 0, Leases::Keep);
    bench.join(2, anything(2));
    let refused = Err(JoinRefused::InUse { consumers: 1 });
    assert_eq!(bench.engine.join(3, PushConsumer { exclusive: true, ..anything(3) }), refused);
    assert_eq!(bench.engine.join(2, anything(2)), Err(JoinRefused::Known { consumer: 2 }));
}

#[test]
fn next_single_active_consumer_takes_over_when_the_active_one_leaves() {
    let policy = Policy { single_active: true, ..Policy::default() };
    let mut bench = Bench::new(policy, vec![record(); 3]);
    for consumer in [1, 2] {
        bench.join(consumer, window(consumer, 1));
    }
    bench.join(3, PushConsumer { priority: 1, ..window(3, 1) });
    assert_eq!(bench.drain().active, [(1, true)]);
    assert_eq!(consumers(&bench.assign()), [1]);
    assert_eq!(bench.offsets(), []);
    bench.engine.end_session(1, bench.now_ms);
    assert_eq!(bench.drain().active, [(3, true)]);
    assert_eq!(consumers(&bench.assign()), [3]);
    bench.engine.leave(3, bench.now_ms, Leases::Keep);
    assert_eq!(bench.drain().active, [(2, true)]);
    let shared = Policy { single_active: false, ..bench.engine.policy().clone() };
    bench.join(4, anything(4));
    bench.engine.set_policy(shared.clone());
    assert_eq!(bench.drain().active, [(4, true)]);
    bench.engine.set_policy(Policy { single_active: true, ..shared });
    assert_eq!(bench.drain().active, [(2, true), (4, false)]);
}

#[test]
fn a_consumer_that_leaves_keeps_its_leases_or_releases_them() {
    let mut bench = bench(2);
    bench.join(1, window(1, 1));
    let kept = bench.assign();
    bench.engine.leave(1, bench.now_ms, Leases::Keep);
    bench.join(2, anything(2));
    assert_eq!(bench.offsets(), [1]);
    bench.accept(&kept[0]);
    bench.engine.leave(2, bench.now_ms, Leases::Release);
    bench.join(3, anything(3));
    let again = bench.assign();
    assert_eq!((again[0].offset, again[0].attempt), (1, 2));
}

#[test]
fn pull_returns_at_most_the_requested_records() {
    let mut bench = Bench::new(Policy::default(), vec![record(); 9]);
    assert_eq!(bench.engine.wants(), None, "nobody takes");
    assert_eq!(bench.take(1, 2).len(), 2);
    let take = PullRequest {
        session: 1,
        consumer: 77,
        records_max: 9,
        bytes_max: 25,
        settle_on_send: false,
        lease_ms: Some(5),
    };
    let mut out = Vec::new();
    bench.engine.take(take, bench.now_ms, &mut out);
    assert_eq!(consumers(&out), [77, 77]);
    bench.engine.take(PullRequest { bytes_max: 0, ..take }, bench.now_ms, &mut out);
    assert_eq!(out.len(), 3, "the first record fits always");
    bench.pass(5);
    assert_eq!(bench.engine.counters().leased, 2, "its own lease time");
}

#[test]
fn spare_credit_counts_records_deliverable_at_once() {
    let spare = |bench: &Bench| bench.engine.spare_credit(&bench.pools, 100);
    let mut bench = bench(0);
    assert_eq!(spare(&bench), 0);
    bench.join(1, window(1, 3));
    bench.join(2, window(2, 4));
    assert_eq!(spare(&bench), 7);
    bench.pools.set_limit(2, Some(1));
    assert_eq!(spare(&bench), 4);
    bench.append(0, vec![record(); 3]);
    bench.assign();
    let left = spare(&bench);
    assert!(left <= 2, "{left}");
    bench.append(0, vec![record(); 9]);
    bench.assign();
    assert_eq!(spare(&bench), 0, "records wait for them");
    bench.join(3, anything(3));
    bench.assign();
    assert_eq!(spare(&bench), 100);
    bench.engine.set_paused(true);
    assert_eq!(spare(&bench), 0);
}

fn single_active(priority_takes_over: bool) -> Policy {
    Policy { single_active: true, priority_takes_over, ..Policy::default() }
}

#[test]
fn next_active_consumer_gets_the_records_of_the_former_one_before_newer_ones() {
    let mut bench = Bench::new(single_active(false), vec![record(); 6]);
    bench.join(1, window(1, 3));
    bench.join(2, anything(2));
    let held = bench.assign();
    assert_eq!(consumers(&held), [1, 1, 1]);
    // A client that closes its channel cancels its consumers first.
    bench.engine.leave(1, bench.now_ms, Leases::Keep);
    assert_eq!(bench.drain().active, [(1, true), (2, true)]);
    assert_eq!(bench.offsets(), []);
    bench.accept(&held[0]);
    assert_eq!(bench.offsets(), []);
    bench.engine.end_session(1, bench.now_ms);
    assert_eq!(bench.offsets(), [1, 2, 3, 4, 5]);
}

#[test]
fn next_active_consumer_waits_at_most_a_second_for_records_of_the_former_one() {
    let mut bench = Bench::new(single_active(false), vec![record(); 3]);
    bench.join(1, window(1, 1));
    bench.join(2, anything(2));
    let held = bench.assign();
    bench.engine.leave(1, bench.now_ms, Leases::Keep);
    bench.pass(999);
    assert_eq!(bench.offsets(), []);
    bench.pass(1);
    assert_eq!(bench.offsets(), [1, 2]);
    bench.accept(&held[0]);
}

#[test]
fn consumer_of_a_higher_priority_takes_over_once_the_active_one_holds_nothing() {
    let above = |session| PushConsumer { priority: 1, ..anything(session) };
    let mut bench = Bench::new(single_active(true), vec![record(); 6]);
    bench.join(1, window(1, 2));
    let held = bench.assign();
    bench.join(2, above(2));
    assert_eq!(bench.drain().active, [(1, true)]);
    bench.accept(&held[0]);
    assert_eq!(bench.offsets(), [], "the active one gets nothing more");
    bench.release(&held[1]);
    assert_eq!(bench.drain().active, [(1, false), (2, true)]);
    let assigned = bench.assign();
    assert_eq!(consumers(&assigned), [2; 5]);
    assert_eq!(assigned[0].offset, 1);
    // If the active one holds nothing, the takeover is immediate.
    let mut bench = Bench::new(single_active(true), []);
    bench.join(1, anything(1));
    bench.join(2, above(2));
    bench.join(3, above(3));
    assert_eq!(bench.drain().active, [(1, true), (1, false), (2, true)]);
}

#[test]
fn active_consumer_resumes_if_the_one_of_a_higher_priority_leaves() {
    let mut bench = Bench::new(single_active(true), vec![record(); 3]);
    bench.join(1, window(1, 1));
    let held = bench.assign();
    bench.join(2, PushConsumer { priority: 1, ..anything(2) });
    bench.engine.end_session(2, bench.now_ms);
    bench.accept(&held[0]);
    assert_eq!(consumers(&bench.assign()), [1]);
    // Without this rule a priority only counts when the active one leaves.
    let mut bench = Bench::new(single_active(false), vec![record(); 2]);
    bench.join(1, anything(1));
    bench.join(2, PushConsumer { priority: 1, ..anything(2) });
    assert_eq!(consumers(&bench.assign()), [1, 1]);
}
