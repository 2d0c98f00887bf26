//! Ends a term by a vote in a later one.

use openraft::Raft;
use openraft::errors::Fatal;
use openraft::raft::VoteRequest;

use crate::engine::{TypeConfig, Vote, log_id};
use crate::replica::Replica;

/// A node id that no node has.
const NOBODY: u64 = u64::MAX;

/// Gives this node's vote for the term to a candidate that does not exist. The candidate's log is longer than any
/// other, so that it gets the vote.
pub(crate) async fn depose(
    raft: &Raft<TypeConfig, Replica>,
    term: u64,
) -> Result<(), Option<Fatal<TypeConfig>>> {
    let candidate = VoteRequest {
        vote: Vote::new(term, NOBODY),
        last_log_id: Some(log_id(term, u64::MAX)),
        leadership_transfer: true,
    };
    raft.vote(candidate).await.map(|_| ()).map_err(|error| error.into_fatal())
}
