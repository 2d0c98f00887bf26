//! Groups that commit a position in each partition, and how far they are behind. They commit by Kafka's protocol.

use std::collections::BTreeMap;

use access::Target;
use access::acl::{Action, Resource};
use axum::extract::{Path, State};
use axum::http::Uri;
use axum::{Extension, Json};
use base::PartitionId;
use base::limits::HTTP_OFFSETS_MAX;
use serde::Serialize;
use utoipa::ToSchema;

use super::asked;
use super::pages::{Filling, Page, PageOf};
use super::produce::unavailable;
use crate::front::Front;
use crate::login::Asker;
use crate::problem::{Kind, Problem};

#[derive(Serialize, ToSchema)]
pub(super) struct OffsetGroup {
    name: String,
}

/// List groups that have committed offsets, those that the user may see.
#[utoipa::path(
    get,
    path = "/v1/groups",
    tag = "offsets",
    params(Page),
    responses((status = 200, body = PageOf<OffsetGroup>))
)]
pub(super) async fn list(
    State(front): State<Front>,
    Extension(asker): Extension<Asker>,
    uri: Uri,
) -> Result<Json<PageOf<OffsetGroup>>, Problem> {
    let Page { limit, cursor } = asked::query(&uri)?;
    let limit = limit.checked()?;
    let broker = &front.opened()?.broker;
    let shown = |name: String| {
        let is_seen = asker.allows(Action::Describe, Resource::Group, &name);
        Ok(is_seen.then_some(OffsetGroup { name }))
    };
    let mut page = Filling::new(limit, cursor);
    while page.goes_on() {
        let after = page.after().unwrap_or_default();
        let names = broker.shards().offset_groups_after(after, limit + 1).await;
        let mut names = names.map_err(|why| unavailable(&why))?;
        let is_more = names.len() > limit;
        names.truncate(limit);
        page.add(names, is_more, String::clone, shown)?;
    }
    Ok(page.page())
}

#[derive(Serialize, ToSchema)]
pub(super) struct Lag {
    /// Records that it has not read, in all of these partitions.
    lag: u64,
    partitions: Vec<PartitionLag>,
}

#[derive(Serialize, ToSchema)]
struct PartitionLag {
    topic: String,
    partition: u32,
    /// What it has committed: the offset of the next record that it reads.
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
pub(super) async fn lag(
    State(front): State<Front>,
    Extension(asker): Extension<Asker>,
    Path(group): Path<String>,
) -> Result<Json<Lag>, Problem> {
    if !asker.allows(Action::Describe, Resource::Group, &group) {
        let detail = format!("this user may not do that to the group {group}");
        return Err(Problem::new(Kind::NotAllowed, detail));
    }
    let broker = &front.opened()?.broker;
    let offsets = broker.shards().offsets_after(&group, None, HTTP_OFFSETS_MAX + 1).await;
    let offsets = offsets.map_err(|why| unavailable(&why))?;
    if offsets.is_empty() {
        let detail = format!("group {group} has committed no offset");
        return Err(Problem::new(Kind::NoSuchGroup, detail));
    }
    if offsets.len() > HTTP_OFFSETS_MAX {
        let detail = format!("group {group} has committed more offsets than an answer has");
        return Err(Problem::limited(Kind::Invalid, detail, HTTP_OFFSETS_MAX as u64));
    }
    let seen: BTreeMap<_, String> = {
        let catalog = broker.catalog();
        let topics = offsets.iter().filter_map(|(partition, _)| catalog.topic(partition.topic));
        let seen = topics.filter(|topic| asker.sees(Target::Topic(topic.name())));
        seen.map(|topic| (topic.id(), topic.name().to_string())).collect()
    };
    let known = offsets.iter().filter(|(partition, _)| seen.contains_key(&partition.topic));
    let partitions: Vec<PartitionId> = known.clone().map(|(partition, _)| *partition).collect();
    let bounds = broker.shards().bounds(&partitions).await.map_err(|why| unavailable(&why))?;
    let rows = known.zip(bounds).filter_map(|((partition, committed), bounds)| {
        let (end, offset) = (bounds?.end, committed.offset);
        let topic = seen.get(&partition.topic)?.clone();
        let lag = end.saturating_sub(offset);
        Some(PartitionLag { topic, partition: partition.index, offset, end, lag })
    });
    let partitions: Vec<PartitionLag> = rows.collect();
    Ok(Json(Lag { lag: partitions.iter().map(|row| row.lag).sum(), partitions }))
}
