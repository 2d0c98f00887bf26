//! Live client connections.

use base::limits::OPERATION_RECORDS_MAX;
use gateway::{Connection, Connections};
use operations::document::{ConnectionPage, ConnectionSummary, EmptyReply};

use crate::AdminError;

pub(crate) fn list(
    connections: &Connections,
    now_ms: i64,
    after: Option<u64>,
    connections_max: u32,
) -> ConnectionPage {
    let max = (connections_max as usize).clamp(1, OPERATION_RECORDS_MAX);
    let mut listed = connections.list(after, max + 1);
    let more = listed.len() > max;
    listed.truncate(max);
    let connections = listed.iter().map(|connection| summary(connection, now_ms)).collect();
    ConnectionPage { connections, more }
}

fn summary(connection: &Connection, now_ms: i64) -> ConnectionSummary {
    let told = |text: String| (!text.is_empty()).then_some(text);
    ConnectionSummary {
        id: connection.id(),
        protocol: connection.protocol().to_owned(),
        peer: connection.peer().to_string(),
        since_ms: now_ms - connection.age().as_millis() as i64,
        client: told(connection.client()),
        user: told(connection.user()),
    }
}

pub(crate) fn close(connections: &Connections, connection: u64) -> Result<EmptyReply, AdminError> {
    if !connections.close(connection) {
        let message = format!(
            "there is no connection {connection}; 'postroad connection list' names those there are"
        );
        return Err(AdminError::NotFound(message));
    }
    tracing::info!(session = connection, "an operator closes a connection");
    Ok(EmptyReply {})
}
