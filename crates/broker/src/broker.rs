//! The broker handle of gateways, and the opening of a node.

use std::future::Future;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use base::{ClusterLevel, ShardId};
use delivery::Drivers;
use delivery::relay::leader_side::Relays;
use futures_util::FutureExt;
use futures_util::future::join_all;
use machine::Role;
use parking_lot::Mutex;
use shard::LocalShard;
use shard::barrier::Barriers;
use shard::cpu::CpuPool;
use shard::delivery::trace_queue::TraceFeed;
use shard::error::Unavailable;
use shard::timeline::Timeline;
use shard::watch::{Watch, Watchers};
use shard_peers::{Peers, Remote};
use tasks::{Failure, Task};
use tokio::task::JoinHandle;
use tokio::time::sleep;
use upkeep::backup::{Backups, WeakBackups};
use upkeep::scrub::Scrubbing;
use upkeep::{disk_watchdog, housekeeping, moves, scrub};
use world::{Clock, Entropy, Workers, World};

use crate::adoption;
use crate::budget::{Budget, Permit};
use crate::error::OpenError;
use crate::leadership::disk_health::DiskHealth;
use crate::leadership::leader_gossip::LeaderGossip;
use crate::leadership::{gossip_forwarding, leader_balance, majority_report, slow_disk};
use crate::opening::local_shard::{OpeningContext, open_shard};
use crate::opening::{cluster_id, founding, layout, level};
use crate::propagation::{self, Propagation};
use crate::remote::forwarding::ForwardQueue;
use crate::remote::peer_service::PeerService;
use crate::remote::remote_watch;
use crate::yield_budget::YieldSlots;

pub use crate::options::BrokerOptions;

/// One node's broker. Clones share it.
#[derive(Clone, Debug)]
pub struct Broker(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    node: u32,
    /// `None`: the node is alone.
    cluster: Option<Arc<cluster::Node>>,
    cluster_id: Arc<str>,
    world: World,
    timeline: Arc<Timeline>,
    dir: PathBuf,
    /// The catalog's shard, then those with rows in the order of their numbers.
    shards: Vec<Arc<LocalShard>>,
    peers: Arc<Peers>,
    /// Lease sessions of other nodes at shards that this node leads, for [`PeerService`].
    _relays: Arc<Relays>,
    level: Arc<ClusterLevel>,
    /// Connections to the leader of each shard with rows. Empty where the node is alone.
    forward_queues: Vec<Arc<ForwardQueue>>,
    barriers: Barriers,
    propagation: Arc<Propagation>,
    leader_gossip: Arc<LeaderGossip>,
    disk_health: Arc<DiskHealth>,
    behind_at_open: u64,
    drivers: Arc<Drivers>,
    watchers: Arc<Watchers>,
    budget: Budget,
    cpu: CpuPool,
    turns: YieldSlots,
    /// Producer ids reserved for this node.
    producer_ids: tokio::sync::Mutex<Range<i64>>,
    config_changes: tokio::sync::Mutex<()>,
    failure: Failure,
    scrubbing: Arc<Scrubbing>,
    backups: Arc<Backups>,
    traces: TraceFeed,
    /// `None` after shutdown.
    tasks: Mutex<Option<Tasks>>,
}

#[derive(Debug)]
struct Tasks {
    adopting: Vec<JoinHandle<()>>,
    levelling: JoinHandle<()>,
    housekeeping: JoinHandle<()>,
    moving: JoinHandle<()>,
    watchdog: JoinHandle<()>,
    scrubbing: JoinHandle<()>,
    tracing: JoinHandle<()>,
    /// `None` where the node is alone.
    leading: Option<[JoinHandle<()>; 6]>,
}

/// Interval of checks for a leader.
const LEADER_CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// A broker that does not keep itself alive.
#[derive(Clone, Debug)]
pub struct WeakBroker(Weak<Inner>);

impl WeakBroker {
    pub fn upgrade(&self) -> Option<Broker> {
        self.0.upgrade().map(Broker)
    }
}

#[derive(Clone, Debug)]
pub struct Storage {
    pub dir: PathBuf,
    pub free_bytes: u64,
    pub total_bytes: u64,
}

impl Broker {
    /// Opens the data directory, recovers from a crash, and takes leadership. Ready on return, unless the node is a
    /// member of a cluster: then it has the catalog, and [`Broker::ready`] waits for the rest.
    #[tasks::boxed]
    pub async fn open(world: World, dir: &Path, options: BrokerOptions) -> Result<Self, OpenError> {
        world.disk.create_dir(dir).map_err(|source| OpenError::Io {
            doing: format!("making the data directory {}", dir.display()),
            source,
        })?;
        let failure = options.failure.clone().unwrap_or_default();
        let timeline = Arc::new(Timeline::new(Arc::clone(&world.clock)));
        let (cpu, watchers) = (CpuPool::new(world.workers.clone()), Arc::<Watchers>::default());
        let level = match &options.cluster {
            Some(node) => Arc::clone(node.level()),
            None => Arc::new(cluster::level::open(&world, dir, options.levels)?),
        };
        let remote = options.cluster.as_ref().map(Remote::new);
        let peers = Arc::new(Peers::new(remote));
        let (relays, health) = (Arc::<Relays>::default(), Arc::<DiskHealth>::default());
        let propagation = Arc::<Propagation>::default();
        let led_here = PeerService::new(&peers, &relays, &health, &propagation);
        if let Some(cluster) = &options.cluster {
            cluster.groups().serve_proxy(Arc::clone(&led_here) as _);
        }
        let (traces, traced) = TraceFeed::new();
        let context = OpeningContext {
            world: &world,
            dir,
            options: &options,
            failure: &failure,
            timeline: &timeline,
            cpu: &cpu,
            watchers: &watchers,
            peers: &peers,
            level: &level,
            traces: &traces,
        };
        layout::prepare(&context).await?;
        let cluster_id = cluster_id::open(&world, dir, options.cluster.as_deref())?;
        let catalog = open_shard(&context, Role::Catalog, None).await?;
        let mut shards = vec![Arc::new(catalog)];
        if let Some(node) = &options.cluster {
            let reporting =
                majority_report::report(Arc::downgrade(node), Arc::downgrade(&shards[0]));
            tasks::spawn(Task::Leading, reporting);
        }
        let shard_count = match founding::shards(&shards[0], &options).await {
            Ok(count) => count,
            Err(error) => return Err(founding::shut_down_after(&shards, &failure, error).await),
        };
        // Before any request to the shards: their data may have a level that this program does not support.
        if let Err(error) = level::reach(&shards[0], &world, dir, &level).await {
            return Err(founding::shut_down_after(&shards, &failure, error).await);
        }
        let version = shards[0].read(|view| view.catalog.version());
        let mut behind_at_open = 0;
        led_here.set_catalog(&shards[0]);
        let mut adopting = Vec::new();
        for shard in (1..=shard_count).map(ShardId) {
            let catalog = &shards[0].shard;
            let local = match founding::shard(&context, shard, catalog).await {
                Ok(local) => Arc::new(local),
                Err(error) => return Err(founding::shut_down_after(&shards, &failure, error).await),
            };
            behind_at_open =
                behind_at_open.max(version.saturating_sub(local.adopted.borrow().version));
            catalog.add_follower(&local.shard);
            let adoption = adoption::run(Arc::clone(catalog), Arc::downgrade(&local));
            adopting.push(tasks::vital(Task::Adoption, adoption, &failure));
            shards.push(local);
        }
        let scrubbing = Arc::<Scrubbing>::default();
        led_here.set_shards(&shards, &scrubbing);
        let handles = shards.iter().filter_map(|shard| shard.delivery().cloned()).collect();
        let drivers = Arc::new(Drivers::new(
            Arc::clone(&shards[0].shard),
            handles,
            options.cluster.as_ref().map_or(0, |_| options.node),
            Arc::clone(peers.session_users()),
            Arc::clone(peers.unread()),
        ));
        let backups = Backups::new(shards.clone(), Arc::clone(&peers), Arc::clone(&world.entropy));
        led_here.set_backups(Arc::new(WeakBackups::new(&backups)));
        let forward_queues = options
            .cluster
            .iter()
            .flat_map(|node| shards[1..].iter().filter_map(|shard| ForwardQueue::new(shard, node)));
        let forward_queues = forward_queues.collect();
        let broker = Self(Arc::new(Inner {
            forward_queues,
            drivers,
            behind_at_open,
            node: options.node,
            cluster: options.cluster.clone(),
            cluster_id,
            timeline,
            dir: dir.to_path_buf(),
            shards,
            peers,
            _relays: relays,
            level: Arc::clone(&level),
            barriers: Barriers::default(),
            propagation: Arc::clone(&propagation),
            leader_gossip: Arc::default(),
            disk_health: Arc::clone(&health),
            watchers,
            budget: Budget::new(options.request_bytes_in_flight_max),
            cpu,
            turns: YieldSlots::for_runtime(),
            producer_ids: tokio::sync::Mutex::default(),
            config_changes: tokio::sync::Mutex::default(),
            failure: failure.clone(),
            scrubbing: Arc::clone(&scrubbing),
            backups,
            traces,
            tasks: Mutex::new(None),
            world,
        }));
        if options.cluster.is_none() {
            broker.adopted().await?;
        }
        let tracing = broker.write_traces(traced);
        let catalog = &broker.0.shards[0];
        let peers = Arc::clone(&broker.0.peers);
        let with_rows = broker.0.shards[1..].iter().map(Arc::downgrade).collect();
        let moving = moves::run(with_rows, peers, Arc::clone(&level));
        let moving = tasks::vital(Task::Moves, moving, &failure);
        let following = level::follow(
            Arc::downgrade(catalog),
            catalog.shard.document_watchers.watch(&[level::SPACE]),
            broker.0.world.clone(),
            dir.to_path_buf(),
            level,
            failure.clone(),
        );
        let levelling = tasks::vital(Task::FeatureLevel, following, &failure);
        let shards: Vec<_> = broker.0.shards.iter().map(Arc::downgrade).collect();
        let looking = disk_watchdog::run(shards.clone());
        let watchdog = tasks::vital(Task::DiskWatchdog, looking, &failure);
        let clock = Arc::clone(&broker.0.world.clock);
        let looking = scrub::run(shards.clone(), options.scrub_interval, scrubbing, clock);
        let scrubbing = tasks::vital(Task::Scrub, looking, &failure);
        let backups = Arc::downgrade(&broker.0.backups);
        let keeping = housekeeping::run(shards.clone(), backups, options.housekeeping_interval);
        let housekeeping = tasks::vital(Task::Housekeeping, keeping, &failure);
        let leading = options.cluster.as_ref().map(|node| {
            let spreading =
                leader_balance::run(Remote::new(node), Arc::clone(&health), shards.clone());
            let gossip = Arc::clone(&broker.0.leader_gossip);
            let gossip_forwarding =
                gossip_forwarding::run(gossip, Arc::clone(node), shards.clone());
            let watchers = Arc::clone(&broker.0.watchers);
            let (remote, level) = (Remote::new(node), Arc::clone(node.level()));
            let watching = remote_watch::run(remote, level, shards.clone(), watchers);
            let looking = slow_disk::run(Arc::clone(node), health, shards);
            let catalog = Arc::downgrade(&broker.0.shards[0]);
            let checking = propagation::watch(Arc::clone(&propagation), catalog);
            let weak = broker.downgrade();
            let recovering = propagation::recover(propagation, move || {
                let broker = weak.upgrade()?;
                Some(async move { broker.catalog_is_current().await }.boxed())
            });
            let tasks = [
                (Task::Leading, spreading.boxed()),
                (Task::SlowDisk, looking.boxed()),
                (Task::GroupsHeard, gossip_forwarding.boxed()),
                (Task::WatchedElsewhere, watching.boxed()),
                (Task::Propagation, checking.boxed()),
                (Task::Propagation, recovering.boxed()),
            ];
            tasks.map(|(task, run)| tasks::vital(task, run, &failure))
        });
        *broker.0.tasks.lock() = Some(Tasks {
            adopting,
            levelling,
            housekeeping,
            moving,
            watchdog,
            scrubbing,
            tracing,
            leading,
        });
        Ok(broker)
    }

    /// Returns by how many changes of the catalog a shard was behind when the directory was opened: the node ended
    /// between a change and its adoption.
    pub fn behind_at_open(&self) -> u64 {
        self.0.behind_at_open
    }

    /// For parts of the broker that would otherwise keep it alive for ever.
    pub fn downgrade(&self) -> WeakBroker {
        WeakBroker(Arc::downgrade(&self.0))
    }

    /// Returns the feature level of the cluster as known to this node, and the level that its binary supports.
    pub fn level(&self) -> &Arc<ClusterLevel> {
        &self.0.level
    }

    /// Returns the data directory, and the world with its disk.
    pub(crate) fn data(&self) -> (&World, &Path) {
        (&self.0.world, &self.0.dir)
    }

    /// Returns the catalog's shard, then those with rows.
    pub(crate) fn local_shards(&self) -> &[Arc<LocalShard>] {
        &self.0.shards
    }

    pub(crate) fn catalog_shard(&self) -> &LocalShard {
        &self.0.shards[0]
    }

    /// `None`: the node is alone.
    pub(crate) fn cluster(&self) -> Option<&cluster::Node> {
        self.0.cluster.as_deref()
    }

    pub(crate) fn peers(&self) -> &Peers {
        &self.0.peers
    }

    pub(crate) fn disk_health(&self) -> &DiskHealth {
        &self.0.disk_health
    }

    pub(crate) fn scrubbing(&self) -> &Scrubbing {
        &self.0.scrubbing
    }

    /// The backups being taken from this node.
    pub fn backups(&self) -> &Backups {
        &self.0.backups
    }

    pub(crate) fn barriers(&self) -> &Barriers {
        &self.0.barriers
    }

    pub(crate) fn propagation(&self) -> &Propagation {
        &self.0.propagation
    }

    pub(crate) fn leader_gossip(&self) -> &LeaderGossip {
        &self.0.leader_gossip
    }

    /// Waits until each shard has a known leader and has adopted the catalog.
    pub async fn ready(&self) -> Result<(), Unavailable> {
        let version = self.catalog_shard().read(|view| view.catalog.version());
        for shard in self.shards_with_rows() {
            // Founding or joining the shard makes the node a member meanwhile.
            while !shard.is_ready(version)? {
                sleep(LEADER_CHECK_INTERVAL).await;
            }
            if !shard.has_rows() {
                self.adopted_elsewhere(shard, version).await?;
            }
        }
        while self.local_shards().iter().any(|shard| shard.leader().is_none()) {
            sleep(LEADER_CHECK_INTERVAL).await;
        }
        Ok(())
    }

    /// Returns the connection to the leader of a shard with rows, by its place among those; `None` where the node is
    /// alone.
    pub(crate) fn forward_queue(&self, place: usize) -> Option<&Arc<ForwardQueue>> {
        self.0.forward_queues.get(place)
    }

    /// Creates a watch; each waiter for records needs its own.
    pub fn watch(&self) -> Watch {
        self.0.watchers.watch()
    }

    pub(crate) fn producer_ids(&self) -> &tokio::sync::Mutex<Range<i64>> {
        &self.0.producer_ids
    }

    /// Held while a configuration is read, altered and written back: the broker takes whole sets of settings.
    pub fn config_changes(&self) -> &tokio::sync::Mutex<()> {
        &self.0.config_changes
    }

    /// Waits for room for `bytes` of a request before it is read; dropping the permit returns the room.
    pub async fn admit(&self, bytes: usize) -> Permit {
        self.0.budget.admit(bytes).await
    }

    /// Pool for long work on records.
    pub fn cpu(&self) -> &CpuPool {
        &self.0.cpu
    }

    /// Scheduling slots for stepwise work on the threads that serve sockets.
    pub fn turns(&self) -> &YieldSlots {
        &self.0.turns
    }

    /// Returns the budget for produced bytes, from read to durable.
    pub fn produce_budget(&self) -> &Budget {
        &self.0.budget
    }

    pub fn storage(&self) -> std::io::Result<Storage> {
        let space = self.0.world.disk.space(&self.0.dir)?;
        Ok(Storage {
            dir: self.0.dir.clone(),
            free_bytes: space.free_bytes,
            total_bytes: space.total_bytes,
        })
    }

    /// Statistics of each shard's journal, the catalog's first.
    pub fn journal_stats(&self) -> impl Iterator<Item = journal::Stats> + '_ {
        self.local_shards().iter().map(|shard| shard.journal().stats())
    }

    pub fn node(&self) -> u32 {
        self.0.node
    }

    /// Whether there are no other nodes: then this one always leads every shard.
    pub fn is_alone(&self) -> bool {
        self.0.cluster.is_none()
    }

    pub fn cluster_id(&self) -> Arc<str> {
        Arc::clone(&self.0.cluster_id)
    }

    pub fn clock(&self) -> &dyn Clock {
        &*self.0.world.clock
    }

    /// Source of random bytes for ids, salts and secrets.
    pub fn entropy(&self) -> &dyn Entropy {
        &*self.0.world.entropy
    }

    /// Threads for blocking work.
    pub fn workers(&self) -> &Workers {
        &self.0.world.workers
    }

    /// The timeline by which dates in the log count as past.
    pub fn timeline(&self) -> &Timeline {
        &self.0.timeline
    }

    /// Resolves with the reason when the node must stop: a permanent failure of its storage or of a vital task.
    pub async fn failed(&self) -> String {
        self.0.failure.reported().await
    }

    /// Starts a task that the node cannot run without. It ends when the node stops, or when it is cancelled.
    pub fn vital(
        &self,
        task: Task,
        future: impl Future<Output = ()> + Send + 'static,
    ) -> JoinHandle<()> {
        tasks::vital(task, future, &self.0.failure)
    }

    /// Marks the node as stopping: tasks started by [`Broker::vital`] may return from now on.
    pub fn expect_ends(&self) {
        self.0.failure.expect_ends();
    }

    /// Transfers the leadership of all shards that this node leads, so that clients continue at the other nodes at
    /// once. Called before a stop; does nothing on a node that is alone.
    #[tasks::boxed]
    pub async fn hand_over(&self) {
        if let Some(cluster) = &self.0.cluster {
            leader_balance::hand_over_all(&Remote::new(cluster), self.local_shards()).await;
        }
    }

    /// Rejects new requests, completes the pending ones, and closes the journals.
    #[tasks::boxed]
    pub async fn shutdown(&self) {
        self.0.failure.expect_ends();
        let Some(tasks) = self.0.tasks.lock().take() else { return };
        tasks.levelling.abort();
        tasks.housekeeping.abort();
        tasks.moving.abort();
        tasks.watchdog.abort();
        tasks.scrubbing.abort();
        tasks.tracing.abort();
        tasks.leading.iter().flatten().for_each(JoinHandle::abort);
        tasks.adopting.iter().for_each(JoinHandle::abort);
        self.0.shards.iter().for_each(|shard| shard.refuse_requests());
        // Shards with rows need the catalog until they have ended.
        join_all(self.shards_with_rows().iter().map(|shard| shard.shutdown())).await;
        self.catalog_shard().shutdown().await;
    }

    pub(crate) fn trace_feed(&self) -> &TraceFeed {
        &self.0.traces
    }

    pub(crate) fn drivers(&self) -> &Arc<Drivers> {
        &self.0.drivers
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The tasks end with the broker.
        self.failure.expect_ends();
    }
}
