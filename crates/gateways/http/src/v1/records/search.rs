//! Record search, in bounded steps: each response reports its progress and a cursor, so that the client can show it,
//! stop, or continue. The node keeps no state between requests.

use access::Operation;
use access_rules::quota::Quota;
use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::Response;
use base::PartitionId;
use base::limits::LEASE_READ_BYTES;
use broker::{Broker, FetchError};
use bytes::Bytes;
use operations::document::RecordPosition;
use operations::position::Position;
use record::SharedBatch;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use utoipa::ToSchema;

use crate::front::FrontEnd;
use crate::limits::{
    HTTP_READ_BYTES_MAX, HTTP_SEARCH_BYTES_DEFAULT, HTTP_SEARCH_BYTES_MAX, HTTP_SEARCH_MATCHES_MAX,
    HTTP_SEARCH_WITHIN,
};
use crate::login::RequestClient;
use crate::problem::{Kind, Problem};
use crate::quotas::RequestCharges;
use crate::request_input;
use crate::v1::held;
use crate::v1::operate::{cursor, place};
use crate::v1::query::within;
use crate::v1::records::document::Record;
use crate::v1::records::filter::Filter;
use crate::v1::records::read::{bounds, current, damaged, failed, locate, position, weight};
use crate::v1::topics::find;

const MATCHES_DEFAULT: usize = 50;

#[derive(Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::v1) struct Search {
    filter: Filter,
    /// Only in this one.
    partition: Option<u32>,
    /// Where each partition is begun: `earliest`, `-1000`, a time; in a single partition an offset as well.
    from: String,
    /// As the answer before said, in place of `from`.
    cursor: Option<String>,
    /// At most so many matches, up to 1,000.
    max_matches: usize,
    /// About so many bytes are read at most, up to 64 MiB.
    max_bytes: usize,
}

impl Default for Search {
    fn default() -> Self {
        Self {
            filter: Filter::default(),
            partition: None,
            from: "earliest".into(),
            cursor: None,
            max_matches: MATCHES_DEFAULT,
            max_bytes: HTTP_SEARCH_BYTES_DEFAULT,
        }
    }
}

#[derive(Serialize, ToSchema)]
pub(in crate::v1) struct Searched {
    records: Vec<Record>,
    /// How many records this request has compared, and how many bytes it has read for that.
    looked_at: u64,
    looked_at_bytes: u64,
    /// Records that are left to be compared, at most: some offsets may have none.
    left: u64,
    /// For the next request; null: that was all.
    next: Option<String>,
}

/// Remaining limits of a request.
struct Budget {
    matches: usize,
    bytes: usize,
    matched_bytes: usize,
    until: Instant,
}

#[derive(Default)]
struct SearchResult {
    records: Vec<Record>,
    looked_at: u64,
    looked_at_bytes: u64,
}

/// Look for records by key, header, value or time, partition by partition.
#[utoipa::path(
    post,
    path = "/v1/topics/{topic}/search",
    tag = "records",
    params(("topic" = String, Path)),
    request_body = Search,
    responses((status = 200, body = Searched))
)]
pub(in crate::v1) async fn search(
    State(front): State<FrontEnd>,
    Extension(caller): Extension<RequestClient>,
    Path(topic): Path<String>,
    body: Body,
) -> Result<Response, Problem> {
    let Search { filter, partition, from, cursor: after, max_matches, max_bytes } =
        request_input::document(&front, body).await?;
    within("max_matches", max_matches, HTTP_SEARCH_MATCHES_MAX)?;
    within("max_bytes", max_bytes, HTTP_SEARCH_BYTES_MAX)?;
    filter.check()?;
    let node = front.opened()?;
    let broker = &node.broker;
    let topic = find(broker, &caller, Operation::Browse, &topic)?;
    let spending = RequestCharges::begin(node, &caller, Quota::ConsumerByteRate)?;
    let partitions = match partition {
        Some(index) => vec![topic.partition(index)?],
        None => topic.all(),
    };
    current(broker, &partitions).await?;
    let begin = position(&from, broker)?;
    if partition.is_none() && matches!(begin, Position::Offset(_)) {
        let detail =
            "from: an offset is of one partition; say which, or use a time, -N or earliest";
        return Err(Problem::new(Kind::BadRequest, detail));
    }
    let resume = place(after.as_deref())?;
    // The response budget also bounds concurrent searches.
    let room = front.answer_room(HTTP_READ_BYTES_MAX).await;
    let mut budget = Budget {
        matches: max_matches,
        bytes: max_bytes,
        matched_bytes: HTTP_READ_BYTES_MAX,
        until: Instant::now() + HTTP_SEARCH_WITHIN,
    };
    let (mut found, mut next, mut left) = (SearchResult::default(), None, 0);
    for id in partitions {
        let from = match resume {
            Some(place) if id.index < place.partition => continue,
            Some(place) if id.index == place.partition => place.offset,
            _ => locate(broker, id, begin).await?,
        };
        let at = match next {
            None => look_through(broker, id, from, &filter, &mut budget, &mut found).await?,
            Some(_) => Some(from),
        };
        if let Some(at) = at {
            left += bounds(broker, id).await?.stable.saturating_sub(at);
            next = next.or(Some(RecordPosition { partition: id.index, offset: at }));
        }
    }
    let SearchResult { records, looked_at, looked_at_bytes } = found;
    spending.charge(records.iter().map(weight).sum());
    let next = next.map(cursor);
    held::document(&Searched { records, looked_at, looked_at_bytes, left, next }, room)
}

/// Searches a partition. Returns where to continue; `None`: the partition is done.
async fn look_through(
    broker: &Broker,
    id: PartitionId,
    from: u64,
    filter: &Filter,
    budget: &mut Budget,
    found: &mut SearchResult,
) -> Result<Option<u64>, Problem> {
    let mut next = from;
    loop {
        let bounds = bounds(broker, id).await?;
        next = next.max(bounds.log_start);
        if next >= bounds.stable {
            return Ok(None);
        }
        if budget.bytes == 0 || Instant::now() >= budget.until {
            return Ok(Some(next));
        }
        let batches = match broker.read_known_batches(id, next, LEASE_READ_BYTES).await {
            // Retention has just removed it.
            Err(FetchError::OffsetOutOfRange { .. }) => continue,
            read => read.map_err(|error| failed(&error))?,
        };
        for batch in batches.iter() {
            let (header, encoded) = batch.map_err(|error| damaged(&error))?;
            let bytes = encoded.len();
            budget.bytes = budget.bytes.saturating_sub(bytes);
            found.looked_at_bytes += bytes as u64;
            let at = Some(header.base_offset);
            let decode = move |bytes: &Bytes| SharedBatch::decode_at(bytes, at);
            let batch = broker.cpu().read_batch(encoded, decode).await;
            let batch = batch.map_err(|error| damaged(&error))?;
            for record in batch.records() {
                let view = record.map_err(|error| damaged(&error))?;
                if view.offset < next {
                    continue;
                }
                found.looked_at += 1;
                if filter.fits(&view) {
                    let length = view.encoded_len();
                    if budget.matches == 0
                        || !found.records.is_empty() && length > budget.matched_bytes
                    {
                        found.looked_at -= 1;
                        return Ok(Some(view.offset));
                    }
                    budget.matches -= 1;
                    budget.matched_bytes = budget.matched_bytes.saturating_sub(length);
                    found.records.push(Record::of(id.index, view.offset, &view));
                }
                next = view.offset + 1;
            }
            next = next.max(header.next_offset());
        }
        // Past holes, markers and aborted batches.
        next = next.max(batches.next_offset());
    }
}
