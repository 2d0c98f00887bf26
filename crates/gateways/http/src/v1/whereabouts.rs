//! Where a record is: whether it is there, and what it is to each group.

use std::collections::BTreeMap;

use access::acl::{Action, Resource};
use access::{Operation, Target};
use axum::extract::{Path, State};
use axum::{Extension, Json};
use base::limits::{HTTP_GROUPS_ASKED_MAX, HTTP_PAGE_MAX};
use operations::document::{
    Operation as Document, Place, QueueReport, QueuedRecord, RecordPage, RecordState,
};
use serde::Serialize;
use utoipa::ToSchema;

use super::groups::queue;
use super::operate::ask_for;
use super::produce::unavailable;
use super::read::{Room, bounds, current, some};
use super::records::Record;
use super::topics::find;
use crate::front::Front;
use crate::login::Asker;
use crate::problem::{Kind, Problem};

#[derive(Serialize, ToSchema)]
pub(super) struct Whereabouts {
    /// `there`; `deleted`, by retention, compaction or somebody; `to-come`: nothing was appended at this place yet.
    record: Presence,
    /// What the partition has.
    start: u64,
    end: u64,
    /// Null where it is not there.
    content: Option<Record>,
    /// Groups that settle one by one.
    groups: Vec<InGroup>,
    /// Groups that commit offsets, of those that committed one in this partition.
    offset_groups: Vec<InOffsetGroup>,
    /// There were more groups than are asked: some of the second kind are missing.
    truncated: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
enum Presence {
    There,
    Deleted,
    ToCome,
}

#[derive(Serialize, ToSchema)]
struct InGroup {
    group: String,
    /// `settled`, `ready`, `blocked` by an earlier record of its key, `leased`, `delayed`, `dead-lettering`.
    state: String,
    /// When it is due, or when its lease ends.
    until_ms: Option<i64>,
    /// How often it was delivered and came back.
    attempts: u16,
    /// Who has it: a number of a session.
    session: Option<u64>,
    paused: bool,
}

#[derive(Serialize, ToSchema)]
struct InOffsetGroup {
    group: String,
    /// Of the next record that it reads.
    offset: u64,
    /// Whether this one lies before that.
    read: bool,
}

/// Say what became of a record: whether it is there, and in which state to each group.
#[utoipa::path(
    get,
    path = "/v1/topics/{topic}/partitions/{partition}/records/{offset}/where",
    tag = "records",
    params(("topic" = String, Path), ("partition" = u32, Path), ("offset" = u64, Path)),
    responses((status = 200, body = Whereabouts))
)]
pub(super) async fn find_out(
    State(front): State<Front>,
    Extension(asker): Extension<Asker>,
    Path((name, partition, offset)): Path<(String, String, String)>,
) -> Result<Json<Whereabouts>, Problem> {
    let no_place = || Problem::new(Kind::BadRequest, "a place is a partition and an offset");
    let partition: u32 = partition.parse().map_err(|_| no_place())?;
    let offset: u64 = offset.parse().map_err(|_| no_place())?;
    let broker = &front.opened()?.broker;
    let topic = find(broker, &asker, Operation::Browse, &name)?;
    let id = topic.partition(partition)?;
    current(broker, &[id]).await?;
    let bounds = bounds(broker, id)?;
    let mut found = Vec::new();
    if (bounds.log_start..bounds.end).contains(&offset) {
        some(broker, id, offset, Room { records: 1, bytes: 1 << 20 }, &mut found).await?;
    }
    let content = found.pop().map(|(record, _)| record).filter(|it| it.offset == offset);
    let record = match &content {
        Some(_) => Presence::There,
        None if offset >= bounds.end => Presence::ToCome,
        None => Presence::Deleted,
    };
    let mut groups = Vec::new();
    if record == Presence::There {
        let names: Vec<String> = {
            let catalog = broker.catalog();
            let of_topic = catalog.lease_groups_of(id.topic).map(|it| it.name().to_string());
            let seen = of_topic.filter(|group| {
                asker
                    .rights()
                    .would(Operation::DescribeGroup, Target::Group { topic: &name, group })
            });
            seen.take(HTTP_PAGE_MAX).collect()
        };
        for group in names {
            groups.push(in_group(&front, &asker, &name, group, Place { partition, offset }).await?);
        }
    }
    let (offset_groups, truncated) = in_offset_groups(&front, &asker, id, offset).await?;
    let (start, end) = (bounds.log_start, bounds.end);
    Ok(Json(Whereabouts { record, start, end, content, groups, offset_groups, truncated }))
}

async fn in_group(
    front: &Front,
    asker: &Asker,
    topic: &str,
    group: String,
    place: Place,
) -> Result<InGroup, Problem> {
    let name = queue(topic.to_owned(), group.clone());
    let described = Document::DescribeQueue { queue: name.clone() };
    let report: QueueReport = ask_for(front, asker, described, Kind::NoSuchGroup).await?;
    let peeked = Document::PeekQueue {
        queue: name,
        partition: Some(place.partition),
        from: Some(place),
        records_max: 1,
    };
    let page: RecordPage = ask_for(front, asker, peeked, Kind::NoSuchGroup).await?;
    let is_it = |it: &&QueuedRecord| {
        (it.record.partition, it.record.offset) == (place.partition, place.offset)
    };
    let waiting = page.records.iter().find(is_it);
    let state = match waiting.map(|it| it.state) {
        None => "settled",
        Some(RecordState::Ready) => "ready",
        Some(RecordState::Blocked) => "blocked",
        Some(RecordState::Leased) => "leased",
        Some(RecordState::Delayed) => "delayed",
        Some(RecordState::DeadLettering) => "dead-lettering",
    };
    let lease = report
        .leases
        .iter()
        .find(|it| (it.partition, it.offset) == (place.partition, place.offset));
    Ok(InGroup {
        group,
        state: state.to_owned(),
        until_ms: waiting.and_then(|it| it.until_ms),
        attempts: waiting.map_or(0, |it| it.attempts),
        session: lease.map(|lease| lease.session),
        paused: report.summary.paused,
    })
}

async fn in_offset_groups(
    front: &Front,
    asker: &Asker,
    id: base::PartitionId,
    offset: u64,
) -> Result<(Vec<InOffsetGroup>, bool), Problem> {
    let shards = front.opened()?.broker.shards();
    let names = shards.offset_groups_after("", HTTP_GROUPS_ASKED_MAX + 1).await;
    let mut names = names.map_err(|why| unavailable(&why))?;
    let truncated = names.len() > HTTP_GROUPS_ASKED_MAX;
    names.truncate(HTTP_GROUPS_ASKED_MAX);
    names.retain(|name| asker.allows(Action::Describe, Resource::Group, name));
    let mut found = BTreeMap::new();
    for name in names {
        let committed = shards.offsets(&name, &[id]).await.map_err(|why| unavailable(&why))?;
        if let Some(committed) = committed.into_iter().next().flatten() {
            found.insert(name, committed.offset);
        }
    }
    let rows = found.into_iter().map(|(group, committed)| InOffsetGroup {
        group,
        offset: committed,
        read: offset < committed,
    });
    Ok((rows.collect(), truncated))
}
