//! Links with TLS: admitted peers, and the same functions as without TLS.

mod common;

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use common::{Node, SHARD, directory, in_ms, is_waiting, request_until_answered, until};
use links::limits::LINK_APPENDS_MAX;
use links::{ConnectError, DeathEvidence, Lane, Message, NodeId, Peer, Phase, Security, Tls};
use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use world::World;
use world::net::Net;

async fn node(number: u64, security: Security) -> Node {
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    Node::start_with(World::real(), directory(number), listen, security).await
}

fn secret(byte: u8) -> Security {
    Security::Tls(Tls::from_secret(&[byte; 32]).expect("long enough"))
}

/// Requests on each lane, and appends larger than TLS buffers.
async fn works(peer: &Peer) {
    for lane in Lane::ALL {
        request_until_answered(peer, lane).await;
    }
    let body = Bytes::from(vec![7; 1_500_000]);
    let (mut appends, mut replies) = peer.appends(SHARD, in_ms(5_000)).await.expect("connected");
    for _ in 0..LINK_APPENDS_MAX {
        let message = Message { head: "head".into(), body: vec![body.clone()] };
        appends.send(message).await.expect("sent");
    }
    for _ in 0..LINK_APPENDS_MAX {
        assert_eq!(&replies.next().await.expect("an answer").expect("no error").head[..], b"head");
    }
    let message = Message { head: "echo".into(), body: vec![body.clone(), body] };
    let answer = peer.request(Lane::Proxy, SHARD, message, in_ms(5_000)).await.expect("answered");
    assert!(answer.body.len() == 3_000_000 && answer.body.iter().all(|byte| *byte == 7));
}

async fn connect_error(from: &Node, to: &Node) -> ConnectError {
    let peer = from.peer_of(to);
    let status = until(&peer, Lane::Control, is_waiting).await;
    let Phase::Waiting { error, .. } = status.phase else { panic!("{status:?}") };
    error
}

#[tokio::test]
async fn nodes_with_the_same_secret_are_linked() {
    let (one, other) = (node(1, secret(1)).await, node(2, secret(1)).await);
    works(&one.peer_of(&other)).await;
    works(&other.peer_of(&one)).await;
}

#[tokio::test]
async fn node_that_disappears_without_a_close_looks_gone() {
    let (one, other) = (node(1, secret(1)).await, node(2, secret(1)).await);
    let peer = one.peer_of(&other);
    request_until_answered(&peer, Lane::Control).await;
    drop(other);
    let status = until(&peer, Lane::Control, is_waiting).await;
    assert!(status.last.as_ref().is_some_and(|last| last.end.is_by_peer()), "{status:?}");
    assert_eq!(status.sign_of_death(world::Instant::now()), Some(DeathEvidence::NobodyListens));
}

#[tokio::test]
async fn node_with_another_secret_is_rejected() {
    let (one, other) = (node(1, secret(1)).await, node(2, secret(2)).await);
    let error = connect_error(&one, &other).await;
    assert!(matches!(error, ConnectError::Tls(_)), "{error:?}");
}

#[tokio::test]
async fn plain_and_tls_nodes_reject_each_other() {
    let (plain, encrypted) = (node(1, common::OPEN).await, node(2, secret(1)).await);
    let error = connect_error(&plain, &encrypted).await;
    assert!(matches!(error, ConnectError::Ended(_) | ConnectError::Unanswered), "{error:?}");
    let error = connect_error(&encrypted, &plain).await;
    assert!(matches!(error, ConnectError::Ended(_) | ConnectError::Tls(_)), "{error:?}");
}

/// The bytes on the wire from one node to the other during a request.
async fn bytes_on_the_wire(security: Security) -> Vec<u8> {
    let (one, other) = (node(1, security.clone()).await, node(2, security).await);
    let listener = Net::Kernel.listen(SocketAddr::from(([127, 0, 0, 1], 0))).await;
    let listener = listener.expect("listens");
    let address = listener.local_addr().expect("an address").to_string();
    let to = other.links.address().to_string();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let hears = Arc::clone(&heard);
    let between = tokio::spawn(async move {
        let (mut from, _) = listener.accept().await.expect("a connection");
        let mut to = Net::Kernel.connect(&to).await.expect("connects");
        let ((mut from_reads, mut from_writes), (mut to_reads, mut to_writes)) =
            (from.split(), to.split());
        let there = async {
            let mut bytes = [0; 4_096];
            while let Ok(read @ 1..) = from_reads.read(&mut bytes).await {
                hears.lock().extend_from_slice(&bytes[..read]);
                to_writes.write_all(&bytes[..read]).await.expect("written");
            }
        };
        let back = tokio::io::copy(&mut to_reads, &mut from_writes);
        let _ = tokio::join!(there, back);
    });
    let peer = one.links.set_peer(NodeId(2), &address).expect("another node");
    let message = Message::from_head("nobody else may read this");
    let asked = peer.request(Lane::Control, SHARD, message, in_ms(5_000)).await;
    asked.expect("answered");
    between.abort();
    std::mem::take(&mut *heard.lock())
}

#[tokio::test]
async fn message_is_readable_on_the_wire_without_tls_only() {
    let is_readable =
        |bytes: &[u8]| String::from_utf8_lossy(bytes).contains("nobody else may read this");
    assert!(is_readable(&bytes_on_the_wire(common::OPEN).await));
    assert!(!is_readable(&bytes_on_the_wire(secret(1)).await));
}

/// An authority, and the certificates that it signs for nodes on this machine.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        Self(CertifiedIssuer::self_signed(params, key).expect("signed"))
    }

    fn node(&self, name: &str) -> Security {
        let params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.0).expect("signed");
        let tls = Tls::from_certificates(
            certificate.pem().as_bytes(),
            key.serialize_pem().as_bytes(),
            self.0.pem().as_bytes(),
        );
        Security::Tls(tls.expect("they are certificates"))
    }
}

#[tokio::test]
async fn certificates_of_one_authority_are_accepted_and_others_rejected() {
    let authority = Authority::new();
    let one = node(1, authority.node("127.0.0.1")).await;
    let other = node(2, authority.node("127.0.0.1")).await;
    works(&one.peer_of(&other)).await;

    let strange = node(3, Authority::new().node("127.0.0.1")).await;
    let error = connect_error(&strange, &other).await;
    assert!(matches!(error, ConnectError::Tls(_)), "{error:?}");

    // A certificate with another name is rejected even if the authority signed it.
    let misnamed = node(4, authority.node("elsewhere.example")).await;
    let error = connect_error(&one, &misnamed).await;
    assert!(matches!(error, ConnectError::Tls(_)), "{error:?}");
    assert_eq!(one.links.peer(NodeId(4)).map(|peer| peer.node()), Some(NodeId(4)));
}
