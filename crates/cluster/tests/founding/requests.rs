//! Requests between the nodes' brokers, and gossip.

use std::sync::Arc;
use std::time::Duration;

use base::ShardId;
use bytes::Bytes;
use cluster::Proxy;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use links::{Declined, Lane, Message, NodeId, ReceivedMessage, RequestError};
use world::Instant;

use crate::harness::{NodeSlot, found, known, soon};

/// Returns the sender, the request and its time limit.
struct Echo;

impl Proxy for Echo {
    fn answer(
        &self,
        shard: ShardId,
        from: NodeId,
        request: ReceivedMessage,
        within: Duration,
    ) -> BoxFuture<'static, Result<Message, Declined>> {
        let ReceivedMessage { head, body } = request;
        async move {
            if &head[..] == b"busy" {
                return Err(Declined::Busy);
            }
            assert!(within <= Duration::from_secs(5) && !within.is_zero(), "{within:?}");
            let head = format!("{from} asks {shard}: {}", String::from_utf8_lossy(&head));
            Ok(Message { head: head.into(), body: vec![body] })
        }
        .boxed()
    }
}

fn asked(head: &str) -> Message {
    Message { head: head.to_owned().into(), body: vec!["bo".into(), "dy".into()] }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_for_another_nodes_shard_is_answered_by_its_proxy() {
    let (places, seeds) = NodeSlot::several(3);
    let nodes = found(&places, &seeds).await;
    let ask = async |node: u64, head: &str| {
        let deadline = Instant::now() + Duration::from_secs(5);
        nodes[0].ask(NodeId(node), ShardId(9), asked(head), deadline).await
    };
    let unserved = ask(2, "append").await;
    assert_eq!(unserved.map(drop), Err(RequestError::Declined(Declined::NotServed)));
    nodes[1].groups().serve_proxy(Arc::new(Echo));
    let answer = ask(2, "append").await.expect("answered");
    assert_eq!(&answer.head[..], b"node 1 asks shard 9: append");
    assert_eq!(&answer.body[..], b"body");
    assert_eq!(ask(2, "busy").await.map(drop), Err(RequestError::Declined(Declined::Busy)));
    assert_eq!(ask(8, "append").await.map(drop), Err(RequestError::Gone));
    // The other lanes belong to the groups.
    let peer = nodes[0].links().peer(NodeId(2)).expect("a peer");
    let deadline = Instant::now() + Duration::from_secs(5);
    let answer = peer.request(Lane::Bulk, ShardId(9), asked("append"), deadline).await;
    assert_eq!(answer.map(drop), Err(RequestError::Declined(Declined::NotServed)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gossip_reaches_all_other_nodes_once_it_changes() {
    let (places, seeds) = NodeSlot::several(3);
    let nodes = found(&places, &seeds).await;
    let mut heard: Vec<_> = nodes[1..].iter().map(|node| node.groups().latest_gossip()).collect();
    for told in ["leads 1", "leads nothing"] {
        nodes[0].send_gossip(Bytes::from(told)).expect("short enough");
        for heard in &mut heard {
            let hears =
                heard.wait_for(|heard| heard.get(&NodeId(1)).is_some_and(|heard| heard == told));
            soon("it is heard", hears).await.expect("the node is there");
        }
    }
    // Gossip is repeated each second, without a change.
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    assert!(!heard[0].has_changed().expect("the node is there"));
    // The gossip of a removed node is dropped.
    let remaining = known(&nodes[1..]);
    nodes[1].know(remaining).await.expect("written");
    assert!(heard[0].borrow_and_update().is_empty());
    assert!(nodes[0].send_gossip(Bytes::from(vec![0; 1 << 20])).is_err());
}
