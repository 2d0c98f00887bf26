//! The layout of each request: one table per message that the message crate decodes.
//!
//! The fields are in the order of the wire. The versions are those of the message definitions of Kafka 4.1,
//! for share groups of Kafka 4.3. See [`crate::shape`] for their purpose, and for the test that compares them
//! with the decoder.

mod access;
mod cluster;
mod configs;
mod groups;
mod records;
mod share;
mod topics;
mod transactions;

use kafka_protocol::messages::ApiKey;

use crate::layout::MessageShape;

/// `None` for requests that are not handled here, and for Produce, which has its own decoder.
pub fn of(api: ApiKey) -> Option<&'static MessageShape> {
    let shape: &'static MessageShape = match api {
        ApiKey::Fetch => &records::FETCH,
        ApiKey::ListOffsets => &records::LIST_OFFSETS,
        ApiKey::Metadata => &cluster::METADATA,
        ApiKey::OffsetCommit => &groups::OFFSET_COMMIT,
        ApiKey::OffsetFetch => &groups::OFFSET_FETCH,
        ApiKey::FindCoordinator => &groups::FIND_COORDINATOR,
        ApiKey::JoinGroup => &groups::JOIN_GROUP,
        ApiKey::Heartbeat => &groups::HEARTBEAT,
        ApiKey::LeaveGroup => &groups::LEAVE_GROUP,
        ApiKey::SyncGroup => &groups::SYNC_GROUP,
        ApiKey::DescribeGroups => &groups::DESCRIBE_GROUPS,
        ApiKey::ListGroups => &groups::LIST_GROUPS,
        ApiKey::SaslHandshake => &access::SASL_HANDSHAKE,
        ApiKey::SaslAuthenticate => &access::SASL_AUTHENTICATE,
        ApiKey::ApiVersions => &cluster::API_VERSIONS,
        ApiKey::CreateTopics => &topics::CREATE_TOPICS,
        ApiKey::DeleteTopics => &topics::DELETE_TOPICS,
        ApiKey::DeleteRecords => &records::DELETE_RECORDS,
        ApiKey::InitProducerId => &records::INIT_PRODUCER_ID,
        ApiKey::OffsetForLeaderEpoch => &records::OFFSET_FOR_LEADER_EPOCH,
        ApiKey::DescribeAcls => &access::DESCRIBE_ACLS,
        ApiKey::CreateAcls => &access::CREATE_ACLS,
        ApiKey::DeleteAcls => &access::DELETE_ACLS,
        ApiKey::DescribeConfigs => &configs::DESCRIBE_CONFIGS,
        ApiKey::AlterConfigs => &configs::ALTER_CONFIGS,
        ApiKey::DescribeLogDirs => &cluster::DESCRIBE_LOG_DIRS,
        ApiKey::CreatePartitions => &topics::CREATE_PARTITIONS,
        ApiKey::DeleteGroups => &groups::DELETE_GROUPS,
        ApiKey::ElectLeaders => &cluster::ELECT_LEADERS,
        ApiKey::IncrementalAlterConfigs => &configs::INCREMENTAL_ALTER_CONFIGS,
        ApiKey::AlterPartitionReassignments => &cluster::ALTER_PARTITION_REASSIGNMENTS,
        ApiKey::ListPartitionReassignments => &cluster::LIST_PARTITION_REASSIGNMENTS,
        ApiKey::OffsetDelete => &groups::OFFSET_DELETE,
        ApiKey::DescribeClientQuotas => &configs::DESCRIBE_CLIENT_QUOTAS,
        ApiKey::AlterClientQuotas => &configs::ALTER_CLIENT_QUOTAS,
        ApiKey::DescribeUserScramCredentials => &access::DESCRIBE_USER_SCRAM_CREDENTIALS,
        ApiKey::AlterUserScramCredentials => &access::ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey::DescribeQuorum => &cluster::DESCRIBE_QUORUM,
        ApiKey::UpdateFeatures => &cluster::UPDATE_FEATURES,
        ApiKey::AddPartitionsToTxn => &transactions::ADD_PARTITIONS_TO_TXN,
        ApiKey::AddOffsetsToTxn => &transactions::ADD_OFFSETS_TO_TXN,
        ApiKey::EndTxn => &transactions::END_TXN,
        ApiKey::TxnOffsetCommit => &transactions::TXN_OFFSET_COMMIT,
        ApiKey::DescribeTransactions => &records::DESCRIBE_TRANSACTIONS,
        ApiKey::ListTransactions => &records::LIST_TRANSACTIONS,
        ApiKey::DescribeCluster => &cluster::DESCRIBE_CLUSTER,
        ApiKey::DescribeProducers => &records::DESCRIBE_PRODUCERS,
        ApiKey::ConsumerGroupHeartbeat => &groups::CONSUMER_GROUP_HEARTBEAT,
        ApiKey::ConsumerGroupDescribe => &groups::CONSUMER_GROUP_DESCRIBE,
        ApiKey::DescribeTopicPartitions => &topics::DESCRIBE_TOPIC_PARTITIONS,
        ApiKey::ListConfigResources => &configs::LIST_CONFIG_RESOURCES,
        ApiKey::ShareGroupHeartbeat => &share::SHARE_GROUP_HEARTBEAT,
        ApiKey::ShareGroupDescribe => &share::SHARE_GROUP_DESCRIBE,
        ApiKey::ShareFetch => &share::SHARE_FETCH,
        ApiKey::ShareAcknowledge => &share::SHARE_ACKNOWLEDGE,
        ApiKey::InitializeShareGroupState => &share::INITIALIZE_SHARE_GROUP_STATE,
        ApiKey::ReadShareGroupState => &share::READ_SHARE_GROUP_STATE,
        ApiKey::WriteShareGroupState => &share::WRITE_SHARE_GROUP_STATE,
        ApiKey::DeleteShareGroupState => &share::DELETE_SHARE_GROUP_STATE,
        ApiKey::ReadShareGroupStateSummary => &share::READ_SHARE_GROUP_STATE_SUMMARY,
        ApiKey::DescribeShareGroupOffsets => &share::DESCRIBE_SHARE_GROUP_OFFSETS,
        ApiKey::AlterShareGroupOffsets => &share::ALTER_SHARE_GROUP_OFFSETS,
        ApiKey::DeleteShareGroupOffsets => &share::DELETE_SHARE_GROUP_OFFSETS,
        _ => return None,
    };
    Some(shape)
}
