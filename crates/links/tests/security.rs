//! Links with TLS: who is let in, and that everything works as without.

mod common;

use std::net::SocketAddr;

use base::limits::LINK_APPENDS_MAX;
use bytes::Bytes;
use common::{Node, SHARD, ask_until, directory, in_ms, is_waiting, until};
use links::{ConnectError, Lane, Message, NodeId, Peer, Phase, Security, Tls};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use world::World;

async fn node(number: u64, security: Security) -> Node {
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    Node::start_with(World::real(), directory(number), listen, security).await
}

fn secret(byte: u8) -> Security {
    Security::Tls(Tls::of_secret(&[byte; 32]).expect("long enough"))
}

/// Requests on each lane, and appends of more than TLS holds at a time.
async fn works(peer: &Peer) {
    for lane in Lane::ALL {
        ask_until(peer, lane).await;
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

async fn why_not(from: &Node, to: &Node) -> ConnectError {
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
async fn a_node_with_another_secret_is_not_linked() {
    let (one, other) = (node(1, secret(1)).await, node(2, secret(2)).await);
    let error = why_not(&one, &other).await;
    assert!(matches!(error, ConnectError::Tls(_)), "{error:?}");
}

#[tokio::test]
async fn a_node_without_tls_is_not_linked_with_one_that_has_it() {
    let (plain, encrypted) = (node(1, common::OPEN).await, node(2, secret(1)).await);
    let error = why_not(&plain, &encrypted).await;
    assert!(matches!(error, ConnectError::Ended(_) | ConnectError::Unanswered), "{error:?}");
    let error = why_not(&encrypted, &plain).await;
    assert!(matches!(error, ConnectError::Ended(_) | ConnectError::Tls(_)), "{error:?}");
}

/// An authority, and certificates of nodes on this machine that it has signed.
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
        let tls = Tls::of_certificates(
            certificate.pem().as_bytes(),
            key.serialize_pem().as_bytes(),
            self.0.pem().as_bytes(),
        );
        Security::Tls(tls.expect("they are certificates"))
    }
}

#[tokio::test]
async fn nodes_with_certificates_of_one_authority_are_linked_and_others_are_not() {
    let authority = Authority::new();
    let one = node(1, authority.node("127.0.0.1")).await;
    let other = node(2, authority.node("127.0.0.1")).await;
    works(&one.peer_of(&other)).await;

    let strange = node(3, Authority::new().node("127.0.0.1")).await;
    let error = why_not(&strange, &other).await;
    assert!(matches!(error, ConnectError::Tls(_)), "{error:?}");

    // One whose certificate is of another name is no server, whoever signed it.
    let misnamed = node(4, authority.node("elsewhere.example")).await;
    let error = why_not(&one, &misnamed).await;
    assert!(matches!(error, ConnectError::Tls(_)), "{error:?}");
    assert_eq!(one.links.peer(NodeId(4)).map(|peer| peer.node()), Some(NodeId(4)));
}
