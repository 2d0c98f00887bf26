//! Changes of the policies of a vhost, and their effect on matching entities.
//!
//! Every node's memory follows the documents of policies. The configuration of topics and lease groups is shared by
//! all nodes. It is changed by the node that changes a policy, after the commit, and by a node that declares a queue
//! while another node changes a policy: at least one of the two sees both.

use std::sync::Arc;

use documents::{Change, DocumentRef, StoreError, WritePrecondition};
use operations::amqp::PolicyDefinition;

use super::{AttemptOutcome, Attempts};
use crate::error::ChangeError;
use crate::policy::{Policy, PolicyError, PolicyScope};
use crate::queue::Queue;
use crate::store::policy_space;
use crate::topics;
use crate::virtual_host::VirtualHost;

impl VirtualHost {
    /// Creates or replaces a policy. It is applied to all matching entities when this returns.
    pub async fn set_policy(
        &self,
        scope: PolicyScope,
        name: &str,
        set: PolicyDefinition,
    ) -> Result<(), PolicyError> {
        let policy = Policy::new(scope, name, set)?;
        let mut attempts = Attempts::default();
        loop {
            let (mut change, kept) = (Change::new(), documents::join(&[self.name(), name]));
            change.put(policy_space(scope), kept, &policy.set, WritePrecondition::Anything)?;
            if let AttemptOutcome::Done = self.make(change, &mut attempts).await? {
                return Ok(self.apply_policies().await?);
            }
        }
    }

    pub async fn delete_policy(&self, scope: PolicyScope, name: &str) -> Result<(), PolicyError> {
        let mut attempts = Attempts::default();
        loop {
            self.catch_up();
            if self.policy(scope, name).is_none() {
                self.refresh().await?;
            }
            let Some(policy) = self.policy(scope, name) else {
                return Err(PolicyError::NotFound(name.to_owned()));
            };
            let mut change = Change::new();
            let kept = documents::join(&[self.name(), name]);
            let version = policy.version;
            change.delete(&DocumentRef { space: policy_space(scope), name: kept, version });
            if let AttemptOutcome::Done = self.make(change, &mut attempts).await? {
                return Ok(self.apply_policies().await?);
            }
        }
    }

    /// Updates the configuration of all queues' topics and lease groups to the settings in memory.
    pub(crate) async fn apply_policies(&self) -> Result<(), StoreError> {
        let queues: Vec<_> = self.entities().read().queues().cloned().collect();
        let declared: Vec<_> = queues.into_iter().filter(|queue| queue.declared).collect();
        for some in declared.chunks(CONFIGURED_AT_ONCE) {
            let applied = some.iter().map(|queue| self.apply_settings(queue));
            futures_util::future::try_join_all(applied).await?;
        }
        Ok(())
    }

    /// Updates the configuration of a queue's topic and lease group to its settings.
    pub(crate) async fn apply_settings(&self, queue: &Arc<Queue>) -> Result<(), StoreError> {
        let settings = queue.settings();
        let topic = settings.topic_config(queue.kind, queue.durable);
        let lease = settings.lease_config(&queue.vhost, &queue.name);
        let (topic, lease) = ((queue.topic, topic), (queue.group(), lease));
        topics::configure(self.broker(), topic, lease).await
    }
}

impl From<ChangeError> for PolicyError {
    fn from(error: ChangeError) -> Self {
        match error {
            ChangeError::Store(error) => Self::Storage(error),
            gone => Self::VirtualHost(gone.to_string()),
        }
    }
}

/// Number of queues configured concurrently.
const CONFIGURED_AT_ONCE: usize = 256;
