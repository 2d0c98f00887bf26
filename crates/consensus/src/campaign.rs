//! The conditions under which this node campaigns, and refuses its vote.

use openraft::async_runtime::WatchReceiver;

use crate::consensus::{CampaignConditions, Consensus};
use crate::encoding::VoteRecord;
use crate::floor::LogEnd;
use crate::message::{Candidacy, Reply, positions};

impl Consensus {
    /// Sets whether this node campaigns when the leader falls silent. It votes in any case. A caller that knows
    /// that the leader's process is gone uses [`Self::campaigns_last`].
    pub fn set_may_campaign(&self, may: bool) {
        self.set_standing(|standing| std::mem::replace(&mut standing.is_allowed, may) != may);
    }

    /// Whether another voter is preferred as a leader.
    pub fn campaigns_last(&self) -> bool {
        !self.state.standing.lock().is_allowed
    }

    /// Sets whether it can read the entries that it would have to send as a leader: if not, it does not campaign
    /// either.
    pub(crate) fn set_can_read(&self, can: bool) {
        self.set_standing(|standing| std::mem::replace(&mut standing.can_read, can) != can);
    }

    /// Records that it has regained its deleted log.
    pub(crate) fn set_above_floor(&self) {
        self.set_standing(|standing| !std::mem::replace(&mut standing.is_above_floor, true));
    }

    fn set_standing(&self, changes: impl FnOnce(&mut CampaignConditions) -> bool) {
        let mut standing = self.state.standing.lock();
        if changes(&mut standing) {
            self.raft.runtime_config().elect(standing.stands());
        }
    }

    /// Whether this node's log is shorter than its deleted log.
    pub fn is_below_floor(&self) -> bool {
        let Some(floor) = self.state.floor else { return false };
        self.raft.data_metrics().borrow_watched().last_log.map(LogEnd::of) < Some(floor)
    }

    /// The refusal of a candidate whose log ends below the floor.
    pub(crate) fn refused_by_floor(&self, candidacy: &Candidacy) -> Option<Reply> {
        let floor = self.state.floor?;
        if candidacy.last.map(LogEnd::from) >= Some(floor) || !self.is_below_floor() {
            return None;
        }
        let vote = VoteRecord::from(&self.server.borrow_watched().vote);
        let data = self.raft.data_metrics();
        let last = positions(data.borrow_watched().last_log);
        Some(Reply::Vote { vote, granted: false, last })
    }

    /// Lets the node campaign once it has regained its deleted log.
    pub(crate) async fn campaign_above_floor(self) {
        let mut data = self.raft.data_metrics();
        while self.is_below_floor() {
            if data.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
        self.set_above_floor();
        tracing::info!("this member has again what it had given up of its group's log");
        std::future::pending().await
    }
}
