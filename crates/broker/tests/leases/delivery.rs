//! Leases of records, and their ends.

use std::future::Future;
use std::task::Poll;
use std::time::Duration;

use base::PartitionId;
use broker::delivery::SettleError;
use broker::{ConsumeOptions, Settle, SettleTarget, Settlement, TakeOptions};
use record::Compression;
use world::SimulatedDisk;

use crate::harness::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn produced_records_are_leased_and_accepted() {
    let node = open(&SimulatedDisk::new()).await;
    let topic = node.topic("jobs", 1, &[]).await;
    let group = node.group(topic, &[]).await;
    let mut consumer = consume(&node, group, ConsumeOptions::default()).await;
    node.append(topic, &[new("a").key("k").header("h", "x"), new("b")]).await;
    let deliveries = consumer.next(2).await;
    assert_eq!(texts(&deliveries), ["a", "b"]);
    assert_eq!(deliveries[0].key().as_deref(), Some(&b"k"[..]));
    assert_eq!(header(&deliveries[0], "h").as_deref(), Some("x"));
    assert_eq!((deliveries[0].offset, deliveries[0].attempt), (0, 1));
    let counters = node.broker.counters(group).await.expect("there");
    assert_eq!((counters.depth, counters.leased), (2, 2));
    consumer.accept(&deliveries).await;
    assert_eq!(node.depth(group).await, 0);
    node.append(topic, &[new("c")]).await;
    assert_eq!(texts(&consumer.next(1).await), ["c"]);
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compressed_batches_are_delivered_record_by_record() {
    let node = open(&SimulatedDisk::new()).await;
    let topic = node.topic("packed", 1, &[]).await;
    let group = node.group(topic, &[]).await;
    for compression in Compression::ALL {
        let batch = batch(PartitionId::new(topic, 0), compression, &values(20));
        node.broker.append(vec![batch]).await.remove(0).expect("taken");
    }
    let mut consumer = consume(&node, group, ConsumeOptions::default()).await;
    let deliveries = consumer.next(100).await;
    for (number, delivery) in deliveries.iter().enumerate() {
        assert_eq!(text(delivery), format!("v{}", number % 20));
        assert_eq!(delivery.offset, number as u64);
    }
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn released_record_is_redelivered_as_its_second_attempt() {
    let node = open(&SimulatedDisk::new()).await;
    let topic = node.topic("jobs", 1, &[]).await;
    let group = node.group(topic, &[]).await;
    node.append(topic, &[new("a")]).await;
    let mut consumer = consume(&node, group, ConsumeOptions::default()).await;
    let first = consumer.next(1).await;
    consumer.settle(&first, RELEASE).await;
    let second = consumer.next(1).await;
    assert_eq!((text(&second[0]).as_str(), second[0].attempt), ("a", 2));
    assert_ne!(first[0].token, second[0].token);
    // The first lease's token is no longer valid.
    let late = try_settle(&consumer.session, &first, Settlement::Accept).await;
    assert_eq!(late, [Err(SettleError::NotLeased)]);
    consumer.accept(&second).await;
    assert_eq!(node.depth(group).await, 0);
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_of_a_lost_session_are_released_at_once() {
    let node = open(&SimulatedDisk::new()).await;
    let topic = node.topic("jobs", 1, &[]).await;
    let group = node.group(topic, &[("lease.ms", "0")]).await;
    node.append(topic, &values(3)).await;
    let mut first = consume(&node, group, ConsumeOptions::default()).await;
    let held = first.next(3).await;
    first.accept(&held[1..2]).await;
    let mut second = consume(&node, group, ConsumeOptions::default()).await;
    second.nothing().await;
    drop(first);
    let again = second.next(2).await;
    assert_eq!(texts(&again), ["v0", "v2"]);
    assert_eq!(again[0].attempt, 2);
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expired_lease_makes_its_record_available() {
    let node = open(&SimulatedDisk::new()).await;
    let topic = node.topic("jobs", 1, &[]).await;
    let group = node.group(topic, &[("lease.ms", "1000")]).await;
    node.append(topic, &[new("a")]).await;
    let mut first = consume(&node, group, ConsumeOptions::default()).await;
    let held = first.next(1).await;
    node.clock.advance_ms(999);
    first.nothing().await;
    node.clock.advance_ms(2);
    let again = first.next(1).await;
    assert_eq!(again[0].attempt, 2);
    let late = try_settle(&first.session, &held, Settlement::Accept).await;
    assert_eq!(late, [Err(SettleError::NotLeased)]);
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn range_settle_requires_a_lease_of_each_record() {
    let node = open(&SimulatedDisk::new()).await;
    let topic = node.topic("jobs", 1, &[]).await;
    let group = node.group(topic, &[]).await;
    node.append(topic, &values(10)).await;
    let session = node.broker.lease_session();
    let taken = take(&session, group, 6).await;
    assert_eq!(taken.len(), 6);
    let range = |first, last| Settle {
        group,
        what: SettleTarget::Range { partition: 0, first, last },
        settlement: Settlement::Accept,
    };
    let results = session.settle(vec![range(0, 3), range(5, 8)]).await;
    assert_eq!(results, [Ok(()), Err(SettleError::NotLeased)]);
    assert_eq!(node.depth(group).await, 6);
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn take_waits_for_the_first_record() {
    let node = open(&SimulatedDisk::new()).await;
    let topic = node.topic("jobs", 1, &[]).await;
    let group = node.group(topic, &[]).await;
    let session = node.broker.lease_session();
    assert!(take(&session, group, 5).await.is_empty(), "nothing is there, and it does not wait");
    let options =
        TakeOptions { records_max: 5, wait: Duration::from_millis(50), ..TakeOptions::default() };
    assert!(session.take(group, options).await.expect("may take").is_empty());
    let options = TakeOptions { records_max: 5, wait: SOON, ..TakeOptions::default() };
    let (taken, _) = tokio::join!(session.take(group, options), async {
        tokio::time::sleep(Duration::from_millis(30)).await;
        node.append(topic, &[new("a")]).await
    });
    assert_eq!(texts(&taken.expect("may take")), ["a"]);
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn take_dropped_after_its_reply_holds_no_lease() {
    let node = open(&SimulatedDisk::new()).await;
    let topic = node.topic("jobs", 1, &[]).await;
    let group = node.group(topic, &[("lease.ms", "0")]).await;
    let session = node.broker.lease_session();
    let options = TakeOptions { wait: SOON, ..TakeOptions::default() };
    let mut gives_up = Box::pin(session.take(group, options));
    // It is polled once, so that it is in flight, and then never again.
    let asked = std::future::poll_fn(|context| Poll::Ready(gives_up.as_mut().poll(context)));
    assert!(asked.await.is_pending());
    node.append(topic, &[new("a")]).await;
    let is_leased = async || {
        let counters = node.broker.counters(group).await.expect("there");
        counters.leased == 1
    };
    wait_for(is_leased, || "the record is handed out".to_owned()).await;
    drop(gives_up);
    let other = node.broker.lease_session();
    let options = TakeOptions { wait: SOON, ..TakeOptions::default() };
    let taken = other.take(group, options).await.expect("may take");
    assert_eq!((texts(&taken), taken[0].attempt), (vec!["a".to_string()], 1));
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn take_dropped_while_waiting_holds_no_lease() {
    let node = open(&SimulatedDisk::new()).await;
    let topic = node.topic("jobs", 1, &[]).await;
    let group = node.group(topic, &[("lease.ms", "0")]).await;
    let session = node.broker.lease_session();
    let options = TakeOptions { wait: SOON, ..TakeOptions::default() };
    let gave_up =
        tokio::time::timeout(Duration::from_millis(20), session.take(group, options)).await;
    assert!(gave_up.is_err());
    node.append(topic, &[new("a")]).await;
    let other = node.broker.lease_session();
    let taken = take(&other, group, 1).await;
    assert_eq!((texts(&taken), taken[0].attempt), (vec!["a".to_string()], 1));
    node.broker.shutdown().await;
}
