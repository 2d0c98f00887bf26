//! Campaigning after a leader's death.
//!
//! Voters grant a silent leader its lease, since it may only be slow. If a majority of them knows that it is dead
//! they need not: the campaign uses the request of a leader's own transfer of leadership.

use openraft::async_runtime::WatchReceiver;
use openraft::raft::TransferLeaderRequest;

use crate::consensus::Consensus;
use crate::engine::Vote;
use crate::floor::LogEnd;
use crate::role::Role;

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
        let last = self.raft.data_metrics().borrow_watched().last_log;
        last.map(LogEnd::of).unwrap_or_default()
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
