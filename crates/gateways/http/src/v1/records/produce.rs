//! Appending of records: JSON documents, JSON lines, or a single raw value.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

use access_rules::quota::Quota;
use axum::extract::{Path, Request, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use base::PartitionId;
use base::limits::BATCH_BYTES_DEFAULT;
use broker::config::{TimestampType, TopicConfig};
use broker::{
    AppendBatch, AppendError, AppendedBatch, Broker, RecordIds, batch_options, refuses_when_full,
};
use bytes::Bytes;
use operations::payload::Payload;
use record::{BatchBuilder, EncodedHeaders};
use serde::Serialize;
use tokio::time::timeout;
use utoipa::ToSchema;

use crate::connection::Peer;
use crate::front::FrontEnd;
use crate::limits::{HTTP_APPENDED_WITHIN, HTTP_BODY_BYTES_MAX};
use crate::login::RequestClient;
use crate::problem::{Document, Kind, Problem, unanswered, unavailable};
use crate::quotas::RequestCharges;
use crate::request_input;
use crate::v1::records::document::{NewHeader, NewRecord};
use crate::v1::records::new_records::{NewRecords, records_of};
use crate::v1::topics::{TopicInfo, find};

const IDEMPOTENCY_KEY: &str = "idempotency-key";
const TRACE: &str = "traceparent";
/// Valid only together with `traceparent`.
const TRACE_STATE: &str = "tracestate";

/// Result of each record, in order.
#[derive(Serialize, ToSchema)]
pub(in crate::v1) struct Produced {
    items: Vec<Item>,
}

#[derive(Serialize, ToSchema)]
#[serde(untagged)]
enum Item {
    Placed(Placed),
    /// It is not appended.
    Refused {
        problem: Document,
    },
}

/// Where a record is.
#[derive(Clone, Copy, Serialize, ToSchema)]
struct Placed {
    partition: u32,
    offset: u64,
    /// It was there before: this is where.
    duplicate: bool,
}

/// Append records. Answered once they are as durable as the topic wants them: by default when a majority has synced
/// them. A body of another type than JSON or lines of JSON is the value of one record, whose key and headers are
/// `Postroad-Key` and `Postroad-Header-NAME`. Where there is one record the answer has its status; otherwise each item
/// says what became of its record.
#[utoipa::path(
    post,
    path = "/v1/topics/{topic}/records",
    tag = "records",
    params(
        ("topic" = String, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "the same key again appends nothing again, in a topic with dedup.window.ms"),
    ),
    request_body(
        content = NewRecords,
        description = "or lines of records (application/x-ndjson), or a value of any other type",
    ),
    responses((status = 200, body = Produced))
)]
pub(in crate::v1) async fn produce(
    State(front): State<FrontEnd>,
    Extension(caller): Extension<RequestClient>,
    Extension(peer): Extension<Peer>,
    Path(topic): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let node = front.opened()?;
    let broker = &node.broker;
    let topic = find(broker, &caller, access::Operation::Append, &topic)?;
    let spending = RequestCharges::begin(node, &caller, Quota::ProducerByteRate)?;
    let (head, body) = request.into_parts();
    let body = request_input::whole(&front, body, HTTP_BODY_BYTES_MAX).await?;
    spending.charge(body.len() as u64);
    // Byte budget shared by producers of all protocols, until the records are on disk.
    let _permit = broker.admit(body.len()).await;
    let bytes = body.len();
    let (of_node, headers, name) = (broker.clone(), head.headers, topic.name.clone());
    let prepare = move || -> Result<Built, Problem> {
        let mut records = records_of(&headers, body)?;
        add_ids(&headers, &topic.config, &mut records)?;
        add_trace(&headers, &mut records);
        build(&of_node, &topic, &records)
    };
    let built = front.parse(bytes, prepare).await?;
    let items = append(broker, &peer, &name, built).await?;
    answer(items)
}

fn answer(mut items: Vec<Result<Placed, Problem>>) -> Result<Response, Problem> {
    if items.len() == 1 {
        let placed = items.swap_remove(0)?;
        return Ok(Json(Produced { items: vec![Item::Placed(placed)] }).into_response());
    }
    let items = items.into_iter().map(|item| match item {
        Ok(placed) => Item::Placed(placed),
        Err(problem) => Item::Refused { problem: problem.as_item() },
    });
    Ok(Json(Produced { items: items.collect() }).into_response())
}

/// Derives record ids from the Idempotency-Key, by which retries are detected.
fn add_ids(
    headers: &HeaderMap,
    config: &TopicConfig,
    records: &mut [NewRecord],
) -> Result<(), Problem> {
    let Some(key) = headers.get(IDEMPOTENCY_KEY) else { return Ok(()) };
    let key = key.to_str().ok().filter(|key| !key.is_empty());
    let key =
        key.ok_or_else(|| Problem::new(Kind::BadRequest, "the Idempotency-Key is no text"))?;
    if config.dedup_window_ms <= 0 {
        return Err(Problem::new(
            Kind::NoWindow,
            "the topic keeps no ids of records, by which a second try would be found: set its \
             dedup.window.ms, such as to 600000",
        ));
    }
    if records.iter().any(|record| record.id.is_some()) {
        let detail = "a record has an id of its own, beside the Idempotency-Key of the request";
        return Err(Problem::new(Kind::BadRequest, detail));
    }
    for (place, record) in records.iter_mut().enumerate() {
        record.id = Some(format!("{key}/{place}"));
    }
    Ok(())
}

/// Passes the request's trace context to its records (W3C Trace Context).
fn add_trace(headers: &HeaderMap, records: &mut [NewRecord]) {
    if !headers.contains_key(TRACE) {
        return;
    }
    let names = [TRACE, TRACE_STATE];
    for record in records.iter_mut().filter(|record| !names.iter().any(|it| record.has_header(it)))
    {
        for name in names {
            // The state may be split over several headers, whose order matters.
            let parts: Vec<&[u8]> = headers.get_all(name).iter().map(|it| it.as_bytes()).collect();
            if !parts.is_empty() {
                let value = Some(Payload::copied(&parts.join(&b","[..])));
                record.headers.push(NewHeader { name: name.to_owned(), value });
            }
        }
    }
}

// ----------------------------------------------------------------------------------------- appending

/// A batch that is being built, and the indexes of its records in the request.
struct PartitionBatch {
    partition: u32,
    builder: BatchBuilder,
    places: Vec<usize>,
}

/// Round-robin counter for records without a key.
static TURN: AtomicU32 = AtomicU32::new(0);

type Outcomes = Vec<Result<Placed, Problem>>;

async fn append(
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
        Err(AppendError::UnknownPartition(_)) if is_there => {
            Err(Problem::busy("the topic was just created; its shard does not serve it yet"))
        }
        Ok(AppendedBatch { base_offset, duplicate, .. }) => {
            Ok(Placed { partition, offset: base_offset + at, duplicate: *duplicate })
        }
        Err(error) => Err(refused(error)),
    }
}

/// Batches to append.
struct Built {
    batches: Vec<AppendBatch>,
    /// The partition of each batch, and the indexes of its records in the request.
    places: Vec<(u32, Vec<usize>)>,
    /// Outcomes of records that are in no batch.
    outcomes: Vec<Option<Result<Placed, Problem>>>,
}

fn build(broker: &Broker, topic: &TopicInfo, records: &[NewRecord]) -> Result<Built, Problem> {
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
        AppendError::Unavailable(why) => unavailable(why),
        AppendError::Sequence(_)
        | AppendError::NotAtExpected { .. }
        | AppendError::ExpectedElsewhere(_)
        | AppendError::TooManyIds { .. }
        | AppendError::UnitRefused => Problem::new(Kind::Failed, detail),
    }
}

#[cfg(test)]
mod tests {
    use super::super::new_records::tests::headers;
    use super::*;

    #[test]
    fn idempotency_key_gives_each_record_an_id() {
        let said = headers(&[("idempotency-key", "abc")]);
        let mut records = vec![NewRecord::default(), NewRecord::default()];
        let without = TopicConfig::default();
        assert!(add_ids(&said, &without, &mut records).is_err(), "nobody would look");
        let with = TopicConfig { dedup_window_ms: 1, ..without };
        add_ids(&said, &with, &mut records).expect("ids");
        assert_eq!(records[1].id.as_deref(), Some("abc/1"));
        assert!(add_ids(&said, &with, &mut records).is_err(), "they have ids");
    }
}
