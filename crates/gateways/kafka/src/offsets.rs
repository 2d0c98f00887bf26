//! Queries of offsets, by time and by leader epoch; and deletion of records below an offset.

use base::{Offset, PartitionId};
use broker::{Bounds, EpochEnd, ExecuteError, Refusal, TimedOffset, YieldBudget};
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::delete_records_request::DeleteRecordsPartition;
use kafka_protocol::messages::delete_records_response::{
    DeleteRecordsPartitionResult, DeleteRecordsTopicResult,
};
use kafka_protocol::messages::list_offsets_request::ListOffsetsPartition;
use kafka_protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use kafka_protocol::messages::offset_for_leader_epoch_request::OffsetForLeaderPartition;
use kafka_protocol::messages::offset_for_leader_epoch_response::{
    EpochEndOffset, OffsetForLeaderTopicResult,
};
use kafka_protocol::messages::{
    DeleteRecordsRequest, DeleteRecordsResponse, ListOffsetsRequest, ListOffsetsResponse,
    OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse,
};

use crate::authorization::Caller;
use crate::catalog::currency::ensure_known;
use crate::catalog::partitions::{
    PARTITIONS_AT_ONCE, find_current_partitions, find_led_partitions, refuse_led_elsewhere,
    with_answers,
};
use crate::errors::{Fault, code_of};
use crate::fetch::collector::check_leader_epoch;
use crate::messages::{RequestError, Response};
use crate::request::Request;
use crate::state::Gateway;
use crate::topic_ref::RequestedTopic;

/// Reserved timestamps (KIP-79, 405, 734, 1005).
mod timestamps {
    pub(super) const LATEST: i64 = -1;
    pub(super) const EARLIEST: i64 = -2;
    pub(super) const MAX: i64 = -3;
    pub(super) const EARLIEST_LOCAL: i64 = -4;
    pub(super) const LATEST_TIERED: i64 = -5;
}

pub(crate) async fn list_offsets(
    gateway: &Gateway,
    mut request: Request,
) -> Result<Response, RequestError> {
    let message: ListOffsetsRequest = request.decode()?;
    let named = message.topics.iter().map(|topic| RequestedTopic::Name(&topic.name));
    ensure_known(gateway, named).await;
    let version = request.head.version;
    let committed_only = message.isolation_level == READ_COMMITTED;
    let mut topics = Vec::with_capacity(message.topics.len());
    let mut pace = YieldBudget::new(gateway.broker.turns(), PARTITIONS_AT_ONCE as u32);
    for topic in message.topics {
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for wanted in topic.partitions.chunks(PARTITIONS_AT_ONCE) {
            pace.step(wanted.len() as u32).await;
            let sought = SoughtOffsets { version, committed_only, wanted };
            let listed = list(gateway, &request.caller, &topic.name, sought).await;
            partitions.extend(wanted.iter().zip(listed).map(|(wanted, listed)| {
                let response = ListOffsetsPartitionResponse::default()
                    .with_partition_index(wanted.partition_index)
                    .with_error_code(code_of(&listed));
                match listed {
                    Ok(Some(listed)) => response
                        .with_offset(listed.offset as i64)
                        .with_timestamp(listed.timestamp)
                        .with_leader_epoch(if version >= 4 { listed.leader_epoch } else { -1 }),
                    // No such record: -1 everywhere, and no error.
                    _ => response.with_offset(-1).with_timestamp(-1).with_leader_epoch(-1),
                }
            }));
        }
        topics.push(
            ListOffsetsTopicResponse::default().with_name(topic.name).with_partitions(partitions),
        );
    }
    Response::encode(&request.head, &ListOffsetsResponse::default().with_topics(topics))
}

/// Requested positions in some partitions of a topic.
#[derive(Clone, Copy)]
struct SoughtOffsets<'a> {
    version: i16,
    /// Only offsets below the stable end are found, which is the end.
    committed_only: bool,
    wanted: &'a [ListOffsetsPartition],
}

struct ListedOffset {
    offset: Offset,
    timestamp: i64,
    leader_epoch: i32,
}

/// The requested position in a partition.
#[derive(Clone, Copy, Debug)]
enum RequestedPosition {
    Start,
    End,
    MaxTimestamp,
    Time(i64),
    /// Always without a result: there is no tiered storage.
    Tiered,
}

/// Value of a request's isolation level for committed records.
const READ_COMMITTED: i8 = 1;

impl RequestedPosition {
    fn of(timestamp: i64, version: i16) -> Result<Self, Fault> {
        let (sought, since) = match timestamp {
            timestamps::LATEST => (Self::End, 1),
            timestamps::EARLIEST => (Self::Start, 1),
            timestamps::MAX => (Self::MaxTimestamp, 7),
            timestamps::EARLIEST_LOCAL => (Self::Start, 8),
            timestamps::LATEST_TIERED => (Self::Tiered, 9),
            ..timestamps::LATEST_TIERED => (Self::Tiered, i16::MAX),
            time => (Self::Time(time), 1),
        };
        match version < since {
            true => Err(Fault::plain(ResponseError::UnsupportedVersion)),
            false => Ok(sought),
        }
    }

    async fn find(
        self,
        gateway: &Gateway,
        id: PartitionId,
        bounds: Bounds,
        committed_only: bool,
    ) -> Result<Option<TimedOffset>, Fault> {
        let end = if committed_only { bounds.stable } else { bounds.end };
        // The bounds of a partition have no timestamp.
        let at_bound = |offset| Some(TimedOffset { offset, timestamp: -1 });
        let found = match self {
            Self::Start => return Ok(at_bound(bounds.log_start)),
            Self::End => return Ok(at_bound(end)),
            Self::MaxTimestamp => gateway.broker.known_offset_of_max_timestamp(id).await?,
            Self::Time(time) => gateway.broker.known_offset_at_time(id, time).await?,
            Self::Tiered => None,
        };
        Ok(found.filter(|at| !committed_only || at.offset < end))
    }
}

/// Lists the offsets of some partitions of a topic, one result each.
async fn list(
    gateway: &Gateway,
    caller: &Caller,
    topic: &str,
    SoughtOffsets { version, committed_only, wanted }: SoughtOffsets<'_>,
) -> Vec<Result<Option<ListedOffset>, Fault>> {
    let indexes = wanted.iter().map(|it| it.partition_index);
    // The client may not know yet that another node leads.
    let found = find_current_partitions(gateway, caller, topic, indexes).await;
    let sought = found.into_iter().zip(wanted).map(|(found, wanted)| {
        let id = found?;
        check_leader_epoch(gateway, id, wanted.current_leader_epoch)?;
        Ok((id, RequestedPosition::of(wanted.timestamp, version)?))
    });
    let sought: Vec<Result<(PartitionId, RequestedPosition), Fault>> = sought.collect();
    let ids: Vec<PartitionId> = sought.iter().flatten().map(|(id, _)| *id).collect();
    let shards = gateway.broker.shards().known();
    let bounds = shards.bounds(&ids).await;
    let mut places = Vec::with_capacity(wanted.len());
    for sought in with_answers(sought, bounds) {
        places.push(find(gateway, sought, committed_only).await);
    }
    let known: Vec<(PartitionId, Offset)> =
        places.iter().flatten().flatten().map(|(id, at)| (*id, at.offset)).collect();
    let mut epochs = match shards.epochs_at(&known).await {
        Ok(epochs) => epochs.into_iter(),
        Err(unavailable) => {
            let fault = Fault::from(unavailable);
            return places.into_iter().map(|place| place.and(Err(fault.clone()))).collect();
        }
    };
    let listed = places.into_iter().map(|place| {
        let Some((_, TimedOffset { offset, timestamp })) = place? else { return Ok(None) };
        let leader_epoch = epochs.next().flatten().ok_or_else(Fault::unknown_partition)?;
        Ok(Some(ListedOffset { offset, timestamp, leader_epoch }))
    });
    listed.collect()
}

type TimedPosition = (PartitionId, TimedOffset);

async fn find(
    gateway: &Gateway,
    sought: Result<((PartitionId, RequestedPosition), Option<Bounds>), Fault>,
    committed_only: bool,
) -> Result<Option<TimedPosition>, Fault> {
    let ((id, sought), bounds) = sought?;
    let bounds = bounds.ok_or_else(Fault::unknown_partition)?;
    Ok(sought.find(gateway, id, bounds, committed_only).await?.map(|at| (id, at)))
}

pub(crate) async fn offset_for_leader_epoch(
    gateway: &Gateway,
    mut request: Request,
) -> Result<Response, RequestError> {
    let message: OffsetForLeaderEpochRequest = request.decode()?;
    let named = message.topics.iter().map(|topic| RequestedTopic::Name(&topic.topic));
    ensure_known(gateway, named).await;
    let mut topics = Vec::with_capacity(message.topics.len());
    let mut pace = YieldBudget::new(gateway.broker.turns(), PARTITIONS_AT_ONCE as u32);
    for topic in message.topics {
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for wanted in topic.partitions.chunks(PARTITIONS_AT_ONCE) {
            pace.step(wanted.len() as u32).await;
            partitions.extend(epoch_ends(gateway, &request.caller, &topic.topic, wanted).await);
        }
        topics.push(
            OffsetForLeaderTopicResult::default()
                .with_topic(topic.topic)
                .with_partitions(partitions),
        );
    }
    Response::encode(&request.head, &OffsetForLeaderEpochResponse::default().with_topics(topics))
}

async fn epoch_ends(
    gateway: &Gateway,
    caller: &Caller,
    topic: &str,
    wanted: &[OffsetForLeaderPartition],
) -> Vec<EpochEndOffset> {
    let found = find_led_partitions(gateway, caller, topic, wanted.iter().map(|it| it.partition));
    let asked = found.into_iter().zip(wanted).map(|(found, wanted)| {
        let id = found?;
        check_leader_epoch(gateway, id, wanted.current_leader_epoch)?;
        Ok((id, wanted.leader_epoch))
    });
    let asked: Vec<Result<(PartitionId, i32), Fault>> = asked.collect();
    let epochs: Vec<(PartitionId, i32)> = asked.iter().flatten().copied().collect();
    let ends = gateway.broker.shards().epoch_ends(&epochs).await;
    let partitions = wanted.iter().zip(with_answers(asked, ends)).map(|(wanted, end)| {
        let end = end.and_then(|(_, end)| end.ok_or_else(Fault::unknown_partition));
        // An unknown epoch has no end.
        let (epoch, offset) = match &end {
            Ok(Some(EpochEnd { epoch, end })) => (*epoch, *end as i64),
            _ => (-1, -1),
        };
        EpochEndOffset::default()
            .with_partition(wanted.partition)
            .with_error_code(code_of(&end))
            .with_leader_epoch(epoch)
            .with_end_offset(offset)
    });
    partitions.collect()
}

/// Offset of a DeleteRecords request that stands for the high watermark.
const HIGH_WATERMARK: i64 = -1;

pub(crate) async fn delete_records(
    gateway: &Gateway,
    mut request: Request,
) -> Result<Response, RequestError> {
    let message: DeleteRecordsRequest = request.decode()?;
    let mut starts: Vec<Result<(PartitionId, Offset), Fault>> = Vec::new();
    let mut pace = YieldBudget::new(gateway.broker.turns(), PARTITIONS_AT_ONCE as u32);
    for topic in &message.topics {
        for wanted in topic.partitions.chunks(PARTITIONS_AT_ONCE) {
            pace.step(wanted.len() as u32).await;
            starts.extend(new_starts(gateway, &request.caller, &topic.name, wanted).await);
        }
    }
    let moved = advance(gateway, starts.iter().flatten().copied().collect()).await;
    let mut moved = with_answers(starts, moved);
    let topics = message.topics.into_iter().map(|topic| {
        let partitions = topic.partitions.iter().zip(moved.by_ref()).map(|(wanted, moved)| {
            let moved = moved.and_then(|(_, start)| start.map_err(Fault::from));
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

/// The new log start offsets of a topic's partitions.
async fn new_starts(
    gateway: &Gateway,
    caller: &Caller,
    topic: &str,
    wanted: &[DeleteRecordsPartition],
) -> Vec<Result<(PartitionId, Offset), Fault>> {
    let mut found = deletable(gateway, caller, topic, wanted);
    refuse_led_elsewhere(gateway, &mut found, |(id, _)| *id);
    let ids: Vec<PartitionId> = found.iter().flatten().map(|(id, _)| *id).collect();
    let bounds = gateway.broker.shards().bounds(&ids).await;
    let starts = with_answers(found, bounds).map(|found| {
        let ((id, offset), bounds) = found?;
        let end = bounds.ok_or_else(Fault::unknown_partition)?.end;
        Ok((id, new_start(offset, end)?))
    });
    starts.collect()
}

/// The partitions whose records may be deleted, each with the requested offset.
fn deletable(
    gateway: &Gateway,
    caller: &Caller,
    topic: &str,
    wanted: &[DeleteRecordsPartition],
) -> Vec<Result<(PartitionId, i64), Fault>> {
    let refused = caller.topic(topic).err();
    let catalog = gateway.broker.catalog();
    let topic = catalog.topic_named(topic);
    let check = |wanted: &DeleteRecordsPartition| {
        if let Some(fault) = &refused {
            return Err(fault.clone());
        }
        let found = topic.and_then(|topic| Some((topic, topic.partition(wanted.partition_index)?)));
        let (topic, id) = found.ok_or_else(|| caller.missing(Fault::unknown_partition()))?;
        if !topic.config().cleanup_policy.delete {
            // A compacted topic keeps the last value of each key.
            return Err(Fault::plain(ResponseError::PolicyViolation));
        }
        Ok((id, wanted.offset))
    };
    wanted.iter().map(check).collect()
}

fn new_start(wanted: i64, end: Offset) -> Result<Offset, Fault> {
    match wanted {
        HIGH_WATERMARK => Ok(end),
        offset => match u64::try_from(offset) {
            Ok(offset) if offset <= end => Ok(offset),
            _ => Err(Fault::plain(ResponseError::OffsetOutOfRange)),
        },
    }
}

async fn advance(
    gateway: &Gateway,
    starts: Vec<(PartitionId, Offset)>,
) -> Result<Vec<Result<Offset, Refusal>>, Fault> {
    if starts.is_empty() {
        return Ok(Vec::new());
    }
    let moved = gateway.broker.shards().advance_starts(starts).await;
    moved.map_err(|error| match error {
        // Another node leads one of them by now: clients refresh the leader.
        ExecuteError::Unavailable(unavailable) => unavailable.into(),
        error @ ExecuteError::Refused(_) => error.into(),
    })
}
