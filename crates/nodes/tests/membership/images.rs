//! Restored disk images of a running node: the node is rejected, so that no acknowledged record is lost.

use std::path::Path;
use std::time::Duration;

use base::ShardId;
use test_cluster::NodeSetup;
use tokio::time::{sleep, timeout};
use world::SimulatedDisk;
use world::disk::replace;

use crate::all_of;
use crate::harness::{Cluster, Load, SOON, wait_for};

const EPOCHS: &str = "epochs";
/// Epochs rise and are sent once a second.
const EPOCHS_MOVED: Duration = Duration::from_millis(2_500);

/// An atomic image of the disk: no write happens meanwhile.
fn image(place: &NodeSetup) -> SimulatedDisk {
    SimulatedDisk::unpack(&place.disk().pack(), Path::new("/"))
}

/// A cluster at the newest level, in which node 2 has an epoch.
async fn started() -> Cluster {
    let cluster = Cluster::start_that_can([base::Levels::OURS.max.0; 3]).await;
    let path = Path::new(NodeSetup::DIR).join(EPOCHS);
    let exists = async || cluster.members[&2].node.place().disk().content(&path).is_some();
    wait_for(exists, || "the epoch file of node 2".to_owned()).await;
    cluster
}

/// Starts the node together with the others until it is rejected, and returns the reason.
async fn refused(place: &NodeSetup, others: &[&NodeSetup]) -> String {
    let mut begun = Vec::new();
    for other in others {
        let (member, opening) = test_cluster::begin(other).await.expect("it starts");
        begun.push((member, tokio::spawn(opening)));
    }
    let (member, opening) = test_cluster::begin(place).await.expect("it starts");
    let opening = tokio::spawn(opening);
    let refusal = timeout(SOON, member.outdated()).await.expect("it is refused");
    begun.push((member, opening));
    for (member, opening) in begun {
        assert!(!opening.is_finished(), "a majority without what was acknowledged");
        opening.abort();
        member.close().await;
    }
    refusal
}

/// Waits until another node reports that the node is rejected, with this reason.
async fn is_reported(cluster: &Cluster, asked: u64, node: u64, reason: &str) {
    let reported = async || {
        let status = cluster.status(asked).await;
        let begins = format!("node {node} is not connected");
        let at_risk =
            status.at_risk.iter().any(|it| it.starts_with(&begins) && it.contains(reason));
        at_risk && !status.verdict.can_lose_a_node
    };
    wait_for(reported, || format!("node {node} at risk, as `{reason}`")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn image_of_a_running_node_is_refused_and_no_acknowledged_record_is_lost() {
    let mut cluster = started().await;
    let load = Load::on(&cluster);
    wait_for(async || load.acknowledged() > 20, || "a load".to_owned()).await;
    let before = load.stop().await;
    let image = image(cluster.members[&2].node.place());

    let load = Load::on(&cluster);
    sleep(EPOCHS_MOVED).await;
    // Node 3 is down from here on: later records are on nodes 1 and 2 only.
    load.leave(3);
    let third = cluster.end(3).await;
    let acknowledged = load.acknowledged();
    wait_for(async || load.acknowledged() > acknowledged + 20, || "more records".to_owned()).await;
    load.leave(1);
    load.leave(2);
    let acknowledged: std::collections::BTreeSet<String> =
        load.stop().await.into_iter().chain(before).collect();
    let second = cluster.end(2).await;
    let first = cluster.end(1).await;

    // Nodes 2 and 3 would be a majority without those records.
    let refusal = refused(&second.with_disk(image), &[&third]).await;
    assert!(refusal.contains("was set back"), "{refusal}");
    assert!(refusal.contains("postroad node replace 2 --with NEW"), "{refusal}");
    // Node 1 has them all. Tasks of the former node 3 may hold its disk for a moment.
    let third = third.with_disk(third.disk().killed());
    cluster.start_all_again(vec![first, third]).await;
    assert!(all_of(&cluster, 1).await.is_superset(&acknowledged));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusal_of_an_image_outlives_restarts_of_all_other_nodes() {
    let mut cluster = started().await;
    let image = image(cluster.members[&2].node.place());
    let load = Load::on(&cluster);
    sleep(EPOCHS_MOVED).await;
    load.stop().await;
    sleep(EPOCHS_MOVED).await;
    let mut places = Vec::new();
    for node in [1, 2, 3] {
        places.push(cluster.end(node).await);
    }
    let [first, second, third] = <[NodeSetup; 3]>::try_from(places).expect("three");
    cluster.start_all_again(vec![first, third]).await;
    let restored = second.with_disk(image);
    let (member, opening) = test_cluster::begin(&restored).await.expect("it starts");
    let opening = tokio::spawn(opening);
    let refusal = timeout(SOON, member.outdated()).await.expect("it is refused");
    assert!(refusal.contains("was set back"), "{refusal}");
    is_reported(&cluster, 1, 2, "was set back").await;
    opening.abort();
    member.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leader_rejects_a_member_that_lost_acknowledged_entries_despite_a_current_epoch() {
    let mut cluster = started().await;
    // Node 2 leads no shard, so that the leaders stay.
    cluster.ask(1, operations::cluster::Operation::DrainNode { node: 2 }).await.expect("drained");
    for shard in 0..=3 {
        let elsewhere = async || cluster.leader(ShardId(shard)).await != 2;
        wait_for(elsewhere, || format!("shard {shard} led by another node")).await;
    }
    let image = image(cluster.members[&2].node.place());
    let load = Load::on(&cluster);
    wait_for(async || load.acknowledged() > 50, || "a load".to_owned()).await;
    load.leave(2);
    let second = cluster.end(2).await;
    // As an image taken since the last epoch.
    let epochs = second.disk().content(&Path::new(NodeSetup::DIR).join(EPOCHS)).expect("it exists");
    replace(&image, NodeSetup::DIR.as_ref(), EPOCHS, &mut [std::io::IoSlice::new(&epochs)])
        .expect("written");
    let restored = second.with_disk(image);
    let (member, opening) = test_cluster::begin(&restored).await.expect("it starts");
    let opening = tokio::spawn(opening);
    is_reported(&cluster, 1, 2, "lacks entries that it acknowledged").await;
    opening.abort();
    member.close().await;
    let acknowledged = load.stop().await;
    assert!(all_of(&cluster, 1).await.is_superset(&acknowledged));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_that_is_killed_or_loses_power_is_readmitted() {
    let mut cluster = started().await;
    let load = Load::on(&cluster);
    for seed in 0..4 {
        sleep(Duration::from_millis(700)).await;
        load.leave(2);
        let place = cluster.end(2).await;
        let place = if seed % 2 == 0 { place } else { place.after_power_loss(seed) };
        cluster.start_again(place).await;
        load.enter(&cluster, 2);
        let live = async || {
            let status = cluster.status(1).await;
            status.nodes[1].live && status.at_risk.is_empty()
        };
        wait_for(live, || "node 2 is connected".to_owned()).await;
    }
    load.stop().await;
}
