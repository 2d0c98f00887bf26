//! The promises of a member whose log was deleted.
//!
//! A node that left a group may delete its log. But a candidate that does not know of the change may still request
//! its vote: the node voted among these members, and its log stood for entries of a majority. So its vote, and the
//! end of its log, outlive the log. Until a log of it reaches that end again, it neither votes for a candidate
//! with less, nor campaigns: as if it still had the log, which would be longer than that candidate's. A node that
//! never was a member has no floor. A node that returned is above its floor once it has the log.

use journal::{EntryId, Journal};
use serde::{Deserialize, Serialize};
use tasks::{Task, Workers};

use crate::encoding::{self, Position, VoteRecord};
use crate::engine::{LogId, Vote};
use crate::error::StartError;

/// The end of a member's log. Of two members the one with the later end may lead, and the other may not.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct LogEnd {
    /// Term of the last entry.
    pub term: u64,
    pub index: u64,
}

impl LogEnd {
    pub(crate) fn of(id: LogId) -> Self {
        Self { term: id.leader_id.term, index: id.index }
    }
}

impl From<Position> for LogEnd {
    fn from(Position { term, index }: Position) -> Self {
        Self { term, index }
    }
}

impl From<EntryId> for LogEnd {
    fn from(EntryId { term, index, .. }: EntryId) -> Self {
        Self { term, index }
    }
}

/// The floor of a group, in one node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Floor {
    pub(crate) vote: Option<Vote>,
    /// The end of the log; `None`: it was empty.
    pub(crate) last: Option<LogEnd>,
}

/// The stored form of a floor.
#[derive(Serialize, Deserialize)]
struct FloorRecord {
    vote: Option<VoteRecord>,
    last: Option<Position>,
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
        let last = journal.last_id().map(LogEnd::from);
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
        encoding::encode(&FloorRecord {
            vote: self.vote.as_ref().map(VoteRecord::from),
            last: self.last.map(|LogEnd { term, index }| Position { term, index }),
        })
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, NotAFloor> {
        let decoded = encoding::decode(bytes).map_err(|error| NotAFloor(error.to_string()));
        let FloorRecord { vote, last } = decoded?;
        Ok(Self { vote: vote.map(Vote::from), last: last.map(LogEnd::from) })
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
