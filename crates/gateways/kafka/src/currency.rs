//! How current the node's copy of the catalog must be before a request is answered from it.
//!
//! Another node may have created, changed or deleted something a moment ago, or while this node was cut off.
//! So no response states that something exists, or that it does not, from a copy older than another node's
//! response. Requests of operators pass the catalog's barrier before they are handled. Requests about records
//! are frequent: they pass it only before the response is that a topic is unknown. The shard's leader rejects
//! requests for deleted topics.
//!
//! If the catalog has no leader for [`BARRIER_WITHIN`](base::limits::BARRIER_WITHIN), the request is answered
//! from this node's copy, and the catalog rejects its changes. A topic missing from that copy is
//! `REQUEST_TIMED_OUT` in responses to operators, and the error that clients retry in responses about
//! records.

use kafka_protocol::messages::ApiKey;
use uuid::Uuid;

use crate::gateway::Gateway;

/// Part of the catalog that must be current.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Need {
    /// The request names nothing in the catalog.
    Nothing,
    /// Its topics must be known: [`ensure_known`].
    Topics,
    All,
    /// Also users and rules.
    Users,
    /// Also quotas.
    Quotas,
}

/// Every request that is handled. A test fails for one that is not here.
const NEEDS: &[(ApiKey, Need)] = &[
    (ApiKey::ApiVersions, Need::Nothing),
    (ApiKey::SaslHandshake, Need::Nothing),
    (ApiKey::SaslAuthenticate, Need::Nothing),
    (ApiKey::InitProducerId, Need::Nothing),
    (ApiKey::DescribeCluster, Need::Nothing),
    (ApiKey::DescribeQuorum, Need::Nothing),
    (ApiKey::UpdateFeatures, Need::Nothing),
    // The coordinator owns their groups.
    (ApiKey::FindCoordinator, Need::Nothing),
    (ApiKey::JoinGroup, Need::Nothing),
    (ApiKey::SyncGroup, Need::Nothing),
    (ApiKey::Heartbeat, Need::Nothing),
    (ApiKey::LeaveGroup, Need::Nothing),
    // Unknown names are assigned once they become known.
    (ApiKey::ConsumerGroupHeartbeat, Need::Nothing),
    (ApiKey::ShareGroupHeartbeat, Need::Nothing),
    (ApiKey::Produce, Need::Topics),
    (ApiKey::Fetch, Need::Topics),
    (ApiKey::ShareFetch, Need::Topics),
    (ApiKey::ShareAcknowledge, Need::Topics),
    (ApiKey::ListOffsets, Need::Topics),
    (ApiKey::OffsetForLeaderEpoch, Need::Topics),
    (ApiKey::Metadata, Need::Topics),
    (ApiKey::OffsetCommit, Need::Topics),
    (ApiKey::OffsetFetch, Need::Topics),
    (ApiKey::DescribeTopicPartitions, Need::All),
    (ApiKey::DescribeProducers, Need::All),
    (ApiKey::DeleteRecords, Need::All),
    (ApiKey::CreateTopics, Need::All),
    (ApiKey::DeleteTopics, Need::All),
    (ApiKey::CreatePartitions, Need::All),
    (ApiKey::ListGroups, Need::All),
    (ApiKey::DescribeGroups, Need::All),
    (ApiKey::DeleteGroups, Need::All),
    (ApiKey::OffsetDelete, Need::All),
    (ApiKey::ConsumerGroupDescribe, Need::All),
    (ApiKey::ShareGroupDescribe, Need::All),
    (ApiKey::DescribeShareGroupOffsets, Need::All),
    (ApiKey::AlterShareGroupOffsets, Need::All),
    (ApiKey::DeleteShareGroupOffsets, Need::All),
    (ApiKey::DescribeConfigs, Need::All),
    (ApiKey::AlterConfigs, Need::All),
    (ApiKey::IncrementalAlterConfigs, Need::All),
    (ApiKey::ListConfigResources, Need::All),
    (ApiKey::DescribeLogDirs, Need::All),
    (ApiKey::ElectLeaders, Need::All),
    (ApiKey::AlterPartitionReassignments, Need::All),
    (ApiKey::ListPartitionReassignments, Need::All),
    (ApiKey::DescribeAcls, Need::Users),
    (ApiKey::CreateAcls, Need::Users),
    (ApiKey::DeleteAcls, Need::Users),
    (ApiKey::DescribeUserScramCredentials, Need::Users),
    (ApiKey::AlterUserScramCredentials, Need::Users),
    (ApiKey::DescribeClientQuotas, Need::Quotas),
    (ApiKey::AlterClientQuotas, Need::Quotas),
    // Always refused.
    (ApiKey::DescribeTransactions, Need::Nothing),
    (ApiKey::ListTransactions, Need::Nothing),
    (ApiKey::InitializeShareGroupState, Need::Nothing),
    (ApiKey::ReadShareGroupState, Need::Nothing),
    (ApiKey::WriteShareGroupState, Need::Nothing),
    (ApiKey::DeleteShareGroupState, Need::Nothing),
    (ApiKey::ReadShareGroupStateSummary, Need::Nothing),
];

impl Need {
    /// A request that is not in the table passes the barrier.
    pub(crate) fn of(api: ApiKey) -> Self {
        NEEDS.iter().find(|(known, _)| *known == api).map_or(Self::All, |(_, need)| *need)
    }
}

/// Passes the catalog's barrier, for requests that need it. False where the catalog's leader did not answer.
pub(crate) async fn pass(gateway: &Gateway, api: ApiKey) -> bool {
    let users = gateway.options.users.as_ref();
    let current = match (Need::of(api), users) {
        (Need::Nothing | Need::Topics, _) => return true,
        (Need::Users, Some(users)) => users.catch_up().await.map_err(|error| error.to_string()),
        (Need::Quotas, _) => {
            gateway.options.quotas.catch_up().await.map_err(|error| error.to_string())
        }
        (Need::All | Need::Users, _) => {
            gateway.broker.catalog_is_current().await.map_err(|error| error.to_string())
        }
    };
    if let Err(error) = &current {
        tracing::debug!(?api, error, "a request is answered by what this node knows");
    }
    current.is_ok()
}

/// A topic as a request names it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Named<'a> {
    Name(&'a str),
    Id(Uuid),
}

/// Passes the catalog's barrier if this node does not know one of these topics.
pub(crate) async fn ensure_known<'a>(gateway: &Gateway, topics: impl Iterator<Item = Named<'a>>) {
    if gateway.broker.is_alone() {
        return;
    }
    let are_known = {
        let catalog = gateway.broker.catalog();
        let mut topics = topics;
        topics.all(|topic| match topic {
            Named::Name(name) => catalog.topic_named(name).is_some(),
            Named::Id(id) => catalog.topic_with_uuid(&id).is_some(),
        })
    };
    if !are_known && let Err(error) = gateway.broker.catalog_is_current().await {
        tracing::debug!(%error, "a topic may be unknown to this node only");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::versions::HANDLED;

    #[test]
    fn every_handled_request_is_in_the_table_once() {
        for (api, _) in HANDLED {
            let found = NEEDS.iter().filter(|(known, _)| known == api).count();
            assert_eq!(found, 1, "{api:?}");
        }
    }
}
