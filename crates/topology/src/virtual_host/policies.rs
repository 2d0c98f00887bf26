//! Policies of a vhost in memory, and the settings of its queues.

use std::sync::Arc;

use operations::amqp::Definition;

use super::VirtualHost;
use crate::policy::{Policy, PolicyScope, Subject};
use crate::queue::{PolicyMatch, Queue, QueueSettings};

impl VirtualHost {
    /// Highest priority first.
    pub fn policies(&self, scope: PolicyScope) -> Vec<Policy> {
        self.0.entities.read().policies.list(scope).to_vec()
    }

    pub(crate) fn policy(&self, scope: PolicyScope, name: &str) -> Option<Policy> {
        self.policies(scope).into_iter().find(|policy| *policy.name == *name)
    }

    /// Applies changed policies to memory.
    pub(crate) fn take_policies(&self) {
        let queues = {
            let mut entities = self.0.entities.write();
            let exchanges: Vec<_> = entities.exchanges().map(|x| Arc::clone(&x.name)).collect();
            exchanges.iter().for_each(|exchange| entities.apply_policy_to_exchange(exchange));
            entities.queues().filter(|queue| queue.declared).cloned().collect::<Vec<_>>()
        };
        for queue in queues {
            let settings = self.settings_of(&queue);
            queue.set_settings(self.0.shared.values.settings(settings));
            self.0.shared.expiry.watch(&queue);
        }
    }

    /// The settings of a queue by all its policies together.
    pub fn effective_policy(&self, queue: &Queue) -> Definition {
        let entities = self.0.entities.read();
        entities.policies.find(Subject::Queue(&queue.name, queue.kind)).definition
    }

    fn settings_of(&self, queue: &Queue) -> QueueSettings {
        let policies: PolicyMatch =
            self.0.entities.read().policies.find(Subject::Queue(&queue.name, queue.kind));
        QueueSettings::new(queue.kind, &queue.arguments, &policies)
    }
}
