//! Appends at nodes that do not lead the shard.

use std::collections::VecDeque;
use std::time::Duration;

use base::PartitionId;
use broker::{AppendError, AppendReply, Unavailable};
use tokio::time::{Instant, timeout};

use crate::harness::*;

const IN_FLIGHT: usize = 20;

/// A producer that appends without waiting for earlier replies.
#[derive(Default)]
struct Producer {
    made: usize,
    in_flight: VecDeque<(String, AppendReply)>,
    acknowledged: Vec<String>,
    /// Certainly not appended.
    refused: Vec<String>,
}

impl Producer {
    async fn append(&mut self, cluster: &Cluster, node: u32, count: usize) {
        for value in values(self.made..self.made + count) {
            let batch = batch(PartitionId::new(cluster.topic, 0), std::slice::from_ref(&value));
            let reply = cluster.broker(node).append_at_leaders(vec![batch]);
            self.in_flight.push_back((value, reply));
            if self.in_flight.len() > IN_FLIGHT {
                self.receive_one().await;
            }
        }
        self.made += count;
    }

    async fn receive_one(&mut self) {
        let Some((value, reply)) = self.in_flight.pop_front() else { return };
        let answers = timeout(SOON, reply).await.expect("it is answered");
        assert_eq!(answers.len(), 1);
        match &answers[0] {
            Ok(_) => self.acknowledged.push(value),
            Err(AppendError::Unavailable(Unavailable::NotLeader)) => self.refused.push(value),
            Err(AppendError::Unavailable(Unavailable::Unanswered)) => {}
            Err(other) => panic!("{value}: {other}"),
        }
    }

    async fn receive_all(&mut self) {
        while !self.in_flight.is_empty() {
            self.receive_one().await;
        }
    }

    /// Acknowledged values are stored once and in order, and refused ones are not.
    async fn check(&self, cluster: &Cluster) {
        let session = cluster.broker(cluster.leader(0).await).lease_session();
        let mut stored = Vec::new();
        loop {
            let taken = take(&session, cluster.group, 1_000, Duration::from_millis(500)).await;
            if taken.is_empty() {
                break;
            }
            stored.extend(texts(&taken));
        }
        let acknowledged = |value: &&String| self.acknowledged.contains(value);
        let found: Vec<&String> = stored.iter().filter(acknowledged).collect();
        assert_eq!(found, self.acknowledged.iter().collect::<Vec<_>>());
        assert!(self.refused.iter().all(|value| !stored.contains(value)), "{:?}", self.refused);
    }
}

#[tokio::test]
async fn appends_reach_the_leader_in_order() {
    let cluster = Cluster::start(1, &[]).await;
    let mut producer = Producer::default();
    producer.append(&cluster, cluster.follower().await, 500).await;
    producer.receive_all().await;
    assert_eq!(producer.acknowledged, values(0..500));
    producer.check(&cluster).await;
}

#[tokio::test]
async fn append_for_several_shards_gets_a_result_per_row() {
    let cluster = Cluster::start(3, &[]).await;
    let partition = |index| PartitionId::new(cluster.topic, index);
    let mut wide = batch(partition(0), &values(0..2));
    wide.also = vec![partition(1), partition(7), partition(2)];
    let answers = cluster.broker(1).append_at_leaders(vec![wide]);
    let answers = timeout(SOON, answers).await.expect("it is answered");
    let offsets: Vec<_> =
        answers.iter().map(|it| it.as_ref().ok().map(|it| it.base_offset)).collect();
    assert_eq!(offsets, [Some(0), Some(0), None, Some(0)]);
    assert_eq!(answers[2], Err(AppendError::UnknownPartition(partition(7))));
}

#[tokio::test]
async fn producer_continues_when_the_leader_moves() {
    let cluster = Cluster::start(1, &[]).await;
    let node = cluster.follower().await;
    let mut producer = Producer::default();
    // Also at this node.
    for _ in 0..6 {
        producer.append(&cluster, node, 100).await;
        let leader = cluster.leader(0).await;
        cluster.broker(leader).hand_over().await;
        producer.append(&cluster, node, 100).await;
        let moved = async || cluster.leader(0).await != leader;
        wait_for(moved, || "the leader moves".into()).await;
    }
    producer.append(&cluster, node, 10).await;
    producer.receive_all().await;
    assert_eq!(producer.acknowledged[producer.acknowledged.len() - 10..], values(1_200..1_210));
    producer.check(&cluster).await;
}

#[tokio::test]
async fn hand_over_is_invisible_to_a_producer_at_the_leader() {
    let cluster = Cluster::start(1, &[]).await;
    let node = cluster.leader(0).await;
    let mut producer = Producer::default();
    for _ in 0..6 {
        let broker = cluster.broker(cluster.leader(0).await);
        tokio::join!(producer.append(&cluster, node, 200), broker.hand_over());
        producer.append(&cluster, node, 100).await;
    }
    producer.receive_all().await;
    assert_eq!(producer.acknowledged, values(0..producer.made));
    producer.check(&cluster).await;
}

#[tokio::test]
async fn producer_continues_after_the_leader_dies() {
    let mut cluster = Cluster::start(1, &[]).await;
    let leader = cluster.leader(0).await;
    let node = leader % 3 + 1;
    let mut producer = Producer::default();
    producer.append(&cluster, node, 100).await;
    cluster.kill(leader);
    producer.append(&cluster, node, 100).await;
    producer.receive_all().await;
    // Requests in flight at the leader's death went to the next one; those that it had already are stored once.
    assert_eq!(producer.acknowledged, values(0..200));
    producer.check(&cluster).await;
}

/// The leader accepts a request but does not reply: its disk hangs, and the others elect a new leader.
#[tokio::test]
async fn request_accepted_by_a_leader_that_never_replied_is_appended_once() {
    let cluster = Cluster::start(1, &[]).await;
    let leader = cluster.leader(0).await;
    let node = leader % 3 + 1;
    let mut producer = Producer::default();
    producer.append(&cluster, node, 50).await;
    for turn in 0..4 {
        let leader = cluster.leader(0).await;
        if leader == node {
            cluster.broker(node).hand_over().await;
            let moved = async || cluster.leader(0).await != node;
            wait_for(moved, || "the leader moves".into()).await;
            continue;
        }
        cluster.hang_disk(leader, turn % 2 == 0);
        producer.append(&cluster, node, 100).await;
        cluster.hang_disk(leader, false);
    }
    producer.receive_all().await;
    assert!(producer.refused.is_empty(), "{:?}", producer.refused);
    assert_eq!(producer.acknowledged, values(0..producer.made));
    producer.check(&cluster).await;
}

/// The leader that accepts it does not reply, as above.
#[tokio::test]
async fn request_with_more_rows_than_a_shard_remembers_completes_at_the_next_leader() {
    let cluster = Cluster::start(1, &[]).await;
    let leader = cluster.leader(0).await;
    let node = leader % 3 + 1;
    let partition = PartitionId::new(cluster.topic, 0);
    let rows = 3 * base::limits::NUMBERED_ROWS_KEPT as usize / 2;
    let values = values(0..rows);
    let batches = values.iter().map(|value| batch(partition, std::slice::from_ref(value)));
    cluster.hang_disk(leader, true);
    let reply = cluster.broker(node).append_at_leaders(batches.collect());
    let answers = timeout(SOON, reply).await.expect("it is answered");
    cluster.hang_disk(leader, false);
    let offsets: Result<Vec<u64>, _> =
        answers.iter().map(|it| it.as_ref().map(|it| it.base_offset)).collect();
    assert_eq!(offsets, Ok((0..rows as u64).collect()));
}

#[tokio::test]
async fn appends_fail_after_a_timeout_without_a_majority() {
    let mut cluster = Cluster::start(1, &[]).await;
    let leader = cluster.leader(0).await;
    let node = leader % 3 + 1;
    cluster.kill(leader);
    cluster.kill(node % 3 + 1);
    let begun = Instant::now();
    let mut producer = Producer::default();
    producer.append(&cluster, node, 5).await;
    producer.receive_all().await;
    assert_eq!(producer.acknowledged, [""; 0]);
    assert!(begun.elapsed() < SOON);
}
