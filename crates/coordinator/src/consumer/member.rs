//! A member of a KIP-848 group.

use std::time::Duration;

use uuid::Uuid;

use crate::Text;
use crate::assignment::Assignment;
use crate::assignor::{Assignor, Subscriber};
use crate::epochs::Subscribed;
use crate::members::{self, Enrolment};
use crate::reconcile::MemberState;
use crate::subscription::Subscription;

#[derive(Clone, Debug)]
pub struct Member {
    pub enrolment: Enrolment,
    pub instance_id: Option<Text>,
    pub subscription: Subscription,
    pub(super) assignor: Option<Assignor>,
    pub(super) rebalance_timeout: Duration,
    pub state: MemberState<Assignment>,
}

impl Member {
    /// All partitions that it may be consuming.
    pub(super) fn held(&self) -> impl Iterator<Item = (Uuid, i32)> {
        self.state.assigned.iter().chain(self.state.revoking.iter())
    }
}

impl members::Member for Member {
    type Target = Assignment;

    fn enrolment(&self) -> &Enrolment {
        &self.enrolment
    }

    fn enrolment_mut(&mut self) -> &mut Enrolment {
        &mut self.enrolment
    }

    fn epoch(&self) -> i32 {
        self.state.epoch
    }

    fn set_target(&mut self, target: Assignment) {
        self.state.target = target;
    }

    fn bytes(&self) -> usize {
        const MEMBER_BYTES: usize = 768;
        const NAME_BYTES: usize = 64;
        let names: usize = self.subscription.names.iter().map(|name| name.len() + NAME_BYTES).sum();
        MEMBER_BYTES + names + self.subscription.pattern.as_ref().map_or(0, |pattern| pattern.len())
    }
}

impl Subscribed for Member {
    fn subscription_mut(&mut self) -> &mut Subscription {
        &mut self.subscription
    }

    fn subscriber(&self) -> Subscriber<'_> {
        Subscriber {
            id: &self.enrolment.id,
            instance_id: self.instance_id.as_ref(),
            topics: &self.subscription.topics,
            target: &self.state.target,
        }
    }
}
