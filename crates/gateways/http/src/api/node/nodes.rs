//! This node. The other nodes of a cluster report for themselves.

use axum::Json;
use axum::response::IntoResponse;
use serde_json::{Value, json};

use crate::api::request::api_error::ApiError;
use crate::api::request::call::{Call, Outcome, node_name};
use crate::api::request::list;

/// RabbitMQ's plugins with equivalent features.
const PLUGINS: [&str; 4] = [
    "rabbitmq_consistent_hash_exchange",
    "rabbitmq_delayed_message_exchange",
    "rabbitmq_management",
    "rabbitmq_management_agent",
];

pub(super) fn listeners(call: &Call) -> Result<Vec<Value>, ApiError> {
    let node = node_name(call.broker());
    let of = |port: &crate::front::ListeningPort| {
        json!({
            "node": node, "protocol": port.protocol, "ip_address": port.address.ip().to_string(),
            "port": port.address.port(), "socket_opts": [],
        })
    };
    Ok(call.node()?.listening.iter().map(of).collect())
}

/// Listeners of this API.
pub(super) fn contexts(call: &Call) -> Result<Vec<Value>, ApiError> {
    let node = node_name(call.broker());
    let of_http = call.node()?.listening.iter().filter(|it| it.protocol.starts_with("http"));
    let of = |port: &crate::front::ListeningPort| {
        json!({
            "node": node, "description": "RabbitMQ Management", "path": "/",
            "ip": port.address.ip().to_string(), "port": port.address.port().to_string(),
            "protocol": port.protocol, "ssl_opts": [], "cowboy_opts": [],
        })
    };
    Ok(of_http.map(of).collect())
}

fn row(call: &Call) -> Result<Value, ApiError> {
    let broker = call.broker();
    let vitals = broker.vitals();
    let process = (call.node()?.process)();
    let mut row = json!({
        "name": node_name(broker),
        "type": "disc",
        "running": true,
        "processors": std::thread::available_parallelism().map_or(1, usize::from),
        "being_drained": call.front.is_draining(),
        "partitions": [],
        "rates_mode": "basic",
        "enabled_plugins": PLUGINS,
        "mem_alarm": false,
        "disk_free_alarm": vitals.shards.iter().any(|shard| shard.is_full),
        "applications": [],
        "contexts": contexts(call)?,
    });
    if let Ok(storage) = broker.storage() {
        row["disk_free"] = storage.free_bytes.into();
    }
    for (name, seen) in [
        ("mem_used", process.resident_bytes),
        ("fd_used", process.open_files),
        ("fd_total", process.open_files_max),
    ] {
        if let Some(seen) = seen {
            row[name] = seen.into();
        }
    }
    Ok(row)
}

pub(in crate::api) async fn list(call: &Call) -> Outcome {
    let (items, chosen) = list::choose(&call.query, vec![row(call)?], |row| {
        row["name"].as_str().unwrap_or_default()
    })?;
    chosen.answer(items)
}

/// Checks that the path names this node.
fn is_this(call: &Call) -> Result<(), ApiError> {
    match call.arg("name") == node_name(call.broker()) {
        true => Ok(()),
        false => Err(ApiError::not_found()),
    }
}

pub(in crate::api) async fn one(call: &Call) -> Outcome {
    is_this(call)?;
    Ok(list::one(&call.query, row(call)?))
}

/// Memory by use is not measured; RabbitMQ has a value for that, too.
pub(in crate::api) async fn memory(call: &Call) -> Outcome {
    is_this(call)?;
    Ok(Json(json!({ "memory": "not_available" })).into_response())
}

/// Log-ins are not counted by protocol.
pub(in crate::api) async fn log_ins(call: &Call) -> Outcome {
    is_this(call)?;
    Ok(Json(json!([])).into_response())
}
