//! Live client connections.

use base::limits::OPERATION_RECORDS_MAX;
use gateway::Connection;
use kafka_protocol::error::ResponseError;

use crate::errors::Fault;
use crate::gateway::Gateway;

use ::operations::document::{ConnectionPage, ConnectionSummary, EmptyReply};

pub(super) fn list(
    gateway: &Gateway,
    after: Option<u64>,
    connections_max: u32,
) -> Result<ConnectionPage, Fault> {
    let max = (connections_max as usize).clamp(1, OPERATION_RECORDS_MAX);
    let now_ms = gateway.broker.clock().now_ms();
    let mut connections = gateway.options.connections.list(after, max + 1);
    let more = connections.len() > max;
    connections.truncate(max);
    let connections = connections.iter().map(|connection| summary(connection, now_ms)).collect();
    Ok(ConnectionPage { connections, more })
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

pub(super) fn close(gateway: &Gateway, connection: u64) -> Result<EmptyReply, Fault> {
    if !gateway.options.connections.close(connection) {
        let message = format!(
            "there is no connection {connection}; 'postroad connection list' names those there are"
        );
        return Err(Fault::new(ResponseError::ResourceNotFound, message));
    }
    tracing::info!(session = connection, "an operator closes a connection");
    Ok(EmptyReply {})
}
