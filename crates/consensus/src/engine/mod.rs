//! The names openraft gives our types, and its configuration.
//!
//! * `entry`: an entry as openraft holds it
//! * `runtime`: tokio, adapted for openraft
//! * `settings`: configuration of openraft
//!
//! It depends on `machine` and `error`.
//!
//! Leader ids are the *standard* ones: at most one leader per term. openraft's default lets a second leader take
//! over within a term, which elects a little faster. But the term is the leader epoch of the records, and clients
//! treat two leaders of one epoch as the same.

mod entry;
pub(crate) mod runtime;
pub(crate) mod settings;

use journal::EntryId;
use openraft::impls::{BoxedErrorSource, InlineBatch, leader_id_std};
use openraft::raft::responder::Responder;
use openraft::type_config::alias::{CommittedLeaderIdOf, LogIdOf};
use openraft::{BasicNode, OptionalSend, RaftTypeConfig};
use tokio::sync::oneshot;

use crate::machine::Payload;
use entry::Content;
use runtime::Runtime;

pub(crate) use entry::Entry;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(crate) struct TypeConfig;

impl RaftTypeConfig for TypeConfig {
    type D = Payload;
    type R = ();
    type NodeId = u64;
    type Node = BasicNode;
    type Term = u64;
    type LeaderId = leader_id_std::LeaderId<u64, u64>;
    type Vote = openraft::Vote<Self::LeaderId>;
    type Payload = Content;
    type Entry = Entry;
    type AsyncRuntime = Runtime;
    type Responder<T>
        = ProposalReply<T>
    where
        T: OptionalSend + 'static;
    type Batch<T>
        = InlineBatch<T>
    where
        T: OptionalSend + 'static;
    type ErrorSource = BoxedErrorSource;
}

pub(crate) type CommittedLeader = CommittedLeaderIdOf<TypeConfig>;
pub(crate) type LogId = LogIdOf<TypeConfig>;
pub(crate) type Vote = openraft::type_config::alias::VoteOf<TypeConfig>;
pub(crate) type Membership = openraft::Membership<u64, BasicNode>;
pub(crate) type StoredMembership = openraft::type_config::alias::StoredMembershipOf<TypeConfig>;
pub(crate) type SnapshotMeta = openraft::type_config::alias::SnapshotMetaOf<TypeConfig>;
pub(crate) type ServerMetrics = openraft::metrics::RaftServerMetrics<TypeConfig>;
pub(crate) type WriteResult = openraft::raft::ClientWriteResult<TypeConfig>;

pub(crate) fn log_id(term: u64, index: u64) -> LogId {
    LogId::new(CommittedLeaderIdOf::<TypeConfig>::from(term), index)
}

pub(crate) fn log_id_of(entry: EntryId) -> LogId {
    log_id(entry.term, entry.index)
}

/// Receives a proposal's outcome from the engine.
#[derive(Debug)]
pub(crate) struct ProposalReply<T>(oneshot::Sender<T>);

impl<T> ProposalReply<T> {
    pub(crate) fn channel() -> (Self, oneshot::Receiver<T>) {
        let (sender, receiver) = oneshot::channel();
        (Self(sender), receiver)
    }
}

impl<C: RaftTypeConfig, T: OptionalSend + 'static> Responder<C, T> for ProposalReply<T> {
    fn on_complete(self, result: T) {
        // The proposer may be gone; the outcome is valid nevertheless.
        let _ = self.0.send(result);
    }
}
