//! Nodes that join a founded cluster.

use std::collections::BTreeMap;

use cluster::{JoiningNode, KnownNode, Node, NodeStartError, SeedsError};
use links::{ConnectError, NodeId, Refusal};

use crate::harness::{NodeSlot, found, is_linked, known, soon, stop};

/// Three nodes that know the members of the cluster.
async fn founded() -> (Vec<NodeSlot>, Vec<Node>, Vec<KnownNode>) {
    let (places, seeds) = NodeSlot::several(3);
    let nodes = found(&places, &seeds).await;
    let all = known(&nodes);
    for node in &nodes {
        node.know(all.clone()).await.expect("written");
    }
    (places, nodes, all)
}

/// Waits for an applicant.
async fn applicant(node: &Node) -> JoiningNode {
    let mut applicants = node.applicants();
    let asks = async {
        loop {
            if let Some(joining) = applicants.waiting().pop() {
                return joining;
            }
            applicants.changed().await;
        }
    };
    soon("somebody asks", asks).await
}

/// Assigns the applicant a number in the catalog.
async fn let_in(nodes: &[Node], all: &mut Vec<KnownNode>, joining: &JoiningNode, number: u64) {
    let JoiningNode { directory, boot, address, .. } = joining.clone();
    all.push(KnownNode { id: NodeId(number), directory, boot, address });
    for node in nodes {
        node.know(all.clone()).await.expect("written");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn joining_node_retries_until_it_has_a_number_and_keeps_it() {
    let (places, nodes, mut all) = founded().await;
    let place = NodeSlot::new();
    // The first of them does not run.
    let members = [NodeSlot::new().address, places[1].address.clone()];
    let joined = {
        let joining = place.join(&members);
        let letting_in = async {
            let joining = applicant(&nodes[1]).await;
            assert_eq!((&joining.address, joining.boot), (&place.address, 1));
            let_in(&nodes, &mut all, &joining, 7).await;
        };
        tokio::join!(joining, letting_in).0.expect("it is let in")
    };
    let at = joined.identity().at;
    assert_eq!((at.node, at.cluster), (NodeId(7), nodes[0].identity().at.cluster));
    assert!(joined.has_joined() && !joined.is_founder());
    is_linked(nodes[0].links(), 7).await;
    is_linked(joined.links(), 2).await;
    joined.know(all.clone()).await.expect("written");
    is_linked(joined.links(), 1).await;

    stop(joined).await;
    for members in [&members[..], &[]] {
        let again = place.join(members).await.expect("it starts again");
        assert_eq!(again.identity().at.node, NodeId(7));
        assert!(again.has_joined());
        assert_eq!(again.members().voters.len(), 4);
        stop(again).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_that_stops_before_it_receives_its_number_gets_the_same_one() {
    let (places, nodes, mut all) = founded().await;
    let (place, members) = (NodeSlot::new(), [places[0].address.clone()]);
    let first = tokio::select! {
        joining = applicant(&nodes[0]) => joining,
        _ = place.join(&members) => panic!("nobody let it in"),
    };
    let error = place.join(&[]).await.expect_err("it does not know whom to ask");
    assert!(matches!(error, NodeStartError::Seeds(SeedsError::JoinMissing)), "{error}");
    let_in(&nodes, &mut all, &first, 4).await;
    let joined = place.join(&members).await.expect("it was let in");
    let at = joined.identity().at;
    assert_eq!((at.node, at.directory), (NodeId(4), first.directory));
    assert!(at.boot > first.boot);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rejected_or_removed_applicant_receives_the_reason() {
    let (places, nodes, all) = founded().await;
    let (place, members) = (NodeSlot::new(), [places[0].address.clone()]);
    let reason = |error: NodeStartError| match error {
        NodeStartError::NotJoined {
            error: ConnectError::Refused(Refusal::NotJoined { reason }),
            ..
        } => reason,
        other => panic!("{other}"),
    };
    let joining = place.join(&members);
    let turning_down = async {
        let joining = applicant(&nodes[0]).await;
        nodes[0].turn_down(joining.directory, "there are enough".to_owned());
        joining.directory
    };
    let (error, directory) = tokio::join!(joining, turning_down);
    assert_eq!(reason(error.expect_err("turned down")), "there are enough");

    // Its directory belonged to a removed node.
    nodes[0].know_former(BTreeMap::from([(directory, NodeId(9))]));
    nodes[0].know(all).await.expect("written");
    let error = reason(place.join(&members).await.expect_err("it was removed"));
    assert!(error.contains("node 9, which was removed"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn directory_of_a_begun_founding_does_not_join_a_cluster() {
    let (_, seeds) = NodeSlot::several(3);
    let place = NodeSlot { address: seeds[1].clone(), ..NodeSlot::new() };
    // It waits for the first seed.
    let waits = std::time::Duration::from_millis(300);
    let founding = tokio::time::timeout(waits, place.start(&seeds)).await;
    assert!(founding.is_err(), "it has nobody to found with");
    let error = place.join(&seeds).await.expect_err("it founds");
    assert!(matches!(error, NodeStartError::Seeds(SeedsError::FoundsAnother)), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copy_of_a_running_nodes_directory_is_refused() {
    let (places, nodes, _) = founded().await;
    let copy = NodeSlot { address: NodeSlot::new().address, ..places[2].copied() };
    match copy.join(&[places[0].address.clone()]).await {
        Err(NodeStartError::Copied { node, recorded }) => {
            assert_eq!((node, &recorded), (3, &places[2].address));
        }
        other => panic!("{other:?}"),
    }
    // The copy can start once the other node has stopped.
    let mut nodes = nodes;
    stop(nodes.remove(2)).await;
    let moved = copy.start(&[]).await.expect("nobody else is that node");
    assert_eq!(moved.identity().at.node, NodeId(3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_refused_as_unknown_by_a_majority_counts_as_removed() {
    let (_, mut nodes, all) = founded().await;
    let third = nodes.remove(2);
    let rest: Vec<_> = all.into_iter().filter(|node| node.id != NodeId(3)).collect();
    nodes[0].know(rest.clone()).await.expect("written");
    let within = std::time::Duration::from_secs(7);
    let removed = tokio::time::timeout(within, third.removed()).await;
    assert!(removed.is_err(), "one of two is no majority");
    nodes[1].know(rest).await.expect("written");
    soon("it was removed", third.removed()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_refused_as_removed_by_any_member_counts_as_removed() {
    let (_, mut nodes, all) = founded().await;
    let third = nodes.remove(2);
    let (rest, gone): (Vec<_>, Vec<_>) = all.into_iter().partition(|node| node.id != NodeId(3));
    nodes[0].know_former([(gone[0].directory, NodeId(3))].into());
    nodes[0].know(rest).await.expect("written");
    soon("it was removed", third.removed()).await;
}
