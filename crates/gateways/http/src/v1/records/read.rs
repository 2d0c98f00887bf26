//! Reading by offset. The node keeps no state of a reader: the response has the next offset.

use std::sync::Arc;

use access::Operation;
use access_rules::quota::Quota;
use axum::Extension;
use axum::extract::{Path, State};
use axum::http::Uri;
use axum::response::Response;
use base::PartitionId;
use base::limits::LEASE_READ_BYTES;
use broker::{Bounds, Broker, FetchError, Permit};
use bytes::Bytes;
use operations::position::Position;
use record::SharedBatch;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout_at};
use utoipa::{IntoParams, ToSchema};

use crate::connection::Peer;
use crate::front::FrontEnd;
use crate::limits::{
    HTTP_READ_BYTES_DEFAULT, HTTP_READ_BYTES_MAX, HTTP_READ_RECORDS_DEFAULT, HTTP_RECORDS_MAX,
};
use crate::login::RequestClient;
use crate::problem::{Kind, Problem, unavailable};
use crate::quotas::RequestCharges;
use crate::request_input;
use crate::v1::held;
use crate::v1::query::{waiting, within};
use crate::v1::records::document::Record;
use crate::v1::topics::find;

#[derive(Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::v1) struct ReadQuery {
    /// An offset, `earliest`, `latest`, `-100` for the last 100, or a time: 2026-03-01T12:00:00Z, 15m ago.
    from: String,
    max_records: usize,
    /// The first record is given whatever its size.
    max_bytes: usize,
    /// How long to wait for a record where there is none, up to 60,000.
    wait_ms: u64,
}

impl Default for ReadQuery {
    fn default() -> Self {
        Self {
            from: "earliest".into(),
            max_records: HTTP_READ_RECORDS_DEFAULT,
            max_bytes: HTTP_READ_BYTES_DEFAULT,
            wait_ms: 0,
        }
    }
}

#[derive(Serialize, ToSchema)]
pub(in crate::v1) struct Read {
    records: Vec<Record>,
    /// Where to go on: `from` of the next request.
    next: u64,
    /// Readable range of the partition.
    start: u64,
    end: u64,
}

/// Read records of a partition, from a place on.
#[utoipa::path(
    get,
    path = "/v1/topics/{topic}/partitions/{partition}/records",
    tag = "records",
    params(("topic" = String, Path), ("partition" = u32, Path), ReadQuery),
    responses((status = 200, body = Read))
)]
pub(in crate::v1) async fn read(
    State(front): State<FrontEnd>,
    Extension(caller): Extension<RequestClient>,
    Extension(peer): Extension<Peer>,
    Path((topic, partition)): Path<(String, String)>,
    uri: Uri,
) -> Result<Response, Problem> {
    let ReadQuery { from, max_records, max_bytes, wait_ms } = request_input::query(&uri)?;
    within("max_records", max_records, HTTP_RECORDS_MAX)?;
    within("max_bytes", max_bytes, HTTP_READ_BYTES_MAX)?;
    let wait = waiting(wait_ms)?;
    let node = front.opened()?;
    let broker = &node.broker;
    let topic = find(broker, &caller, Operation::Browse, &topic)?;
    let spending = RequestCharges::begin(node, &caller, Quota::ConsumerByteRate)?;
    let index = partition.parse().map_err(|_| {
        Problem::new(Kind::BadRequest, format!("{partition:?} is no number of a partition"))
    })?;
    let partition = topic.partition(index)?;
    current(broker, &[partition]).await?;
    let position = position(&from, broker)?;
    let mut next = locate(broker, partition, position).await?;
    let watch = broker.watch();
    watch.add(partition);
    let until = Instant::now() + wait;
    let (mut found, mut held) = (Vec::new(), Permit::default());
    loop {
        // A waiting request holds no memory budget.
        if bounds(broker, partition).await?.stable > next {
            held = front.answer_room(max_bytes).await;
            let room = ReadLimits { records: max_records, bytes: max_bytes };
            next = some(broker, partition, next, room, &mut found).await?;
        }
        if !found.is_empty() || Instant::now() >= until {
            break;
        }
        held = Permit::default();
        tokio::select! {
            biased;
            () = front.draining() => break,
            waited = timeout_at(until, watch.ready()) => if waited.is_err() { break },
        }
        let _ = watch.take_ready();
    }
    let records: Vec<Record> = found.into_iter().map(|(record, _)| record).collect();
    let bytes = records.iter().map(weight).sum();
    peer.connection.traffic().delivered(bytes);
    spending.charge(bytes);
    let Bounds { log_start: start, stable: end, .. } = bounds(broker, partition).await?;
    held::document(&Read { records, next, start, end }, held)
}

/// Approximate size of a record.
pub(super) fn weight(record: &Record) -> u64 {
    let bytes =
        |payload: &Option<operations::payload::Payload>| payload.as_ref().map_or(0, |it| it.len());
    (bytes(&record.key) + bytes(&record.value)) as u64
}

/// Waits until this node has everything that was acknowledged, whichever node leads.
pub(in crate::v1) async fn current(
    broker: &Broker,
    partitions: &[PartitionId],
) -> Result<(), Problem> {
    broker.copies_are_current(partitions).await.map_err(|why| unavailable(&why))
}

pub(in crate::v1) fn position(text: &str, broker: &Broker) -> Result<Position, Problem> {
    Position::parse(text, broker.clock().now_ms())
        .map_err(|error| Problem::new(Kind::BadRequest, format!("from: {error}")))
}

fn gone() -> Problem {
    Problem::new(Kind::NoSuchTopic, "the topic was deleted")
}

pub(in crate::v1) async fn bounds(
    broker: &Broker,
    partition: PartitionId,
) -> Result<Bounds, Problem> {
    let bounds = broker.bounds_of(partition).await.map_err(|why| unavailable(&why))?;
    bounds.ok_or_else(gone)
}

/// Resolves a position to an offset. An offset outside of the partition is rejected: otherwise the client would skip
/// records unnoticed.
pub(in crate::v1) async fn locate(
    broker: &Broker,
    partition: PartitionId,
    position: Position,
) -> Result<u64, Problem> {
    let Bounds { log_start, stable, end } = bounds(broker, partition).await?;
    Ok(match position {
        Position::Earliest => log_start,
        Position::Latest => stable,
        Position::Last(records) => stable.saturating_sub(records).max(log_start),
        Position::Offset(offset) if (log_start..=end).contains(&offset) => offset,
        Position::Offset(offset) => {
            let detail = format!("the partition has offsets {log_start} to {end}, not {offset}");
            return Err(Problem::new(Kind::NotThere, detail));
        }
        Position::Time(ms) => {
            let found = broker.known_offset_at_time(partition, ms).await;
            found.map_err(|error| failed(&error))?.map_or(stable, |at| at.offset)
        }
    })
}

/// Limits of one read.
#[derive(Clone, Copy, Debug)]
pub(in crate::v1) struct ReadLimits {
    pub(in crate::v1) records: usize,
    pub(in crate::v1) bytes: usize,
}

/// Reads records from an offset, as many as fit and at least one; returns the next offset.
pub(in crate::v1) async fn some(
    broker: &Broker,
    partition: PartitionId,
    from: u64,
    room: ReadLimits,
    found: &mut Vec<(Record, usize)>,
) -> Result<u64, Problem> {
    let mut next = from;
    let mut bytes = 0;
    let before = found.len();
    loop {
        let Bounds { log_start, stable, .. } = bounds(broker, partition).await?;
        next = next.max(log_start);
        if next >= stable {
            return Ok(next);
        }
        let batches = match broker.read_known_batches(partition, next, LEASE_READ_BYTES).await {
            // Retention has just removed it.
            Err(FetchError::OffsetOutOfRange { .. }) => continue,
            read => read.map_err(|error| failed(&error))?,
        };
        let begun = next;
        for batch in batches.iter() {
            let (header, encoded) = batch.map_err(|error| damaged(&error))?;
            let at = Some(header.base_offset);
            let decode = move |bytes: &Bytes| SharedBatch::decode_at(bytes, at);
            let batch = broker.cpu().read_batch(encoded, decode).await;
            let batch = Arc::new(batch.map_err(|error| damaged(&error))?);
            for record in batch.records() {
                let view = record.map_err(|error| damaged(&error))?;
                if view.offset < next {
                    continue;
                }
                let (count, length) = (found.len() - before, view.encoded_len());
                if count > 0 && (count >= room.records || bytes + length > room.bytes) {
                    return Ok(next);
                }
                bytes += length;
                found.push((Record::of(partition.index, view.offset, &view), length));
                next = view.offset + 1;
            }
            next = next.max(header.next_offset());
        }
        // Past holes, markers and aborted batches.
        next = next.max(batches.next_offset());
        if found.len() > before || next == begun {
            return Ok(next);
        }
    }
}

pub(in crate::v1) fn damaged(error: &record::BatchError) -> Problem {
    Problem::new(Kind::Failed, format!("a batch cannot be read: {error}"))
}

pub(in crate::v1) fn failed(error: &FetchError) -> Problem {
    match error {
        FetchError::UnknownPartition(_) => gone(),
        FetchError::Unavailable(why) => unavailable(why),
        error => Problem::new(Kind::Failed, error.to_string()),
    }
}
