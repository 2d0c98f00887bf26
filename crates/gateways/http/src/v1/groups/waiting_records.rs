//! Lease groups of all topics, and their waiting records.

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::Uri;
use axum::response::Response;
use axum::{Extension, Json};
use base::limits::HTTP_PAGE_MAX;
use operations::document::{
    Cancel, Operation, QueueName, QueuePage, QueueSummary, RecordPage, RecordPosition,
    ScheduledPage,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::front::FrontEnd;
use crate::login::RequestClient;
use crate::problem::{Kind, Problem};
use crate::request_input;
use crate::v1::groups::lease_groups::queue;
use crate::v1::operate::{ask, ask_for, cursor, json_response, place};
use crate::v1::pages::{
    FilteredListQuery, NameFilter, Page, PageBuilder, PageOf, Row, not_of_this_list,
};
use crate::v1::query::within;

/// List groups that settle records one by one, of all topics that the user may see, by topic and name, with what waits in
/// each, for how long, and how fast it goes. `filter` is looked for in both names.
#[utoipa::path(
    get,
    path = "/v1/lease-groups",
    tag = "groups",
    params(FilteredListQuery),
    responses((status = 200, body = PageOf<Row>))
)]
pub(in crate::v1) async fn list(
    State(front): State<FrontEnd>,
    Extension(caller): Extension<RequestClient>,
    uri: Uri,
) -> Result<Json<PageOf<Row>>, Problem> {
    let FilteredListQuery { limit, cursor, filter } = request_input::query(&uri)?;
    let (limit, filter) = (limit.checked()?, NameFilter::of(&filter));
    let queues_max = if filter.is_nothing() { limit as u32 } else { HTTP_PAGE_MAX as u32 };
    let shown = |row: QueueSummary| match filter.fits(&row.topic) || filter.fits(&row.group) {
        true => Row::of(&row).map(Some),
        false => Ok(None),
    };
    let mut page = PageBuilder::new(limit, cursor);
    while page.wants_more() {
        let after = page.after().map(named).transpose()?;
        let operation = Operation::ListQueues { after, queues_max };
        let found: QueuePage = ask_for(&front, &caller, operation, Kind::NoSuchGroup).await?;
        page.add(found.queues, found.more, cursor_of, shown)?;
    }
    Ok(page.page())
}

/// Names of topics never contain it.
const BETWEEN: char = '/';

fn cursor_of(row: &QueueSummary) -> String {
    format!("{}{BETWEEN}{}", row.topic, row.group)
}

fn named(text: &str) -> Result<QueueName, Problem> {
    let (topic, group) = text.split_once(BETWEEN).ok_or_else(not_of_this_list)?;
    Ok(queue(topic.to_owned(), group.to_owned()))
}

// ------------------------------------------------------------------------------ waiting records

/// Look at records that a group has not settled, by place, with what is the case with each: `ready`, `blocked` by an earlier one
/// of its key, `leased`, `delayed`, `dead-lettering`. Nothing is leased, and no attempt counted.
#[utoipa::path(
    get,
    path = "/v1/topics/{topic}/groups/{group}/records",
    tag = "groups",
    params(("topic" = String, Path), ("group" = String, Path), Page),
    responses((status = 200, body = PageOf<Row>))
)]
pub(in crate::v1) async fn peek(
    State(front): State<FrontEnd>,
    Extension(caller): Extension<RequestClient>,
    Path((topic, group)): Path<(String, String)>,
    uri: Uri,
) -> Result<Json<PageOf<Row>>, Problem> {
    let Page { limit, cursor: after } = request_input::query(&uri)?;
    let limit = limit.checked()?;
    let operation = Operation::PeekQueue {
        queue: queue(topic, group),
        partition: None,
        from: place(after.as_deref())?,
        records_max: limit as u32,
    };
    let page: RecordPage = ask_for(&front, &caller, operation, Kind::NoSuchGroup).await?;
    Ok(PageOf::new(Row::all(&page.records)?, page.next.map(cursor)))
}

/// Records that are to be delivered later, by place.
#[utoipa::path(
    get,
    path = "/v1/topics/{topic}/groups/{group}/scheduled",
    tag = "groups",
    params(("topic" = String, Path), ("group" = String, Path), Page),
    responses((status = 200, body = PageOf<Row>))
)]
pub(in crate::v1) async fn scheduled(
    State(front): State<FrontEnd>,
    Extension(caller): Extension<RequestClient>,
    Path((topic, group)): Path<(String, String)>,
    uri: Uri,
) -> Result<Json<PageOf<Row>>, Problem> {
    let Page { limit, cursor: after } = request_input::query(&uri)?;
    let limit = limit.checked()?;
    let operation = Operation::ListScheduled {
        queue: queue(topic, group),
        after: place(after.as_deref())?,
        records_max: limit as u32,
    };
    let page: ScheduledPage = ask_for(&front, &caller, operation, Kind::NoSuchGroup).await?;
    Ok(PageOf::new(Row::all(&page.records)?, page.next.map(cursor)))
}

/// Single records.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::v1) struct Places {
    records: Vec<PlaceOf>,
}

#[derive(Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::v1) struct PlaceOf {
    partition: u32,
    offset: u64,
}

impl Places {
    fn read(self) -> Result<Vec<RecordPosition>, Problem> {
        places(&self.records)
    }
}

pub(in crate::v1) fn places(records: &[PlaceOf]) -> Result<Vec<RecordPosition>, Problem> {
    within("the number of records", records.len(), HTTP_PAGE_MAX)?;
    let of = |it: &PlaceOf| RecordPosition { partition: it.partition, offset: it.offset };
    Ok(records.iter().map(of).collect())
}

/// Cancel deliveries that are to come: these records are settled. One that a consumer has is told and holds no other back.
#[utoipa::path(
    post,
    path = "/v1/topics/{topic}/groups/{group}/scheduled/cancel",
    tag = "groups",
    params(("topic" = String, Path), ("group" = String, Path)),
    request_body = Places,
    responses((status = 200, body = Object))
)]
pub(in crate::v1) async fn cancel(
    State(front): State<FrontEnd>,
    Extension(caller): Extension<RequestClient>,
    Path((topic, group)): Path<(String, String)>,
    body: Body,
) -> Result<Response, Problem> {
    let records = request_input::document::<Places>(&front, body).await?.read()?;
    let what = Cancel::Records(records);
    let operation = Operation::CancelScheduled { queue: queue(topic, group), what };
    Ok(json_response(ask(&front, &caller, operation, Kind::NoSuchGroup).await?))
}

/// Settle single records that are not leased. A leased record is reported and holds no other back.
#[utoipa::path(
    post,
    path = "/v1/topics/{topic}/groups/{group}/remove",
    tag = "groups",
    params(("topic" = String, Path), ("group" = String, Path)),
    request_body = Places,
    responses((status = 200, body = Object))
)]
pub(in crate::v1) async fn remove(
    State(front): State<FrontEnd>,
    Extension(caller): Extension<RequestClient>,
    Path((topic, group)): Path<(String, String)>,
    body: Body,
) -> Result<Response, Problem> {
    let records = request_input::document::<Places>(&front, body).await?.read()?;
    let operation = Operation::RemoveRecords { queue: queue(topic, group), records };
    Ok(json_response(ask(&front, &caller, operation, Kind::NoSuchGroup).await?))
}
