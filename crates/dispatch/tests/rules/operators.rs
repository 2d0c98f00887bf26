use dispatch::*;

use super::bench::{Bench, anything, keyed, record, window};

#[test]
fn seek_voids_leases_and_drops_undrained_changes() {
    let mut bench = Bench::new(Policy::default(), vec![record(); 5]);
    bench.join(1, window(1, 3));
    let leases = bench.assign();
    bench.accept(&leases[0]);
    let start = PartitionStart { floor: 0, end: 5, ..PartitionStart::default() };
    bench.engine.reset_partition(0, start);
    assert_eq!(bench.drain().partitions, []);
    let token = leases[1].token;
    let by_token = Selection::Lease { partition: 0, token };
    let refused = bench.engine.settle(1, by_token, Settlement::Accept, 0);
    assert_eq!(refused, Err(SettleRefused::Stale { token }));
    // The credit returned with the leases, and attempts restart at 1.
    let again: Vec<_> = bench.assign().iter().map(|it| (it.offset, it.attempt)).collect();
    assert_eq!(again, [(0, 1), (1, 1), (2, 1)]);
    let start = PartitionStart { floor: 4, end: 5, ..PartitionStart::default() };
    bench.engine.reset_partition(0, start);
    assert_eq!(bench.offsets(), [4]);
}

#[test]
fn delays_from_before_a_seek_have_no_effect_after_it() {
    let policy = Policy { backoff_first_ms: 100, ..Policy::default() };
    let mut bench = Bench::new(policy, [record()]);
    bench.join(1, anything(1));
    for _ in 0..5_000 {
        let lease = bench.assign()[0];
        bench.release(&lease);
        let start = PartitionStart { end: 1, ..PartitionStart::default() };
        bench.engine.reset_partition(0, start);
        assert_eq!(bench.engine.counters().delayed, 0);
    }
    let lease = bench.assign()[0];
    bench.release(&lease);
    let lease = bench.engine.counters();
    assert_eq!(lease.delayed, 1);
    bench.pass(99);
    assert_eq!(bench.offsets(), []);
    bench.pass(1);
    assert_eq!(bench.offsets(), [0]);
}

#[test]
fn read_result_from_before_a_seek_is_harmless() {
    let mut bench = Bench::new(Policy::default(), vec![record(); 10]);
    bench.join(1, window(1, 2));
    let start = PartitionStart { floor: 8, end: 10, ..PartitionStart::default() };
    bench.engine.reset_partition(0, start);
    let late = bench.engine.wants().expect("there is something");
    assert_eq!(late.from, 8);
    let start = PartitionStart { floor: 3, end: 10, ..PartitionStart::default() };
    bench.engine.reset_partition(0, start);
    let records = bench.logs[0][8..].to_vec();
    bench.engine.scanned(0, 8, 10, records, 0);
    assert_eq!(bench.offsets(), [3, 4]);
}

#[test]
fn trimmed_records_are_dropped_with_their_leases() {
    let policy = Policy { ordering: Ordering::Key, ..Policy::default() };
    let mut bench = Bench::new(policy, [keyed(1), keyed(1), keyed(2), keyed(1)]);
    bench.join(1, window(1, 2));
    let leases = bench.assign();
    assert_eq!(leases.iter().map(|it| it.offset).collect::<Vec<_>>(), [0, 2]);
    bench.engine.trimmed(0, 2);
    assert_eq!(bench.drain().partitions, [], "the machine knows already");
    assert_eq!(bench.offsets(), [3], "its key and its credit are free again");
    assert_eq!(bench.engine.floor(0), Some(2));
    bench.accept(&leases[1]);
}

#[test]
fn purge_settles_all_but_leased_records() {
    let policy = Policy { ordering: Ordering::Key, ..Policy::default() };
    let later = ScannedRecord { due_ms: 9_000, ..record() };
    let mut bench = Bench::new(policy, [keyed(1), keyed(1), later, keyed(2)]);
    bench.join(1, anything(1));
    let leases = bench.assign();
    bench.append(0, [keyed(1), record()]);
    assert_eq!(bench.engine.purge(), 4);
    let counters = bench.engine.counters();
    assert_eq!((counters.depth, counters.leased), (2, 2));
    assert_eq!((counters.ready, counters.blocked, counters.delayed), (0, 0, 0));
    assert_eq!(bench.drain().partitions[0].settled, [(1, 2), (4, 2)]);
    bench.append(0, [keyed(1)]);
    assert_eq!(bench.offsets(), []);
    bench.accept(&leases[0]);
    assert_eq!(bench.offsets(), [6]);
}

#[test]
fn waiting_record_is_removed_in_any_state() {
    let policy = Policy { ordering: Ordering::Key, ..Policy::default() };
    let later = ScannedRecord { due_ms: 9_000, ..record() };
    let mut bench = Bench::new(policy, [keyed(1), keyed(1), later, record(), keyed(1)]);
    bench.join(1, window(1, 1));
    let lease = bench.assign()[0];
    bench.engine.leave(1, 0, Leases::Keep);
    bench.append(0, [record()]);
    let busy = Err(RemoveRefused::Busy { partition: 0, offset: 0 });
    assert_eq!(bench.engine.remove(0, 0), busy);
    for offset in [1, 2, 3, 5] {
        assert_eq!(bench.engine.remove(0, offset), Ok(()), "{offset}");
        let absent = Err(RemoveRefused::Absent { partition: 0, offset });
        assert_eq!(bench.engine.remove(0, offset), absent);
    }
    assert_eq!(bench.engine.remove(9, 0), Err(RemoveRefused::Absent { partition: 9, offset: 0 }));
    bench.accept(&lease);
    bench.join(2, anything(2));
    assert_eq!(bench.offsets(), [4]);
}

#[test]
fn removed_head_releases_its_key() {
    let policy = Policy { ordering: Ordering::Key, ..Policy::default() };
    let mut bench = Bench::new(policy, [keyed(1), keyed(1)]);
    bench.join(1, anything(1));
    let lease = bench.assign()[0];
    bench.engine.set_paused(true);
    bench.release(&lease);
    assert_eq!(bench.engine.remove(0, 0), Ok(()));
    bench.engine.set_paused(false);
    assert_eq!(bench.offsets(), [1]);
}

#[test]
fn a_peek_shows_each_record_as_it_is_and_changes_nothing() {
    let policy = Policy { ordering: Ordering::Key, dead_letters: true, ..Policy::default() };
    let later = ScannedRecord { due_ms: 9_000, ..record() };
    let mut bench = Bench::new(policy, [keyed(1), keyed(1), later, keyed(2), keyed(3), record()]);
    bench.join(1, window(1, 3));
    let leases = bench.assign();
    bench.settle(&leases[1], Settlement::Reject);
    bench.accept(&leases[2]);
    let peeked = bench.engine.peek(0, 0, 100);
    let states: Vec<_> = peeked.iter().map(|it| (it.offset, it.state)).collect();
    let token = leases[0].token;
    let leased = RecordState::Leased { consumer: 1, session: 1, token, expires_ms: 31_000 };
    assert_eq!(
        states,
        [
            (0, leased),
            (1, RecordState::Blocked),
            (2, RecordState::Delayed { due_ms: 9_000 }),
            (3, RecordState::Dead { reason: DeadReason::Rejected }),
            (5, RecordState::Ready),
        ]
    );
    assert_eq!(bench.engine.peek(0, 0, 100), peeked);
    assert_eq!(bench.engine.peek(0, 3, 1).len(), 1);
    assert_eq!(bench.engine.peek(7, 0, 1), []);
}

#[test]
fn leases_are_listed_by_place_page_by_page() {
    let logs = vec![vec![record(); 3]; 2];
    let mut bench = Bench::with_bounds(Policy::default(), Bounds::default(), logs);
    bench.join(1, anything(4));
    bench.assign();
    let first = bench.engine.leases(None, 4);
    let places: Vec<_> = first.iter().map(|it| (it.partition, it.offset)).collect();
    assert_eq!(places, [(0, 0), (0, 1), (0, 2), (1, 0)]);
    assert_eq!((first[0].session, first[0].attempt, first[0].bytes), (4, 1, 10));
    assert_eq!(bench.engine.leases(Some((1, 0)), 4).len(), 2);
}

#[test]
fn oldest_unsettled_record_has_its_timestamp_if_it_is_loaded() {
    let mut bench = Bench::new(Policy::default(), [ScannedRecord { timestamp: 77, ..record() }]);
    assert_eq!(bench.engine.oldest(0), Some((0, None)));
    bench.join(1, window(1, 0));
    bench.read();
    assert_eq!(bench.engine.oldest(0), Some((0, Some(77))));
    bench.engine.grant(1, 1, 0);
    let lease = bench.assign()[0];
    assert_eq!(bench.engine.oldest(0), Some((0, Some(77))));
    bench.accept(&lease);
    assert_eq!(bench.engine.oldest(0), None);
}

#[test]
fn a_group_grows_with_its_topic() {
    let mut bench = Bench::new(Policy::default(), [record()]);
    bench.join(1, anything(1));
    assert_eq!(bench.offsets(), [0]);
    bench.logs.push(Vec::new());
    bench.engine.grow(PartitionStart::default());
    bench.append(1, [record()]);
    assert_eq!(bench.assign()[0].partition, 1);
}
