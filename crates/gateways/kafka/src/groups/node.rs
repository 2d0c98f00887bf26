//! The groups of this node, with what looks after them, and what its configuration says about them.

use std::ops::Deref;
use std::time::Duration;

use broker::Broker;
use broker::config::GroupValues;
use coordinator::classic::JoinLimits;
use coordinator::{Coordinator, watch_deadlines};
use tasks::Task;

use crate::groups::expiry;

/// What all sessions share about groups: the node coordinates all of them.
#[derive(Debug)]
pub(crate) struct Groups(Coordinator);

impl Groups {
    /// Must be called within a runtime: two tasks look after deadlines and old offsets.
    pub(crate) fn new(broker: &Broker) -> Self {
        let mut coordinator = Coordinator::default();
        let groups = coordinator.registry();
        let of_node = broker.clone();
        let limits = move || join_limits(&group_values(&of_node));
        coordinator.own(broker.vital(Task::KafkaGroupTimers, watch_deadlines(groups, limits)));
        let expiring = expiry::run(broker.clone(), coordinator.registry());
        coordinator.own(broker.vital(Task::KafkaOffsetExpiry, expiring));
        Self(coordinator)
    }
}

impl Deref for Groups {
    type Target = Coordinator;

    fn deref(&self) -> &Coordinator {
        &self.0
    }
}

/// What the node's configuration says about groups now.
pub(crate) fn group_values(broker: &Broker) -> GroupValues {
    broker.catalog().node_config().own.groups
}

pub(crate) fn join_limits(values: &GroupValues) -> JoinLimits {
    JoinLimits {
        initial_delay: millis(values.initial_rebalance_delay_ms),
        members_max: values.members_max,
    }
}

/// A time in a request or a configuration; less than none is none.
pub(crate) fn millis(ms: i32) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}
