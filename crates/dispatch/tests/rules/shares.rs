//! An engine with a part of a topic's partitions, and of its consumers' credit.

use base::{Offset, Stripe};
use dispatch::*;

use super::bench::{Bench, record, window};

/// The partitions 1, 4 and 7 of a topic, each with this many records that were read.
fn engine(records: u64) -> Dispatch {
    let stripe = Stripe::new(1, 3).expect("the first is below the step");
    let starts = vec![PartitionStart { end: records, ..PartitionStart::default() }; 3];
    let mut engine = Dispatch::new(Policy::default(), stripe, starts, 1);
    engine.join(1, window(1, 4)).expect("nobody else is there");
    while let Some(ReadRange { partition, from, up_to, .. }) = engine.wants() {
        let records = (from..up_to).map(|offset| ScannedRecord { offset, ..record() });
        engine.scanned(partition, from, up_to, records, 0);
    }
    engine
}

fn assigned(engine: &mut Dispatch) -> Vec<Assignment> {
    let mut out = Vec::new();
    engine.dispatch(0, &mut Pools::new(), &mut out);
    out
}

#[test]
fn partitions_keep_their_numbers_of_the_topic() {
    let mut engine = engine(1);
    assert_eq!(engine.partitions().collect::<Vec<_>>(), [1, 4, 7]);
    let all = assigned(&mut engine);
    let places: Vec<(u32, Offset)> = all.iter().map(|it| (it.partition, it.offset)).collect();
    assert_eq!(places, [(1, 0), (4, 0), (7, 0)]);
    for lease in &all {
        let token = lease.token;
        let elsewhere = Selection::Lease { partition: lease.partition + 3, token };
        let refused = engine.settle(1, elsewhere, Settlement::Accept, 0);
        assert_eq!(refused, Err(SettleRefused::Stale { token }));
        assert_eq!(engine.settle(1, lease.selection(), Settlement::Accept, 0), Ok(1));
    }
    let no_partition = Selection::UpTo { partition: 2, last: 9 };
    let refused = engine.settle(1, no_partition, Settlement::Accept, 0);
    assert_eq!(refused, Err(SettleRefused::NoSuchPartition { partition: 2 }));
    let mut changes = Changes::default();
    engine.drain(&mut changes);
    let settled: Vec<u32> = changes.partitions.iter().map(|it| it.partition).collect();
    assert_eq!(settled, [1, 4, 7]);
    engine.extended(0, 9);
    engine.extended(2, 9);
    assert_eq!((engine.counters().depth, engine.peek(2, 0, 9)), (0, vec![]));
    engine.grow(PartitionStart { end: 2, ..PartitionStart::default() });
    assert_eq!((engine.partitions().last(), engine.peek(10, 0, 9).len()), (Some(10), 2));
}

#[test]
fn consumer_without_credit_for_a_ready_record_is_reported() {
    let (mut engine, pools) = (engine(2), Pools::new());
    let leases = assigned(&mut engine);
    assert_eq!(leases.len(), 4);
    let lacks_records = CreditShortage { ready: true, records: true, ..CreditShortage::default() };
    assert_eq!(engine.lack(1, &pools), lacks_records);
    assert_eq!(engine.take_back(1, 3, 0), (0, 0), "all of it is in use");
    engine.grant(1, 3, 0);
    assert_eq!(assigned(&mut engine).len(), 2);
    assert_eq!(engine.lack(1, &pools), CreditShortage::default());
    // One of seven is unused.
    assert_eq!(engine.take_back(1, 3, 0), (1, 0));
    engine.settle(1, leases[0].selection(), Settlement::Accept, 0).expect("it is leased");
    assert_eq!((engine.take_back(1, 3, 9), engine.take_back(1, 3, 9)), ((1, 0), (0, 0)));
}

#[test]
fn missing_bytes_and_exhausted_pool_are_reported_separately() {
    let mut bench = Bench::new(Policy::default(), vec![record(); 3]);
    bench.pools.set_limit(1, Some(1));
    bench.join(1, PushConsumer { bytes: 15, ..window(1, 9) });
    assert_eq!(bench.assign().len(), 1);
    let both = CreditShortage { ready: true, records: false, bytes: true, pool: true };
    assert_eq!(bench.engine.lack(1, &bench.pools), both);
    assert_eq!(bench.engine.take_back(1, 2, 9), (2, 5));
    bench.engine.set_paused(true);
    assert_eq!(bench.engine.lack(1, &bench.pools), CreditShortage::default());
}
