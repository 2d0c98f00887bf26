//! Whether a client may do what it asks for: what each request needs, and the error of each refusal.
//!
//! The decision is the crate `access`'s. Here is what Kafka's requests ask of it: an action on each topic and group
//! that they name, and one on the cluster for what is about all of it. What a session may do is held with it until a
//! user or a rule changes; where nobody has to log in, all is allowed to whoever has not.

use std::sync::Arc;

use access::acl::{Action, CLUSTER, Resource};
use access::{Operation, Rights, Said, Target};
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::ApiKey;
use parking_lot::Mutex;

use crate::errors::Fault;
use crate::gateway::{Gateway, PROTOCOL, Session};

/// What a request needs. `None`: it is about nothing of the kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Needs {
    topic: Option<Action>,
    group: Option<Action>,
    cluster: Option<Action>,
}

const NOTHING: Needs = Needs { topic: None, group: None, cluster: None };

const fn topic(action: Action) -> Needs {
    Needs { topic: Some(action), ..NOTHING }
}

const fn group(action: Action) -> Needs {
    Needs { group: Some(action), ..NOTHING }
}

const fn cluster(action: Action) -> Needs {
    Needs { cluster: Some(action), ..NOTHING }
}

const fn group_and_topic(group: Action, topic: Action) -> Needs {
    Needs { topic: Some(topic), group: Some(group), cluster: None }
}

const fn each(action: Action) -> Needs {
    Needs { topic: Some(action), group: Some(action), cluster: Some(action) }
}

/// Every request that is handled. A test fails for one that is not here.
const NEEDS: &[(ApiKey, &str, Needs)] = &[
    // Before anybody is somebody.
    (ApiKey::ApiVersions, "ApiVersions", NOTHING),
    (ApiKey::SaslHandshake, "SaslHandshake", NOTHING),
    (ApiKey::SaslAuthenticate, "SaslAuthenticate", NOTHING),
    (ApiKey::Produce, "Produce", topic(Action::Write)),
    (ApiKey::Fetch, "Fetch", topic(Action::Read)),
    (ApiKey::ListOffsets, "ListOffsets", topic(Action::Describe)),
    (ApiKey::Metadata, "Metadata", topic(Action::Describe)),
    (ApiKey::DescribeTopicPartitions, "DescribeTopicPartitions", topic(Action::Describe)),
    (ApiKey::OffsetForLeaderEpoch, "OffsetForLeaderEpoch", topic(Action::Describe)),
    (ApiKey::DescribeProducers, "DescribeProducers", topic(Action::Read)),
    (ApiKey::DeleteRecords, "DeleteRecords", topic(Action::Delete)),
    // Or the same on the cluster.
    (ApiKey::CreateTopics, "CreateTopics", topic(Action::Create)),
    (ApiKey::DeleteTopics, "DeleteTopics", topic(Action::Delete)),
    (ApiKey::CreatePartitions, "CreatePartitions", topic(Action::Alter)),
    // Or to write to some topic.
    (ApiKey::InitProducerId, "InitProducerId", cluster(Action::IdempotentWrite)),
    (ApiKey::FindCoordinator, "FindCoordinator", group(Action::Describe)),
    (ApiKey::JoinGroup, "JoinGroup", group(Action::Read)),
    (ApiKey::SyncGroup, "SyncGroup", group(Action::Read)),
    (ApiKey::Heartbeat, "Heartbeat", group(Action::Read)),
    (ApiKey::LeaveGroup, "LeaveGroup", group(Action::Read)),
    (ApiKey::ListGroups, "ListGroups", group(Action::Describe)),
    (ApiKey::DescribeGroups, "DescribeGroups", group(Action::Describe)),
    (ApiKey::DeleteGroups, "DeleteGroups", group(Action::Delete)),
    (ApiKey::OffsetCommit, "OffsetCommit", group_and_topic(Action::Read, Action::Read)),
    (ApiKey::OffsetFetch, "OffsetFetch", group_and_topic(Action::Describe, Action::Describe)),
    (ApiKey::OffsetDelete, "OffsetDelete", group_and_topic(Action::Delete, Action::Read)),
    (
        ApiKey::ConsumerGroupHeartbeat,
        "ConsumerGroupHeartbeat",
        group_and_topic(Action::Read, Action::Describe),
    ),
    (ApiKey::ConsumerGroupDescribe, "ConsumerGroupDescribe", group(Action::Describe)),
    (
        ApiKey::ShareGroupHeartbeat,
        "ShareGroupHeartbeat",
        group_and_topic(Action::Read, Action::Describe),
    ),
    (ApiKey::ShareGroupDescribe, "ShareGroupDescribe", group(Action::Describe)),
    (ApiKey::ShareFetch, "ShareFetch", group_and_topic(Action::Read, Action::Read)),
    (ApiKey::ShareAcknowledge, "ShareAcknowledge", group_and_topic(Action::Read, Action::Read)),
    (
        ApiKey::DescribeShareGroupOffsets,
        "DescribeShareGroupOffsets",
        group_and_topic(Action::Describe, Action::Describe),
    ),
    (
        ApiKey::AlterShareGroupOffsets,
        "AlterShareGroupOffsets",
        group_and_topic(Action::Read, Action::Read),
    ),
    (
        ApiKey::DeleteShareGroupOffsets,
        "DeleteShareGroupOffsets",
        group_and_topic(Action::Delete, Action::Read),
    ),
    (ApiKey::DescribeConfigs, "DescribeConfigs", each(Action::DescribeConfigs)),
    (ApiKey::AlterConfigs, "AlterConfigs", each(Action::AlterConfigs)),
    (ApiKey::IncrementalAlterConfigs, "IncrementalAlterConfigs", each(Action::AlterConfigs)),
    (ApiKey::ListConfigResources, "ListConfigResources", cluster(Action::DescribeConfigs)),
    (ApiKey::DescribeAcls, "DescribeAcls", cluster(Action::Describe)),
    (ApiKey::CreateAcls, "CreateAcls", cluster(Action::Alter)),
    (ApiKey::DeleteAcls, "DeleteAcls", cluster(Action::Alter)),
    (
        ApiKey::DescribeUserScramCredentials,
        "DescribeUserScramCredentials",
        cluster(Action::Describe),
    ),
    (ApiKey::AlterUserScramCredentials, "AlterUserScramCredentials", cluster(Action::Alter)),
    (ApiKey::DescribeClientQuotas, "DescribeClientQuotas", cluster(Action::DescribeConfigs)),
    (ApiKey::AlterClientQuotas, "AlterClientQuotas", cluster(Action::AlterConfigs)),
    (ApiKey::DescribeLogDirs, "DescribeLogDirs", cluster(Action::Describe)),
    (ApiKey::DescribeQuorum, "DescribeQuorum", cluster(Action::Describe)),
    (ApiKey::UpdateFeatures, "UpdateFeatures", cluster(Action::Alter)),
    (ApiKey::ElectLeaders, "ElectLeaders", cluster(Action::Alter)),
    (ApiKey::AlterPartitionReassignments, "AlterPartitionReassignments", cluster(Action::Alter)),
    (ApiKey::ListPartitionReassignments, "ListPartitionReassignments", cluster(Action::Describe)),
    // Everybody may know which brokers there are, as in Kafka.
    (ApiKey::DescribeCluster, "DescribeCluster", NOTHING),
    // There are none, whoever asks.
    (ApiKey::DescribeTransactions, "DescribeTransactions", NOTHING),
    (ApiKey::ListTransactions, "ListTransactions", NOTHING),
    // Refused, whoever asks: nodes have other words for it.
    (ApiKey::InitializeShareGroupState, "InitializeShareGroupState", NOTHING),
    (ApiKey::ReadShareGroupState, "ReadShareGroupState", NOTHING),
    (ApiKey::WriteShareGroupState, "WriteShareGroupState", NOTHING),
    (ApiKey::DeleteShareGroupState, "DeleteShareGroupState", NOTHING),
    (ApiKey::ReadShareGroupStateSummary, "ReadShareGroupStateSummary", NOTHING),
];

/// Of the streams group requests, which the message crate does not have.
pub(crate) const STREAMS_HEARTBEAT: Needs = group_and_topic(Action::Read, Action::Describe);
pub(crate) const STREAMS_DESCRIBE: Needs = group(Action::Describe);

pub(crate) const TOPIC_ACTIONS: &[Action] = &[
    Action::Read,
    Action::Write,
    Action::Create,
    Action::Delete,
    Action::Alter,
    Action::Describe,
    Action::DescribeConfigs,
    Action::AlterConfigs,
];
pub(crate) const GROUP_ACTIONS: &[Action] = &[
    Action::Read,
    Action::Delete,
    Action::Describe,
    Action::DescribeConfigs,
    Action::AlterConfigs,
];
pub(crate) const CLUSTER_ACTIONS: &[Action] = &[
    Action::Create,
    Action::Alter,
    Action::Describe,
    Action::ClusterAction,
    Action::DescribeConfigs,
    Action::AlterConfigs,
    Action::IdempotentWrite,
];

fn needs(api: ApiKey) -> Option<(Needs, &'static str)> {
    let found = NEEDS.iter().find(|(known, ..)| *known == api);
    found.map(|(_, name, needs)| (*needs, *name))
}

/// What a session may do, as it held last.
#[derive(Debug, Default)]
pub(crate) struct HeldRights(Mutex<Option<Arc<Rights>>>);

impl HeldRights {
    pub(crate) fn get(&self, gateway: &Gateway, session: &Session) -> Arc<Rights> {
        let mut held = self.0.lock();
        let principal = session.login.principal();
        let users = gateway.options.users.as_ref();
        let is_current = |rights: &Arc<Rights>| match (principal, users) {
            (Some(_), Some(users)) => rights.is_current(users),
            _ => rights.is_everything(),
        };
        if let Some(rights) = held.as_ref().filter(|rights| is_current(rights)) {
            return Arc::clone(rights);
        }
        let ip = session.connection.peer().ip();
        let rights = match (principal, users) {
            (Some(principal), Some(users)) => users.rights(principal, ip),
            // Only a port where nobody has to log in lets somebody come so far.
            _ => Rights::everything(),
        };
        let name = principal.map(|principal| &**principal.name());
        let asker = users.and_then(|users| users.audit().asker(name, ip, PROTOCOL));
        let rights = rights.audited_as(asker);
        Arc::clone(held.insert(Arc::new(rights)))
    }
}

/// A request's asker: what it may do, and what the request needs.
#[derive(Clone, Debug)]
pub(crate) struct Asker {
    rights: Arc<Rights>,
    needs: Needs,
    /// As it is written in the audit.
    request: &'static str,
    /// The catalog's barrier did not pass: see [`crate::currency`].
    copy_may_be_old: bool,
}

impl Asker {
    pub(crate) fn note_old_copy(&mut self) {
        self.copy_may_be_old = true;
    }

    /// The error for an object that this node does not know: `unknown`, where its copy of the catalog is current.
    pub(crate) fn missing(&self, unknown: Fault) -> Fault {
        match self.copy_may_be_old {
            true => Fault::new(
                ResponseError::RequestTimedOut,
                "the catalog's leader did not answer: it is not known whether the object exists",
            ),
            false => unknown,
        }
    }

    /// A request that is not in the table is one that nobody may make.
    pub(crate) fn of(gateway: &Gateway, session: &Session, api: ApiKey) -> Option<Self> {
        let (needs, request) = needs(api)?;
        Some(Self::with_needs(gateway, session, needs, request))
    }

    pub(crate) fn with_needs(
        gateway: &Gateway,
        session: &Session,
        needs: Needs,
        request: &'static str,
    ) -> Self {
        let rights = session.rights.get(gateway, session);
        Self { rights, needs, request, copy_may_be_old: false }
    }

    /// One who may do everything.
    #[cfg(test)]
    pub(crate) fn anybody(api: ApiKey) -> Self {
        let (needs, request) = needs(api).expect("it is in the table");
        let rights = Arc::new(Rights::everything());
        Self { rights, needs, request, copy_may_be_old: false }
    }

    /// Whether nothing needs to be looked at.
    pub(crate) fn may_everything(&self) -> bool {
        self.rights.is_everything()
    }

    fn may(&self, action: Option<Action>, resource: Resource, name: &str) -> bool {
        self.may_about("", action, resource, name)
    }

    fn may_about(
        &self,
        subject: &str,
        action: Option<Action>,
        resource: Resource,
        name: &str,
    ) -> bool {
        let said = Said { request: self.request, subject };
        match action {
            Some(action) => self.rights.allows_by(said, action, resource, name),
            None => self.may_everything(),
        }
    }

    pub(crate) fn may_topic(&self, name: &str) -> bool {
        self.may(self.needs.topic, Resource::Topic, name)
    }

    /// Whether the request may do to this topic what it is for.
    pub(crate) fn topic(&self, name: &str) -> Result<(), Fault> {
        if self.may_topic(name) { Ok(()) } else { Err(topic_refused()) }
    }

    pub(crate) fn rights(&self) -> &Rights {
        &self.rights
    }

    /// Whether a topic may become a queue by its group `main`, as by a declaration.
    pub(crate) fn makes_queue_of(&self, name: &str) -> bool {
        self.rights.would(Operation::Alter, Target::Topic(name))
    }

    /// Whether records of the topic that a group has not settled may be thrown away.
    pub(crate) fn purges(&self, name: &str, group: &str) -> bool {
        let target = Target::Group { topic: name, group };
        self.rights.may_by(self.request, Operation::Seek, target)
    }

    /// Whether the topic may be made by whoever names it.
    pub(crate) fn creates_topic(&self, name: &str) -> Result<(), Fault> {
        if self.rights.creates_topic(self.request, name) { Ok(()) } else { Err(topic_refused()) }
    }

    /// Whether there is a topic that it may write to.
    pub(crate) fn writes_somewhere(&self) -> bool {
        self.rights.allows_some(Action::Write, Resource::Topic)
    }

    /// Whether the request may do to this group what it is for.
    pub(crate) fn group(&self, name: &str) -> Result<(), ResponseError> {
        match self.may(self.needs.group, Resource::Group, name) {
            true => Ok(()),
            false => Err(ResponseError::GroupAuthorizationFailed),
        }
    }

    /// Whether the request may do to the cluster what it is for.
    pub(crate) fn cluster(&self) -> Result<(), Fault> {
        self.cluster_about("")
    }

    /// The same of a part of it, which is written.
    pub(crate) fn cluster_about(&self, subject: &str) -> Result<(), Fault> {
        match self.may_about(subject, self.needs.cluster, Resource::Cluster, CLUSTER) {
            true => Ok(()),
            false => Err(Fault::new(
                ResponseError::ClusterAuthorizationFailed,
                "this user may not do that to the cluster",
            )),
        }
    }

    /// Whether it may see all groups, not only those that it may look at.
    pub(crate) fn sees_the_cluster(&self) -> bool {
        self.rights.allows(Action::Describe, Resource::Cluster, CLUSTER)
    }

    pub(crate) fn topic_bits(&self, name: &str) -> i32 {
        self.rights.bits(TOPIC_ACTIONS, Resource::Topic, name)
    }

    pub(crate) fn group_bits(&self, name: &str) -> i32 {
        self.rights.bits(GROUP_ACTIONS, Resource::Group, name)
    }

    pub(crate) fn cluster_bits(&self) -> i32 {
        self.rights.bits(CLUSTER_ACTIONS, Resource::Cluster, CLUSTER)
    }
}

pub(crate) fn topic_refused() -> Fault {
    Fault::new(ResponseError::TopicAuthorizationFailed, "this user may not do that to the topic")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_that_is_handled_says_what_it_needs() {
        for api in ApiKey::iter() {
            let handled = crate::versions::handled(api).is_some();
            assert_eq!(handled, needs(api).is_some(), "{api:?}");
        }
        let mut keys: Vec<_> = NEEDS.iter().map(|(api, ..)| *api as i16).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), NEEDS.len(), "one is there twice");
    }

    #[test]
    fn everybody_sees_all_bits_where_nobody_logs_in() {
        let asker = Asker::anybody(ApiKey::Metadata);
        assert_eq!(asker.topic_bits("t"), 0b1101_1111_1000);
        assert_eq!(asker.group_bits("g"), 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11);
    }
}
