//! Leadership as a value: it belongs to one term, and only its holder can propose.
//!
//! Decisions for the shard are made with one of these and end with it. A proposal carries the term: a decision of
//! one term is not appended in another, however late its loss is noticed.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

use futures_util::FutureExt;
use journal::EntryId;
use openraft::async_runtime::WatchReceiver;
use openraft::errors::{ClientWriteError, ForwardToLeader};
use openraft::type_config::alias::CommittedLeaderIdOf;
use tokio::sync::oneshot;

use crate::consensus::{Consensus, State};
use crate::engine::{ProposalReply, TypeConfig, WriteResult};
use crate::error::{Failure, ProposeError};
use crate::machine::Payload;
use crate::role::depose;

/// The right to propose for the shard, for one term. Everything committed before the term is applied here. Clones
/// are the same right.
#[derive(Clone)]
pub struct Leadership {
    consensus: Consensus,
    term: u64,
    since: u64,
}

impl Leadership {
    pub(crate) fn new(consensus: Consensus, term: u64, since: u64) -> Self {
        Self { consensus, term, since }
    }

    /// The leader epoch of proposals.
    pub fn term(&self) -> u64 {
        self.term
    }

    /// The first of the terms up to this one in which no other node led: decisions made here since then were not
    /// overtaken.
    pub fn since(&self) -> u64 {
        self.since
    }

    /// Enqueues a payload. On return its place among this caller's proposals is fixed, and the outcome comes
    /// through [`PendingProposal`]. Waits while the journal has too much queued.
    pub async fn propose(&self, payload: Payload) -> Result<PendingProposal, ProposeError> {
        let Consensus { raft, journal, state, .. } = &self.consensus;
        if state.stopping.load(Ordering::Acquire) {
            return Err(ProposeError::Stopping);
        }
        if journal.queue_room().now_or_never().is_none() {
            // A hung disk frees no room, and another node may lead by now.
            tokio::select! {
                biased;
                () = journal.queue_room() => {}
                () = self.lost() => return Err(ProposeError::NotLeader { leader: None }),
            }
        }
        // The engine continues in the term until it receives a later one.
        if self.consensus.stepped_down(self.term) {
            return Err(ProposeError::NotLeader { leader: None });
        }
        let (answer, outcome) = ProposalReply::channel();
        let term = CommittedLeaderIdOf::<TypeConfig>::from(self.term);
        match raft.write(payload).responder(answer).with_leader(term).await {
            Ok(()) => Ok(PendingProposal { outcome, state: Arc::clone(state) }),
            Err(fatal) => Err(state.refusal(Some(fatal))),
        }
    }

    /// Resolves once the term is over for this node: another one leads in a later term, or this one has had no
    /// reply of a majority for the election timeout of the others. Later proposals of this leadership are not
    /// appended. The outcome of earlier ones is known once this node has a leader.
    pub async fn lost(&self) {
        let mut server = self.consensus.server.clone();
        let mut ended_terms = self.consensus.roles.ended_terms.clone();
        while self.consensus.led_term() == Some(self.term) {
            tokio::select! {
                biased;
                changed = server.changed() => if changed.is_err() { return },
                // Its end is the engine's, or comes after the end of all callers.
                Ok(()) = ended_terms.changed() => {}
            }
        }
    }
}

impl Consensus {
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
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leadership").field("term", &self.term).finish_non_exhaustive()
    }
}

/// The outcome of a proposal: its applied position in the log. It may never come if the engine ends: see
/// [`Consensus::ended`].
#[derive(Debug)]
#[must_use = "the outcome is known only to who awaits it"]
pub struct PendingProposal {
    outcome: oneshot::Receiver<WriteResult>,
    state: Arc<State>,
}

impl Future for PendingProposal {
    type Output = Result<EntryId, ProposeError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = ready!(Pin::new(&mut self.outcome).poll(context));
        Poll::Ready(match outcome {
            Ok(Ok(applied)) => Ok(EntryId {
                term: applied.log_id.committed_leader_id().term,
                leader: self.state.node,
                index: applied.log_id.index(),
            }),
            Ok(Err(error)) => Err(not_leader(error)),
            Err(_) => Err(self.state.refusal(None)),
        })
    }
}

pub(crate) fn not_leader(error: ClientWriteError<TypeConfig>) -> ProposeError {
    match error {
        ClientWriteError::ForwardToLeader(ForwardToLeader { leader_id, .. }) => {
            ProposeError::NotLeader { leader: leader_id }
        }
        ClientWriteError::LogEntryDiscarded(_) => ProposeError::Superseded,
        // Only for requests that this crate does not send.
        ClientWriteError::ChangeMembershipError(_) | ClientWriteError::PreconditionFailed(_) => {
            ProposeError::Failed(Failure::Unknown)
        }
    }
}
