//! Groups over a million partitions: what others wait for them, and what a take of one costs.

use std::time::{Duration, Instant};

use base::PartitionId;
use broker::Settlement;
use broker::delivery::PeekOptions;
use journal::disk::SimulatedDisk;

use crate::harness::*;

const PARTITIONS: u32 = 1_000_000;

/// A look at all partitions takes tens of milliseconds without optimisation; a take that looks at
/// those that changed, a fraction of one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_take_from_a_million_partitions_looks_at_those_that_changed() {
    let node = open(&SimulatedDisk::new()).await;
    let large = node.topic("large", PARTITIONS, &[]).await;
    let group = node.group(large, &[]).await;
    let session = node.broker.lease_session();
    assert!(take(&session, group, 1).await.is_empty());

    let begun = Instant::now();
    for _ in 0..200 {
        assert!(take(&session, group, 1).await.is_empty());
    }
    let taken = begun.elapsed();
    assert!(taken < Duration::from_secs(2), "200 takes took {taken:?}");

    // A producer that has its answer finds its record.
    for index in [0, 1, PARTITIONS / 2, PARTITIONS - 1] {
        let batch = batch(PartitionId::new(large, index), Default::default(), &values(2));
        node.broker.append(vec![batch]).await.remove(0).expect("taken");
        let options = PeekOptions { partition: Some(index), ..PeekOptions::default() };
        assert_eq!(node.broker.peek(group, options).await.expect("is there").len(), 2);
        let leased = take(&session, group, 10).await;
        assert_eq!(leased.iter().map(|it| it.partition).collect::<Vec<_>>(), [index; 2]);
        settle(&session, &leased, Settlement::Accept).await;
        assert_eq!(node.depth(group).await, 0);
    }
    node.broker.shutdown().await;
}

/// The first use of a group builds what is known of its partitions, on the thread that delivers for
/// every queue of the node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_queues_go_on_while_a_group_of_a_million_partitions_is_first_used() {
    let node = open(&SimulatedDisk::new()).await;
    let small = node.topic("small", 1, &[]).await;
    let small_group = node.group(small, &[]).await;
    let large = node.topic("large", PARTITIONS, &[]).await;
    let group = node.group(large, &[]).await;
    let session = node.broker.lease_session();
    take(&session, small_group, 1).await;

    let first_use = {
        let broker = node.broker.clone();
        tokio::spawn(async move {
            let session = broker.lease_session();
            let begun = Instant::now();
            take(&session, group, 1).await;
            begun.elapsed()
        })
    };
    let mut slowest = Duration::ZERO;
    while !first_use.is_finished() {
        let begun = Instant::now();
        node.append(small, &values(1)).await;
        slowest = slowest.max(begun.elapsed());
        let leased = take(&session, small_group, 10).await;
        slowest = slowest.max(begun.elapsed());
        settle(&session, &leased, Settlement::Accept).await;
    }
    let first_use = first_use.await.expect("it did not panic");
    println!("first use {first_use:?}, slowest of the others {slowest:?}");
    node.broker.shutdown().await;
}
