use dispatch::*;

use super::bench::{Bench, anything, keyed, record};

fn by(ordering: Ordering) -> Policy {
    Policy { ordering, dead_letters: true, ..Policy::default() }
}

#[test]
fn one_record_of_a_key_is_leased_and_other_keys_are_not_blocked() {
    let records = [keyed(1), keyed(1), keyed(2), record(), keyed(1), keyed(3), record()];
    let mut bench = Bench::new(by(Ordering::Key), records);
    bench.join(1, anything(1));
    let leases = bench.assign();
    assert_eq!(leases.iter().map(|it| it.offset).collect::<Vec<_>>(), [0, 2, 3, 5, 6]);
    assert_eq!(bench.engine.counters().blocked, 2);
    bench.accept(&leases[1]);
    assert_eq!(bench.offsets(), []);
    bench.accept(&leases[0]);
    let next = bench.assign();
    assert_eq!(next.iter().map(|it| it.offset).collect::<Vec<_>>(), [1]);
    bench.accept(&next[0]);
    assert_eq!(bench.offsets(), [4]);
    assert_eq!(bench.engine.counters().blocked, 0);
}

#[test]
fn a_failing_head_blocks_its_own_key_also_while_it_backs_off() {
    let policy = Policy { backoff_first_ms: 100, ..by(Ordering::Key) };
    let mut bench = Bench::new(policy, [keyed(1), keyed(1), keyed(2), keyed(2)]);
    bench.join(1, anything(1));
    let leases = bench.assign();
    bench.release(&leases[0]);
    bench.accept(&leases[1]);
    assert_eq!(bench.offsets(), [3]);
    bench.pass(99);
    assert_eq!(bench.offsets(), []);
    bench.pass(1);
    assert_eq!(bench.offsets(), [0], "the head first");
}

#[test]
fn a_dead_head_blocks_its_key_until_it_is_dead_lettered() {
    let mut bench = Bench::new(by(Ordering::Key), [keyed(1), keyed(1)]);
    bench.join(1, anything(1));
    let lease = bench.assign()[0];
    bench.settle(&lease, Settlement::Reject);
    assert_eq!(bench.offsets(), []);
    assert_eq!(bench.dead_letter(), [(0, DeadReason::Rejected)]);
    assert_eq!(bench.offsets(), [1]);
}

#[test]
fn keys_are_ordered_separately_in_each_partition() {
    let mut bench =
        Bench::with_bounds(by(Ordering::Key), Bounds::default(), vec![vec![keyed(1); 2]; 2]);
    bench.join(1, anything(1));
    let places: Vec<_> = bench.assign().iter().map(|it| (it.partition, it.offset)).collect();
    assert_eq!(places, [(0, 0), (1, 0)]);
}

#[test]
fn record_settled_on_send_releases_its_key_at_once() {
    let mut bench = Bench::new(by(Ordering::Key), vec![keyed(1); 3]);
    bench.join(1, PushConsumer { settle_on_send: true, ..anything(1) });
    assert_eq!(bench.offsets(), [0, 1, 2]);
}

#[test]
fn partition_order_leases_one_record_of_each_partition() {
    let policy = Policy { backoff_first_ms: 100, ..by(Ordering::Partition) };
    let mut bench = Bench::with_bounds(policy, Bounds::default(), vec![vec![record(); 3]; 2]);
    bench.join(1, anything(1));
    let leases = bench.assign();
    assert_eq!(
        leases.iter().map(|it| (it.partition, it.offset)).collect::<Vec<_>>(),
        [(0, 0), (1, 0)]
    );
    bench.accept(&leases[1]);
    bench.release(&leases[0]);
    assert_eq!(bench.offsets(), [1]);
    bench.pass(100);
    assert_eq!(bench.offsets(), [0]);
}

#[test]
fn a_released_record_goes_back_to_its_own_place() {
    let mut bench = Bench::new(Policy::default(), vec![record(); 5]);
    let leases = bench.take(1, 3);
    bench.release(&leases[1]);
    bench.release(&leases[0]);
    let again: Vec<_> = bench.take(1, 9).iter().map(|it| it.offset).collect();
    assert_eq!(again, [0, 1, 3, 4]);
}

#[test]
fn oldest_record_of_all_partitions_is_delivered_first() {
    let at = |timestamp| ScannedRecord { timestamp, ..record() };
    let logs = vec![vec![at(10), at(40)], vec![at(20), at(30)], vec![at(25), at(5)]];
    let mut bench = Bench::with_bounds(Policy::default(), Bounds::default(), logs);
    bench.join(1, anything(1));
    let places: Vec<_> = bench.assign().iter().map(|it| (it.partition, it.offset)).collect();
    // In a partition by offset, also where a producer's clock went back.
    assert_eq!(places, [(0, 0), (1, 0), (2, 0), (2, 1), (1, 1), (0, 1)]);
}

#[test]
fn highest_priority_of_the_whole_backlog_is_delivered_first() {
    let ranked = |priority| ScannedRecord { priority, ..record() };
    let policy = Policy { priorities: 9, ..Policy::default() };
    let records = [3, 0, 9, 200, 3, 9, 0].map(ranked);
    let mut bench = Bench::new(policy, records);
    bench.join(1, anything(1));
    // Priorities above the highest are capped to it.
    assert_eq!(bench.offsets(), [2, 3, 5, 0, 4, 1, 6]);
}

#[test]
fn a_late_high_priority_overtakes_a_backlog_beyond_the_window() {
    let policy = Policy { priorities: 9, ..Policy::default() };
    let mut records = vec![record(); 50_000];
    records[49_999].priority = 9;
    records[20_000].priority = 5;
    let mut bench = Bench::new(policy, records);
    bench.join(1, super::bench::window(1, 3));
    let leases = bench.assign();
    assert_eq!(leases.iter().map(|it| it.offset).collect::<Vec<_>>(), [49_999, 20_000, 0]);
    let mut next = 1;
    bench.engine.set_credit(1, u32::MAX, u64::MAX);
    loop {
        let more = bench.offsets();
        if more.is_empty() {
            break;
        }
        for offset in more {
            next += u64::from(next == 20_000);
            assert_eq!(offset, next);
            next += 1;
        }
    }
    assert_eq!(next, 49_999);
}

#[test]
fn priorities_are_ignored_in_ordered_groups() {
    let ranked = |priority| ScannedRecord { priority, ..keyed(1) };
    let policy = Policy { priorities: 9, ..by(Ordering::Key) };
    let mut bench = Bench::new(policy, [ranked(0), ranked(9)]);
    bench.join(1, anything(1));
    assert_eq!(bench.offsets(), [0]);
}

#[test]
fn ordering_of_a_group_can_change_while_it_is_in_use() {
    let mut bench = Bench::new(by(Ordering::Key), [keyed(1), keyed(1), keyed(1), keyed(2)]);
    bench.join(1, anything(1));
    assert_eq!(bench.offsets(), [0, 3]);
    bench.engine.set_policy(by(Ordering::Free));
    assert_eq!(bench.offsets(), [1, 2]);
    bench.engine.set_policy(by(Ordering::Partition));
    bench.append(0, [record(), record()]);
    assert_eq!(bench.offsets(), []);
    bench.engine.end_session(1, bench.now_ms);
    bench.join(2, anything(2));
    assert_eq!(bench.offsets(), [0]);
}

#[test]
fn a_pull_may_wait_until_the_best_record_is_known() {
    let ranked = |priority| ScannedRecord { priority, ..record() };
    let policy = Policy { priorities: 9, ..Policy::default() };
    let mut bench = Bench::new(policy, [ranked(0), ranked(2)]);
    let high = bench.take(1, 1)[0];
    bench.append(0, [ranked(1)]);
    bench.settle(&high, Settlement::Release { delay_ms: None, count: true });
    let ends: Vec<u64> = bench.engine.ends().collect();
    assert!(!bench.engine.knows(&ends));
    let pull = |bench: &mut Bench| {
        let within = PullScope { known_to: &ends, ..PullScope::default() };
        let take = PullRequest {
            session: 1,
            consumer: 0,
            records_max: 3,
            bytes_max: u64::MAX,
            settle_on_send: false,
            lease_ms: None,
        };
        let mut out = Vec::new();
        bench.engine.take_within(take, within, bench.now_ms, &mut out);
        out.iter().map(|it| it.offset).collect::<Vec<_>>()
    };
    assert_eq!(pull(&mut bench), [], "what was known is not all there is");
    bench.read();
    assert_eq!(pull(&mut bench), [1, 2, 0]);
}

#[test]
fn pull_does_not_wait_for_a_long_backlog_to_be_read() {
    let policy = Policy { priorities: 9, ..Policy::default() };
    let bounds = Bounds { read_first: 100, ..Bounds::default() };
    let bench = Bench::with_bounds(policy, bounds, vec![vec![record(); 101]]);
    assert!(bench.engine.knows(&[101]) && !bench.engine.knows(&[100]));
    let bench = Bench::with_bounds(Policy::default(), bounds, vec![vec![record(); 10]]);
    assert!(bench.engine.knows(&[10]), "without priorities the first is the best");
}

#[test]
fn two_to_one_delivers_two_high_records_for_each_low_one() {
    let ranked = |priority| ScannedRecord { priority, ..record() };
    let policy = Policy { two_to_one: true, ..Policy::default() };
    let records = [0, 4, 5, 255, 1, 9, 9, 9].map(ranked);
    let mut bench = Bench::new(policy, records);
    bench.join(1, anything(1));
    assert_eq!(bench.offsets(), [2, 3, 0, 5, 6, 1, 7, 4]);
}

#[test]
fn waiting_bytes_are_the_bytes_of_the_values() {
    let sized = |value_bytes| ScannedRecord { bytes: value_bytes + 70, value_bytes, ..record() };
    let policy = Policy { measured: true, ..Policy::default() };
    let records: Vec<_> = (0..20_000).map(|number| sized(number % 3)).collect();
    let mut bench = Bench::new(policy, records);
    // Includes records far beyond the window, and without consumers.
    bench.read();
    assert_eq!(bench.engine.waiting_bytes(), (19_999, 20_000));
    let leases = bench.take(1, 3);
    assert_eq!(bench.engine.waiting_bytes().0, 19_996);
    bench.release(&leases[2]);
    assert_eq!(bench.engine.waiting_bytes().0, 19_998);
    bench.engine.purge();
    assert_eq!(bench.engine.waiting_bytes().0, 0);
}

#[test]
fn key_is_released_after_a_handover_and_a_change_of_order() {
    let mut before = Bench::new(Policy::default(), (0..6).map(|_| keyed(1)));
    before.join(1, anything(1));
    let leases = before.assign();
    for lease in &leases[..5] {
        before.release(lease);
    }
    let claims = before.engine.claims();

    let policy = Policy { ordering: Ordering::Key, ..Policy::default() };
    let bounds = Bounds { loaded_per_partition: 2, blocked: 2, ..Bounds::default() };
    let mut after = Bench::with_bounds(policy, bounds, before.logs);
    after.join(1, anything(1));
    for claim in claims {
        assert!(after.engine.claim(claim, &mut after.pools));
    }
    assert_eq!(after.offsets(), []);
    after.release(&leases[5]);
    for offset in [5, 0, 1, 2, 3, 4] {
        let next = after.assign();
        assert_eq!(next.iter().map(|it| it.offset).collect::<Vec<_>>(), [offset]);
        after.accept(&next[0]);
    }
}
