//! A shard on this node: its journal, its part in consensus, its sequencer, and the handle of its driver of leases.
//!
//! The opening of a node creates it. It serves requests until its [`shutdown`](LocalShard::shutdown).

use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use base::ShardId;
use consensus::Consensus;
use journal::Journal;
use machine::{Command, Outcome};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use world::Workers;

use crate::barrier::{Barriers, CatalogVersions};
use crate::cpu::CpuPool;
use crate::delivery::handle::{Handle, Message};
use crate::delivery::history::{HistoryQuery, HistoryReply};
use crate::error::{ExecuteError, Unavailable};
use crate::request::Request;
use crate::state_machine::{Shard, View};
use crate::timeline::Timeline;
use crate::watch::Watchers;

mod leader_report;
mod leadership_transfer;
mod membership;
mod removed_replica;

pub use leader_report::{NewestReport, ReportedGroup};
pub use removed_replica::{RemovedReplica, ReplicaFiles};

/// Longest time for which a stopping node waits for its earlier proposals while another node, or none, leads.
const ANSWERED_ELSEWHERE_WITHIN: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub struct LocalShard {
    id: ShardId,
    pub shard: Arc<Shard>,
    pub consensus: Consensus,
    timeline: Arc<Timeline>,
    workers: Workers,
    cpu: CpuPool,
    requests: Mutex<Requests>,
    /// `None` after shutdown.
    tasks: Mutex<Option<ShardTasks>>,
    pub adopted: watch::Sender<AdoptionProgress>,
    node: u32,
    /// This node's role in the shard's group; `None` where it is alone.
    role: Option<watch::Receiver<consensus::Role>>,
    /// Barriers for reads of its replica.
    pub reads: Barriers,
    /// The newest gossip on the shard's group.
    pub newest_report: watch::Sender<Option<NewestReport>>,
    cluster: Option<Arc<cluster::Node>>,
    /// The last removal of the shard's replica from this node.
    removed: Mutex<Option<RemovedReplica>>,
}

/// Parts of a [`LocalShard`].
#[derive(Debug)]
pub struct LocalShardParts {
    pub shard: Arc<Shard>,
    pub consensus: Consensus,
    pub timeline: Arc<Timeline>,
    pub workers: Workers,
    pub cpu: CpuPool,
    /// The channel to the sequencer.
    pub requests: mpsc::UnboundedSender<Request>,
    pub tasks: ShardTasks,
    pub node: u32,
    /// `None`: the node is alone.
    pub cluster: Option<Arc<cluster::Node>>,
    pub removed: Option<RemovedReplica>,
}

/// Tasks of a shard.
#[derive(Debug)]
pub struct ShardTasks {
    pub sequencer: JoinHandle<()>,
    /// `None` for the catalog, which has no records.
    pub driver: Option<JoinHandle<()>>,
    /// Pushes the messages to other shards.
    pub pusher: Option<JoinHandle<()>>,
}

/// Progress of a shard's rows in adopting the catalog.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AdoptionProgress {
    /// The adopted version of the catalog.
    pub version: u64,
    /// No further version will be adopted: the node is shutting down.
    pub ended: bool,
}

/// The channel to the sequencer.
#[derive(Debug)]
struct Requests {
    /// `None` once the shard shuts down.
    sender: Option<mpsc::UnboundedSender<Request>>,
    /// Number of transfers of leadership in progress.
    holds: u32,
}

impl Requests {
    fn send(&self, request: Request) -> Result<(), Unavailable> {
        let sender = self.sender.as_ref().ok_or(Unavailable::Stopping)?;
        sender.send(request).map_err(|_| Unavailable::Stopping)
    }
}

impl LocalShard {
    pub fn new(parts: LocalShardParts) -> Self {
        let LocalShardParts { shard, consensus, cluster, .. } = parts;
        let (id, version) = shard.read(|view| (view.shard, view.rows.adopted()));
        Self {
            id,
            timeline: parts.timeline,
            workers: parts.workers,
            cpu: parts.cpu,
            requests: Mutex::new(Requests { sender: Some(parts.requests), holds: 0 }),
            tasks: Mutex::new(Some(parts.tasks)),
            adopted: watch::Sender::new(AdoptionProgress { version, ended: false }),
            node: parts.node,
            role: cluster.is_some().then(|| consensus.role()),
            reads: Barriers::default(),
            newest_report: watch::Sender::default(),
            cluster,
            removed: Mutex::new(parts.removed),
            shard,
            consensus,
        }
    }

    /// Returns the directory of a shard's files.
    pub fn dir(dir: &Path, shard: ShardId) -> PathBuf {
        dir.join(format!("shard-{}", shard.0))
    }

    pub fn id(&self) -> ShardId {
        self.id
    }

    /// Reads the machine's state. `query` must be short: an apply waits for it.
    pub fn read<R>(&self, query: impl FnOnce(&View<'_>) -> R) -> R {
        self.shard.read(query)
    }

    /// Proposes a command and returns the outcome, once it is durable and applied.
    pub async fn execute(&self, command: Command) -> Result<Outcome, ExecuteError> {
        let (reply, answer) = oneshot::channel();
        self.request(Request::Execute { command, reply })?;
        answer.await.unwrap_or(Err(ExecuteError::Unavailable(Unavailable::Stopping)))
    }

    pub fn request(&self, request: Request) -> Result<(), Unavailable> {
        self.requests.lock().send(request)
    }

    pub fn journal(&self) -> &Journal {
        &self.shard.journal
    }

    pub fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    /// For the shard's leader: the index up to which its log is applied, including all that was acknowledged before
    /// the call.
    pub async fn read_index(&self) -> Result<u64, Unavailable> {
        self.shard.pending.apply_answered().await;
        let index = self.consensus.read_index().await;
        index.map_err(|error| Unavailable::from(&error))
    }

    /// Confirms this node's leadership of the catalog, and returns the catalog's version.
    pub async fn versions_now(&self) -> Result<CatalogVersions, Unavailable> {
        self.consensus.read_index().await.map_err(|error| Unavailable::from(&error))?;
        Ok(self.read(|view| CatalogVersions::of(view.catalog)))
    }

    /// Returns this node's knowledge of a record. The driver replies within `within`.
    pub async fn record_history(&self, query: HistoryQuery, within: Duration) -> HistoryReply {
        let Some(delivery) = self.delivery() else { return HistoryReply::default() };
        let mut standings = None;
        if self.is_led_here() {
            let (reply, answer) = oneshot::channel();
            delivery.send(Message::RecordHistory { query: query.clone(), reply });
            // No reply if it is no longer the leader.
            standings = timeout(within, answer).await.ok().and_then(Result::ok);
        }
        let now_ms = delivery.timeline.shifts().wall(delivery.timeline.now_ms());
        let ring = delivery.history.lock();
        HistoryReply { standings, since_ms: ring.since_ms(now_ms), past: ring.of(&query) }
    }

    /// Threads for blocking work.
    pub fn workers(&self) -> &Workers {
        &self.workers
    }

    /// Pool for long work on records.
    pub fn cpu(&self) -> &CpuPool {
        &self.cpu
    }

    pub fn watchers(&self) -> &Arc<Watchers> {
        &self.shard.watchers
    }

    /// Handle of the driver of leases; `None` for the catalog, which has no records.
    pub fn delivery(&self) -> Option<&Handle> {
        self.shard.delivery.get()
    }

    /// Saves the machine's state, which frees older segments from the log's claim.
    pub async fn save_snapshot(&self) -> std::io::Result<()> {
        self.consensus.snapshot_now().await.map_err(std::io::Error::other)
    }

    /// Closes the shard for requests.
    pub fn refuse_requests(&self) {
        if let Some(requests) = self.requests.lock().sender.take() {
            let _ = requests.send(Request::Closing);
        }
        if let Some(ShardTasks { pusher: Some(pusher), .. }) = &*self.tasks.lock() {
            // Unacknowledged messages are sent again by the next start.
            pusher.abort();
        }
        self.shard.outgoing.close();
        self.adopted.send_modify(|adopted| adopted.ended = true);
    }

    /// Waits until the rows have adopted this version of the catalog.
    pub async fn adopts(&self, version: u64) -> Result<(), Unavailable> {
        let mut adopted = self.adopted.subscribe();
        let reached = adopted.wait_for(|it| it.ended || it.version >= version).await;
        match reached {
            Ok(reached) if reached.version >= version => Ok(()),
            _ => Err(Unavailable::Stopping),
        }
    }

    /// Whether the rows have adopted this version of the catalog; without rows on this node, whether a leader is
    /// known.
    pub fn is_ready(&self, version: u64) -> Result<bool, Unavailable> {
        if !self.has_rows() {
            return Ok(self.leader().is_some());
        }
        let adopted = *self.adopted.borrow();
        match adopted.version >= version {
            true => Ok(true),
            false if adopted.ended => Err(Unavailable::Stopping),
            false => Ok(false),
        }
    }

    /// Completes the pending requests, and closes the journal.
    pub async fn shutdown(&self) {
        self.refuse_requests();
        let Some(tasks) = self.tasks.lock().take() else { return };
        let mut ending = pin!(async {
            if let (Some(delivery), Some(driver)) = (self.delivery(), tasks.driver) {
                // Earlier settles are made durable, which needs the sequencer.
                delivery.send(Message::Stop);
                let _ = driver.await;
            }
            // The sequencer ends once all of its proposals are answered.
            let _ = tasks.sequencer.await;
        });
        let led_elsewhere = async {
            self.consensus.leads_no_more().await;
            sleep(ANSWERED_ELSEWHERE_WITHIN).await;
        };
        let has_ended = tokio::select! {
            biased;
            () = ending.as_mut() => true,
            () = led_elsewhere => false,
        };
        // Without a leader, the end of consensus completes the pending requests.
        self.consensus.shutdown().await;
        if !has_ended {
            ending.await;
        }
        self.journal().close();
    }
}
