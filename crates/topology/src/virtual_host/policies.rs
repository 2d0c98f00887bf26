//! Policies of a vhost, and what they do to the entities that they fit.

use std::sync::Arc;

use documents::store::{delete, put};
use documents::{Expect, StoreError, Stored};

use super::VirtualHost;
use crate::policy::{Policy, PolicyDefinition, PolicyError, PolicyMatch, PolicyScope, Subject};
use crate::queue::Queue;
use crate::settings::QueueSettings;
use crate::store::policy_space;
use crate::topics;

impl VirtualHost {
    /// The highest priority first.
    pub fn policies(&self, scope: PolicyScope) -> Vec<Policy> {
        self.0.entities.read().policies.list(scope).to_vec()
    }

    /// Makes or replaces a policy; it holds for all that it fits when this returns.
    pub async fn set_policy(
        &self,
        scope: PolicyScope,
        name: &str,
        set: PolicyDefinition,
    ) -> Result<(), PolicyError> {
        let mut policy = Policy::new(scope, name, set)?;
        let _policing = self.0.policing.write().await;
        let kept = documents::join(&[&self.0.name, name]);
        policy.version =
            put(&self.0.broker, policy_space(scope), kept, &policy.set, Expect::Anything).await?;
        self.0.entities.write().policies.set(scope, policy);
        Ok(self.apply_policies().await?)
    }

    pub async fn delete_policy(&self, scope: PolicyScope, name: &str) -> Result<(), PolicyError> {
        let _policing = self.0.policing.write().await;
        let known = self.policies(scope).into_iter().find(|policy| *policy.name == *name);
        let Some(policy) = known else { return Err(PolicyError::NotFound(name.to_owned())) };
        let stored = Stored {
            space: policy_space(scope),
            name: documents::join(&[&self.0.name, name]),
            version: policy.version,
        };
        delete(&self.0.broker, &stored).await?;
        self.0.entities.write().policies.remove(scope, name);
        Ok(self.apply_policies().await?)
    }

    pub(crate) async fn apply_policies(&self) -> Result<(), StoreError> {
        let queues = {
            let mut entities = self.0.entities.write();
            let exchanges: Vec<_> = entities.exchanges().map(|x| Arc::clone(&x.name)).collect();
            exchanges.iter().for_each(|exchange| entities.apply_policy_to_exchange(exchange));
            entities.queues().cloned().collect::<Vec<_>>()
        };
        let declared: Vec<_> = queues.into_iter().filter(|queue| queue.declared).collect();
        for some in declared.chunks(CONFIGURED_AT_ONCE) {
            let applied = some.iter().map(|queue| self.apply_settings(queue));
            futures_util::future::try_join_all(applied).await?;
        }
        Ok(())
    }

    /// Brings a queue's settings, and the configuration of its topic and its lease group, to what
    /// its arguments and the policies come to.
    async fn apply_settings(&self, queue: &Arc<Queue>) -> Result<(), StoreError> {
        let policies: PolicyMatch =
            self.0.entities.read().policies.find(Subject::Queue(&queue.name, queue.kind));
        let settings = QueueSettings::new(queue.kind, &queue.arguments, &policies);
        let topic = settings.topic_config(queue.kind, queue.durable);
        let lease = settings.lease_config(&queue.vhost, &queue.name);
        queue.set_settings(self.0.shared.values.settings(settings));
        self.0.shared.expiry.watch(queue);
        let (topic, lease) = ((queue.topic, topic), (queue.group(), lease));
        topics::configure(&self.0.broker, topic, lease).await
    }
}

/// Queues whose configuration is changed in one go.
const CONFIGURED_AT_ONCE: usize = 256;
