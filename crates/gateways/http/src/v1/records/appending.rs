//! Batches of the new records of a topic, and the outcome of each record.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

use base::PartitionId;
use base::limits::BATCH_BYTES_DEFAULT;
use broker::config::TimestampType;
use broker::delivery::{Settle, TransferError};
use broker::{
    AppendBatch, AppendError, AppendedBatch, Broker, LeaseSession, RecordIds, Unavailable,
    batch_options, refuses_when_full,
};
use bytes::Bytes;
use record::{BatchBuilder, EncodedHeaders};
use serde::Serialize;
use tokio::time::timeout;
use utoipa::ToSchema;

use crate::connection::Peer;
use crate::limits::HTTP_APPENDED_WITHIN;
use crate::problem::{Kind, Problem, unanswered, unavailable};
use crate::v1::records::document::NewRecord;
use crate::v1::topics::TopicInfo;

/// Where a record is.
#[derive(Clone, Copy, Serialize, ToSchema)]
pub(in crate::v1) struct Placed {
    partition: u32,
    /// Null: it is not known any more, after a change of leaders. Only in transactions, for a topic in another shard.
    offset: Option<u64>,
    /// It was there before: this is where.
    duplicate: bool,
}

/// A batch that is being built, and the indexes of its records in the request.
struct PartitionBatch {
    partition: u32,
    builder: BatchBuilder,
    places: Vec<usize>,
}

const NOT_YET_SERVED: &str = "the topic was just created; its shard does not serve it yet";

/// Round-robin counter for records without a key.
static TURN: AtomicU32 = AtomicU32::new(0);

pub(super) type Outcomes = Vec<Result<Placed, Problem>>;

/// Appends each batch on its own.
pub(super) async fn append(
    broker: &Broker,
    peer: &Peer,
    topic: &str,
    built: Built,
) -> Result<Outcomes, Problem> {
    let Built { batches, places, mut outcomes } = built;
    let (count, bytes) = AppendBatch::amount(&batches);
    peer.connection.traffic().received(count, bytes);
    let appending = broker.append_at_leaders(batches);
    let appended = timeout(HTTP_APPENDED_WITHIN, appending).await.map_err(|_| unanswered())?;
    let unknown = |answer: &_| matches!(answer, Err(AppendError::UnknownPartition(_)));
    let is_there = appended.iter().any(unknown) && may_be_there(broker, topic).await;
    for ((partition, places), appended) in places.into_iter().zip(appended) {
        for (at, place) in places.into_iter().enumerate() {
            outcomes[place] = Some(outcome(partition, at as u64, &appended, is_there));
        }
    }
    let unanswered = || Err(Problem::new(Kind::Failed, "the record was not answered"));
    Ok(outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(unanswered)).collect())
}

/// Whether a topic that is unknown to its shard may exist all the same: under another id, or too new for the shard.
async fn may_be_there(broker: &Broker, name: &str) -> bool {
    broker.catalog_is_current().await.is_err() || broker.catalog().topic_named(name).is_some()
}

fn outcome(
    partition: u32,
    at: u64,
    appended: &Result<AppendedBatch, AppendError>,
    is_there: bool,
) -> Result<Placed, Problem> {
    match appended {
        Err(AppendError::UnknownPartition(_)) if is_there => Err(Problem::busy(NOT_YET_SERVED)),
        Ok(AppendedBatch { base_offset, duplicate, .. }) => {
            let offset = Some(base_offset + at);
            Ok(Placed { partition, offset, duplicate: *duplicate })
        }
        Err(error) => Err(refused(error)),
    }
}

/// Batches to append.
pub(in crate::v1) struct Built {
    batches: Vec<AppendBatch>,
    /// The partition of each batch, and the indexes of its records in the request.
    places: Vec<(u32, Vec<usize>)>,
    /// Outcomes of records that are in no batch.
    outcomes: Vec<Option<Result<Placed, Problem>>>,
}

impl Built {
    /// The first record that is in no batch, and the reason.
    fn refused(&mut self) -> Option<(usize, Problem)> {
        let mut outcomes = self.outcomes.drain(..).enumerate();
        outcomes.find_map(|(place, outcome)| Some((place, outcome?.err()?)))
    }

    /// Sets the offset that the first record must get; with any other offset nothing is appended.
    fn expect(&mut self, offset: u64) -> Result<(), Problem> {
        let mut partitions = self.places.iter().map(|(partition, _)| *partition);
        let first = partitions.next();
        if partitions.any(|other| Some(other) != first) {
            return Err(Problem::new(
                Kind::BadRequest,
                "expect_offset is of one partition: give all records the same `partition` or key",
            ));
        }
        if let Some(batch) = self.batches.first_mut() {
            batch.expect = Some(offset);
        }
        Ok(())
    }

    /// Where its records are, by the results of its batches.
    fn placed(&self, rows: &[Option<AppendedBatch>]) -> Vec<Placed> {
        let mut placed: BTreeMap<usize, Placed> = BTreeMap::new();
        let rows = rows.iter().chain(std::iter::repeat(&None));
        for ((partition, places), row) in self.places.iter().zip(rows) {
            for (at, place) in (0..).zip(places) {
                let offset = row.map(|row| row.base_offset + at);
                let record = Placed { partition: *partition, offset, duplicate: false };
                placed.insert(*place, record);
            }
        }
        placed.into_values().collect()
    }
}

/// Appends all batches and settles all leases, or does nothing. Returns where the records of each topic are.
pub(in crate::v1) async fn append_together(
    peer: &Peer,
    session: &LeaseSession,
    settles: Vec<Settle>,
    mut topics: Vec<Built>,
) -> Result<Vec<Vec<Placed>>, TransferError> {
    let batches = topics.iter_mut().map(|built| std::mem::take(&mut built.batches));
    let batches: Vec<AppendBatch> = batches.flatten().collect();
    let (count, bytes) = AppendBatch::amount(&batches);
    peer.connection.traffic().received(count, bytes);
    let moved = timeout(HTTP_APPENDED_WITHIN, session.transfer(settles, batches)).await;
    let rows = moved.unwrap_or(Err(Unavailable::Unanswered.into()))?;
    let mut rest = &rows[..];
    let placed = topics.iter().map(|built| {
        let (own, others) = rest.split_at(built.places.len().min(rest.len()));
        rest = others;
        built.placed(own)
    });
    Ok(placed.collect())
}

/// Problem of an error of [`append_together`], except for a refused settle.
pub(in crate::v1) async fn not_appended(broker: &Broker, error: &TransferError) -> Problem {
    match error {
        TransferError::Append { source: AppendError::UnknownPartition(partition), .. }
            if broker.catalog_is_current().await.is_err()
                || broker.catalog().topic(partition.topic).is_some() =>
        {
            Problem::busy(NOT_YET_SERVED)
        }
        TransferError::Append { source: AppendError::UnitRefused, .. } => {
            Problem::busy("another change came in between: nothing was done, try again")
        }
        TransferError::Append { source, .. } => refused(source),
        TransferError::Unavailable(Unavailable::Unanswered) => Problem::new(
            Kind::Unanswered,
            "no node answered whether it was done: if it was, the same request is refused, by its leases or its \
             expect_offset",
        ),
        TransferError::Unavailable(why) => unavailable(why),
        TransferError::Settle { .. } | TransferError::Partly(_) => {
            Problem::new(Kind::Failed, error.to_string())
        }
    }
}

pub(in crate::v1) fn build(
    broker: &Broker,
    topic: &TopicInfo,
    records: &[NewRecord],
) -> Result<Built, Problem> {
    let now_ms = broker.clock().now_ms();
    let config = &*topic.config;
    // In separate batches, each record has its own outcome.
    let alone = refuses_when_full(config) || config.dedup_window_ms > 0;
    let batch_bytes_max = config.max_message_bytes.min(BATCH_BYTES_DEFAULT) as usize;
    let mut batches: Vec<PartitionBatch> = Vec::new();
    let mut open: BTreeMap<u32, usize> = BTreeMap::new();
    let mut outcomes: Vec<Option<Result<Placed, Problem>>> = Vec::new();
    outcomes.resize_with(records.len(), || None);
    let mut headers = EncodedHeaders::new();
    for (place, record) in records.iter().enumerate() {
        let value = record.value()?;
        record.write_headers(&mut headers)?;
        let (partition, timestamp) = match admitted(topic, record, now_ms) {
            Ok(admitted) => admitted,
            Err(problem) => {
                outcomes[place] = Some(Err(problem));
                continue;
            }
        };
        let key = record.key.as_ref().map(|key| &key.0[..]);
        let length = value.as_ref().map_or(0, Bytes::len);
        let fits = |building: &PartitionBatch| {
            building.builder.len_with_encoded(key, length, &headers) <= batch_bytes_max
        };
        let known = open.get(&partition).copied().filter(|at| !alone && fits(&batches[*at]));
        let at = known.unwrap_or_else(|| {
            let builder = BatchBuilder::new(batch_options(config));
            batches.push(PartitionBatch { partition, builder, places: Vec::new() });
            open.insert(partition, batches.len() - 1);
            batches.len() - 1
        });
        let building = &mut batches[at];
        let bytes = building.builder.len_with_encoded(key, length, &headers);
        if bytes > config.max_message_bytes as usize {
            let limit = u64::from(config.max_message_bytes);
            let detail = format!(
                "the record has {bytes} bytes, and the topic takes {limit} (max.message.bytes)"
            );
            outcomes[place] = Some(Err(Problem::limited(Kind::TooLarge, detail, limit)));
            continue;
        }
        let value = value.as_ref().map(std::slice::from_ref);
        match building.builder.push_encoded(timestamp, key, value, &headers) {
            Ok(()) => building.places.push(place),
            Err(error) => {
                outcomes[place] = Some(Err(Problem::new(Kind::Invalid, error.to_string())));
            }
        }
    }
    batches.retain(|building| !building.places.is_empty());
    let log_append_time = config.timestamp_type == TimestampType::LogAppendTime;
    let mut places_of = Vec::with_capacity(batches.len());
    let finish = |PartitionBatch { partition, builder, places }| {
        places_of.push((partition, places));
        let partition = PartitionId::new(topic.id, partition);
        let mut batch = AppendBatch::made(partition, builder, log_append_time);
        // Done here, off the shard leader's critical path.
        batch.ids = (config.dedup_window_ms > 0).then(|| RecordIds::read(&batch.bytes));
        batch
    };
    let batches = batches.into_iter().map(finish).collect();
    Ok(Built { batches, places: places_of, outcomes })
}

/// Batches that are appended together, or not at all: each record must be valid.
pub(in crate::v1) fn build_together(
    broker: &Broker,
    topic: &TopicInfo,
    records: &[NewRecord],
) -> Result<Built, Problem> {
    if let Some(place) = records.iter().position(|record| record.id.is_some()) {
        return Err(Problem::new(
            Kind::BadRequest,
            format!(
                "record {place} has an id: records that are appended together are not deduplicated"
            ),
        ));
    }
    let mut built = build(broker, topic, records)?;
    match built.refused() {
        Some((place, problem)) => Err(problem.within(&format!("record {place}"))),
        None => Ok(built),
    }
}

/// Batches as of [`build_together`], which are appended only if the first record gets this offset.
pub(in crate::v1) fn build_expecting(
    broker: &Broker,
    topic: &TopicInfo,
    records: &[NewRecord],
    offset: u64,
) -> Result<Built, Problem> {
    let mut built = build_together(broker, topic, records)?;
    built.expect(offset)?;
    Ok(built)
}

/// The partition and timestamp of a record, if the topic accepts it.
fn admitted(topic: &TopicInfo, record: &NewRecord, now_ms: i64) -> Result<(u32, i64), Problem> {
    let (config, invalid) = (&topic.config, |detail| Problem::new(Kind::Invalid, detail));
    if config.cleanup_policy.compact && record.key.is_none() {
        return Err(invalid("the topic is compacted: each record needs a key".to_owned()));
    }
    let partition = partition_of(topic, record)?;
    let said = record.timestamp_ms.filter(|_| config.timestamp_type == TimestampType::CreateTime);
    let Some(timestamp) = said else { return Ok((partition, now_ms)) };
    let earliest = now_ms.saturating_sub(config.timestamp_before_max_ms).max(0);
    let latest = now_ms.saturating_add(config.timestamp_after_max_ms);
    match (earliest..=latest).contains(&timestamp) {
        true => Ok((partition, timestamp)),
        false => Err(invalid(format!(
            "the topic takes records of the times {earliest} to {latest}, not {timestamp}"
        ))),
    }
}

fn partition_of(topic: &TopicInfo, record: &NewRecord) -> Result<u32, Problem> {
    if let Some(partition) = record.partition {
        return match partition < topic.partitions {
            true => Ok(partition),
            false => Err(topic.no_partition(partition)),
        };
    }
    // A retry must reach the partition of the first attempt, which alone knows the record's offset.
    let key = record.key.as_ref().map(|key| &key.0[..]);
    Ok(match key.or(record.id.as_deref().map(str::as_bytes)) {
        Some(key) => record::partition_of_key(key, topic.partitions),
        None => TURN.fetch_add(1, Ordering::Relaxed) % topic.partitions.max(1),
    })
}

fn refused(error: &AppendError) -> Problem {
    let detail = error.to_string();
    match error {
        AppendError::UnknownPartition(_) => {
            Problem::new(Kind::NoSuchTopic, "the topic was deleted")
        }
        AppendError::StorageFull { .. } => Problem::new(Kind::DiskFull, detail),
        AppendError::Full { .. } => Problem::new(Kind::Full, detail),
        AppendError::OutboxFull { .. } | AppendError::Moving(_) | AppendError::RefusedBefore => {
            Problem::busy(detail)
        }
        // Only batches of Kafka's producers belong to such a transaction.
        AppendError::Transaction(_) => Problem::new(Kind::Failed, detail),
        AppendError::Unavailable(why) => unavailable(why),
        AppendError::NotAtExpected { .. } => Problem::new(Kind::NotAtExpected, detail),
        AppendError::ExpectedElsewhere(_) => Problem::new(
            Kind::Invalid,
            "offsets are expected of partitions in several shards: expect those of one partition",
        ),
        AppendError::Sequence(_) | AppendError::TooManyIds { .. } | AppendError::UnitRefused => {
            Problem::new(Kind::Failed, detail)
        }
    }
}
