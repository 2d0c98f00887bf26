//! Nodes of one process, each with its own loopback address and a disk in memory.

use std::future::Future;
use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use cluster::{KnownNode, Node, NodeOptions, NodeStartError};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use gateway::Connections;
use links::{
    ConnectError, Declined, DirectoryIdentity, Identity, IncomingAppends, Lane, Links, Message,
    NodeId, Options, Phase, Refusal, Request, Security, Service,
};
use tasks::Failure;
use tokio::time::{sleep, timeout};
use world::disk::{read_whole, replace};
use world::{Disk, SimulatedDisk, World};

pub(crate) const DIR: &str = "/data";
pub(crate) const OPEN: Security = Security::Plain { beyond_loopback: false };
const SOON: Duration = Duration::from_secs(20);

/// All loopback addresses lead to this machine: no other process has the address.
fn address() -> String {
    static LAST: AtomicU32 = AtomicU32::new(0);
    let process = std::process::id();
    let number = LAST.fetch_add(1, Ordering::SeqCst);
    let high = 10 + (process / 250 + number / 250) % 200;
    format!("127.{high}.{}.{}:7700", 1 + process % 250, 1 + number % 250)
}

/// The place of a node: it survives the node's process.
#[derive(Clone)]
pub(crate) struct NodeSlot {
    pub(crate) address: String,
    pub(crate) disk: SimulatedDisk,
    pub(crate) security: Security,
}

impl NodeSlot {
    pub(crate) fn new() -> Self {
        Self { address: address(), disk: SimulatedDisk::new(), security: OPEN }
    }

    /// Addresses for several nodes, and the list of them.
    pub(crate) fn several(count: usize) -> (Vec<Self>, Vec<String>) {
        let places: Vec<_> = (0..count).map(|_| Self::new()).collect();
        let seeds = places.iter().map(|place| place.address.clone()).collect();
        (places, seeds)
    }

    pub(crate) fn world(&self) -> World {
        World::on(Arc::new(self.disk.clone()))
    }

    pub(crate) async fn start(&self, seeds: &[String]) -> Result<Node, NodeStartError> {
        self.start_or_join(seeds, &[]).await
    }

    pub(crate) async fn join(&self, members: &[String]) -> Result<Node, NodeStartError> {
        self.start_or_join(&[], members).await
    }

    async fn start_or_join(
        &self,
        seeds: &[String],
        members: &[String],
    ) -> Result<Node, NodeStartError> {
        let options = NodeOptions {
            listen: self.address.parse().expect("an address"),
            address: self.address.clone(),
            seeds: seeds.to_vec(),
            join: members.to_vec(),
            security: self.security.clone(),
            levels: base::Levels::OURS,
        };
        let (connections, failure) = (Connections::default(), Failure::new());
        let world = self.world();
        let starting = Node::start(&world, Path::new(DIR), options, connections, &failure);
        soon("it starts or does not", starting).await
    }

    /// The same place with a copy of its directory.
    pub(crate) fn copied(&self) -> Self {
        let (copy, dir) = (self.wiped(), Path::new(DIR));
        let bytes = read_whole(&self.disk, &dir.join("node")).expect("it is there");
        copy.disk.create_dir(dir).expect("made");
        replace(&copy.disk, dir, "node", &mut [IoSlice::new(&bytes)]).expect("written");
        copy
    }

    pub(crate) fn wiped(&self) -> Self {
        Self { disk: SimulatedDisk::new(), ..self.clone() }
    }
}

pub(crate) async fn soon<F: Future>(what: &str, future: F) -> F::Output {
    match timeout(SOON, future).await {
        Ok(output) => output,
        Err(_) => panic!("not in time: {what}"),
    }
}

/// Starts all concurrently.
pub(crate) async fn found(places: &[NodeSlot], seeds: &[String]) -> Vec<Node> {
    let starting = places.iter().map(|place| async { place.start(seeds).await.expect("starts") });
    let nodes = futures_util::future::join_all(starting).await;
    for node in &nodes {
        soon("all are seen", node.all_seen()).await;
    }
    nodes
}

/// Stops a node in order.
pub(crate) async fn stop(node: Node) {
    node.close().await;
}

/// The reason why a node has no link to another one, once it has none.
pub(crate) async fn connect_error(links: &Links, node: u64) -> ConnectError {
    let peer = links.peer(NodeId(node)).expect("a peer");
    let waits = async {
        loop {
            if let Phase::Waiting { error, .. } = peer.status(Lane::Control).phase
                && !matches!(error, ConnectError::NobodyListens | ConnectError::Ended(_))
            {
                return error;
            }
            sleep(Duration::from_millis(2)).await;
        }
    };
    soon("it is refused", waits).await
}

pub(crate) async fn is_linked(links: &Links, node: u64) {
    let peer = links.peer(NodeId(node)).expect("a peer");
    let linked = async {
        while !matches!(peer.status(Lane::Control).phase, Phase::Connected { .. }) {
            sleep(Duration::from_millis(2)).await;
        }
    };
    soon("it is linked", linked).await;
}

pub(crate) fn refused(error: &ConnectError) -> &Refusal {
    match error {
        ConnectError::Refused(refusal) => refusal,
        other => panic!("not refused by the peer: {other}"),
    }
}

/// A false member of the cluster, with a link to a real one.
pub(crate) async fn impostor(at: DirectoryIdentity, to: &Node) -> Links {
    struct NoService;
    impl Service for NoService {
        fn answer(&self, _: Request) -> BoxFuture<'static, Result<Message, Declined>> {
            async { Err(Declined::NotServed) }.boxed()
        }
        fn appends(&self, _: IncomingAppends) -> BoxFuture<'static, ()> {
            async {}.boxed()
        }
        fn gossip(&self, _: NodeId, _: bytes::Bytes) {}
    }
    let options = Options {
        listen: "127.0.0.1:0".parse().expect("an address"),
        security: OPEN,
        connections: Connections::default(),
    };
    let admission = Arc::new(|_: &Identity| Ok::<(), Refusal>(()));
    let (service, failure) = (Arc::new(NoService), Failure::new());
    let links = Links::start(World::real(), at, options, admission, service, &failure).await;
    let links = links.expect("it listens");
    links.set_peer(to.identity().at.node, &to.links().address().to_string());
    links
}

pub(crate) fn known(nodes: &[Node]) -> Vec<KnownNode> {
    let known = |node: &Node| {
        let DirectoryIdentity { node: id, directory, boot, .. } = node.identity().at;
        KnownNode { id, directory, boot, address: node.links().address().to_string() }
    };
    nodes.iter().map(known).collect()
}
