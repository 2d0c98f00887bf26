//! Requests, each built in one place: those that write and read records, and those that create and configure topics.
//!
//! Topics are named, not numbered: [`PRODUCE`], [`FETCH`] and [`METADATA`] are the last versions, or
//! near them, in which that is possible, and Apache Kafka 4 and Postroad both speak them.

use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{
    ApiKey, ApiVersionsRequest, ApiVersionsResponse, BrokerId, CreateTopicsRequest,
    CreateTopicsResponse, FetchRequest, FetchResponse, GroupId, IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse, ListOffsetsRequest, ListOffsetsResponse, MetadataRequest,
    MetadataResponse, ProduceRequest, ProduceResponse, TopicName,
};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use crate::error::{BrokerRejection, CallError, accepted};

/// The versions used by callers without negotiation.
pub const API_VERSIONS: i16 = 3;
/// Version of `IncrementalAlterConfigs`.
pub const ALTER_CONFIGS: i16 = 1;
pub const CREATE_TOPICS: i16 = 5;
pub const FETCH: i16 = 12;
pub const LIST_OFFSETS: i16 = 6;
/// The first version with topic ids that still queries by name.
pub const METADATA: i16 = 12;
pub const PRODUCE: i16 = 9;

/// Timeout of a change at the broker, in ms.
pub(crate) const CHANGE_MS: i32 = 30_000;

/// Kafka's special timestamps (`ListOffsetsRequest`).
pub const LATEST: i64 = -1;
pub const EARLIEST: i64 = -2;

pub fn topic_name(name: &str) -> TopicName {
    TopicName(StrBytes::from_string(name.to_owned()))
}

pub fn group_id(name: &str) -> GroupId {
    GroupId(StrBytes::from_string(name.to_owned()))
}

/// The name and version of a client's software (KIP-511).
pub fn api_versions(software: &'static str) -> ApiVersionsRequest {
    ApiVersionsRequest::default()
        .with_client_software_name(StrBytes::from_static_str(software))
        .with_client_software_version(StrBytes::from_static_str(env!("CARGO_PKG_VERSION")))
}

/// The finalized level of a feature (KIP-584), if there is one.
pub fn finalized_level(answer: &ApiVersionsResponse, feature: &str) -> Option<i16> {
    let mut features = answer.finalized_features.iter();
    let found = features.find(|found| found.name.as_str() == feature);
    found.map(|found| found.max_version_level)
}

/// A configurable resource, by the numbers of the protocol (`ConfigResource.Type`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConfigResource {
    Topic = 2,
    /// The empty name stands for all nodes.
    Broker = 4,
    /// KIP-848.
    Group = 32,
}

/// A change of one configuration value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ConfigChange {
    Set {
        name: String,
        value: String,
    },
    /// Removes the value, so that the default applies.
    Unset {
        name: String,
    },
}

/// Changes of a resource's configuration; other values stay (KIP-339).
pub fn alter_configs(
    resource: ConfigResource,
    name: &str,
    changes: &[ConfigChange],
) -> IncrementalAlterConfigsRequest {
    const SET: i8 = 0;
    const DELETE: i8 = 1;
    let changes = changes.iter().map(|change| match change {
        ConfigChange::Set { name, value } => AlterableConfig::default()
            .with_name(StrBytes::from_string(name.clone()))
            .with_config_operation(SET)
            .with_value(Some(StrBytes::from_string(value.clone()))),
        ConfigChange::Unset { name } => AlterableConfig::default()
            .with_name(StrBytes::from_string(name.clone()))
            .with_config_operation(DELETE)
            .with_value(None),
    });
    let resource = AlterConfigsResource::default()
        .with_resource_type(resource as i8)
        .with_resource_name(StrBytes::from_string(name.to_owned()))
        .with_configs(changes.collect());
    IncrementalAlterConfigsRequest::default().with_resources(vec![resource])
}

/// Checks that every resource of the reply was changed.
pub fn altered(answer: &IncrementalAlterConfigsResponse) -> Result<(), BrokerRejection> {
    answer.responses.iter().try_for_each(|resource| {
        let what = || format!("cannot change the configuration of {}", resource.resource_name);
        accepted(resource.error_code, resource.error_message.as_deref(), what)
    })
}

/// A topic to be created. `partitions` and `replication`: -1 is the broker's default.
pub fn create_topic<'a>(
    topic: &str,
    partitions: i32,
    replication: i16,
    configs: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> CreateTopicsRequest {
    let configs = configs.into_iter().map(|(name, value)| {
        CreatableTopicConfig::default()
            .with_name(StrBytes::from_string(name.to_owned()))
            .with_value(Some(StrBytes::from_string(value.to_owned())))
    });
    let topic = CreatableTopic::default()
        .with_name(topic_name(topic))
        .with_num_partitions(partitions)
        .with_replication_factor(replication)
        .with_configs(configs.collect());
    CreateTopicsRequest::default().with_topics(vec![topic]).with_timeout_ms(CHANGE_MS)
}

/// Checks that every topic of the reply was created.
pub fn created(answer: &CreateTopicsResponse) -> Result<(), BrokerRejection> {
    answer.topics.iter().try_for_each(|topic| {
        let message = topic.error_message.as_deref();
        accepted(topic.error_code, message, || format!("cannot create topic {}", topic.name.0))
    })
}

/// Metadata of these topics, without creating missing ones.
pub fn metadata<'a>(topics: impl IntoIterator<Item = &'a str>) -> MetadataRequest {
    let asked = topics.into_iter().map(|name| {
        MetadataRequestTopic::default().with_topic_id(Uuid::nil()).with_name(Some(topic_name(name)))
    });
    MetadataRequest::default()
        .with_topics(Some(asked.collect()))
        .with_allow_auto_topic_creation(false)
}

/// Number of partitions with a leader in all topics of the reply; a missing topic has none (yet).
pub fn partitions_led(answer: &MetadataResponse) -> usize {
    let partitions = answer.topics.iter().flat_map(|topic| &topic.partitions);
    partitions.filter(|partition| partition.leader_id.0 >= 0).count()
}

/// One batch for each partition named. `acks`: 0 no broker, 1 the leader, -1 all in-sync replicas; with 0 there is no
/// reply.
pub fn produce(
    topic: &str,
    acks: i16,
    batches: impl IntoIterator<Item = (i32, Bytes)>,
) -> ProduceRequest {
    let partitions = batches.into_iter().map(|(index, batch)| {
        PartitionProduceData::default().with_index(index).with_records(Some(batch))
    });
    let topic = TopicProduceData::default()
        .with_name(topic_name(topic))
        .with_partition_data(partitions.collect());
    ProduceRequest::default()
        .with_transactional_id(None)
        .with_acks(acks)
        .with_timeout_ms(CHANGE_MS)
        .with_topic_data(vec![topic])
}

/// The broker's reply to one batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProduceOutcome {
    /// Acknowledged: the batch's first record has this offset.
    Acknowledged { base_offset: i64 },
    /// Refused with this error code of the protocol.
    Refused { code: i16 },
}

/// The outcome of each batch of a request, in the order of the reply, which is that of the request.
pub fn produced(answer: &ProduceResponse) -> Vec<ProduceOutcome> {
    let partitions = answer.responses.iter().flat_map(|topic| &topic.partition_responses);
    let answers = partitions.map(|partition| match partition.error_code {
        0 => ProduceOutcome::Acknowledged { base_offset: partition.base_offset },
        code => ProduceOutcome::Refused { code },
    });
    answers.collect()
}

/// Limits of a fetch without a session.
#[derive(Clone, Copy, Debug)]
pub struct FetchLimits {
    /// Wait of the broker while there are fewer than `bytes_min`.
    pub wait_ms: i32,
    pub bytes_min: i32,
    pub bytes_max: i32,
    pub partition_bytes_max: i32,
}

impl FetchLimits {
    /// Up to `bytes_max`, answered as soon as there is any record, or after `wait`.
    pub fn up_to(bytes_max: i32, wait: Duration) -> Self {
        let wait_ms = i32::try_from(wait.as_millis()).unwrap_or(i32::MAX);
        Self { wait_ms, bytes_min: 1, bytes_max, partition_bytes_max: bytes_max }
    }
}

/// A fetch without a session (KIP-227), which contains all its partitions. Each partition of a topic has the offset
/// from which it is read.
pub fn fetch<'a, P: IntoIterator<Item = (i32, i64)>>(
    topics: impl IntoIterator<Item = (&'a str, P)>,
    limits: FetchLimits,
) -> FetchRequest {
    let topics = topics.into_iter().map(|(topic, partitions)| {
        let partitions = partitions.into_iter().map(|(partition, offset)| {
            FetchPartition::default()
                .with_partition(partition)
                .with_current_leader_epoch(-1)
                .with_fetch_offset(offset)
                .with_log_start_offset(-1)
                .with_partition_max_bytes(limits.partition_bytes_max)
        });
        FetchTopic::default().with_topic(topic_name(topic)).with_partitions(partitions.collect())
    });
    FetchRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_max_wait_ms(limits.wait_ms)
        .with_min_bytes(limits.bytes_min)
        .with_max_bytes(limits.bytes_max)
        .with_session_id(0)
        .with_session_epoch(-1)
        .with_topics(topics.collect())
}

/// Result of a fetch for one partition.
#[derive(Debug)]
pub struct PartitionRecords {
    pub partition: i32,
    /// The protocol's error code; 0: success.
    pub error_code: i16,
    /// Whole batches, except that the last one may be truncated.
    pub records: Bytes,
}

/// The partitions of a fetch of one topic.
pub fn fetched(answer: FetchResponse) -> Result<Vec<PartitionRecords>, BrokerRejection> {
    accepted(answer.error_code, None, || "cannot fetch".into())?;
    let partitions = answer.responses.into_iter().flat_map(|topic| topic.partitions);
    let partitions = partitions.map(|partition| PartitionRecords {
        partition: partition.partition_index,
        error_code: partition.error_code,
        records: partition.records.unwrap_or_default(),
    });
    Ok(partitions.collect())
}

/// Queries the offsets of a timestamp in ms, [`EARLIEST`] or [`LATEST`] for each partition of a topic.
pub fn list_offsets<'a, P: IntoIterator<Item = (i32, i64)>>(
    topics: impl IntoIterator<Item = (&'a str, P)>,
) -> ListOffsetsRequest {
    let topics = topics.into_iter().map(|(topic, partitions)| {
        let partitions = partitions.into_iter().map(|(partition, timestamp)| {
            ListOffsetsPartition::default()
                .with_partition_index(partition)
                .with_current_leader_epoch(-1)
                .with_timestamp(timestamp)
        });
        ListOffsetsTopic::default()
            .with_name(topic_name(topic))
            .with_partitions(partitions.collect())
    });
    ListOffsetsRequest::default().with_replica_id(BrokerId(-1)).with_topics(topics.collect())
}

/// The offsets of a topic's partitions 0 to `partitions`, in this order; -1 where the reply has none.
pub fn offsets_of_each(
    answer: &ListOffsetsResponse,
    partitions: usize,
) -> Result<Vec<i64>, CallError> {
    let mut offsets = vec![-1; partitions];
    for answer in answer.topics.iter().flat_map(|topic| &topic.partitions) {
        let index = answer.partition_index;
        accepted(answer.error_code, None, || format!("cannot look into partition {index}"))?;
        let place = usize::try_from(index).ok().and_then(|index| offsets.get_mut(index));
        *place.ok_or_else(|| CallError::Unfitting {
            api: ApiKey::ListOffsets.into(),
            reason: format!("partition {index} was not asked for"),
        })? = answer.offset;
    }
    Ok(offsets)
}

/// An error code with its name in the protocol.
pub fn code_name(code: i16) -> String {
    match ResponseError::try_from_code(code) {
        Some(error) => format!("{error:?} ({code})"),
        None => format!("error {code}"),
    }
}
