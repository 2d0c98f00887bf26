//! The handle that gateways hold, and how a node opens.

use std::future::Future;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use base::{ClusterLevel, ShardId};
use futures_util::FutureExt;
use futures_util::future::join_all;
use machine::Role;
use parking_lot::Mutex;
use tasks::{Failure, Task};
use tokio::task::JoinHandle;
use tokio::time::sleep;
use world::{Clock, Entropy, Workers, World};

use crate::backups::Backups;
use crate::barrier::Barriers;
use crate::budget::{Budget, Permit};
use crate::cpu::CpuPool;
use crate::delivery::drivers::Drivers;
use crate::delivery::traced::TraceFeed;
use crate::disk_health::DiskHealth;
use crate::error::{OpenError, Unavailable};
use crate::forwarding::Line;
use crate::hearsay::Hearsay;
use crate::local_shard::{Common, LocalShard};
use crate::peers::Peers;
use crate::proxy::LedHere;
use crate::remote::Remote;
use crate::scrub::Scrubbing;
use crate::timeline::Timeline;
use crate::turns::Turns;
use crate::watch::{Watch, Watchers};
use crate::{
    adoption, cluster_id, founding, hearing, housekeeping, layout, leading, level, majority_report,
    moves, scrub, slow_disk, watch_elsewhere, watchdog,
};

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
    /// The catalog's, then those with rows in the order of their numbers.
    shards: Vec<Arc<LocalShard>>,
    peers: Arc<Peers>,
    level: Arc<ClusterLevel>,
    /// To the leader of each shard with rows. Empty where the node is alone.
    lines: Vec<Arc<Line>>,
    barriers: Barriers,
    hearsay: Arc<Hearsay>,
    disk_health: Arc<DiskHealth>,
    behind_at_open: u64,
    drivers: Arc<Drivers>,
    watchers: Arc<Watchers>,
    budget: Budget,
    cpu: CpuPool,
    turns: Turns,
    /// Producer ids that are this node's to give.
    producer_ids: tokio::sync::Mutex<Range<i64>>,
    failure: Failure,
    scrubbing: Arc<Scrubbing>,
    backups: Arc<Backups>,
    traces: TraceFeed,
    /// None once the broker shut down.
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
    /// Where there are other nodes that may lead.
    leading: Option<[JoinHandle<()>; 4]>,
}

/// The pause between two looks for a leader.
const LEADER_LOOK_EVERY: Duration = Duration::from_millis(10);

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
    /// Opens the data directory, recovers what a crash left, and leads. Ready when it returns, unless it is a
    /// member of a cluster: then it knows the catalog, and [`Broker::ready`] waits for the rest.
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
        let health = Arc::<DiskHealth>::default();
        let led_here = LedHere::new(&peers, &health);
        if let Some(cluster) = &options.cluster {
            cluster.groups().serve_proxy(Arc::clone(&led_here) as _);
        }
        let (traces, traced) = TraceFeed::new();
        let common = Common {
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
        layout::prepare(&common).await?;
        let cluster_id = cluster_id::open(&world, dir, options.cluster.as_deref())?;
        let catalog = LocalShard::start(&common, Role::Catalog, None).await?;
        let mut shards = vec![Arc::new(catalog)];
        if let Some(node) = &options.cluster {
            let reporting =
                majority_report::report(Arc::downgrade(node), Arc::downgrade(&shards[0]));
            tasks::spawn(Task::Leading, reporting);
        }
        let shard_count = match founding::shards(&shards[0], &options).await {
            Ok(count) => count,
            Err(error) => return Err(founding::give_up(&shards, &failure, error).await),
        };
        // Before anything is asked of the shards: what they hold may be of a level that this program cannot.
        if let Err(error) = level::reach(&shards[0], &world, dir, &level).await {
            return Err(founding::give_up(&shards, &failure, error).await);
        }
        let version = shards[0].read(|view| view.catalog.version());
        let mut behind_at_open = 0;
        led_here.set_catalog(&shards[0]);
        let mut adopting = Vec::new();
        for shard in (1..=shard_count).map(ShardId) {
            let catalog = &shards[0].shard;
            let local = match founding::shard(&common, shard, catalog).await {
                Ok(local) => Arc::new(local),
                Err(error) => return Err(founding::give_up(&shards, &failure, error).await),
            };
            behind_at_open =
                behind_at_open.max(version.saturating_sub(local.adopted.borrow().version));
            catalog.lead_on(&local.shard);
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
        let lines = options
            .cluster
            .iter()
            .flat_map(|node| shards[1..].iter().filter_map(|shard| Line::new(shard, node)));
        let lines = lines.collect();
        let broker = Self(Arc::new(Inner {
            lines,
            drivers,
            behind_at_open,
            node: options.node,
            cluster: options.cluster.clone(),
            cluster_id,
            timeline,
            dir: dir.to_path_buf(),
            shards,
            peers,
            level: Arc::clone(&level),
            barriers: Barriers::default(),
            hearsay: Arc::default(),
            disk_health: Arc::clone(&health),
            watchers,
            budget: Budget::new(options.request_bytes_in_flight_max),
            cpu,
            turns: Turns::of_runtime(),
            producer_ids: tokio::sync::Mutex::default(),
            failure: failure.clone(),
            scrubbing: Arc::clone(&scrubbing),
            backups: Arc::default(),
            traces,
            tasks: Mutex::new(None),
            world,
        }));
        led_here.set_backups(Arc::new(broker.downgrade()));
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
        let looking = watchdog::run(shards.clone());
        let watchdog = tasks::vital(Task::DiskWatchdog, looking, &failure);
        let clock = Arc::clone(&broker.0.world.clock);
        let looking = scrub::run(shards.clone(), options.scrub_interval, scrubbing, clock);
        let scrubbing = tasks::vital(Task::Scrub, looking, &failure);
        let backups = Arc::clone(&broker.0.backups);
        let keeping = housekeeping::run(shards.clone(), backups, options.housekeeping_interval);
        let housekeeping = tasks::vital(Task::Housekeeping, keeping, &failure);
        let leading = options.cluster.as_ref().map(|node| {
            let spreading = leading::run(Remote::new(node), Arc::clone(&health), shards.clone());
            let heard = Arc::clone(&broker.0.hearsay);
            let hearing = hearing::run(heard, Arc::clone(node), shards.clone());
            let watchers = Arc::clone(&broker.0.watchers);
            let watching = watch_elsewhere::run(Remote::new(node), shards.clone(), watchers);
            let looking = slow_disk::run(Arc::clone(node), health, shards);
            let tasks = [
                (Task::Leading, spreading.boxed()),
                (Task::SlowDisk, looking.boxed()),
                (Task::GroupsHeard, hearing.boxed()),
                (Task::WatchedElsewhere, watching.boxed()),
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

    /// So many changes of the catalog a shard had not when the directory was opened: the node ended between a
    /// change and its adoption.
    pub fn behind_at_open(&self) -> u64 {
        self.0.behind_at_open
    }

    /// For what the broker itself holds, and would otherwise hold it for ever.
    pub fn downgrade(&self) -> WeakBroker {
        WeakBroker(Arc::downgrade(&self.0))
    }

    /// At which feature level the cluster is as far as this node knows, and what its binary can.
    pub fn level(&self) -> &Arc<ClusterLevel> {
        &self.0.level
    }

    /// The data directory, and the disk that it is on.
    pub(crate) fn data(&self) -> (&World, &Path) {
        (&self.0.world, &self.0.dir)
    }

    /// The catalog's, then those with rows.
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

    pub(crate) fn backups(&self) -> &Backups {
        &self.0.backups
    }

    pub(crate) fn barriers(&self) -> &Barriers {
        &self.0.barriers
    }

    pub(crate) fn hearsay(&self) -> &Hearsay {
        &self.0.hearsay
    }

    /// Waits until each shard is led by a node that this one knows, and has taken over the catalog.
    pub async fn ready(&self) -> Result<(), Unavailable> {
        let version = self.catalog_shard().read(|view| view.catalog.version());
        for shard in self.shards_with_rows() {
            // A node that founds the shard with others, or joins it, becomes a member meanwhile.
            while !shard.is_ready(version)? {
                sleep(LEADER_LOOK_EVERY).await;
            }
            if !shard.has_rows() {
                self.adopted_elsewhere(shard, version).await?;
            }
        }
        while self.local_shards().iter().any(|shard| shard.leader().is_none()) {
            sleep(LEADER_LOOK_EVERY).await;
        }
        Ok(())
    }

    /// To the leader of a shard with rows, by its place among those; `None` where the node is alone.
    pub(crate) fn line(&self, place: usize) -> Option<&Arc<Line>> {
        self.0.lines.get(place)
    }

    /// Who waits for records makes a watch of its own.
    pub fn watch(&self) -> Watch {
        self.0.watchers.watch()
    }

    pub(crate) fn producer_ids(&self) -> &tokio::sync::Mutex<Range<i64>> {
        &self.0.producer_ids
    }

    /// Room for `bytes` of a request that is about to be read; given back when dropped.
    pub async fn admit(&self, bytes: usize) -> Permit {
        self.0.budget.admit(bytes).await
    }

    /// For work on records that takes long.
    pub fn cpu(&self) -> &CpuPool {
        &self.0.cpu
    }

    /// For work in steps on the threads that serve sockets.
    pub fn turns(&self) -> &Turns {
        &self.0.turns
    }

    /// The budget of what producers send, from read to durable.
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

    /// Of each shard's journal, the catalog's first.
    pub fn journal_stats(&self) -> impl Iterator<Item = journal::Stats> + '_ {
        self.local_shards().iter().map(|shard| shard.journal().stats())
    }

    pub fn node(&self) -> u32 {
        self.0.node
    }

    /// Whether there are no other nodes: then this one leads everything, always.
    pub fn is_alone(&self) -> bool {
        self.0.cluster.is_none()
    }

    pub fn cluster_id(&self) -> Arc<str> {
        Arc::clone(&self.0.cluster_id)
    }

    pub fn clock(&self) -> &dyn Clock {
        &*self.0.world.clock
    }

    /// Random bytes: for ids, salts and secrets.
    pub fn entropy(&self) -> &dyn Entropy {
        &*self.0.world.entropy
    }

    /// For work that blocks.
    pub fn workers(&self) -> &Workers {
        &self.0.world.workers
    }

    /// What dates in the log are compared with to tell whether they are long past.
    pub fn timeline(&self) -> &Timeline {
        &self.0.timeline
    }

    /// Resolves with the reason when the node must stop: its storage failed for good, or a part
    /// of it that nothing works without.
    pub async fn failed(&self) -> String {
        self.0.failure.reported().await
    }

    /// Starts a task that the node cannot do without. It ends when the node is told to stop, or
    /// when it is cancelled.
    pub fn vital(
        &self,
        task: Task,
        future: impl Future<Output = ()> + Send + 'static,
    ) -> JoinHandle<()> {
        tasks::vital(task, future, &self.0.failure)
    }

    /// The node is told to stop: what is started by [`Broker::vital`] may return from now on.
    pub fn expect_ends(&self) {
        self.0.failure.expect_ends();
    }

    /// Hands over what this node leads, so that clients go on with the others at once. For a node that is about to
    /// stop; one that is alone has nobody to hand over to.
    pub async fn hand_over(&self) {
        if let Some(cluster) = &self.0.cluster {
            leading::hand_all_over(&Remote::new(cluster), self.local_shards()).await;
        }
    }

    /// Takes no more requests, answers those that are under way, and closes the journals.
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
        // Those with rows go by the catalog to their end.
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
        // Its tasks end with it.
        self.failure.expect_ends();
    }
}
