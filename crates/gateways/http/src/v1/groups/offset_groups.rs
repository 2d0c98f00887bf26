//! Groups that commit an offset in each partition: list, members, seek, delete. They commit by Kafka's protocol.
//!
//! Only the node that coordinates a group knows its members; every node knows its committed offsets (`offsets`).

use std::collections::BTreeMap;

use access::{AccessTarget, Operation};
use access_rules::acl::{Action, Resource};
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use base::PartitionId;
use operations::document::Operation as Document;
use operations::offset_groups::{
    Membership, OffsetGroupPage, OffsetGroupReport, OffsetGroupSummary, OffsetPlace,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::front::FrontEnd;
use crate::limits::HTTP_OFFSETS_MAX;
use crate::login::RequestClient;
use crate::problem::{Kind, Problem, unavailable};
use crate::request_input;
use crate::v1::groups::offsets;
use crate::v1::operate::{ask, ask_for};
use crate::v1::pages::{Page, PageOf, Row};
use crate::v1::query::DryRunQuery;
use crate::v1::records::read::{current, locate, position};
use crate::v1::topics::find;

#[derive(Serialize, ToSchema)]
pub(in crate::v1) struct OffsetGroup {
    name: String,
    /// State by its members. Null: the node that answers does not coordinate the group.
    #[schema(value_type = Option<Object>)]
    membership: Option<Membership>,
}

/// List groups that have committed offsets, or have members at this node, those that the user may see.
#[utoipa::path(
    get,
    path = "/v1/groups",
    tag = "offsets",
    params(Page),
    responses((status = 200, body = PageOf<OffsetGroup>))
)]
pub(in crate::v1) async fn list(
    State(front): State<FrontEnd>,
    Extension(caller): Extension<RequestClient>,
    uri: Uri,
) -> Result<Json<PageOf<OffsetGroup>>, Problem> {
    let Page { limit, cursor } = request_input::query(&uri)?;
    let groups_max = limit.checked()? as u32;
    let operation = Document::ListOffsetGroups { after: cursor, groups_max };
    let page: OffsetGroupPage = ask_for(&front, &caller, operation, Kind::NoSuchGroup).await?;
    let next = page.groups.last().filter(|_| page.more).map(|last| last.name.clone());
    let row = |OffsetGroupSummary { name, membership }| OffsetGroup { name, membership };
    Ok(PageOf::new(page.groups.into_iter().map(row).collect(), next))
}

#[derive(Serialize, ToSchema)]
pub(in crate::v1) struct DescribedGroup {
    name: String,
    /// The node that coordinates it, which is this one.
    coordinator: u32,
    /// State by its members.
    #[schema(value_type = Object)]
    membership: Membership,
    /// In how many partitions it has committed an offset.
    offsets: usize,
}

async fn report(
    front: &FrontEnd,
    caller: &RequestClient,
    group: &str,
    after: Option<String>,
    members_max: u32,
) -> Result<OffsetGroupReport, Problem> {
    let group = group.to_owned();
    let operation = Document::DescribeOffsetGroup { group, after, members_max };
    ask_for(front, caller, operation, Kind::NoSuchGroup).await
}

/// Describe a group, at the node that coordinates it; another one answers `another-node` and names that one.
#[utoipa::path(
    get,
    path = "/v1/groups/{group}",
    tag = "offsets",
    params(("group" = String, Path)),
    responses((status = 200, body = DescribedGroup))
)]
pub(in crate::v1) async fn describe(
    State(front): State<FrontEnd>,
    Extension(caller): Extension<RequestClient>,
    Path(group): Path<String>,
) -> Result<Json<DescribedGroup>, Problem> {
    let report = report(&front, &caller, &group, None, 1).await?;
    let OffsetGroupReport { coordinator, membership, .. } = report;
    let offsets = offsets::count(&front.opened()?.broker, &caller, &group).await?;
    Ok(Json(DescribedGroup { name: group, coordinator, membership, offsets }))
}

/// List the members of a group by id, with the partitions that each has, of topics that the user may see. The node that
/// coordinates the group has to be asked.
#[utoipa::path(
    get,
    path = "/v1/groups/{group}/members",
    tag = "offsets",
    params(("group" = String, Path), Page),
    responses((status = 200, body = PageOf<Row>))
)]
pub(in crate::v1) async fn members(
    State(front): State<FrontEnd>,
    Extension(caller): Extension<RequestClient>,
    Path(group): Path<String>,
    uri: Uri,
) -> Result<Json<PageOf<Row>>, Problem> {
    let Page { limit, cursor } = request_input::query(&uri)?;
    let report = report(&front, &caller, &group, cursor, limit.checked()? as u32).await?;
    let next = report.members.last().filter(|_| report.more).map(|last| last.id.clone());
    Ok(PageOf::new(Row::all(&report.members)?, next))
}

// ------------------------------------------------------------------------------------------- seek

/// Where a group is to go on.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::v1) struct SeekGroup {
    /// `earliest`, `latest`, `-100` for the last 100 of each partition, or a time.
    to: Option<String>,
    /// With `to`: in all partitions of these topics; where nothing is said, in those that it has committed an offset in.
    topics: Option<Vec<String>>,
    /// Else these places; partitions that are not named stay.
    #[serde(default)]
    offsets: Vec<TopicPlace>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct TopicPlace {
    topic: String,
    partition: u32,
    offset: u64,
}

/// Result of a reset.
#[derive(Serialize, ToSchema)]
pub(in crate::v1) struct GroupSought {
    /// Where it goes on now, of partitions that were named; with `dry_run`, where it would.
    offsets: Vec<GroupSoughtTo>,
    /// Records of these partitions that were read and are read again.
    again: u64,
    /// Records that are passed over.
    skipped: u64,
    dry_run: bool,
}

#[derive(Serialize, ToSchema)]
struct GroupSoughtTo {
    topic: String,
    partition: u32,
    offset: u64,
    /// Former committed offset. Null: none.
    before: Option<u64>,
}

/// Have a group without members go on elsewhere, forwards or back: its committed offsets are set.
#[utoipa::path(
    post,
    path = "/v1/groups/{group}/seek",
    tag = "offsets",
    params(("group" = String, Path), DryRunQuery),
    request_body = SeekGroup,
    responses((status = 200, body = GroupSought))
)]
pub(in crate::v1) async fn seek(
    State(front): State<FrontEnd>,
    Extension(caller): Extension<RequestClient>,
    Path(group): Path<String>,
    uri: Uri,
    body: Body,
) -> Result<Json<GroupSought>, Problem> {
    let DryRunQuery { dry_run } = request_input::query(&uri)?;
    let SeekGroup { to, topics, offsets } = request_input::document(&front, body).await?;
    if !caller.allows(Action::Read, Resource::Group, &group) {
        return Err(offsets::refused(&group));
    }
    let to: Vec<OffsetPlace> = match (to, offsets.is_empty()) {
        (None, false) if topics.is_none() => {
            let place = |TopicPlace { topic, partition, offset }: TopicPlace| OffsetPlace {
                topic,
                partition,
                offset,
            };
            offsets.into_iter().map(place).collect()
        }
        (Some(to), true) => places_of(&front, &caller, &group, topics, &to).await?,
        _ => {
            let detail = "a seek has either to, perhaps with topics, or offsets";
            return Err(Problem::new(Kind::BadRequest, detail));
        }
    };
    if to.len() > HTTP_OFFSETS_MAX {
        let detail = format!("a seek has at most {HTTP_OFFSETS_MAX} partitions");
        return Err(Problem::limited(Kind::Invalid, detail, HTTP_OFFSETS_MAX as u64));
    }
    // The response shows the offsets before the seek, so they are read first.
    let before = committed(&front, &caller, &group, &to).await?;
    let operation = Document::SeekOffsetGroup { group, to: to.clone(), dry_run };
    ask(&front, &caller, operation, Kind::NoSuchGroup).await?;
    let (mut again, mut skipped) = (0, 0);
    let sought = to.into_iter().zip(before).map(|(place, before)| {
        if let Some(before) = before {
            again += before.saturating_sub(place.offset);
            skipped += place.offset.saturating_sub(before);
        }
        let OffsetPlace { topic, partition, offset } = place;
        GroupSoughtTo { topic, partition, offset, before }
    });
    let offsets = sought.collect();
    Ok(Json(GroupSought { offsets, again, skipped, dry_run }))
}

/// Partitions that a seek by time or end applies to, and its offset in each.
async fn places_of(
    front: &FrontEnd,
    caller: &RequestClient,
    group: &str,
    topics: Option<Vec<String>>,
    to: &str,
) -> Result<Vec<OffsetPlace>, Problem> {
    if to.parse::<u64>().is_ok() {
        let detail = "to: an offset is of one partition, and stands in offsets";
        return Err(Problem::new(Kind::BadRequest, detail));
    }
    let broker = &front.opened()?.broker;
    let position = position(to, broker)?;
    let mut partitions: Vec<(String, PartitionId)> = Vec::new();
    match topics {
        Some(topics) => {
            for name in topics {
                let found = find(broker, caller, Operation::Browse, &name)?;
                partitions.extend(found.all().into_iter().map(|id| (name.clone(), id)));
                if partitions.len() > HTTP_OFFSETS_MAX {
                    break;
                }
            }
        }
        None => {
            let committed = offsets::all(broker, group).await?;
            let catalog = broker.catalog();
            let named = committed.into_iter().filter_map(|(id, _)| {
                let topic = catalog.topic(id.topic)?;
                topic.partition(id.index)?;
                caller
                    .sees(AccessTarget::Topic(topic.name()))
                    .then(|| (topic.name().to_string(), id))
            });
            partitions.extend(named);
        }
    }
    if partitions.len() > HTTP_OFFSETS_MAX {
        let detail = format!("a seek has at most {HTTP_OFFSETS_MAX} partitions");
        return Err(Problem::limited(Kind::Invalid, detail, HTTP_OFFSETS_MAX as u64));
    }
    for (topic, _) in &partitions {
        caller.may(Operation::Browse, AccessTarget::Topic(topic))?;
    }
    let ids: Vec<PartitionId> = partitions.iter().map(|(_, id)| *id).collect();
    current(broker, &ids).await?;
    let mut places = Vec::with_capacity(partitions.len());
    for (topic, id) in partitions {
        let offset = locate(broker, id, position).await?;
        places.push(OffsetPlace { topic, partition: id.index, offset });
    }
    Ok(places)
}

/// Committed offsets of the group at these places.
async fn committed(
    front: &FrontEnd,
    caller: &RequestClient,
    group: &str,
    places: &[OffsetPlace],
) -> Result<Vec<Option<u64>>, Problem> {
    let broker = &front.opened()?.broker;
    let mut known = BTreeMap::new();
    let mut ids = Vec::with_capacity(places.len());
    for place in places {
        if !known.contains_key(&place.topic) {
            let found = find(broker, caller, Operation::Browse, &place.topic)?;
            known.insert(place.topic.clone(), found);
        }
        if let Some(found) = known.get(&place.topic) {
            ids.push(found.partition(place.partition)?);
        }
    }
    let committed = broker.shards().offsets(group, &ids).await.map_err(|why| unavailable(&why))?;
    Ok(committed.into_iter().map(|it| it.map(|it| it.offset)).collect())
}

// ----------------------------------------------------------------------------------------- delete

/// Result of a deletion.
#[derive(Serialize, ToSchema)]
pub(in crate::v1) struct GroupLoss {
    /// Partitions in which it has committed an offset.
    offsets: usize,
}

/// Delete a group without members, with the offsets that it has committed. With `dry_run` nothing is done, and the answer
/// says how many these are.
#[utoipa::path(
    delete,
    path = "/v1/groups/{group}",
    tag = "offsets",
    params(("group" = String, Path), DryRunQuery),
    responses((status = 204), (status = 200, body = GroupLoss))
)]
pub(in crate::v1) async fn delete(
    State(front): State<FrontEnd>,
    Extension(caller): Extension<RequestClient>,
    Path(group): Path<String>,
    uri: Uri,
) -> Result<Response, Problem> {
    let DryRunQuery { dry_run } = request_input::query(&uri)?;
    let operation = Document::DeleteOffsetGroup { group: group.clone(), dry_run };
    ask(&front, &caller, operation, Kind::NoSuchGroup).await?;
    if !dry_run {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let offsets = offsets::count(&front.opened()?.broker, &caller, &group).await?;
    Ok(Json(GroupLoss { offsets }).into_response())
}
