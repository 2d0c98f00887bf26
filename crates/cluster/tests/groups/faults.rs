//! Nodes that die, return, and cannot be reached.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout;
use world::Instant;

use crate::node::{Nodes, propose};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_others_go_on_when_the_leader_dies_and_it_catches_up_when_it_returns() {
    let mut nodes = Nodes::founded(3).await;
    let mut heads: Vec<Bytes> = Vec::new();
    let mut fastest = Duration::MAX;
    for number in 0..3_u64 {
        let (leader, leadership) = nodes.leader().await;
        for half in 0..2 {
            let head = Bytes::from(format!("entry {number}.{half}"));
            propose(&leadership, &head, number * 3 + half, 2_000).await.expect("committed");
            heads.push(head);
        }
        nodes.kill(leader).await;
        let begun = Instant::now();
        let (_, leadership) = nodes.leader().await;
        let head = Bytes::from(format!("entry {number}.after"));
        propose(&leadership, &head, number * 3 + 2, 2_000).await.expect("committed");
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(5), "{took:?}");
        fastest = fastest.min(took);
        heads.push(head);
        nodes.start(leader).await;
        nodes.all_have(&heads).await;
    }
    // By silence alone it takes 1.3 s at least. A node stands in this way once in ten seconds, so that the
    // third time may be one of those.
    assert!(fastest < Duration::from_secs(1), "{fastest:?}");
}

/// The log of one whose disk is unwell may be the only one that is long enough.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_with_an_unwell_disk_stands_when_the_leader_dies() {
    let mut nodes = Nodes::founded(3).await;
    let (leader, leadership) = nodes.leader().await;
    let head = Bytes::from_static(b"before");
    propose(&leadership, &head, 0, 10).await.expect("committed");
    for (node, running) in &nodes.running {
        // By time alone none of them stands any more.
        running.consensus.set_may_stand(*node == leader);
    }
    // A follower that was never connected to the leader does not see that it is gone.
    nodes.are_connected_to(leader).await;
    nodes.kill(leader).await;
    timeout(Duration::from_secs(60), nodes.stands()).await.expect("one stands");
    // On a busy machine both may stand at once, and neither wins. In a broker the watcher of the disk then lets them
    // stand by time.
    for running in nodes.running.values() {
        running.consensus.set_may_stand(true);
    }
    let (next, leadership) = nodes.leader().await;
    assert_ne!(next, leader);
    propose(&leadership, &Bytes::from_static(b"after"), 1, 10).await.expect("committed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_majority_nothing_is_committed_and_with_one_it_is() {
    let mut nodes = Nodes::founded(3).await;
    let (leader, leadership) = nodes.leader().await;
    let others: Vec<u64> = nodes.running.keys().copied().filter(|it| *it != leader).collect();
    for other in &others {
        nodes.kill(*other).await;
    }
    let lost = Bytes::from_static(b"alone");
    let alone = propose(&leadership, &lost, 0, 10);
    let answer = timeout(Duration::from_millis(2_500), alone).await;
    assert!(!matches!(answer, Ok(Ok(()))), "committed by one of three");
    for other in &others {
        nodes.start(*other).await;
    }
    let (next, leadership) = nodes.leader().await;
    let ledger = || nodes.running[&next].ledger.heads();
    // What nobody was told to be committed may be so now, or not.
    let number = ledger().len() as u64;
    let head = Bytes::from_static(b"together");
    propose(&leadership, &head, number, 10).await.expect("committed");
    let heads = ledger();
    assert!(heads.len() <= 2 && heads.last() == Some(&head), "{heads:?}");
    nodes.all_have(&heads).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_was_started_again_is_not_taken_for_the_one_that_died() {
    let mut nodes = Nodes::founded(3).await;
    let (first, _) = nodes.leader().await;
    nodes.kill(first).await;
    let (_, leadership) = nodes.leader().await;
    nodes.start(first).await;
    let head = Bytes::from_static(b"before");
    propose(&leadership, &head, 0, 10).await.expect("committed");
    nodes.all_have(std::slice::from_ref(&head)).await;
    // On a busy machine a hand-over may fail, and a term may end because nobody answered in time.
    for _ in 0..5 {
        let (leader, leadership) = nodes.leader().await;
        if leader != first {
            let _ = nodes.running[&leader].consensus.transfer_leadership(first).await;
            continue;
        }
        // The others look at it every 25 ms.
        if timeout(Duration::from_millis(500), leadership.lost()).await.is_err() {
            return;
        }
    }
    panic!("it lost its term whenever it led");
}
