//! The handle: start, lead, shut down.
//!
//! A group of one voter takes the path of any group: election, log, quorum, apply. Alone it is its own quorum, so
//! that a proposal is committed as soon as this node's journal has synced it. A member of a larger group starts in
//! the state of its log, and leads when the others elect it.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use base::limits;
use futures_util::FutureExt;
use journal::{Journal, OpenedJournal, Snapshot};
use openraft::async_runtime::WatchReceiver;
use openraft::errors::Fatal;
use openraft::{Raft, ServerState};
use parking_lot::Mutex;
use tasks::{Task, Workers};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use world::{Instant, World};

use crate::catch_up::{CatchUpPace, OutgoingSnapshots, Reception};
use crate::encoding;
use crate::error::{Failure, FoundingError, ProposeError, SnapshotError, StartError};
use crate::floor::Floor;
use crate::group::{Group, Members};
use crate::leadership::Leadership;
use crate::log_store::LogStore;
use crate::machine::StateMachine;
use crate::message::Route;
use crate::peers::Peers;
use crate::replica::{FirstEntry, Replica};
use crate::retention::Retention;
use crate::role::{self, Role, Roles};
use crate::snapshot::Snapshots;
use crate::succession::{LogEnd, depose};
use crate::types::{SnapshotMeta, TypeConfig};
use crate::{runtime, settings};

#[derive(Clone, Debug)]
pub struct ConsensusOptions {
    /// The log grows by at least this before the next snapshot.
    pub snapshot_log_bytes_min: u64,
    /// Or, if that comes first, a restart would have to replay this many applied changes (see
    /// [`StateMachine::apply`]).
    pub snapshot_changes_min: u64,
    /// Bytes of the log covered by a snapshot that are kept for members without them.
    pub kept_log_bytes_max: u64,
    /// Notified when consensus stops permanently.
    pub node: tasks::Failure,
    /// The group that this node is to be a member of. Without one, it is a permanent group of one.
    pub group: Option<Group>,
    /// Promises of this node in the group from before its log was deleted.
    pub floor: Option<Floor>,
}

impl Default for ConsensusOptions {
    fn default() -> Self {
        Self {
            snapshot_log_bytes_min: limits::SEGMENT_BYTES_DEFAULT,
            snapshot_changes_min: crate::limits::REPLAYED_CHANGES_MAX,
            kept_log_bytes_max: limits::KEPT_LOG_BYTES_MAX,
            node: tasks::Failure::new(),
            group: None,
            floor: None,
        }
    }
}

/// A shard's membership in its group. Clones share it.
#[derive(Clone)]
pub struct Consensus {
    pub(crate) raft: Raft<TypeConfig, Replica>,
    pub(crate) journal: Journal,
    pub(crate) workers: Workers,
    pub(crate) machine: Arc<dyn StateMachine>,
    pub(crate) log: LogStore,
    pub(crate) peers: Arc<dyn Peers>,
    pub(crate) pace: CatchUpPace,
    pub(crate) snapshots: Arc<Snapshots>,
    pub(crate) sending: Arc<OutgoingSnapshots>,
    pub(crate) reception: Arc<Reception>,
    pub(crate) server: openraft::type_config::alias::WatchReceiverOf<TypeConfig, ServerMetrics>,
    /// The first entry of the newest term, once it is applied.
    pub(crate) begun: watch::Receiver<FirstEntry>,
    pub(crate) roles: Roles,
    pub(crate) route: Route,
    pub(crate) retention: Arc<Retention>,
    pub(crate) state: Arc<State>,
}

pub(crate) type ServerMetrics = openraft::metrics::RaftServerMetrics<TypeConfig>;

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) node: u64,
    /// No more proposals are accepted.
    pub(crate) stopping: AtomicBool,
    /// The engine was told to stop, and accepts no appends.
    pub(crate) stopped: AtomicBool,
    pub(crate) standing: Mutex<CampaignConditions>,
    /// Time of the last message from another leader of this term, or of a later one.
    pub(crate) heard: Mutex<Option<Instant>>,
    pub(crate) floor: Option<LogEnd>,
    failure: OnceLock<Failure>,
    tasks: OnceLock<Vec<AbortHandle>>,
}

/// The conditions under which this node campaigns.
#[derive(Debug)]
pub(crate) struct CampaignConditions {
    /// Set by the watcher of the node's disk.
    pub(crate) is_allowed: bool,
    /// The node can read all unapplied entries of its log.
    pub(crate) can_read: bool,
    /// The node has regained its deleted log.
    pub(crate) is_above_floor: bool,
}

impl CampaignConditions {
    pub(crate) fn stands(&self) -> bool {
        self.is_allowed && self.can_read && self.is_above_floor
    }
}

impl Consensus {
    /// Restores the machine. In a group of one it also founds the group if the journal is empty, replays the log
    /// and leads. As a member of any other group it returns at once, and [`Consensus::role`] reports its state. An
    /// empty member waits until another one adds it, or for [`Consensus::found`].
    #[tasks::boxed]
    pub async fn start(
        world: &World,
        node: u64,
        opened: OpenedJournal,
        machine: Arc<dyn StateMachine>,
        options: ConsensusOptions,
    ) -> Result<Self, StartError> {
        let OpenedJournal { journal, snapshot, report } = opened;
        let begun = Instant::now();
        let newest = snapshot.map(|snapshot| restore(&snapshot, &*machine)).transpose()?;
        let meta = newest.as_ref().map(|(meta, _)| meta.clone()).unwrap_or_default();
        let snapshot_bytes = newest.as_ref().map_or(0, |(_, bytes)| *bytes);
        let restored = begun.elapsed();
        let floor = options.floor.and_then(|floor| floor.last());
        let is_above_floor = journal.last_id().map(LogEnd::from) >= floor;
        if let Some(floor) = &options.floor {
            floor.restore(&journal, &world.workers).await?;
        }
        let log = LogStore::new(journal.clone(), world.workers.clone())
            .map_err(|error| unreadable("the vote", error.to_string()))?;
        let pristine = log.is_pristine();
        let retention = Arc::new(Retention::new(options.kept_log_bytes_max));
        let sending = Arc::new(OutgoingSnapshots::new(world.entropy.u64()));
        let snapshots = Arc::new(Snapshots::new(
            journal.clone(),
            world.workers.clone(),
            &options,
            newest,
            Arc::clone(&retention),
            Arc::clone(&sending),
        ));
        log.report_written(&machine);
        let replica = Replica::new(
            world,
            Arc::clone(&machine),
            journal.clone(),
            log.clone(),
            Arc::clone(&snapshots),
            meta,
        );
        let terms = replica.begun();

        let config = Arc::new(settings::of(options.group.as_ref(), is_above_floor)?);
        let links = Group::links(options.group.as_ref(), node, &retention);
        let (route, peers) = (links.route, Arc::clone(&links.peers));
        let engine = async {
            log.set_starting(true);
            let raft = Raft::build(node, config, links, log.clone(), replica)
                .await
                .map_err(|error| StartError::Engine(error.to_string()))?;
            log.set_starting(false);
            let looked_through = begun.elapsed();
            raft.run();
            Ok::<_, StartError>((raft, looked_through))
        };
        let (raft, looked_through) = runtime::with_seed(world.entropy.u64(), engine).await?;

        let state = Arc::new(State {
            node,
            stopping: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            standing: Mutex::new(CampaignConditions {
                is_allowed: true,
                can_read: true,
                is_above_floor,
            }),
            heard: Mutex::default(),
            floor,
            failure: OnceLock::new(),
            tasks: OnceLock::new(),
        });
        let server = retention.watch_members(raft.server_metrics());
        let watching = watch_end(raft.clone(), Arc::clone(&state), options.node.clone());
        tasks::spawn(Task::ConsensusEnd, watching);
        let (workers, group) = (world.workers.clone(), options.group.as_ref());
        let (watcher, roles) = role::watch(raft.clone(), node, terms.clone(), group);
        let consensus = Self {
            raft,
            journal,
            workers,
            machine,
            log: log.clone(),
            peers,
            snapshots,
            sending,
            reception: Arc::default(),
            server,
            begun: terms,
            roles,
            pace: options.group.as_ref().map(|it| it.pace.clone()).unwrap_or_default(),
            route,
            retention,
            state,
        };
        let voters = consensus.voters().await?;
        // A member whose log had more may know only how the group began.
        let alone = voters == BTreeSet::from([node]) && is_above_floor;
        log.set_alone(alone);
        if options.group.is_none() || alone {
            tokio::select! {
                biased;
                led = consensus.lead(pristine, &voters) => led?,
                _ = consensus.ended() => return Err(consensus.state.failure().into()),
            }
        }
        tracing::info!(
            "machine: {} MB restored in {} ms, log looked through in {} ms, {} entries applied with {} \
             changes in {} ms",
            snapshot_bytes >> 20,
            restored.as_millis(),
            (looked_through - restored).as_millis(),
            report.entries,
            consensus.snapshots.changes(),
            (begun.elapsed() - looked_through).as_millis(),
        );
        let keeping_up = consensus.snapshots.clone().keep_up(consensus.raft.clone());
        let saving = tasks::vital(Task::Snapshots, keeping_up, &options.node);
        let watching = tasks::vital(Task::ConsensusRole, watcher, &options.node);
        let mut running = vec![saving.abort_handle(), watching.abort_handle()];
        if options.group.is_some() {
            let repairing = consensus.clone().keep_repaired();
            running.push(tasks::vital(Task::Repair, repairing, &options.node).abort_handle());
        }
        if !is_above_floor {
            let rising = consensus.clone().campaign_above_floor();
            running.push(tasks::vital(Task::ConsensusRole, rising, &options.node).abort_handle());
        }
        let _ = consensus.state.tasks.set(running);
        Ok(consensus)
    }

    /// Wins an election without waiting for a timeout, and applies all that was committed before.
    async fn lead(&self, pristine: bool, voters: &BTreeSet<u64>) -> Result<(), StartError> {
        let node = self.state.node;
        if pristine {
            // No other node connects to it, so it needs no address yet.
            let founded = self.found(Members::voting([(node, String::new())])).await;
            founded.map_err(|error| match error {
                FoundingError::Failed(failure) => failure.into(),
                error => StartError::Engine(error.to_string()),
            })?;
        } else if voters.contains(&node) {
            self.raft.trigger().elect(false).await.map_err(Failure::from)?;
        } else {
            // A node without a vote would wait for a leader that never comes.
            return Err(StartError::NotAVoter { node, voters: voters.clone() });
        }
        match self.leadership().await {
            Ok(_) => Ok(()),
            Err(_) => {
                self.ended().await;
                Err(self.state.failure().into())
            }
        }
    }

    /// The voters by the newest members in the log.
    async fn voters(&self) -> Result<BTreeSet<u64>, Failure> {
        let voters = self
            .raft
            .with_raft_state(|raft| raft.membership_state.effective().voter_ids().collect());
        voters.await.map_err(Failure::from)
    }

    /// The role of this node in its group, with its changes.
    pub fn role(&self) -> watch::Receiver<Role> {
        self.roles.role.clone()
    }

    /// Resolves with the leader once another node leads. Never in a group of one.
    pub async fn led_elsewhere(&self) -> u64 {
        let mut role = self.role();
        let led = role.wait_for(|role| role.other_leader().is_some()).await;
        match led.ok().and_then(|role| role.other_leader()) {
            Some(leader) => leader,
            // Consensus has ended, which is reported separately.
            None => std::future::pending().await,
        }
    }

    /// Waits until this node leads, with everything applied that was committed before its term. Returns the same
    /// term again while it lasts.
    pub async fn leadership(&self) -> Result<Leadership, ProposeError> {
        let mut begun = self.begun.clone();
        let mut server = self.raft.server_metrics();
        loop {
            // The engine's last metrics stay when it is gone.
            if let Some(error) = self.ended().now_or_never() {
                return Err(error);
            }
            let term = self.led_term();
            let first = *begun.borrow_and_update();
            if let Some(term) = term.filter(|term| first.term == *term) {
                return Ok(Leadership::new(self.clone(), term, first.since));
            }
            tokio::select! {
                biased;
                changed = server.changed() => {
                    if changed.is_err() {
                        return Err(self.state.refusal(None));
                    }
                }
                Ok(()) = begun.changed() => {}
            }
        }
    }

    /// The term in which this node leads, as long as it has recent replies of a majority.
    pub(crate) fn led_term(&self) -> Option<u64> {
        let seen = self.server.borrow_watched();
        let term = (seen.state == ServerState::Leader).then_some(seen.vote.leader_id.term);
        term.filter(|term| *term > *self.roles.ended_terms.borrow())
    }

    /// Whether this node led in the term and lost the majority for too long since.
    pub(crate) fn stepped_down(&self, term: u64) -> bool {
        term <= *self.roles.ended_terms.borrow()
    }

    /// The newest term whose first entry is applied here: the leader epoch of reads.
    pub fn term(&self) -> u64 {
        self.begun.borrow().term
    }

    /// Ends this node's term, as a candidate of a later one would, and campaigns again. Only for a group of one
    /// voter: others transfer leadership. Returns the new term, once this node leads in it.
    pub async fn reelect(&self) -> Result<u64, ProposeError> {
        let term = self.server.borrow_watched().vote.leader_id.term + 1;
        let deposed = depose(&self.raft, term).await;
        deposed.map_err(|fatal| self.state.refusal(fatal))?;
        let elected = self.raft.trigger().elect(false).await;
        elected.map_err(|fatal| self.state.refusal(Some(fatal)))?;
        loop {
            match self.leadership().await? {
                former if former.term() < term => former.lost().await,
                next => return Ok(next.term()),
            }
        }
    }

    /// Saves the state now, unless nothing was applied since the last time.
    pub async fn snapshot_now(&self) -> Result<(), SnapshotError> {
        self.snapshots.take(&self.raft).await
    }

    /// Saves the state although nothing was applied: the last snapshot is damaged.
    pub async fn force_snapshot(&self) -> Result<(), SnapshotError> {
        self.snapshots.take_forced(&self.raft).await
    }

    /// Waits until the engine is gone, and with it every outcome that is unknown by then. A request sent at the
    /// moment in which the engine drops its queue stays there: it gets no reply, and its sender does not learn
    /// that.
    pub async fn ended(&self) -> ProposeError {
        let mut server = self.raft.server_metrics();
        while server.changed().await.is_ok() {}
        note_end(&self.raft, &self.state);
        self.state.refusal(None)
    }

    /// Resolves once this node does not lead: at once if it follows.
    pub async fn leads_no_more(&self) {
        let mut server = self.server.clone();
        let mut ended_terms = self.roles.ended_terms.clone();
        while self.led_term().is_some() {
            tokio::select! {
                biased;
                changed = server.changed() => if changed.is_err() { return },
                changed = ended_terms.changed() => if changed.is_err() { return },
            }
        }
    }

    /// Accepts no more proposals, waits for those in flight, then closes the journal. Waits as long as the disk
    /// does: an impatient caller adds a timeout.
    pub async fn shutdown(&self) {
        self.state.stopping.store(true, Ordering::Release);
        // Applied after everything that was proposed before it. If this node does not lead, it has no proposal in
        // flight to wait for.
        tokio::select! {
            biased;
            _ = self.raft.write_blank() => {}
            _ = self.ended() => {}
            () = self.leads_no_more() => {}
        }
        self.reception.stop();
        for task in self.state.tasks.get().into_iter().flatten() {
            task.abort();
        }
        self.state.stopped.store(true, Ordering::Release);
        if let Err(error) = self.raft.shutdown().await {
            tracing::warn!(%error, "consensus did not end well");
        }
        let journal = self.journal.clone();
        let closing = self.workers.blocking(Task::JournalClosing, move || journal.close());
        if closing.await.is_err() {
            tracing::warn!("closing the journal panicked");
        }
    }
}

impl fmt::Debug for Consensus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consensus").field("state", &self.state).finish_non_exhaustive()
    }
}

impl State {
    fn failure(&self) -> Failure {
        self.failure.get().cloned().unwrap_or(Failure::Unknown)
    }

    /// Reason why a proposal is not accepted or its outcome is unknown.
    pub(crate) fn refusal(&self, fatal: Option<Fatal<TypeConfig>>) -> ProposeError {
        match fatal {
            Some(Fatal::Stopped) | None if self.stopping.load(Ordering::Acquire) => {
                ProposeError::Stopping
            }
            Some(fatal) => ProposeError::Failed(fatal.into()),
            None => ProposeError::Failed(self.failure()),
        }
    }
}

impl From<Fatal<TypeConfig>> for Failure {
    fn from(fatal: Fatal<TypeConfig>) -> Self {
        match fatal {
            Fatal::StorageError(error) => Failure::Storage(error.to_string()),
            Fatal::Panicked => Failure::Panicked,
            Fatal::Stopped => Failure::Unknown,
        }
    }
}

fn restore(
    snapshot: &Snapshot,
    machine: &dyn StateMachine,
) -> Result<(SnapshotMeta, u64), StartError> {
    let meta = encoding::decode_snapshot_meta(&snapshot.meta)
        .map_err(|error| unreadable("the head of the snapshot", error.to_string()))?;
    machine
        .restore(&snapshot.machine)
        .map_err(|source| StartError::Restore { index: snapshot.id.index, source })?;
    Ok((meta, snapshot.bytes))
}

fn unreadable(what: &'static str, reason: String) -> StartError {
    StartError::Unreadable { what, reason }
}

/// Records why the engine ended, whichever task sees it first. `None`: it was told to stop.
fn note_end(raft: &Raft<TypeConfig, Replica>, state: &State) -> Option<Failure> {
    let ended = raft.metrics().borrow_watched().running_state.clone();
    let failure = match ended {
        Err(Fatal::Stopped) if state.stopping.load(Ordering::Acquire) => return None,
        Err(fatal) => Failure::from(fatal),
        // It ended without a reason.
        Ok(()) => Failure::Panicked,
    };
    Some(state.failure.get_or_init(|| failure).clone())
}

/// Waits for the engine's end, and reports the reason unless the end was requested.
async fn watch_end(raft: Raft<TypeConfig, Replica>, state: Arc<State>, node: tasks::Failure) {
    let mut server = raft.server_metrics();
    while server.changed().await.is_ok() {}
    let Some(failure) = note_end(&raft, &state) else { return };
    // Before the log, which may block: this may end the process.
    node.report(format!("consensus stopped: {failure}"));
    tracing::error!(%failure, "consensus stopped for good");
}
