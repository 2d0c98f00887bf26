//! Dead letters: their topics and counts, redrive and deletion.

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::Uri;
use axum::{Extension, Json};
use operations::document::{
    DeadLetterCounts, DeadLetterFilter, DeadLetterPage, DeadLetterTopics, DeadLettersMoved,
    Operation, RecordPosition, Span,
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::front::FrontEnd;
use crate::login::RequestClient;
use crate::problem::{Kind, Problem};
use crate::request_input;
use crate::v1::groups::waiting_records::PlaceOf;
use crate::v1::operate::{ask_for, cursor, look_before, place};
use crate::v1::pages::{Limit, PageOf, Row};
use crate::v1::query::DryRunQuery;

/// List topics that take dead letters, of those that the user may see.
#[utoipa::path(
    get,
    path = "/v1/dead-letters",
    tag = "dead letters",
    responses((status = 200, body = Object))
)]
pub(in crate::v1) async fn topics(
    State(front): State<FrontEnd>,
    Extension(caller): Extension<RequestClient>,
) -> Result<Json<DeadLetterTopics>, Problem> {
    let operation = Operation::ListDeadLetterTopics {};
    ask_for(&front, &caller, operation, Kind::NotFound).await.map(Json)
}

#[derive(Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::v1) struct CountQuery {
    /// As the answer before said.
    cursor: Option<String>,
}

fn letters(
    items: &[impl Serialize],
    next: Option<RecordPosition>,
) -> Result<Json<PageOf<Row>>, Problem> {
    Ok(PageOf::new(Row::all(items)?, next.map(cursor)))
}

/// Count the dead letters of a topic by source, group and reason. An answer counts some of the records; `next` goes on.
#[utoipa::path(
    get,
    path = "/v1/topics/{topic}/dead-letters",
    tag = "dead letters",
    params(("topic" = String, Path), CountQuery),
    responses((status = 200, body = PageOf<Row>))
)]
pub(in crate::v1) async fn count(
    State(front): State<FrontEnd>,
    Extension(caller): Extension<RequestClient>,
    Path(topic): Path<String>,
    uri: Uri,
) -> Result<Json<PageOf<Row>>, Problem> {
    let CountQuery { cursor } = request_input::query(&uri)?;
    let operation = Operation::CountDeadLetters { topic, from: place(cursor.as_deref())? };
    let counts: DeadLetterCounts = ask_for(&front, &caller, operation, Kind::NoSuchTopic).await?;
    letters(&counts.counts, counts.next)
}

#[derive(Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::v1) struct DeadLetterQuery {
    /// At most so many, up to 1,000.
    #[param(value_type = usize)]
    limit: Limit,
    /// As the answer before said.
    cursor: Option<String>,
    /// Only those that came from this topic.
    source: Option<String>,
    /// Only those with this reason.
    reason: Option<String>,
}

/// Look at dead letters.
#[utoipa::path(
    get,
    path = "/v1/topics/{topic}/dead-letters/records",
    tag = "dead letters",
    params(("topic" = String, Path), DeadLetterQuery),
    responses((status = 200, body = PageOf<Row>))
)]
pub(in crate::v1) async fn show(
    State(front): State<FrontEnd>,
    Extension(caller): Extension<RequestClient>,
    Path(topic): Path<String>,
    uri: Uri,
) -> Result<Json<PageOf<Row>>, Problem> {
    let DeadLetterQuery { limit, cursor, source, reason } = request_input::query(&uri)?;
    let limit = limit.checked()?;
    let operation = Operation::ShowDeadLetters {
        topic,
        only: DeadLetterFilter { source, reason, records: None },
        from: place(cursor.as_deref())?,
        records_max: limit as u32,
    };
    let page: DeadLetterPage = ask_for(&front, &caller, operation, Kind::NoSuchTopic).await?;
    letters(&page.records, page.next)
}

/// Which dead letters are meant: those to which everything applies that is said.
#[derive(Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::v1) struct Moving {
    source: Option<String>,
    reason: Option<String>,
    records: Option<Vec<PlaceOf>>,
    /// At most so many are moved by this request; `next` goes on.
    limit: Limit,
    /// As the answer before said, with `until`.
    cursor: Option<String>,
    /// Where the partitions ended when the work began, as the first answer said: what dies meanwhile is left alone.
    until: Option<Vec<u64>>,
}

impl Moving {
    fn read(self) -> Result<(DeadLetterFilter, Span), Problem> {
        let records_max = self.limit.checked()? as u32;
        let records = self
            .records
            .map(|records| crate::v1::groups::waiting_records::places(&records))
            .transpose()?;
        let only = DeadLetterFilter { source: self.source, reason: self.reason, records };
        let from = place(self.cursor.as_deref())?;
        Ok((only, Span { from, until: self.until, records_max }))
    }
}

/// The same, and where they go.
#[derive(Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::v1) struct Redriving {
    source: Option<String>,
    reason: Option<String>,
    records: Option<Vec<PlaceOf>>,
    /// A topic; null: the one that each came from.
    to: Option<String>,
    /// At most so many are moved by this request; `next` goes on.
    limit: Limit,
    cursor: Option<String>,
    until: Option<Vec<u64>>,
}

#[derive(Serialize, ToSchema)]
pub(in crate::v1) struct Moved {
    /// Moved, or deleted; with `dry_run`, that would be.
    records: u64,
    /// Matching records that stay: a consumer has them, or their target is not known.
    left: u64,
    /// For the next request, together with `until`; null: the work is done.
    next: Option<String>,
    until: Vec<u64>,
}

impl Moved {
    fn of(moved: DeadLettersMoved) -> Json<Self> {
        let DeadLettersMoved { records, left, next, until } = moved;
        Json(Self { records, left, next: next.map(cursor), until })
    }
}

/// Counts records that an operation would move or delete. Leased ones, which would stay, are included.
async fn dry_run_count(
    front: &FrontEnd,
    caller: &RequestClient,
    operation: &Operation,
    topic: String,
    only: DeadLetterFilter,
    span: Span,
) -> Result<Json<Moved>, Problem> {
    let Span { from, records_max, until } = span;
    let look = Operation::ShowDeadLetters { topic, only, from, records_max };
    let page: DeadLetterPage =
        look_before(front, caller, operation, look, Kind::NoSuchTopic).await?;
    let (records, until) = (page.records.len() as u64, until.unwrap_or_default());
    Ok(Json(Moved { records, left: 0, next: page.next.map(cursor), until }))
}

/// Send dead letters back to where they came from, or to another topic.
#[utoipa::path(
    post,
    path = "/v1/topics/{topic}/dead-letters/redrive",
    tag = "dead letters",
    params(("topic" = String, Path), DryRunQuery),
    request_body = Redriving,
    responses((status = 200, body = Moved))
)]
pub(in crate::v1) async fn redrive(
    State(front): State<FrontEnd>,
    Extension(caller): Extension<RequestClient>,
    Path(topic): Path<String>,
    uri: Uri,
    body: Body,
) -> Result<Json<Moved>, Problem> {
    let DryRunQuery { dry_run } = request_input::query(&uri)?;
    let Redriving { source, reason, records, to, limit, cursor, until } =
        request_input::document(&front, body).await?;
    let (only, span) = Moving { source, reason, records, limit, cursor, until }.read()?;
    let operation = Operation::RedriveDeadLetters {
        topic: topic.clone(),
        only: only.clone(),
        to,
        span: span.clone(),
    };
    if dry_run {
        return dry_run_count(&front, &caller, &operation, topic, only, span).await;
    }
    ask_for(&front, &caller, operation, Kind::NoSuchTopic).await.map(Moved::of)
}

/// Delete dead letters.
#[utoipa::path(
    post,
    path = "/v1/topics/{topic}/dead-letters/delete",
    tag = "dead letters",
    params(("topic" = String, Path), DryRunQuery),
    request_body = Moving,
    responses((status = 200, body = Moved))
)]
pub(in crate::v1) async fn delete(
    State(front): State<FrontEnd>,
    Extension(caller): Extension<RequestClient>,
    Path(topic): Path<String>,
    uri: Uri,
    body: Body,
) -> Result<Json<Moved>, Problem> {
    let DryRunQuery { dry_run } = request_input::query(&uri)?;
    let (only, span) = request_input::document::<Moving>(&front, body).await?.read()?;
    let operation = Operation::DeleteDeadLetters {
        topic: topic.clone(),
        only: only.clone(),
        span: span.clone(),
    };
    if dry_run {
        return dry_run_count(&front, &caller, &operation, topic, only, span).await;
    }
    ask_for(&front, &caller, operation, Kind::NoSuchTopic).await.map(Moved::of)
}
