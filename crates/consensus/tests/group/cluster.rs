//! A group of several nodes in one process, in simulated time.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use consensus::{
    CatchUpPace, Consensus, ConsensusOptions, Floor, Group, GroupId, Leadership, Members, Payload,
    ProposeError, Role, Starvation, StateMachine,
};
use journal::{BatchCheck, EntryId, Journal, Options};
use parking_lot::Mutex;
use tasks::{Task, Workers};
use tokio::time::{Instant, sleep, timeout};
use world::{SeededEntropy, SimulatedDisk, World};

use crate::harness::{Ledger, small};
use crate::network::Network;
use crate::random::Random;

pub(crate) const DIR: &str = "/shard";
pub(crate) const GROUP: GroupId = GroupId { cluster: 0xC0FFEE, shard: 1 };

pub(crate) struct Cluster {
    pub(crate) network: Network,
    pub(crate) group: GroupId,
    random: Random,
    disks: BTreeMap<u64, SimulatedDisk>,
    /// Until this time writes to the disk do not return.
    hangs: BTreeMap<u64, Arc<Mutex<Instant>>>,
    pub(crate) nodes: BTreeMap<u64, RunningMember>,
    /// Floors of nodes whose logs were deleted.
    pub(crate) floors: BTreeMap<u64, Floor>,
    pub(crate) snapshot_log_bytes_min: u64,
    pub(crate) kept_log_bytes_max: u64,
    pub(crate) segment_bytes: u64,
    pub(crate) tail_cache_bytes: usize,
    pub(crate) check: BatchCheck,
    /// The observed leader of each term.
    leaders: Arc<Mutex<BTreeMap<u64, u64>>>,
}

pub(crate) struct RunningMember {
    pub(crate) consensus: Consensus,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) journal: Journal,
    pub(crate) failure: tasks::Failure,
}

/// A new runtime, in which time passes when all tasks are idle.
pub(crate) fn simulate<F: Future>(story: impl FnOnce() -> F) -> F::Output {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async { story().await })
}

pub(crate) fn address(node: u64) -> String {
    format!("node-{node}:1")
}

pub(crate) fn voters(nodes: impl IntoIterator<Item = u64>) -> Members {
    Members::voting(nodes.into_iter().map(|node| (node, address(node))))
}

impl Cluster {
    /// A cluster without running nodes.
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        Self {
            network: Network::new(random.number()),
            group: GROUP,
            random,
            disks: BTreeMap::new(),
            hangs: BTreeMap::new(),
            nodes: BTreeMap::new(),
            floors: BTreeMap::new(),
            snapshot_log_bytes_min: u64::MAX,
            kept_log_bytes_max: 1 << 30,
            segment_bytes: small().segment_bytes,
            tail_cache_bytes: small().tail_cache_bytes,
            check: small().check,
            leaders: Arc::default(),
        }
    }

    /// Nodes 1 to `count`, all of which vote, and one of which leads.
    pub(crate) async fn founded(seed: u64, count: u64) -> Self {
        let mut cluster = Self::new(seed);
        for node in 1..=count {
            cluster.start(node).await;
        }
        cluster.consensus(1).found(voters(1..=count)).await.unwrap();
        cluster.leader().await;
        cluster
    }

    pub(crate) async fn start(&mut self, node: u64) {
        let disk = self.disks.entry(node).or_default().clone();
        let hangs = self.hangs.entry(node).or_insert_with(|| Arc::new(Mutex::new(Instant::now())));
        let world = World {
            entropy: Arc::new(SeededEntropy::new(self.random.number())),
            workers: Workers::Tasks(Arc::new(durations(self.random.number(), Arc::clone(hangs)))),
            ..World::on(Arc::new(disk))
        };
        let options = self.journal_options();
        let opened = Journal::open(&world, Path::new(DIR), options).expect("the journal opens");
        let journal = opened.journal.clone();
        let ledger = Arc::new(Ledger::default());
        ledger.set_journal(&journal);
        let failure = tasks::Failure::new();
        let way = self.network.way_of(node);
        let options = ConsensusOptions {
            snapshot_log_bytes_min: self.snapshot_log_bytes_min,
            snapshot_changes_min: u64::MAX,
            kept_log_bytes_max: self.kept_log_bytes_max,
            node: failure.clone(),
            group: Some(Group {
                id: self.group,
                peers: Arc::clone(&way) as _,
                pace: CatchUpPace::default(),
                starvation: Starvation::default(),
            }),
            floor: self.floors.get(&node).copied(),
        };
        let machine: Arc<dyn StateMachine> = Arc::clone(&ledger) as _;
        let consensus = Consensus::start(&world, node, opened, machine, options).await;
        let consensus = consensus.expect("it starts");
        self.network.join(&way, consensus.clone());
        let (leaders, mut role) = (Arc::clone(&self.leaders), consensus.role());
        tokio::spawn(async move {
            loop {
                if let Role::Leader { term } = *role.borrow_and_update() {
                    let led = *leaders.lock().entry(term).or_insert(node);
                    assert_eq!(led, node, "two lead in term {term}");
                }
                if role.changed().await.is_err() {
                    return;
                }
            }
        });
        self.nodes.insert(node, RunningMember { consensus, ledger, journal, failure });
    }

    fn journal_options(&self) -> Options {
        Options {
            keep_log: true,
            repairable: true,
            segment_bytes: self.segment_bytes,
            tail_cache_bytes: self.tail_cache_bytes,
            check: self.check,
            ..small()
        }
    }

    /// The floor of a node that does not run.
    pub(crate) async fn floor_of(&self, node: u64) -> Floor {
        let world = World::on(Arc::new(self.disk(node).clone()));
        let opened = Journal::open(&world, Path::new(DIR), self.journal_options());
        let journal = opened.expect("the journal opens").journal;
        let floor = Floor::of(&journal).expect("it is what was written");
        journal.close();
        floor
    }

    /// The node loses power, and restarts with its log deleted and an empty one.
    pub(crate) async fn step_down(&mut self, node: u64) {
        self.kill(node);
        let floor = self.floor_of(node).await;
        self.floors.insert(node, floor);
        self.disks.insert(node, SimulatedDisk::new());
        self.start(node).await;
    }

    pub(crate) fn disk(&self, node: u64) -> &SimulatedDisk {
        &self.disks[&node]
    }

    /// The power of this node fails.
    pub(crate) fn kill(&mut self, node: u64) {
        self.network.leave(node);
        if self.nodes.remove(&node).is_some() {
            let disk = self.disks[&node].power_loss(self.random.number());
            self.disks.insert(node, disk);
        }
    }

    /// Delays the acknowledgement of this node's writes.
    pub(crate) fn hang(&self, node: u64, takes: Duration) {
        *self.hangs[&node].lock() = Instant::now() + takes;
    }

    pub(crate) fn consensus(&self, node: u64) -> Consensus {
        self.nodes[&node].consensus.clone()
    }

    pub(crate) fn role(&self, node: u64) -> Role {
        *self.nodes[&node].consensus.role().borrow()
    }

    /// The leader of the latest term, as far as it knows.
    pub(crate) fn now_leads(&self) -> Option<(u64, u64)> {
        let led = self.nodes.keys().filter_map(|node| match self.role(*node) {
            Role::Leader { term } => Some((term, *node)),
            _ => None,
        });
        led.max().map(|(term, node)| (node, term))
    }

    /// Waits for a leader that may propose.
    pub(crate) async fn leader(&self) -> (u64, Leadership) {
        let leading = async {
            loop {
                if let Some((node, _)) = self.now_leads() {
                    let leadership = self.nodes[&node].consensus.leadership();
                    if let Ok(Ok(leadership)) = timeout(Duration::from_secs(1), leadership).await {
                        return (node, leadership);
                    }
                }
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(Duration::from_secs(30), leading).await.expect("somebody is elected")
    }

    /// Waits until all running nodes have applied the same entries, with `head` among them.
    pub(crate) async fn all_have(&self, head: &Bytes) {
        self.all_have_but(head, &[]).await;
    }

    /// The same without some of them.
    pub(crate) async fn all_have_but(&self, head: &Bytes, without: &[u64]) {
        let same = async {
            loop {
                let asked = self.nodes.iter().filter(|(node, _)| !without.contains(node));
                let heads: Vec<_> = asked.map(|(_, node)| node.ledger.heads()).collect();
                let first = &heads[0];
                if first.contains(head) && heads.iter().all(|heads| heads == first) {
                    return;
                }
                sleep(Duration::from_millis(10)).await;
            }
        };
        if timeout(Duration::from_secs(60), same).await.is_err() {
            let states = self.nodes.iter().map(|(id, node)| {
                let RunningMember { consensus, ledger, journal, .. } = node;
                let (first, last) = (journal.purged_id(), journal.last_id());
                let catching_up = consensus.catching_up();
                let role = *consensus.role().borrow();
                format!("{id} {role:?}: {} in {first:?}..={last:?}, {catching_up:?}", ledger.len())
            });
            panic!("they do not come to have the same: {:#?}", states.collect::<Vec<_>>());
        }
    }
}

pub(crate) async fn propose(
    leadership: &Leadership,
    head: impl Into<Bytes>,
) -> Result<EntryId, ProposeError> {
    let payload = Payload { head: head.into(), bodies: vec![], ticket: 0 };
    leadership.propose(payload).await?.await
}

/// Duration of a piece of blocking work.
fn durations(
    seed: u64,
    hangs: Arc<Mutex<Instant>>,
) -> impl Fn(Task) -> Duration + Send + Sync + use<> {
    let random = Mutex::new(Random(seed));
    move |task| {
        let hang = hangs.lock().saturating_duration_since(Instant::now());
        let writes = matches!(task, Task::JournalWriter | Task::ConsensusDisk);
        match random.lock().below(8) {
            _ if writes && !hang.is_zero() => hang,
            0..6 => Duration::ZERO,
            6 => Duration::from_millis(1),
            _ => Duration::from_millis(4),
        }
    }
}
