//! Topics: list, create, describe, delete.
//!
//! * `configs`: configuration of a topic; `changes`: changes of it

pub(super) mod changes;
pub(super) mod configs;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use access::{AccessTarget, Operation};
use access_rules::quota::Quota;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use base::{PartitionId, TopicId};
use broker::config::TopicConfig;
use broker::{Broker, ExecuteError, NewTopic, Refusal};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::front::FrontEnd;
use crate::limits::HTTP_COUNTED_PARTITIONS_MAX;
use crate::login::RequestClient;
use crate::problem::{Kind, Problem, unavailable};
use crate::quotas::RequestCharges;
use crate::request_input;
use crate::v1::pages::{Limit, NameFilter, PageOf};
use crate::v1::query::DryRunQuery;
use crate::v1::topics::changes::CurrentTopic;

/// A topic, for other handlers.
#[derive(Clone, Debug)]
pub(super) struct TopicInfo {
    pub(super) id: TopicId,
    pub(super) name: String,
    pub(super) partitions: u32,
    pub(super) config: Arc<TopicConfig>,
}

impl TopicInfo {
    /// The partition with this number.
    pub(super) fn partition(&self, index: u32) -> Result<PartitionId, Problem> {
        match index < self.partitions {
            true => Ok(PartitionId::new(self.id, index)),
            false => Err(self.no_partition(index)),
        }
    }

    pub(super) fn no_partition(&self, index: u32) -> Problem {
        let Self { name, partitions, .. } = self;
        let detail =
            format!("topic {name} has partitions 0 to {}, not {index}", partitions.max(&1) - 1);
        Problem::new(Kind::NoSuchPartition, detail)
    }

    pub(super) fn all(&self) -> Vec<PartitionId> {
        (0..self.partitions).map(|index| PartitionId::new(self.id, index)).collect()
    }
}

/// Finds a topic for an operation. Without the right to it, the response does not reveal whether the topic exists.
pub(super) fn find(
    broker: &Broker,
    caller: &RequestClient,
    operation: Operation,
    name: &str,
) -> Result<TopicInfo, Problem> {
    caller.may(operation, AccessTarget::Topic(name))?;
    let catalog = broker.catalog();
    let topic = catalog.topic_named(name).ok_or_else(|| no_topic(name))?;
    Ok(TopicInfo {
        id: topic.id(),
        name: name.to_owned(),
        partitions: topic.partition_count(),
        config: Arc::clone(topic.config()),
    })
}

pub(super) fn no_topic(name: &str) -> Problem {
    Problem::new(Kind::NoSuchTopic, format!("there is no topic {name}"))
}

/// Topic in a list.
#[derive(Serialize, ToSchema)]
pub(super) struct TopicRow {
    name: String,
    partitions: u32,
    /// How many groups settle its records one by one.
    groups: usize,
    /// With `counts`: offsets that it has, which are records where nothing was compacted. Null: not asked for, or not
    /// counted, since the page has too many partitions.
    #[serde(skip_serializing_if = "Option::is_none")]
    records: Option<u64>,
    /// With `counts`: those that were ever appended.
    #[serde(skip_serializing_if = "Option::is_none")]
    appended: Option<u64>,
}

#[derive(Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Listing {
    /// At most so many, up to 1,000.
    #[param(value_type = usize)]
    limit: Limit,
    /// As the page before said.
    cursor: Option<String>,
    /// Only those whose name has this in it, in whatever case.
    filter: String,
    /// Also how many records each has.
    counts: bool,
}

/// List topics by name, those that the user may see.
#[utoipa::path(
    get,
    path = "/v1/topics",
    tag = "topics",
    params(Listing),
    responses((status = 200, body = PageOf<TopicRow>))
)]
pub(super) async fn list(
    State(front): State<FrontEnd>,
    Extension(caller): Extension<RequestClient>,
    uri: Uri,
) -> Result<Json<PageOf<TopicRow>>, Problem> {
    let Listing { limit, cursor, filter, counts } = request_input::query(&uri)?;
    let (limit, filter) = (limit.checked()?, NameFilter::of(&filter));
    let broker = &front.opened()?.broker;
    let (mut items, more, partitions) = {
        let catalog = broker.catalog();
        let from = cursor.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut seen: Vec<_> = catalog
            .topics_from(from)
            .filter(|topic| {
                filter.fits(topic.name()) && caller.sees(AccessTarget::Topic(topic.name()))
            })
            .take(limit + 1)
            .collect();
        let more = seen.len() > limit;
        seen.truncate(limit);
        let row = |topic: &broker::catalog::Topic<'_>| TopicRow {
            name: topic.name().to_string(),
            partitions: topic.partition_count(),
            groups: catalog.lease_groups_of(topic.id()).count(),
            records: None,
            appended: None,
        };
        let items: Vec<TopicRow> = seen.iter().map(row).collect();
        let partitions: Vec<PartitionId> = match counts {
            true => seen.iter().flat_map(|topic| topic.partition_ids()).collect(),
            false => Vec::new(),
        };
        (items, more, partitions)
    };
    if counts && partitions.len() <= HTTP_COUNTED_PARTITIONS_MAX {
        let bounds = broker.shards().bounds(&partitions).await.map_err(|why| unavailable(&why))?;
        let mut bounds = bounds.into_iter();
        for row in &mut items {
            let of_topic: Vec<_> =
                bounds.by_ref().take(row.partitions as usize).flatten().collect();
            row.records = Some(of_topic.iter().map(|it| it.end - it.log_start.min(it.end)).sum());
            row.appended = Some(of_topic.iter().map(|it| it.end).sum());
        }
    }
    let next = items.last().filter(|_| more).map(|last| last.name.clone());
    Ok(PageOf::new(items, next))
}

/// A topic to be made.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CreateTopic {
    name: String,
    #[serde(default = "one")]
    partitions: u32,
    /// Kafka's configurations and our own, by name.
    #[serde(default)]
    config: BTreeMap<String, String>,
}

fn one() -> u32 {
    1
}

/// Make a topic.
#[utoipa::path(
    post,
    path = "/v1/topics",
    tag = "topics",
    request_body = CreateTopic,
    responses((status = 201, body = Topic))
)]
pub(super) async fn create(
    State(front): State<FrontEnd>,
    Extension(caller): Extension<RequestClient>,
    body: Body,
) -> Result<(StatusCode, Json<Topic>), Problem> {
    let CreateTopic { name, partitions, config } = request_input::document(&front, body).await?;
    caller.creates_topic(&name)?;
    let node = front.opened()?;
    let broker = &node.broker;
    let spending = RequestCharges::begin(node, &caller, Quota::ControllerMutationRate)?;
    spending.charge(partitions.into());
    let uuid = broker.entropy().uuid();
    let new = NewTopic { name: name.clone(), uuid, partitions, config };
    broker.create_topic(new).await.map_err(|error| not_changed(&error))?;
    Ok((StatusCode::CREATED, Json(described(broker, &name).await?)))
}

/// A topic as it stands.
#[derive(Serialize, ToSchema)]
pub(super) struct Topic {
    name: String,
    /// As Kafka's clients know it.
    id: String,
    created_ms: i64,
    partitions: Vec<Partition>,
    /// Values of its own; the others are the node's.
    config: BTreeMap<String, String>,
    groups: Vec<String>,
}

#[derive(Serialize, ToSchema)]
struct Partition {
    partition: u32,
    /// The offset of its first record.
    start: u64,
    /// That of the next one to come.
    end: u64,
}

/// Describe a topic.
#[utoipa::path(
    get,
    path = "/v1/topics/{topic}",
    tag = "topics",
    params(("topic" = String, Path)),
    responses((
        status = 200,
        body = Topic,
        headers(("etag" = String, description = "What can be changed of it, for If-Match"))
    ))
)]
pub(super) async fn describe(
    State(front): State<FrontEnd>,
    Extension(caller): Extension<RequestClient>,
    Path(topic): Path<String>,
) -> Result<Response, Problem> {
    let broker = &front.opened()?.broker;
    find(broker, &caller, Operation::Describe, &topic)?;
    // The tag first: one that is older than the response only makes a later change fail. A newer one would let a change
    // of an outdated response pass.
    let tag = CurrentTopic::of(broker, &topic)?.header()?;
    Ok(([tag], Json(described(broker, &topic).await?)).into_response())
}

async fn described(broker: &Broker, name: &str) -> Result<Topic, Problem> {
    let (mut topic, partitions) = {
        let catalog = broker.catalog();
        let topic = catalog.topic_named(name).ok_or_else(|| no_topic(name))?;
        let partitions: Vec<PartitionId> = topic.partition_ids().collect();
        let groups = catalog.lease_groups_of(topic.id()).map(|group| group.name().to_string());
        let described = Topic {
            name: name.to_owned(),
            id: topic.uuid().to_string(),
            created_ms: topic.created_ms(),
            partitions: Vec::new(),
            config: (**topic.overrides()).clone(),
            groups: groups.collect(),
        };
        (described, partitions)
    };
    let bounds = broker.shards().bounds(&partitions).await.map_err(|why| unavailable(&why))?;
    topic.partitions = partitions
        .iter()
        .zip(bounds)
        .map(|(partition, bounds)| {
            let (start, end) = bounds.map_or((0, 0), |bounds| (bounds.log_start, bounds.end));
            Partition { partition: partition.index, start, end }
        })
        .collect();
    Ok(topic)
}

/// Data that is deleted with a topic.
#[derive(Serialize, ToSchema)]
pub(super) struct TopicLoss {
    /// Offsets that it has, which are records where nothing was compacted.
    records: u64,
    partitions: u32,
    /// Groups that settle its records one by one.
    groups: Vec<String>,
}

/// Delete a topic, with its records and groups. With `dry_run` nothing is done, and the answer says what these are.
#[utoipa::path(
    delete,
    path = "/v1/topics/{topic}",
    tag = "topics",
    params(("topic" = String, Path), DryRunQuery),
    responses((status = 204), (status = 200, body = TopicLoss))
)]
pub(super) async fn delete(
    State(front): State<FrontEnd>,
    Extension(caller): Extension<RequestClient>,
    Path(topic): Path<String>,
    uri: Uri,
) -> Result<Response, Problem> {
    let DryRunQuery { dry_run } = request_input::query(&uri)?;
    let node = front.opened()?;
    let broker = &node.broker;
    let found = find(broker, &caller, Operation::Delete, &topic)?;
    if dry_run {
        let Topic { partitions, groups, .. } = described(broker, &topic).await?;
        let records = partitions.iter().map(|it| it.end - it.start.min(it.end)).sum();
        let loss = TopicLoss { records, partitions: found.partitions, groups };
        return Ok(Json(loss).into_response());
    }
    let spending = RequestCharges::begin(node, &caller, Quota::ControllerMutationRate)?;
    spending.charge(found.partitions.into());
    broker.delete_topic(found.id).await.map_err(|error| not_changed(&error))?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

pub(super) fn not_changed(error: &ExecuteError) -> Problem {
    let detail = error.to_string();
    match error {
        ExecuteError::Unavailable(why) => unavailable(why),
        ExecuteError::Refused(Refusal::TopicExists { .. } | Refusal::TopicCollision { .. }) => {
            Problem::new(Kind::Exists, detail)
        }
        ExecuteError::Refused(Refusal::UnknownTopic { .. }) => {
            Problem::new(Kind::NoSuchTopic, detail)
        }
        ExecuteError::Refused(_) => Problem::new(Kind::Invalid, detail),
    }
}
