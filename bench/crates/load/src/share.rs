//! An agent's part of a load.

use serde::{Deserialize, Serialize};

use crate::plan::Plan;

/// Numbers are those of the whole load, so that the split does not change the workload.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Share {
    pub senders: Vec<u16>,
    /// Numbers among the receivers of all subscriptions.
    pub receivers: Vec<u32>,
    /// Workers of the stage between senders and receivers.
    pub relays: u32,
    /// Whether it reads the dead letters, if there are any.
    pub buries: bool,
    /// This share's stream of due messages; `streams` is their number. Each share with senders has
    /// the same part of an open loop's rate, whatever its number of senders.
    pub stream: u32,
    pub streams: u32,
}

impl Share {
    /// The whole load.
    pub fn whole(plan: &Plan) -> Self {
        Self {
            senders: (0..plan.senders).collect(),
            receivers: (0..plan.all_receivers()).collect(),
            relays: plan.relay.as_ref().map_or(0, |relay| relay.workers),
            buries: plan.topology.delivery_limit.is_some(),
            stream: 0,
            streams: 1,
        }
    }

    /// Splits as OpenMessaging Benchmark does: senders are on the last half of the agents,
    /// receivers on the rest, both round-robin. The workers of a stage are on all.
    pub fn split(plan: &Plan, agents: usize) -> Vec<Self> {
        if agents <= 1 {
            return vec![Self::whole(plan)];
        }
        let receiving = agents - agents / 2;
        let of = |all: u32, one: usize, agents: usize| (one as u32..all).step_by(agents);
        let streams = plan.senders.min((agents / 2).min(usize::from(u16::MAX)) as u16);
        let relays = plan.relay.as_ref().map_or(0, |relay| relay.workers);
        let share = |agent: usize| {
            let senders = match agent.checked_sub(receiving) {
                Some(one) => {
                    of(plan.senders.into(), one, agents / 2).map(|number| number as u16).collect()
                }
                None => Vec::new(),
            };
            let receivers = match agent < receiving {
                true => of(plan.all_receivers(), agent, receiving).collect(),
                false => Vec::new(),
            };
            Self {
                senders,
                receivers,
                relays: of(relays, agent, agents).count() as u32,
                buries: agent == 0 && plan.topology.delivery_limit.is_some(),
                stream: agent.saturating_sub(receiving) as u32,
                streams: streams.into(),
            }
        };
        (0..agents).map(share).collect()
    }

    /// Whether it is a share of that plan. A share from the network may be invalid.
    pub fn is_of(&self, plan: &Plan) -> bool {
        let workers = plan.relay.as_ref().map_or(0, |relay| relay.workers);
        self.senders.len() <= usize::from(plan.senders)
            && self.senders.iter().all(|number| *number < plan.senders)
            && self.receivers.len() <= plan.all_receivers() as usize
            && self.receivers.iter().all(|number| *number < plan.all_receivers())
            && self.relays <= workers
            && (!self.buries || plan.topology.delivery_limit.is_some())
            && (self.senders.is_empty() || self.stream < self.streams)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use driver::{Style, Tier, Topology};

    use super::*;
    use crate::plan::{Relay, Work};

    fn plan(senders: u16, receivers: u32, subscriptions: u32) -> Plan {
        let mut topology = Topology::new("t", Style::Queue, Tier::T0);
        topology.subscriptions = subscriptions;
        topology.delivery_limit = Some(3);
        let mut plan = Plan::new(topology.clone(), 100, Duration::from_secs(1));
        (plan.senders, plan.receivers) = (senders, receivers);
        plan.relay = Some(Relay { from: topology, workers: 5, receive_max: 1, work: Work::None });
        plan
    }

    #[test]
    fn split_assigns_each_part_to_exactly_one_agent() {
        for (senders, receivers, subscriptions) in [(1, 1, 1), (10, 20, 1), (3, 1, 64), (7, 2, 3)] {
            let plan = plan(senders, receivers, subscriptions);
            let whole = Share::whole(&plan);
            for agents in 1..12 {
                let shares = Share::split(&plan, agents);
                assert_eq!(shares.len(), agents);
                assert!(shares.iter().all(|share| share.is_of(&plan)));
                let mut sent: Vec<_> = shares.iter().flat_map(|it| it.senders.clone()).collect();
                sent.sort_unstable();
                let mut taken: Vec<_> = shares.iter().flat_map(|it| it.receivers.clone()).collect();
                taken.sort_unstable();
                let relays: u32 = shares.iter().map(|share| share.relays).sum();
                assert_eq!((&sent, &taken), (&whole.senders, &whole.receivers));
                assert_eq!(relays, whole.relays);
                assert_eq!(shares.iter().filter(|share| share.buries).count(), 1);
            }
        }
    }

    #[test]
    fn senders_are_on_the_last_half_and_each_such_share_has_a_stream() {
        let shares = Share::split(&plan(3, 4, 1), 5);
        let senders: Vec<&[u16]> = shares.iter().map(|share| &share.senders[..]).collect();
        assert_eq!(senders, [&[][..], &[], &[], &[0, 2], &[1]]);
        let receivers: Vec<&[u32]> = shares.iter().map(|share| &share.receivers[..]).collect();
        assert_eq!(receivers, [&[0, 3][..], &[1], &[2], &[], &[]]);
        assert_eq!(
            shares[3..].iter().map(|it| (it.stream, it.streams)).collect::<Vec<_>>(),
            [(0, 2), (1, 2)]
        );
        let few = Share::split(&plan(1, 4, 1), 6);
        assert_eq!((few[3].stream, few[3].streams, few[4].senders.len()), (0, 1, 0));
    }

    #[test]
    fn share_of_another_plan_is_detected() {
        let (small, large) = (plan(2, 2, 1), plan(9, 9, 2));
        assert!(!Share::whole(&large).is_of(&small));
        assert!(!Share { streams: 0, ..Share::whole(&small) }.is_of(&small));
    }
}
