//! Transactions: leases are settled and records are appended together, or nothing is done.
//!
//! `body` parses the request.

pub(super) mod body;

use access::{AccessTarget, Operation};
use access_rules::quota::Quota;
use axum::extract::{Request, State};
use axum::{Extension, Json};
use base::Level;
use broker::Broker;
use broker::delivery::{Settle, SettleTarget, Settlement, TransferError};
use serde::Serialize;
use utoipa::ToSchema;

use self::body::{NewTransaction, SettleAction, Transaction, TransactionSettle};
use crate::connection::Peer;
use crate::front::FrontEnd;
use crate::layers::current::follow;
use crate::limits::HTTP_TRANSACTION_BYTES_MAX;
use crate::login::RequestClient;
use crate::problem::{Kind, Problem};
use crate::quotas::RequestCharges;
use crate::request_input;
use crate::v1::leases::not_settled;
use crate::v1::leases::token::LeaseName;
use crate::v1::records::appending::{
    Built, Placed, append_together, build_expecting, build_together, not_appended,
};
use crate::v1::records::produce::IDEMPOTENCY_KEY;
use crate::v1::topics::find;

/// The transaction took effect.
#[derive(Serialize, ToSchema)]
pub(super) struct Committed {
    /// In the order of the request.
    appends: Vec<Appended>,
}

#[derive(Serialize, ToSchema)]
struct Appended {
    topic: String,
    /// Where each record is.
    items: Vec<Placed>,
}

/// Settle leases and append records to any topics, together: all of it takes effect, or nothing. Answered when it is durable.
/// `expect_offset` appends only if the partition ends there, as the expected version of an event store does. After a response
/// with 504 the same request is safe to send again: if the first one took effect, its leases or its `expect_offset` have it
/// refused.
#[utoipa::path(
    post,
    path = "/v1/transactions",
    tag = "transactions",
    request_body = NewTransaction,
    responses((status = 200, body = Committed))
)]
pub(super) async fn execute(
    State(front): State<FrontEnd>,
    Extension(caller): Extension<RequestClient>,
    Extension(peer): Extension<Peer>,
    request: Request,
) -> Result<Json<Committed>, Problem> {
    let node = front.opened()?;
    let broker = &node.broker;
    let (head, body) = request.into_parts();
    if head.headers.contains_key(IDEMPOTENCY_KEY) {
        return Err(Problem::new(
            Kind::BadRequest,
            "a transaction has no Idempotency-Key: its leases and expect_offset find a second try",
        ));
    }
    let spending = RequestCharges::begin(node, &caller, Quota::ProducerByteRate)?;
    let body = request_input::whole(&front, body, HTTP_TRANSACTION_BYTES_MAX).await?;
    let bytes = body.len();
    spending.charge(bytes as u64);
    let _permit = broker.admit(bytes).await;
    let transaction = front.parse(bytes, move || body::parse(&body)).await?;
    follow(broker, are_known(broker, &transaction)).await?;
    let of_node = broker.clone();
    let prepare = move || prepare(&of_node, &caller, transaction);
    let Prepared { settles, topics, built } = front.parse(bytes, prepare).await?;
    let done = append_together(&peer, front.leases(broker), settles, built).await;
    match done {
        Ok(placed) => {
            let appended = |(topic, items)| Appended { topic, items };
            Ok(Json(Committed { appends: topics.into_iter().zip(placed).map(appended).collect() }))
        }
        Err(error) => Err(not_executed(broker, &error).await),
    }
}

/// Whether this node's copy of the catalog has all topics and groups of the transaction.
fn are_known(broker: &Broker, transaction: &Transaction) -> bool {
    let catalog = broker.catalog();
    let group = |item: &TransactionSettle| LeaseName::parse(&item.token).map(|it| it.group);
    let mut groups = transaction.settles.iter().filter_map(group);
    let mut topics = transaction.appends.iter().map(|append| &append.topic);
    groups.all(|group| catalog.lease_group(group).is_some())
        && topics.all(|topic| catalog.topic_id(topic).is_some())
}

/// A transaction whose topics, groups and records are valid.
struct Prepared {
    settles: Vec<Settle>,
    /// Names of topics, in the order of `built`.
    topics: Vec<String>,
    built: Vec<Built>,
}

fn prepare(
    broker: &Broker,
    caller: &RequestClient,
    transaction: Transaction,
) -> Result<Prepared, Problem> {
    let Transaction { settles, appends } = transaction;
    if settles.is_empty() && appends.is_empty() {
        return Err(Problem::new(
            Kind::BadRequest,
            "the transaction has no settles and no appends",
        ));
    }
    if !settles.is_empty() && broker.level().now() < Level::MESSAGE_COMMANDS {
        let level = Level::MESSAGE_COMMANDS;
        let detail = format!(
            "the cluster has no feature level {level} yet: complete its upgrade with `postroad cluster upgrade --finalize`"
        );
        return Err(Problem::new(Kind::Invalid, detail));
    }
    let mut prepared = Prepared { settles: Vec::new(), topics: Vec::new(), built: Vec::new() };
    for (place, item) in settles.iter().enumerate() {
        let settle = settle(broker, caller, item);
        prepared.settles.push(settle.map_err(|problem| problem.within(&settle_at(place)))?);
    }
    for (place, mut append) in appends.into_iter().enumerate() {
        let within = |problem: Problem| problem.within(&format!("appends[{place}]"));
        let topic = find(broker, caller, Operation::Append, &append.topic).map_err(within)?;
        if let Some(partition) = append.partition {
            append.records.iter_mut().for_each(|record| {
                record.partition.get_or_insert(partition);
            });
        }
        let built = match append.expect_offset {
            Some(offset) => build_expecting(broker, &topic, &append.records, offset),
            None => build_together(broker, &topic, &append.records),
        };
        prepared.built.push(built.map_err(within)?);
        prepared.topics.push(append.topic);
    }
    Ok(prepared)
}

fn settle(
    broker: &Broker,
    caller: &RequestClient,
    item: &TransactionSettle,
) -> Result<Settle, Problem> {
    let unknown = || {
        Problem::new(
            Kind::NoSuchLease,
            "that is no token of a lease in a group that you may consume",
        )
    };
    let LeaseName { group, partition, token, session } =
        LeaseName::parse(&item.token).ok_or_else(unknown)?;
    let catalog = broker.catalog();
    let found = catalog.lease_group(group).ok_or_else(unknown)?;
    let topic = catalog.topic(found.topic()).ok_or_else(unknown)?;
    let target = AccessTarget::Group { topic: topic.name(), group: found.name() };
    caller.may(Operation::Consume, target).map_err(|_| unknown())?;
    let settlement = match item.action {
        SettleAction::Accept => Settlement::Accept,
        SettleAction::Reject => Settlement::Reject,
    };
    Ok(Settle { group, what: SettleTarget::Held { partition, token, session }, settlement })
}

fn settle_at(place: usize) -> String {
    format!("settles[{place}]")
}

async fn not_executed(broker: &Broker, error: &TransferError) -> Problem {
    match error {
        TransferError::Settle { item, source } => not_settled(source).within(&settle_at(*item)),
        error => not_appended(broker, error).await,
    }
}
