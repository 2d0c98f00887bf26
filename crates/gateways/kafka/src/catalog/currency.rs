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

use crate::state::Gateway;
use crate::topic_ref::RequestedTopic;

/// Part of the catalog that must be current.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CatalogNeed {
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
const NEEDS: &[(ApiKey, CatalogNeed)] = &[
    (ApiKey::ApiVersions, CatalogNeed::Nothing),
    (ApiKey::SaslHandshake, CatalogNeed::Nothing),
    (ApiKey::SaslAuthenticate, CatalogNeed::Nothing),
    (ApiKey::InitProducerId, CatalogNeed::Nothing),
    (ApiKey::DescribeCluster, CatalogNeed::Nothing),
    (ApiKey::DescribeQuorum, CatalogNeed::Nothing),
    (ApiKey::UpdateFeatures, CatalogNeed::Nothing),
    // The coordinator owns their groups.
    (ApiKey::FindCoordinator, CatalogNeed::Nothing),
    (ApiKey::JoinGroup, CatalogNeed::Nothing),
    (ApiKey::SyncGroup, CatalogNeed::Nothing),
    (ApiKey::Heartbeat, CatalogNeed::Nothing),
    (ApiKey::LeaveGroup, CatalogNeed::Nothing),
    // Unknown names are assigned once they become known.
    (ApiKey::ConsumerGroupHeartbeat, CatalogNeed::Nothing),
    (ApiKey::ShareGroupHeartbeat, CatalogNeed::Nothing),
    (ApiKey::Produce, CatalogNeed::Topics),
    (ApiKey::Fetch, CatalogNeed::Topics),
    (ApiKey::ShareFetch, CatalogNeed::Topics),
    (ApiKey::ShareAcknowledge, CatalogNeed::Topics),
    (ApiKey::ListOffsets, CatalogNeed::Topics),
    (ApiKey::OffsetForLeaderEpoch, CatalogNeed::Topics),
    (ApiKey::Metadata, CatalogNeed::Topics),
    (ApiKey::OffsetCommit, CatalogNeed::Topics),
    (ApiKey::OffsetFetch, CatalogNeed::Topics),
    (ApiKey::DescribeTopicPartitions, CatalogNeed::All),
    (ApiKey::DescribeProducers, CatalogNeed::All),
    (ApiKey::DeleteRecords, CatalogNeed::All),
    (ApiKey::CreateTopics, CatalogNeed::All),
    (ApiKey::DeleteTopics, CatalogNeed::All),
    (ApiKey::CreatePartitions, CatalogNeed::All),
    (ApiKey::ListGroups, CatalogNeed::All),
    (ApiKey::DescribeGroups, CatalogNeed::All),
    (ApiKey::DeleteGroups, CatalogNeed::All),
    (ApiKey::OffsetDelete, CatalogNeed::All),
    (ApiKey::ConsumerGroupDescribe, CatalogNeed::All),
    (ApiKey::ShareGroupDescribe, CatalogNeed::All),
    (ApiKey::DescribeShareGroupOffsets, CatalogNeed::All),
    (ApiKey::AlterShareGroupOffsets, CatalogNeed::All),
    (ApiKey::DeleteShareGroupOffsets, CatalogNeed::All),
    (ApiKey::DescribeConfigs, CatalogNeed::All),
    (ApiKey::AlterConfigs, CatalogNeed::All),
    (ApiKey::IncrementalAlterConfigs, CatalogNeed::All),
    (ApiKey::ListConfigResources, CatalogNeed::All),
    (ApiKey::DescribeLogDirs, CatalogNeed::All),
    (ApiKey::ElectLeaders, CatalogNeed::All),
    (ApiKey::AlterPartitionReassignments, CatalogNeed::All),
    (ApiKey::ListPartitionReassignments, CatalogNeed::All),
    (ApiKey::DescribeAcls, CatalogNeed::Users),
    (ApiKey::CreateAcls, CatalogNeed::Users),
    (ApiKey::DeleteAcls, CatalogNeed::Users),
    (ApiKey::DescribeUserScramCredentials, CatalogNeed::Users),
    (ApiKey::AlterUserScramCredentials, CatalogNeed::Users),
    (ApiKey::DescribeClientQuotas, CatalogNeed::Quotas),
    (ApiKey::AlterClientQuotas, CatalogNeed::Quotas),
    // Always refused.
    (ApiKey::DescribeTransactions, CatalogNeed::Nothing),
    (ApiKey::ListTransactions, CatalogNeed::Nothing),
    (ApiKey::InitializeShareGroupState, CatalogNeed::Nothing),
    (ApiKey::ReadShareGroupState, CatalogNeed::Nothing),
    (ApiKey::WriteShareGroupState, CatalogNeed::Nothing),
    (ApiKey::DeleteShareGroupState, CatalogNeed::Nothing),
    (ApiKey::ReadShareGroupStateSummary, CatalogNeed::Nothing),
];

impl CatalogNeed {
    /// A request that is not in the table passes the barrier.
    pub(crate) fn of(api: ApiKey) -> Self {
        NEEDS.iter().find(|(known, _)| *known == api).map_or(Self::All, |(_, need)| *need)
    }
}

/// Passes the catalog's barrier, for requests that need it. False where the catalog's leader did not answer.
pub(crate) async fn pass(gateway: &Gateway, api: ApiKey) -> bool {
    let users = gateway.options.users.as_ref();
    let current = match (CatalogNeed::of(api), users) {
        (CatalogNeed::Nothing | CatalogNeed::Topics, _) => return true,
        (CatalogNeed::Users, Some(users)) => {
            users.catch_up().await.map_err(|error| error.to_string())
        }
        (CatalogNeed::Quotas, _) => {
            gateway.options.quotas.catch_up().await.map_err(|error| error.to_string())
        }
        (CatalogNeed::All | CatalogNeed::Users, _) => {
            gateway.broker.catalog_is_current().await.map_err(|error| error.to_string())
        }
    };
    if let Err(error) = &current {
        tracing::debug!(?api, error, "a request is answered by what this node knows");
    }
    current.is_ok()
}

/// Passes the catalog's barrier if this node does not know one of these topics.
pub(crate) async fn ensure_known<'a>(
    gateway: &Gateway,
    topics: impl Iterator<Item = RequestedTopic<'a>>,
) {
    if gateway.broker.is_alone() {
        return;
    }
    let are_known = {
        let catalog = gateway.broker.catalog();
        let mut topics = topics;
        topics.all(|topic| match topic {
            RequestedTopic::Name(name) => catalog.topic_named(name).is_some(),
            RequestedTopic::Id(id) => catalog.topic_with_uuid(&id).is_some(),
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
