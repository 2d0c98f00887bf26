//! Brokers of one cluster in one process, on disks in memory and over real loopback sockets, for tests of components
//! above the broker.

mod gate;

use std::io::IoSlice;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use base::{Level, Levels};
use broker::{Broker, BrokerOptions, OpenError, WeakBroker};
use cluster::{DirectoryError, MEMBER_FILE, Node as Member, NodeOptions, NodeStartError};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
pub use gate::Gate;
use gateway::Connections;
pub use journal::Options as JournalOptions;
use links::Security;
use tasks::{Failure, Task};
use world::disk::{read_whole, replace};
use world::{Disk, SimulatedDisk, World};

/// One for each node, so that each node leads one.
pub const SHARDS: u32 = 3;
const DIR: &str = "/data";
/// Interval of leadership gossip.
const TELL_EVERY: Duration = Duration::from_millis(20);
/// The longest wait for the tasks of a directory's former node.
const LOCKED_AT_MOST: Duration = Duration::from_secs(20);

/// A broker, and its node as a member of the cluster.
#[derive(Debug)]
pub struct TestNode {
    pub broker: Broker,
    pub member: Arc<Member>,
    place: NodeSetup,
}

/// Disk, address and settings from which a node is started and restarted.
#[derive(Clone, Debug)]
pub struct NodeSetup {
    disk: Arc<SimulatedDisk>,
    /// The address of the peers' port, or of the gate in front of it.
    address: String,
    /// The gate, and the address at which the node itself listens.
    gate: Option<(Arc<Gate>, SocketAddr)>,
    seeds: Vec<String>,
    join: Vec<String>,
    journal: JournalOptions,
    levels: Levels,
}

impl NodeSetup {
    /// A place for a new node that is to join the cluster of one of these.
    pub fn joining(members: &[&TestNode]) -> Self {
        let join = members.iter().map(|node| node.place.address.clone()).collect();
        let (disk, address) = (Arc::new(SimulatedDisk::new()), peer_address());
        let journal = members.first().map_or_else(options, |node| node.place.journal.clone());
        Self { join, journal, ..Self::at(disk, address) }
    }

    /// A new disk at a new address, for a node of another cluster.
    pub fn elsewhere() -> Self {
        Self::on_disk(SimulatedDisk::new())
    }

    /// An existing disk at a new address.
    pub fn on_disk(disk: SimulatedDisk) -> Self {
        Self::at(Arc::new(disk), peer_address())
    }

    fn at(disk: Arc<SimulatedDisk>, address: String) -> Self {
        let (seeds, join, journal) = (Vec::new(), Vec::new(), options());
        Self { disk, address, gate: None, seeds, join, journal, levels: Levels::OURS }
    }

    /// The same place with the disk's state after a power loss.
    pub fn after_power_loss(&self, seed: u64) -> Self {
        Self { disk: Arc::new(self.disk.power_loss(seed)), ..self.clone() }
    }

    /// The same place with another disk, such as a restored one.
    pub fn with_disk(&self, disk: SimulatedDisk) -> Self {
        Self { disk: Arc::new(disk), ..self.clone() }
    }

    /// The same address and a new disk, for a node that is to join the cluster of one of these.
    pub fn wiped(&self, members: &[&TestNode]) -> Self {
        let (address, gate) = (self.address.clone(), self.gate.clone());
        Self { address, gate, ..Self::joining(members) }
    }

    /// Another address, with a copy of the file that identifies the directory's node.
    ///
    /// # Panics
    ///
    /// If the directory has no such file.
    pub fn copied(&self) -> Self {
        let (disk, dir) = (Arc::new(SimulatedDisk::new()), Path::new(DIR));
        let bytes = read_whole(&*self.disk, &dir.join(MEMBER_FILE)).expect("it is there");
        disk.create_dir(dir).expect("made");
        replace(&*disk, dir, MEMBER_FILE, &mut [IoSlice::new(&bytes)]).expect("written");
        Self { disk, address: peer_address(), gate: None, ..self.clone() }
    }

    /// The same place, with a program that supports the feature levels up to `max`.
    pub fn with_max_level(&self, max: u16) -> Self {
        Self { levels: up_to(max), ..self.clone() }
    }

    /// The same place, for a node that asks one of these for admission.
    pub fn rejoining(&self, members: &[&TestNode]) -> Self {
        Self { join: Self::joining(members).join, ..self.clone() }
    }

    /// Path of its data directory on its disk.
    pub const DIR: &'static str = DIR;

    /// Its disk, to be used while no node runs on it.
    pub fn shared_disk(&self) -> Arc<dyn Disk> {
        Arc::clone(&self.disk) as _
    }

    /// Its disk, to be damaged by tests.
    pub fn disk(&self) -> &SimulatedDisk {
        &self.disk
    }

    /// Directory of a shard's files.
    pub fn shard_dir(shard: u32) -> PathBuf {
        Path::new(DIR).join(format!("shard-{shard}"))
    }

    /// The peer address.
    pub fn address(&self) -> &str {
        &self.address
    }
}

/// All of 127/8 is loopback, so the address is unused.
fn peer_address() -> String {
    static LAST: AtomicU32 = AtomicU32::new(0);
    let (process, number) = (std::process::id(), LAST.fetch_add(1, Ordering::SeqCst));
    format!("127.{}.{}.{}:7701", 220 + process / 250 % 30, 1 + process % 250, 1 + number % 250)
}

/// Starts a cluster of three nodes, returned in the order of their numbers. [`Broker::ready`] waits until each shard
/// has a leader.
///
/// # Panics
///
/// If one of them does not start.
pub async fn start_three() -> Vec<TestNode> {
    start_three_with(options()).await
}

fn options() -> JournalOptions {
    JournalOptions { segment_bytes: 8 << 20, ..JournalOptions::default() }
}

/// Like [`start_three`], with these options for the journals of all shards.
///
/// # Panics
///
/// If one of them does not start.
pub async fn start_three_with(journal: JournalOptions) -> Vec<TestNode> {
    start_nodes(journal, &[1; 3], false).await
}

/// Like [`start_three`], with a [`Gate`] in front of each node.
///
/// # Panics
///
/// If one of them does not start.
pub async fn start_three_behind_gates() -> Vec<TestNode> {
    start_nodes(options(), &[Levels::OURS.max.0; 3], true).await
}

/// Like [`start_three`]; each node's program supports the feature levels up to one of these.
///
/// # Panics
///
/// If one of them does not start.
pub async fn start_three_with_levels(levels: [u16; 3]) -> Vec<TestNode> {
    start_nodes(options(), &levels, false).await
}

/// Starts one node for each of these feature levels, up to which its program supports all.
///
/// # Panics
///
/// If one of them does not start.
pub async fn start_all_with_levels(levels: &[u16]) -> Vec<TestNode> {
    start_nodes(options(), levels, false).await
}

/// Starts four nodes with three replicas of each shard. They exchange leadership gossip like the crate `nodes` in a
/// server.
///
/// # Panics
///
/// If one of them does not start.
pub async fn start_four() -> Vec<TestNode> {
    let nodes = start_all_with_levels(&[Levels::OURS.max.0; 4]).await;
    let weak: Vec<_> = nodes.iter().map(|node| node.broker.downgrade()).collect();
    for broker in weak.clone() {
        let others = weak.clone();
        tasks::spawn(Task::Membership, async move {
            let mut told = Vec::new();
            while let Some(broker) = broker.upgrade() {
                let led = broker.led_groups();
                if told != led {
                    told.clone_from(&led);
                    let others = others.iter().filter_map(WeakBroker::upgrade);
                    for other in others.filter(|other| other.node() != broker.node()) {
                        other.receive_led_groups(broker.node().into(), led.clone());
                    }
                }
                drop(broker);
                tokio::time::sleep(TELL_EVERY).await;
            }
        });
    }
    nodes
}

fn up_to(max: u16) -> Levels {
    Levels { min: Level::FIRST, max: Level(max) }
}

async fn start_nodes(journal: JournalOptions, levels: &[u16], has_gates: bool) -> Vec<TestNode> {
    let seeds: Vec<String> = levels.iter().map(|_| peer_address()).collect();
    let starting = seeds.iter().zip(levels).map(|(address, &max)| {
        let (seeds, journal, levels) = (seeds.clone(), journal.clone(), up_to(max));
        let place = NodeSetup::at(Arc::new(SimulatedDisk::new()), address.clone());
        start_at(NodeSetup { seeds, journal, levels, ..place }, has_gates)
    });
    let mut nodes = join_all(starting).await;
    nodes.sort_by_key(|node| node.broker.node());
    nodes
}

async fn start_at(place: NodeSetup, has_gate: bool) -> TestNode {
    if !has_gate {
        return start(place).await;
    }
    let node: SocketAddr = peer_address().parse().expect("an address");
    let gate = Gate::start(place.address.parse().expect("an address"), node).await;
    start(NodeSetup { gate: Some((Arc::new(gate.expect("its address is free")), node)), ..place })
        .await
}

/// Starts or restarts a node. A joining node is open once it has the catalog.
///
/// # Panics
///
/// If it does not start.
pub async fn start(place: NodeSetup) -> TestNode {
    try_start(place).await.expect("it starts")
}

/// Like [`start`], for a node that may be rejected.
///
/// # Panics
///
/// If its broker does not open.
pub async fn try_start(place: NodeSetup) -> Result<TestNode, NodeStartError> {
    let (member, opened) = open(&place).await?;
    Ok(TestNode { broker: opened.expect("it opens"), member, place })
}

/// Like [`start`], for a node whose broker does not open. Returns the reason.
///
/// # Panics
///
/// If it does open, or the node does not start.
pub async fn refusal(place: &NodeSetup) -> OpenError {
    let (member, opened) = open(place).await.expect("it starts");
    let refused = opened.expect_err("it does not open");
    member.close().await;
    refused
}

/// Like [`start`], for a node that may be rejected before its broker is open. Returns the future that opens it.
///
/// # Panics
///
/// If the place's address is invalid.
pub async fn begin(
    place: &NodeSetup,
) -> Result<(Arc<Member>, BoxFuture<'static, Result<Broker, OpenError>>), NodeStartError> {
    let (world, dir) = (World::on(Arc::clone(&place.disk) as _), Path::new(DIR));
    let (connections, failure) = (Connections::default(), Failure::new());
    let listen = match place.gate {
        Some((_, listen)) => listen,
        None => place.address.parse().expect("an address"),
    };
    let options = NodeOptions {
        listen,
        address: place.address.clone(),
        seeds: place.seeds.clone(),
        join: place.join.clone(),
        security: Security::Plain { beyond_loopback: false },
        levels: place.levels,
    };
    let start = async || {
        let (options, connections) = (options.clone(), connections.clone());
        Member::start(&world, dir, options, connections, &failure).await
    };
    let member = Arc::new(start_once_unlocked(start).await?);
    let options = BrokerOptions {
        node: u32::try_from(member.identity().at.node.0).expect("a small number"),
        shards: Some(SHARDS),
        journal: place.journal.clone(),
        cluster: Some(Arc::clone(&member)),
        failure: Some(failure),
        ..BrokerOptions::default()
    };
    let opening = async move { Broker::open(world, Path::new(DIR), options).await };
    Ok((member, opening.boxed()))
}

/// Starts a node again while its directory is locked: tasks of the former node end a moment after it.
async fn start_once_unlocked(
    start: impl AsyncFn() -> Result<Member, NodeStartError>,
) -> Result<Member, NodeStartError> {
    let deadline = tokio::time::Instant::now() + LOCKED_AT_MOST;
    loop {
        match start().await {
            Err(NodeStartError::Directory(DirectoryError::InUse { .. }))
                if tokio::time::Instant::now() < deadline =>
            {
                tokio::time::sleep(TELL_EVERY).await;
            }
            started => return started,
        }
    }
}

async fn open(
    place: &NodeSetup,
) -> Result<(Arc<Member>, Result<Broker, OpenError>), NodeStartError> {
    let (member, opening) = begin(place).await?;
    Ok((member, opening.await))
}

impl TestNode {
    /// The place from which it was started.
    pub fn place(&self) -> &NodeSetup {
        &self.place
    }

    /// The gate in front of it.
    ///
    /// # Panics
    ///
    /// If it was started without one.
    pub fn gate(&self) -> Arc<Gate> {
        Arc::clone(&self.place.gate.as_ref().expect("it has a gate").0)
    }

    /// Stops the node without handing over leadership. [`start`] restarts it from the returned place. There must be
    /// no other holder of its broker.
    pub async fn end(self) -> NodeSetup {
        let Self { broker, member, place } = self;
        broker.shutdown().await;
        member.close().await;
        place
    }
}
