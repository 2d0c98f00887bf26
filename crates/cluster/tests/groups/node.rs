//! Nodes of one process, each with its links, a disk in memory and a member of one group.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base::ShardId;
use bytes::Bytes;
use cluster::{Groups, LinkedPeers};
use consensus::{
    ApplyError, CatchUpPace, CommittedEntry, Consensus, ConsensusOptions, Encode, Group, GroupId,
    Leadership, Members, Payload, ProposeError, Replace, RestoreError, Role, Starvation,
    StateMachine,
};
use gateway::Connections;
use journal::{Body, Journal};
use links::{
    Admission, DirectoryIdentity, Identity, Lane, Links, NodeId, Options, Refusal, Security,
    Service,
};
use parking_lot::Mutex;
use tasks::Failure;
use tokio::time::{sleep, timeout};
use uuid::Uuid;
use world::{SimulatedDisk, World};

pub(crate) const SHARD: ShardId = ShardId(1);
const CLUSTER: Uuid = Uuid::from_u128(77);
const SOON: Duration = Duration::from_secs(20);

/// Accepts every body, and records the heads in order.
#[derive(Default)]
pub(crate) struct Ledger {
    journal: Mutex<Option<Journal>>,
    heads: Mutex<Vec<Bytes>>,
}

impl Ledger {
    pub(crate) fn heads(&self) -> Vec<Bytes> {
        self.heads.lock().clone()
    }
}

impl StateMachine for Ledger {
    fn apply(&self, entry: CommittedEntry<'_>) -> Result<u64, ApplyError> {
        for body in 0..entry.bodies.len() {
            let journal = self.journal.lock();
            journal.as_ref().expect("it is there").accept(entry.id.index, body);
        }
        self.heads.lock().push(entry.head.clone());
        Ok(1)
    }

    fn capture(&self) -> Encode {
        let lines = self.heads().join(&b'\n');
        Box::new(move || lines.into())
    }

    fn restore(&self, machine: &[u8]) -> Result<(), RestoreError> {
        *self.heads.lock() =
            machine.split(|byte| *byte == b'\n').map(Bytes::copy_from_slice).collect();
        Ok(())
    }

    fn replace(self: Arc<Self>, _: u64, machine: &[u8]) -> Result<Replace, RestoreError> {
        let machine = machine.to_vec();
        Ok(Replace::new(move |switch| {
            switch();
            self.restore(&machine).expect("it is restored");
        }))
    }
}

pub(crate) struct Node {
    pub(crate) links: Arc<Links>,
    pub(crate) consensus: Consensus,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) journal: Journal,
}

/// All nodes, and the disks of those that do not run.
pub(crate) struct Nodes {
    pub(crate) running: BTreeMap<u64, Node>,
    disks: BTreeMap<u64, SimulatedDisk>,
    boots: BTreeMap<u64, u64>,
    addresses: BTreeMap<u64, String>,
    snapshot_log_bytes_min: u64,
}

fn directory(node: u64, boot: u64) -> DirectoryIdentity {
    let directory = Uuid::from_u128(u128::from(100 + node));
    DirectoryIdentity { cluster: CLUSTER, node: NodeId(node), directory, boot, epoch: 0 }
}

fn admit(peer: &Identity) -> Result<(), Refusal> {
    let node = peer.at.node;
    match peer.at.directory == directory(node.0, 0).directory {
        true => Ok(()),
        false => Err(Refusal::UnknownNode { node }),
    }
}

impl Nodes {
    /// Nodes 1 to `count`, all of which vote; one leads on return.
    pub(crate) async fn founded(count: u64) -> Self {
        Self::founded_with(count, u64::MAX).await
    }

    /// Nodes that snapshot their state after this much growth of the log, and keep no log without need.
    pub(crate) async fn founded_with(count: u64, snapshot_log_bytes_min: u64) -> Self {
        let mut nodes = Self {
            running: BTreeMap::new(),
            disks: BTreeMap::new(),
            boots: BTreeMap::new(),
            addresses: BTreeMap::new(),
            snapshot_log_bytes_min,
        };
        for node in 1..=count {
            nodes.start(node).await;
        }
        let members = Members::voting(nodes.addresses.clone());
        nodes.running[&1].consensus.found(members).await.expect("it is founded");
        nodes.leader().await;
        nodes
    }

    pub(crate) async fn start(&mut self, node: u64) {
        let disk = self.disks.remove(&node).unwrap_or_default();
        self.disks.insert(node, disk.clone());
        let boot = self.boots.entry(node).or_default();
        *boot += 1;
        let world = World::on(Arc::new(disk));
        let groups = Groups::default();
        let listen = self.addresses.get(&node).map_or("127.0.0.1:0", String::as_str);
        let options = Options {
            listen: listen.parse().expect("an address"),
            security: Security::Plain { beyond_loopback: false },
            connections: Connections::default(),
        };
        let admission: Arc<dyn Admission> = Arc::new(admit);
        let service: Arc<dyn Service> = Arc::new(groups.clone());
        let (at, failure) = (directory(node, *boot), Failure::new());
        let links = Links::start(world.clone(), at, options, admission, service, &failure).await;
        let links = Arc::new(links.expect("it listens"));
        groups.link(&links);
        self.addresses.insert(node, links.address().to_string());

        let journal = journal::Options {
            segment_bytes: 4 << 20,
            disk_reserve_bytes: 0,
            keep_log: true,
            ..journal::Options::default()
        };
        let opened = Journal::open(&world, Path::new("/shard"), journal).expect("it opens");
        let journal = opened.journal.clone();
        let ledger = Arc::new(Ledger::default());
        *ledger.journal.lock() = Some(journal.clone());
        let id = GroupId { cluster: CLUSTER.as_u128(), shard: SHARD.0 };
        let peers = Arc::new(LinkedPeers::new(&links, SHARD));
        let options = ConsensusOptions {
            snapshot_log_bytes_min: self.snapshot_log_bytes_min,
            snapshot_changes_min: u64::MAX,
            kept_log_bytes_max: 1,
            node: failure.clone(),
            group: Some(Group {
                id,
                peers,
                pace: CatchUpPace::default(),
                starvation: Starvation::default(),
            }),
            floor: None,
        };
        let machine: Arc<dyn StateMachine> = ledger.clone();
        let consensus = Consensus::start(&world, node, opened, machine, options).await;
        let consensus = consensus.expect("it starts");
        groups.join(SHARD, consensus.clone(), &failure);
        self.running.insert(node, Node { links, consensus, ledger, journal });
    }

    /// As in a power failure: no message is sent, and unsynced writes are lost.
    pub(crate) async fn kill(&mut self, node: u64) {
        let Some(Node { links, consensus, ledger, journal }) = self.running.remove(&node) else {
            panic!("node {node} does not run");
        };
        let disk = self.disks[&node].power_loss(node);
        self.disks.insert(node, disk);
        drop(links);
        *ledger.journal.lock() = None;
        drop(journal);
        // Its tasks would run for ever otherwise; none of their writes reaches the kept disk.
        tokio::spawn(async move { consensus.shutdown().await });
    }

    /// Waits for a leader that may propose.
    pub(crate) async fn leader(&self) -> (u64, Leadership) {
        let leads = async {
            loop {
                for (number, node) in &self.running {
                    if let Role::Leader { .. } = *node.consensus.role().borrow()
                        && let Ok(Ok(leadership)) =
                            timeout(Duration::from_millis(500), node.consensus.leadership()).await
                    {
                        return (*number, leadership);
                    }
                }
                sleep(Duration::from_millis(2)).await;
            }
        };
        timeout(SOON, leads).await.expect("somebody is elected")
    }

    /// Waits until all running nodes are connected to one of them.
    pub(crate) async fn are_connected_to(&self, to: u64) {
        let is_connected = |(node, running): (&u64, &Node)| {
            let peer = running.links.peer(NodeId(to));
            *node == to
                || peer.is_some_and(|it| it.status(Lane::Control).connected_boot().is_some())
        };
        while !self.running.iter().all(is_connected) {
            sleep(Duration::from_millis(2)).await;
        }
    }

    /// Waits for a node that follows no leader any more.
    pub(crate) async fn stands(&self) {
        let follows =
            |node: &Node| matches!(*node.consensus.role().borrow(), Role::Follower { .. });
        while self.running.values().all(follows) {
            sleep(Duration::from_millis(2)).await;
        }
    }

    /// Waits until all running nodes have applied exactly these entries.
    pub(crate) async fn all_have(&self, heads: &[Bytes]) {
        let same = async {
            while !self.running.values().all(|node| node.ledger.heads() == heads) {
                sleep(Duration::from_millis(2)).await;
            }
        };
        if timeout(SOON, same).await.is_err() {
            let found: Vec<_> =
                self.running.iter().map(|(it, node)| (it, node.ledger.heads().len())).collect();
            panic!("not all of {} entries are everywhere: {found:?}", heads.len());
        }
    }
}

/// An entry with this head, and a body of this size.
pub(crate) fn payload(head: &Bytes, number: u64, bytes: usize) -> Payload {
    let body = Body {
        stream: 5,
        base_offset: number,
        span: 1,
        max_timestamp: 0,
        bytes: Bytes::from(vec![number as u8; bytes]),
    };
    Payload { head: head.clone(), bodies: vec![body], ticket: 0 }
}

pub(crate) async fn propose(
    leadership: &Leadership,
    head: &Bytes,
    number: u64,
    bytes: usize,
) -> Result<(), ProposeError> {
    leadership.propose(payload(head, number, bytes)).await?.await.map(drop)
}
