//! The handle of a member: its parts, its role, and its end.
//!
//! Leadership, members, campaigns, replies to other members, and start and shutdown are modules above it.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use journal::Journal;
use openraft::async_runtime::WatchReceiver;
use openraft::errors::Fatal;
use openraft::{Raft, ServerState};
use parking_lot::Mutex;
use tasks::Workers;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use world::Instant;

use crate::engine::{ServerMetrics, TypeConfig};
use crate::error::{Failure, ProposeError, SnapshotError};
use crate::floor::LogEnd;
use crate::log_store::LogStore;
use crate::machine::StateMachine;
use crate::message::Route;
use crate::peers::Peers;
use crate::replica::{FirstEntry, Replica, Snapshots};
use crate::retention::Retention;
use crate::role::{ReportedLeader, Role, Roles};
use crate::transfer::{CatchUpPace, OutgoingSnapshots, Reception};

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
    pub(crate) tasks: OnceLock<Vec<AbortHandle>>,
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
    /// The role of this node in its group, with its changes.
    pub fn role(&self) -> watch::Receiver<Role> {
        self.roles.role.clone()
    }

    /// Sets the leader of the group as reported by other means than Raft; replaces the last report. It applies if
    /// this node knows no leader, or one of an older term.
    pub fn set_reported_leader(&self, told: Option<ReportedLeader>) {
        self.roles.report_leader(told);
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
}

impl fmt::Debug for Consensus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consensus").field("state", &self.state).finish_non_exhaustive()
    }
}

impl State {
    pub(crate) fn new(node: u64, floor: Option<LogEnd>, is_above_floor: bool) -> Self {
        let standing = CampaignConditions { is_allowed: true, can_read: true, is_above_floor };
        Self {
            node,
            stopping: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            standing: Mutex::new(standing),
            heard: Mutex::default(),
            floor,
            failure: OnceLock::new(),
            tasks: OnceLock::new(),
        }
    }

    pub(crate) fn failure(&self) -> Failure {
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

/// Records why the engine ended, whichever task sees it first. `None`: it was told to stop.
pub(crate) fn note_end(raft: &Raft<TypeConfig, Replica>, state: &State) -> Option<Failure> {
    let ended = raft.metrics().borrow_watched().running_state.clone();
    let failure = match ended {
        Err(Fatal::Stopped) if state.stopping.load(Ordering::Acquire) => return None,
        Err(fatal) => Failure::from(fatal),
        // It ended without a reason.
        Ok(()) => Failure::Panicked,
    };
    Some(state.failure.get_or_init(|| failure).clone())
}
