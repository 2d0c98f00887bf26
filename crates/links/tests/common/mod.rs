//! A test node: its identity, and a service that does what a message says.

#![allow(dead_code, reason = "each test uses a part")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use base::ShardId;
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use gateway::Connections;
use links::{
    Declined, DirectoryIdentity, Identity, IncomingAppends, Lane, Links, Message, NodeId, Options,
    Peer, Phase, ReceivedMessage, Refusal, Request, RequestError, Security, Service, Status,
};
use parking_lot::Mutex;
use tasks::Failure;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use uuid::Uuid;
use world::net::Net;
use world::{Instant, SeededEntropy, World};

pub(crate) const SHARD: ShardId = ShardId(3);
pub(crate) const OPEN: Security = Security::Plain { beyond_loopback: true };

pub(crate) fn directory(node: u64) -> DirectoryIdentity {
    DirectoryIdentity {
        cluster: Uuid::from_u128(1),
        node: NodeId(node),
        directory: Uuid::from_u128(100 + u128::from(node)),
        boot: 1,
        epoch: 0,
    }
}

/// Admits every node with its directory from [`directory`].
pub(crate) fn admit(peer: &Identity) -> Result<(), Refusal> {
    let node = peer.at.node;
    if node.0 > 9 {
        return Err(Refusal::UnknownNode { node });
    }
    let (known, presented) = (directory(node.0).directory, peer.at.directory);
    if known == presented {
        Ok(())
    } else {
        Err(Refusal::AnotherDirectory { node, known, presented })
    }
}

/// Settings and counters of a node.
#[derive(Debug, Default)]
pub(crate) struct Behaviour {
    /// Appends get no reply, as when a disk hangs.
    pub(crate) hangs: AtomicBool,
    pub goes_on: Notify,
    pub(crate) appends: AtomicUsize,
    /// Bytes of the appends that the service holds.
    pub(crate) bytes: AtomicUsize,
    /// Streams whose future is alive, and streams that ended by themselves.
    pub(crate) streams: AtomicUsize,
    pub(crate) finished: AtomicUsize,
    /// Requests whose future is alive.
    pub(crate) requests: AtomicUsize,
    pub(crate) gossip: Mutex<Vec<(NodeId, Bytes)>>,
}

impl Behaviour {
    pub(crate) fn hang(&self) {
        self.hangs.store(true, Ordering::SeqCst);
    }

    pub(crate) fn resume(&self) {
        self.hangs.store(false, Ordering::SeqCst);
        self.goes_on.notify_waiters();
    }
}

/// Counts while it is alive.
struct AliveGuard<'a>(&'a AtomicUsize);

impl<'a> AliveGuard<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for AliveGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

pub(crate) struct TestService(pub(crate) Arc<Behaviour>);

impl Service for TestService {
    fn answer(&self, request: Request) -> BoxFuture<'static, Result<Message, Declined>> {
        let behaviour = Arc::clone(&self.0);
        async move {
            let _alive = AliveGuard::new(&behaviour.requests);
            let ReceivedMessage { head, body } = request.message;
            match &head[..] {
                b"hang" => std::future::pending().await,
                b"panic" => panic!("as the test wants"),
                b"busy" => Err(Declined::Busy),
                b"long" => Ok(Message::from_head(vec![0; request.lane.message_bytes_max()])),
                b"within" => Ok(Message::from_head(request.within.as_millis().to_string())),
                _ => Ok(Message { head, body: vec![body] }),
            }
        }
        .boxed()
    }

    fn appends(&self, mut appends: IncomingAppends) -> BoxFuture<'static, ()> {
        let behaviour = Arc::clone(&self.0);
        async move {
            let _alive = AliveGuard::new(&behaviour.streams);
            while let Some(mut append) = appends.next().await {
                let message = append.take_message();
                behaviour.appends.fetch_add(1, Ordering::SeqCst);
                if &message.head[..] == b"end" {
                    return;
                }
                while behaviour.hangs.load(Ordering::SeqCst) {
                    let goes_on = behaviour.goes_on.notified();
                    if behaviour.hangs.load(Ordering::SeqCst) {
                        goes_on.await;
                    }
                }
                append.answer(Message::from_head(message.head)).await;
            }
            behaviour.finished.fetch_add(1, Ordering::SeqCst);
        }
        .boxed()
    }

    fn gossip(&self, from: NodeId, payload: Bytes) {
        self.0.gossip.lock().push((from, payload));
    }
}

pub(crate) struct Node {
    pub(crate) links: Links,
    pub(crate) behaviour: Arc<Behaviour>,
    pub(crate) failure: Failure,
}

impl Node {
    pub(crate) async fn start(world: World, at: DirectoryIdentity, listen: SocketAddr) -> Self {
        Self::start_with(world, at, listen, OPEN).await
    }

    pub(crate) async fn start_with(
        world: World,
        at: DirectoryIdentity,
        listen: SocketAddr,
        security: Security,
    ) -> Self {
        let (failure, behaviour) = (Failure::new(), Arc::new(Behaviour::default()));
        let service = Arc::new(TestService(Arc::clone(&behaviour)));
        let options = Options { listen, security, connections: Connections::default() };
        let links = Links::start(world, at, options, Arc::new(admit), service, &failure).await;
        Self { links: links.expect("starts"), behaviour, failure }
    }

    /// A node on this machine's loopback.
    pub(crate) async fn local(at: DirectoryIdentity) -> Self {
        Self::start(World::real(), at, SocketAddr::from(([127, 0, 0, 1], 0))).await
    }

    /// A node in a host of a simulation.
    pub(crate) async fn simulated(at: DirectoryIdentity) -> Self {
        let entropy = Arc::new(SeededEntropy::new(at.node.0 * 100 + at.boot));
        let world = World { entropy, ..World::real().with_net(Net::Simulated) };
        Self::start(world, at, SocketAddr::from(([0, 0, 0, 0], 7_700))).await
    }

    pub(crate) fn peer_of(&self, other: &Node) -> Peer {
        let address = other.links.address().to_string();
        self.links.set_peer(other.links.identity().at.node, &address).expect("another node")
    }
}

pub(crate) fn in_ms(ms: u64) -> Instant {
    Instant::now() + Duration::from_millis(ms)
}

pub(crate) async fn send_request(
    peer: &Peer,
    lane: Lane,
    head: &str,
    ms: u64,
) -> Result<String, RequestError> {
    let message = Message::from_head(head.to_owned());
    let answer = peer.request(lane, SHARD, message, in_ms(ms)).await?;
    Ok(String::from_utf8_lossy(&answer.head).into_owned())
}

/// Repeats a request until it is answered, as the engine does.
pub(crate) async fn request_until_answered(peer: &Peer, lane: Lane) {
    while send_request(peer, lane, "hello", 500).await.is_err() {
        sleep(Duration::from_millis(5)).await;
    }
}

/// Waits for a status of the lane.
pub(crate) async fn until(peer: &Peer, lane: Lane, wanted: impl Fn(&Status) -> bool) -> Status {
    let mut watch = peer.watch(lane);
    let waiting = async {
        let mut status = watch.get();
        while !wanted(&status) {
            status = watch.changed().await.expect("the peer is there");
        }
        status
    };
    match timeout(Duration::from_secs(60), waiting).await {
        Ok(status) => status,
        Err(_) => panic!("stands so: {:?}", peer.status(lane)),
    }
}

pub(crate) fn is_waiting(status: &Status) -> bool {
    matches!(status.phase, Phase::Waiting { .. })
}

/// Polls a condition that has no signal.
pub(crate) async fn eventually(what: &str, holds: impl Fn() -> bool) {
    let waiting = async {
        while !holds() {
            sleep(Duration::from_millis(2)).await;
        }
    };
    assert!(timeout(Duration::from_secs(60), waiting).await.is_ok(), "{what}");
}
