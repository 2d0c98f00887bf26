//! Questions about offsets, by time and by leader epoch; and deleting records below one.

use base::{Offset, PartitionId};
use broker::{Pace, TimedOffset};
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::delete_records_request::DeleteRecordsPartition;
use kafka_protocol::messages::delete_records_response::{
    DeleteRecordsPartitionResult, DeleteRecordsTopicResult,
};
use kafka_protocol::messages::list_offsets_request::ListOffsetsPartition;
use kafka_protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use kafka_protocol::messages::offset_for_leader_epoch_response::{
    EpochEndOffset, OffsetForLeaderTopicResult,
};
use kafka_protocol::messages::{
    DeleteRecordsRequest, DeleteRecordsResponse, ListOffsetsRequest, ListOffsetsResponse,
    OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse,
};
use machine::partition::Partition;
use machine::{Command, Outcome};

use crate::errors::{Fault, code_of};
use crate::fetch_collector::check_leader_epoch;
use crate::gateway::Gateway;
use crate::request::{Request, RequestError};
use crate::response::Response;

/// Timestamps with a meaning of their own (KIP-79, 405, 734, 1005).
mod timestamps {
    pub(super) const LATEST: i64 = -1;
    pub(super) const EARLIEST: i64 = -2;
    pub(super) const MAX: i64 = -3;
    pub(super) const EARLIEST_LOCAL: i64 = -4;
    pub(super) const LATEST_TIERED: i64 = -5;
}

/// The partition of this name and number.
pub(crate) fn find_partition(
    gateway: &Gateway,
    topic: &str,
    index: i32,
) -> Result<PartitionId, Fault> {
    let found = gateway.broker.read(|state| {
        let topic = state.topic_named(topic)?;
        let index = u32::try_from(index).ok().filter(|index| *index < topic.partition_count())?;
        Some(PartitionId::new(topic.id, index))
    });
    found.ok_or_else(Fault::unknown_partition)
}

/// Partitions that are looked up without a pause.
const PARTITIONS_AT_ONCE: u32 = 512;

pub(crate) async fn list_offsets(
    gateway: &Gateway,
    mut request: Request,
) -> Result<Response, RequestError> {
    let message: ListOffsetsRequest = request.decode()?;
    let version = request.head.version;
    let mut topics = Vec::with_capacity(message.topics.len());
    let mut pace = Pace::new(gateway.broker.turns(), PARTITIONS_AT_ONCE);
    for topic in message.topics {
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for wanted in &topic.partitions {
            pace.step(1).await;
            let listed = list_offset(gateway, version, &topic.name, wanted).await;
            let response = ListOffsetsPartitionResponse::default()
                .with_partition_index(wanted.partition_index)
                .with_error_code(code_of(&listed));
            let response = match listed {
                Ok(Some(listed)) => response
                    .with_offset(listed.offset as i64)
                    .with_timestamp(listed.timestamp)
                    .with_leader_epoch(if version >= 4 { listed.leader_epoch } else { -1 }),
                // No such record: -1 everywhere, and no error.
                _ => response.with_offset(-1).with_timestamp(-1).with_leader_epoch(-1),
            };
            partitions.push(response);
        }
        topics.push(
            ListOffsetsTopicResponse::default().with_name(topic.name).with_partitions(partitions),
        );
    }
    Response::encode(&request.head, &ListOffsetsResponse::default().with_topics(topics))
}

struct Listed {
    offset: Offset,
    timestamp: i64,
    leader_epoch: i32,
}

async fn list_offset(
    gateway: &Gateway,
    version: i16,
    topic: &str,
    wanted: &ListOffsetsPartition,
) -> Result<Option<Listed>, Fault> {
    let id = find_partition(gateway, topic, wanted.partition_index)?;
    check_leader_epoch(gateway, wanted.current_leader_epoch)?;
    let since = match wanted.timestamp {
        timestamps::MAX => 7,
        timestamps::EARLIEST_LOCAL => 8,
        timestamps::LATEST_TIERED => 9,
        ..timestamps::LATEST_TIERED => i16::MAX,
        _ => 1,
    };
    if version < since {
        return Err(Fault::plain(ResponseError::UnsupportedVersion));
    }
    let found = match wanted.timestamp {
        timestamps::LATEST => at_bound(gateway, id, Partition::next_offset)?,
        timestamps::EARLIEST | timestamps::EARLIEST_LOCAL => {
            at_bound(gateway, id, Partition::log_start)?
        }
        // Nothing is tiered.
        timestamps::LATEST_TIERED => return Ok(None),
        timestamps::MAX => gateway.broker.offset_of_max_timestamp(id).await?,
        timestamp => gateway.broker.offset_at_time(id, timestamp).await?,
    };
    Ok(found.map(|TimedOffset { offset, timestamp }| Listed {
        offset,
        timestamp,
        leader_epoch: epoch_at(gateway, id, offset),
    }))
}

/// A bound of a partition has no timestamp.
fn at_bound(
    gateway: &Gateway,
    id: PartitionId,
    bound: fn(&Partition) -> Offset,
) -> Result<Option<TimedOffset>, Fault> {
    let offset = gateway.broker.read(|state| state.partition(id).map(bound));
    let offset = offset.ok_or_else(Fault::unknown_partition)?;
    Ok(Some(TimedOffset { offset, timestamp: -1 }))
}

/// The leader epoch in which an offset was, or will be, written; -1 before the first record.
fn epoch_at(gateway: &Gateway, id: PartitionId, offset: Offset) -> i32 {
    gateway.broker.read(|state| {
        let epochs = state.partition(id).map(Partition::epochs).unwrap_or_default();
        epochs.iter().rev().find(|epoch| epoch.start <= offset).map_or(-1, |epoch| epoch.epoch)
    })
}

pub(crate) fn offset_for_leader_epoch(
    gateway: &Gateway,
    mut request: Request,
) -> Result<Response, RequestError> {
    let message: OffsetForLeaderEpochRequest = request.decode()?;
    let current = gateway.broker.leader_epoch();
    let topics = message.topics.into_iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|wanted| {
            let found = find_partition(gateway, &topic.topic, wanted.partition).and_then(|id| {
                check_leader_epoch(gateway, wanted.current_leader_epoch)?;
                Ok(gateway.broker.read(|state| {
                    let partition = state.partition(id)?;
                    // The current epoch may not have written anything yet.
                    if wanted.leader_epoch == current {
                        return Some((current, partition.next_offset()));
                    }
                    partition.epoch_end(wanted.leader_epoch)
                }))
            });
            // An epoch that is not known ends nowhere.
            let (epoch, end) = match &found {
                Ok(Some((epoch, end))) => (*epoch, *end as i64),
                _ => (-1, -1),
            };
            EpochEndOffset::default()
                .with_partition(wanted.partition)
                .with_error_code(code_of(&found))
                .with_leader_epoch(epoch)
                .with_end_offset(end)
        });
        let partitions = partitions.collect();
        OffsetForLeaderTopicResult::default().with_topic(topic.topic).with_partitions(partitions)
    });
    let response = OffsetForLeaderEpochResponse::default().with_topics(topics.collect());
    Response::encode(&request.head, &response)
}

/// Offset of a DeleteRecords request that means "all there is".
const HIGH_WATERMARK: i64 = -1;

pub(crate) async fn delete_records(
    gateway: &Gateway,
    mut request: Request,
) -> Result<Response, RequestError> {
    let message: DeleteRecordsRequest = request.decode()?;
    let mut starts = Vec::new();
    let checked: Vec<Vec<Result<(), Fault>>> = message
        .topics
        .iter()
        .map(|topic| {
            let check = |wanted: &DeleteRecordsPartition| {
                let start = new_start(gateway, &topic.name, wanted)?;
                starts.push(start);
                Ok(())
            };
            topic.partitions.iter().map(check).collect()
        })
        .collect();
    let mut moved = advance(gateway, starts).await.into_iter();
    let topics = message.topics.into_iter().zip(checked).map(|(topic, checked)| {
        let partitions = topic.partitions.iter().zip(checked).map(|(wanted, checked)| {
            let moved = checked.and_then(|()| {
                moved.next().unwrap_or_else(|| Err(Fault::plain(ResponseError::UnknownServerError)))
            });
            DeleteRecordsPartitionResult::default()
                .with_partition_index(wanted.partition_index)
                .with_error_code(code_of(&moved))
                .with_low_watermark(moved.map_or(-1, |start| start as i64))
        });
        let partitions = partitions.collect();
        DeleteRecordsTopicResult::default().with_name(topic.name).with_partitions(partitions)
    });
    let response = DeleteRecordsResponse::default().with_topics(topics.collect());
    Response::encode(&request.head, &response)
}

fn new_start(
    gateway: &Gateway,
    topic: &str,
    wanted: &DeleteRecordsPartition,
) -> Result<(PartitionId, Offset), Fault> {
    let id = find_partition(gateway, topic, wanted.partition_index)?;
    let (end, deletes) = gateway
        .broker
        .read(|state| {
            let deletes = state.topic(id.topic)?.config.cleanup_policy.delete;
            Some((state.partition(id)?.next_offset(), deletes))
        })
        .ok_or_else(Fault::unknown_partition)?;
    if !deletes {
        // Of a key's last value nobody may be deprived.
        return Err(Fault::plain(ResponseError::PolicyViolation));
    }
    match wanted.offset {
        HIGH_WATERMARK => Ok((id, end)),
        offset => match u64::try_from(offset) {
            Ok(offset) if offset <= end => Ok((id, offset)),
            _ => Err(Fault::plain(ResponseError::OffsetOutOfRange)),
        },
    }
}

async fn advance(
    gateway: &Gateway,
    starts: Vec<(PartitionId, Offset)>,
) -> Vec<Result<Offset, Fault>> {
    let count = starts.len();
    if count == 0 {
        return Vec::new();
    }
    match gateway.broker.execute(Command::AdvanceStart { starts }).await {
        Ok(Outcome::Starts(starts)) => {
            starts.into_iter().map(|start| start.map_err(Fault::from)).collect()
        }
        Ok(_) => Vec::new(),
        Err(error) => vec![Err(Fault::from(error)); count],
    }
}
