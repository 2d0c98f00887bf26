//! Nodes that die, return, and cannot be reached.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout;
use world::Instant;

use crate::node::{Nodes, propose};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn others_continue_after_the_leader_dies_and_it_catches_up_on_return() {
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
    // By silence alone it takes 1.3 s at least. A node campaigns in this way once in ten seconds, so that the
    // third time may be by silence.
    assert!(fastest < Duration::from_secs(1), "{fastest:?}");
}

/// The log of a node with an unwell disk may be the only one that is long enough.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_with_an_unwell_disk_campaigns_when_the_leader_dies() {
    let mut nodes = Nodes::founded(3).await;
    let (leader, leadership) = nodes.leader().await;
    let head = Bytes::from_static(b"before");
    propose(&leadership, &head, 0, 10).await.expect("committed");
    for (node, running) in &nodes.running {
        // None of them campaigns by timeout any more.
        running.consensus.set_may_campaign(*node == leader);
    }
    // A follower that was never connected to the leader does not see that it is gone.
    nodes.are_connected_to(leader).await;
    nodes.kill(leader).await;
    timeout(Duration::from_secs(60), nodes.stands()).await.expect("one stands");
    // On a busy machine both may campaign at once, and neither wins. In a broker the watcher of the disk then lets
    // them campaign by timeout.
    for running in nodes.running.values() {
        running.consensus.set_may_campaign(true);
    }
    let (next, leadership) = nodes.leader().await;
    assert_ne!(next, leader);
    propose(&leadership, &Bytes::from_static(b"after"), 1, 10).await.expect("committed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entries_are_committed_only_with_a_majority() {
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
    // An entry without a confirmed commit may or may not be committed now.
    let number = ledger().len() as u64;
    let head = Bytes::from_static(b"together");
    propose(&leadership, &head, number, 10).await.expect("committed");
    let heads = ledger();
    assert!(heads.len() <= 2 && heads.last() == Some(&head), "{heads:?}");
    nodes.all_have(&heads).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarted_leader_is_not_mistaken_for_the_dead_process() {
    let mut nodes = Nodes::founded(3).await;
    let (first, _) = nodes.leader().await;
    nodes.kill(first).await;
    let (_, leadership) = nodes.leader().await;
    nodes.start(first).await;
    let head = Bytes::from_static(b"before");
    propose(&leadership, &head, 0, 10).await.expect("committed");
    nodes.all_have(std::slice::from_ref(&head)).await;
    // On a busy machine a transfer may fail, and a term may end because no node replied in time.
    for _ in 0..5 {
        let (leader, leadership) = nodes.leader().await;
        if leader != first {
            let _ = nodes.running[&leader].consensus.transfer_leadership(first).await;
            continue;
        }
        // The others poll it every 25 ms.
        if timeout(Duration::from_millis(500), leadership.lost()).await.is_err() {
            return;
        }
    }
    panic!("it lost its term whenever it led");
}
