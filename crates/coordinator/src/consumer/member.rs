//! A member of a KIP-848 group.

use std::time::Duration;

use crate::Text;
use uuid::Uuid;
use world::Instant;

use crate::assignment::Assignment;
use crate::assignor::Assignor;
use crate::member::Client;
use crate::reconcile::MemberState;
use crate::subscription::Subscription;

#[derive(Clone, Debug)]
pub struct Member {
    pub id: Text,
    pub instance_id: Option<Text>,
    pub rack_id: Option<Text>,
    pub client: Client,
    pub subscription: Subscription,
    pub(super) assignor: Option<Assignor>,
    pub(super) rebalance_timeout: Duration,
    pub state: MemberState<Assignment>,
    pub(super) session_deadline: Instant,
    /// Until when it must have given up what it was asked to.
    pub(super) revocation_deadline: Option<Instant>,
}

impl Member {
    /// Everything that it may be consuming.
    pub(super) fn held(&self) -> impl Iterator<Item = (Uuid, i32)> {
        self.state.assigned.iter().chain(self.state.revoking.iter())
    }

    /// What it weighs in memory, near enough to keep all groups within their budget.
    pub(super) fn bytes(&self) -> usize {
        const MEMBER_BYTES: usize = 768;
        const NAME_BYTES: usize = 64;
        let names: usize = self.subscription.names.iter().map(|name| name.len() + NAME_BYTES).sum();
        MEMBER_BYTES + names + self.subscription.pattern.as_ref().map_or(0, |pattern| pattern.len())
    }
}
