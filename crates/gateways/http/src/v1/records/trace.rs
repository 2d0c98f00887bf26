//! Search of records by key, id, trace or header, with the history of each.

use access_rules::quota::Quota;
use axum::extract::State;
use axum::http::Uri;
use axum::{Extension, Json};
use operations::document::{Operation, RecordPosition};
use operations::history::{FoundRecords, RecordHistory, SearchKey, SearchPosition};
use operations::payload::Payload;
use operations::position::Position;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::front::FrontEnd;
use crate::limits::HTTP_TRACED_MAX;
use crate::login::RequestClient;
use crate::problem::{Kind, Problem};
use crate::quotas::RequestCharges;
use crate::request_input;
use crate::v1::operate::ask_for;
use crate::v1::pages::not_of_this_list;
use crate::v1::records::read::position;

const TRACED_DEFAULT: usize = 10;

/// One of `key`, `id`, `message_id`, `trace_id` and `header` says what is looked for.
#[derive(Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::v1) struct TraceQuery {
    /// Only in this topic; else in all that may be read.
    topic: Option<String>,
    key: Option<String>,
    /// The value of `postroad.id`.
    id: Option<String>,
    /// AMQP's property.
    message_id: Option<String>,
    /// Trace id of `traceparent`: 32 hexadecimal digits, or the whole header.
    trace_id: Option<String>,
    /// The name of a header, whose value is in `value`.
    header: Option<String>,
    value: Option<String>,
    /// Only records from this time on: `earliest`, `15m ago`, a time.
    from: String,
    /// At most so many records, up to 50.
    limit: usize,
    /// As the answer before said.
    cursor: Option<String>,
}

impl Default for TraceQuery {
    fn default() -> Self {
        Self {
            topic: None,
            key: None,
            id: None,
            message_id: None,
            trace_id: None,
            header: None,
            value: None,
            from: "earliest".to_owned(),
            limit: TRACED_DEFAULT,
            cursor: None,
        }
    }
}

#[derive(Serialize, ToSchema)]
pub(in crate::v1) struct Trace {
    /// Each as `history` says it.
    #[schema(value_type = Vec<Object>)]
    records: Vec<RecordHistory>,
    /// How many records this request has compared, and how many bytes it has read for that.
    looked_at: u64,
    looked_at_bytes: u64,
    /// For the next request; null: that was all.
    next: Option<String>,
}

/// Look for records by key, id, trace or header, and say what became of each.
#[utoipa::path(
    get,
    path = "/v1/trace",
    tag = "records",
    params(TraceQuery),
    responses((status = 200, body = Trace))
)]
pub(in crate::v1) async fn trace(
    State(front): State<FrontEnd>,
    Extension(caller): Extension<RequestClient>,
    uri: Uri,
) -> Result<Json<Trace>, Problem> {
    let traced: TraceQuery = request_input::query(&uri)?;
    let by = traced.by()?;
    let TraceQuery { topic, from, limit, cursor, .. } = traced;
    if !(1..=HTTP_TRACED_MAX).contains(&limit) {
        let detail = format!("limit: 1 to {HTTP_TRACED_MAX}, not {limit}");
        return Err(Problem::new(Kind::BadRequest, detail));
    }
    let node = front.opened()?;
    let from_ms = match position(&from, &node.broker)? {
        Position::Earliest => None,
        Position::Time(ms) => Some(ms),
        _ => {
            let detail = "from: a time or earliest, since topics begin at other offsets";
            return Err(Problem::new(Kind::BadRequest, detail));
        }
    };
    let after = cursor.as_deref().map(read_cursor).transpose()?;
    let spending = RequestCharges::begin(node, &caller, Quota::ConsumerByteRate)?;
    let records_max = limit as u32;
    let operation = Operation::FindRecords { topic, by, from_ms, after, records_max };
    let found: FoundRecords = ask_for(&front, &caller, operation, Kind::NoSuchTopic).await?;
    let FoundRecords { records: places, looked_at, looked_at_bytes, next } = found;
    spending.charge(looked_at_bytes);
    let mut records = Vec::with_capacity(places.len());
    for found in places {
        let place =
            RecordPosition { partition: found.record.partition, offset: found.record.offset };
        let operation = Operation::DescribeRecord { topic: found.topic, place };
        records.push(ask_for(&front, &caller, operation, Kind::NoSuchTopic).await?);
    }
    Ok(Json(Trace { records, looked_at, looked_at_bytes, next: next.map(cursor_of) }))
}

impl TraceQuery {
    fn by(&self) -> Result<SearchKey, Problem> {
        let wrong = |detail: &str| Err(Problem::new(Kind::BadRequest, detail));
        let bytes = |text: &String| Payload::copied(text.as_bytes());
        let header = match (&self.header, &self.value) {
            (Some(name), Some(value)) => {
                Some(SearchKey::Header { name: name.clone(), value: bytes(value) })
            }
            (None, None) => None,
            _ => return wrong("header and value go together: a name, and what it is to be"),
        };
        let all = [
            self.key.as_ref().map(|key| SearchKey::Key(bytes(key))),
            self.id.clone().map(SearchKey::Id),
            self.message_id.clone().map(SearchKey::MessageId),
            self.trace_id.clone().map(SearchKey::TraceId),
            header,
        ];
        let mut said = all.into_iter().flatten();
        match (said.next(), said.next()) {
            (Some(by), None) => Ok(by),
            _ => wrong("one of key, id, message_id, trace_id and header says what is looked for"),
        }
    }
}

/// Names of topics never contain a slash.
fn cursor_of(SearchPosition { topic, partition, offset }: SearchPosition) -> String {
    format!("{topic}/{partition}.{offset}")
}

fn read_cursor(text: &str) -> Result<SearchPosition, Problem> {
    let read = || {
        let (topic, place) = text.rsplit_once('/')?;
        let (partition, offset) = place.split_once('.')?;
        let (partition, offset) = (partition.parse().ok()?, offset.parse().ok()?);
        Some(SearchPosition { topic: topic.to_owned(), partition, offset })
    };
    read().ok_or_else(not_of_this_list)
}
