//! Live connections of this node, except HTTP: as in RabbitMQ, API clients are not listed, so that tools that close
//! all connections do not close their own.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::IntoResponse;
use futures_util::future::join_all;
use gateway::Connection;
use rabbitmq::live::SessionSeen;
use serde_json::{Value, json};

use crate::api::request::api_error::ApiError;
use crate::api::request::call::{Call, Outcome, node_name};
use crate::api::request::list;
use crate::api::request::values as typed;
use crate::limits::HTTP_API_SESSION_TELLS_WITHIN;

/// Connections of a node, in the order of their numbers.
const CONNECTIONS_MAX: usize = crate::limits::HTTP_API_ROWS_MAX;
/// Name of AMQP 0-9-1 in the gateways.
const AMQP: &str = "amqp";
const HTTP: &str = "http";
/// Default close reason sent to clients.
const CLOSE_REASON: &str = "Closed via management plugin";

/// An AMQP connection, with the state of its session if it was reported.
pub(in crate::api) struct LiveConnection {
    pub(in crate::api) connection: Connection,
    pub(in crate::api) name: String,
    pub(in crate::api) seen: Option<Arc<SessionSeen>>,
}

/// RabbitMQ's connection name: no two live connections have the same ends.
fn name(connection: &Connection) -> String {
    format!("{} -> {}", connection.peer(), connection.local())
}

/// Connections that the user may see: without the right to monitor, only its own.
fn visible(call: &Call) -> Vec<Connection> {
    let mut listed = call.front.options().connections.list(None, CONNECTIONS_MAX);
    listed.retain(|connection| connection.protocol() != HTTP);
    if !call.looks() {
        listed.retain(|connection| connection.user() == call.user_name());
    }
    listed
}

/// Number of AMQP connections that the user may see.
pub(in crate::api) fn count(call: &Call) -> u64 {
    visible(call).iter().filter(|it| it.protocol() == AMQP).count() as u64
}

async fn asked(connection: Connection) -> LiveConnection {
    let seen = match connection.protocol() {
        AMQP => connection.request_snapshot(HTTP_API_SESSION_TELLS_WITHIN).await,
        _ => None,
    };
    let seen = seen.and_then(|told| told.downcast::<SessionSeen>().ok());
    LiveConnection { name: name(&connection), connection, seen }
}

/// All visible AMQP connections. Their sessions are queried concurrently.
pub(super) async fn sessions(call: &Call) -> Vec<LiveConnection> {
    let connections = visible(call).into_iter().filter(|it| it.protocol() == AMQP);
    join_all(connections.map(asked)).await
}

/// Connection details of a channel or consumer.
pub(super) fn details(live: &LiveConnection) -> Value {
    let peer = live.connection.peer();
    json!({"name": live.name, "peer_host": peer.ip().to_string(), "peer_port": peer.port()})
}

fn row(call: &Call, live: &LiveConnection) -> Value {
    let LiveConnection { connection, name, seen } = live;
    let now_ms = call.broker().clock().now_ms();
    let age_ms = i64::try_from(connection.age().as_millis()).unwrap_or(i64::MAX);
    let mut row = json!({
        "name": name,
        "node": node_name(call.broker()),
        "protocol": match connection.protocol() { AMQP => "AMQP 0-9-1", other => other },
        "type": "network",
        "state": "running",
        "connected_at": now_ms.saturating_sub(age_ms),
        "peer_host": connection.peer().ip().to_string(),
        "peer_port": connection.peer().port(),
        "host": connection.local().ip().to_string(),
        "port": connection.local().port(),
        // The session id in the log and in the other interfaces of the node.
        "session": connection.id(),
        "client_properties": {},
        "user": connection.user(),
        // Tools expect a virtual host; only AMQP connections have one.
        "vhost": "",
    });
    let client = connection.client();
    if !client.is_empty() {
        row["client_properties"] = json!({"product": client});
    }
    let Some(seen) = seen else { return row };
    if let Some(vhost) = &seen.virtual_host {
        row["vhost"] = (&**vhost).into();
    }
    row["state"] = match (seen.is_closing, seen.is_blocked) {
        (true, _) => "closing".into(),
        (false, true) => "blocked".into(),
        (false, false) => "running".into(),
    };
    row["ssl"] = seen.encrypted.into();
    row["channels"] = seen.channels.len().into();
    row["channel_max"] = seen.channel_max.into();
    row["frame_max"] = seen.frame_bytes_max.into();
    row["timeout"] = seen.heartbeat.as_secs().into();
    if !seen.client_properties.is_empty() {
        row["client_properties"] = typed::json(&seen.client_properties);
    }
    let given = seen.client_properties.get("connection_name").and_then(values::Value::as_str);
    if let Some(given) = given {
        row["user_provided_name"] = given.into();
    }
    row
}

/// Selects by name first, so that only the listed sessions are queried.
async fn answer(call: &Call, connections: Vec<Connection>) -> Outcome {
    let named: Vec<(String, Connection)> =
        connections.into_iter().map(|it| (name(&it), it)).collect();
    let (found, chosen) = list::choose(&call.query, named, |(name, _)| name)?;
    let found = join_all(found.into_iter().map(|(_, connection)| asked(connection))).await;
    chosen.answer(found.iter().map(|live| row(call, live)).collect())
}

pub(in crate::api) async fn list(call: &Call) -> Outcome {
    answer(call, visible(call)).await
}

pub(in crate::api) async fn list_of_user(call: &Call) -> Outcome {
    let mut connections = visible(call);
    connections.retain(|connection| connection.user() == call.arg("user"));
    answer(call, connections).await
}

pub(in crate::api) async fn list_of_vhost(call: &Call) -> Outcome {
    let vhost = call.vhost().await?;
    let is_of = |live: &LiveConnection| {
        live.seen.as_ref().is_some_and(|seen| seen.virtual_host.as_deref() == Some(vhost.name()))
    };
    let found: Vec<LiveConnection> = sessions(call).await.into_iter().filter(is_of).collect();
    let (found, chosen) = list::choose(&call.query, found, |live| &live.name)?;
    chosen.answer(found.iter().map(|live| row(call, live)).collect())
}

fn find(call: &Call) -> Result<Connection, ApiError> {
    let found = visible(call).into_iter().find(|it| name(it) == call.arg("name"));
    found.ok_or_else(ApiError::not_found)
}

/// The connection in the path, with the state of its session.
pub(in crate::api) async fn found(call: &Call) -> Result<LiveConnection, ApiError> {
    Ok(asked(find(call)?).await)
}

pub(in crate::api) async fn one(call: &Call) -> Outcome {
    Ok(list::one(&call.query, row(call, &found(call).await?)))
}

fn reason(call: &Call) -> &str {
    let said = call.headers.get("x-reason").and_then(|it| it.to_str().ok());
    said.filter(|reason| !reason.is_empty()).unwrap_or(CLOSE_REASON)
}

fn end(call: &Call, connection: &Connection) -> bool {
    let reason = reason(call);
    let is_there = call.front.options().connections.close_because(connection.id(), reason);
    if is_there {
        let (by, session) = (call.user_name(), connection.id());
        tracing::info!(by, session, reason, "a connection is closed");
    }
    is_there
}

pub(in crate::api) async fn close(call: &Call) -> Outcome {
    match end(call, &find(call)?) {
        true => Ok(StatusCode::NO_CONTENT.into_response()),
        false => Err(ApiError::not_found()),
    }
}

/// Closes all connections of a user, which may have none.
pub(in crate::api) async fn close_of_user(call: &Call) -> Outcome {
    for connection in visible(call) {
        if connection.user() == call.arg("user") {
            end(call, &connection);
        }
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}
