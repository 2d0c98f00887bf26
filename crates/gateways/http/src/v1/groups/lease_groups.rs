//! Lease groups of a topic, which settle records one by one: create, inspect, pause, seek, purge, delete.
//!
//! The command line uses the same operations ([`admin::Admin`]); this module has only paths and documents.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use operations::document::{
    DeclaredQueue, Operation, QueueName, QueuePage, QueueReport, RecordCount, RecordPosition, Start,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::front::FrontEnd;
use crate::login::RequestClient;
use crate::problem::{Kind, Problem};
use crate::request_input;
use crate::v1::operate::{self, json_response};
use crate::v1::pages::{Page, PageOf, Row};
use crate::v1::query::DryRunQuery;
use crate::v1::records::read::{current, locate, position};
use crate::v1::topics::find;

pub(in crate::v1) fn queue(topic: String, group: String) -> QueueName {
    QueueName { topic, group }
}

async fn ask(
    front: &FrontEnd,
    caller: &RequestClient,
    operation: Operation,
) -> Result<Vec<u8>, Problem> {
    operate::ask(front, caller, operation, Kind::NoSuchGroup).await
}

async fn ask_for<T: DeserializeOwned>(
    front: &FrontEnd,
    caller: &RequestClient,
    operation: Operation,
) -> Result<T, Problem> {
    operate::ask_for(front, caller, operation, Kind::NoSuchGroup).await
}

/// List the groups of a topic, with what waits in each, and for how long.
#[utoipa::path(
    get,
    path = "/v1/topics/{topic}/groups",
    tag = "groups",
    params(("topic" = String, Path), Page),
    responses((status = 200, body = PageOf<Row>))
)]
pub(in crate::v1) async fn list(
    State(front): State<FrontEnd>,
    Extension(caller): Extension<RequestClient>,
    Path(topic): Path<String>,
    uri: Uri,
) -> Result<Json<PageOf<Row>>, Problem> {
    let Page { limit, cursor } = request_input::query(&uri)?;
    let limit = limit.checked()?;
    find(&front.opened()?.broker, &caller, access::Operation::Describe, &topic)?;
    let after = Some(queue(topic.clone(), cursor.unwrap_or_default()));
    // One more than the page, to detect a next one. Groups of other topics may follow.
    let list = Operation::ListQueues { after, queues_max: limit as u32 + 1 };
    let QueuePage { mut queues, .. } = ask_for(&front, &caller, list).await?;
    queues.retain(|queue| queue.topic == topic);
    let more = queues.len() > limit;
    queues.truncate(limit);
    let next = queues.last().filter(|_| more).map(|last| last.group.clone());
    Ok(PageOf::new(Row::all(&queues)?, next))
}

/// Describe a group: what waits, what is leased, how far it is in each partition.
#[utoipa::path(
    get,
    path = "/v1/topics/{topic}/groups/{group}",
    tag = "groups",
    params(("topic" = String, Path), ("group" = String, Path)),
    responses((status = 200, body = Object))
)]
pub(in crate::v1) async fn describe(
    State(front): State<FrontEnd>,
    Extension(caller): Extension<RequestClient>,
    Path((topic, group)): Path<(String, String)>,
) -> Result<Response, Problem> {
    let operation = Operation::DescribeQueue { queue: queue(topic, group) };
    Ok(json_response(ask(&front, &caller, operation).await?))
}

/// A group as it is to be.
#[derive(Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::v1) struct NewGroup {
    /// Where a new one begins: `earliest`, with what the topic holds, or `latest`.
    from: Option<Beginning>,
    /// Own values by name; those that are not named stay.
    config: BTreeMap<String, String>,
}

#[derive(Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
enum Beginning {
    Earliest,
    Latest,
}

/// Make a group, or give it these values.
#[utoipa::path(
    put,
    path = "/v1/topics/{topic}/groups/{group}",
    tag = "groups",
    params(("topic" = String, Path), ("group" = String, Path)),
    request_body = NewGroup,
    responses((status = 200, body = Object), (status = 201, body = Object))
)]
pub(in crate::v1) async fn declare(
    State(front): State<FrontEnd>,
    Extension(caller): Extension<RequestClient>,
    Path((topic, group)): Path<(String, String)>,
    body: Body,
) -> Result<(StatusCode, Json<DeclaredQueue>), Problem> {
    let NewGroup { from, config } = request_input::document(&front, body).await?;
    let from = match from {
        None | Some(Beginning::Earliest) => Start::Earliest,
        Some(Beginning::Latest) => Start::Latest,
    };
    let operation = Operation::DeclareQueue { queue: queue(topic, group), from, config };
    let declared: DeclaredQueue = ask_for(&front, &caller, operation).await?;
    let status = if declared.created { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(declared)))
}

/// Requested changes.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::v1) struct ChangedGroup {
    /// Whether nothing of it is delivered.
    paused: bool,
}

/// Pause a group, or have it go on.
#[utoipa::path(
    patch,
    path = "/v1/topics/{topic}/groups/{group}",
    tag = "groups",
    params(("topic" = String, Path), ("group" = String, Path)),
    request_body = ChangedGroup,
    responses((status = 204))
)]
pub(in crate::v1) async fn change(
    State(front): State<FrontEnd>,
    Extension(caller): Extension<RequestClient>,
    Path((topic, group)): Path<(String, String)>,
    body: Body,
) -> Result<StatusCode, Problem> {
    let ChangedGroup { paused } = request_input::document(&front, body).await?;
    let operation = Operation::PauseQueue { queue: queue(topic, group), paused };
    ask(&front, &caller, operation).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Where a group is to go on.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::v1) struct Seek {
    /// `earliest`, `latest`, `-100` for the last 100 of each partition, or a time.
    to: Option<String>,
    /// Else these places; partitions that are not named stay.
    #[serde(default)]
    offsets: Vec<SeekTo>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct SeekTo {
    partition: u32,
    offset: u64,
}

/// Result of a seek.
#[derive(Serialize, ToSchema)]
pub(in crate::v1) struct Sought {
    /// Where it goes on now, of partitions that were moved; with `dry_run`, where it would.
    offsets: Vec<SoughtTo>,
    /// Settled records of these partitions that are delivered again; an estimate where some were settled out of order.
    again: u64,
    /// Records that are passed over.
    skipped: u64,
    dry_run: bool,
}

#[derive(Serialize, ToSchema)]
struct SoughtTo {
    partition: u32,
    offset: u64,
    /// Where it was: all below was settled.
    before: u64,
}

/// Have a group go on elsewhere, forwards or back. What it has leased is void.
#[utoipa::path(
    post,
    path = "/v1/topics/{topic}/groups/{group}/seek",
    tag = "groups",
    params(("topic" = String, Path), ("group" = String, Path), DryRunQuery),
    request_body = Seek,
    responses((status = 200, body = Sought))
)]
pub(in crate::v1) async fn seek(
    State(front): State<FrontEnd>,
    Extension(caller): Extension<RequestClient>,
    Path((topic, group)): Path<(String, String)>,
    uri: Uri,
    body: Body,
) -> Result<Json<Sought>, Problem> {
    let DryRunQuery { dry_run } = request_input::query(&uri)?;
    let Seek { to, offsets } = request_input::document(&front, body).await?;
    let places: Vec<RecordPosition> = match (to, offsets.is_empty()) {
        (None, false) => {
            let places = offsets.into_iter();
            places
                .map(|SeekTo { partition, offset }| RecordPosition { partition, offset })
                .collect()
        }
        (Some(to), true) => places_of(&front, &caller, &topic, &group, &to).await?,
        (None, true) | (Some(_), false) => {
            let detail = "a seek has either to or offsets";
            return Err(Problem::new(Kind::BadRequest, detail));
        }
    };
    caller.may(
        access::Operation::Seek,
        access::AccessTarget::Group { topic: &topic, group: &group },
    )?;
    let looked = Operation::DescribeQueue { queue: queue(topic.clone(), group.clone()) };
    let report: QueueReport = ask_for(&front, &caller, looked).await?;
    let floors: BTreeMap<u32, u64> =
        report.progress.iter().map(|it| (it.partition, it.floor)).collect();
    if !dry_run {
        let operation = Operation::SeekQueue { queue: queue(topic, group), to: places.clone() };
        ask(&front, &caller, operation).await?;
    }
    let before = |place: &RecordPosition| floors.get(&place.partition).copied().unwrap_or_default();
    let again = places.iter().map(|place| before(place).saturating_sub(place.offset)).sum();
    let skipped = places.iter().map(|place| place.offset.saturating_sub(before(place))).sum();
    let offsets = places.iter().map(|place| SoughtTo {
        partition: place.partition,
        offset: place.offset,
        before: before(place),
    });
    Ok(Json(Sought { offsets: offsets.collect(), again, skipped, dry_run }))
}

async fn places_of(
    front: &FrontEnd,
    caller: &RequestClient,
    topic: &str,
    group: &str,
    to: &str,
) -> Result<Vec<RecordPosition>, Problem> {
    if to.parse::<u64>().is_ok() {
        let detail = "to: an offset is of one partition, and stands in offsets";
        return Err(Problem::new(Kind::BadRequest, detail));
    }
    caller.may(access::Operation::Seek, access::AccessTarget::Group { topic, group })?;
    let broker = &front.opened()?.broker;
    let found = find(broker, caller, access::Operation::Describe, topic)?;
    let position = position(to, broker)?;
    let partitions = found.all();
    current(broker, &partitions).await?;
    let mut places = Vec::with_capacity(partitions.len());
    for partition in partitions {
        let offset = locate(broker, partition, position).await?;
        places.push(RecordPosition { partition: partition.index, offset });
    }
    Ok(places)
}

/// Settle all records that are not leased. Returns their number; with `dry_run`, the number that it would be now.
#[utoipa::path(
    post,
    path = "/v1/topics/{topic}/groups/{group}/purge",
    tag = "groups",
    params(("topic" = String, Path), ("group" = String, Path), DryRunQuery),
    responses((status = 200, body = Object))
)]
pub(in crate::v1) async fn purge(
    State(front): State<FrontEnd>,
    Extension(caller): Extension<RequestClient>,
    Path((topic, group)): Path<(String, String)>,
    uri: Uri,
) -> Result<Response, Problem> {
    let DryRunQuery { dry_run } = request_input::query(&uri)?;
    let queue = queue(topic, group);
    let operation = Operation::PurgeQueue { queue: queue.clone() };
    if dry_run {
        let report = look_before(&front, &caller, &operation, queue).await?;
        let records = report.summary.depth.saturating_sub(report.summary.leased);
        return Ok(Json(RecordCount { records }).into_response());
    }
    Ok(json_response(ask(&front, &caller, operation).await?))
}

#[derive(Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::v1) struct Deleting {
    /// Also a group that has consumers.
    force: bool,
    /// Only say what would be gone.
    dry_run: bool,
}

/// Data that is deleted with a group.
#[derive(Serialize, ToSchema)]
pub(in crate::v1) struct Unsettled {
    /// Records that it has not settled. They stay in the topic.
    records: u64,
    consumers: u32,
}

/// State of a group, for a dry run of an operation on it.
async fn look_before(
    front: &FrontEnd,
    caller: &RequestClient,
    tried: &Operation,
    queue: QueueName,
) -> Result<QueueReport, Problem> {
    let look = Operation::DescribeQueue { queue };
    operate::look_before(front, caller, tried, look, Kind::NoSuchGroup).await
}

/// Delete a group; the records of the topic stay. With `dry_run` nothing is done, and the answer says what would be gone.
#[utoipa::path(
    delete,
    path = "/v1/topics/{topic}/groups/{group}",
    tag = "groups",
    params(("topic" = String, Path), ("group" = String, Path), Deleting),
    responses((status = 204), (status = 200, body = Unsettled))
)]
pub(in crate::v1) async fn delete(
    State(front): State<FrontEnd>,
    Extension(caller): Extension<RequestClient>,
    Path((topic, group)): Path<(String, String)>,
    uri: Uri,
) -> Result<Response, Problem> {
    let Deleting { force, dry_run } = request_input::query(&uri)?;
    let queue = queue(topic, group);
    let operation = Operation::DeleteQueue { queue: queue.clone(), force };
    if dry_run {
        let group = queue.group.clone();
        let QueueReport { summary, .. } = look_before(&front, &caller, &operation, queue).await?;
        if summary.consumers > 0 && !force {
            let detail = format!("the group {group} has {} consumers", summary.consumers);
            return Err(Problem::new(Kind::Invalid, detail));
        }
        let gone = Unsettled { records: summary.depth, consumers: summary.consumers };
        return Ok(Json(gone).into_response());
    }
    ask(&front, &caller, operation).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
