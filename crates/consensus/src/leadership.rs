//! Leading, as a value: it is of one term, and only who holds it can propose.
//!
//! What decides for the shard is made of one of these and ends with it. A proposal carries the term:
//! what was decided in one is not appended in another, however late the loss of it is noticed.

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
use crate::error::{Failure, ProposeError};
use crate::machine::Payload;
use crate::types::{Answer, TypeConfig, WriteResult};

/// The right to propose for the shard, for one term. All that was committed before the term is applied
/// here. Clones are the same right.
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

    /// The leader epoch of what is proposed.
    pub fn term(&self) -> u64 {
        self.term
    }

    /// The first of the terms up to this one in which no other node led: what was decided here since then
    /// was not overtaken.
    pub fn since(&self) -> u64 {
        self.since
    }

    /// Puts a payload in line; on return its place among this caller's proposals is fixed, and the
    /// outcome comes through [`Proposed`]. Waits while the journal has too much queued.
    pub async fn propose(&self, payload: Payload) -> Result<Proposed, ProposeError> {
        let Consensus { raft, journal, state, .. } = &self.consensus;
        if state.stopping.load(Ordering::Acquire) {
            return Err(ProposeError::Stopping);
        }
        if journal.queue_room().now_or_never().is_none() {
            // A disk that hangs gives no room, and another node may lead by now.
            tokio::select! {
                biased;
                () = journal.queue_room() => {}
                () = self.lost() => return Err(ProposeError::NotLeader { leader: None }),
            }
        }
        // The engine goes on in the term until it hears of a later one.
        if self.consensus.gave_up(self.term) {
            return Err(ProposeError::NotLeader { leader: None });
        }
        let (answer, outcome) = Answer::channel();
        let term = CommittedLeaderIdOf::<TypeConfig>::from(self.term);
        match raft.write(payload).responder(answer).with_leader(term).await {
            Ok(()) => Ok(Proposed { outcome, state: Arc::clone(state) }),
            Err(fatal) => Err(state.refusal(Some(fatal))),
        }
    }

    /// Resolves once the term is over for this node: another one leads in a later term, or this one has not
    /// heard from a majority for as long as the others wait before they elect. Nothing proposed with it
    /// from then on is appended; what was appended before is known once this node hears of a leader.
    pub async fn lost(&self) {
        let mut server = self.consensus.server.clone();
        let mut given_up = self.consensus.roles.given_up.clone();
        while self.consensus.led_term() == Some(self.term) {
            tokio::select! {
                biased;
                changed = server.changed() => if changed.is_err() { return },
                // Its end is the engine's, or comes after that of all who could ask.
                Ok(()) = given_up.changed() => {}
            }
        }
    }
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leadership").field("term", &self.term).finish_non_exhaustive()
    }
}

/// The outcome of a proposal: where in the log it was applied. It may never come if the engine ends:
/// see [`Consensus::ended`].
#[derive(Debug)]
#[must_use = "the outcome is known only to who awaits it"]
pub struct Proposed {
    outcome: oneshot::Receiver<WriteResult>,
    state: Arc<State>,
}

impl Future for Proposed {
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
        // Only asked for by calls that this crate does not make.
        ClientWriteError::ChangeMembershipError(_) | ClientWriteError::PreconditionFailed(_) => {
            ProposeError::Failed(Failure::Unknown)
        }
    }
}
