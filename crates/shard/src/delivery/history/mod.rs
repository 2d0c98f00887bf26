//! History of a record: its state in groups now, and the steps before.
//!
//! The state is known to the driver and its machine, and is exact. Earlier steps are remembered as far as there
//! is room: each shard has a [`Ring`] of the last steps, of a fixed size, at each node that has led it since
//! that node was started. A driver adds to it once per pass over a group, so that the pass takes one lock;
//! nothing is written to disk. A reader queries all nodes with a replica of the shard, so that the steps of a
//! former leader are found, too.
//!
//! * [`ring`]: the last steps; [`session_users`]: the users of their sessions
//! * [`feed`]: sends the steps to a subscriber, as they happen
//! * `history_query` of the broker queries the nodes and merges their replies

pub(crate) mod feed;
pub mod ring;
pub mod session_users;

pub use feed::{FeedEvent, FeedEventKind, HistoryEvents, HistoryFeed};
pub use session_users::SessionUser;

use base::{LeaseGroupId, Offset};
use dispatch::{SessionId, StepKind};
use serde::{Deserialize, Serialize};

use super::inspect::RecordState;

/// The record, and the groups in question.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HistoryQuery {
    pub groups: Vec<LeaseGroupId>,
    pub partition: u32,
    pub offset: Offset,
}

/// A node's knowledge of the record.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct HistoryReply {
    /// The record's state in each group, if it is not settled. `None`: the node does not lead the shard.
    pub standings: Option<Vec<Option<UnsettledRecord>>>,
    /// Steps before this time are no longer remembered. `None`: all steps since the node was started are.
    pub since_ms: Option<i64>,
    /// In the order of time.
    pub past: Vec<PastStep>,
}

/// State in a group of a record that is not settled.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct UnsettledRecord {
    pub state: RecordState,
    /// Number of deliveries after which the record came back.
    pub attempts: u16,
    /// The record with the same key that it waits for.
    pub behind: Option<Offset>,
}

impl UnsettledRecord {
    /// The session that holds the lease.
    pub fn session(&self) -> Option<SessionId> {
        match self.state {
            RecordState::Leased { session, .. } => Some(session),
            _ => None,
        }
    }
}

/// A past step of the record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PastStep {
    pub at_ms: i64,
    pub group: LeaseGroupId,
    pub what: StepKind,
    pub session: SessionId,
    pub attempt: u16,
}
