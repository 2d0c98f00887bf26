//! Errors, one type per operation.

use std::collections::BTreeSet;
use std::io;

use thiserror::Error;

/// Reason why consensus stopped permanently. The node has to end: it must not serve state that it could not store.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Failure {
    /// The journal failed, or the machine rejected an entry. Names the operation and the place.
    #[error("{0}")]
    Storage(String),
    #[error("a task of consensus panicked; the log has its message")]
    Panicked,
    /// It stopped while a reply was awaited, and the reason is not known yet.
    #[error("consensus stopped before the outcome was known")]
    Unknown,
}

/// Reason why the proposal may not be applied.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum ProposeError {
    /// This node does not lead in the term of the proposal. It is not in the log and never will be.
    #[error("this node does not lead{}", leader.map(|node| format!("; node {node} does")).unwrap_or_default())]
    NotLeader { leader: Option<u64> },
    /// Another leader's entry replaced it in this node's log. A third node that still has it may yet bring it
    /// back: a retry must detect a duplicate.
    #[error("another leader's entry took the proposal's place; it may still be applied")]
    Superseded,
    /// Consensus stopped permanently; after a restart the proposal may turn out to be applied.
    #[error("consensus failed: {0}")]
    Failed(Failure),
    #[error("the node is stopping")]
    Stopping,
}

#[derive(Debug, Error)]
pub enum StartError {
    /// The stored state of consensus cannot be decoded: another version wrote it, or it is damaged.
    #[error("{what} in the journal cannot be read: {reason}")]
    Unreadable { what: &'static str, reason: String },
    #[error("the snapshot at entry {index} cannot be restored: {source}")]
    Restore { index: u64, source: RestoreError },
    #[error(
        "node {node} does not vote in the group whose log this is (its voters: {voters:?}); start \
         it under the id it had, or with the data that belongs to it"
    )]
    NotAVoter { node: u64, voters: BTreeSet<u64> },
    #[error("consensus could not start: {0}")]
    Engine(String),
    /// It stopped while the log was replayed.
    #[error("consensus failed while it started: {0}")]
    Failed(#[from] Failure),
}

/// The machine does not understand an entry.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{0}")]
pub struct ApplyError(pub String);

/// The machine does not understand its own snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{0}")]
pub struct RestoreError(pub String);

/// Reason why no snapshot was taken. The log keeps the entries that the snapshot would have freed.
#[derive(Debug, Error)]
pub enum SnapshotError {
    #[error("cannot write the snapshot: {0}")]
    Write(#[from] io::Error),
    #[error("the machine panicked while its state was taken; the log has its message")]
    Panicked,
    #[error("consensus failed: {0}")]
    Failed(#[from] Failure),
}

/// Reason why the group was not founded.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum FoundingError {
    #[error("this node is in a group already, or has voted in one")]
    Founded,
    #[error("the node that founds a group is one of its voters")]
    NotAVoter,
    #[error("a group is founded by its voters; learners are added later")]
    Learners,
    #[error("consensus failed: {0}")]
    Failed(Failure),
}

/// Reason why the members differ from the requested ones. The change may be half done, and can be retried.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum ChangeError {
    #[error("a group without voters decides nothing")]
    NoVoters,
    #[error("another change of the members is under way")]
    UnderWay,
    #[error("the change is refused: {0}")]
    Refused(String),
    #[error(transparent)]
    NotDone(#[from] ProposeError),
}

/// Reason why leadership was not transferred.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum TransferError {
    #[error("this node does not lead{}", leader.map(|node| format!("; node {node} does")).unwrap_or_default())]
    NotLeader { leader: Option<u64> },
    #[error("node {node} does not vote")]
    NotAVoter { node: u64 },
    #[error("node {node} lacks {entries} entries of the log")]
    Behind { node: u64, entries: u64 },
    /// An election by timeout follows.
    #[error("node {node} did not take over in time")]
    NotTaken { node: u64 },
    #[error(transparent)]
    Failed(ProposeError),
}
