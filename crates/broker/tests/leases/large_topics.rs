//! Groups over the largest number of partitions: the delay for other requests, and the cost of one take.

use std::time::Duration;

use base::PartitionId;
use broker::Settlement;
use broker::delivery::PeekOptions;
use world::{Instant, SimulatedDisk};

use crate::harness::*;

const PARTITIONS: u32 = base::limits::NEW_TOPIC_PARTITIONS_MAX;

/// Checking all partitions takes milliseconds without optimisation; a take that only checks changed ones takes
/// a fraction of one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn take_from_many_partitions_checks_only_changed_ones() {
    let node = open(&SimulatedDisk::new()).await;
    let large = node.topic("large", PARTITIONS, &[]).await;
    let group = node.group(large, &[]).await;
    let session = node.broker.lease_session();
    assert!(take(&session, group, 1).await.is_empty());

    // Other tests may hold the processors for most of the time: the fastest of many counts.
    let mut fastest = Duration::MAX;
    for _ in 0..20 {
        let begun = Instant::now();
        for _ in 0..50 {
            assert!(take(&session, group, 1).await.is_empty());
        }
        fastest = fastest.min(begun.elapsed());
    }
    assert!(fastest < Duration::from_millis(100), "50 takes took {fastest:?} and more");

    // Once an append is acknowledged, its record is found.
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

/// The first use of a group builds the state of its partitions. It takes long without optimisation, and appends
/// do not wait for all of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn appends_continue_while_a_group_of_many_partitions_is_first_used() {
    let node = open(&SimulatedDisk::new()).await;
    let small = node.topic("small", 1, &[]).await;
    let large = node.topic("large", PARTITIONS, &[]).await;
    let group = node.group(large, &[]).await;

    let first_use = {
        let broker = node.broker.clone();
        tokio::spawn(async move {
            let session = broker.lease_session();
            let begun = Instant::now();
            take(&session, group, 1).await;
            begun.elapsed()
        })
    };
    let (mut slowest, mut appends) = (Duration::ZERO, 0);
    while !first_use.is_finished() {
        let begun = Instant::now();
        node.append(small, &values(1)).await;
        slowest = slowest.max(begun.elapsed());
        appends += 1;
    }
    let first_use = first_use.await.expect("it did not panic");
    let bound = Duration::from_millis(200).max(first_use / 2);
    let said = format!("slowest {slowest:?} of {appends} appends, first use {first_use:?}");
    assert!(slowest < bound, "{said}");
    println!("{said}");
    node.broker.shutdown().await;
}
