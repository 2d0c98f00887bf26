//! Several consumers, and the share of each: credit, limits, and admission.

use std::collections::BTreeSet;
use std::time::Duration;

use base::{LeaseGroupId, PartitionId};
use broker::delivery::{Counters, CreditReturns, SessionUser};
use broker::{ConsumeOptions, Credit, Event};
use record::Compression;
use world::SimulatedDisk;

use crate::harness::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unsettled_records_never_exceed_the_credit() {
    let node = open(&SimulatedDisk::new()).await;
    let topic = node.topic("jobs", 1, &[]).await;
    let group = node.group(topic, &[]).await;
    node.append(topic, &values(10)).await;
    let options = ConsumeOptions { credit: Credit::records(3), ..ConsumeOptions::default() };
    let mut consumer = consume(&node, group, options).await;
    let first = consumer.next(3).await;
    consumer.nothing().await;
    consumer.accept(&first[..2]).await;
    assert_eq!(texts(&consumer.next(2).await), ["v3", "v4"]);
    consumer.nothing().await;

    let options = ConsumeOptions {
        credit: Credit::records(0),
        credit_returns: CreditReturns::OnGrant,
        ..ConsumeOptions::default()
    };
    let mut granted = consume(&node, group, options).await;
    granted.nothing().await;
    granted.session.grant(granted.id, Credit::records(2));
    let two = granted.next(2).await;
    granted.accept(&two).await;
    granted.nothing().await;
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_limit_holds_over_all_its_groups() {
    let node = open(&SimulatedDisk::new()).await;
    let (one, two) = (node.topic("one", 1, &[]).await, node.topic("two", 1, &[]).await);
    let (of_one, of_two) = (node.group(one, &[]).await, node.group(two, &[]).await);
    let mut consumer = {
        let session = node.broker.lease_session();
        session.limit(Some(3));
        let events = session.events().expect("the first to ask");
        let id = session.consume(of_one, ConsumeOptions::default()).await.expect("may consume");
        session.consume(of_two, ConsumeOptions::default()).await.expect("may consume");
        Consumer { session, events, id }
    };
    node.append(one, &values(3)).await;
    let held = consumer.next(3).await;
    node.append(two, &values(3)).await;
    consumer.nothing().await;
    consumer.accept(&held[..1]).await;
    let next = consumer.next(1).await;
    assert_eq!(next[0].group, of_two);
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deliveries_to_a_consumer_that_does_not_read_are_bounded() {
    let node = open(&SimulatedDisk::new()).await;
    let topic = node.topic("big", 1, &[]).await;
    let group = node.group(topic, &[]).await;
    let options = ConsumeOptions { settle_on_send: true, ..ConsumeOptions::default() };
    let mut consumer = consume(&node, group, options).await;
    let large = TestRecord { value: "x".repeat(64 << 10), ..TestRecord::default() };
    let records = 600;
    for _ in 0..records {
        node.append(topic, std::slice::from_ref(&large)).await;
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    let waiting = node.depth(group).await;
    let sent = (records - waiting) * (64 << 10);
    let bound = shard::limits::LEASE_CONNECTION_UNREAD_BYTES_MAX as u64;
    assert!(waiting > 0 && sent < 3 * bound, "{sent} bytes were sent to one who does not read");
    consumer.next(records as usize).await;
    assert_eq!(node.depth(group).await, 0);
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_consumers_of_a_group_share_its_records() {
    let node = open(&SimulatedDisk::new()).await;
    let topic = node.topic("shared", 3, &[]).await;
    let group = node.group(topic, &[]).await;
    let options = ConsumeOptions { credit: Credit::records(5), ..ConsumeOptions::default() };
    let mut consumers = Vec::new();
    for _ in 0..3 {
        consumers.push(consume(&node, group, options).await);
    }
    for index in 0..3 {
        let batch = batch(PartitionId::new(topic, index), Compression::None, &values(50));
        node.broker.append(vec![batch]).await.remove(0).expect("taken");
    }
    let mut seen = BTreeSet::new();
    let mut counts = [0; 3];
    while seen.len() < 150 {
        for (place, consumer) in consumers.iter_mut().enumerate() {
            let Ok(Some(Event::Deliveries(deliveries))) =
                tokio::time::timeout(Duration::from_millis(50), consumer.events.recv()).await
            else {
                continue;
            };
            counts[place] += deliveries.len();
            for delivery in &deliveries {
                assert!(seen.insert((delivery.partition, delivery.offset)), "delivered twice");
            }
            consumer.accept(&deliveries).await;
        }
    }
    assert!(counts.iter().all(|count| *count > 10), "{counts:?}");
    assert_eq!(node.depth(group).await, 0);
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn single_active_group_serves_one_consumer_until_it_leaves() {
    let node = open(&SimulatedDisk::new()).await;
    let topic = node.topic("alone", 1, &[]).await;
    let group = node.group(topic, &[("consumers", "single-active")]).await;
    let mut first = consume(&node, group, ConsumeOptions::default()).await;
    let mut second = consume(&node, group, ConsumeOptions::default()).await;
    node.append(topic, &values(4)).await;
    let held = first.next(4).await;
    first.accept(&held).await;
    second.nothing().await;
    drop(first);
    node.append(topic, &values(1)).await;
    second.next(1).await;
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exclusive_consumer_is_alone() {
    let node = open(&SimulatedDisk::new()).await;
    let topic = node.topic("mine", 1, &[]).await;
    let group = node.group(topic, &[]).await;
    let exclusive = ConsumeOptions { exclusive: true, ..ConsumeOptions::default() };
    let first = consume(&node, group, exclusive).await;
    let other = node.broker.lease_session();
    assert!(other.consume(group, ConsumeOptions::default()).await.is_err());
    first.session.cancel(first.id).await;
    other.consume(group, exclusive).await.expect("it is free again");
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn topic_is_consumed_by_several_groups_and_by_offset_concurrently() {
    let node = open(&SimulatedDisk::new()).await;
    let topic = node.topic("both", 1, &[]).await;
    let one = node.group_named(topic, "one", &[]).await;
    let two = node.group_named(topic, "two", &[]).await;
    let mut first = consume(&node, one, ConsumeOptions::default()).await;
    let mut second = consume(&node, two, ConsumeOptions::default()).await;
    node.append(topic, &values(2)).await;
    let held = first.next(2).await;
    first.accept(&held).await;
    assert_eq!(texts(&second.next(2).await), ["v0", "v1"]);
    let partition = PartitionId::new(topic, 0);
    let read = node.broker.read_raw_batches(partition, 0, 1 << 20).await.expect("reads");
    assert_eq!(read.high_watermark, 2);
    assert!(!read.records.is_empty());
    node.broker.shutdown().await;
}

/// A connection with `count` sessions whose consumers read nothing.
async fn unread_connection(
    node: &Node,
    group: LeaseGroupId,
    connection: u64,
    sessions: usize,
) -> Vec<Consumer> {
    let mut consumers = Vec::new();
    for _ in 0..sessions {
        let user = SessionUser { connection, ..SessionUser::default() };
        let session = node.broker.lease_session_of(user);
        let events = session.events().expect("the first to ask");
        let id = session.consume(group, ConsumeOptions::default()).await.expect("may consume");
        consumers.push(Consumer { session, events, id });
    }
    consumers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_of_an_unread_connection_share_one_limit_and_others_get_records() {
    let node = open(&SimulatedDisk::new()).await;
    let topic = node.topic("big", 1, &[]).await;
    let group = node.group(topic, &[]).await;
    let mut unread = unread_connection(&node, group, 7, 200).await;
    let large = TestRecord { value: "x".repeat(64 << 10), ..TestRecord::default() };
    let records = 800;
    for _ in 0..records {
        node.append(topic, std::slice::from_ref(&large)).await;
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    let leased = |counters: Option<Counters>| counters.expect("there").leased * (64 << 10);
    let bound = shard::limits::LEASE_CONNECTION_UNREAD_BYTES_MAX as u64;
    let held = leased(node.broker.counters(group).await);
    assert!(held > 0 && held < 3 * bound, "{held} bytes were sent to a connection that reads none");
    // A session that opens now gets nothing, and a connection that reads gets the rest.
    unread.extend(unread_connection(&node, group, 7, 1).await);
    assert!(unread[200].events.try_recv().is_none());
    let mut reads = unread_connection(&node, group, 8, 1).await.remove(0);
    let rest = records - held / (64 << 10);
    reads.next(rest as usize).await;
    // Once the connection is read, its other sessions get records too.
    for consumer in &mut unread {
        while consumer.events.try_recv().is_some() {}
    }
    drop(reads);
    let mut again = 0;
    while again < rest as usize {
        for consumer in &mut unread {
            while let Some(event) = consumer.events.try_recv() {
                if let Event::Deliveries(deliveries) = event {
                    again += deliveries.len();
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop(unread);
    wait_for(async || node.broker.vitals().unread_bytes.0 == 0, || "nothing is unread".into())
        .await;
    node.broker.shutdown().await;
}
