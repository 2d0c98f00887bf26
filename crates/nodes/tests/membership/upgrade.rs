//! A rolling upgrade: programs of two feature levels in one cluster, raising the level, and programs that are too old.

use std::path::Path;

use base::Level;
use broker::Broker;
use cluster::NodeStartError;
use operations::cluster::{Operation, Upgrade};
use test_cluster::NodeSetup;
use tokio::time::timeout;

use crate::all_of;
use crate::harness::{Cluster, Load, SOON, operate, wait_for};

async fn upgrade(cluster: &Cluster, node: u64, finalize: bool) -> Result<Upgrade, String> {
    operate(&cluster.administration(node), Operation::Upgrade { finalize }).await
}

/// Restarts a node with a program that supports the levels up to `max`.
async fn becomes(cluster: &mut Cluster, load: &Load, node: u64, max: u16) {
    load.leave(node);
    let place = cluster.end(node).await;
    assert_eq!(cluster.start_again(place.with_max_level(max)).await, node);
    load.enter(cluster, node);
    cluster.are_ready().await;
    let said = async || {
        let of = upgrade(cluster, node % 3 + 1, false).await.expect("it says so");
        of.nodes.iter().any(|it| it.node == node && it.level_max == max && it.name.is_some())
    };
    wait_for(said, || format!("node {node} says that it can {max}")).await;
}

fn level(broker: &Broker) -> Level {
    broker.level().now()
}

/// Deletes the file with the directory's level.
fn forget_level(place: &NodeSetup) {
    let file = Path::new(NodeSetup::DIR).join("level");
    place.shared_disk().remove(&file).expect("it was there");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rolling_upgrade_is_reversible_until_the_level_is_raised() {
    let mut cluster = Cluster::start().await;
    let load = Load::on(&cluster);
    for node in [1, 2] {
        becomes(&mut cluster, &load, node, 2).await;
    }
    let refused = upgrade(&cluster, 1, true).await.expect_err("node 3 cannot");
    let way = "node 3 supports level 1";
    assert!(refused.contains(way) && refused.contains("as node 1 runs"), "{refused}");
    // Two of three could write at the newer level; nothing has done so yet.
    becomes(&mut cluster, &load, 2, 1).await;
    assert_eq!(level(cluster.broker(1)), Level::FIRST);
    for node in [2, 3] {
        becomes(&mut cluster, &load, node, 2).await;
    }
    let able = upgrade(&cluster, 3, false).await.expect("it says so");
    assert_eq!((able.level, able.possible, able.in_the_way.len()), (1, 2, 0), "{able:?}");

    // A disconnected node may return with any program.
    load.leave(3);
    let place = cluster.end(3).await;
    let away = async || {
        let upgrade = upgrade(&cluster, 1, false).await.expect("it says so");
        upgrade.in_the_way.iter().any(|way| way.starts_with("node 3 is not connected"))
    };
    wait_for(away, || "node 3 stands in the way".to_owned()).await;
    assert!(upgrade(&cluster, 1, true).await.is_err());
    assert_eq!(cluster.start_again(place).await, 3);
    load.enter(&cluster, 3);
    let is_able = async || {
        upgrade(&cluster, 2, false).await.is_ok_and(|upgrade| upgrade.in_the_way.is_empty())
    };
    wait_for(is_able, || "every node supports level 2".to_owned()).await;

    let raised = upgrade(&cluster, 2, true).await.expect("every node supports it");
    assert_eq!((raised.level, raised.raised), (2, true), "{raised:?}");
    let reached =
        async || cluster.members.keys().all(|node| level(cluster.broker(*node)) == Level(2));
    wait_for(reached, || "level 2 on each node".to_owned()).await;
    let again = upgrade(&cluster, 1, true).await.expect("it is so");
    assert!(!again.raised);
    let before = load.acknowledged();
    wait_for(async || load.acknowledged() > before + 20, || "writing goes on".to_owned()).await;

    // A program that is too old is rejected: by its own directory, or by the other nodes.
    load.leave(3);
    let place = cluster.end(3).await;
    let old = cluster.join_from(place.with_max_level(1)).await.expect_err("it cannot");
    assert!(matches!(old, NodeStartError::Level(_)), "{old}");
    assert!(old.to_string().contains("this program supports level 1: start postroad"), "{old}");
    let fourth = NodeSetup::joining(&cluster.nodes()).with_max_level(1);
    let refused = cluster.join_from(fourth).await.expect_err("it cannot");
    assert!(refused.to_string().contains("feature level 2"), "{refused}");

    assert_eq!(cluster.start_again(place).await, 3);
    cluster.are_ready().await;
    load.enter(&cluster, 3);
    let acknowledged = load.stop().await;
    for node in [1, 2, 3] {
        for drained in [1, 2, 3] {
            cluster.ask(node, Operation::ResumeNode { node: drained }).await.expect("resumed");
        }
        assert!(all_of(&cluster, node).await.is_superset(&acknowledged), "at node {node}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_is_founded_at_the_newest_level_that_all_seeds_support() {
    let mut cluster = Cluster::start_that_can([3, 2, 3]).await;
    let reached =
        async || cluster.members.keys().all(|node| level(cluster.broker(*node)) == Level(2));
    wait_for(reached, || "level 2 on each node".to_owned()).await;

    // Without the level file the other nodes reject it.
    let place = cluster.end(2).await;
    forget_level(&place);
    let old = place.with_max_level(1);
    let (member, opened) =
        test_cluster::begin(&old).await.expect("nothing on its disk is against it");
    let refusal = tokio::select! {
        refusal = timeout(SOON, member.outdated()) => refusal.expect("the others refuse it"),
        opened = opened => opened.expect_err("it cannot apply what is in its log").to_string(),
    };
    assert!(
        refusal.contains("feature level 2") && refusal.contains("supports level 1"),
        "{refusal}"
    );
}
