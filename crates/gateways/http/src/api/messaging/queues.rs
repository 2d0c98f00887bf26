//! Queues.

use std::sync::Arc;

use access::Operation;
use access::user_limits::{Limit, LimitTarget};
use access_rules::quota::Quota;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use base::LeaseGroupId;
use broker::delivery::Counters;
use futures_util::{StreamExt, stream};
use rabbitmq::declarations::{QueueDeclaration, queues};
use rabbitmq::errors::{NamedEntity, Resource};
use serde_json::{Map, Value, json};
use topology::arguments::{DEAD_LETTER_EXCHANGE, QUEUE_TYPE};
use topology::{Queue, QueueKind, VirtualHost};
use values::Table;

use crate::api::request::api_error::ApiError;
use crate::api::request::call::{Call, ObjectReader, Outcome, node_name};
use crate::api::request::list;
use crate::api::request::values as typed;
use crate::limits::HTTP_API_QUEUES_AT_ONCE;

/// Clients parse it as a 16-bit number.
const CONSUMERS_MAX: u32 = 65_535;

pub(in crate::api) type VhostQueue = (VirtualHost, Arc<Queue>);

/// Sums over queues.
#[derive(Clone, Copy, Default)]
pub(in crate::api) struct Sums {
    pub(in crate::api) ready: u64,
    pub(in crate::api) unacknowledged: u64,
    pub(in crate::api) consumers: u64,
}

async fn counters(call: &Call, queue: &Queue) -> Option<Counters> {
    call.broker().counters(queue.group()?).await
}

/// Number of messages for lists; 0 where the leader does not reply.
async fn estimate(vhost: &VirtualHost, queue: &Queue) -> u64 {
    vhost.message_count(queue).await.unwrap_or_default()
}

pub(in crate::api) async fn sums(call: &Call, all: &[VhostQueue]) -> Sums {
    let counted = all.iter().map(|(vhost, queue)| async move {
        let consumers = u64::from(vhost.consumer_count(queue).await);
        match counters(call, queue).await {
            Some(counters) => Sums {
                ready: counters.depth.saturating_sub(counters.leased),
                unacknowledged: counters.leased,
                consumers,
            },
            None => Sums { ready: estimate(vhost, queue).await, unacknowledged: 0, consumers },
        }
    });
    let counted: Vec<_> = counted.collect();
    let mut counted = stream::iter(counted).buffer_unordered(HTTP_API_QUEUES_AT_ONCE);
    let mut sums = Sums::default();
    while let Some(one) = counted.next().await {
        sums.ready += one.ready;
        sums.unacknowledged += one.unacknowledged;
        sums.consumers += one.consumers;
    }
    sums
}

/// The declaration of a queue.
pub(in crate::api) fn declared(queue: &Queue) -> Value {
    json!({
        "name": &*queue.name, "vhost": &*queue.vhost, "durable": queue.durable,
        "auto_delete": queue.auto_delete, "arguments": typed::json(&queue.arguments),
    })
}

async fn row(call: &Call, vhost: &VirtualHost, queue: &Queue) -> Value {
    let node = node_name(call.broker());
    let settings = queue.settings();
    let mut row = declared(queue);
    row["type"] = queue.kind.name().into();
    row["exclusive"] = queue.owner.is_some().into();
    row["node"] = node.clone().into();
    row["state"] = "running".into();
    row["policy"] = settings.policy.as_deref().map_or(Value::Null, Value::from);
    row["operator_policy"] = settings.operator_policy.as_deref().map_or(Value::Null, Value::from);
    row["effective_policy_definition"] = json!(vhost.effective_policy(queue));
    row["consumers"] = vhost.consumer_count(queue).await.min(CONSUMERS_MAX).into();
    if queue.kind != QueueKind::Classic {
        row["leader"] = node.clone().into();
        row["members"] = json!([node]);
        row["online"] = json!([node]);
    }
    if let Some(limit) = settings.delivery_limit {
        row["delivery_limit"] = limit.into();
    }
    let Some(counters) = counters(call, queue).await else {
        let messages = estimate(vhost, queue).await;
        row["messages"] = messages.into();
        row["messages_ready"] = messages.into();
        row["messages_unacknowledged"] = 0.into();
        row["message_stats"] = json!({});
        return row;
    };
    row["messages"] = counters.depth.into();
    // Delayed messages are not unacknowledged; they have a count of their own, too.
    row["messages_ready"] = counters.depth.saturating_sub(counters.leased).into();
    row["messages_unacknowledged"] = counters.leased.into();
    row["messages_delayed"] = counters.delayed.into();
    row["messages_details"] = lengths(call, &counters);
    row["message_bytes_unacknowledged"] = counters.leased_bytes.into();
    row["message_stats"] = match call.query.is_true("disable_stats") {
        true => json!({}),
        false => stats(call, queue, &counters).await,
    };
    row
}

/// Growth of a queue per second. There is no history: a request for samples gets the current value.
fn lengths(call: &Call, counters: &Counters) -> Value {
    let rate = counters.rates.published - counters.rates.settled;
    let mut lengths = json!({ "rate": rate });
    if call.query.get("lengths_age").is_some() && call.query.get("lengths_incr").is_some() {
        let now_ms = call.broker().clock().now_ms();
        lengths["samples"] = json!([{"sample": counters.depth, "timestamp": now_ms}]);
    }
    lengths
}

/// Empty while all counters are zero.
async fn stats(call: &Call, queue: &Queue, counters: &Counters) -> Value {
    let published = match queue.group() {
        Some(group) => published(call, queue, group).await,
        None => None,
    };
    let mut stats = Map::new();
    let rates = &counters.rates;
    for (name, count, rate) in [
        ("publish", published, Some(rates.published)),
        ("deliver_get", Some(counters.delivered), Some(rates.delivered)),
        ("redeliver", Some(counters.redelivered), None),
    ] {
        let Some(count) = count.filter(|count| *count > 0) else { continue };
        stats.insert(name.to_owned(), count.into());
        if let Some(rate) = rate {
            stats.insert(format!("{name}_details"), json!({ "rate": rate }));
        }
    }
    Value::Object(stats)
}

/// Number of messages ever published to it.
async fn published(call: &Call, queue: &Queue, group: LeaseGroupId) -> Option<u64> {
    let indexes: Vec<u32> = (0..queue.partition_count()).collect();
    let progress = call.broker().shards().known().lease_progress(group, &indexes).await.ok()?;
    progress.into_iter().map(|progress| progress.map(|it| it.end)).sum()
}

pub(in crate::api) fn sees(call: &Call, queue: &Queue) -> bool {
    call.looks() || call.rights().sees(queue.resource())
}

pub(in crate::api) async fn list(call: &Call) -> Outcome {
    let vhosts = call.vhosts().await?;
    let queues = |vhost: &VirtualHost| {
        let queues = vhost.queues().into_iter();
        queues.map(|queue| (vhost.clone(), queue)).collect::<Vec<_>>()
    };
    let mut all: Vec<VhostQueue> = vhosts.iter().flat_map(queues).collect();
    all.retain(|(_, queue)| sees(call, queue));
    let (all, chosen) = list::choose(&call.query, all, |(_, queue)| &queue.name)?;
    let rows: Vec<_> = all.iter().map(|(vhost, queue)| row(call, vhost, queue)).collect();
    let rows = stream::iter(rows).buffered(HTTP_API_QUEUES_AT_ONCE).collect().await;
    chosen.answer(rows)
}

pub(in crate::api) async fn one(call: &Call) -> Outcome {
    let (vhost, name) = (call.vhost().await?, call.arg("name"));
    if vhost.find_queue(name).is_none() {
        vhost.refresh().await?;
    }
    let found = vhost.find_queue(name).filter(|queue| sees(call, queue));
    let queue = found.ok_or_else(ApiError::not_found)?;
    Ok(list::one(&call.query, row(call, &vhost, &queue).await))
}

/// Declaration of a queue, from a JSON object.
pub(in crate::api) struct QueueRequest {
    durable: bool,
    auto_delete: bool,
    arguments: Table,
}

impl QueueRequest {
    pub(in crate::api) fn of(said: &Map<String, Value>) -> Result<Self, ApiError> {
        let said = ObjectReader(said);
        if said.flag("exclusive", false)? {
            let reason = "a queue is exclusive to a connection, and there is none here";
            return Err(ApiError::bad_request(reason));
        }
        let mut arguments =
            said.object("arguments")?.map(typed::table).transpose()?.unwrap_or_default();
        // RabbitMQ's definitions have the type beside the arguments.
        if let Some(kind) = said.text("type")?.filter(|kind| !kind.is_empty())
            && arguments.get(QUEUE_TYPE).is_none()
        {
            arguments.push(QUEUE_TYPE, kind);
        }
        Ok(Self {
            durable: said.flag("durable", true)?,
            auto_delete: said.flag("auto_delete", false)?,
            arguments,
        })
    }

    /// Validated like `queue.declare`. Returns whether the queue is new.
    pub(in crate::api) async fn declare(
        &self,
        call: &Call,
        vhost: &VirtualHost,
        name: &str,
    ) -> Result<bool, ApiError> {
        if name.is_empty() {
            return Err(ApiError::bad_request("a queue has a name"));
        }
        let rights = call.rights();
        rights.check_queue(Operation::Create, name, vhost.name())?;
        let is_there = vhost.find_queue(name).is_some();
        let forwards = self.arguments.get(DEAD_LETTER_EXCHANGE).and_then(values::Value::as_str);
        if let Some(exchange) = forwards.filter(|_| !is_there) {
            rights.check_forwarding(Resource::queue(name, vhost.name()), exchange)?;
        }
        let declaration = QueueDeclaration {
            name,
            durable: self.durable,
            exclusive: false,
            auto_delete: self.auto_delete,
            arguments: &self.arguments,
        };
        let spending = call.spends(Quota::ControllerMutationRate)?;
        let most = call.limit(LimitTarget::VirtualHost(vhost.name()), Limit::MaxQueues)?;
        let declared = queues::declare(vhost, call.owner(), declaration, most).await?;
        if declared.is_new {
            spending.charge(1);
        }
        Ok(declared.is_new)
    }
}

pub(in crate::api) async fn put(call: &Call) -> Outcome {
    let said = call.object()?;
    let node = node_name(call.broker());
    if ObjectReader(&said).text("node")?.is_some_and(|asked| asked != node) {
        return Err(ApiError::bad_request(format!(
            "node: every queue is on every node; this is {node}"
        )));
    }
    let made =
        QueueRequest::of(&said)?.declare(call, &call.vhost().await?, call.arg("name")).await?;
    Ok(if made { StatusCode::CREATED } else { StatusCode::NO_CONTENT }.into_response())
}

pub(in crate::api) async fn delete(call: &Call) -> Outcome {
    let (vhost, name) = (call.vhost().await?, call.arg("name"));
    call.rights().check_queue(Operation::Delete, name, vhost.name())?;
    // AMQP accepts the deletion of an unknown queue; this API responds 404.
    queues::find(&vhost, call.owner(), name).await?;
    call.spends(Quota::ControllerMutationRate)?.charge(1);
    let (unused, empty) = (call.query.is_true("if-unused"), call.query.is_true("if-empty"));
    queues::delete(&vhost, call.owner(), name, unused, empty).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

pub(in crate::api) async fn purge(call: &Call) -> Outcome {
    let (vhost, name) = (call.vhost().await?, call.arg("name"));
    let rights = call.rights();
    rights.check_queue(Operation::Purge, name, vhost.name())?;
    queues::purge(call.broker(), &vhost, call.owner(), name, &rights).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
