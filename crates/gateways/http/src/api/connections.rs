//! Live connections of this node, of every protocol.

use axum::http::StatusCode;
use axum::response::IntoResponse;
use gateway::Connection;
use serde_json::{Value, json};

use super::call::{Call, Outcome};
use super::list;
use super::nodes::node_name;
use super::refused::Refused;

/// Of a node, in the order of their numbers.
const CONNECTIONS_MAX: usize = base::limits::HTTP_API_ROWS_MAX;

/// Nothing else of a connection is without spaces and the same for as long as it lives.
fn name(connection: &Connection) -> String {
    format!("{} #{}", connection.peer(), connection.id())
}

fn row(call: &Call, connection: &Connection) -> Value {
    let now_ms = call.broker().clock().now_ms();
    let age_ms = i64::try_from(connection.age().as_millis()).unwrap_or(i64::MAX);
    let mut row = json!({
        "name": name(connection),
        "node": node_name(call.broker()),
        "protocol": match connection.protocol() { "amqp" => "AMQP 0-9-1", other => other },
        "state": "running",
        "connected_at": now_ms.saturating_sub(age_ms),
        "peer_host": connection.peer().ip().to_string(),
        "peer_port": connection.peer().port(),
        "client_properties": {},
        "user": connection.user(),
    });
    let client = connection.client();
    if !client.is_empty() {
        row["client_properties"] = json!({"product": client});
    }
    row
}

fn all(call: &Call) -> Vec<(String, Connection)> {
    let listed = call.front.options().connections.list(None, CONNECTIONS_MAX);
    listed.into_iter().map(|it| (name(&it), it)).collect()
}

pub(super) async fn list(call: &Call) -> Outcome {
    let (found, chosen) = list::choose(&call.query, all(call), |(name, _)| name)?;
    chosen.answer(found.iter().map(|(_, connection)| row(call, connection)).collect())
}

fn find(call: &Call) -> Result<Connection, Refused> {
    let found = all(call).into_iter().find(|(name, _)| name == call.arg("name"));
    found.map(|(_, connection)| connection).ok_or_else(Refused::not_found)
}

pub(super) async fn one(call: &Call) -> Outcome {
    Ok(list::one(&call.query, row(call, &find(call)?)))
}

pub(super) async fn close(call: &Call) -> Outcome {
    let connection = find(call)?;
    let reason = call.headers.get("x-reason").and_then(|it| it.to_str().ok()).unwrap_or_default();
    if !call.front.options().connections.close(connection.id()) {
        return Err(Refused::not_found());
    }
    tracing::info!(
        by = call.user_name(),
        session = connection.id(),
        reason,
        "a connection is closed"
    );
    Ok(StatusCode::NO_CONTENT.into_response())
}
