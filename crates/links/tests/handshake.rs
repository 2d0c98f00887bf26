//! Refused handshakes, and the errors of both sides.

mod common;

use std::net::SocketAddr;
use std::time::Duration;

use base::limits::LINK_HANDSHAKE_WITHIN;
use common::{
    Node, directory, eventually, is_waiting, request_until_answered, send_request, until,
};
use links::{
    ConnectError, DirectoryIdentity, Insecure, Lane, NodeId, Options, Phase, Refusal, RequestError,
    Security, StartError,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use uuid::Uuid;
use world::net::Net;
use world::{Instant, World};

/// The reason why `from` has no link to `to`, whose node it believes to be `node`.
async fn connect_error(from: &Node, to: &Node, node: NodeId) -> ConnectError {
    let peer = from.links.set_peer(node, &to.links.address().to_string()).expect("another node");
    let status = until(&peer, Lane::Control, is_waiting).await;
    let Phase::Waiting { error, .. } = status.phase else { panic!("{status:?}") };
    let failed = send_request(&peer, Lane::Control, "vote", 50).await;
    assert!(matches!(failed, Err(RequestError::NotConnected(_))), "{failed:?}");
    error
}

#[tokio::test]
async fn node_of_another_cluster_is_refused() {
    let (cluster, presented) = (Uuid::from_u128(1), Uuid::from_u128(2));
    let one = Node::local(DirectoryIdentity { cluster: presented, ..directory(1) }).await;
    let other = Node::local(directory(2)).await;
    let refused = ConnectError::Refused(Refusal::AnotherCluster { cluster, presented });
    assert_eq!(connect_error(&one, &other, NodeId(2)).await, refused);
    // The refusal does not depend on the wanted node.
    assert_eq!(connect_error(&one, &other, NodeId(3)).await, refused);
}

#[tokio::test]
async fn unknown_node_is_refused() {
    let (one, other) = (Node::local(directory(77)).await, Node::local(directory(2)).await);
    let refused = ConnectError::Refused(Refusal::UnknownNode { node: NodeId(77) });
    assert_eq!(connect_error(&one, &other, NodeId(2)).await, refused);
    assert!(refused.to_string().contains("node 77 is not in the cluster"), "{refused}");
}

#[tokio::test]
async fn wiped_disk_is_refused_on_either_side_of_the_connection() {
    let presented = Uuid::from_u128(666);
    let wiped = Node::local(DirectoryIdentity { directory: presented, ..directory(1) }).await;
    let other = Node::local(directory(2)).await;
    let known = directory(1).directory;
    let refusal = Refusal::AnotherDirectory { node: NodeId(1), known, presented };
    // Both as the connecting and as the accepting side.
    let hears = connect_error(&wiped, &other, NodeId(2)).await;
    assert_eq!(hears, ConnectError::Refused(refusal.clone()));
    let sees = connect_error(&other, &wiped, NodeId(1)).await;
    assert_eq!(sees, ConnectError::RefusedHere(refusal));
}

#[tokio::test]
async fn boot_that_is_not_newer_is_refused_and_a_newer_one_accepted() {
    let boots = |boot| DirectoryIdentity { boot, ..directory(1) };
    let other = Node::local(directory(2)).await;
    let second = Node::local(boots(2)).await;
    let peer = second.peer_of(&other);
    request_until_answered(&peer, Lane::Control).await;
    // The same run may connect again.
    request_until_answered(&peer, Lane::Proxy).await;

    let old_boot = |presented| {
        let node = NodeId(1);
        ConnectError::Refused(Refusal::OldBoot { node, seen: 2, presented })
    };
    let set_back = Node::local(boots(1)).await;
    assert_eq!(connect_error(&set_back, &other, NodeId(2)).await, old_boot(1));
    // Started on a copy of the directory as it was before its second boot.
    let copy = Node::local(boots(2)).await;
    assert_eq!(connect_error(&copy, &other, NodeId(2)).await, old_boot(2));

    let third = Node::local(boots(3)).await;
    let newer = third.peer_of(&other);
    request_until_answered(&newer, Lane::Control).await;
    // The later run replaced the earlier one, which is refused from now on.
    until(&peer, Lane::Control, is_waiting).await;
}

#[tokio::test]
async fn address_of_another_node_is_refused() {
    let (one, other) = (Node::local(directory(1)).await, Node::local(directory(2)).await);
    let refusal = Refusal::AnotherNode { wanted: NodeId(3), found: NodeId(2) };
    assert_eq!(connect_error(&one, &other, NodeId(3)).await, ConnectError::Refused(refusal));
    // Its address is corrected while the link waits.
    let third = Node::local(directory(3)).await;
    let peer = one.peer_of(&third);
    request_until_answered(&peer, Lane::Control).await;
}

#[tokio::test]
async fn plain_links_cannot_listen_beyond_loopback() {
    let listen = SocketAddr::from(([0, 0, 0, 0], 0));
    let options = Options {
        listen,
        security: Security::Plain { beyond_loopback: false },
        connections: gateway::Connections::default(),
    };
    let service = std::sync::Arc::new(common::TestService(std::sync::Arc::default()));
    let admission = std::sync::Arc::new(common::admit);
    let failure = tasks::Failure::new();
    let started =
        links::Links::start(World::real(), directory(1), options, admission, service, &failure);
    assert!(matches!(started.await, Err(StartError::Insecure(Insecure))));
}

/// A socket of the test to a node.
async fn dial(node: &Node) -> world::net::Stream {
    Net::Kernel.connect(&node.links.address().to_string()).await.expect("it listens")
}

#[tokio::test]
async fn silent_or_invalid_clients_are_disconnected_without_delaying_others() {
    let node = Node::local(directory(1)).await;
    let began = Instant::now();
    let mut silent = dial(&node).await;
    for nonsense in [vec![0; 64], vec![0xff; 10_000], b"GET / HTTP/1.1\r\n\r\n".to_vec()] {
        let mut stream = dial(&node).await;
        let _ = stream.write_all(&nonsense).await;
        let _ = stream.read_to_end(&mut Vec::new()).await;
    }
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    assert_eq!(silent.read(&mut [0]).await.unwrap_or(0), 0);
    assert!(began.elapsed() >= LINK_HANDSHAKE_WITHIN);
}

#[tokio::test]
async fn connecting_to_a_silent_server_times_out() {
    let one = Node::local(directory(1)).await;
    let silent = Net::Kernel.listen(SocketAddr::from(([127, 0, 0, 1], 0))).await.expect("listens");
    let address = silent.local_addr().expect("an address").to_string();
    let peer = one.links.set_peer(NodeId(2), &address).expect("another node");
    let (_held, _) =
        timeout(Duration::from_secs(5), silent.accept()).await.expect("soon").expect("one");
    let status = until(&peer, Lane::Control, is_waiting).await;
    assert!(
        matches!(status.phase, Phase::Waiting { error: ConnectError::Unanswered, .. }),
        "{status:?}"
    );
}

#[tokio::test]
async fn removed_node_is_disconnected() {
    let (one, other) = (Node::local(directory(1)).await, Node::local(directory(2)).await);
    let (to, fro) = (one.peer_of(&other), other.peer_of(&one));
    request_until_answered(&to, Lane::Control).await;
    request_until_answered(&fro, Lane::Control).await;
    one.links.remove_peer(NodeId(2));
    while send_request(&to, Lane::Control, "vote", 1_000).await != Err(RequestError::Gone) {
        tokio::task::yield_now().await;
    }
    assert!(one.links.peer(NodeId(2)).is_none());
    eventually("the other side hears it", || fro.status(Lane::Control).last.is_some()).await;
}

#[tokio::test]
async fn panic_in_admission_of_an_outgoing_link_fails_the_node() {
    let (one, other) = (Node::local(directory(1)).await, Node::local(directory(2)).await);
    let options = Options {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        security: common::OPEN,
        connections: gateway::Connections::default(),
    };
    let failure = tasks::Failure::new();
    let service = std::sync::Arc::new(common::TestService(std::sync::Arc::default()));
    fn panics(_: &links::Identity) -> Result<(), Refusal> {
        panic!("as the test wants")
    }
    let admission = std::sync::Arc::new(panics);
    let links =
        links::Links::start(World::real(), directory(3), options, admission, service, &failure);
    let links = links.await.expect("starts");
    // A peer's connection ends with the panic, and nothing else does.
    let peer = one.links.set_peer(NodeId(3), &links.address().to_string()).expect("another node");
    until(&peer, Lane::Control, is_waiting).await;
    assert_eq!(failure.reason(), None);
    // The node cannot run without a link of its own.
    links.set_peer(NodeId(2), &other.links.address().to_string()).expect("another node");
    let reported = timeout(Duration::from_secs(5), failure.reported()).await;
    assert_eq!(reported.as_deref(), Ok("peer-link panicked"));
}
