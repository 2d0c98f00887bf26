//! All links of a node. Dropping it ends them: none of its tasks continues.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::limits::{LINK_CLOSES_WITHIN, LINK_GOSSIP_BYTES_MAX, LINK_SESSIONS_MAX};
use bytes::Bytes;
use gateway::{Connections, ListenerOptions};
use parking_lot::Mutex;
use tasks::{Failure, Task};
use thiserror::Error;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tracing::info;
use world::World;

use crate::arrivals::Arrivals;
use crate::gossip::Gossip;
use crate::handshake::SeenRuns;
use crate::identity::{Admission, DirectoryIdentity, Identity};
use crate::lane::Lane;
use crate::link::{Dialer, Link};
use crate::listener::{PeerListener, StartError};
use crate::node_id::NodeId;
use crate::peer::{LaneHandle, Peer};
use crate::responder::{AcceptedConnections, ResponderState};
use crate::security::Security;
use crate::service::Service;
use crate::status::Phase;

/// Configuration of a node's links.
#[derive(Clone, Debug)]
pub struct Options {
    /// The listening address for peers; with port 0 the system chooses one.
    pub listen: SocketAddr,
    pub security: Security,
    /// The list that shows connections of peers together with those of clients.
    pub connections: Connections,
}

/// Gossip longer than [`LINK_GOSSIP_BYTES_MAX`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("gossip of {bytes} bytes, of which {LINK_GOSSIP_BYTES_MAX} are allowed")]
pub struct GossipTooLong {
    pub bytes: usize,
}

impl PeerListener {
    /// Serves peers from now on, as [`Links::start`] does.
    pub fn serve(
        self,
        at: DirectoryIdentity,
        connections: Connections,
        admission: Arc<dyn Admission>,
        service: Arc<dyn Service>,
        failure: &Failure,
    ) -> Links {
        Links::serve(self, at, connections, admission, service, failure)
    }
}

/// A task that ends with its owner.
#[derive(Debug)]
struct OwnedTask(JoinHandle<()>);

impl Drop for OwnedTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct LinkedPeer {
    peer: Peer,
    links: Vec<Arc<Link>>,
    address: watch::Sender<String>,
    _tasks: Vec<OwnedTask>,
}

/// The links of a node: the listener for its peers, and a link to each of them by lane.
pub struct Links {
    dialer: Arc<Dialer>,
    answerer: Arc<ResponderState>,
    address: SocketAddr,
    peers: Mutex<BTreeMap<NodeId, LinkedPeer>>,
    failure: Failure,
    closing: watch::Sender<bool>,
    listener: Mutex<Option<OwnedTask>>,
}

impl std::fmt::Debug for Links {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let peers: Vec<_> = self.peers.lock().keys().copied().collect();
        f.debug_struct("Links").field("address", &self.address).field("peers", &peers).finish()
    }
}

impl Links {
    /// Listens for peers. There are none to connect to before [`Links::set_peer`]. `failure` is set if a link's
    /// task panics, because the node is then incomplete.
    pub async fn start(
        world: World,
        at: DirectoryIdentity,
        options: Options,
        admission: Arc<dyn Admission>,
        service: Arc<dyn Service>,
        failure: &Failure,
    ) -> Result<Self, StartError> {
        let Options { listen, security, connections } = options;
        let listener = PeerListener::bind(&world, listen, security).await?;
        Ok(Self::serve(listener, at, connections, admission, service, failure))
    }

    fn serve(
        listener: PeerListener,
        at: DirectoryIdentity,
        connections: Connections,
        admission: Arc<dyn Admission>,
        service: Arc<dyn Service>,
        failure: &Failure,
    ) -> Self {
        let PeerListener { world, listener, address, security } = listener;
        let ours = Identity { at, run: world.entropy.uuid(), levels: admission.levels() };
        let (closing, is_closing) = watch::channel(false);
        let seen = Arc::new(SeenRuns::default());
        let arrivals = Arc::new(Arrivals::default());
        let answerer = Arc::new(ResponderState {
            ours,
            security: security.clone(),
            seen: Arc::clone(&seen),
            admission: Arc::clone(&admission),
            service,
            accepted: AcceptedConnections::default(),
            arrivals: Arc::clone(&arrivals),
        });
        let dialer = Arc::new(Dialer {
            world,
            ours,
            security,
            seen,
            admission,
            gossip: Arc::new(Gossip::default()),
            arrivals,
            closing: is_closing.clone(),
        });
        let accepting = ListenerOptions {
            protocol: "peer",
            session: Task::PeerSession,
            sessions_max: LINK_SESSIONS_MAX,
            drain_within: LINK_CLOSES_WITHIN,
            connections,
            of_clients: false,
        };
        let serving = {
            let (answerer, stopping) = (Arc::clone(&answerer), is_closing.clone());
            move |stream, connection| {
                Arc::clone(&answerer).serve(stream, connection, stopping.clone())
            }
        };
        let listening = gateway::serve(listener, accepting, is_closing, serving);
        let listener = Mutex::new(Some(OwnedTask(tasks::spawn(Task::PeerListener, listening))));
        info!(%address, node = %at.node, boot = at.boot, "listens for peers");
        let (peers, failure) = (Mutex::default(), failure.clone());
        Self { dialer, answerer, address, peers, failure, closing, listener }
    }

    /// The listening address for peers.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The identity that this node presents.
    pub fn identity(&self) -> Identity {
        self.dialer.ours
    }

    /// Adds a peer at `HOST:PORT`, or changes its address: it then connects at once, and an established connection
    /// is kept until it ends. `None` for this node itself.
    pub fn set_peer(&self, node: NodeId, address: &str) -> Option<Peer> {
        if node == self.dialer.ours.at.node {
            return None;
        }
        let mut peers = self.peers.lock();
        let linked = peers.entry(node).or_insert_with(|| self.link(node, address));
        linked.address.send_if_modified(|known| {
            let is_new = known != address;
            if is_new {
                address.clone_into(known);
            }
            is_new
        });
        Some(linked.peer.clone())
    }

    fn link(&self, node: NodeId, address: &str) -> LinkedPeer {
        let (address, addresses) = watch::channel(address.to_owned());
        let links = Lane::ALL.map(|lane| Arc::new(Link::new(node, lane)));
        let run = |link: &Arc<Link>| {
            let link = Arc::clone(link);
            let running = link.run(Arc::clone(&self.dialer), addresses.clone());
            OwnedTask(tasks::vital(Task::PeerLink, running, &self.failure))
        };
        let tasks = links.iter().map(run).collect();
        let handle =
            |link: &Arc<Link>| LaneHandle { link: Arc::downgrade(link), state: link.watch() };
        let peer = Peer { node, lanes: Arc::new(links.each_ref().map(handle)) };
        LinkedPeer { peer, links: links.to_vec(), address, _tasks: tasks }
    }

    /// Ends all connections to a peer and from it. [`Admission`] decides whether it may reconnect.
    pub fn remove_peer(&self, node: NodeId) {
        let removed = self.peers.lock().remove(&node);
        drop(removed);
        self.answerer.accepted.remove(node);
        self.dialer.seen.forget(node);
        self.dialer.arrivals.forget(node);
    }

    /// The peers to which this lane is connected.
    pub fn connected(&self, lane: Lane) -> Vec<NodeId> {
        let peers = self.peers.lock();
        let is_connected =
            |linked: &LinkedPeer| matches!(linked.peer.status(lane).phase, Phase::Connected { .. });
        peers.iter().filter(|(_, linked)| is_connected(linked)).map(|(node, _)| *node).collect()
    }

    pub fn peer(&self, node: NodeId) -> Option<Peer> {
        self.peers.lock().get(&node).map(|linked| linked.peer.clone())
    }

    /// Sets the gossip for all peers: it is sent now, each second, and whenever a connection is made. It replaces
    /// the previous payload.
    pub fn gossip(&self, payload: Bytes) -> Result<(), GossipTooLong> {
        if payload.len() > LINK_GOSSIP_BYTES_MAX {
            return Err(GossipTooLong { bytes: payload.len() });
        }
        self.dialer.gossip.set(payload.clone());
        for linked in self.peers.lock().values() {
            let state = linked.peer.lanes[Lane::Control as usize].state.borrow();
            if let Some(session) = &state.session {
                session.outbox.set_gossip(payload.clone());
            }
        }
        Ok(())
    }

    /// Announces to all peers that this node closes its links. Waits until that is sent and pending requests of
    /// peers are dropped, twice [`LINK_CLOSES_WITHIN`] at most. Later connections are not accepted.
    pub async fn close(&self) {
        let _ = self.closing.send(true);
        let listener = self.listener.lock().take();
        let links: Vec<_> = {
            let peers = self.peers.lock();
            peers.values().flat_map(|linked| linked.links.clone()).collect()
        };
        let closed = async {
            for link in links {
                let mut state = link.watch();
                let _ = state.wait_for(|state| state.status.phase == Phase::Closed).await;
            }
            if let Some(mut listener) = listener {
                let _ = (&mut listener.0).await;
            }
        };
        if timeout(LINK_CLOSES_WITHIN * 2, closed).await.is_err() {
            info!("links were cut off");
        }
    }
}
