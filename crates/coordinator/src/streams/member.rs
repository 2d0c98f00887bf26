//! A member of a Streams group.

use std::time::Duration;

use super::status::Endpoint;
use super::tasks::Tasks;
use crate::Text;
use crate::members::{self, Enrolment};
use crate::reconcile::MemberState;

#[derive(Clone, Debug)]
pub struct Member {
    pub enrolment: Enrolment,
    pub(super) rebalance_timeout: Duration,
    pub topology_epoch: i32,
    pub process_id: Text,
    pub endpoint: Option<Endpoint>,
    pub tags: Vec<(Text, Text)>,
    pub state: MemberState<Tasks>,
}

impl members::Member for Member {
    type Target = Tasks;

    fn enrolment(&self) -> &Enrolment {
        &self.enrolment
    }

    fn enrolment_mut(&mut self) -> &mut Enrolment {
        &mut self.enrolment
    }

    fn epoch(&self) -> i32 {
        self.state.epoch
    }

    fn set_target(&mut self, target: Tasks) {
        self.state.target = target;
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
