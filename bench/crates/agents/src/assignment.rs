//! The work that a coordinator assigns to an agent, and the limits that the agent enforces on it.

use driver::Target;
use load::clock::Clock;
use load::{Content, Pace, Plan, Receivers, Share, Work};
use serde::{Deserialize, Serialize};

const MESSAGE_BYTES_MAX: usize = 64 << 20;
/// Byte limit of the distinct bodies that are built before the load begins.
const POOL_BYTES_MAX: usize = 1 << 30;
const AT_ONCE_MAX: usize = 10_000_000;

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Assignment {
    pub(crate) target: Target,
    pub(crate) plan: Plan,
    pub(crate) share: Share,
    pub(crate) receivers: Receivers,
    /// Offset of the agent's clock from the coordinator's; positive when the agent's is ahead.
    pub(crate) ahead_ns: i64,
}

impl Assignment {
    pub(crate) fn clock(&self) -> Clock {
        Clock::behind_by(self.ahead_ns)
    }

    /// Names the invalid part of the assignment. A correct coordinator never sends one.
    pub(crate) fn refused(&self) -> Option<&'static str> {
        let Self { plan, share, .. } = self;
        let topology = &plan.topology;
        let some = |count: usize| (1..=AT_ONCE_MAX).contains(&count);
        let product = |a: u32, b: u32| a.checked_mul(b).is_some_and(|all| all > 0);
        let pool_bytes = match &plan.content {
            Content::Random(entropy) => usize::from(entropy.pool) * plan.message_bytes,
            Content::Fixed(body) => body.len(),
        };
        let paced = match plan.pace {
            Pace::Closed => true,
            // An agent does not see the deliveries of other agents.
            Pace::PingPong => false,
            Pace::Flood { window } => some(window),
            Pace::Open { per_second, window } => {
                some(window) && per_second.is_finite() && per_second > 0.0
            }
        };
        let relay = plan.relay.as_ref();
        let staged = relay.is_none_or(|it| some(it.receive_max) && it.from.destinations > 0);
        let worked = |work: &Work| match work {
            Work::Take(mix) => mix.iter().all(|(_, time)| !time.is_empty()),
            Work::None | Work::Forget { .. } | Work::Release { .. } | Work::Poison { .. } => true,
        };
        [
            (plan.message_bytes <= MESSAGE_BYTES_MAX && pool_bytes <= POOL_BYTES_MAX, "messages"),
            (product(topology.destinations, plan.lanes), "destinations and lanes"),
            (product(topology.subscriptions, plan.receivers.max(1)), "receivers"),
            (some(*plan.batch.start()) && some(*plan.batch.end()), "batches"),
            (!plan.batch.is_empty() && some(plan.receive_max), "batches"),
            (paced && (0.0..=1.0).contains(&plan.sent_twice), "a rate"),
            (worked(&plan.work) && relay.is_none_or(|it| worked(&it.work)), "work"),
            (staged, "a stage between"),
            (share.is_of(plan), "a share"),
        ]
        .into_iter()
        .find(|(sound, _)| !sound)
        .map(|(_, what)| what)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use driver::{Style, Tier, Topology};

    use super::*;

    fn sound() -> Assignment {
        let topology = Topology::new("t", Style::Queue, Tier::T0);
        let plan = Plan::new(topology, 100, Duration::from_secs(1));
        let share = Share::whole(&plan);
        let receivers = Receivers::Running;
        Assignment { target: Target::of("memory"), plan, share, receivers, ahead_ns: 0 }
    }

    #[test]
    fn oversized_and_invalid_assignments_are_rejected() {
        assert_eq!(sound().refused(), None);
        type Spoil = fn(&mut Plan);
        let wrong: [(&str, Spoil); 9] = [
            ("messages", |plan| plan.message_bytes = 1 << 40),
            ("destinations and lanes", |plan| plan.lanes = 0),
            ("destinations and lanes", |plan| {
                (plan.lanes, plan.topology.destinations) = (1 << 20, 1 << 20);
            }),
            ("receivers", |plan| plan.topology.subscriptions = 0),
            ("batches", |plan| plan.receive_max = 0),
            ("a rate", |plan| plan.pace = Pace::Open { per_second: f64::NAN, window: 1 }),
            ("a rate", |plan| plan.sent_twice = 2.0),
            ("work", |plan| {
                let never = Duration::from_secs(2)..=Duration::from_secs(1);
                plan.work = Work::Take(vec![(1.0, never)]);
            }),
            ("a share", |plan| plan.senders = 0),
        ];
        for (what, spoil) in wrong {
            let mut assignment = sound();
            spoil(&mut assignment.plan);
            assert_eq!(assignment.refused(), Some(what));
        }
    }
}
