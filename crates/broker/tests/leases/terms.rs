//! A term ends and another begins: requests are delayed, but nothing is lost, refused or delivered again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::PartitionId;
use broker::{Broker, ConsumeOptions, Credit, Settlement, TakeOptions};
use record::Compression;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use world::SimulatedDisk;

use crate::harness::*;

/// Elections, one after the other, until it is stopped.
struct Elections {
    stop: Arc<AtomicBool>,
    task: JoinHandle<u32>,
}

impl Elections {
    fn start(broker: &Broker, every: Duration) -> Self {
        let (broker, stop) = (broker.clone(), Arc::new(AtomicBool::new(false)));
        let stopped = Arc::clone(&stop);
        let task = tokio::spawn(async move {
            let mut elections = 0;
            while !stopped.load(Ordering::Acquire) {
                tokio::time::sleep(every).await;
                broker.reelect().await.expect("it is elected");
                elections += 1;
            }
            elections
        });
        Self { stop, task }
    }

    async fn stop(self) {
        self.stop.store(true, Ordering::Release);
        let elections = self.task.await.expect("no panic");
        assert!(elections >= 3, "only {elections}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn producers_append_once_and_in_order_across_elections() {
    const PRODUCERS: usize = 4;
    const BATCHES: usize = 300;
    let node = open(&SimulatedDisk::new()).await;
    let topic = node.topic("t", 2, &[]).await;
    let window = [("dedup.window.ms", "600000")];
    let once = node.topic("once", 1, &window).await;
    let elections = Elections::start(&node.broker, Duration::from_millis(15));
    let producers: Vec<_> = (0..PRODUCERS)
        .map(|producer| {
            let broker = node.broker.clone();
            tokio::spawn(async move {
                let mut replies = Vec::new();
                for number in 0..BATCHES {
                    let record = new(format!("{producer}/{number}"));
                    let both = PartitionId::new(topic, 0);
                    let mut first = batch(both, Compression::None, std::slice::from_ref(&record));
                    first.also = vec![PartitionId::new(topic, 1)];
                    let id = format!("{producer}/{}", number / 2);
                    let record = record.header(base::headers::ID, id);
                    let second = batch(PartitionId::new(once, 0), Compression::None, &[record]);
                    replies.push(broker.append(vec![first, second]));
                    if number % 4 == 3 {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                }
                let mut offsets = Vec::new();
                for reply in replies {
                    let rows = timeout(SOON, reply).await.expect("it is answered");
                    for row in &rows {
                        row.as_ref().expect("an election is no error");
                    }
                    offsets.push(rows[0].as_ref().expect("taken").base_offset);
                }
                offsets
            })
        })
        .collect();
    let mut given = BTreeSet::new();
    for producer in producers {
        let offsets = producer.await.expect("no panic");
        assert!(offsets.is_sorted(), "its records are in its order");
        given.extend(offsets);
    }
    elections.stop().await;
    let all = (PRODUCERS * BATCHES) as u64;
    assert_eq!(given, (0..all).collect(), "each has its own offset");
    for partition in 0..2 {
        let end = node.broker.bounds(PartitionId::new(topic, partition)).expect("there").end;
        assert_eq!(end, all);
    }
    // Every second one was a duplicate.
    let end = node.broker.bounds(PartitionId::new(once, 0)).expect("there").end;
    assert_eq!(end, all / 2);
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_continue_in_the_next_term() {
    let node = open(&SimulatedDisk::new()).await;
    let topic = node.topic("t", 1, &[]).await;
    let group = node.group(topic, &[("lease.ms", "30000")]).await;
    node.append(topic, &values(10)).await;
    let credit = ConsumeOptions { credit: Credit::records(4), ..ConsumeOptions::default() };
    let mut consumer = consume(&node, group, credit).await;
    let held = consumer.next(4).await;
    let other = node.broker.lease_session();
    let taken = take(&other, group, 2).await;
    assert_eq!((texts(&held)[3].as_str(), texts(&taken)[0].as_str()), ("v3", "v4"));

    node.broker.reelect().await.expect("it is elected");
    // Its credit is still used up, and no other session gets the leased records.
    consumer.nothing().await;
    let counters = node.broker.counters(group).await.expect("the group is there");
    assert_eq!((counters.leased, counters.depth, counters.consumers), (6, 10, 1));
    consumer.accept(&held[..1]).await;
    assert_eq!(texts(&consumer.next(1).await), ["v6"]);
    let given_back = Settlement::Release { delay_ms: Some(0), count: true };
    settle(&other, &taken[..1], given_back).await;
    consumer.accept(&held[1..2]).await;
    let again = consumer.next(1).await;
    assert_eq!((texts(&again)[0].as_str(), again[0].attempt), ("v4", 2));

    // Their deadlines still hold.
    node.broker.reelect().await.expect("it is elected");
    consumer.nothing().await;
    node.clock.advance_ms(30_001);
    let late = consumer.next(4).await;
    assert_eq!(texts(&late), ["v2", "v3", "v4", "v5"]);
    assert_eq!(late.iter().map(|it| it.attempt).collect::<Vec<_>>(), [2, 2, 3, 2]);
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn key_stays_blocked_by_its_leased_record_across_an_election() {
    let node = open(&SimulatedDisk::new()).await;
    let topic = node.topic("t", 1, &[]).await;
    let group = node.group(topic, &[("lease.ms", "30000"), ("ordering", "key")]).await;
    node.append(topic, &[new("first").key("a")]).await;
    let holder = node.broker.lease_session();
    let held = take(&holder, group, 1).await;
    node.broker.reelect().await.expect("it is elected");
    node.append(topic, &[new("second").key("a"), new("other").key("b")]).await;
    let session = node.broker.lease_session();
    assert_eq!(texts(&take_all(&session, group).await), ["other"]);
    settle(&holder, &held, Settlement::Accept).await;
    assert_eq!(texts(&take_all(&session, group).await), ["second"]);
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn record_released_with_a_delay_waits_across_elections() {
    let node = open(&SimulatedDisk::new()).await;
    let topic = node.topic("t", 1, &[]).await;
    let group = node.group(topic, &[("ordering", "key")]).await;
    node.append(topic, &[new("first").key("a"), new("second").key("a"), new("other")]).await;
    let session = node.broker.lease_session();
    let taken = take(&session, group, 1).await;
    let later = Settlement::Release { delay_ms: Some(1_000), count: true };
    settle(&session, &taken, later).await;
    for _ in 0..3 {
        node.broker.reelect().await.expect("it is elected");
        node.clock.advance_ms(300);
        let other = take_all(&session, group).await;
        assert!(other.is_empty() || texts(&other) == ["other"], "{:?}", texts(&other));
    }
    node.clock.advance_ms(101);
    let first = take_all(&session, group).await;
    assert_eq!((texts(&first), first[0].attempt), (vec!["first".to_owned()], 2));
    settle(&session, &first, Settlement::Accept).await;
    assert_eq!(texts(&take_all(&session, group).await), ["second"]);
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_record_is_delivered_once_across_many_elections() {
    const RECORDS: usize = 2_000;
    let node = open(&SimulatedDisk::new()).await;
    let topic = node.topic("t", 3, &[]).await;
    let group = node.group(topic, &[("lease.ms", "600000"), ("ordering", "key")]).await;
    let elections = Elections::start(&node.broker, Duration::from_millis(20));
    let producer = {
        let broker = node.broker.clone();
        tokio::spawn(async move {
            for number in 0..RECORDS {
                let partition = PartitionId::new(topic, (number % 3) as u32);
                let record = new(format!("{number}")).key(format!("k{}", number % 30));
                let batch = batch(partition, Compression::None, &[record]);
                broker.append(vec![batch]).await.remove(0).expect("taken");
            }
        })
    };
    let consumers: Vec<_> = (0..3)
        .map(|number| {
            let broker = node.broker.clone();
            tokio::spawn(async move {
                let session = broker.lease_session();
                let mut seen: Vec<(u32, u64)> = Vec::new();
                loop {
                    let options = TakeOptions {
                        records_max: 7,
                        wait: Duration::from_millis(1_500),
                        ..TakeOptions::default()
                    };
                    let taken = session.take(group, options).await.expect("may take");
                    if taken.is_empty() {
                        return seen;
                    }
                    if number == 0 {
                        tokio::time::sleep(Duration::from_millis(3)).await;
                    }
                    for delivery in &taken {
                        assert_eq!(delivery.attempt, 1, "it was delivered before");
                        seen.push((delivery.partition, delivery.offset));
                    }
                    settle(&session, &taken, Settlement::Accept).await;
                }
            })
        })
        .collect();
    timeout(Duration::from_secs(60), producer).await.expect("in time").expect("no panic");
    let mut counts: BTreeMap<(u32, u64), u32> = BTreeMap::new();
    for consumer in consumers {
        let seen = timeout(Duration::from_secs(60), consumer).await.expect("in time");
        for place in seen.expect("no panic") {
            *counts.entry(place).or_default() += 1;
        }
    }
    elections.stop().await;
    assert_eq!(counts.len(), RECORDS);
    assert!(counts.values().all(|count| *count == 1), "each once");
    assert_eq!(node.depth(group).await, 0);
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rejected_records_are_dead_lettered_once_across_elections() {
    const RECORDS: usize = 600;
    let node = open(&SimulatedDisk::new()).await;
    let topic = node.topic("t", 1, &[]).await;
    let letters = node.topic_beside(topic, "letters", 1, &[]).await;
    let group = node.group(topic, &[("dead.letter.topic", "letters")]).await;
    node.append(topic, &values(RECORDS)).await;
    let elections = Elections::start(&node.broker, Duration::from_millis(10));
    let session = node.broker.lease_session();
    let mut rejected = 0;
    while rejected < RECORDS {
        let taken = take(&session, group, 5).await;
        settle(&session, &taken, Settlement::Reject).await;
        rejected += taken.len();
    }
    elections.stop().await;
    assert_eq!(rejected, RECORDS, "none came again");
    let end = node.broker.bounds(PartitionId::new(letters, 0)).expect("there").end;
    assert_eq!(end, RECORDS as u64);
    assert_eq!(node.depth(group).await, 0);
    node.broker.shutdown().await;
}
