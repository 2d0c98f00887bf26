//! Committed offsets of groups, and their lag. Every node knows them.

use std::collections::BTreeMap;

use access::AccessTarget;
use access_rules::acl::{Action, Resource};
use axum::extract::{Path, State};
use axum::http::Uri;
use axum::{Extension, Json};
use base::queue_topics::is_of_other_vhost;
use base::{PartitionId, TopicId, lag};
use broker::{Broker, CommittedOffset};
use serde::Serialize;
use utoipa::ToSchema;

use crate::front::FrontEnd;
use crate::limits::HTTP_OFFSETS_MAX;
use crate::login::RequestClient;
use crate::problem::{Kind, Problem, unavailable};
use crate::request_input;
use crate::v1::pages::{Page, PageBuilder, PageOf, not_of_this_list};

pub(in crate::v1) fn refused(group: &str) -> Problem {
    let detail = format!("this user may not do that to the group {group}");
    Problem::new(Kind::NotAllowed, detail)
}

fn may_look(caller: &RequestClient, group: &str) -> Result<(), Problem> {
    match caller.allows(Action::Describe, Resource::Group, group) {
        true => Ok(()),
        false => Err(refused(group)),
    }
}

/// Number of partitions in which a group has committed an offset. Queues of other virtual hosts count only for users
/// who may see them.
pub(in crate::v1) async fn count(
    broker: &Broker,
    caller: &RequestClient,
    group: &str,
) -> Result<usize, Problem> {
    let shards = broker.shards();
    if caller.may_everything() {
        return shards.offset_count(group).await.map_err(|why| unavailable(&why));
    }
    let (mut count, mut after) = (0, None);
    loop {
        let found = shards.offsets_after(group, after, HTTP_OFFSETS_MAX).await;
        let found = found.map_err(|why| unavailable(&why))?;
        let catalog = broker.catalog();
        let is_counted = |partition: &PartitionId| {
            let topic = catalog.topic(partition.topic);
            topic.is_none_or(|topic| {
                !is_of_other_vhost(topic.name()) || caller.sees(AccessTarget::Topic(topic.name()))
            })
        };
        count += found.iter().filter(|(partition, _)| is_counted(partition)).count();
        match found.last() {
            Some((last, _)) if found.len() == HTTP_OFFSETS_MAX => after = Some(*last),
            _ => return Ok(count),
        }
    }
}

/// All committed offsets of a group. Fails if there are none, or more than fit a response.
pub(in crate::v1) async fn all(
    broker: &Broker,
    group: &str,
) -> Result<Vec<(PartitionId, CommittedOffset)>, Problem> {
    let offsets = broker.shards().offsets_after(group, None, HTTP_OFFSETS_MAX + 1).await;
    let offsets = offsets.map_err(|why| unavailable(&why))?;
    if offsets.is_empty() {
        return Err(nothing(group));
    }
    if offsets.len() > HTTP_OFFSETS_MAX {
        let detail = format!("group {group} has committed more offsets than an answer has");
        return Err(Problem::limited(Kind::Invalid, detail, HTTP_OFFSETS_MAX as u64));
    }
    Ok(offsets)
}

fn nothing(group: &str) -> Problem {
    Problem::new(Kind::NoSuchGroup, format!("group {group} has committed no offset"))
}

/// Names of existing topics that the user may see.
fn named(
    broker: &Broker,
    caller: &RequestClient,
    offsets: &[(PartitionId, CommittedOffset)],
) -> BTreeMap<TopicId, String> {
    let catalog = broker.catalog();
    let topics = offsets.iter().filter_map(|(partition, _)| catalog.topic(partition.topic));
    let seen = topics.filter(|topic| caller.sees(AccessTarget::Topic(topic.name())));
    seen.map(|topic| (topic.id(), topic.name().to_string())).collect()
}

// -------------------------------------------------------------------------------------------- lag

#[derive(Serialize, ToSchema)]
pub(in crate::v1) struct Lag {
    /// Records that it has not read, in all of these partitions.
    lag: u64,
    partitions: Vec<PartitionLag>,
}

#[derive(Serialize, ToSchema)]
struct PartitionLag {
    topic: String,
    partition: u32,
    /// Committed offset: the offset of the next record that it reads.
    offset: u64,
    end: u64,
    lag: u64,
}

/// How far a group is behind what its topics have, as this node knows it. Topics that the user may not see are left out.
#[utoipa::path(
    get,
    path = "/v1/groups/{group}/lag",
    tag = "offsets",
    params(("group" = String, Path)),
    responses((status = 200, body = Lag))
)]
pub(in crate::v1) async fn lag(
    State(front): State<FrontEnd>,
    Extension(caller): Extension<RequestClient>,
    Path(group): Path<String>,
) -> Result<Json<Lag>, Problem> {
    may_look(&caller, &group)?;
    let broker = &front.opened()?.broker;
    let offsets = all(broker, &group).await?;
    let rows = rows(broker, &caller, offsets).await?.into_iter().filter_map(|(_, row)| row);
    let partitions: Vec<PartitionLag> = rows
        .map(|row| PartitionLag {
            topic: row.topic,
            partition: row.partition,
            offset: row.offset,
            end: row.end,
            lag: row.lag,
        })
        .collect();
    Ok(Json(Lag { lag: partitions.iter().map(|row| row.lag).sum(), partitions }))
}

// ---------------------------------------------------------------------------------------- offsets

#[derive(Serialize, ToSchema)]
pub(in crate::v1) struct OffsetRow {
    topic: String,
    partition: u32,
    /// Committed offset: the offset of the next record that it reads.
    offset: u64,
    /// Metadata of the commit; empty: none.
    metadata: String,
    /// The partition's first record. Records below it are gone, and count as no lag.
    start: u64,
    end: u64,
    lag: u64,
}

/// List what a group has committed, by topic and partition, with how far that is behind. Topics that the user may not see
/// are left out.
#[utoipa::path(
    get,
    path = "/v1/groups/{group}/offsets",
    tag = "offsets",
    params(("group" = String, Path), Page),
    responses((status = 200, body = PageOf<OffsetRow>))
)]
pub(in crate::v1) async fn list(
    State(front): State<FrontEnd>,
    Extension(caller): Extension<RequestClient>,
    Path(group): Path<String>,
    uri: Uri,
) -> Result<Json<PageOf<OffsetRow>>, Problem> {
    let Page { limit, cursor } = request_input::query(&uri)?;
    let limit = limit.checked()?;
    may_look(&caller, &group)?;
    let broker = &front.opened()?.broker;
    if count(broker, &caller, &group).await? == 0 {
        return Err(nothing(&group));
    }
    let mut page = PageBuilder::new(limit, cursor);
    while page.wants_more() {
        let after = page.after().map(place).transpose()?;
        let found = broker.shards().offsets_after(&group, after, limit + 1).await;
        let mut found = found.map_err(|why| unavailable(&why))?;
        let is_more = found.len() > limit;
        found.truncate(limit);
        let rows = rows(broker, &caller, found).await?;
        page.add(rows, is_more, |(at, _)| cursor_of(*at), |(_, row)| Ok(row))?;
    }
    Ok(page.page())
}

/// Topics by id, in sort order: a name may be reused.
fn cursor_of(at: PartitionId) -> String {
    format!("{}.{}", at.topic.0, at.index)
}

fn place(cursor: &str) -> Result<PartitionId, Problem> {
    let read = || {
        let (topic, index) = cursor.split_once('.')?;
        Some(PartitionId::new(TopicId(topic.parse().ok()?), index.parse().ok()?))
    };
    read().ok_or_else(not_of_this_list)
}

/// The row of each offset; `None` for topics that are gone or that the user may not see.
async fn rows(
    broker: &Broker,
    caller: &RequestClient,
    offsets: Vec<(PartitionId, CommittedOffset)>,
) -> Result<Vec<(PartitionId, Option<OffsetRow>)>, Problem> {
    let names = named(broker, caller, &offsets);
    let seen = offsets.iter().map(|(at, _)| *at).filter(|at| names.contains_key(&at.topic));
    let seen: Vec<PartitionId> = seen.collect();
    let bounds = broker.shards().bounds(&seen).await.map_err(|why| unavailable(&why))?;
    let bounds: BTreeMap<_, _> = seen.into_iter().zip(bounds).collect();
    let row = |(at, committed): (PartitionId, CommittedOffset)| {
        let shown = || {
            let topic = names.get(&at.topic)?.clone();
            let bounds = (*bounds.get(&at)?)?;
            Some(OffsetRow {
                topic,
                partition: at.index,
                offset: committed.offset,
                metadata: committed.metadata.clone(),
                start: bounds.log_start,
                end: bounds.end,
                lag: lag::lag(committed.offset, bounds.log_start, bounds.end),
            })
        };
        (at, shown())
    };
    Ok(offsets.into_iter().map(row).collect())
}
