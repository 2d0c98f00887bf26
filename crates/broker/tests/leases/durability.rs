//! State that survives a restart or a crash, and state that does not.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base::{LeaseGroupId, PartitionId, TopicId, headers};
use broker::delivery::{DeadLetterRouter, DeadRecord};
use broker::{ConsumeOptions, Credit, Delivery, LeaseProgress, Settle, Settlement};
use bytes::Bytes;
use record::{BatchBuilder, BatchOptions, Compression};
use world::disk::{RealDisk, SimulatedDisk};

use crate::harness::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_unsettled_records_are_delivered_after_a_restart() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let node = open_on(Arc::new(RealDisk), dir.path()).await;
    let topic = node.topic("jobs", 1, &[]).await;
    let group = node.group(topic, &[]).await;
    node.append(topic, &values(10)).await;
    let mut consumer = consume(&node, group, ConsumeOptions::default()).await;
    let held = consumer.next(10).await;
    consumer.accept(&[held[0].clone(), held[1].clone(), held[5].clone()]).await;
    consumer.settle(&held[3..4], Settlement::Release { delay_ms: Some(60_000), count: true }).await;
    node.broker.shutdown().await;
    drop((consumer, node));

    let node = open_on(Arc::new(RealDisk), dir.path()).await;
    let mut consumer = consume(&node, group, ConsumeOptions::default()).await;
    let again = consumer.next(7).await;
    assert_eq!(texts(&again), ["v2", "v3", "v4", "v6", "v7", "v8", "v9"]);
    let attempts: Vec<u16> = again.iter().map(|delivery| delivery.attempt).collect();
    assert_eq!(attempts[1], 2, "it was delivered and came back before");
    consumer.accept(&again).await;
    node.broker.shutdown().await;
    drop((consumer, node));

    let node = open_on(Arc::new(RealDisk), dir.path()).await;
    assert_eq!(node.depth(group).await, 0);
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_settle_survives_power_loss() {
    for seed in 0..10 {
        let disk = SimulatedDisk::new();
        let node = open(&disk).await;
        let topic = node.topic("jobs", 1, &[]).await;
        let group = node.group(topic, &[]).await;
        node.append(topic, &values(200)).await;
        disk.cut_power_after(10 + seed * 7);
        let session = node.broker.lease_session();
        let mut confirmed = Vec::new();
        for _ in 0..20 {
            let options = broker::TakeOptions { records_max: 10, ..Default::default() };
            let Ok(taken) = session.take(group, options).await else { break };
            let results = try_settle(&session, &taken, Settlement::Accept).await;
            for (delivery, result) in taken.iter().zip(results) {
                if result.is_ok() {
                    confirmed.push(delivery.offset);
                }
            }
        }
        drop(session);
        node.broker.shutdown().await;
        let disk = disk.power_loss(seed);
        let node = open(&disk).await;
        let session = node.broker.lease_session();
        let rest: Vec<u64> =
            take_all(&session, group).await.iter().map(|delivery| delivery.offset).collect();
        for offset in &confirmed {
            assert!(!rest.contains(offset), "seed {seed}: {offset} was settled and came again");
        }
        let progress = node.broker.shards().lease_progress(group, &[0]).await.expect("answers");
        let LeaseProgress { floor, settled_above, .. } = progress[0].expect("it is there");
        let settled = floor + settled_above;
        assert_eq!(settled + rest.len() as u64, 200, "seed {seed}: {rest:?} are left");
        node.broker.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rejected_record_is_dead_lettered_exactly_once_under_power_loss() {
    for seed in 0..30 {
        let disk = SimulatedDisk::new();
        let node = open(&disk).await;
        let dead = node.topic("dead", 1, &[]).await;
        let of_dead = node.group(dead, &[]).await;
        let topic = node.topic_beside(dead, "jobs", 1, &[]).await;
        let group = node.group(topic, &[("dead.letter.topic", "dead")]).await;
        node.append(topic, &values(20)).await;
        disk.cut_power_after(seed * 2);
        let session = node.broker.lease_session();
        let options = broker::TakeOptions { records_max: 20, ..Default::default() };
        let taken = session.take(group, options).await.unwrap_or_default();
        let mut rejected = Vec::new();
        for chunk in taken.chunks(3) {
            let results = try_settle(&session, chunk, Settlement::Reject).await;
            let confirmed = chunk.iter().zip(results).filter(|(_, result)| result.is_ok());
            rejected.extend(confirmed.map(|(delivery, _)| text(delivery)));
        }
        drop((session, taken));
        node.broker.shutdown().await;

        let node = open(&disk.power_loss(seed)).await;
        let session = node.broker.lease_session();
        let dead = texts(&take_all(&session, of_dead).await);
        let alive = texts(&take_all(&session, group).await);
        for value in &rejected {
            assert!(
                dead.contains(value),
                "seed {seed}: {value} was rejected and is not dead-lettered: {dead:?}, alive {alive:?}"
            );
        }
        let mut all: Vec<&String> = dead.iter().chain(&alive).collect();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 20, "seed {seed}: something is lost");
        assert_eq!(dead.len() + alive.len(), 20, "seed {seed}: something is there twice");
        node.broker.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letter_has_death_headers_and_keeps_its_own() {
    let node = open(&SimulatedDisk::new()).await;
    let dead = node.topic("dead", 1, &[]).await;
    let of_dead = node.group(dead, &[]).await;
    let topic = node.topic_beside(dead, "jobs", 1, &[]).await;
    let config = [("dead.letter.topic", "dead"), ("attempts.max", "2")];
    let group = node.group(topic, &config).await;
    node.append(topic, &[new("first"), new("a").key("k").header("h", "x")]).await;
    let session = node.broker.lease_session();
    let first = take(&session, group, 1).await;
    settle(&session, &first, Settlement::Accept).await;
    for attempt in 1..=2 {
        let taken = take(&session, group, 1).await;
        assert_eq!(taken[0].attempt, attempt);
        settle(&session, &taken, Settlement::Release { delay_ms: None, count: true }).await;
    }
    node.wait_for_depth(of_dead, 1).await;
    let dead = take(&session, of_dead, 2).await;
    assert_eq!(texts(&dead), ["a"]);
    assert_eq!(dead[0].key().as_deref(), Some(&b"k"[..]));
    let said = |name: &str| header(&dead[0], name).unwrap_or_default();
    assert_eq!(said("h"), "x");
    assert_eq!(said(headers::DEATH_REASON), "attempts");
    assert_eq!(said(headers::DEATH_COUNT), "2");
    assert_eq!(said(headers::DEATH_TOPIC), "jobs");
    assert_eq!(said(headers::DEATH_PARTITION), "0");
    assert_eq!(said(headers::DEATH_OFFSET), "1");
    assert_eq!(said(headers::DEATH_GROUP), "main");
    assert_eq!(said(headers::DEATH_TIME), START_MS.to_string());
    assert_eq!(node.depth(group).await, 0);
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expired_record_is_dead_lettered_without_a_consumer() {
    let node = open(&SimulatedDisk::new()).await;
    let dead = node.topic("dead", 1, &[]).await;
    let of_dead = node.group(dead, &[]).await;
    let topic = node.topic_beside(dead, "short", 1, &[]).await;
    let config = [("dead.letter.topic", "dead"), ("record.ttl.ms", "5000")];
    let group = node.group(topic, &config).await;
    let soon = START_MS + 1_000;
    node.append(topic, &[new("sooner").header(headers::EXPIRES_AT, soon), new("later")]).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!((node.depth(group).await, node.depth(of_dead).await), (2, 0));
    node.clock.advance_ms(1_000);
    node.wait_for_depth(of_dead, 1).await;
    node.clock.advance_ms(4_000);
    node.wait_for_depth(of_dead, 2).await;
    node.wait_for_depth(group, 0).await;
    let session = node.broker.lease_session();
    let dead = take(&session, of_dead, 2).await;
    assert_eq!(texts(&dead), ["sooner", "later"]);
    assert!(dead.iter().all(|dead| reason(dead) == "expired"));
    assert_eq!(header(&dead[0], headers::EXPIRES_AT), None, "it would expire again");
    node.broker.shutdown().await;

    // The same, after a restart in which no client used the group.
    let disk = SimulatedDisk::new();
    let node = open(&disk).await;
    let dead = node.topic("dead", 1, &[]).await;
    let topic = node.topic_beside(dead, "short", 1, &[]).await;
    let group = node.group(topic, &config).await;
    node.append(topic, &[new("x")]).await;
    node.broker.shutdown().await;
    let node = open_at(Arc::new(disk), Path::new("/data"), START_MS + 6_000).await;
    node.wait_for_depth(group, 0).await;
    node.broker.shutdown().await;
}

/// Sends all dead letters to one topic, whatever the route.
#[derive(Debug)]
struct TestRouter {
    dead: PartitionId,
}

impl DeadLetterRouter for TestRouter {
    fn route(&self, route: &str, dead: &DeadRecord) -> Vec<(PartitionId, Bytes)> {
        assert_eq!(route, "dead");
        let mut builder = BatchBuilder::new(BatchOptions::default());
        dead.copy_into(&mut builder, &[]).expect("a small record fits");
        vec![(self.dead, builder.finish().into())]
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transfer_with_a_reject_replies_once_the_dead_letter_is_durable() {
    let node = open(&SimulatedDisk::new()).await;
    let dead = node.topic("dead", 1, &[]).await;
    let of_dead = node.group(dead, &[]).await;
    let topic = node.topic_beside(dead, "jobs", 1, &[]).await;
    let group = node.group(topic, &[("dead.letter.route", "test:dead")]).await;
    node.append(topic, &values(2)).await;
    let session = node.broker.lease_session();
    let taken = take(&session, group, 2).await;
    let end = |taken: &Delivery, settlement| Settle { group, what: taken.lease(), settlement };
    let settles = vec![end(&taken[0], Settlement::Accept), end(&taken[1], Settlement::Reject)];
    let mut transfer = std::pin::pin!(session.transfer(settles, Vec::new()));
    // There is no router yet, so the rejected record would come again after a power failure now.
    let early = tokio::time::timeout(Duration::from_millis(200), &mut transfer).await;
    assert!(early.is_err(), "answered too early: {early:?}");
    assert_eq!((node.depth(group).await, node.depth(of_dead).await), (1, 0));
    let dead = PartitionId::new(dead, 0);
    node.broker.set_dead_letter_router("test", Arc::new(TestRouter { dead }));
    transfer.await.expect("done");
    assert_eq!((node.depth(group).await, node.depth(of_dead).await), (0, 1));
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letter_waits_for_the_gateway_that_routes_it() {
    let disk = SimulatedDisk::new();
    let node = open(&disk).await;
    let dead = node.topic("dead", 1, &[]).await;
    let of_dead = node.group(dead, &[]).await;
    let topic = node.topic_beside(dead, "short", 1, &[]).await;
    let config = [("dead.letter.route", "test:dead"), ("record.ttl.ms", "5000")];
    let group = node.group(topic, &config).await;
    node.append(topic, &[new("x")]).await;
    node.broker.shutdown().await;

    // It dies as the node starts, before any gateway is there.
    let node = open_at(Arc::new(disk), Path::new("/data"), START_MS + 6_000).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!((node.depth(group).await, node.depth(of_dead).await), (1, 0));
    let dead = PartitionId::new(dead, 0);
    node.broker.set_dead_letter_router("test", Arc::new(TestRouter { dead }));
    node.wait_for_depth(of_dead, 1).await;
    node.wait_for_depth(group, 0).await;
    node.broker.shutdown().await;
}

fn attempts(deliveries: &[Delivery]) -> Vec<(String, u16)> {
    deliveries.iter().map(|delivery| (text(delivery), delivery.attempt)).collect()
}

/// A node with three records, and a consumer of two.
async fn node_with_consumer_of_two(
    disk: &SimulatedDisk,
) -> (Node, TopicId, LeaseGroupId, Consumer) {
    let node = open(disk).await;
    let topic = node.topic("jobs", 1, &[]).await;
    let group = node.group(topic, &[]).await;
    node.append(topic, &values(3)).await;
    let options = ConsumeOptions { credit: Credit::records(2), ..ConsumeOptions::default() };
    let consumer = consume(&node, group, options).await;
    (node, topic, group, consumer)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_possibly_delivered_before_a_crash_count_as_delivered_once() {
    let disk = SimulatedDisk::new();
    let (_node, topic, group, mut consumer) = node_with_consumer_of_two(&disk).await;
    let held = consumer.next(2).await;
    assert_eq!(attempts(&held), [("v0".into(), 1), ("v1".into(), 1)]);
    let mut disk = disk.power_loss(1);
    // No consumer is there in the second life, and it ends cleanly: the unknown deliveries of the first remain
    // unknown.
    for crashes in [true, false, true] {
        let node = open(&disk).await;
        node.append(topic, &[new("later")]).await;
        match crashes {
            true => disk = disk.power_loss(2),
            false => node.broker.shutdown().await,
        }
    }
    let node = open(&disk).await;
    node.append(topic, &[new("last")]).await;
    let session = node.broker.lease_session();
    let again = take_all(&session, group).await;
    let counts: Vec<u16> = again.iter().map(|delivery| delivery.attempt).collect();
    assert_eq!((again.len(), &counts[..3]), (7, &[2, 2, 2][..]));
    assert_eq!(attempts(&again)[6], ("last".into(), 1));
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transfer_without_settles_does_not_mark_a_clean_shutdown() {
    let disk = SimulatedDisk::new();
    let (node, topic, group, mut consumer) = node_with_consumer_of_two(&disk).await;
    let held = consumer.next(2).await;
    let (session, partition) = (node.broker.lease_session(), PartitionId::new(topic, 0));
    let appended = vec![batch(partition, Compression::None, &[new("later")])];
    session.transfer(Vec::new(), appended).await.expect("it is appended");
    // A transfer that changes nothing durable is none either.
    let (what, settlement) = (held[0].lease(), Settlement::Renew { lease_ms: None });
    let renewed = vec![Settle { group, what, settlement }];
    consumer.session.transfer(renewed, Vec::new()).await.expect("it is renewed");
    let node = open(&disk.power_loss(1)).await;
    let taken = take_all(&node.broker.lease_session(), group).await;
    assert_eq!(attempts(&taken)[..2], [("v0".into(), 2), ("v1".into(), 2)]);
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_undelivered_before_a_clean_shutdown_do_not_count_as_delivered() {
    let disk = SimulatedDisk::new();
    let (node, _, group, mut consumer) = node_with_consumer_of_two(&disk).await;
    consumer.next(2).await;
    drop(consumer);
    node.broker.shutdown().await;
    let expected = [("v0".into(), 2), ("v1".into(), 2), ("v2".into(), 1)];
    let node = open(&disk).await;
    let taken = take_all(&node.broker.lease_session(), group).await;
    assert_eq!(attempts(&taken), expected);
    // The mark of the earlier clean shutdown does not apply to this crash.
    drop(taken);
    let disk = disk.power_loss(1);
    let node = open(&disk).await;
    let taken = take_all(&node.broker.lease_session(), group).await;
    assert_eq!(taken[2].attempt, 2);
    node.broker.shutdown().await;
}
