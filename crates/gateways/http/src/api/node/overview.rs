//! Overview of the node, and the current user.

use axum::Json;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use serde_json::{Map, Value, json};

use crate::api::messaging::queues;
use crate::api::node::connections;
use crate::api::node::nodes::{contexts, listeners};
use crate::api::request::api_error::ApiError;
use crate::api::request::call::{Call, Outcome, node_name};
use crate::api::request::list;
use crate::limits::HTTP_API_QUEUES_SUMMED_MAX;

/// RabbitMQ version whose behaviour this API follows.
pub(in crate::api) const RABBITMQ_VERSION: &str = "4.2.0";
const EXCHANGE_TYPES: [&str; 8] = [
    "direct",
    "fanout",
    "headers",
    "topic",
    "x-consistent-hash",
    "x-delayed-message",
    "x-federation-upstream",
    "x-local-random",
];
/// RabbitMQ's feature flags with equivalent features, and their stability there. `khepri_db` means that definitions
/// are decided by a majority of nodes.
const FEATURE_FLAGS: [(&str, &str); 8] = [
    ("detailed_queues_endpoint", "stable"),
    ("khepri_db", "stable"),
    ("quorum_queue", "required"),
    ("rabbitmq_4.0.0", "stable"),
    ("rabbitmq_4.1.0", "stable"),
    ("rabbitmq_4.2.0", "stable"),
    ("stream_queue", "required"),
    ("virtual_host_metadata", "required"),
];
/// Queues that neither survive a restart nor belong to a connection.
const TRANSIENT_QUEUES: &str = "transient_nonexcl_queues";
/// Features that RabbitMQ 4.2 deprecates or has removed, and whether they exist here.
const DEPRECATED_FEATURES: [(&str, &str, &str); 4] = [
    ("classic_queue_mirroring", "removed", "denied"),
    ("global_qos", "permitted_by_default", "permitted"),
    ("ram_node_type", "removed", "denied"),
    (TRANSIENT_QUEUES, "permitted_by_default", "permitted"),
];

pub(in crate::api) async fn overview(call: &Call) -> Outcome {
    let node = call.node()?;
    let name = node_name(call.broker());
    let (vhosts, mut exchanges, mut all_queues) = (call.visible_vhosts(), 0, Vec::new());
    for vhost in &vhosts {
        exchanges += vhost.exchanges().len();
        let seen = vhost.queues().into_iter().filter(|queue| queues::sees(call, queue));
        all_queues.extend(seen.map(|queue| (vhost.clone(), queue)));
    }
    let traffic = call.front.options().connections.traffic_seen();
    let amqp = traffic.iter().find(|(protocol, _)| *protocol == "amqp").map(|(_, seen)| *seen);
    let mut amqp = amqp.unwrap_or_default();
    if !call.looks() {
        // Only a user with the right to monitor sees the counts of other users.
        amqp.connections = connections::count(call);
        (amqp.connections_opened, amqp.connections_closed) = (0, 0);
    }
    let mut objects = json!({
        "connections": amqp.connections, "queues": all_queues.len(), "exchanges": exchanges,
    });
    let mut row = json!({
        "management_version": RABBITMQ_VERSION,
        "rates_mode": "basic",
        "product_name": "Postroad",
        "product_version": node.version,
        "rabbitmq_version": RABBITMQ_VERSION,
        "cluster_name": &*call.broker().cluster_id(),
        "erlang_version": "none",
        "erlang_full_version": "none: it is not written in Erlang",
        "disable_stats": false,
        "enable_queue_totals": true,
        "default_queue_type": "classic",
        "statistics_db_event_queue": 0,
        "cluster_tags": {},
        "node_tags": {},
        "node": name,
        "exchange_types": EXCHANGE_TYPES.map(|kind| json!({"name": kind, "enabled": true, "description": ""})),
        "listeners": listeners(call)?,
        "contexts": contexts(call)?,
        "churn_rates": {
            "connection_created": amqp.connections_opened,
            "connection_closed": amqp.connections_closed,
        },
    });
    if all_queues.len() <= HTTP_API_QUEUES_SUMMED_MAX {
        let sums = queues::sums(call, &all_queues).await;
        row["queue_totals"] = json!({
            "messages": sums.ready + sums.unacknowledged,
            "messages_ready": sums.ready,
            "messages_unacknowledged": sums.unacknowledged,
        });
        objects["consumers"] = sums.consumers.into();
    }
    row["object_totals"] = objects;
    let mut stats = Map::new();
    let (mut delivered, mut redelivered) = (0, 0);
    for shard in call.broker().vitals().shards {
        delivered += shard.leases.delivered;
        redelivered += shard.leases.redelivered;
    }
    for (name, count) in
        [("publish", amqp.records_received), ("deliver_get", delivered), ("redeliver", redelivered)]
    {
        if count > 0 && call.looks() {
            stats.insert(name.to_owned(), count.into());
        }
    }
    row["message_stats"] = Value::Object(stats);
    Ok(list::one(&call.query, row))
}

pub(in crate::api) async fn whoami(call: &Call) -> Outcome {
    let tags = call.caller.rights().tags().names();
    let row = json!({"name": call.user_name(), "tags": tags, "is_internal_user": true});
    Ok(Json(row).into_response())
}

pub(in crate::api) async fn version(_: &Call) -> Outcome {
    Ok(Json(RABBITMQ_VERSION).into_response())
}

pub(in crate::api) async fn cluster_name(call: &Call) -> Outcome {
    Ok(Json(json!({"name": &*call.broker().cluster_id()})).into_response())
}

/// All known flags are enabled.
pub(in crate::api) async fn enable_feature_flag(call: &Call) -> Outcome {
    match FEATURE_FLAGS.iter().any(|(name, _)| *name == call.arg("name")) {
        true => Ok(StatusCode::NO_CONTENT.into_response()),
        false => Err(ApiError::bad_request(format!(
            "there is no feature flag {} here",
            call.arg("name")
        ))),
    }
}

fn deprecated(
    features: impl Iterator<Item = (&'static str, &'static str, &'static str)>,
) -> Outcome {
    let row = |(name, phase, state)| {
        json!({
            "name": name, "deprecation_phase": phase, "state": state, "desc": "", "doc_url": "",
            "provided_by": "rabbit",
        })
    };
    Ok(Json(features.map(row).collect::<Vec<_>>()).into_response())
}

pub(in crate::api) async fn deprecated_features(_: &Call) -> Outcome {
    deprecated(DEPRECATED_FEATURES.into_iter())
}

/// Transient queues only: the use of channel-wide limits is not tracked.
pub(in crate::api) async fn deprecated_features_in_use(call: &Call) -> Outcome {
    let is_transient = |queue: &topology::Queue| !queue.durable && queue.owner.is_none();
    let is_used = call
        .topology
        .vhosts()
        .iter()
        .any(|vhost| vhost.queues().iter().any(|queue| is_transient(queue)));
    deprecated(
        DEPRECATED_FEATURES.into_iter().filter(|(name, ..)| is_used && *name == TRANSIENT_QUEUES),
    )
}

pub(in crate::api) async fn feature_flags(_: &Call) -> Outcome {
    let flags = FEATURE_FLAGS.map(|(name, stability)| {
        json!({
            "name": name, "state": "enabled", "stability": stability, "desc": name,
            "doc_url": "", "provided_by": "postroad",
        })
    });
    Ok(Json(flags).into_response())
}
