//! A member of a Streams group.

use std::time::Duration;

use crate::Text;
use world::Instant;

use super::status::Endpoint;
use super::tasks::Tasks;
use crate::member::Client;
use crate::reconcile::MemberState;

#[derive(Clone, Debug)]
pub struct Member {
    pub id: Text,
    pub rack_id: Option<Text>,
    pub client: Client,
    pub(super) rebalance_timeout: Duration,
    pub topology_epoch: i32,
    pub process_id: Text,
    pub endpoint: Option<Endpoint>,
    pub tags: Vec<(Text, Text)>,
    pub state: MemberState<Tasks>,
    pub(super) session_deadline: Instant,
    /// Until when it must have given up what it was asked to.
    pub(super) revocation_deadline: Option<Instant>,
}

impl Member {
    /// What it weighs in memory, near enough to keep all groups within their budget.
    pub(super) fn bytes(&self) -> usize {
        const MEMBER_BYTES: usize = 1024;
        const TASK_BYTES: usize = 96;
        const TAG_BYTES: usize = 64;
        let state = &self.state;
        let tasks = state.assigned.len() + state.revoking.len() + state.target.len();
        let tags = self.tags.iter().map(|(key, value)| key.len() + value.len() + TAG_BYTES);
        MEMBER_BYTES
            + (tasks + state.given_in.len()) * TASK_BYTES
            + self.process_id.len()
            + tags.sum::<usize>()
    }
}
