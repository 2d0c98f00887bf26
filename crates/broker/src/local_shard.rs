//! A shard on this node: its journal, its part in consensus, its sequencer and its delivery.

use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use crate::limits::CATALOG_SEGMENT_BYTES;
use base::limits::SEGMENT_BYTES_DEFAULT;
use base::{ClusterLevel, ShardId};
use cluster::LinkedPeers;
use consensus::{Consensus, ConsensusOptions, Group, GroupId};
use delivery::driver;
use delivery::relay::RelayContext;
use journal::{BatchCheck, Journal};
use machine::{Command, Outcome, Role};
use parking_lot::Mutex;
use shard::barrier::Barriers;
use shard::cpu::CpuPool;
use shard::delivery::handle::{Handle, Message};
use shard::delivery::trace_queue::TraceFeed;
use shard::error::{ExecuteError, Unavailable};
use shard::request::Request;
use shard::sequencer::Sequencer;
use shard::timeline::Timeline;
use shard::watch::Watchers;
use shard::{Shard, View};
use shard_peers::{Peers, pusher};
use tasks::{Failure, Task};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::sleep;
use world::{Workers, World};

use crate::error::OpenError;
use crate::leader_gossip::NewestReport;
use crate::options::BrokerOptions;
use crate::removed_replica::{self, GivenUp};

mod leadership_transfer;
mod membership;

/// Longest time for which a stopping node waits for its earlier proposals while another node, or none, leads.
const ANSWERED_ELSEWHERE_WITHIN: Duration = Duration::from_secs(2);

/// Parts shared by the shards of a node.
pub(crate) struct Common<'a> {
    pub(crate) world: &'a World,
    pub(crate) dir: &'a Path,
    pub(crate) options: &'a BrokerOptions,
    pub(crate) failure: &'a Failure,
    pub(crate) timeline: &'a Arc<Timeline>,
    pub(crate) cpu: &'a CpuPool,
    pub(crate) watchers: &'a Arc<Watchers>,
    pub(crate) peers: &'a Arc<Peers>,
    pub(crate) level: &'a Arc<ClusterLevel>,
    pub(crate) traces: &'a TraceFeed,
}

#[derive(Debug)]
pub(crate) struct LocalShard {
    id: ShardId,
    pub(crate) shard: Arc<Shard>,
    pub(crate) consensus: Consensus,
    timeline: Arc<Timeline>,
    workers: Workers,
    requests: Mutex<Requests>,
    /// `None` for the catalog, which has no records.
    delivery: Option<Handle>,
    /// `None` after shutdown.
    tasks: Mutex<Option<Tasks>>,
    pub(crate) adopted: watch::Sender<AdoptionProgress>,
    node: u32,
    /// This node's role in the shard's group; `None` where it is alone.
    role: Option<watch::Receiver<consensus::Role>>,
    /// Barriers for reads of its replica.
    pub(crate) reads: Barriers,
    /// The newest gossip on the shard's group.
    pub(crate) heard: watch::Sender<Option<NewestReport>>,
    cluster: Option<Arc<cluster::Node>>,
    level: Arc<ClusterLevel>,
    cpu: CpuPool,
    watchers: Arc<Watchers>,
    /// The last removal of the shard's replica from this node.
    given_up: Mutex<Option<GivenUp>>,
    #[cfg(test)]
    pub(crate) peers: Arc<Peers>,
}

/// Progress of a shard's rows in adopting the catalog.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AdoptionProgress {
    /// The adopted version of the catalog.
    pub(crate) version: u64,
    /// No further version will be adopted: the node is shutting down.
    pub(crate) ended: bool,
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

#[derive(Debug)]
struct Tasks {
    sequencing: JoinHandle<()>,
    delivering: Option<JoinHandle<()>>,
    /// Pushes the messages to other shards.
    pushing: Option<JoinHandle<()>>,
}

impl LocalShard {
    /// Returns the directory of a shard's files.
    pub(crate) fn dir(dir: &Path, shard: ShardId) -> std::path::PathBuf {
        dir.join(format!("shard-{}", shard.0))
    }

    /// Recovers the shard, and leads it unless it has other members. A shard with rows follows the given catalog.
    pub(crate) async fn start(
        common: &Common<'_>,
        role: Role,
        catalog: Option<&Arc<Shard>>,
    ) -> Result<Self, OpenError> {
        let Common { world, options, failure, .. } = common;
        let dir = Self::dir(common.dir, role.shard());
        let (shard, consensus) = replica(common, &dir, role, catalog).await?;
        let (requests, inbox) = mpsc::unbounded_channel();
        let sequencer = Sequencer::new(
            Arc::clone(&shard),
            consensus.clone(),
            options.cluster.clone(),
            Arc::clone(&world.clock),
            common.cpu.clone(),
            inbox,
        );
        let sequencing = tasks::vital(Task::Sequencer, sequencer.run(), failure);
        let group_role = options.cluster.is_some().then(|| consensus.role());
        common.peers.add(&requests, group_role.clone(), &shard);
        let (mut delivery, mut delivering, mut pushing) = (None, None, None);
        if matches!(role, Role::Rows(_)) {
            let (handle, messages) = Handle::new(
                Arc::clone(common.timeline),
                options.history_bytes,
                options.feed.clone(),
                common.traces.clone(),
                Arc::clone(common.peers.unread()),
            );
            let _ = shard.delivery.set(handle.clone());
            let parts = driver::DriverContext {
                shard: Arc::clone(&shard),
                consensus: consensus.clone(),
                clock: Arc::clone(&world.clock),
                workers: world.workers.clone(),
                timeline: Arc::clone(common.timeline),
                requests: requests.clone(),
                peers: Arc::clone(common.peers),
                handle: handle.clone(),
                relaying: options.cluster.as_ref().map(|node| RelayContext {
                    node: Arc::clone(node),
                    shard: Arc::clone(&shard),
                    role: consensus.role(),
                    attempts: Arc::default(),
                    timeline: Arc::clone(common.timeline),
                }),
                sleep_max: options.housekeeping_interval,
            };
            delivery = Some(handle);
            let driving = driver::run(parts, messages);
            delivering = Some(tasks::vital(Task::Delivery, driving, failure));
            let peers = Arc::clone(common.peers);
            let pusher = pusher::run(Arc::clone(&shard), consensus.clone(), peers);
            pushing = Some(tasks::vital(Task::Channels, pusher, failure));
        }
        let given_up = match &options.cluster {
            Some(_) => removed_replica::read(&*world.disk, common.dir, role.shard())?,
            None => None,
        };
        let (id, version) = shard.read(|view| (view.shard, view.rows.adopted()));
        Ok(Self {
            id,
            shard,
            consensus,
            timeline: Arc::clone(common.timeline),
            workers: world.workers.clone(),
            requests: Mutex::new(Requests { sender: Some(requests), holds: 0 }),
            delivery,
            tasks: Mutex::new(Some(Tasks { sequencing, delivering, pushing })),
            adopted: watch::Sender::new(AdoptionProgress { version, ended: false }),
            node: options.node,
            role: group_role,
            heard: watch::Sender::default(),
            cluster: options.cluster.clone(),
            level: Arc::clone(common.level),
            cpu: common.cpu.clone(),
            watchers: Arc::clone(common.watchers),
            given_up: Mutex::new(given_up),
            reads: Barriers::default(),
            #[cfg(test)]
            peers: Arc::clone(common.peers),
        })
    }

    pub(crate) fn id(&self) -> ShardId {
        self.id
    }

    /// Reads the machine's state. `question` must be short: an apply waits for it.
    pub(crate) fn read<R>(&self, question: impl FnOnce(&View<'_>) -> R) -> R {
        self.shard.read(question)
    }

    /// Proposes a command and returns the outcome, once it is durable and applied.
    pub(crate) async fn execute(&self, command: Command) -> Result<Outcome, ExecuteError> {
        let (reply, answer) = oneshot::channel();
        self.request(Request::Execute { command, reply })?;
        answer.await.unwrap_or(Err(ExecuteError::Unavailable(Unavailable::Stopping)))
    }

    pub(crate) fn request(&self, request: Request) -> Result<(), Unavailable> {
        self.requests.lock().send(request)
    }

    pub(crate) fn journal(&self) -> &Journal {
        &self.shard.journal
    }

    pub(crate) fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    /// For the shard's leader: the index up to which its log is applied, including all that was acknowledged before
    /// the call.
    pub(crate) async fn read_index(&self) -> Result<u64, Unavailable> {
        self.shard.pending.apply_answered().await;
        let index = self.consensus.read_index().await;
        index.map_err(|error| Unavailable::from(&error))
    }

    /// Threads for blocking work.
    pub(crate) fn workers(&self) -> &Workers {
        &self.workers
    }

    /// Pool for long work on records.
    pub(crate) fn cpu(&self) -> &CpuPool {
        &self.cpu
    }

    pub(crate) fn watchers(&self) -> &Arc<Watchers> {
        &self.watchers
    }

    pub(crate) fn delivery(&self) -> Option<&Handle> {
        self.delivery.as_ref()
    }

    /// Saves the machine's state, which frees older segments from the log's claim.
    pub(crate) async fn save_snapshot(&self) -> std::io::Result<()> {
        self.consensus.snapshot_now().await.map_err(std::io::Error::other)
    }

    /// Closes the shard for requests.
    pub(crate) fn refuse_requests(&self) {
        if let Some(requests) = self.requests.lock().sender.take() {
            let _ = requests.send(Request::Closing);
        }
        if let Some(Tasks { pushing: Some(pushing), .. }) = &*self.tasks.lock() {
            // Unacknowledged messages are sent again by the next start.
            pushing.abort();
        }
        self.shard.outgoing.close();
        self.adopted.send_modify(|adopted| adopted.ended = true);
    }

    /// Waits until the rows have adopted this version of the catalog.
    pub(crate) async fn adopts(&self, version: u64) -> Result<(), Unavailable> {
        let mut adopted = self.adopted.subscribe();
        let reached = adopted.wait_for(|it| it.ended || it.version >= version).await;
        match reached {
            Ok(reached) if reached.version >= version => Ok(()),
            _ => Err(Unavailable::Stopping),
        }
    }

    /// Whether the rows have adopted this version of the catalog; without rows on this node, whether a leader is
    /// known.
    pub(crate) fn is_ready(&self, version: u64) -> Result<bool, Unavailable> {
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
    pub(crate) async fn shutdown(&self) {
        self.refuse_requests();
        let Some(tasks) = self.tasks.lock().take() else { return };
        let mut ending = pin!(async {
            if let (Some(delivery), Some(delivering)) = (&self.delivery, tasks.delivering) {
                // Earlier settles are made durable, which needs the sequencer.
                delivery.tell(Message::Stop);
                let _ = delivering.await;
            }
            // The sequencer ends once all of its proposals are answered.
            let _ = tasks.sequencing.await;
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

/// Opens a shard's journal and recovers its state. Leads unless the shard has other members.
pub(crate) async fn replica(
    common: &Common<'_>,
    dir: &Path,
    role: Role,
    catalog: Option<&Arc<Shard>>,
) -> Result<(Arc<Shard>, Consensus), OpenError> {
    let Common { world, options, failure, .. } = common;
    let mut options_of_journal = journal_options(options, role);
    // Segments claimed by the log cannot be reclaimed; small segments make that a small amount.
    let snapshot_log_bytes_min = options_of_journal.segment_bytes.min(SEGMENT_BYTES_DEFAULT);
    let others = options.cluster.as_ref().is_some_and(|node| node.known().len() > 1);
    options_of_journal.repairable |= others;
    let given_up = match &options.cluster {
        Some(_) => {
            removed_replica::prepare(world, common.dir, role.shard(), dir, &options_of_journal)
                .await?
        }
        None => None,
    };
    let opened = Journal::open(world, dir, options_of_journal).map_err(|error| match others {
        true if error.is_loss() => OpenError::Lost { node: options.node, error },
        _ => OpenError::Journal(error),
    })?;
    let journal = opened.journal.clone();
    let failing = (*failure).clone();
    journal.on_fatal(move |failed| failing.report(failed.to_string()));
    let (level, watchers) = (Arc::clone(common.level), Arc::clone(common.watchers));
    let shard = Shard::new(journal, level, role, catalog.cloned(), watchers);
    if options.cluster.is_some() {
        shard.compacted.keep_in(&world.disk, dir);
    }
    let shard = Arc::new(shard);
    let consensus = Consensus::start(
        world,
        u64::from(options.node),
        opened,
        Arc::clone(&shard) as Arc<dyn consensus::StateMachine>,
        ConsensusOptions {
            snapshot_log_bytes_min,
            kept_log_bytes_max: options.kept_log_bytes_max,
            node: (*failure).clone(),
            group: options.cluster.as_ref().map(|cluster| group(cluster, role.shard())),
            floor: given_up.map(|given_up| given_up.floor),
            ..ConsensusOptions::default()
        },
    )
    .await?;
    if let Some(cluster) = &options.cluster {
        cluster.groups().join(role.shard(), consensus.clone(), failure);
    }
    Ok((shard, consensus))
}

/// Returns the options for a shard's journal.
pub(crate) fn journal_options(options: &BrokerOptions, role: Role) -> journal::Options {
    let mut of_shard = options.journal.clone();
    if role == Role::Catalog {
        of_shard.segment_bytes = of_shard.segment_bytes.min(CATALOG_SEGMENT_BYTES);
    }
    of_shard.keep_log |= options.cluster.is_some();
    of_shard.check = BatchCheck(is_sound);
    of_shard
}

/// Whether a stored batch has its original bytes and offset.
fn is_sound(batch: &[u8], base_offset: Option<u64>) -> bool {
    let header = record::verify_checksum(batch);
    header.is_ok_and(|header| base_offset.is_none_or(|offset| header.base_offset == offset))
}

/// Returns the group of a shard, whose members are reached by the node's links.
fn group(node: &cluster::Node, shard: ShardId) -> Group {
    let id = GroupId { cluster: node.identity().at.cluster.as_u128(), shard: shard.0 };
    let peers = Arc::new(LinkedPeers::new(node.links(), shard));
    let (pace, starvation) =
        (node.groups().catch_up_pace().clone(), node.groups().starvation().clone());
    Group { id, peers, pace, starvation }
}
