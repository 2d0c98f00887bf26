//! Partitions move between shards under load, while leaders die.

use std::collections::BTreeSet;
use std::time::Duration;

use base::{PartitionId, ShardId};
use operations::cluster::{Moves, Operation};
use tokio::time::sleep;

use crate::harness::{Cluster, Load, PARTITIONS, operate, values, wait_for};

const TURNS: u64 = 9;

/// All values of a partition, read at its leader.
async fn all_of(cluster: &Cluster, partition: PartitionId) -> Vec<String> {
    let mut leader = None;
    let leads = async || {
        let brokers = cluster.members.keys();
        leader = brokers.copied().find(|node| cluster.broker(*node).leads_each(&[partition])[0]);
        leader.is_some()
    };
    wait_for(leads, || format!("a leader of {partition}")).await;
    values(cluster.broker(leader.expect("there is one")), partition).await
}

fn shard_of(cluster: &Cluster, partition: PartitionId) -> ShardId {
    cluster.broker(cluster.any()).shard_with(partition)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partition_moves_under_load_survive_the_end_of_any_leader() {
    let mut cluster = Cluster::start_that_can([2; 3]).await;
    let load = Load::on(&cluster);
    let partition = PartitionId::new(cluster.topic, 0);
    let mut epoch = 0;
    for turn in 0..TURNS {
        let from = shard_of(&cluster, partition);
        let to = ShardId(from.0 % PARTITIONS + 1);
        let (topic, partitions, to_shard) = ("work".to_owned(), vec![0], to.0);
        let asked = Operation::MovePartitions { topic, partitions, to_shard };
        let begun: Moves =
            operate(&cluster.administration(cluster.any()), asked).await.expect("it may");
        assert_eq!(begun.shards.len(), PARTITIONS as usize);
        sleep(Duration::from_millis(turn * 23)).await;
        let shard = [from, to, ShardId::CATALOG][turn as usize % 3];
        let victim = cluster.leader(shard).await;
        load.leave(victim);
        let place = cluster.end(victim).await;
        assert_eq!(cluster.start_again(place).await, victim);
        load.enter(&cluster, victim);
        cluster.are_ready().await;
        let is_there = async || {
            let of = |node: &u64| {
                let broker = cluster.broker(*node);
                broker.moving_count() == 0 && broker.shard_with(partition) == to
            };
            cluster.members.keys().all(of)
        };
        let how =
            || format!("{partition} in {to}: {}", cluster.broker(cluster.any()).moving_count());
        wait_for(is_there, how).await;
        for node in cluster.members.keys() {
            let now = cluster.broker(*node).leaders(cluster.topic).of(0).epoch;
            assert!(now >= epoch, "leader epochs only rise: {now} after {epoch}");
            epoch = epoch.max(now);
        }
    }
    wait_for(async || load.acknowledged() > 50, || "50 acknowledged appends".to_owned()).await;
    let acknowledged = load.stop().await;
    let mut found = Vec::new();
    for index in 0..PARTITIONS {
        found.extend(all_of(&cluster, PartitionId::new(cluster.topic, index)).await);
    }
    let count = found.len();
    let found: BTreeSet<String> = found.into_iter().collect();
    assert_eq!(found.len(), count, "none is there twice");
    assert!(found.is_superset(&acknowledged));
    cluster.end_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn member_that_was_down_finds_moved_partitions() {
    let mut cluster = Cluster::start_that_can([2; 3]).await;
    let load = Load::on(&cluster);
    load.leave(3);
    let place = cluster.end(3).await;
    let all: Vec<u32> = (0..PARTITIONS).collect();
    for to_shard in [2, 3, 1] {
        let (topic, partitions) = ("work".to_owned(), all.clone());
        let asked = Operation::MovePartitions { topic, partitions, to_shard };
        let _: Moves = operate(&cluster.administration(1), asked).await.expect("they may move");
        let at = |index: &u32| {
            cluster.broker(1).shard_with(PartitionId::new(cluster.topic, *index)).0 == to_shard
        };
        let are_there = async || cluster.broker(1).moving_count() == 0 && all.iter().all(at);
        wait_for(are_there, || format!("all in shard {to_shard}")).await;
    }
    assert_eq!(cluster.start_again(place).await, 3);
    load.enter(&cluster, 3);
    cluster.are_ready().await;
    let acknowledged = load.stop().await;
    // The node that was away leads, and has every record.
    assert!(super::all_of(&cluster, 3).await.is_superset(&acknowledged));
    cluster.end_all().await;
}
