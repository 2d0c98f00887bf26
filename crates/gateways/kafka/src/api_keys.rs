//! The handled requests: their versions, and the part of the catalog that each needs.
//!
//! The ranges are those of Kafka 4.1 as far as the message crate has them. Those of share groups are Kafka
//! 4.3's, with codecs of our own for versions that the crate lacks. Requests outside of the table are not
//! advertised. A client that sends one nevertheless is disconnected, as in Kafka.

use std::ops::RangeInclusive;

use kafka_protocol::messages::ApiKey;

/// Part of the catalog that must be current.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CatalogNeed {
    /// The request names nothing in the catalog, or only groups, which their coordinator owns. A heartbeat may name
    /// unknown topics: they are assigned once they become known.
    Nothing,
    /// Its topics must be known: [`crate::catalog::currency::ensure_known`].
    Topics,
    All,
    /// Also users and rules.
    Users,
    /// Also quotas.
    Quotas,
}

/// Delegation tokens are missing because they are not offered, and WriteTxnMarkers because no other node writes markers:
/// an operator aborts a transaction at its coordinator. Telemetry is missing too, as on a Kafka node without a plugin for it.
pub(crate) const HANDLED: &[(ApiKey, RangeInclusive<i16>, CatalogNeed)] = {
    use CatalogNeed::*;
    &[
        (ApiKey::Produce, 3..=13, Topics),
        (ApiKey::Fetch, 4..=18, Topics),
        (ApiKey::ListOffsets, 1..=10, Topics),
        (ApiKey::Metadata, 0..=13, Topics),
        (ApiKey::OffsetCommit, 2..=9, Topics),
        (ApiKey::OffsetFetch, 1..=9, Topics),
        (ApiKey::FindCoordinator, 0..=6, Nothing),
        (ApiKey::JoinGroup, 0..=9, Nothing),
        (ApiKey::Heartbeat, 0..=4, Nothing),
        (ApiKey::LeaveGroup, 0..=5, Nothing),
        (ApiKey::SyncGroup, 0..=5, Nothing),
        (ApiKey::DescribeGroups, 0..=6, All),
        (ApiKey::ListGroups, 0..=5, All),
        (ApiKey::SaslHandshake, 0..=1, Nothing),
        (ApiKey::ApiVersions, 0..=4, Nothing),
        (ApiKey::CreateTopics, 2..=7, All),
        (ApiKey::DeleteTopics, 1..=6, All),
        (ApiKey::DeleteRecords, 0..=2, All),
        (ApiKey::InitProducerId, 0..=5, Nothing),
        (ApiKey::OffsetForLeaderEpoch, 2..=4, Topics),
        (ApiKey::DescribeAcls, 1..=3, Users),
        (ApiKey::CreateAcls, 1..=3, Users),
        (ApiKey::DeleteAcls, 1..=3, Users),
        (ApiKey::DescribeConfigs, 1..=4, All),
        (ApiKey::AlterConfigs, 0..=2, All),
        (ApiKey::DescribeLogDirs, 1..=4, All),
        (ApiKey::SaslAuthenticate, 0..=2, Nothing),
        (ApiKey::CreatePartitions, 0..=3, All),
        (ApiKey::DeleteGroups, 0..=2, All),
        (ApiKey::ElectLeaders, 0..=2, All),
        (ApiKey::IncrementalAlterConfigs, 0..=1, All),
        (ApiKey::AlterPartitionReassignments, 0..=1, All),
        (ApiKey::ListPartitionReassignments, 0..=0, All),
        (ApiKey::OffsetDelete, 0..=0, All),
        (ApiKey::DescribeClientQuotas, 0..=1, Quotas),
        (ApiKey::AlterClientQuotas, 0..=1, Quotas),
        (ApiKey::DescribeUserScramCredentials, 0..=0, Users),
        (ApiKey::AlterUserScramCredentials, 0..=0, Users),
        (ApiKey::DescribeQuorum, 0..=2, Nothing),
        (ApiKey::UpdateFeatures, 0..=2, Nothing),
        (ApiKey::DescribeCluster, 0..=2, Nothing),
        (ApiKey::DescribeProducers, 0..=0, All),
        (ApiKey::AddPartitionsToTxn, 0..=5, Topics),
        (ApiKey::AddOffsetsToTxn, 0..=4, Nothing),
        (ApiKey::EndTxn, 0..=5, Nothing),
        (ApiKey::TxnOffsetCommit, 0..=5, Topics),
        (ApiKey::DescribeTransactions, 0..=0, Nothing),
        (ApiKey::ListTransactions, 0..=2, Nothing),
        (ApiKey::ConsumerGroupHeartbeat, 0..=1, Nothing),
        (ApiKey::ConsumerGroupDescribe, 0..=1, All),
        (ApiKey::ListConfigResources, 0..=1, All),
        (ApiKey::DescribeTopicPartitions, 0..=0, All),
        (ApiKey::ShareGroupHeartbeat, 1..=1, Nothing),
        (ApiKey::ShareGroupDescribe, 1..=1, All),
        (ApiKey::ShareFetch, 1..=2, Topics),
        (ApiKey::ShareAcknowledge, 1..=2, Topics),
        (ApiKey::InitializeShareGroupState, 0..=0, Nothing),
        (ApiKey::ReadShareGroupState, 0..=0, Nothing),
        (ApiKey::WriteShareGroupState, 0..=0, Nothing),
        (ApiKey::DeleteShareGroupState, 0..=0, Nothing),
        (ApiKey::ReadShareGroupStateSummary, 0..=0, Nothing),
        (ApiKey::DescribeShareGroupOffsets, 0..=1, All),
        (ApiKey::AlterShareGroupOffsets, 0..=0, All),
        (ApiKey::DeleteShareGroupOffsets, 0..=0, All),
    ]
};

/// The handled versions of a request.
pub(crate) fn handled(api: ApiKey) -> Option<&'static RangeInclusive<i16>> {
    HANDLED.iter().find(|(known, ..)| *known == api).map(|(_, range, _)| range)
}

impl CatalogNeed {
    /// A request that is not in the table passes the barrier.
    pub(crate) fn of(api: ApiKey) -> Self {
        HANDLED.iter().find(|(known, ..)| *known == api).map_or(Self::All, |(.., need)| *need)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_request_is_listed_once() {
        let listed: BTreeSet<i16> = HANDLED.iter().map(|(api, ..)| *api as i16).collect();
        assert_eq!(listed.len(), HANDLED.len());
    }
}
