//! Every request that the message crate decodes, for tests over all of them.

use bytes::{Buf, Bytes, BytesMut};
use kafka_protocol::messages::*;
use kafka_protocol::protocol::{Decodable, Encodable, Message};

/// A request of the table, with its type behind functions.
pub(crate) struct RequestCodec {
    pub(crate) api: ApiKey,
    pub(crate) versions: std::ops::RangeInclusive<i16>,
    /// Decodes bytes; returns the number of trailing bytes, or `None` on an error.
    pub(crate) decode: fn(Bytes, i16) -> Option<usize>,
    pub(crate) default: fn(i16) -> Option<BytesMut>,
}

fn known<M: Message + Decodable + Encodable + Default>(api: ApiKey) -> RequestCodec {
    RequestCodec {
        api,
        versions: M::VERSIONS.min..=M::VERSIONS.max,
        decode: |mut bytes, version| {
            M::decode(&mut bytes, version).ok()?;
            Some(bytes.remaining())
        },
        default: |version| {
            let mut bytes = BytesMut::new();
            M::default().encode(&mut bytes, version).ok()?;
            Some(bytes)
        },
    }
}

macro_rules! requests {
    ($($api:ident: $message:ident),* $(,)?) => {
        vec![$(known::<$message>(ApiKey::$api)),*]
    };
}

pub(crate) fn requests() -> Vec<RequestCodec> {
    requests![
        Fetch: FetchRequest,
        SaslHandshake: SaslHandshakeRequest,
        SaslAuthenticate: SaslAuthenticateRequest,
        AlterUserScramCredentials: AlterUserScramCredentialsRequest,
        ListOffsets: ListOffsetsRequest,
        Metadata: MetadataRequest,
        OffsetCommit: OffsetCommitRequest,
        OffsetFetch: OffsetFetchRequest,
        FindCoordinator: FindCoordinatorRequest,
        JoinGroup: JoinGroupRequest,
        Heartbeat: HeartbeatRequest,
        LeaveGroup: LeaveGroupRequest,
        SyncGroup: SyncGroupRequest,
        DescribeGroups: DescribeGroupsRequest,
        ListGroups: ListGroupsRequest,
        ApiVersions: ApiVersionsRequest,
        CreateTopics: CreateTopicsRequest,
        DeleteTopics: DeleteTopicsRequest,
        DeleteRecords: DeleteRecordsRequest,
        InitProducerId: InitProducerIdRequest,
        OffsetForLeaderEpoch: OffsetForLeaderEpochRequest,
        DescribeAcls: DescribeAclsRequest,
        CreateAcls: CreateAclsRequest,
        DeleteAcls: DeleteAclsRequest,
        DescribeConfigs: DescribeConfigsRequest,
        AlterConfigs: AlterConfigsRequest,
        DescribeLogDirs: DescribeLogDirsRequest,
        CreatePartitions: CreatePartitionsRequest,
        DeleteGroups: DeleteGroupsRequest,
        ElectLeaders: ElectLeadersRequest,
        IncrementalAlterConfigs: IncrementalAlterConfigsRequest,
        AlterPartitionReassignments: AlterPartitionReassignmentsRequest,
        ListPartitionReassignments: ListPartitionReassignmentsRequest,
        OffsetDelete: OffsetDeleteRequest,
        DescribeClientQuotas: DescribeClientQuotasRequest,
        AlterClientQuotas: AlterClientQuotasRequest,
        DescribeUserScramCredentials: DescribeUserScramCredentialsRequest,
        DescribeQuorum: DescribeQuorumRequest,
        UpdateFeatures: UpdateFeaturesRequest,
        AddPartitionsToTxn: AddPartitionsToTxnRequest,
        AddOffsetsToTxn: AddOffsetsToTxnRequest,
        EndTxn: EndTxnRequest,
        TxnOffsetCommit: TxnOffsetCommitRequest,
        DescribeTransactions: DescribeTransactionsRequest,
        ListTransactions: ListTransactionsRequest,
        DescribeCluster: DescribeClusterRequest,
        DescribeProducers: DescribeProducersRequest,
        ConsumerGroupHeartbeat: ConsumerGroupHeartbeatRequest,
        ConsumerGroupDescribe: ConsumerGroupDescribeRequest,
        DescribeTopicPartitions: DescribeTopicPartitionsRequest,
        ListConfigResources: ListConfigResourcesRequest,
        ShareGroupHeartbeat: ShareGroupHeartbeatRequest,
        ShareGroupDescribe: ShareGroupDescribeRequest,
        ShareFetch: ShareFetchRequest,
        ShareAcknowledge: ShareAcknowledgeRequest,
        InitializeShareGroupState: InitializeShareGroupStateRequest,
        ReadShareGroupState: ReadShareGroupStateRequest,
        WriteShareGroupState: WriteShareGroupStateRequest,
        DeleteShareGroupState: DeleteShareGroupStateRequest,
        ReadShareGroupStateSummary: ReadShareGroupStateSummaryRequest,
        DescribeShareGroupOffsets: DescribeShareGroupOffsetsRequest,
        AlterShareGroupOffsets: AlterShareGroupOffsetsRequest,
        DeleteShareGroupOffsets: DeleteShareGroupOffsetsRequest,
    ]
}
