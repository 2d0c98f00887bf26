//! The handle that gateways hold, and how a node opens.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use base::limits::SEGMENT_BYTES_DEFAULT;
use consensus::{Consensus, ConsensusOptions};
use journal::Journal;
use machine::{Command, Outcome, State};
use parking_lot::Mutex;
use tasks::{Failure, Task};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use world::{Clock, Entropy, Workers, World};

use crate::append::{AppendBatch, AppendReply};
use crate::budget::{Budget, Permit};
use crate::cluster;
use crate::cpu::CpuPool;
use crate::delivery::driver::{self, Message};
use crate::error::{ExecuteError, OpenError, Unavailable};
use crate::housekeeping;
use crate::sequencer::{Request, Sequencer};
use crate::shard::Shard;
use crate::timeline::Timeline;
use crate::turns::Turns;
use crate::watch::Watch;
use crate::watchdog;

#[derive(Clone, Debug)]
pub struct BrokerOptions {
    /// This node's id in the cluster.
    pub node: u32,
    pub journal: journal::Options,
    /// Bytes of produce requests between socket and disk, for the whole node.
    pub request_bytes_in_flight_max: usize,
    /// How often retention, compaction and space are looked after.
    pub housekeeping_interval: Duration,
}

impl Default for BrokerOptions {
    fn default() -> Self {
        Self {
            node: 1,
            journal: journal::Options::default(),
            request_bytes_in_flight_max: base::limits::PRODUCE_BYTES_IN_FLIGHT_MAX,
            housekeeping_interval: Duration::from_secs(1),
        }
    }
}

/// One node's broker. Clones share it.
#[derive(Clone, Debug)]
pub struct Broker(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    node: u32,
    cluster_id: Arc<str>,
    world: World,
    timeline: Arc<Timeline>,
    dir: PathBuf,
    shard: Arc<Shard>,
    consensus: Consensus,
    /// None once the broker shuts down.
    requests: Mutex<Option<mpsc::UnboundedSender<Request>>>,
    budget: Budget,
    cpu: CpuPool,
    turns: Turns,
    delivery: driver::Handle,
    failure: Failure,
    /// None once the broker shut down.
    tasks: Mutex<Option<Tasks>>,
}

#[derive(Debug)]
struct Tasks {
    delivering: JoinHandle<()>,
    sequencing: JoinHandle<()>,
    housekeeping: JoinHandle<()>,
    watchdog: JoinHandle<()>,
}

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
    /// Opens the data directory, recovers what a crash left, and leads. Ready when it returns.
    pub async fn open(world: World, dir: &Path, options: BrokerOptions) -> Result<Self, OpenError> {
        world.disk.create_dir(dir).map_err(|source| OpenError::Io {
            doing: format!("making the data directory {}", dir.display()),
            source,
        })?;
        // The catalog is shard 0; a single node keeps its partitions there too.
        let opened = journal::Journal::open(&world, &dir.join("shard-0"), options.journal.clone())?;
        let cluster_id = cluster::open(&world, dir)?;
        let journal = opened.journal.clone();
        let failure = Failure::new();
        let failing = failure.clone();
        journal.on_fatal(move |failed| failing.report(failed.to_string()));
        let shard = Arc::new(Shard::new(journal));
        // What the log still claims cannot be reclaimed: with small segments that is little, too.
        let snapshot_log_bytes_min = options.journal.segment_bytes.min(SEGMENT_BYTES_DEFAULT);
        let consensus = Consensus::start(
            &world,
            u64::from(options.node),
            opened,
            Arc::clone(&shard) as Arc<dyn consensus::StateMachine>,
            ConsensusOptions {
                snapshot_log_bytes_min,
                node: failure.clone(),
                ..ConsensusOptions::default()
            },
        )
        .await?;
        let (requests, inbox) = mpsc::unbounded_channel();
        let cpu = CpuPool::new(world.workers.clone());
        let sequencer = Sequencer::new(
            Arc::clone(&shard),
            consensus.clone(),
            Arc::clone(&world.clock),
            cpu.clone(),
            inbox,
        );
        let sequencing = tasks::vital(Task::Sequencer, sequencer.run(), &failure);
        let (delivery, messages) = driver::Handle::new();
        let _ = shard.delivery.set(delivery.clone());
        let timeline = Arc::new(Timeline::new(Arc::clone(&world.clock)));
        let parts = driver::Parts {
            shard: Arc::clone(&shard),
            consensus: consensus.clone(),
            clock: Arc::clone(&world.clock),
            workers: world.workers.clone(),
            timeline: Arc::clone(&timeline),
            requests: requests.clone(),
            handle: delivery.clone(),
            sleep_max: options.housekeeping_interval,
        };
        let delivering = tasks::vital(Task::Delivery, driver::run(parts, messages), &failure);
        let broker = Self(Arc::new(Inner {
            node: options.node,
            cluster_id,
            world,
            timeline,
            dir: dir.to_path_buf(),
            shard,
            consensus,
            requests: Mutex::new(Some(requests)),
            budget: Budget::new(options.request_bytes_in_flight_max),
            cpu,
            turns: Turns::of_runtime(),
            delivery,
            failure: failure.clone(),
            tasks: Mutex::new(None),
        }));
        let weak = WeakBroker(Arc::downgrade(&broker.0));
        let looking = watchdog::run(weak.clone());
        let watchdog = tasks::vital(Task::DiskWatchdog, looking, &failure);
        let keeping = housekeeping::run(weak, options.housekeeping_interval);
        let housekeeping = tasks::vital(Task::Housekeeping, keeping, &failure);
        *broker.0.tasks.lock() = Some(Tasks { delivering, sequencing, housekeeping, watchdog });
        Ok(broker)
    }

    /// For what the broker itself holds, and would otherwise hold it for ever.
    pub fn downgrade(&self) -> WeakBroker {
        WeakBroker(Arc::downgrade(&self.0))
    }

    pub(crate) fn shard(&self) -> &Shard {
        &self.0.shard
    }

    /// Asks the machine. Keep the question short: an apply waits for it.
    pub(crate) fn read<R>(&self, question: impl FnOnce(&State) -> R) -> R {
        self.0.shard.read(question)
    }

    /// Puts a command into the log and answers what it led to, once it is durable and applied.
    pub(crate) async fn execute(&self, command: Command) -> Result<Outcome, ExecuteError> {
        let (reply, answer) = oneshot::channel();
        self.request(Request::Execute { command, reply })?;
        answer.await.unwrap_or(Err(ExecuteError::Unavailable(Unavailable::Stopping)))
    }

    /// The same for a command whose outcome says more than that it was done: `part` takes that out.
    /// The machine answers a command with the outcome of its kind, so `part` meets no other.
    pub(crate) async fn execute_for<T>(
        &self,
        command: Command,
        part: impl FnOnce(Outcome) -> Option<T>,
    ) -> Result<T, ExecuteError> {
        let outcome = self.execute(command).await?;
        Ok(part(outcome).expect("the machine answers a command with the outcome of its kind"))
    }

    /// Appends one producer's request, all of it in one place in the order: the place is taken
    /// when this is called, the answer comes when the records are as durable as promised.
    pub fn append(&self, batches: Vec<AppendBatch>) -> AppendReply {
        let (reply, answer) = oneshot::channel();
        let answer = AppendReply::new(batches.iter().map(AppendBatch::rows).sum(), answer);
        // When the broker is stopping the request is dropped, and with it the sender of the answer.
        let _ = self.request(Request::Append { batches, reply });
        answer
    }

    fn request(&self, request: Request) -> Result<(), Unavailable> {
        match &*self.0.requests.lock() {
            Some(requests) => requests.send(request).map_err(|_| Unavailable::Stopping),
            None => Err(Unavailable::Stopping),
        }
    }

    /// Who waits for records makes a watch of its own.
    pub fn watch(&self) -> Watch {
        self.0.shard.watchers.watch()
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

    pub fn journal_stats(&self) -> journal::Stats {
        self.journal().stats()
    }

    /// Ends the term in which this node leads, and begins another one: a pause for whoever writes or waits
    /// for records, and no more. Returns the new term, once this node leads in it.
    pub async fn elect_anew(&self) -> Result<u64, Unavailable> {
        self.0.consensus.elect_anew().await.map_err(|error| Unavailable::from(&error))
    }

    /// The newest term in which something was applied: the leader epoch of the batches.
    pub fn leader_epoch(&self) -> i32 {
        self.0.consensus.term() as i32
    }

    pub fn node(&self) -> u32 {
        self.0.node
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

    /// Takes no more requests, answers those that are under way, and closes the journal.
    pub async fn shutdown(&self) {
        self.0.requests.lock().take();
        self.0.failure.expect_ends();
        let Some(tasks) = self.0.tasks.lock().take() else { return };
        tasks.housekeeping.abort();
        tasks.watchdog.abort();
        // What was settled before is made durable, which needs the sequencer.
        self.0.delivery.tell(Message::Stop);
        let _ = tasks.delivering.await;
        // The sequencer ends by itself, once all that it proposed is answered.
        let _ = tasks.sequencing.await;
        self.0.consensus.shutdown().await;
        self.journal().close();
    }

    /// Saves the machine's state, which frees older segments from the log's claim.
    pub(crate) async fn save_snapshot(&self) -> std::io::Result<()> {
        self.0.consensus.snapshot_now().await.map_err(std::io::Error::other)
    }

    pub(crate) fn delivery(&self) -> &driver::Handle {
        &self.0.delivery
    }

    /// The place after the last entry of the shard's log.
    pub fn log_end(&self) -> u64 {
        self.journal().last_id().map_or(0, |last| last.index + 1)
    }

    pub(crate) fn journal(&self) -> &Journal {
        &self.0.shard.journal
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Its tasks end with it.
        self.failure.expect_ends();
    }
}
