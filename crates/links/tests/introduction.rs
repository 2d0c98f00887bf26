//! A node without a cluster asks which one it will be part of.

mod common;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use common::{Node, OPEN, directory, request_until_answered};
use gateway::Connections;
use links::{
    Admission, ConnectError, DirectoryIdentity, Identity, Links, NodeId, Options, PeerListener,
    Refusal, Security, Tls, introduce,
};
use parking_lot::Mutex;
use tasks::Failure;
use tokio::time::timeout;
use uuid::Uuid;
use world::net::Net;
use world::{Instant, World};

const SOON: Duration = Duration::from_secs(5);
const PROVISIONAL: Uuid = Uuid::from_u128(0x5eed);

/// Admits newcomers of one provisional cluster, and records their identities.
#[derive(Clone, Default)]
struct Founder(Arc<Mutex<Vec<Identity>>>);

impl Admission for Founder {
    fn admit(&self, peer: &Identity) -> Result<(), Refusal> {
        common::admit(peer)
    }

    fn admit_newcomer(&self, ours: &Identity, peer: &Identity) -> Result<(), Refusal> {
        self.0.lock().push(*peer);
        match peer.at.cluster == PROVISIONAL {
            true => Ok(()),
            false => Err(Refusal::SeedsDiffer { node: ours.at.node, listed: "a:1,b:1".into() }),
        }
    }
}

fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

async fn founder(security: Security) -> (Links, Founder) {
    let founder = Founder::default();
    let options = Options { listen: loopback(), security, connections: Connections::default() };
    let service = Arc::new(common::TestService(Arc::default()));
    let (admission, failure) = (Arc::new(founder.clone()), Failure::new());
    let links = Links::start(World::real(), directory(1), options, admission, service, &failure);
    (links.await.expect("starts"), founder)
}

fn newcomer(cluster: Uuid, boot: u64) -> Identity {
    let at = DirectoryIdentity { cluster, boot, ..directory(2) };
    Identity { at, run: Uuid::from_u128(9), levels: base::Levels::OURS }
}

async fn introduce_to(address: &str, identity: &Identity) -> Result<Identity, ConnectError> {
    introduce(&World::real(), &OPEN, address, identity, SOON).await
}

#[tokio::test]
async fn introduction_returns_the_identity_and_leaves_no_trace() {
    let (links, founder) = founder(OPEN).await;
    let address = links.address().to_string();
    let asks = newcomer(PROVISIONAL, 7);
    for _ in 0..3 {
        assert_eq!(introduce_to(&address, &asks).await, Ok(links.identity()));
    }
    assert_eq!(founder.0.lock()[..], [asks; 3]);
    // As a node of the cluster it is another run, of any boot.
    let node = Node::local(directory(2)).await;
    let peer = node.links.set_peer(NodeId(1), &address).expect("another node");
    request_until_answered(&peer, links::Lane::Control).await;
    // Its links stay when another node introduces itself under its name.
    assert_eq!(introduce_to(&address, &asks).await, Ok(links.identity()));
    request_until_answered(&peer, links::Lane::Control).await;
    assert_eq!(peer.status(links::Lane::Control).last, None);
}

#[tokio::test]
async fn newcomer_with_other_seeds_gets_a_refusal_with_instructions() {
    let (links, _) = founder(OPEN).await;
    let error = introduce_to(&links.address().to_string(), &newcomer(Uuid::from_u128(6), 1)).await;
    let refusal = Refusal::SeedsDiffer { node: NodeId(1), listed: "a:1,b:1".into() };
    assert_eq!(error, Err(ConnectError::Refused(refusal.clone())));
    assert!(refusal.to_string().contains("`--seeds a:1,b:1`"), "{refusal}");
    let founded = Refusal::Founded { cluster: Uuid::from_u128(1), node: NodeId(2) };
    assert!(founded.to_string().contains("postroad node replace 2 --with NEW"), "{founded}");
}

#[tokio::test]
async fn node_without_a_founding_refuses_newcomers() {
    let node = Node::local(directory(1)).await;
    let error = introduce_to(&node.links.address().to_string(), &newcomer(PROVISIONAL, 1)).await;
    let (cluster, presented) = (directory(1).cluster, PROVISIONAL);
    let refusal = Refusal::AnotherCluster { cluster, presented };
    assert_eq!(error, Err(ConnectError::Refused(refusal)));
}

#[tokio::test]
async fn introduction_over_tls_requires_the_same_secret() {
    let secret = |byte| Security::Tls(Tls::from_secret(&[byte; 32]).expect("long enough"));
    let (links, founder) = founder(secret(1)).await;
    let (address, asks) = (links.address().to_string(), newcomer(PROVISIONAL, 1));
    let ask = async |secret| introduce(&World::real(), &secret, &address, &asks, SOON).await;
    assert_eq!(ask(secret(1)).await, Ok(links.identity()));
    let error = ask(secret(2)).await;
    assert!(matches!(error, Err(ConnectError::Tls(_))), "{error:?}");
    assert_eq!(founder.0.lock().len(), 1);
}

#[tokio::test]
async fn introduction_to_a_silent_or_closed_port_fails_in_time() {
    let silent = Net::Kernel.listen(loopback()).await.expect("listens");
    let address = silent.local_addr().expect("an address").to_string();
    let (asks, began) = (newcomer(PROVISIONAL, 1), Instant::now());
    let within = Duration::from_millis(200);
    let answer = introduce(&World::real(), &OPEN, &address, &asks, within).await;
    assert_eq!(answer, Err(ConnectError::Unanswered));
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    drop(silent);
    assert_eq!(introduce_to(&address, &asks).await, Err(ConnectError::NobodyListens));
}

#[tokio::test]
async fn unserved_listener_turns_connections_away_at_once() {
    let listener = PeerListener::bind(&World::real(), loopback(), OPEN).await.expect("binds");
    let address = listener.address().to_string();
    let asking = async {
        for _ in 0..20 {
            let answer = timeout(SOON, introduce_to(&address, &newcomer(PROVISIONAL, 1))).await;
            let answer = answer.expect("at once");
            assert!(matches!(answer, Err(ConnectError::Ended(_))), "{answer:?}");
        }
    };
    tokio::select! {
        biased;
        never = listener.turn_away() => match never {},
        () = asking => {}
    }
    // And serves them once it may.
    let (founder, failure) = (Founder::default(), Failure::new());
    let service = Arc::new(common::TestService(Arc::default()));
    let connections = Connections::default();
    let links = listener.serve(directory(1), connections, Arc::new(founder), service, &failure);
    assert_eq!(introduce_to(&address, &newcomer(PROVISIONAL, 1)).await, Ok(links.identity()));
}
