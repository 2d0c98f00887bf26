use dispatch::*;

use super::bench::{Bench, anything, keyed, record};

fn due(due_ms: i64) -> Scanned {
    Scanned { due_ms, ..record() }
}

#[test]
fn a_scheduled_record_goes_at_its_time_and_others_go_before_it() {
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
    let later = Scanned { due_ms: 2_000, ..keyed(1) };
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
fn a_cancelled_record_never_comes() {
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
fn a_cancelled_retry_lets_its_key_go_on() {
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
fn many_due_at_once_are_taken_in_in_bounded_steps() {
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
fn what_was_cancelled_does_not_fill_the_wheel() {
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
