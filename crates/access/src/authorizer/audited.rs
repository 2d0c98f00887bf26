//! Authorization of actions that are about to be done: decided, and recorded by the audit.

use std::sync::Arc;

use access_rules::acl::{Action, CLUSTER, Resource};
use base::queue_topics::is_of_other_vhost;

use super::{AccessTarget, Decision, Rights};
use crate::audit::{AuditedClient, Kind, RequestContext, RequestedAction};
use crate::operation::Operation;

impl Rights {
    /// Audits further decisions as those of this client.
    pub fn audited_as(mut self, caller: Option<AuditedClient>) -> Self {
        self.caller = caller.map(Arc::new);
        self
    }

    /// Whether the decisions are audited.
    pub fn is_audited(&self) -> bool {
        self.caller.is_some()
    }

    fn looks(&self) -> bool {
        self.caller.as_ref().is_some_and(|caller| caller.looks())
    }

    fn note<'a>(
        &'a self,
        kind: Kind,
        decision: Decision<'a>,
        said: RequestContext<'_>,
        asked: impl FnOnce() -> RequestedAction,
    ) -> bool {
        let is_allowed = decision.is_allowed();
        match &self.caller {
            None => is_allowed,
            Some(caller) => caller.decided(kind, is_allowed, said, asked, || decision.to_string()),
        }
    }

    /// Whether an operation may be done to a target now.
    pub fn may(&self, operation: Operation, target: AccessTarget<'_>) -> bool {
        self.may_by("", operation, target)
    }

    /// As [`Rights::may`], with context for the audit.
    pub fn may_by<'a>(
        &self,
        said: impl Into<RequestContext<'a>>,
        operation: Operation,
        target: AccessTarget<'_>,
    ) -> bool {
        let kind = operation_kind(operation, self.looks());
        if self.everything && (self.caller.is_none() || matches!(kind, Kind::Use | Kind::Look)) {
            return true;
        }
        let decision = self.decide_on(operation, target);
        self.note(kind, decision, said.into(), || {
            let (resource, name) = named(target);
            RequestedAction { action: operation.word(), resource, name }
        })
    }

    /// As [`Rights::may`], without an audit event: for requests that only want to know.
    pub fn would(&self, operation: Operation, target: AccessTarget<'_>) -> bool {
        self.everything || self.decide_on(operation, target).is_allowed()
    }

    /// Whether an action of Kafka may be done now.
    pub fn allows(&self, action: Action, resource: Resource, name: &str) -> bool {
        self.allows_by("", action, resource, name)
    }

    /// As [`Rights::allows`], with context for the audit.
    pub fn allows_by<'a>(
        &self,
        said: impl Into<RequestContext<'a>>,
        action: Action,
        resource: Resource,
        name: &str,
    ) -> bool {
        let kind = action_kind(action, self.looks());
        if self.everything && (self.caller.is_none() || matches!(kind, Kind::Use | Kind::Look)) {
            return true;
        }
        let decision = self.decide(action, resource, name);
        self.note(kind, decision, said.into(), || kafka_request(action, resource, name))
    }

    /// Whether a topic of this name may be created now. The right to create any topic, a right to the cluster, covers
    /// `/` only.
    pub fn creates_topic(&self, request: &str, name: &str) -> bool {
        let by_cluster = self.decide(Action::Create, Resource::Cluster, CLUSTER);
        let decision = match by_cluster.is_allowed() && !is_of_other_vhost(name) {
            true => by_cluster,
            false => self.decide(Action::Create, Resource::Topic, name),
        };
        let asked = || kafka_request(Action::Create, Resource::Topic, name);
        self.note(Kind::Change, decision, request.into(), asked)
    }
}

fn kafka_request(action: Action, resource: Resource, name: &str) -> RequestedAction {
    RequestedAction {
        action: action.word().to_owned(),
        resource: resource.word(),
        name: name.to_owned(),
    }
}

fn named(target: AccessTarget<'_>) -> (&'static str, String) {
    match target {
        AccessTarget::Topic(topic) => ("topic", topic.to_owned()),
        AccessTarget::Queue { topic, .. } => ("topic", topic.to_owned()),
        AccessTarget::Group { topic, group } => ("group", format!("{group} of {topic}")),
        AccessTarget::Exchange { virtual_host, name } => {
            ("exchange", format!("{name} of {virtual_host}"))
        }
        AccessTarget::Cluster => ("cluster", CLUSTER.to_owned()),
    }
}

fn operation_kind(operation: Operation, looks: bool) -> Kind {
    use Operation::*;
    match operation {
        Create | Alter | Delete | Purge | Seek | DeleteGroup | DeclareExchange | DeleteExchange
        | BindFrom | BindTo | Administer => Kind::Change,
        Browse | Consume if looks => Kind::Contents,
        Browse | Consume | Append | Publish => Kind::Use,
        Describe | DescribeGroup | Look => Kind::Look,
    }
}

fn action_kind(action: Action, looks: bool) -> Kind {
    match action {
        Action::Create | Action::Delete | Action::Alter | Action::AlterConfigs => Kind::Change,
        Action::Describe | Action::DescribeConfigs => Kind::Look,
        Action::Read if looks => Kind::Contents,
        _ => Kind::Use,
    }
}
