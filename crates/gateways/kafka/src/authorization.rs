//! Authorization: the actions that each request needs, and the error of each refusal.
//!
//! The crate `access` decides. Kafka's requests need an action on each topic and group that they name, and
//! one on the cluster if they concern all of it. A session's rights are cached until a user or a rule
//! changes. Where login is optional, a client without a login may do everything.

use std::sync::Arc;

use access::{AccessTarget, Operation, RequestContext, Rights};
use access_rules::acl::{Action, CLUSTER, Resource};
use broker::CatalogView;
use broker::catalog::Topic;
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::ApiKey;

use crate::errors::Fault;
use crate::state::{Gateway, Session};
use crate::topic_ref::TopicRef;

/// Actions that a request requires. `None`: it concerns no resource of that kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RequiredActions {
    topic: Option<Action>,
    group: Option<Action>,
    cluster: Option<Action>,
    transactional_id: Option<Action>,
}

const NOTHING: RequiredActions =
    RequiredActions { topic: None, group: None, cluster: None, transactional_id: None };

const fn topic(action: Action) -> RequiredActions {
    RequiredActions { topic: Some(action), ..NOTHING }
}

const fn group(action: Action) -> RequiredActions {
    RequiredActions { group: Some(action), ..NOTHING }
}

const fn cluster(action: Action) -> RequiredActions {
    RequiredActions { cluster: Some(action), ..NOTHING }
}

const fn group_and_topic(group: Action, topic: Action) -> RequiredActions {
    RequiredActions { topic: Some(topic), group: Some(group), ..NOTHING }
}

const fn each(action: Action) -> RequiredActions {
    RequiredActions { topic: Some(action), group: Some(action), cluster: Some(action), ..NOTHING }
}

/// The needs of a request, with an action on the transactional id that it names.
const fn transactional(action: Action, others: RequiredActions) -> RequiredActions {
    RequiredActions { transactional_id: Some(action), ..others }
}

/// Every request that is handled. A test fails for one that is not here.
const NEEDS: &[(ApiKey, &str, RequiredActions)] = {
    use Action::*;
    &[
        // Sent before authentication.
        (ApiKey::ApiVersions, "ApiVersions", NOTHING),
        (ApiKey::SaslHandshake, "SaslHandshake", NOTHING),
        (ApiKey::SaslAuthenticate, "SaslAuthenticate", NOTHING),
        (ApiKey::Produce, "Produce", transactional(Write, topic(Write))),
        (ApiKey::Fetch, "Fetch", topic(Read)),
        (ApiKey::ListOffsets, "ListOffsets", topic(Describe)),
        (ApiKey::Metadata, "Metadata", topic(Describe)),
        (ApiKey::DescribeTopicPartitions, "DescribeTopicPartitions", topic(Describe)),
        (ApiKey::OffsetForLeaderEpoch, "OffsetForLeaderEpoch", topic(Describe)),
        (ApiKey::DescribeProducers, "DescribeProducers", topic(Read)),
        (ApiKey::DeleteRecords, "DeleteRecords", topic(Delete)),
        // The same action on the cluster suffices.
        (ApiKey::CreateTopics, "CreateTopics", topic(Create)),
        (ApiKey::DeleteTopics, "DeleteTopics", topic(Delete)),
        (ApiKey::CreatePartitions, "CreatePartitions", topic(Alter)),
        // The right to write to any topic suffices.
        (ApiKey::InitProducerId, "InitProducerId", transactional(Write, cluster(IdempotentWrite))),
        (ApiKey::FindCoordinator, "FindCoordinator", transactional(Describe, group(Describe))),
        (ApiKey::JoinGroup, "JoinGroup", group(Read)),
        (ApiKey::SyncGroup, "SyncGroup", group(Read)),
        (ApiKey::Heartbeat, "Heartbeat", group(Read)),
        (ApiKey::LeaveGroup, "LeaveGroup", group(Read)),
        (ApiKey::ListGroups, "ListGroups", group(Describe)),
        (ApiKey::DescribeGroups, "DescribeGroups", group(Describe)),
        (ApiKey::DeleteGroups, "DeleteGroups", group(Delete)),
        (ApiKey::OffsetCommit, "OffsetCommit", group_and_topic(Read, Read)),
        (ApiKey::OffsetFetch, "OffsetFetch", group_and_topic(Describe, Describe)),
        (ApiKey::OffsetDelete, "OffsetDelete", group_and_topic(Delete, Read)),
        (ApiKey::ConsumerGroupHeartbeat, "ConsumerGroupHeartbeat", group_and_topic(Read, Describe)),
        (ApiKey::ConsumerGroupDescribe, "ConsumerGroupDescribe", group(Describe)),
        (ApiKey::ShareGroupHeartbeat, "ShareGroupHeartbeat", group_and_topic(Read, Describe)),
        (ApiKey::ShareGroupDescribe, "ShareGroupDescribe", group(Describe)),
        (ApiKey::ShareFetch, "ShareFetch", group_and_topic(Read, Read)),
        (ApiKey::ShareAcknowledge, "ShareAcknowledge", group_and_topic(Read, Read)),
        (
            ApiKey::DescribeShareGroupOffsets,
            "DescribeShareGroupOffsets",
            group_and_topic(Describe, Describe),
        ),
        (ApiKey::AlterShareGroupOffsets, "AlterShareGroupOffsets", group_and_topic(Read, Read)),
        (ApiKey::DeleteShareGroupOffsets, "DeleteShareGroupOffsets", group_and_topic(Delete, Read)),
        (ApiKey::DescribeConfigs, "DescribeConfigs", each(DescribeConfigs)),
        (ApiKey::AlterConfigs, "AlterConfigs", each(AlterConfigs)),
        (ApiKey::IncrementalAlterConfigs, "IncrementalAlterConfigs", each(AlterConfigs)),
        (ApiKey::ListConfigResources, "ListConfigResources", cluster(DescribeConfigs)),
        (ApiKey::DescribeAcls, "DescribeAcls", cluster(Describe)),
        (ApiKey::CreateAcls, "CreateAcls", cluster(Alter)),
        (ApiKey::DeleteAcls, "DeleteAcls", cluster(Alter)),
        (ApiKey::DescribeUserScramCredentials, "DescribeUserScramCredentials", cluster(Describe)),
        (ApiKey::AlterUserScramCredentials, "AlterUserScramCredentials", cluster(Alter)),
        (ApiKey::DescribeClientQuotas, "DescribeClientQuotas", cluster(DescribeConfigs)),
        (ApiKey::AlterClientQuotas, "AlterClientQuotas", cluster(AlterConfigs)),
        (ApiKey::DescribeLogDirs, "DescribeLogDirs", cluster(Describe)),
        (ApiKey::DescribeQuorum, "DescribeQuorum", cluster(Describe)),
        (ApiKey::UpdateFeatures, "UpdateFeatures", cluster(Alter)),
        (ApiKey::ElectLeaders, "ElectLeaders", cluster(Alter)),
        (ApiKey::AlterPartitionReassignments, "AlterPartitionReassignments", cluster(Alter)),
        (ApiKey::ListPartitionReassignments, "ListPartitionReassignments", cluster(Describe)),
        // Every client may list the brokers, as in Kafka.
        (ApiKey::DescribeCluster, "DescribeCluster", NOTHING),
        // For several transactions, as brokers of Kafka send it, the right to act as one.
        (
            ApiKey::AddPartitionsToTxn,
            "AddPartitionsToTxn",
            RequiredActions { cluster: Some(ClusterAction), ..transactional(Write, topic(Write)) },
        ),
        (ApiKey::AddOffsetsToTxn, "AddOffsetsToTxn", transactional(Write, group(Read))),
        (
            ApiKey::TxnOffsetCommit,
            "TxnOffsetCommit",
            transactional(Write, group_and_topic(Read, Read)),
        ),
        (ApiKey::EndTxn, "EndTxn", transactional(Write, NOTHING)),
        (
            ApiKey::DescribeTransactions,
            "DescribeTransactions",
            transactional(Describe, topic(Describe)),
        ),
        (ApiKey::ListTransactions, "ListTransactions", transactional(Describe, NOTHING)),
        // Always refused: nodes exchange share group state by their own protocol.
        (ApiKey::InitializeShareGroupState, "InitializeShareGroupState", NOTHING),
        (ApiKey::ReadShareGroupState, "ReadShareGroupState", NOTHING),
        (ApiKey::WriteShareGroupState, "WriteShareGroupState", NOTHING),
        (ApiKey::DeleteShareGroupState, "DeleteShareGroupState", NOTHING),
        (ApiKey::ReadShareGroupStateSummary, "ReadShareGroupStateSummary", NOTHING),
    ]
};

/// Needs of the streams group requests, which the message crate does not have.
pub(crate) const STREAMS_HEARTBEAT: RequiredActions =
    group_and_topic(Action::Read, Action::Describe);
pub(crate) const STREAMS_DESCRIBE: RequiredActions = group(Action::Describe);

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

fn needs(api: ApiKey) -> Option<(RequiredActions, &'static str)> {
    let found = NEEDS.iter().find(|(known, ..)| *known == api);
    found.map(|(_, name, needs)| (*needs, *name))
}

/// The caller of a request: its rights, and the actions that the request needs.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    rights: Arc<Rights>,
    needs: RequiredActions,
    /// Name of the request in the audit log.
    request: &'static str,
    /// The node's catalog may be stale, because the barrier did not pass: see [`crate::catalog::currency`].
    copy_may_be_old: bool,
}

impl Caller {
    pub(crate) fn note_old_copy(&mut self) {
        self.copy_may_be_old = true;
    }

    /// The error for an object that this node does not know: `unknown`, if its copy of the catalog is
    /// current.
    pub(crate) fn missing(&self, unknown: Fault) -> Fault {
        match self.copy_may_be_old {
            true => Fault::new(
                ResponseError::RequestTimedOut,
                "the catalog's leader did not answer: it is not known whether the object exists",
            ),
            false => unknown,
        }
    }

    /// The error for a change that was rejected. In an old copy the name may stand for a former topic, so that
    /// the rejection says nothing about the topic that has the name now.
    pub(crate) fn rejected(&self, error: impl Into<Fault>) -> Fault {
        let fault = error.into();
        match fault.is_unknown_topic() {
            true => self.missing(fault),
            false => fault,
        }
    }

    /// Returns `None` for a request that is not in the table: it is rejected.
    pub(crate) fn of(gateway: &Gateway, session: &Session, api: ApiKey) -> Option<Self> {
        let (needs, request) = needs(api)?;
        Some(Self::with_needs(gateway, session, needs, request))
    }

    pub(crate) fn with_needs(
        gateway: &Gateway,
        session: &Session,
        needs: RequiredActions,
        request: &'static str,
    ) -> Self {
        let rights = session.rights.get(gateway, session);
        Self { rights, needs, request, copy_may_be_old: false }
    }

    /// A caller with all rights.
    #[cfg(test)]
    pub(crate) fn unrestricted(api: ApiKey) -> Self {
        let (needs, request) = needs(api).expect("it is in the table");
        let rights = Arc::new(Rights::everything());
        Self { rights, needs, request, copy_may_be_old: false }
    }

    /// Whether all checks can be skipped.
    pub(crate) fn is_unrestricted(&self) -> bool {
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
        let said = RequestContext { request: self.request, subject };
        match action {
            Some(action) => self.rights.allows_by(said, action, resource, name),
            None => self.is_unrestricted(),
        }
    }

    pub(crate) fn may_topic(&self, name: &str) -> bool {
        self.may(self.needs.topic, Resource::Topic, name)
    }

    /// Checks that the request may perform its action on the topic.
    pub(crate) fn topic(&self, name: &str) -> Result<(), Fault> {
        if self.may_topic(name) { Ok(()) } else { Err(topic_refused()) }
    }

    /// Finds the topic, if the request may perform its action on it. Otherwise the error does not reveal whether
    /// it exists.
    pub(crate) fn find_topic<'a>(
        &self,
        topic: &TopicRef,
        catalog: &'a CatalogView<'_>,
    ) -> Result<Topic<'a>, Fault> {
        if let TopicRef::Name(name) = topic {
            self.topic(name)?;
        }
        let found = topic.find(catalog).ok_or_else(|| self.missing(topic.unknown()))?;
        self.topic(found.name())?;
        Ok(found)
    }

    pub(crate) fn rights(&self) -> &Rights {
        &self.rights
    }

    /// Whether the caller may create the topic's group `main`, which makes it a queue (as a declaration
    /// does).
    pub(crate) fn may_make_queue(&self, name: &str) -> bool {
        self.rights.would(Operation::Alter, AccessTarget::Topic(name))
    }

    /// Whether the caller may discard records of the topic that the group has not settled.
    pub(crate) fn purges(&self, name: &str, group: &str) -> bool {
        let target = AccessTarget::Group { topic: name, group };
        self.rights.may_by(self.request, Operation::Seek, target)
    }

    /// Checks that the caller may create the topic.
    pub(crate) fn creates_topic(&self, name: &str) -> Result<(), Fault> {
        if self.rights.creates_topic(self.request, name) { Ok(()) } else { Err(topic_refused()) }
    }

    /// Whether the caller may write to at least one topic.
    pub(crate) fn may_write_to_some_topic(&self) -> bool {
        self.rights.allows_some(Action::Write, Resource::Topic)
    }

    /// Checks that the request may perform its action on the group.
    pub(crate) fn group(&self, name: &str) -> Result<(), ResponseError> {
        match self.may(self.needs.group, Resource::Group, name) {
            true => Ok(()),
            false => Err(ResponseError::GroupAuthorizationFailed),
        }
    }

    /// Checks that the request may perform its action on the transactional id.
    pub(crate) fn transactional_id(&self, id: &str) -> Result<(), ResponseError> {
        match self.may(self.needs.transactional_id, Resource::TransactionalId, id) {
            true => Ok(()),
            false => Err(ResponseError::TransactionalIdAuthorizationFailed),
        }
    }

    /// Checks that the request may perform its action on the cluster.
    pub(crate) fn cluster(&self) -> Result<(), Fault> {
        self.cluster_about("")
    }

    /// Like [`Self::cluster`], for a part of the cluster that the audit log names.
    pub(crate) fn cluster_about(&self, subject: &str) -> Result<(), Fault> {
        match self.may_about(subject, self.needs.cluster, Resource::Cluster, CLUSTER) {
            true => Ok(()),
            false => Err(Fault::new(
                ResponseError::ClusterAuthorizationFailed,
                "this user may not do that to the cluster",
            )),
        }
    }

    /// Whether the caller may see all groups, not only those that it may describe.
    pub(crate) fn may_describe_cluster(&self) -> bool {
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
    fn every_handled_request_declares_the_rights_it_needs() {
        for api in ApiKey::iter() {
            let handled = crate::api_keys::handled(api).is_some();
            assert_eq!(handled, needs(api).is_some(), "{api:?}");
        }
        let mut keys: Vec<_> = NEEDS.iter().map(|(api, ..)| *api as i16).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), NEEDS.len(), "one is there twice");
    }

    #[test]
    fn caller_with_all_rights_has_every_operation_bit() {
        let caller = Caller::unrestricted(ApiKey::Metadata);
        assert_eq!(caller.topic_bits("t"), 0b1101_1111_1000);
        assert_eq!(caller.group_bits("g"), 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11);
    }
}
