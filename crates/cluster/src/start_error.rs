//! Reasons why a node does not start as a member of a cluster.

use links::{ConnectError, ConnectionEnd, Refusal, StartError};
use thiserror::Error;
use uuid::Uuid;

use crate::directory::DirectoryError;
use crate::level::LevelError;
use crate::seeds::SeedsError;

/// Reason why a node does not start as a member of a cluster.
#[derive(Debug, Error)]
pub enum NodeStartError {
    #[error(transparent)]
    Listen(#[from] StartError),
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    #[error(transparent)]
    Seeds(#[from] SeedsError),
    #[error(transparent)]
    Level(#[from] LevelError),
    /// The first seed replies, and refuses this node in the cluster that it founds.
    #[error("the first seed {seed} cannot be asked for the cluster: {error}")]
    FirstSeed { seed: String, error: ConnectError },
    /// A member replies, and refuses this node.
    #[error("{member} cannot be joined: {error}")]
    NotJoined { member: String, error: ConnectError },
    #[error(
        "the data directory is a copy of that of node {node}, which runs at {recorded}: start this one with an \
         empty data directory and `--join {recorded}`, or stop that one first"
    )]
    Copied { node: u64, recorded: String },
    #[error(
        "the data directory is of node {node} of cluster {cluster}, and {member} refuses it: {refusal}"
    )]
    Foreign { node: u64, cluster: Uuid, member: String, refusal: Refusal },
}

/// Whether a retry would not help.
pub(crate) fn needs_an_operator(error: &ConnectError) -> bool {
    match error {
        ConnectError::Refused(_)
        | ConnectError::RefusedHere(_)
        | ConnectError::Insecure(_)
        | ConnectError::Tls(_)
        | ConnectError::Ended(ConnectionEnd::Violation(_)) => true,
        ConnectError::NobodyListens
        | ConnectError::Unreachable(_)
        | ConnectError::Unanswered
        | ConnectError::Ended(_) => false,
    }
}
