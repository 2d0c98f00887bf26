//! A node as a member of its cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base::{ClusterLevel, Levels, ShardId};
use bytes::Bytes;
use consensus::Members;
use futures_util::future::join_all;
use gateway::Connections;
use links::{
    Admission, ConnectError, DirectoryIdentity, GossipTooLong, Identity, Lane, Links, Message,
    NodeId, Peer, PeerListener, Phase, ReceivedMessage, Refusal, RequestError, Security, Service,
};
use parking_lot::Mutex;
use tasks::{Failure, Task};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tracing::info;
use uuid::Uuid;
use world::{Instant, World};

use crate::applicants::ApplicantWatch;
use crate::directory::{Directory, DirectoryError, Record, claim};
use crate::epoch_keeper::EpochKeeper;
use crate::epochs;
use crate::founding::{Completion, begin, learn_cluster};
use crate::groups::Groups;
use crate::joining::{JoinReply, REFUSED_FOR, check_directory, learn_number};
use crate::level;
use crate::roster::{KnownNode, Roster};
use crate::seeds::{FOUNDER, SeedsError};
use crate::start_error::NodeStartError;
use crate::wire::ControlRequest;

const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Options of a node in a cluster.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// The listening address for peers; with port 0 the system chooses one.
    pub listen: SocketAddr,
    /// `HOST:PORT` at which the others reach this node: one of the seeds when the cluster is founded.
    pub address: String,
    /// The founding nodes, by their addresses: the same list in the same order on each. May be empty, or another
    /// one, once the directory belongs to a founded cluster.
    pub seeds: Vec<String>,
    /// Addresses of nodes of a founded cluster, one of which gets the request to join. Of no effect once the
    /// directory belongs to that cluster.
    pub join: Vec<String>,
    pub security: Security,
    /// The levels that this binary can replay and write.
    pub levels: Levels,
}

/// A node with an identity and links to the others. Dropping it ends its links, once no other owner is left.
#[derive(Debug)]
pub struct Node {
    links: Arc<Links>,
    groups: Groups,
    roster: Arc<Roster>,
    directory: Arc<Directory>,
    address: String,
    level: Arc<ClusterLevel>,
    members: Members,
    joined: bool,
    /// Nodes that are to lead no shard.
    resting: watch::Sender<BTreeSet<NodeId>>,
    all_seen: watch::Sender<bool>,
    /// Number of sequences of numbered requests since its start.
    lines: AtomicU64,
    /// While the cluster is not founded.
    completion: Mutex<Option<JoinHandle<()>>>,
    /// The reason why this node does not serve while the catalog has no leader.
    pub(crate) waiting: Mutex<Option<String>>,
    epochs: Mutex<Option<JoinHandle<()>>>,
}

impl Drop for Node {
    fn drop(&mut self) {
        let tasks = [self.completion.get_mut(), self.epochs.get_mut()];
        tasks.into_iter().flatten().for_each(|task| task.abort());
    }
}

impl Node {
    /// Listens for peers, counts the boot, and returns once the node knows its cluster: for that a new node
    /// queries the first seed, for as long as it takes. `failure` is set if an indispensable part panics. It holds
    /// the lock of the directory until it is dropped.
    #[tasks::boxed]
    pub async fn start(
        world: &World,
        data_dir: &Path,
        options: NodeOptions,
        connections: Connections,
        failure: &Failure,
    ) -> Result<Self, NodeStartError> {
        let NodeOptions { listen, address, seeds, join, security, levels } = options;
        let listener = PeerListener::bind(world, listen, security).await?;
        let (claimed, found) = claim(world, data_dir).await?;
        let level = Arc::new(level::open(world, data_dir, levels)?);
        let (mut content, seeds) = begin(world, found, &address, &seeds, &join)?;
        let directory = claimed.write(content.clone()).await?;
        let (epoch_file, epochs) = epochs::begin(world, data_dir, &level).await?;
        if content.is_founded {
            check_directory(world, &listener, &content, &address, &join, levels, epochs.own)
                .await?;
        }
        let cluster = match (content.cluster, &seeds) {
            (Some(cluster), _) => cluster,
            (None, Some(seeds)) => {
                let cluster = learn_cluster(world, &listener, &content, seeds, levels).await?;
                directory.change(|content| content.cluster = Some(cluster)).await?;
                cluster
            }
            (None, None) if content.joined => {
                let joined =
                    learn_number(world, &listener, &content, &address, &join, levels).await?;
                let JoinReply { node, cluster, by, known } = joined;
                (content.node, content.cluster) = (node, Some(cluster));
                content.is_founded = true;
                content.nodes.insert(by, known);
                directory.change(|written| *written = content.clone()).await?;
                cluster
            }
            // A founded cluster has an id; a file without one was not written by this program.
            (None, None) => return Err(SeedsError::Missing.into()),
        };
        let at = DirectoryIdentity {
            cluster,
            node: content.node,
            directory: content.directory,
            boot: content.boot,
            epoch: epochs.own,
        };
        info!(%cluster, node = %at.node, boot = at.boot, "is a node of its cluster");
        let here =
            Record { address: address.clone(), directory: Some(at.directory), boot: at.boot };
        content
            .nodes
            .entry(at.node)
            .and_modify(|known| {
                (known.directory, known.boot) = (here.directory, here.boot);
            })
            .or_insert(here);
        let is_founding = seeds.is_some();
        let roster = Arc::new(Roster::new(
            at,
            Arc::clone(&level),
            content.nodes.clone(),
            seeds,
            epochs.peers,
        ));
        let groups = Groups::default();
        let admission: Arc<dyn Admission> = roster.clone();
        let service: Arc<dyn Service> = Arc::new(groups.clone());
        let links = Arc::new(listener.serve(at, connections, admission, service, failure));
        groups.link(&links);
        groups.report_epochs(&roster);
        let addresses = content.nodes.iter().map(|(node, record)| (*node, &record.address));
        let others: Vec<Peer> =
            addresses.clone().filter_map(|(node, address)| links.set_peer(node, address)).collect();
        let members = Members::voting(addresses.map(|(node, it)| (node.0, it.clone())));
        let (all_seen, _) = watch::channel(!is_founding);
        let directory = Arc::new(directory);
        let completion = is_founding.then(|| {
            let completion = Completion {
                others,
                roster: Arc::clone(&roster),
                directory: Arc::downgrade(&directory),
                all_seen: all_seen.clone(),
                failure: failure.clone(),
            };
            tasks::vital(Task::Founding, completion.run(), failure)
        });
        let completion = Mutex::new(completion);
        let keeper = EpochKeeper {
            world: world.clone(),
            file: Arc::new(epoch_file),
            own: epochs.own,
            roster: Arc::clone(&roster),
            groups: groups.clone(),
            links: Arc::downgrade(&links),
            level: Arc::clone(&level),
            directory: Arc::downgrade(&directory),
        };
        let epochs = tasks::vital(Task::Epochs, keeper.run(), failure);
        let (joined, resting) = (content.joined, watch::Sender::default());
        Ok(Self {
            links,
            groups,
            roster,
            directory,
            address,
            level,
            members,
            joined,
            resting,
            all_seen,
            lines: AtomicU64::new(0),
            completion,
            waiting: Mutex::default(),
            epochs: Mutex::new(Some(epochs)),
        })
    }

    pub fn links(&self) -> &Arc<Links> {
        &self.links
    }

    /// The level of the cluster as far as this node knows, and the levels of its binary.
    pub fn level(&self) -> &Arc<ClusterLevel> {
        &self.level
    }

    /// The levels of a node's binary, as of its last connection; `None`: it was not connected since this one
    /// started.
    pub fn levels_of(&self, node: NodeId) -> Option<Levels> {
        self.roster.levels_of(node)
    }

    /// The groups that its links serve: each shard's replica joins them.
    pub fn groups(&self) -> &Groups {
        &self.groups
    }

    /// The identity that this node presents.
    pub fn identity(&self) -> Identity {
        self.links.identity()
    }

    /// The id of a new sequence of numbered requests to other nodes, unique over sequences and runs of this node.
    pub fn next_incarnation(&self) -> u64 {
        let (run, _) = self.identity().run.as_u64_pair();
        run.wrapping_add(self.lines.fetch_add(1, Ordering::Relaxed))
    }

    /// `HOST:PORT` at which the others reach this node, as it announces it.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The seeds, which vote in the first groups; after a restart the last known nodes.
    pub fn members(&self) -> Members {
        self.members.clone()
    }

    /// Whether this is the first seed, which founds the groups.
    pub fn is_founder(&self) -> bool {
        self.identity().at.node == FOUNDER && !self.joined
    }

    /// Whether the cluster was founded before this node joined: then it founds no group, whatever it lacks.
    pub fn has_joined(&self) -> bool {
        self.joined
    }

    /// Nodes that request to join. They wait until [`Node::know`] has them, or [`Node::turn_down`].
    pub fn applicants(&self) -> ApplicantWatch {
        self.roster.applicants.watch()
    }

    /// Rejects the request of the node with this directory, with a reason.
    pub fn turn_down(&self, directory: Uuid, reason: String) {
        self.roster.applicants.turn_down(directory, reason);
    }

    /// Sets the directories of removed nodes: they may not join again.
    pub fn know_former(&self, former: BTreeMap<Uuid, NodeId>) {
        self.roster.know_former(former);
    }

    /// Sets the nodes that are to lead no shard, as far as others can.
    pub fn rest(&self, nodes: BTreeSet<NodeId>) {
        self.resting.send_if_modified(|resting| {
            let is_new = *resting != nodes;
            *resting = nodes;
            is_new
        });
    }

    /// Whether the node is to lead no shard.
    pub fn rests(&self, node: NodeId) -> bool {
        self.resting.borrow().contains(&node)
    }

    /// Resolves once another node has for a while refused this one as removed, or a majority as unknown: it will
    /// not be admitted again.
    pub async fn removed(&self) {
        let mut since = None;
        loop {
            if self.is_refused() {
                let since = *since.get_or_insert_with(Instant::now);
                if since.elapsed() >= REFUSED_FOR {
                    return;
                }
            } else {
                since = None;
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// Resolves once another node has refused this one permanently, with the reason: its binary does not support
    /// the cluster's level, its directory was set back, or it is the first seed with a wiped disk, which took itself
    /// for the founder of another cluster.
    pub async fn outdated(&self) -> String {
        let here = self.identity().at.node;
        loop {
            let nodes = self.roster.records();
            let refusals = nodes.keys().filter(|node| **node != here).filter_map(|node| match self
                .links
                .peer(*node)?
                .status(Lane::Control)
                .phase
            {
                Phase::Waiting { error: ConnectError::Refused(refusal), .. } => Some(refusal),
                _ => None,
            });
            let mut outdated = refusals.filter(|refusal| match refusal {
                Refusal::LevelMissing { .. }
                | Refusal::SetBack { .. }
                | Refusal::LogLost { .. } => true,
                // An address of a founded cluster may be another cluster's by mistake. A seed is not.
                Refusal::AnotherCluster { .. } => self.roster.is_founding(),
                _ => false,
            });
            if let Some(refusal) = outdated.next() {
                return refusal.to_string();
            }
            sleep(LOOK_EVERY).await;
        }
    }

    fn is_refused(&self) -> bool {
        let here = self.identity().at.node;
        let nodes = self.roster.records();
        let others = nodes.keys().filter(|node| **node != here);
        let (mut count, mut strangers) = (0, 0);
        for other in others {
            count += 1;
            let status = self.links.peer(*other).map(|peer| peer.status(Lane::Control));
            let Some(Phase::Waiting { error: ConnectError::Refused(refusal), .. }) =
                status.map(|status| status.phase)
            else {
                continue;
            };
            match refusal {
                // From the catalog, which does not revert it.
                Refusal::Removed { node } if node == here => return true,
                // That node may not know of this one yet.
                Refusal::UnknownNode { node } if node == here => strangers += 1,
                _ => {}
            }
        }
        strangers > count / 2
    }

    /// Whether a node is this one or connected to it, and for how long.
    pub fn connected_for(&self, node: NodeId) -> Option<Duration> {
        if node == self.identity().at.node {
            return Some(Duration::MAX);
        }
        match self.links.peer(node)?.status(Lane::Control).phase {
            Phase::Connected { since, .. } => Some(since.elapsed()),
            _ => None,
        }
    }

    /// Waits until each other seed was connected, and that is durable. Returns at once if it was so in an earlier
    /// run.
    pub async fn all_seen(&self) {
        // The sender is this node's own.
        let _ = self.all_seen.subscribe().wait_for(|all_seen| *all_seen).await;
    }

    /// The nodes seen or known in the cluster by now, this node included: the founders write them into the catalog
    /// after [`Node::all_seen`].
    pub fn known(&self) -> Vec<KnownNode> {
        let known = |(id, record): (NodeId, Record)| {
            let Record { address, directory, boot } = record;
            Some(KnownNode { id, directory: directory?, boot, address })
        };
        self.roster.records().into_iter().filter_map(known).collect()
    }

    /// Sets the exact nodes of the cluster: others are refused and disconnected. The change takes effect when this
    /// is first polled, and is on disk when it returns, so that the next start knows it. Nothing is written if
    /// nothing has changed.
    #[tasks::boxed]
    pub async fn know(&self, nodes: Vec<KnownNode>) -> Result<(), DirectoryError> {
        let gone = self.roster.know(&nodes);
        for node in &nodes {
            self.links.set_peer(node.id, &node.address);
        }
        for node in &gone {
            self.links.remove_peer(*node);
        }
        self.groups.remember_only(|node| nodes.iter().any(|known| known.id == node));
        let written = self.directory.change(|content| {
            content.is_founded = true;
            content.nodes = self.roster.records();
        });
        written.await?;
        self.all_seen.send_replace(true);
        Ok(())
    }

    /// Queries another node's [`crate::Proxy`], and waits for the reply until the deadline. An unknown node is
    /// [`RequestError::Gone`].
    #[tasks::boxed]
    pub async fn ask(
        &self,
        node: NodeId,
        shard: ShardId,
        message: Message,
        deadline: Instant,
    ) -> Result<ReceivedMessage, RequestError> {
        let peer = self.links.peer(node).ok_or(RequestError::Gone)?;
        peer.request(Lane::Proxy, shard, message, deadline).await
    }

    /// Pings these nodes. Returns once each has replied or its connection has ended, at the deadline at the
    /// latest. The statuses of their connections are then current: the end of a process is seen some time after
    /// its other connections have closed.
    pub async fn probe(&self, nodes: impl IntoIterator<Item = NodeId>, deadline: Instant) {
        let asked = nodes.into_iter().filter_map(|node| {
            let peer = self.links.peer(node)?;
            let message = ControlRequest::AreYouThere.into();
            let lane = Lane::Control;
            Some(async move { peer.request(lane, ShardId::CATALOG, message, deadline).await })
        });
        // The connection's status shows every outcome.
        let _ = join_all(asked).await;
    }

    /// Sets the gossip for all others, which is sent now and each second; [`Groups::latest_gossip`] receives it there.
    pub fn send_gossip(&self, payload: Bytes) -> Result<(), GossipTooLong> {
        self.links.gossip(payload)
    }

    /// Announces to all peers that this node closes its links. Waits until that is sent and no write is in
    /// progress: see [`Links::close`]. Another process can lock its directory once the node is dropped.
    #[tasks::boxed]
    pub async fn close(&self) {
        let tasks = [self.completion.lock().take(), self.epochs.lock().take()];
        for task in tasks.into_iter().flatten() {
            task.abort();
            let _ = task.await;
        }
        self.links.close().await;
        self.directory.settled().await;
    }
}
