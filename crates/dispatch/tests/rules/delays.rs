use dispatch::*;

use super::bench::{Bench, anything, keyed, record, window};

fn due(due_ms: i64) -> ScannedRecord {
    ScannedRecord { due_ms, ..record() }
}

#[test]
fn scheduled_record_is_delivered_at_its_time_and_others_before_it() {
    let year_ms = 365 * 24 * 60 * 60 * 1_000;
    let records = [due(1_000 + year_ms), record(), due(1_500), due(900)];
    let policy = Policy { lease_ms: None, ..Policy::default() };
    let mut bench = Bench::new(policy, records);
    bench.join(1, anything(1));
    assert_eq!(bench.offsets(), [1, 3]);
    assert_eq!(bench.engine.counters().delayed, 2);
    bench.pass(499);
    assert_eq!(bench.offsets(), []);
    bench.pass(1);
    assert_eq!(bench.offsets(), [2]);
    bench.pass(year_ms - 501);
    assert_eq!(bench.offsets(), []);
    bench.pass(1);
    assert_eq!(bench.offsets(), [0]);
}

#[test]
fn a_scheduled_record_joins_its_keys_order_when_it_is_due() {
    let later = ScannedRecord { due_ms: 2_000, ..keyed(1) };
    let policy = Policy { ordering: Ordering::Key, ..Policy::default() };
    let mut bench = Bench::new(policy, [later, keyed(1), keyed(1)]);
    bench.join(1, anything(1));
    let first = bench.assign();
    assert_eq!(first[0].offset, 1);
    bench.pass(1_000);
    assert_eq!(bench.offsets(), [], "its key is under way");
    bench.accept(&first[0]);
    assert_eq!(bench.offsets(), [0], "the earlier one first");
}

#[test]
fn delayed_records_are_listed_in_the_order_of_time() {
    let mut bench =
        Bench::new(Policy::default(), [due(9_000), due(3_000), due(3_000), due(1 << 50)]);
    bench.join(1, anything(1));
    bench.read();
    let listed = bench.engine.delayed(None, 3);
    let times: Vec<_> = listed.iter().map(|it| (it.due_ms, it.offset)).collect();
    assert_eq!(times, [(3_000, 1), (3_000, 2), (9_000, 0)]);
    assert_eq!(bench.engine.delayed(Some(listed[2]), 3)[0].offset, 3);
}

#[test]
fn cancelled_record_is_never_delivered() {
    let mut bench = Bench::new(Policy::default(), [due(2_000), due(2_000), record()]);
    bench.join(1, anything(1));
    let lease = bench.assign()[0];
    assert_eq!(bench.engine.cancel_delayed(0, 0), Ok(()));
    let absent = Err(RemoveRefused::Absent { partition: 0, offset: 0 });
    assert_eq!(bench.engine.cancel_delayed(0, 0), absent);
    let refused = Err(RemoveRefused::NotDelayed { partition: 0, offset: 2 });
    assert_eq!(bench.engine.cancel_delayed(0, 2), refused);
    bench.accept(&lease);
    bench.pass(1_000);
    assert_eq!(bench.offsets(), [1]);
    assert_eq!(bench.drain().partitions[0].settled, [(0, 1), (2, 1)]);
}

#[test]
fn cancelled_retry_releases_its_key() {
    let policy = Policy { ordering: Ordering::Key, backoff_first_ms: 9_000, ..Policy::default() };
    let mut bench = Bench::new(policy, [keyed(1), keyed(1)]);
    bench.join(1, anything(1));
    let lease = bench.assign()[0];
    bench.release(&lease);
    assert_eq!(bench.offsets(), []);
    assert_eq!(bench.engine.cancel_delayed(0, 0), Ok(()));
    assert_eq!(bench.offsets(), [1]);
}

#[test]
fn many_records_due_at_once_are_processed_in_bounded_steps() {
    let bounds = Bounds { timers_per_tick: 10, ..Bounds::default() };
    let mut bench = Bench::with_bounds(Policy::default(), bounds, vec![vec![due(5_000); 1_000]]);
    bench.join(1, anything(1));
    bench.read();
    bench.now_ms = 5_000;
    let mut ticks = 0;
    while bench.engine.next_deadline().is_some_and(|due| due <= 5_000) {
        let before = bench.engine.counters().delayed;
        bench.engine.tick(5_000);
        assert!(before - bench.engine.counters().delayed <= 10);
        ticks += 1;
    }
    assert!(ticks >= 100);
    assert_eq!(bench.offsets().len(), 1_000);
}

#[test]
fn cancelled_records_do_not_fill_the_wheel() {
    let mut bench = Bench::new(Policy::default(), []);
    bench.join(1, anything(1));
    for _ in 0..20 {
        bench.append(0, vec![due(1 << 50); 5_000]);
        bench.read();
        assert_eq!(bench.engine.purge(), 5_000);
    }
    assert_eq!(bench.engine.counters().delayed, 0);
    assert_eq!(bench.engine.delayed(None, 10), []);
}

/// Takes this many; returns the seconds of their due times.
fn seconds(bench: &mut Bench, records: u32) -> Vec<i64> {
    let taken = bench.take(1, records);
    let due_ms = |it: &Assignment| bench.logs[0][it.offset as usize].due_ms;
    let seconds = taken.iter().map(|it| due_ms(it) / 1_000).collect();
    taken.iter().for_each(|lease| bench.accept(lease));
    seconds
}

#[test]
fn record_due_longest_is_delivered_first_at_any_offset() {
    // The last of the log is due first.
    let records = (0..500).map(|number| due(500_000 - number * 1_000));
    let mut bench = Bench::new(Policy::default(), records);
    bench.join(1, window(1, 0));
    bench.read();
    bench.pass(600_000);
    let mut all = Vec::new();
    while all.len() < 500 {
        all.extend(seconds(&mut bench, 7));
    }
    assert!(all.is_sorted(), "{all:?}");
}

#[test]
fn no_record_starves_while_more_become_due_than_are_taken() {
    // Ten become due a second, from the end of the log to its beginning, and nine are taken.
    let records = (0..5_000).map(|number| due(2_000 + (4_999 - number) * 100));
    let mut bench = Bench::new(Policy::default(), records);
    bench.join(1, window(1, 0));
    bench.read();
    let mut worst_ms = 0;
    for second in 2..400 {
        bench.pass(1_000);
        let backlog_ms = second * 1_000 / 9;
        for due_second in seconds(&mut bench, 9) {
            worst_ms = worst_ms.max(bench.now_ms - due_second * 1_000 - backlog_ms);
        }
    }
    // The backlog delays all records; none waits longer than that, the second that orders them, and
    // a turn.
    assert!(worst_ms <= 2_000, "{worst_ms} ms");
}

#[test]
fn one_read_finds_many_due_records() {
    let mut bench = Bench::new(Policy::default(), (0..4_000).map(|number| due(5_000 + number % 7)));
    bench.join(1, anything(1));
    bench.read();
    bench.pass(10_000);
    assert!(bench.read() < 10);
    assert_eq!(bench.offsets().len(), 4_000);
}

#[test]
fn later_records_are_read_however_many_are_already_due() {
    // No consumer takes them, as after a restart with a long backlog.
    let mut records: Vec<ScannedRecord> =
        (0..20_000).map(|number| due(10 + number % 500)).collect();
    records.push(due(7_000));
    let mut bench = Bench::new(Policy::default(), records);
    bench.join(1, window(1, 0));
    bench.read();
    let counters = bench.engine.counters();
    assert_eq!((counters.delayed, counters.ready), (1, 20_000));
    assert!(counters.loaded <= 2 * 4_096, "{} are loaded", counters.loaded);
    // All of them are delivered, also those that were due first and are far back.
    let mut taken = Vec::new();
    for _ in 0..30 {
        taken.extend(bench.take(1, 1_000));
    }
    assert_eq!(taken.len(), 20_000);
    bench.pass(9_000);
    assert_eq!(bench.take(1, 1).len(), 1);
}

#[test]
fn due_records_do_not_cause_the_rest_of_a_backlog_to_be_read() {
    let bounds = Bounds { loaded_per_partition: 100, ..Bounds::default() };
    let mut records = vec![due(1_500); 1_000];
    records.extend(vec![record(); 50_000]);
    let mut bench = Bench::with_bounds(Policy::default(), bounds, vec![records]);
    bench.join(1, window(1, 0));
    while let Some(ReadRange { partition, from, up_to, .. }) = bench.engine.wants() {
        let up_to = up_to.min(from + 50);
        let log = &bench.logs[0];
        let records = log[from as usize..up_to as usize].iter().copied();
        bench.engine.scanned(partition, from, up_to, records, bench.now_ms);
        assert!(from < 2_000, "read up to {from}");
    }
    bench.pass(1_000);
    bench.read();
    // Records that waited before the others became due are first.
    let first = bench.take(1, 10);
    assert!(first.iter().all(|it| it.offset >= 1_000), "{first:?}");
}

#[test]
fn released_scheduled_record_precedes_those_that_became_due_in_the_meantime() {
    let mut bench =
        Bench::new(Policy::default(), (0..9).rev().map(|number| due(2_000 + number * 1_000)));
    bench.join(1, window(1, 0));
    bench.read();
    bench.pass(2_000);
    let leases = bench.take(1, 9);
    assert_eq!(leases.iter().map(|it| it.offset).collect::<Vec<_>>(), [8, 7]);
    bench.pass(9_000);
    bench.settle(&leases[1], Settlement::Release { delay_ms: Some(0), count: true });
    let again = bench.take(1, 9);
    assert_eq!(again.iter().map(|it| it.offset).collect::<Vec<_>>(), [7, 6, 5, 4, 3, 2, 1, 0]);
}
