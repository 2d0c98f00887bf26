use dispatch::*;

use super::bench::{Bench, anything, keyed, record, window};

#[test]
fn backlog_of_a_hundred_million_loads_only_a_window() {
    let mut bench = Bench::new(Policy::default(), []);
    bench.engine.extended(0, 100_000_000);
    bench.join(1, window(1, 10));
    while let Some(ReadRange { partition, from, .. }) = bench.engine.wants() {
        let records = (from..from + 500).map(|offset| ScannedRecord { offset, ..record() });
        bench.engine.scanned(partition, from, from + 500, records, 0);
    }
    let counters = bench.engine.counters();
    assert_eq!((counters.depth, counters.ready), (100_000_000, 100_000_000));
    assert!(counters.loaded <= 2 * 4_096);
}

#[test]
fn nothing_is_read_without_consumers_or_while_it_is_paused() {
    let mut bench = Bench::new(Policy::default(), [record()]);
    assert_eq!(bench.engine.wants(), None);
    bench.join(1, anything(1));
    bench.engine.set_paused(true);
    assert_eq!((bench.engine.wants(), bench.offsets().len()), (None, 0));
    assert_eq!(bench.take(1, 1), []);
    bench.engine.set_paused(false);
    assert_eq!(bench.offsets(), [0]);
}

#[test]
fn blocked_records_are_bounded_and_reading_resumes_as_they_decrease() {
    let bounds = Bounds { blocked: 100, loaded_per_partition: 50, ..Bounds::default() };
    let policy = Policy { ordering: Ordering::Key, ..Policy::default() };
    let mut records = vec![keyed(1); 1_000];
    records.push(keyed(2));
    let mut bench = Bench::with_bounds(policy, bounds, vec![records]);
    bench.join(1, anything(1));
    let mut leases = Vec::new();
    for _ in 0..50 {
        leases.extend(bench.assign());
    }
    let blocked = bench.engine.counters().blocked;
    assert!((100..=200).contains(&blocked), "{blocked}");
    let mut last = Vec::new();
    for _ in 0..1_100 {
        for lease in std::mem::take(&mut leases) {
            bench.accept(&lease);
            last.push(lease.offset);
        }
        leases = bench.assign();
        assert!(bench.engine.counters().blocked <= 200);
    }
    assert_eq!((last.len(), bench.engine.counters().depth), (1_001, 0));
}

#[test]
fn delayed_records_are_bounded_and_reading_resumes_as_they_become_due() {
    let bounds = Bounds { delayed: 10, ..Bounds::default() };
    let due = |number: i64| ScannedRecord { due_ms: 2_000 + number, ..record() };
    let mut bench = Bench::with_bounds(Policy::default(), bounds, vec![(0..50).map(due).collect()]);
    bench.join(1, anything(1));
    bench.read();
    assert_eq!(bench.engine.counters().delayed, 10);
    let mut got = Vec::new();
    for _ in 0..200 {
        bench.pass(10);
        got.extend(bench.offsets());
        assert!(bench.engine.counters().delayed <= 10);
    }
    got.sort_unstable();
    assert_eq!(got, (0..50).collect::<Vec<_>>());
}

#[test]
fn leases_are_bounded_for_a_consumer_with_unlimited_credit() {
    let bounds = Bounds { leased: 5, ..Bounds::default() };
    let mut bench = Bench::with_bounds(Policy::default(), bounds, vec![vec![record(); 9]]);
    bench.join(1, anything(1));
    let leases = bench.assign();
    assert_eq!(leases.len(), 5);
    assert_eq!(bench.take(2, 3), []);
    bench.accept(&leases[0]);
    assert_eq!(bench.offsets(), [5]);
}

#[test]
fn records_of_a_dead_session_beyond_the_window_are_looked_up_again() {
    let bounds = Bounds { loaded_per_partition: 20, ..Bounds::default() };
    let mut bench = Bench::with_bounds(Policy::default(), bounds, vec![vec![record(); 500]]);
    bench.join(1, anything(1));
    while bench.engine.counters().leased < 500 {
        bench.assign();
    }
    bench.engine.end_session(1, bench.now_ms);
    assert!(bench.engine.counters().loaded <= 40);
    bench.join(2, anything(2));
    let mut again = Vec::new();
    for _ in 0..100 {
        again.extend(bench.offsets());
        assert!(bench.engine.counters().loaded <= 40);
    }
    assert_eq!(again, (0..500).collect::<Vec<_>>());
}

#[test]
fn idle_engine_frees_the_memory_of_earlier_records() {
    let mut bench = Bench::new(Policy::default(), vec![record(); 20_000]);
    bench.join(1, anything(1));
    let mut leases = Vec::new();
    while leases.len() < 20_000 {
        leases.extend(bench.assign());
    }
    for lease in &leases {
        bench.accept(lease);
    }
    bench.drain();
    let text = format!("{:?}", bench.engine);
    assert!(text.len() < 6_000, "{} characters of state", text.len());
}

#[test]
fn records_with_attempts_are_bounded_and_a_new_one_waits_until_one_of_them_is_settled() {
    let bounds = Bounds { attempts: 3, ..Bounds::default() };
    let policy = Policy { backoff_first_ms: 1_000, ..Policy::default() };
    let mut bench = Bench::with_bounds(policy, bounds, vec![vec![record(); 9], vec![record(); 9]]);
    bench.join(1, window(1, 1));
    let fail = |bench: &mut Bench| {
        let leases = bench.assign();
        leases.iter().for_each(|lease| bench.release(lease));
        leases.len()
    };
    for _ in 0..3 {
        assert_eq!(fail(&mut bench), 1);
    }
    let open = |bench: &mut Bench| bench.engine.counters().delayed;
    assert_eq!(open(&mut bench), 3);
    bench.pass(2_000);
    let again = bench.assign();
    assert_eq!(again[0].attempt, 2, "it goes on");
    assert_eq!(bench.take(2, 9).iter().filter(|lease| lease.attempt == 1).count(), 0);
    bench.engine.end_session(2, bench.now_ms);
    bench.accept(&again[0]);
    let attempts: Vec<u16> = bench.take(2, 3).iter().map(|lease| lease.attempt).collect();
    assert!(attempts.contains(&1), "there is room: {attempts:?}");
}
