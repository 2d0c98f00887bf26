//! Nodes join a cluster and are drained, removed and replaced, under load, with crashes and concurrent decisions.

mod backup;
mod damage;
mod harness;
mod images;
mod moves;
mod recovery;
mod spread;
mod upgrade;

use base::ShardId;
use cluster::NodeStartError;
use links::{ConnectError, Refusal};
use operations::cluster::{NodeState, Operation};
use tokio::time::timeout;

use crate::harness::{Cluster, Load, SOON, operate, operator_token, wait_for};

/// Makes the node lead every shard, and returns its values.
pub(crate) async fn all_of(cluster: &Cluster, node: u64) -> std::collections::BTreeSet<String> {
    for other in cluster.members.keys().copied().filter(|other| *other != node) {
        cluster.ask(node, Operation::DrainNode { node: other }).await.expect("it is drained");
    }
    let leads_all = async || {
        let status = cluster.status(node).await;
        status.shards.iter().all(|shard| shard.leader == Some(node))
    };
    wait_for(leads_all, || format!("node {node} leads everything")).await;
    cluster.values_at(node).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fourth_node_joins_under_load_and_has_all_records() {
    let mut cluster = Cluster::start().await;
    let load = Load::on(&cluster);
    let fourth = cluster.join().await;
    assert_eq!(fourth, 4);
    cluster.becomes(&[1, 2, 3, 4]).await;
    wait_for(async || load.acknowledged() > 50, || "50 acknowledged appends".to_owned()).await;
    let acknowledged = load.stop().await;
    assert!(all_of(&cluster, fourth).await.is_superset(&acknowledged));
    let status = cluster.status(2).await;
    assert_eq!(status.nodes[0].standing, NodeState::Drained);
    assert!(status.verdict.can_lose_a_node, "{:?}", status.verdict);

    // It keeps its number after a restart.
    let place = cluster.end(fourth).await;
    assert_eq!(cluster.start_again(place).await, fourth);
    cluster.becomes(&[1, 2, 3, 4]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operator_token_of_each_node_is_accepted_by_all_nodes_until_it_is_removed() {
    let mut cluster = Cluster::start().await;
    let fourth = cluster.join().await;
    cluster.becomes(&[1, 2, 3, 4]).await;
    let accepts = |cluster: &Cluster, node: u64, token: &str| {
        cluster.members[&node].nodes.accept_operator_token(token)
    };
    for (node, of) in (1..=4).flat_map(|node| (1..=4).map(move |of| (node, of))) {
        let accepted = async || accepts(&cluster, node, &operator_token(of));
        wait_for(accepted, || format!("node {node} accepts the token of node {of}")).await;
    }
    for wrong in ["", "operator token of node 5", "operator token of node"] {
        assert!(!accepts(&cluster, 1, wrong), "{wrong}");
    }
    cluster.end(fourth).await;
    cluster.ask(1, Operation::RemoveNode { node: fourth }).await.expect("it is removed");
    cluster.becomes(&[1, 2, 3]).await;
    let refused = async || !accepts(&cluster, 1, &operator_token(fourth));
    wait_for(refused, || "the token of the removed node is refused".to_owned()).await;
    assert!(accepts(&cluster, 1, &operator_token(3)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_registers_its_rack_at_each_start() {
    let mut cluster = Cluster::start().await;
    assert!(cluster.status(1).await.nodes.iter().all(|node| node.rack.is_none()));
    for rack in [Some("east"), Some("west"), None] {
        let place = cluster.end(2).await;
        match rack {
            Some(rack) => cluster.racks.insert(2, rack.to_owned()),
            None => cluster.racks.remove(&2),
        };
        assert_eq!(cluster.start_again(place).await, 2);
        let is_there = async || cluster.status(3).await.nodes[1].rack.as_deref() == rack;
        wait_for(is_there, || format!("node 2 in {rack:?}")).await;
        let told = async || {
            let live = cluster.members[&3].nodes.get(2);
            live.is_some_and(|node| node.endpoints.rack.as_deref() == rack)
        };
        wait_for(told, || format!("node 2 tells {rack:?}")).await;
    }
    // Decisions of operators keep the rack.
    cluster.racks.insert(4, "north".to_owned());
    assert_eq!(cluster.join().await, 4);
    cluster.ask(1, Operation::DrainNode { node: 4 }).await.expect("it is drained");
    let is_there = async || cluster.status(1).await.nodes[3].rack.as_deref() == Some("north");
    wait_for(is_there, || "node 4 in its rack".to_owned()).await;
    assert_eq!(cluster.status(1).await.nodes[3].standing, NodeState::Drained);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_node_replaced_by_an_empty_one_at_its_address_is_not_readmitted() {
    let mut cluster = Cluster::start().await;
    let load = Load::on(&cluster);
    load.leave(3);
    let lost = cluster.end(3).await;
    let at_risk = async || !cluster.status(1).await.verdict.can_lose_a_node;
    wait_for(at_risk, || "that no other node may be lost".to_owned()).await;
    let refused =
        cluster.ask(1, Operation::RemoveNode { node: 3 }).await.expect_err("two are left");
    assert!(refused.contains("postroad node replace 3 --with NEW"), "{refused}");

    let fourth = cluster.join_in_place_of(&lost).await;
    load.enter(&cluster, fourth);
    let asked = Operation::ReplaceNode { node: 3, with: fourth };
    assert!(cluster.ask(2, asked.clone()).await.expect("it is replaced").changed);
    cluster.becomes(&[1, 2, fourth]).await;
    let again = cluster.ask(2, asked).await.expect_err("it is none any more");
    assert!(again.contains("node 3 was removed"), "{again}");
    let acknowledged = load.stop().await;
    assert!(all_of(&cluster, fourth).await.is_superset(&acknowledged));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drained_node_is_removed_and_its_process_is_rejected() {
    let mut cluster = Cluster::start().await;
    let fourth = cluster.join().await;
    cluster.becomes(&[1, 2, 3, fourth]).await;
    let leader = cluster.leader(ShardId::FIRST).await;
    let error = cluster.ask(1, Operation::RemoveNode { node: leader }).await.expect_err("it lives");
    assert!(error.contains(&format!("postroad node drain {leader}")), "{error}");

    cluster.ask(leader, Operation::DrainNode { node: leader }).await.expect("it is drained");
    let is_drained = async || {
        let status = cluster.status(leader).await;
        status.nodes.iter().any(|node| node.node == leader && node.leads == 0)
    };
    wait_for(is_drained, || format!("node {leader} leads nothing")).await;
    cluster.ask(1, Operation::RemoveNode { node: leader }).await.expect("it is removed");
    let left: Vec<u64> = (1..=fourth).filter(|node| *node != leader).collect();
    cluster.becomes(&left).await;
    let removed = cluster.members[&leader].node.member.removed();
    timeout(SOON, removed).await.expect("the others refuse it");

    // A request to join with its old directory is rejected, too.
    let place = cluster.end(leader).await;
    let members: Vec<_> = cluster.members.values().map(|member| &member.node).collect();
    let place = place.rejoining(&members);
    match cluster.join_from(place).await {
        Err(NodeStartError::Foreign { refusal: Refusal::Removed { node }, .. }) => {
            assert_eq!(node.0, leader);
        }
        other => panic!("it is refused, and not {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copied_or_foreign_directory_is_rejected_with_the_next_command() {
    let mut cluster = Cluster::start().await;
    let mut other = Cluster::start().await;
    let copy = cluster.members[&2].node.place().copied();
    let error = cluster.join_from(copy).await.expect_err("it is a copy");
    let address = cluster.members[&2].node.place().address();
    let typed = format!("empty data directory and `--join {address}`");
    assert!(error.to_string().contains(&typed), "{error}");

    let foreign = other.end(3).await;
    let members: Vec<_> = cluster.members.values().map(|member| &member.node).collect();
    let error =
        cluster.join_from(foreign.rejoining(&members)).await.expect_err("another cluster's");
    assert!(matches!(&error, NodeStartError::Foreign { .. }), "{error}");
    assert!(
        error.to_string().contains("to join the other, with an empty data directory and `--join`"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixth_node_is_rejected_with_the_reason() {
    let mut cluster = Cluster::start().await;
    for wanted in 4..=5 {
        assert_eq!(cluster.join().await, wanted);
    }
    cluster.becomes(&[1, 2, 3, 4, 5]).await;
    let members: Vec<_> = cluster.members.values().map(|member| &member.node).collect();
    let place = test_cluster::NodeSetup::joining(&members);
    let error = cluster.join_from(place).await.expect_err("there are five");
    let NodeStartError::NotJoined { error, .. } = error else { panic!("{error}") };
    let ConnectError::Refused(Refusal::NotJoined { reason }) = error else { panic!("{error}") };
    assert!(reason.contains("it has 5 nodes"), "{reason}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_decisions_of_two_operators_do_not_undo_each_other() {
    let mut cluster = Cluster::start().await;
    let fourth = cluster.join().await;
    cluster.becomes(&[1, 2, 3, fourth]).await;
    for node in [2, 3] {
        cluster.ask(1, Operation::DrainNode { node }).await.expect("it is drained");
    }
    // One removal leaves three nodes; both would leave two.
    let (one, other) = (cluster.administration(1), cluster.administration(fourth));
    let (second, third) = tokio::join!(
        operate::<operations::cluster::NodeDecision>(&one, Operation::RemoveNode { node: 2 }),
        operate::<operations::cluster::NodeDecision>(&other, Operation::RemoveNode { node: 3 }),
    );
    let (gone, refused) = match (second, third) {
        (Ok(_), Err(error)) => (2, error),
        (Err(error), Ok(_)) => (3, error),
        both => panic!("one of them is refused: {both:?}"),
    };
    assert!(refused.contains("the cluster would have 2 nodes"), "{refused}");
    cluster.becomes(&(1..=4).filter(|node| *node != gone).collect::<Vec<_>>()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn membership_change_completes_though_the_catalog_leader_stops() {
    // Later in each turn, so that the leader ends between other steps.
    for turn in 0..4_u64 {
        let mut cluster = Cluster::start().await;
        let load = Load::on(&cluster);
        load.leave(3);
        let lost = cluster.end(3).await;
        let fourth = cluster.join_in_place_of(&lost).await;
        let fifth = cluster.join().await;
        for node in [fourth, fifth] {
            load.enter(&cluster, node);
        }
        cluster.becomes_voters(&[1, 2, 3, fourth, fifth]).await;
        let asked = Operation::ReplaceNode { node: 3, with: fourth };
        cluster.ask(cluster.any(), asked).await.expect("it is replaced");
        tokio::time::sleep(std::time::Duration::from_millis(turn * 600)).await;
        let leader = cluster.leader(ShardId::CATALOG).await;
        load.leave(leader);
        let place = cluster.end(leader).await;
        assert_eq!(cluster.start_again(place).await, leader);
        load.enter(&cluster, leader);
        cluster.becomes(&[1, 2, fourth, fifth]).await;
        let acknowledged = load.stop().await;
        assert!(all_of(&cluster, fifth).await.is_superset(&acknowledged));
        // Running nodes would slow the disks of the next turns, whose nodes then lead nothing.
        cluster.end_all().await;
    }
}
