//! Entries proposed on one node are on all of them.

use bytes::Bytes;

use crate::node::{Nodes, payload, propose};

const STREAM: u64 = 5;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn proposed_entries_reach_all_nodes_with_the_same_bytes() {
    let nodes = Nodes::founded(3).await;
    let (_, leadership) = nodes.leader().await;
    let mut heads: Vec<Bytes> = Vec::new();
    let mut under_way = Vec::new();
    for number in 0..300_u64 {
        let head = Bytes::from(format!("entry {number}"));
        // Some exceed the bytes that a stream may have in flight, together.
        let bytes = if number % 50 == 7 { 1 << 20 } else { 700 };
        under_way.push(leadership.propose(payload(&head, number, bytes)).await.expect("it leads"));
        heads.push(head);
    }
    for proposed in under_way {
        proposed.await.expect("it is committed");
    }
    nodes.all_have(&heads).await;
    for node in nodes.running.values() {
        let found = node.journal.read(STREAM, 57, 1 << 20).await.expect("it can be read");
        let bytes: Vec<u8> = found.iter().flat_map(|stored| stored.bytes.to_vec()).collect();
        assert_eq!(bytes[..1 << 20], vec![57; 1 << 20]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entries_are_committed_across_leadership_transfers() {
    let nodes = Nodes::founded(3).await;
    let mut heads: Vec<Bytes> = Vec::new();
    for number in 0..6_u64 {
        let (leader, leadership) = nodes.leader().await;
        let head = Bytes::from(format!("entry {number}"));
        propose(&leadership, &head, number, 100).await.expect("it is committed");
        heads.push(head);
        nodes.all_have(&heads).await;
        let next = leader % 3 + 1;
        nodes.running[&leader].consensus.transfer_leadership(next).await.expect("it is taken over");
        leadership.lost().await;
    }
}
