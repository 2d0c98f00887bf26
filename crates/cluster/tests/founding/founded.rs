//! Admission to a founded cluster.

use std::time::Duration;

use cluster::{KnownNode, NodeStartError};
use futures_util::FutureExt;
use links::{DirectoryIdentity, NodeId, Refusal};
use tokio::time::sleep;
use uuid::Uuid;

use crate::harness::{
    NodeSlot, connect_error, found, impostor, is_linked, known, refused, soon, stop,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_seed_with_a_wiped_disk_stays_alone_and_ends() {
    let (places, seeds) = NodeSlot::several(3);
    let mut nodes = found(&places, &seeds).await;
    let cluster = nodes[0].identity().at.cluster;
    stop(nodes.remove(0)).await;
    let wiped = places[0].wiped().start(&seeds).await.expect("it takes itself for a founder");
    let presented = wiped.identity().at.cluster;
    assert_ne!(presented, cluster);
    for node in [2, 3] {
        let error = connect_error(wiped.links(), node).await;
        assert_eq!(refused(&error), &Refusal::AnotherCluster { cluster, presented });
    }
    assert_eq!(wiped.all_seen().now_or_never(), None);
    let reason = soon("the refusal", wiped.outdated()).await;
    assert!(reason.contains("`--join` in place of `--seeds`"), "{reason}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn seed_with_a_wiped_disk_is_refused_also_after_a_restart() {
    let (places, seeds) = NodeSlot::several(3);
    let mut nodes = found(&places, &seeds).await;
    let at = nodes[1].identity().at;
    let others = known(&nodes);
    stop(nodes.remove(1)).await;
    let wiped = places[1].wiped();
    let refusal = Refusal::Founded { cluster: at.cluster, node: NodeId(2) };
    let is_refused = async || {
        let error = wiped.start(&seeds).await.expect_err("wiped");
        let NodeStartError::FirstSeed { error: why, .. } = &error else { panic!("{error}") };
        assert_eq!(refused(why), &refusal);
        assert!(error.to_string().contains("postroad node replace 2 --with NEW"), "{error}");
    };
    is_refused().await;
    // The founder's memory is gone, its disk is not.
    stop(nodes.remove(0)).await;
    let founder = places[0].start(&seeds).await.expect("starts");
    is_refused().await;
    founder.know(others).await.expect("written");
    is_refused().await;
    // A false member is refused too.
    let presented = Uuid::from_u128(666);
    let liar = impostor(DirectoryIdentity { directory: presented, boot: 9, ..at }, &founder).await;
    let error = connect_error(&liar, 1).await;
    let known = at.directory;
    assert_eq!(refused(&error), &Refusal::AnotherDirectory { node: at.node, known, presented });
}

/// Before all seeds are there, the first seed keeps their directories in memory: the first one counts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_directory_of_a_node_counts_during_the_founding() {
    let (places, seeds) = NodeSlot::several(3);
    let founder = places[0].start(&seeds).await.expect("starts");
    let second = places[1].start(&seeds).await.expect("starts");
    is_linked(second.links(), 1).await;
    let at = second.identity().at;
    stop(second).await;
    let error = places[1].wiped().start(&seeds).await.expect_err("another directory");
    let NodeStartError::FirstSeed { error: why, .. } = &error else { panic!("{error}") };
    let is_it = matches!(
        refused(why),
        Refusal::AnotherDirectory { node: NodeId(2), known, .. } if *known == at.directory
    );
    assert!(is_it, "{error}");
    let stranger = impostor(DirectoryIdentity { node: NodeId(4), ..at }, &founder).await;
    let error = connect_error(&stranger, 1).await;
    assert_eq!(refused(&error), &Refusal::UnknownNode { node: NodeId(4) });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_nodes_and_boots_known_to_the_catalog_are_admitted() {
    let (places, seeds) = NodeSlot::several(3);
    let nodes = found(&places, &seeds).await;
    let second = &nodes[1];
    let mut all = known(&nodes);
    let at = nodes[0].identity().at;
    let directory = Uuid::from_u128(44);
    let fourth = DirectoryIdentity { node: NodeId(4), directory, boot: 5, ..at };
    // A number that was assigned before the last one, and that no node has any more.
    let fifth = Uuid::from_u128(55);
    let address = "five:1".to_owned();
    all.push(KnownNode { id: NodeId(5), directory: fifth, boot: 1, address });
    second.know(all.clone()).await.expect("written");
    let stranger = impostor(fourth, second).await;
    let error = connect_error(&stranger, 2).await;
    assert_eq!(refused(&error), &Refusal::UnknownNode { node: NodeId(4) });
    // The catalog has it.
    all.pop();
    let address = stranger.address().to_string();
    all.push(KnownNode { id: NodeId(4), directory, boot: 5, address });
    second.know(all.clone()).await.expect("written");
    is_linked(&stranger, 2).await;
    is_linked(second.links(), 4).await;
    assert_eq!(second.known(), all);
    // An earlier boot than the known one is refused, and a later one is accepted.
    let earlier = impostor(DirectoryIdentity { boot: 4, ..fourth }, second).await;
    let error = connect_error(&earlier, 2).await;
    let old = Refusal::OldBoot { node: NodeId(4), seen: 5, presented: 4 };
    assert_eq!(refused(&error), &old);
    let later = impostor(DirectoryIdentity { boot: 6, ..fourth }, second).await;
    is_linked(&later, 2).await;
    let boots: Vec<_> = second.known().iter().map(|node| node.boot).collect();
    assert_eq!(boots, [1, 1, 1, 6]);
    // Removes it.
    all.pop();
    second.know(all.clone()).await.expect("written");
    let error = connect_error(&later, 2).await;
    assert_eq!(refused(&error), &Refusal::UnknownNode { node: NodeId(4) });
    assert!(second.links().peer(NodeId(4)).is_none());
    assert_eq!(second.known(), all);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn second_copy_of_a_directory_is_refused() {
    let (places, seeds) = NodeSlot::several(3);
    let mut nodes = found(&places, &seeds).await;
    stop(nodes.remove(1)).await;
    // Both at other addresses than the recorded one, so that a probe of that one cannot tell them apart.
    let copy = NodeSlot { address: NodeSlot::new().address, ..places[1].copied() };
    let original = NodeSlot { address: NodeSlot::new().address, ..places[1].clone() };
    let original = original.start(&[]).await.expect("starts");
    is_linked(original.links(), 1).await;
    is_linked(original.links(), 3).await;
    let copy = copy.start(&[]).await.expect("its directory knows the cluster");
    assert_eq!(copy.identity().at, original.identity().at);
    for node in [1, 3] {
        let error = connect_error(copy.links(), node).await;
        let old = Refusal::OldBoot { node: NodeId(2), seen: 2, presented: 2 };
        assert_eq!(refused(&error), &old);
    }
    is_linked(original.links(), 1).await;
}

/// A node may have joined and lead the catalog while another was away, which has to learn that from it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn returning_node_admits_a_node_that_joined_meanwhile() {
    let (places, seeds) = NodeSlot::several(3);
    let mut nodes = found(&places, &seeds).await;
    let all = known(&nodes);
    stop(nodes.remove(2)).await;
    let third = places[2].start(&[]).await.expect("starts");
    soon("it was founded before", third.all_seen()).await;
    let directory = Uuid::from_u128(44);
    let at = DirectoryIdentity { node: NodeId(7), directory, ..nodes[0].identity().at };
    let joined = impostor(at, &third).await;
    is_linked(&joined, 3).await;
    // The same holds if its copy of the catalog is old: a joining node gets a higher number than all before.
    third.know(all.clone()).await.expect("written");
    is_linked(&joined, 3).await;
    let is_known = third.known().iter().any(|node| node.id == NodeId(7));
    assert!(!is_known, "a guest is nothing that is known");
    assert!(third.links().peer(NodeId(7)).is_none());
    // If it knows a later one, it would know this one, too.
    let address = "eight:1".to_owned();
    let eighth = KnownNode { id: NodeId(8), directory: Uuid::from_u128(88), boot: 1, address };
    let with_eighth = [all, vec![eighth]].concat();
    third.know(with_eighth).await.expect("written");
    let error = connect_error(&joined, 3).await;
    assert_eq!(refused(&error), &Refusal::UnknownNode { node: NodeId(7) });
    sleep(Duration::from_millis(10)).await;
    is_linked(third.links(), 1).await;
}

/// Its number belonged to a removed node: no node that joins later has it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn number_of_a_removed_node_is_not_reused() {
    let (places, seeds) = NodeSlot::several(3);
    let nodes = found(&places, &seeds).await;
    let (second, all) = (&nodes[1], known(&nodes));
    second.know_former([(Uuid::from_u128(44), NodeId(4))].into());
    second.know(all).await.expect("written");
    let at = second.identity().at;
    let of_number = async |node, directory| {
        let directory = Uuid::from_u128(directory);
        impostor(DirectoryIdentity { node: NodeId(node), directory, ..at }, second).await
    };
    let removed = of_number(4, 44).await;
    let error = connect_error(&removed, 2).await;
    assert_eq!(refused(&error), &Refusal::Removed { node: NodeId(4) });
    let other = of_number(4, 45).await;
    let error = connect_error(&other, 2).await;
    assert_eq!(refused(&error), &Refusal::UnknownNode { node: NodeId(4) });
    let later = of_number(5, 55).await;
    is_linked(&later, 2).await;
}
