//! Leases: records are leased for a time, and settled by the token that comes with them.
//!
//! A node has one lease session for all HTTP clients. The token names the session, so that a lease can be settled at
//! any node of a cluster. A lease always expires: there is no connection whose end would release it.

pub(super) mod token;

use std::time::Duration;

use access::{AccessTarget, Operation};
use access_rules::quota::Quota;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::Response;
use axum::{Extension, Json};
use base::{LeaseGroupId, TopicId};
use broker::Broker;
use broker::delivery::{
    Delivery, Settle, SettleError, SettleTarget, Settlement, TakeError, TakeOptions,
};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;
use utoipa::ToSchema;

use crate::connection::Peer;
use crate::front::FrontEnd;
use crate::limits::{
    HTTP_LEASE_DEFAULT, HTTP_LEASE_MAX, HTTP_LEASE_MIN, HTTP_READ_BYTES_DEFAULT,
    HTTP_READ_BYTES_MAX, HTTP_SETTLED_WITHIN, HTTP_SETTLES_MAX,
};
use crate::login::RequestClient;
use crate::problem::{Document, Kind, Problem, unavailable};
use crate::quotas::RequestCharges;
use crate::request_input;
use crate::v1::held;
use crate::v1::leases::token::LeaseName;
use crate::v1::query::{waiting, within};
use crate::v1::records::document::Record;
use crate::v1::topics::find;

/// Request for leases.
#[derive(Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Take {
    /// 1 to 1,000.
    max_records: usize,
    /// The first record is given whatever its size.
    max_bytes: usize,
    /// How long to wait for a record where there is none, up to 60,000.
    wait_ms: u64,
    /// For how long they are taken, 1,000 to 43,200,000.
    lease_ms: u64,
}

impl Default for Take {
    fn default() -> Self {
        Self {
            max_records: 1,
            max_bytes: HTTP_READ_BYTES_DEFAULT,
            wait_ms: 0,
            lease_ms: HTTP_LEASE_DEFAULT.as_millis() as u64,
        }
    }
}

#[derive(Serialize, ToSchema)]
pub(super) struct Taken {
    leases: Vec<Lease>,
}

/// A leased record: no other consumer gets it meanwhile.
#[derive(Serialize, ToSchema)]
struct Lease {
    /// By which it is settled.
    token: String,
    /// 1: the first.
    attempt: u16,
    expires_ms: i64,
    record: Record,
}

struct Group {
    id: LeaseGroupId,
    topic: TopicId,
}

fn group(
    broker: &Broker,
    caller: &RequestClient,
    operation: Operation,
    topic: &str,
    name: &str,
) -> Result<Group, Problem> {
    caller.may(operation, AccessTarget::Group { topic, group: name })?;
    let found = find(broker, caller, Operation::Describe, topic)?;
    let catalog = broker.catalog();
    let group = catalog.lease_group_named(found.id, name).ok_or_else(|| {
        let detail = format!(
            "topic {topic} has no group {name}: PUT /v1/topics/{topic}/groups/{name} makes it"
        );
        Problem::new(Kind::NoSuchGroup, detail)
    })?;
    Ok(Group { id: group.id(), topic: found.id })
}

fn lasting(lease_ms: u64) -> Result<i64, Problem> {
    let lease = Duration::from_millis(lease_ms);
    if (HTTP_LEASE_MIN..=HTTP_LEASE_MAX).contains(&lease) {
        return Ok(lease_ms as i64);
    }
    let (least, most) = (HTTP_LEASE_MIN.as_millis(), HTTP_LEASE_MAX.as_millis());
    let detail = format!("lease_ms is {least} to {most}, not {lease_ms}");
    Err(Problem::limited(Kind::BadRequest, detail, most as u64))
}

/// Lease records of a group: no other consumer gets them before they are settled or their lease expires. The group `main` is
/// AMQP's queue.
#[utoipa::path(
    post,
    path = "/v1/topics/{topic}/groups/{group}/leases",
    tag = "leases",
    params(("topic" = String, Path), ("group" = String, Path)),
    request_body = Take,
    responses((status = 200, body = Taken))
)]
pub(super) async fn take(
    State(front): State<FrontEnd>,
    Extension(caller): Extension<RequestClient>,
    Extension(peer): Extension<Peer>,
    Path((topic, name)): Path<(String, String)>,
    body: Body,
) -> Result<Response, Problem> {
    let Take { max_records, max_bytes, wait_ms, lease_ms } =
        request_input::document(&front, body).await?;
    within("max_records", max_records, HTTP_SETTLES_MAX)?;
    within("max_bytes", max_bytes, HTTP_READ_BYTES_MAX)?;
    let (wait, lease_ms) = (waiting(wait_ms)?, lasting(lease_ms)?);
    let node = front.opened()?;
    let find = || group(&node.broker, &caller, Operation::Consume, &topic, &name);
    let mut group = find()?;
    let spending = RequestCharges::begin(node, &caller, Quota::ConsumerByteRate)?;
    let options = TakeOptions {
        records_max: max_records as u32,
        bytes_max: max_bytes as u64,
        wait,
        lease_ms: Some(lease_ms),
        ..TakeOptions::default()
    };
    let session = front.leases(&node.broker);
    let taken = loop {
        // An acknowledged record must be found.
        node.broker.acknowledged_is_readable(group.topic).await;
        let taken = tokio::select! {
            biased;
            () = front.draining() => Ok(Vec::new()),
            taken = session.take(group.id, options.clone()) => taken,
        };
        match taken {
            Ok(taken) => break taken,
            // The topic or the group may have been deleted and created again at another node.
            Err(TakeError::UnknownGroup(former)) => {
                group = find()?;
                if group.id == former {
                    return Err(Problem::new(Kind::NoSuchGroup, "the group was deleted"));
                }
            }
            Err(TakeError::Unavailable(why)) => return Err(unavailable(&why)),
        }
    };
    let expires_ms = node.broker.clock().now_ms() + lease_ms;
    let bytes: usize = taken.iter().map(|delivery| delivery.record.encoded_len()).sum();
    peer.connection.traffic().delivered(bytes as u64);
    spending.charge(bytes as u64);
    // Up to here the records share the broker's batches.
    let room = front.answer_room(bytes).await;
    let leases = taken.iter().map(|delivery| lease(delivery, session.id(), expires_ms));
    held::document(&Taken { leases: leases.collect() }, room)
}

fn lease(delivery: &Delivery, session: u64, expires_ms: i64) -> Lease {
    let Delivery { group, partition, token, offset, attempt, .. } = *delivery;
    let name = LeaseName { group, partition, token, session };
    let record = Record::of(partition, offset, &delivery.view());
    Lease { token: name.to_text(), attempt, expires_ms, record }
}

/// How leases end.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Settles {
    /// 1 to 1,000 of them.
    settles: Vec<SettleOne>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct SettleOne {
    token: String,
    action: Action,
    /// For a release: delay until the next delivery; otherwise the group's back-off applies.
    #[serde(default)]
    delay_ms: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
enum Action {
    /// It is done.
    Accept,
    /// It is to be delivered again.
    Release,
    /// It is never to be delivered again: a dead letter.
    Reject,
}

#[derive(Serialize, ToSchema)]
pub(super) struct Settled {
    outcomes: Vec<Outcome>,
}

#[derive(Serialize, ToSchema)]
#[serde(untagged)]
enum Outcome {
    Done { settled: bool },
    Refused { problem: Document },
}

/// End leases, at any node. Answered when that is durable; each outcome is of its item.
#[utoipa::path(
    post,
    path = "/v1/topics/{topic}/groups/{group}/settle",
    tag = "leases",
    params(("topic" = String, Path), ("group" = String, Path)),
    request_body = Settles,
    responses((status = 200, body = Settled))
)]
pub(super) async fn settle(
    State(front): State<FrontEnd>,
    Extension(caller): Extension<RequestClient>,
    Path((topic, name)): Path<(String, String)>,
    body: Body,
) -> Result<Json<Settled>, Problem> {
    let Settles { settles } = request_input::document(&front, body).await?;
    let items = settles.into_iter().map(|SettleOne { token, action, delay_ms }| {
        let delay_ms = match (action, delay_ms) {
            (Action::Release, delay) => delay.map(|ms| i64::try_from(ms).unwrap_or(i64::MAX)),
            (_, None) => None,
            (_, Some(_)) => return Err(Problem::new(Kind::BadRequest, "delay_ms is of a release")),
        };
        let settlement = match action {
            Action::Accept => Settlement::Accept,
            Action::Release => Settlement::Release { delay_ms, count: true },
            Action::Reject => Settlement::Reject,
        };
        Ok((token, settlement))
    });
    let items: Result<Vec<_>, _> = items.collect();
    end(&front, &caller, &topic, &name, items?).await
}

/// Leases that are to last.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Extend {
    /// 1 to 1,000 of them.
    tokens: Vec<String>,
    /// From now on, 1,000 to 43,200,000.
    lease_ms: u64,
}

/// Keep leases for longer, at any node.
#[utoipa::path(
    post,
    path = "/v1/topics/{topic}/groups/{group}/extend",
    tag = "leases",
    params(("topic" = String, Path), ("group" = String, Path)),
    request_body = Extend,
    responses((status = 200, body = Settled))
)]
pub(super) async fn extend(
    State(front): State<FrontEnd>,
    Extension(caller): Extension<RequestClient>,
    Path((topic, name)): Path<(String, String)>,
    body: Body,
) -> Result<Json<Settled>, Problem> {
    let Extend { tokens, lease_ms } = request_input::document(&front, body).await?;
    let lease_ms = Some(lasting(lease_ms)?);
    let renewed = tokens.into_iter().map(|token| (token, Settlement::Renew { lease_ms }));
    end(&front, &caller, &topic, &name, renewed.collect()).await
}

async fn end(
    front: &FrontEnd,
    caller: &RequestClient,
    topic: &str,
    name: &str,
    items: Vec<(String, Settlement)>,
) -> Result<Json<Settled>, Problem> {
    within("the number of items", items.len(), HTTP_SETTLES_MAX)?;
    let broker = &front.opened()?.broker;
    let group = group(broker, caller, Operation::Consume, topic, name)?;
    let mut outcomes: Vec<Option<Outcome>> = Vec::with_capacity(items.len());
    let (mut settles, mut places) = (Vec::new(), Vec::new());
    for (place, (token, settlement)) in items.iter().enumerate() {
        let lease = LeaseName::parse(token).filter(|lease| lease.group == group.id);
        let Some(LeaseName { group, partition, token, session }) = lease else {
            let detail = "that is no token of a lease of this group";
            let problem = Problem::new(Kind::NoSuchLease, detail).as_item();
            outcomes.push(Some(Outcome::Refused { problem }));
            continue;
        };
        let what = SettleTarget::Held { partition, token, session };
        settles.push(Settle { group, what, settlement: *settlement });
        places.push(place);
        outcomes.push(None);
    }
    let settling = front.leases(broker).settle(settles);
    let settled = timeout(HTTP_SETTLED_WITHIN, settling).await;
    let settled = settled.map_err(|_| unavailable(&broker::Unavailable::Unanswered))?;
    for (place, settled) in places.into_iter().zip(settled) {
        outcomes[place] = Some(match settled {
            Ok(()) => Outcome::Done { settled: true },
            Err(error) => Outcome::Refused { problem: not_settled(&error).as_item() },
        });
    }
    let outcomes = outcomes.into_iter().map(|outcome| {
        outcome.unwrap_or_else(|| {
            let problem = Problem::new(Kind::Unanswered, "no node answered").as_item();
            Outcome::Refused { problem }
        })
    });
    Ok(Json(Settled { outcomes: outcomes.collect() }))
}

pub(super) fn not_settled(error: &SettleError) -> Problem {
    match error {
        SettleError::UnknownGroup(_) => Problem::new(Kind::NoSuchGroup, "the group was deleted"),
        SettleError::NotLeased => Problem::new(
            Kind::NoSuchLease,
            "the lease is over: its time was, or it was settled before; the record may be another's now",
        ),
        SettleError::Unavailable(why) => unavailable(why),
    }
}
