//! The majority of a cluster is lost for good, and one node continues.

use std::collections::{BTreeMap, BTreeSet};
use std::io::IoSlice;
use std::path::Path;

use base::{PartitionId, ShardId};
use broker::{BrokerOptions, NewTopic};
use cluster::NodeStartError;
use nodes::recovery::{RecoveryError, inspect, recover};
use test_cluster::{JournalOptions, NodeSetup};
use tokio::time::timeout;
use world::disk::{read_whole, replace};
use world::{Entropy, OsEntropy, World};

use crate::harness::{Cluster, Load, PARTITIONS, SOON, wait_for};

fn options() -> BrokerOptions {
    let journal = JournalOptions { segment_bytes: 8 << 20, ..JournalOptions::default() };
    BrokerOptions { journal, ..BrokerOptions::default() }
}

fn world(place: &NodeSetup) -> World {
    World::on(place.shared_disk())
}

/// Stops all nodes in this order, while the remaining ones continue.
async fn end(cluster: &mut Cluster, nodes: &[u64]) -> BTreeMap<u64, NodeSetup> {
    let mut places = BTreeMap::new();
    for node in nodes {
        places.insert(*node, cluster.end(*node).await);
    }
    places
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn surviving_node_continues_and_grows_to_three_nodes_again() {
    let mut cluster = Cluster::start().await;
    let load = Load::on(&cluster);
    wait_for(async || load.acknowledged() > 50, || "acknowledged appends".to_owned()).await;
    let acknowledged = load.stop().await;
    let places = end(&mut cluster, &[2, 3, 1]).await;
    let (dir, lost) = (Path::new(NodeSetup::DIR), BTreeSet::from([2, 3]));

    let (place, disk) = (&places[&1], world(&places[&1]));
    let refused = inspect(&disk, dir, options(), &BTreeSet::from([3])).await;
    assert!(matches!(refused, Err(RecoveryError::MajorityLeft { .. })), "{refused:?}");
    let seen = inspect(&disk, dir, options(), &lost).await.expect("it could go on");
    assert_eq!((seen.node, seen.shards.len(), seen.recovered.is_none()), (1, 4, true));
    assert!(seen.shards.iter().all(|shard| shard.voters == [1, 2, 3] && shard.last_index > 0));

    let report = recover(&disk, dir, options(), &lost).await.expect("it goes on");
    let outcome = report.recovered.expect("it was done");
    assert_eq!((outcome.gaps.len(), outcome.topics_dropped), (0, 0));
    assert_eq!(cluster.start_again(place.clone()).await, 1);
    wait_for(async || cluster.voters_are(&BTreeSet::from([1])), || "it alone".to_owned()).await;
    // Every record was on this disk when it was acknowledged, or on both others.
    let there = cluster.values_at(1).await;
    let missing = acknowledged.difference(&there).count();
    assert!(missing <= 3, "{missing} of {} are missing", acknowledged.len());

    // A node declared lost is not admitted with its old identity.
    let error = timeout(SOON, cluster.join_from(places[&2].rejoining(&cluster.nodes()))).await;
    let error = error.expect("soon").expect_err("it is of another cluster");
    assert!(matches!(error, NodeStartError::Foreign { node: 2, .. }), "{error}");

    let second = cluster.join_in_place_of(&places[&2]).await;
    let third = cluster.join().await;
    assert_eq!((second, third), (4, 5));
    cluster.becomes(&[1, 4, 5]).await;
    let load = Load::on(&cluster);
    cluster.end(1).await;
    let more = NewTopic {
        name: "more".to_owned(),
        uuid: OsEntropy.uuid(),
        partitions: 1,
        config: BTreeMap::new(),
    };
    assert_ne!(cluster.leader(ShardId::CATALOG).await, 1);
    let leader = cluster.leader(ShardId::CATALOG).await;
    cluster.broker(leader).create_topic(more).await.expect("it works as any cluster");
    load.leave(1);
    load.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interrupted_recovery_is_repeated_before_the_node_can_start() {
    let mut cluster = Cluster::start().await;
    let places = end(&mut cluster, &[2, 3, 1]).await;
    let (dir, lost) = (Path::new(NodeSetup::DIR), BTreeSet::from([2, 3]));
    let (place, disk) = (&places[&1], world(&places[&1]));
    // Interrupted between the directory and the shards.
    let survivor = cluster::SurvivorDirectory::claim(&disk, dir).await.expect("a member");
    drop(survivor.begin().await.expect("begun"));
    let error = timeout(SOON, cluster.join_from(place.clone())).await.expect("soon");
    let error = error.expect_err("it is not in order").to_string();
    assert!(error.contains("type `postroad recover` as before"), "{error}");
    for _ in 0..2 {
        recover(&disk, dir, options(), &lost).await.expect("it is done");
        // Interrupted between the last shard and the end.
        let survivor = cluster::SurvivorDirectory::claim(&disk, dir).await.expect("a member");
        drop(survivor.begin().await.expect("begun"));
    }
    recover(&disk, dir, options(), &lost).await.expect("it is done");
    assert_eq!(cluster.start_again(place.clone()).await, 1);
    wait_for(async || cluster.voters_are(&BTreeSet::from([1])), || "it alone".to_owned()).await;
}

/// The files of a shard.
type Files = BTreeMap<String, Vec<u8>>;

fn files(disk: &World, shard: u32) -> Files {
    let dir = NodeSetup::shard_dir(shard);
    let names = disk.disk.list(&dir).expect("listed").into_iter();
    names
        .map(|name| (name.clone(), read_whole(&*disk.disk, &dir.join(name)).expect("read")))
        .collect()
}

fn set_back(disk: &World, shard: u32, files: &Files) {
    let dir = NodeSetup::shard_dir(shard);
    for name in disk.disk.list(&dir).expect("listed") {
        disk.disk.remove(&dir.join(name)).expect("removed");
    }
    for (name, bytes) in files {
        replace(&*disk.disk, &dir, name, &mut [IoSlice::new(bytes)]).expect("written");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recovery_makes_shards_ahead_of_the_catalog_agree_with_it() {
    let mut cluster = Cluster::start().await;
    let place = cluster.end(1).await;
    let disk = world(&place);
    let catalog = files(&disk, 0);
    cluster.start_again(place).await;
    cluster.are_ready().await;
    let later = |name: &str| NewTopic {
        name: name.to_owned(),
        uuid: OsEntropy.uuid(),
        partitions: PARTITIONS,
        config: BTreeMap::new(),
    };
    let lost = cluster.broker(1).create_topic(later("later")).await.expect("it is new");
    for number in 0..PARTITIONS {
        cluster.append_at_leader(PartitionId::new(lost, number), "lost").await;
    }
    let places = end(&mut cluster, &[2, 3, 1]).await;
    set_back(&disk, 0, &catalog);

    let (dir, lost_nodes) = (Path::new(NodeSetup::DIR), BTreeSet::from([2, 3]));
    let report = recover(&disk, dir, options(), &lost_nodes).await.expect("it goes on");
    assert_eq!(report.recovered.expect("done").topics_dropped, 1);
    cluster.start_again(places[&1].clone()).await;
    cluster.are_ready().await;
    assert!(cluster.broker(1).catalog().topic_named("later").is_none());
    // Its name is free, but its number is not: leftovers are not taken for the new topic's.
    let made = cluster.broker(1).create_topic(later("later")).await.expect("it is new");
    assert!(made.0 > lost.0, "{made:?} {lost:?}");
    for number in 0..PARTITIONS {
        let partition = PartitionId::new(made, number);
        cluster.append_at_leader(partition, "new").await;
        let read = cluster.broker(1).read_raw_batches(partition, 0, 1 << 20).await.expect("read");
        assert_eq!(read.high_watermark, 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_directory_of_a_member_is_recovered() {
    let disk = World::on(std::sync::Arc::new(world::SimulatedDisk::new()));
    let lost = BTreeSet::from([2]);
    let refused = recover(&disk, Path::new("/nothing"), options(), &lost).await;
    let refused = refused.expect_err("nothing is there").to_string();
    assert!(refused.contains("/nothing is of no node"), "{refused}");
}
