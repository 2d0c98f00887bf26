//! DescribeLogDirs: the one data directory and what each partition takes of it.

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::describe_log_dirs_response::{
    DescribeLogDirsPartition, DescribeLogDirsResult, DescribeLogDirsTopic,
};
use kafka_protocol::messages::{DescribeLogDirsRequest, DescribeLogDirsResponse, TopicName};
use kafka_protocol::protocol::StrBytes;

use base::PartitionId;

use crate::gateway::Gateway;
use crate::metadata::message_name;
use crate::request::{Request, RequestError};
use crate::response::Response;

pub(crate) fn describe(gateway: &Gateway, mut request: Request) -> Result<Response, RequestError> {
    let message: DescribeLogDirsRequest = request.decode()?;
    let wanted = match message.topics {
        Some(topics) => topics
            .into_iter()
            .filter_map(|topic| {
                let partitions = existing(gateway, &topic.topic, &topic.partitions)?;
                Some((topic.topic, partitions))
            })
            .collect(),
        None => all(gateway),
    };
    let result = match gateway.broker.storage() {
        Ok(storage) => DescribeLogDirsResult::default()
            .with_log_dir(StrBytes::from_string(storage.dir.display().to_string()))
            .with_total_bytes(storage.total_bytes as i64)
            .with_usable_bytes(storage.free_bytes as i64)
            .with_topics(topics(gateway, wanted)),
        Err(error) => {
            tracing::error!(%error, "cannot ask the data directory for its space");
            DescribeLogDirsResult::default()
                .with_error_code(ResponseError::KafkaStorageError.code())
        }
    };
    let response = DescribeLogDirsResponse::default().with_results(vec![result]);
    Response::encode(&request.head, &response)
}

/// Those of the named partitions that exist: the others are left out, as in Kafka.
fn existing(gateway: &Gateway, topic: &str, indexes: &[i32]) -> Option<Vec<PartitionId>> {
    gateway.broker.read(|state| {
        let topic = state.topic_named(topic)?;
        let known = |index: &i32| {
            let index = u32::try_from(*index).ok()?;
            (index < topic.partition_count()).then(|| PartitionId::new(topic.id, index))
        };
        Some(indexes.iter().filter_map(known).collect())
    })
}

fn all(gateway: &Gateway) -> Vec<(TopicName, Vec<PartitionId>)> {
    gateway.broker.read(|state| {
        state
            .topics()
            .map(|topic| (message_name(&topic.name), topic.partition_ids().collect()))
            .collect()
    })
}

fn topics(
    gateway: &Gateway,
    wanted: Vec<(TopicName, Vec<PartitionId>)>,
) -> Vec<DescribeLogDirsTopic> {
    let describe = |partition: PartitionId| {
        DescribeLogDirsPartition::default()
            .with_partition_index(partition.index as i32)
            .with_partition_size(gateway.broker.partition_bytes(partition) as i64)
    };
    wanted
        .into_iter()
        .map(|(name, partitions)| {
            DescribeLogDirsTopic::default()
                .with_name(name)
                .with_partitions(partitions.into_iter().map(describe).collect())
        })
        .collect()
}
