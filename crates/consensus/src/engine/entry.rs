//! An entry of the log, as openraft holds it.
//!
//! In addition to the content it holds its encoding, if it has one already: entries from another node go into the
//! journal as received, and entries read for another node are sent as written.

use std::fmt;

use journal::Encoded;
use openraft::BasicNode;
use openraft::entry::{EntryPayload, RaftEntry, RaftPayload};

use super::{CommittedLeader, LogId, Membership};
use crate::machine::Payload;

pub(crate) type Content = EntryPayload<Payload, u64, BasicNode>;

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) log_id: LogId,
    pub(crate) payload: Content,
    pub(crate) encoded: Option<Encoded>,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.log_id == other.log_id && self.payload == other.payload
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.log_id, self.payload)
    }
}

impl RaftEntry for Entry {
    type CommittedLeaderId = CommittedLeader;
    type Payload = Content;

    fn new(log_id: LogId, payload: Content) -> Self {
        Self { log_id, payload, encoded: None }
    }

    fn log_id_parts(&self) -> (&CommittedLeader, u64) {
        (&self.log_id.leader_id, self.log_id.index)
    }

    fn set_log_id(&mut self, new: LogId) {
        self.log_id = new;
        self.encoded = None;
    }

    fn get_membership(&self) -> Option<Membership> {
        self.payload.get_membership()
    }
}
