//! A member of a Streams group.

use std::time::Duration;

use super::status::Endpoint;
use super::tasks::Tasks;
use crate::Text;
use crate::member::Client;
use crate::members::{self, Deadlines};
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
    pub(super) deadlines: Deadlines,
}

impl members::Member for Member {
    type Target = Tasks;

    fn id(&self) -> &Text {
        &self.id
    }

    fn epoch(&self) -> i32 {
        self.state.epoch
    }

    fn set_target(&mut self, target: Tasks) {
        self.state.target = target;
    }

    fn deadlines(&self) -> &Deadlines {
        &self.deadlines
    }

    fn deadlines_mut(&mut self) -> &mut Deadlines {
        &mut self.deadlines
    }

    fn bytes(&self) -> usize {
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
