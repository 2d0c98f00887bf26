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
//! * [`super::history_query`]: queries the nodes and merges their replies

pub(crate) mod feed;
pub(crate) mod ring;
pub(crate) mod session_users;

pub use feed::{FeedEvent, FeedEventKind, HistoryEvents, HistoryFeed};
pub use session_users::SessionUser;

use base::{LeaseGroupId, Offset};
use dispatch::{SessionId, StepKind};
use serde::{Deserialize, Serialize};

use super::inspect::RecordState;

/// The record, and the groups in question.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct HistoryQuery {
    pub(crate) groups: Vec<LeaseGroupId>,
    pub(crate) partition: u32,
    pub(crate) offset: Offset,
}

/// A node's knowledge of the record.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct HistoryReply {
    /// The record's state in each group, if it is not settled. `None`: the node does not lead the shard.
    pub(crate) standings: Option<Vec<Option<UnsettledRecord>>>,
    /// Steps before this time are no longer remembered. `None`: all steps since the node was started are.
    pub(crate) since_ms: Option<i64>,
    /// In the order of time.
    pub(crate) past: Vec<PastStep>,
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
    pub(crate) fn session(&self) -> Option<SessionId> {
        match self.state {
            RecordState::Leased { session, .. } => Some(session),
            _ => None,
        }
    }
}

/// A past step of the record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct PastStep {
    pub(crate) at_ms: i64,
    pub(crate) group: LeaseGroupId,
    pub(crate) what: StepKind,
    pub(crate) session: SessionId,
    pub(crate) attempt: u16,
}
