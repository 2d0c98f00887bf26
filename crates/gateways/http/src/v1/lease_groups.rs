//! Groups that settle records one by one, of all topics; and their records that wait.

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::Uri;
use axum::response::Response;
use axum::{Extension, Json};
use base::limits::HTTP_PAGE_MAX;
use operations::document::{
    Cancel, Operation, Place, QueueName, QueuePage, QueueSummary, RecordPage, ScheduledPage,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::asked;
use super::groups::queue;
use super::operate::{as_it_is, ask, ask_for, cursor, place};
use super::read::within;
use crate::front::Front;
use crate::login::Asker;
use crate::problem::{Kind, Problem};

/// Pages of the operation that are looked through for one of ours: groups that a filter leaves out are passed over.
const LOOKED_THROUGH_MAX: usize = 10_000;

#[derive(Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Listing {
    /// At most so many, up to 1,000.
    limit: usize,
    /// As the page before said.
    cursor: Option<String>,
    /// Only of topics or groups whose name has this in it, in whatever case.
    filter: String,
}

impl Default for Listing {
    fn default() -> Self {
        Self { limit: base::limits::HTTP_PAGE_DEFAULT, cursor: None, filter: String::new() }
    }
}

#[derive(Serialize, ToSchema)]
pub(super) struct LeaseGroups {
    /// What waits in each, for how long, and how fast it goes.
    #[schema(value_type = Vec<Object>)]
    items: Vec<Value>,
    /// To be given as `cursor` for the next page; null: this is the last.
    next: Option<String>,
}

/// List groups that settle records one by one, of all topics that the user may see, by topic and name.
#[utoipa::path(
    get,
    path = "/v1/lease-groups",
    tag = "groups",
    params(Listing),
    responses((status = 200, body = LeaseGroups))
)]
pub(super) async fn list(
    State(front): State<Front>,
    Extension(asker): Extension<Asker>,
    uri: Uri,
) -> Result<Json<LeaseGroups>, Problem> {
    let Listing { limit, cursor, filter } = asked::query(&uri)?;
    within("limit", limit, HTTP_PAGE_MAX)?;
    let filter = filter.to_lowercase();
    let fits = |row: &QueueSummary| {
        filter.is_empty()
            || row.topic.to_lowercase().contains(&filter)
            || row.group.to_lowercase().contains(&filter)
    };
    let mut after = cursor.as_deref().map(named).transpose()?;
    let (mut items, mut looked_through, mut next) = (Vec::new(), 0, None);
    loop {
        let queues_max = if filter.is_empty() { limit as u32 } else { HTTP_PAGE_MAX as u32 };
        let operation = Operation::ListQueues { after: after.clone(), queues_max };
        let page: QueuePage = ask_for(&front, &asker, operation, Kind::NoSuchGroup).await?;
        looked_through += page.queues.len();
        let count = page.queues.len();
        for (at, row) in page.queues.into_iter().enumerate() {
            let name = QueueName { topic: row.topic.clone(), group: row.group.clone() };
            if fits(&row) {
                items.push(written(&row)?);
            }
            let is_last = at + 1 == count && !page.more;
            after = Some(name);
            if items.len() == limit && !is_last {
                next = after.as_ref().map(cursor_of);
                break;
            }
        }
        if next.is_some() || !page.more {
            break;
        }
        if looked_through >= LOOKED_THROUGH_MAX {
            // Whoever asks goes on, and may stop.
            next = after.as_ref().map(cursor_of);
            break;
        }
    }
    Ok(Json(LeaseGroups { items, next }))
}

fn written(row: &impl Serialize) -> Result<Value, Problem> {
    serde_json::to_value(row).map_err(|error| Problem::new(Kind::Failed, error.to_string()))
}

/// Names of topics have no such letter.
const BETWEEN: char = '/';

fn cursor_of(name: &QueueName) -> String {
    format!("{}{BETWEEN}{}", name.topic, name.group)
}

fn named(text: &str) -> Result<QueueName, Problem> {
    let split = text.split_once(BETWEEN);
    let wrong = || Problem::new(Kind::BadRequest, "the cursor is none of this list");
    let (topic, group) = split.ok_or_else(wrong)?;
    Ok(queue(topic.to_owned(), group.to_owned()))
}

// ------------------------------------------------------------------------------ records that wait

#[derive(Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Waiting {
    /// At most so many, up to 1,000.
    limit: usize,
    /// As the page before said.
    cursor: Option<String>,
}

impl Default for Waiting {
    fn default() -> Self {
        Self { limit: base::limits::HTTP_PAGE_DEFAULT, cursor: None }
    }
}

#[derive(Serialize, ToSchema)]
pub(super) struct WaitingRecords {
    /// Each with what is the case with it.
    #[schema(value_type = Vec<Object>)]
    items: Vec<Value>,
    /// To be given as `cursor` for the next page; null: this is the last.
    next: Option<String>,
}

/// Look at records that a group has not settled, by place, with what is the case with each: `ready`, `blocked` by an earlier one
/// of its key, `leased`, `delayed`, `dead-lettering`. Nothing is leased, and no attempt counted.
#[utoipa::path(
    get,
    path = "/v1/topics/{topic}/groups/{group}/records",
    tag = "groups",
    params(("topic" = String, Path), ("group" = String, Path), Waiting),
    responses((status = 200, body = WaitingRecords))
)]
pub(super) async fn peek(
    State(front): State<Front>,
    Extension(asker): Extension<Asker>,
    Path((topic, group)): Path<(String, String)>,
    uri: Uri,
) -> Result<Json<WaitingRecords>, Problem> {
    let Waiting { limit, cursor: after } = asked::query(&uri)?;
    within("limit", limit, HTTP_PAGE_MAX)?;
    let operation = Operation::PeekQueue {
        queue: queue(topic, group),
        partition: None,
        from: place(after.as_deref())?,
        records_max: limit as u32,
    };
    let page: RecordPage = ask_for(&front, &asker, operation, Kind::NoSuchGroup).await?;
    let items = page.records.iter().map(written).collect::<Result<_, _>>()?;
    Ok(Json(WaitingRecords { items, next: page.next.map(cursor) }))
}

/// Records that are to be delivered later, by place.
#[utoipa::path(
    get,
    path = "/v1/topics/{topic}/groups/{group}/scheduled",
    tag = "groups",
    params(("topic" = String, Path), ("group" = String, Path), Waiting),
    responses((status = 200, body = WaitingRecords))
)]
pub(super) async fn scheduled(
    State(front): State<Front>,
    Extension(asker): Extension<Asker>,
    Path((topic, group)): Path<(String, String)>,
    uri: Uri,
) -> Result<Json<WaitingRecords>, Problem> {
    let Waiting { limit, cursor: after } = asked::query(&uri)?;
    within("limit", limit, HTTP_PAGE_MAX)?;
    let operation = Operation::ListScheduled {
        queue: queue(topic, group),
        after: place(after.as_deref())?,
        records_max: limit as u32,
    };
    let page: ScheduledPage = ask_for(&front, &asker, operation, Kind::NoSuchGroup).await?;
    let items = page.records.iter().map(written).collect::<Result<_, _>>()?;
    Ok(Json(WaitingRecords { items, next: page.next.map(cursor) }))
}

/// Single records.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Places {
    records: Vec<PlaceOf>,
}

#[derive(Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PlaceOf {
    partition: u32,
    offset: u64,
}

impl Places {
    fn read(self) -> Result<Vec<Place>, Problem> {
        places(&self.records)
    }
}

pub(super) fn places(records: &[PlaceOf]) -> Result<Vec<Place>, Problem> {
    within("the number of records", records.len(), HTTP_PAGE_MAX)?;
    let of = |it: &PlaceOf| Place { partition: it.partition, offset: it.offset };
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
pub(super) async fn cancel(
    State(front): State<Front>,
    Extension(asker): Extension<Asker>,
    Path((topic, group)): Path<(String, String)>,
    body: Body,
) -> Result<Response, Problem> {
    let records = asked::document::<Places>(&front, body).await?.read()?;
    let what = Cancel::Records(records);
    let operation = Operation::CancelScheduled { queue: queue(topic, group), what };
    Ok(as_it_is(ask(&front, &asker, operation, Kind::NoSuchGroup).await?))
}

/// Settle single records, whoever waits for them. One that a consumer has is told and holds no other back.
#[utoipa::path(
    post,
    path = "/v1/topics/{topic}/groups/{group}/remove",
    tag = "groups",
    params(("topic" = String, Path), ("group" = String, Path)),
    request_body = Places,
    responses((status = 200, body = Object))
)]
pub(super) async fn remove(
    State(front): State<Front>,
    Extension(asker): Extension<Asker>,
    Path((topic, group)): Path<(String, String)>,
    body: Body,
) -> Result<Response, Problem> {
    let records = asked::document::<Places>(&front, body).await?.read()?;
    let operation = Operation::RemoveRecords { queue: queue(topic, group), records };
    Ok(as_it_is(ask(&front, &asker, operation, Kind::NoSuchGroup).await?))
}
