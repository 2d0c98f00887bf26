//! State of a record: its presence, its state in each group and, for `history`, its past.

use access::Operation;
use axum::extract::{Path, State};
use axum::response::Response;
use axum::{Extension, Json};
use operations::document::{Operation as Document, RecordPosition};
use operations::history::{GroupHistory, GroupState, OffsetGroupSeen, Presence, RecordHistory};
use serde::Serialize;
use utoipa::ToSchema;

use crate::front::FrontEnd;
use crate::login::RequestClient;
use crate::problem::{Kind, Problem};
use crate::v1::operate::{ask, ask_for, json_response};
use crate::v1::records::document::Record;
use crate::v1::topics::find;

#[derive(Serialize, ToSchema)]
pub(in crate::v1) struct Whereabouts {
    /// `there`; `deleted`, by retention, compaction or a user; `to-come`: nothing was appended at this place yet.
    #[schema(value_type = String)]
    record: Presence,
    /// Readable range of the partition.
    start: u64,
    end: u64,
    /// Null where it is not there.
    content: Option<Record>,
    /// Groups that settle one by one.
    groups: Vec<InGroup>,
    /// Groups that commit offsets, of those that committed one in this partition.
    offset_groups: Vec<InOffsetGroup>,
    /// There were more groups than are asked.
    truncated: bool,
}

#[derive(Serialize, ToSchema)]
struct InGroup {
    group: String,
    /// `settled`, `ready`, `blocked` by an earlier record of its key, `leased`, `delayed`, `dead-lettering`; `unknown`: the
    /// node that leads did not say.
    #[schema(value_type = String)]
    state: GroupState,
    /// When it is due, or when its lease ends.
    until_ms: Option<i64>,
    /// How often it was delivered and came back.
    attempts: u16,
    /// Session that has it, by its number.
    session: Option<u64>,
    paused: bool,
}

#[derive(Serialize, ToSchema)]
struct InOffsetGroup {
    group: String,
    /// Offset of the next record that it reads.
    offset: u64,
    /// Whether this one lies before that.
    read: bool,
}

/// The path of a record: topic, partition, offset.
type RecordPath = Path<(String, String, String)>;

/// The operation that describes the record at a place.
fn describe(
    front: &FrontEnd,
    caller: &RequestClient,
    Path(at): RecordPath,
) -> Result<Document, Problem> {
    let (topic, partition, offset) = at;
    let read = || {
        Some(RecordPosition { partition: partition.parse().ok()?, offset: offset.parse().ok()? })
    };
    let no_place = || Problem::new(Kind::BadRequest, "a place is a partition and an offset");
    let place = read().ok_or_else(no_place)?;
    let found = find(&front.opened()?.broker, caller, Operation::Browse, &topic)?;
    found.partition(place.partition)?;
    Ok(Document::DescribeRecord { topic, place })
}

/// Say what became of a record: whether it is there, and in which state to each group.
#[utoipa::path(
    get,
    path = "/v1/topics/{topic}/partitions/{partition}/records/{offset}/where",
    tag = "records",
    params(("topic" = String, Path), ("partition" = u32, Path), ("offset" = u64, Path)),
    responses((status = 200, body = Whereabouts))
)]
pub(in crate::v1) async fn find_out(
    State(front): State<FrontEnd>,
    Extension(caller): Extension<RequestClient>,
    at: RecordPath,
) -> Result<Json<Whereabouts>, Problem> {
    let operation = describe(&front, &caller, at)?;
    let history: RecordHistory = ask_for(&front, &caller, operation, Kind::NoSuchTopic).await?;
    let RecordHistory { presence: record, start, end, truncated, .. } = history;
    // A record that is gone is in no group.
    let groups = history.groups.into_iter().filter(|group| group.state != GroupState::Gone);
    Ok(Json(Whereabouts {
        record,
        start,
        end,
        content: history.record.map(Record::from),
        groups: groups.map(InGroup::from).collect(),
        offset_groups: history.offset_groups.into_iter().map(InOffsetGroup::from).collect(),
        truncated,
    }))
}

/// The same, and what happened to the record: when and by which session it was delivered, released and settled, as far as the nodes
/// remember it.
#[utoipa::path(
    get,
    path = "/v1/topics/{topic}/partitions/{partition}/records/{offset}/history",
    tag = "records",
    params(("topic" = String, Path), ("partition" = u32, Path), ("offset" = u64, Path)),
    responses((status = 200, body = Object))
)]
pub(in crate::v1) async fn history(
    State(front): State<FrontEnd>,
    Extension(caller): Extension<RequestClient>,
    at: RecordPath,
) -> Result<Response, Problem> {
    let operation = describe(&front, &caller, at)?;
    Ok(json_response(ask(&front, &caller, operation, Kind::NoSuchTopic).await?))
}

impl From<GroupHistory> for InGroup {
    fn from(history: GroupHistory) -> Self {
        let GroupHistory { group, state, until_ms, attempts, session, paused, .. } = history;
        let session = session.map(|session| session.session);
        Self { group, state, until_ms, attempts, session, paused }
    }
}

impl From<OffsetGroupSeen> for InOffsetGroup {
    fn from(OffsetGroupSeen { group, offset, read }: OffsetGroupSeen) -> Self {
        Self { group, offset, read }
    }
}
