//! Atomic operations are atomic in the machine, regardless of requests in flight before; and a refused one does
//! not affect others.

use std::path::Path;
use std::sync::Arc;

use base::{Offset, PartitionId};
use broker::delivery::TransferError;
use broker::{AppendBatch, AppendError, Delivery, Settle, Settlement};
use world::SimulatedDisk;

use crate::harness::*;

fn settle(delivery: &Delivery, settlement: Settlement) -> Settle {
    Settle { group: delivery.group, what: delivery.lease(), settlement }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_transfer_does_not_affect_leases_of_other_sessions() {
    let node = open(&SimulatedDisk::new()).await;
    let small = node.topic("small", 1, &[("limit.records", "1")]).await;
    node.append(small, &values(1)).await;
    let jobs = node.topic_beside(small, "jobs", 1, &[]).await;
    let group = node.group(jobs, &[]).await;
    node.append(jobs, &values(4)).await;
    let (one, other) = (node.broker.lease_session(), node.broker.lease_session());
    let held = take(&other, group, 2).await;
    for _ in 0..10 {
        let taken = take(&one, group, 2).await;
        assert_eq!(texts(&taken), ["v2", "v3"]);
        let batch = batch(PartitionId::new(small, 0), Default::default(), &values(1));
        // A session that settles its own lease at the same time, and waits for the reply.
        let settles = taken.iter().map(|it| settle(it, Settlement::Accept)).collect();
        let (refused, renewed) = tokio::join!(
            one.transfer(settles, vec![batch]),
            other.settle(vec![settle(&held[0], Settlement::Renew { lease_ms: None })]),
        );
        let source = AppendError::Full { limit: "limit.records".into() };
        assert_eq!(refused, Err(TransferError::Append { batch: 0, source }));
        assert_eq!(renewed, [Ok(())]);
    }
    let accepts = held.iter().map(|it| settle(it, Settlement::Accept)).collect();
    assert_eq!(other.settle(accepts).await, [Ok(()), Ok(())], "their leases hold");
    assert_eq!(node.depth(group).await, 2);
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn delete_in_flight_refuses_the_whole_transfer() {
    for round in 0..30 {
        let node = open(&SimulatedDisk::new()).await;
        let target = node.topic("target", 1, &[]).await;
        let jobs = node.topic_beside(target, "jobs", 1, &[]).await;
        let group = node.group(jobs, &[]).await;
        node.append(jobs, &values(1)).await;
        let session = node.broker.lease_session();
        let taken = take(&session, group, 1).await;
        let batch = batch(PartitionId::new(target, 0), Default::default(), &values(1));
        let accept = vec![settle(&taken[0], Settlement::Accept)];
        let (deleted, moved) = match round % 2 {
            0 => tokio::join!(
                node.broker.delete_topic(target),
                session.transfer(accept, vec![batch]),
            ),
            _ => {
                let (moved, deleted) = tokio::join!(
                    session.transfer(accept, vec![batch]),
                    node.broker.delete_topic(target),
                );
                (deleted, moved)
            }
        };
        deleted.expect("it is there");
        // Either it came before the delete, or nothing of it is done.
        let left = u64::from(moved.is_err());
        assert_eq!(node.depth(group).await, left, "{moved:?}");
        if left == 1 {
            // Refused before it began: the record is still leased.
            drop(session);
            node.wait_for_ready(group, 1).await;
            let session = node.broker.lease_session();
            assert_eq!(texts(&take(&session, group, 1).await), ["v0"]);
        }
        node.broker.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn append_after_a_delete_fails_with_unknown_partition() {
    let node = open(&SimulatedDisk::new()).await;
    let (gone, stays) = (node.topic("gone", 1, &[]).await, node.topic("stays", 1, &[]).await);
    let to = |topic| batch(PartitionId::new(topic, 0), Default::default(), &values(1));
    let (deleted, answers) = tokio::join!(node.broker.delete_topic(gone), async {
        let mut all = Vec::new();
        for _ in 0..20 {
            all.push(node.broker.append(vec![to(gone), to(stays)]));
        }
        futures_util::future::join_all(all).await
    },);
    deleted.expect("it is there");
    for (number, answers) in answers.into_iter().enumerate() {
        let unknown = Err(AppendError::UnknownPartition(PartitionId::new(gone, 0)));
        assert!(answers[0].is_ok() || answers[0] == unknown);
        assert_eq!(answers[1].as_ref().map(|it| it.base_offset), Ok(number as Offset));
    }
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batch_for_several_partitions_is_accepted_per_partition() {
    let disk = SimulatedDisk::new();
    let node = open(&disk).await;
    let mut topics = Vec::new();
    for number in 0..4 {
        let limit: &[(&str, &str)] = if number == 2 { &[("limit.records", "1")] } else { &[] };
        topics.push(node.topic(&format!("queue-{number}"), 1, limit).await);
    }
    let partitions: Vec<_> = topics.iter().map(|topic| PartitionId::new(*topic, 0)).collect();
    let to_all = |value: &str| AppendBatch {
        also: partitions[1..].to_vec(),
        ..batch(partitions[0], Default::default(), &[new(value)])
    };
    node.append(topics[1], &values(3)).await;
    let first = node.broker.append(vec![to_all("a")]).await;
    let offsets: Vec<_> = first.iter().map(|it| it.as_ref().unwrap().base_offset).collect();
    assert_eq!(offsets, [0, 3, 0, 0]);
    let second = node.broker.append(vec![to_all("b")]).await;
    assert_eq!(second[2], Err(AppendError::Full { limit: "limit.records".into() }));
    let offsets: Vec<_> = second.iter().flatten().map(|it| it.base_offset).collect();
    assert_eq!(offsets, [1, 4, 1]);
    node.broker.shutdown().await;

    // And they are there after a restart, each at its offset.
    let node = open(&disk.killed()).await;
    for (topic, expected) in topics.iter().zip([vec!["a", "b"], vec!["v0"], vec!["a"], vec!["a"]]) {
        let group = node.group(*topic, &[]).await;
        let session = node.broker.lease_session();
        let taken = take(&session, group, expected.len() as u32).await;
        assert_eq!(texts(&taken), expected);
        let offsets: Vec<_> = taken.iter().map(|delivery| delivery.offset).collect();
        assert_eq!(offsets, (0..expected.len() as u64).collect::<Vec<_>>());
    }
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn producer_gets_its_reply_after_its_dead_letters_are_in_the_log() {
    let node = open(&SimulatedDisk::new()).await;
    let dead = node.topic("dead", 1, &[]).await;
    let limits = [("limit.records", "1"), ("limit.overflow", "reject-dead-letter")];
    let full = node.topic_beside(dead, "full", 1, &limits).await;
    node.group(full, &[("dead.letter.topic", "dead")]).await;
    node.append(full, &values(1)).await;
    let end = PartitionId::new(dead, 0);
    for number in 1..=20 {
        let refused = node.try_append(full, &values(1)).await;
        assert_eq!(refused, Err(AppendError::Full { limit: "limit.records".into() }));
        let stored = node.broker.bounds(end).expect("it is there").end;
        assert_eq!(stored, number, "its dead letter is there already");
    }
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_time_does_not_go_back_with_the_clock() {
    let disk = SimulatedDisk::new();
    let node = open(&disk).await;
    let topic = node.topic("t", 1, &[]).await;
    node.append(topic, &values(1)).await;
    node.broker.shutdown().await;
    let hour_ms = 3_600_000;
    let node = open_at(Arc::new(disk.killed()), Path::new("/data"), START_MS - hour_ms).await;
    node.append(topic, &values(1)).await;
    let last = node.broker.shards().last_appends_ms(&[PartitionId::new(topic, 0)]).await;
    assert_eq!(last, Ok(vec![Some(START_MS)]));
    node.broker.shutdown().await;
}
