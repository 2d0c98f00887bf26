//! The consumer groups of a node, apart from any wire protocol: groups that commit offsets and share groups.
//!
//! The Kafka gateway translates its requests into calls of this crate. Operators' operations look into the same groups.
//! The state machines of the group protocols are in [`coordinator`]; here they meet the broker:
//!
//! * [`Groups`]: the groups of this node; `coordinators`: a coordinator for each term of each shard that it leads
//! * [`settings`]: the configuration of groups as the state machines need it
//! * `expiry`: expiry of the offsets of unused groups
//! * [`lease_groups`]: share groups in the broker; [`dead_letters`]: their dead letters (KIP-1191)
//! * [`tenants`]: rights on groups with queues of several virtual hosts

mod coordinators;
pub mod dead_letters;
mod expiry;
pub mod lease_groups;
pub mod limits;
pub mod settings;
pub mod tenants;

use std::sync::Arc;

use broker::Broker;
use coordinator::{Coordinator, Group};
use tasks::Task;
use tokio::task::JoinHandle;

pub use coordinators::{CoordinatorError, Coordinators};

/// The groups that this node coordinates. Clones share them.
#[derive(Clone, Debug)]
pub struct Groups(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    coordinators: Arc<Coordinators>,
    expiring: JoinHandle<()>,
}

impl Groups {
    /// Must be called within a runtime: it spawns tasks for deadlines and old offsets. From now on the broker writes dead
    /// letters of share groups.
    pub fn start(broker: &Broker) -> Self {
        let letters = Arc::new(dead_letters::ShareDeadLetters::new(broker.downgrade()));
        broker.set_dead_letter_router(dead_letters::SCHEME, letters);
        let coordinators = Arc::new(Coordinators::new(broker.clone()));
        if broker.is_alone() {
            // This node coordinates all groups from now on, and their time without members counts from here.
            let _ = coordinators.of("");
        }
        let expiring = expiry::run(broker.clone(), Arc::downgrade(&coordinators));
        let expiring = broker.vital(Task::KafkaOffsetExpiry, expiring);
        Self(Arc::new(Inner { coordinators, expiring }))
    }

    pub fn coordinators(&self) -> &Arc<Coordinators> {
        &self.0.coordinators
    }

    /// As [`Coordinators::of`].
    pub fn of(&self, group: &str) -> Result<Arc<Coordinator>, CoordinatorError> {
        self.0.coordinators.of(group)
    }

    /// Whether this node coordinates the group.
    pub fn coordinates(&self, group: &str) -> bool {
        self.0.coordinators.coordinates(group)
    }

    /// Visits every group that this node coordinates, in no order.
    pub fn for_each(&self, mut show: impl FnMut(&str, &Group)) {
        for groups in self.0.coordinators.all() {
            groups.for_each(&mut show);
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.expiring.abort();
    }
}
