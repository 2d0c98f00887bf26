//! Policies of a vhost, and what they do to the entities that they fit.

use std::collections::BTreeMap;
use std::sync::Arc;

use broker::{ExecuteError, Refusal};

use super::Vhost;
use crate::catalog::documents::{self, Stored, refused};
use crate::catalog::policy::{
    Policy, PolicyDefinition, PolicyError, PolicyMatch, PolicyScope, Subject,
};
use crate::catalog::queue::Queue;
use crate::catalog::settings::{QueueSettings, TOPIC_CONFIGS};
use crate::errors::Exception;

impl Vhost {
    /// The highest priority first.
    pub fn policies(&self, scope: PolicyScope) -> Vec<Policy> {
        self.0.topology.read().policies.list(scope).to_vec()
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
        let kept = documents::name(&[&self.0.name, name]);
        policy.version =
            documents::put(&self.0.broker, policy_space(scope), kept, &policy.set).await?;
        self.0.topology.write().policies.set(scope, policy);
        Ok(self.apply_policies().await?)
    }

    pub async fn delete_policy(&self, scope: PolicyScope, name: &str) -> Result<(), PolicyError> {
        let _policing = self.0.policing.write().await;
        let known = self.policies(scope).into_iter().find(|policy| *policy.name == *name);
        let Some(policy) = known else { return Err(PolicyError::NotFound(name.to_owned())) };
        let stored = Stored {
            space: policy_space(scope),
            name: documents::name(&[&self.0.name, name]),
            version: policy.version,
        };
        documents::delete(&self.0.broker, &stored).await?;
        self.0.topology.write().policies.remove(scope, name);
        Ok(self.apply_policies().await?)
    }

    pub(in crate::catalog) async fn apply_policies(&self) -> Result<(), Exception> {
        let queues = {
            let mut topology = self.0.topology.write();
            let exchanges: Vec<_> = topology.exchanges().map(|x| Arc::clone(&x.name)).collect();
            exchanges.iter().for_each(|exchange| topology.apply_policy_to_exchange(exchange));
            topology.queues().cloned().collect::<Vec<_>>()
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
    async fn apply_settings(&self, queue: &Arc<Queue>) -> Result<(), Exception> {
        let policies: PolicyMatch =
            self.0.topology.read().policies.find(Subject::Queue(&queue.name, queue.kind));
        let settings = QueueSettings::new(queue.kind, &queue.arguments, &policies);
        let topic = settings.topic_config(queue.kind, queue.durable);
        let lease = settings.lease_config(&queue.vhost, &queue.name);
        queue.set_settings(self.0.shared.values.settings(settings));
        self.0.shared.expiry.watch(queue);
        let broker = &self.0.broker;
        let (topic, lease) = {
            let catalog = broker.catalog();
            let present = catalog.topic(queue.topic);
            let topic = present.and_then(|it| changed(it.overrides(), &TOPIC_CONFIGS, topic));
            let group = queue.group().and_then(|group| catalog.lease_group(group));
            let lease = group.and_then(|group| {
                Some((group.id(), changed(group.overrides(), &LEASE_CONFIGS, lease)?))
            });
            (topic, lease)
        };
        if let Some(config) = topic {
            unless_gone(broker.set_topic_config(queue.topic, config).await)?;
        }
        if let Some((group, config)) = lease {
            unless_gone(broker.set_lease_group_config(group, config).await)?;
        }
        Ok(())
    }
}

/// What is gone meanwhile needs no configuration.
fn unless_gone(changed: Result<(), ExecuteError>) -> Result<(), Exception> {
    match changed {
        Ok(())
        | Err(ExecuteError::Refused(
            Refusal::UnknownTopic { .. } | Refusal::UnknownLeaseGroup { .. },
        )) => Ok(()),
        Err(other) => Err(refused(other)),
    }
}

/// The names of a lease group's configuration that follow from a queue's settings.
const LEASE_CONFIGS: [&str; 5] =
    ["attempts.max", "consumers", "dead.letter.route", "lease.ms", "record.ttl.ms"];

/// Queues whose configuration is changed in one go.
const CONFIGURED_AT_ONCE: usize = 256;

type Overrides = BTreeMap<String, String>;

/// `present` with the `named` values as `wanted` has them; `None` if it is so already.
fn changed(present: &Overrides, named: &[&str], wanted: Overrides) -> Option<Overrides> {
    let others = present.iter().filter(|(name, _)| !named.contains(&name.as_str()));
    let mut config: Overrides = others.map(|(name, value)| (name.clone(), value.clone())).collect();
    config.extend(wanted);
    (config != *present).then_some(config)
}

pub(in crate::catalog) const fn policy_space(scope: PolicyScope) -> &'static str {
    match scope {
        PolicyScope::User => documents::POLICIES,
        PolicyScope::Operator => documents::OPERATOR_POLICIES,
    }
}
