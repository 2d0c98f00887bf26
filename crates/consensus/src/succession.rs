//! Campaigning after a leader's death.
//!
//! Voters grant a silent leader its lease, since it may only be slow. If a majority of them knows that it is dead
//! they need not: the campaign uses the request of a leader's own transfer of leadership.

use journal::EntryId;
use openraft::Raft;
use openraft::async_runtime::WatchReceiver;
use openraft::errors::Fatal;
use openraft::raft::{TransferLeaderRequest, VoteRequest};

use crate::consensus::Consensus;
use crate::replica::Replica;
use crate::role::Role;
use crate::types::{TypeConfig, Vote, log_id};

/// The end of a member's log. Of two members the one with the later end may lead, and the other may not.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct LogEnd {
    /// Term of the last entry.
    pub term: u64,
    pub index: u64,
}

impl From<EntryId> for LogEnd {
    fn from(EntryId { term, index, .. }: EntryId) -> Self {
        Self { term, index }
    }
}

impl Consensus {
    /// Latest term that this member voted in.
    pub fn voted_term(&self) -> u64 {
        self.server.borrow_watched().vote.leader_id.term
    }

    /// Members that lost acknowledged entries, as this leader found since the last call.
    pub fn take_lost_members(&self) -> Vec<u64> {
        self.retention.take_lost()
    }

    /// The end of this member's log, including entries that are not durable yet.
    pub fn log_end(&self) -> LogEnd {
        let data = self.raft.data_metrics();
        let last = data.borrow_watched().last_log;
        last.map_or_else(LogEnd::default, |last| LogEnd {
            term: last.leader_id.term,
            index: last.index,
        })
    }

    /// Campaigns although the leader's lease may not be over: a majority of the voters knows that its process is
    /// gone. If it is alive it loses its term, and nothing else. Returns `false` if this node does not vote, or no
    /// longer follows that leader in that term.
    pub async fn succeed(&self, leader: u64, term: u64) -> bool {
        let follows = *self.role().borrow() == (Role::Follower { leader, term });
        let able = {
            let standing = self.state.standing.lock();
            standing.can_read && standing.is_above_floor
        };
        if !able || !follows || !self.members().voters.contains_key(&self.state.node) {
            return false;
        }
        // The voters decide whether its log is new enough.
        let vote = Vote::new_committed(term, leader);
        let request = TransferLeaderRequest::new(vote, self.state.node, None);
        matches!(self.raft.handle_transfer_leader(request).await, Ok(Ok(())))
    }
}

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
