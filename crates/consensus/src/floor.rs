//! The promises of a member whose log was deleted.
//!
//! A node that left a group may delete its log. But a candidate that does not know of the change may still request
//! its vote: the node voted among these members, and its log stood for entries of a majority. So its vote, and the
//! end of its log, outlive the log. Until a log of it reaches that end again, it neither votes for a candidate
//! with less, nor campaigns: as if it still had the log, which would be longer than that candidate's. A node that
//! never was a member has no floor. A node that returned is above its floor once it has the log.

use journal::Journal;
use openraft::async_runtime::WatchReceiver;
use tasks::{Task, Workers};

use crate::consensus::Consensus;
use crate::encoding::{self, VoteRecord};
use crate::error::StartError;
use crate::message::{Candidacy, Reply, positions};
use crate::succession::LogEnd;
use crate::types::Vote;

/// The floor of a group, in one node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Floor {
    pub(crate) vote: Option<Vote>,
    /// The end of the log; `None`: it was empty.
    pub(crate) last: Option<LogEnd>,
}

/// The bytes are not a floor.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("what a member promised cannot be read: {0}")]
pub struct NotAFloor(String);

impl Floor {
    /// The current floor of a member's journal.
    pub fn of(journal: &Journal) -> Result<Self, NotAFloor> {
        let vote = journal.vote().map(|bytes| encoding::decode_vote(&bytes)).transpose();
        let vote = vote.map_err(|error| NotAFloor(error.to_string()))?;
        let last = journal.last_id().map(|id| LogEnd { term: id.term, index: id.index });
        Ok(Self { vote, last })
    }

    /// The later of two votes, and the later of two log ends.
    pub fn max(self, other: Self) -> Self {
        let term = |vote: &Option<Vote>| vote.map(|vote| vote.leader_id.term);
        let vote = if term(&other.vote) > term(&self.vote) { other.vote } else { self.vote };
        Self { vote, last: self.last.max(other.last) }
    }

    /// The end of the log.
    pub fn last(&self) -> Option<LogEnd> {
        self.last
    }

    /// The floor of a log with this many more entries.
    pub fn beyond(self, entries: u64) -> Self {
        let further = |last: LogEnd| LogEnd { index: last.index + entries, ..last };
        Self { last: self.last.map(further), ..self }
    }

    pub fn encode(&self) -> Vec<u8> {
        encoding::encode_floor(self)
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, NotAFloor> {
        encoding::decode_floor(bytes).map_err(|error| NotAFloor(error.to_string()))
    }

    /// Gives the vote to a journal without it, before any reply is sent.
    pub(crate) async fn restore(&self, journal: &Journal, to: &Workers) -> Result<(), StartError> {
        let unreadable = |reason: String| StartError::Unreadable { what: "the vote", reason };
        let has = journal.vote().map(|bytes| encoding::decode_vote(&bytes)).transpose();
        let has = has.map_err(|error| unreadable(error.to_string()))?;
        let term = |vote: Vote| vote.leader_id.term;
        let Some(vote) = self.vote.filter(|vote| has.map(term) < Some(term(*vote))) else {
            return Ok(());
        };
        let (journal, bytes) = (journal.clone(), encoding::encode_vote(&vote));
        let saving = to.blocking(Task::ConsensusDisk, move || journal.save_vote(&bytes)).await;
        let saved = saved_or_ended(saving);
        saved.map_err(|error| StartError::Engine(format!("the vote cannot be saved: {error}")))
    }
}

fn saved_or_ended(
    saving: Result<std::io::Result<()>, impl std::error::Error + Send + Sync + 'static>,
) -> std::io::Result<()> {
    saving.unwrap_or_else(|ended| Err(std::io::Error::other(ended)))
}

impl Consensus {
    /// Whether this node's log is shorter than its deleted log.
    pub fn is_below_floor(&self) -> bool {
        let Some(floor) = self.state.floor else { return false };
        let data = self.raft.data_metrics();
        let last = data.borrow_watched().last_log;
        last.map(|id| LogEnd { term: id.leader_id.term, index: id.index }) < Some(floor)
    }

    /// The refusal of a candidate whose log ends below the floor.
    pub(crate) fn refused_by_floor(&self, candidacy: &Candidacy) -> Option<Reply> {
        let floor = self.state.floor?;
        let asks = candidacy.last.map(|last| LogEnd { term: last.term, index: last.index });
        if asks >= Some(floor) || !self.is_below_floor() {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floor_round_trips_and_keeps_the_later_of_two_promises() {
        let end = |term, index| Some(LogEnd { term, index });
        let floor = |term, last| Floor { vote: Some(Vote::new(term, 3)), last };
        for floor in [floor(7, end(6, 9)), Floor { vote: None, last: None }] {
            assert_eq!(Floor::decode(&floor.encode()), Ok(floor));
        }
        assert!(Floor::decode(&[]).is_err() && Floor::decode(&[9, 9]).is_err());
        let later = floor(7, end(5, 20)).max(floor(8, end(5, 3)));
        assert_eq!(later, floor(8, end(5, 20)));
        assert_eq!(floor(1, end(5, 20)).max(floor(1, end(6, 3))).last, end(6, 3));
    }
}
