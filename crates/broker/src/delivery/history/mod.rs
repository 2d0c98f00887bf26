//! What became of a record: where it stands in groups now, and what happened to it before.
//!
//! Where it stands is what the driver and its machine know, and is right. What happened before is remembered as far as
//! there is room: each shard has a [`Ring`] of what happened last, of a fixed size, at each node that has led it since
//! that node was started. A driver adds to it once a turn of a group, so that it takes one lock for all that a turn did,
//! and nothing is written to a disk. Who looks asks all nodes that have the shard, so that what a former leader did is
//! found, too.
//!
//! * [`ring`]: what happened last; [`who`]: whose sessions those were
//! * [`feed`]: tells it to somebody else, as it happens
//! * [`super::looking`]: asks the nodes, and puts together what they say

pub(crate) mod feed;
pub(crate) mod ring;
pub(crate) mod who;

pub use feed::{Happened, Happening, HistoryEvents, HistoryFeed};
pub use who::SessionUser;

use base::{LeaseGroupId, Offset};
use dispatch::{SessionId, What};
use serde::{Deserialize, Serialize};

use super::inspect::RecordState;

/// Which record, and to which groups.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Look {
    pub(crate) groups: Vec<LeaseGroupId>,
    pub(crate) partition: u32,
    pub(crate) offset: Offset,
}

/// What a node knows of it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Looked {
    /// Of each group where it stands, if it is not settled. `None`: the node does not lead the shard.
    pub(crate) standings: Option<Vec<Option<Standing>>>,
    /// What happened before is not remembered here; `None`: everything is that happened since the node was started.
    pub(crate) since_ms: Option<i64>,
    /// In the order in which it happened.
    pub(crate) past: Vec<Past>,
}

/// Where a record that is not settled stands in a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Standing {
    pub state: RecordState,
    /// How often it was delivered and came back.
    pub attempts: u16,
    /// The record of its key that it waits for.
    pub behind: Option<Offset>,
}

impl Standing {
    /// Who has it.
    pub(crate) fn session(&self) -> Option<SessionId> {
        match self.state {
            RecordState::Leased { session, .. } => Some(session),
            _ => None,
        }
    }
}

/// Something that happened to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Past {
    pub(crate) at_ms: i64,
    pub(crate) group: LeaseGroupId,
    pub(crate) what: What,
    pub(crate) session: SessionId,
    pub(crate) attempt: u16,
}
