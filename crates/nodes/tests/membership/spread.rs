//! Clusters of more than three nodes with each shard on three of them: nodes join, leave and are lost under load, and
//! every acknowledged record remains readable.

use std::collections::BTreeSet;

use base::{PartitionId, ShardId};
use operations::cluster::{NodeState, Operation, Shard, Status};
use parking_lot::Mutex;
use test_cluster::NodeSetup;

use crate::harness::{Cluster, Load, PARTITIONS, values, wait_for};

const LEVEL: u16 = 3;
const REPLICAS: usize = 3;

/// Whether these are all nodes, each shard with rows is on three of them, and their loads differ by at most one.
fn is_spread(status: &Status, wanted: &BTreeSet<u64>) -> bool {
    let nodes: BTreeSet<u64> = status.nodes.iter().map(|node| node.node).collect();
    let (catalog, rows): (Vec<&Shard>, Vec<&Shard>) =
        status.shards.iter().partition(|shard| shard.shard == 0);
    let has_three = |shard: &&Shard| {
        let voters: BTreeSet<u64> = shard.voters.iter().copied().collect();
        !shard.changing
            && shard.learners.is_empty()
            && voters.is_subset(wanted)
            && voters.len() == REPLICAS.min(wanted.len())
    };
    let load = |node: &u64| rows.iter().filter(|shard| shard.voters.contains(node)).count();
    let loads: Vec<usize> = wanted.iter().map(load).collect();
    let is_even = loads.iter().max() <= loads.iter().min().map(|least| least + 1).as_ref();
    let has_all = |shard: &&Shard| {
        let members = shard.voters.iter().chain(&shard.learners).copied();
        members.collect::<BTreeSet<u64>>() == *wanted
    };
    nodes == *wanted
        && rows.iter().all(has_three)
        && catalog.iter().all(has_all)
        && (is_even || wanted.len() <= REPLICAS)
}

async fn becomes_spread(cluster: &Cluster, over: &[u64]) {
    let wanted: BTreeSet<u64> = over.iter().copied().collect();
    let asked = *over.iter().find(|node| cluster.members.contains_key(node)).expect("one runs");
    let last = Mutex::new(None);
    let is_so = async || {
        let status = cluster.status(asked).await;
        let is_so = is_spread(&status, &wanted);
        *last.lock() = Some(status);
        is_so
    };
    wait_for(is_so, || {
        format!("shards that are spread over {over:?}, in place of {:#?}", last.lock())
    })
    .await;
}

/// Bytes of a shard's files on a node's disk.
fn file_bytes(place: &NodeSetup, shard: u32) -> usize {
    let files = place.disk().files().into_iter();
    let of_shard = files.filter(|path| path.starts_with(NodeSetup::shard_dir(shard)));
    of_shard.filter_map(|path| place.disk().content(&path)).map(|content| content.len()).sum()
}

/// Every value of the topic, read at the partitions' leaders.
async fn all_values(cluster: &Cluster) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for index in 0..PARTITIONS {
        let partition = PartitionId::new(cluster.topic, index);
        let mut leader = None;
        let leads = async || {
            let mut nodes = cluster.members.keys().copied();
            leader = nodes.find(|node| cluster.broker(*node).leads_each(&[partition])[0]);
            leader.is_some()
        };
        wait_for(leads, || format!("a leader of {partition}")).await;
        all.extend(values(cluster.broker(leader.expect("there is one")), partition).await);
    }
    all
}

fn lacks(all: &BTreeSet<String>, acknowledged: &BTreeSet<String>) -> Vec<String> {
    acknowledged.difference(all).cloned().collect()
}

/// Shards with rows in which a node votes, according to the status.
fn has(status: &Status, node: u64) -> Vec<u32> {
    let rows = status.shards.iter().filter(|shard| shard.shard != 0);
    rows.filter(|shard| shard.voters.contains(&node)).map(|shard| shard.shard).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_joining_under_load_take_shards_and_each_shard_keeps_three_replicas() {
    let mut cluster = Cluster::start_that_can([LEVEL; 3]).await;
    let load = Load::on(&cluster);
    assert_eq!(cluster.join().await, 4);
    load.enter(&cluster, 4);
    becomes_spread(&cluster, &[1, 2, 3, 4]).await;
    assert!(!has(&cluster.status(1).await, 4).is_empty());
    assert_eq!(cluster.join().await, 5);
    load.enter(&cluster, 5);
    becomes_spread(&cluster, &[1, 2, 3, 4, 5]).await;
    // More nodes than the former limit.
    assert_eq!(cluster.join().await, 6);
    load.enter(&cluster, 6);
    becomes_spread(&cluster, &[1, 2, 3, 4, 5, 6]).await;
    let status = cluster.status(6).await;
    assert_eq!((status.shards[0].voters.len(), status.shards[0].learners.len()), (5, 1));
    // A leader may be handing over a shard that has just moved.
    let is_whole = async || cluster.status(6).await.verdict.can_lose_a_node;
    wait_for(is_whole, || "that a node may be lost".to_owned()).await;
    let before = load.acknowledged();
    wait_for(async || load.acknowledged() > before + 20, || "writing goes on".to_owned()).await;
    let acknowledged = load.stop().await;
    let all = all_values(&cluster).await;
    assert_eq!(lacks(&all, &acknowledged), Vec::<String>::new());
    // Any node forwards the append to the leader.
    for node in 1..=6 {
        for index in 0..PARTITIONS {
            let partition = PartitionId::new(cluster.topic, index);
            let appended = async || {
                let batch = crate::harness::batch(partition, &format!("by {node} in {index}"));
                let answers = cluster.broker(node).append_at_leaders(vec![batch]).await;
                answers.iter().all(Result::is_ok)
            };
            wait_for(appended, || format!("a record by node {node} in {partition}")).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_with_some_of_the_shards_are_drained_removed_and_replaced_under_load() {
    let mut cluster = Cluster::start_all_with_levels(&[LEVEL; 5]).await;
    becomes_spread(&cluster, &[1, 2, 3, 4, 5]).await;
    let load = Load::on(&cluster);
    let left = cluster.leader(ShardId::FIRST).await;
    cluster.ask(1, Operation::DrainNode { node: left }).await.expect("it is drained");
    let is_drained = async || {
        let status = cluster.status(left).await;
        status.nodes.iter().any(|node| node.node == left && node.leads == 0)
    };
    wait_for(is_drained, || format!("node {left} leads nothing")).await;
    cluster.ask(1, Operation::RemoveNode { node: left }).await.expect("it is removed");
    let mut rest: Vec<u64> = (1..=5).filter(|node| *node != left).collect();
    becomes_spread(&cluster, &rest).await;
    load.leave(left);
    cluster.end(left).await;

    // A lost node is replaced by an empty one.
    let lost = rest[0];
    load.leave(lost);
    let place = cluster.end(lost).await;
    let newest = cluster.join_in_place_of(&place).await;
    load.enter(&cluster, newest);
    let asked = Operation::ReplaceNode { node: lost, with: newest };
    cluster.ask(cluster.any(), asked).await.expect("it is replaced");
    rest.retain(|node| *node != lost);
    rest.push(newest);
    becomes_spread(&cluster, &rest).await;
    let status = cluster.status(newest).await;
    assert!(status.nodes.iter().all(|node| node.standing == NodeState::Active));
    wait_for(async || load.acknowledged() > 50, || "50 acknowledged appends".to_owned()).await;
    let acknowledged = load.stop().await;
    assert_eq!(lacks(&all_values(&cluster).await, &acknowledged), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_of_a_removed_replica_go_at_the_next_start_and_it_may_return() {
    let mut cluster = Cluster::start_that_can([LEVEL; 3]).await;
    let load = Load::on(&cluster);
    assert_eq!(cluster.join().await, 4);
    load.enter(&cluster, 4);
    becomes_spread(&cluster, &[1, 2, 3, 4]).await;
    let mut former = None;
    let has_removed_replicas = async || {
        former = (1..=3).find_map(|node| {
            let shards = cluster.broker(node).removed_replicas();
            shards.first().map(|shard| (node, *shard))
        });
        former.is_some()
    };
    wait_for(has_removed_replicas, || "a removed replica".to_owned()).await;
    let (node, shard) = former.expect("there is one");
    assert!(!cluster.broker(node).is_member(shard));
    let said = format!("node {node} has given");
    let is_said = async || {
        let status = cluster.status(4).await;
        status.under_way.iter().any(|words| words.starts_with(&said))
    };
    wait_for(is_said, || "that its files are still there".to_owned()).await;

    load.leave(node);
    let place = cluster.end(node).await;
    let bytes = |place: &NodeSetup| -> usize {
        let files = place.disk().files().into_iter();
        let of_shard = files.filter(|path| path.starts_with(NodeSetup::shard_dir(shard.0)));
        of_shard
            .filter_map(|path| place.disk().content(&path))
            .map(|content| content.iter().filter(|byte| **byte != 0).count())
            .sum()
    };
    let before = bytes(&place);
    assert_eq!(cluster.start_again(place).await, node);
    load.enter(&cluster, node);
    assert_eq!(cluster.broker(node).removed_replicas(), []);
    let after = bytes(cluster.members[&node].node.place());
    assert!(after < before / 2, "{shard} still has {after} of {before} bytes");
    let bytes = file_bytes(cluster.members[&node].node.place(), shard.0);
    assert!(
        bytes <= 4 << 10,
        "{shard} has {bytes} bytes of the disk though this node has nothing of it"
    );
    becomes_spread(&cluster, &[1, 2, 3, 4]).await;

    // Three nodes remain and have every shard, including this node.
    let other = (1..=4).find(|other| *other != node).expect("there are four");
    cluster.ask(node, Operation::DrainNode { node: other }).await.expect("it is drained");
    cluster.ask(node, Operation::RemoveNode { node: other }).await.expect("it is removed");
    let rest: Vec<u64> = (1..=4).filter(|node| *node != other).collect();
    becomes_spread(&cluster, &rest).await;
    load.leave(other);
    cluster.end(other).await;
    assert!(cluster.broker(node).is_member(shard));
    let acknowledged = load.stop().await;
    assert_eq!(lacks(&all_values(&cluster).await, &acknowledged), Vec::<String>::new());
    let all = crate::all_of(&cluster, node).await;
    assert_eq!(lacks(&all, &acknowledged), Vec::<String>::new(), "node {node} leads it again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_founding_nodes_place_each_shard_on_three_from_the_start() {
    let cluster = Cluster::start_all_with_levels(&[LEVEL; 5]).await;
    let founded = cluster.status(3).await.shards;
    assert!(founded[1..].iter().all(|shard| shard.voters.len() == REPLICAS), "{founded:?}");
    assert_eq!(founded[0].voters.len(), 5);
    // Nothing moves once all nodes are registered.
    becomes_spread(&cluster, &[1, 2, 3, 4, 5]).await;
    let mut without = 0;
    for node in 1..=5 {
        let place = cluster.members[&node].node.place();
        for shard in founded[1..].iter().filter(|it| !it.voters.contains(&node)) {
            let bytes = file_bytes(place, shard.shard);
            assert!(bytes <= 4 << 10, "{bytes} bytes of shard {} on node {node}", shard.shard);
            without += 1;
        }
        let voted = founded.iter().find(|it| it.shard > 0 && it.voters.contains(&node));
        assert!(file_bytes(place, voted.expect("it has one").shard) > 64 << 10);
    }
    assert!(without > 0);
    let voters = |shards: &[Shard]| shards.iter().map(|it| it.voters.clone()).collect::<Vec<_>>();
    assert_eq!(voters(&cluster.status(3).await.shards), voters(&founded));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn raising_the_level_reduces_each_shard_to_three_replicas() {
    let mut cluster = Cluster::start_all_with_levels(&[LEVEL - 1; 5]).await;
    cluster.becomes_voters(&[1, 2, 3, 4, 5]).await;
    let load = Load::on(&cluster);
    for node in 1..=5 {
        load.leave(node);
        let place = cluster.end(node).await;
        assert_eq!(cluster.start_again(place.with_max_level(LEVEL)).await, node);
        load.enter(&cluster, node);
        cluster.are_ready().await;
    }
    cluster.becomes_voters(&[1, 2, 3, 4, 5]).await;
    let raised = async || {
        let asked = Operation::Upgrade { finalize: true };
        let upgrade: Result<operations::cluster::Upgrade, String> =
            crate::operate(&cluster.administration(2), asked).await;
        upgrade.is_ok_and(|upgrade| upgrade.level == LEVEL)
    };
    wait_for(raised, || "that the level is raised".to_owned()).await;
    becomes_spread(&cluster, &[1, 2, 3, 4, 5]).await;
    let acknowledged = load.stop().await;
    assert_eq!(lacks(&all_values(&cluster).await, &acknowledged), Vec::<String>::new());
}
