//! DescribeLogDirs: the one data directory, and the bytes of each partition in it.

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::describe_log_dirs_response::{
    DescribeLogDirsPartition, DescribeLogDirsResult, DescribeLogDirsTopic,
};
use kafka_protocol::messages::{DescribeLogDirsRequest, DescribeLogDirsResponse, TopicName};
use kafka_protocol::protocol::StrBytes;

use base::PartitionId;
use broker::{Unavailable, YieldBudget};

use crate::catalog::all_topics;
use crate::catalog::partitions::PARTITIONS_AT_ONCE;
use crate::errors::Fault;
use crate::messages::{RequestError, Response};
use crate::request::Request;
use crate::state::Gateway;

/// Approximate bytes of a partition while the response is built.
const PARTITION_BYTES: usize = 96;

pub(crate) async fn describe(
    gateway: &Gateway,
    mut request: Request,
) -> Result<Response, RequestError> {
    let message: DescribeLogDirsRequest = request.decode()?;
    if let Err(fault) = request.caller.cluster() {
        // Before version 3 the response has no code of its own: it is empty.
        let refused = DescribeLogDirsResponse::default().with_error_code(fault.code());
        return Response::encode(&request.head, &refused);
    }
    let asked = match &message.topics {
        Some(topics) => topics.iter().map(|topic| topic.partitions.len()).sum(),
        None => gateway.broker.catalog().partition_count() as usize,
    };
    let permit = gateway.answer_room(asked * PARTITION_BYTES).await;
    let wanted = match message.topics {
        Some(topics) => topics
            .into_iter()
            .filter_map(|topic| {
                let partitions = existing(gateway, &topic.topic, &topic.partitions)?;
                Some((topic.topic, partitions))
            })
            .collect(),
        None => all(gateway).await,
    };
    let result = describe_dir(gateway, wanted)
        .await
        .unwrap_or_else(|fault| DescribeLogDirsResult::default().with_error_code(fault.code()));
    let response = DescribeLogDirsResponse::default().with_results(vec![result]);
    let mut response = Response::encode(&request.head, &response)?;
    response.permit = permit;
    Ok(response)
}

async fn describe_dir(
    gateway: &Gateway,
    wanted: Vec<(TopicName, Vec<PartitionId>)>,
) -> Result<DescribeLogDirsResult, Fault> {
    let storage = gateway.broker.storage().map_err(|error| {
        tracing::error!(%error, "cannot ask the data directory for its space");
        Fault::plain(ResponseError::KafkaStorageError)
    })?;
    Ok(DescribeLogDirsResult::default()
        .with_log_dir(StrBytes::from_string(storage.dir.display().to_string()))
        .with_total_bytes(storage.total_bytes as i64)
        .with_usable_bytes(storage.free_bytes as i64)
        .with_topics(topics(gateway, wanted).await?))
}

/// The named partitions that exist: the others are left out, as in Kafka.
fn existing(gateway: &Gateway, topic: &str, indexes: &[i32]) -> Option<Vec<PartitionId>> {
    let catalog = gateway.broker.catalog();
    let topic = catalog.topic_named(topic)?;
    Some(indexes.iter().filter_map(|index| topic.partition(*index)).collect())
}

async fn all(gateway: &Gateway) -> Vec<(TopicName, Vec<PartitionId>)> {
    let topics = all_topics(gateway).await.into_iter();
    topics.map(|topic| (topic.message_name(), topic.partition_ids().collect())).collect()
}

async fn topics(
    gateway: &Gateway,
    wanted: Vec<(TopicName, Vec<PartitionId>)>,
) -> Result<Vec<DescribeLogDirsTopic>, Unavailable> {
    let mut pace = YieldBudget::new(gateway.broker.turns(), PARTITIONS_AT_ONCE as u32);
    let mut topics = Vec::with_capacity(wanted.len());
    for (name, ids) in wanted {
        let mut partitions = Vec::with_capacity(ids.len());
        for ids in ids.chunks(PARTITIONS_AT_ONCE) {
            pace.step(ids.len() as u32).await;
            // Partitions without a replica on this node are left out, as in Kafka.
            let sizes = gateway.broker.shards().live_bytes_here(ids);
            let here = ids.iter().zip(sizes).filter_map(|(id, bytes)| Some((id, bytes?)));
            partitions.extend(here.map(|(partition, bytes)| {
                DescribeLogDirsPartition::default()
                    .with_partition_index(partition.index as i32)
                    .with_partition_size(bytes as i64)
            }));
        }
        if partitions.is_empty() && !ids.is_empty() {
            continue;
        }
        topics.push(DescribeLogDirsTopic::default().with_name(name).with_partitions(partitions));
    }
    Ok(topics)
}
