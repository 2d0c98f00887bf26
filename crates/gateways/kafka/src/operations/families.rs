//! Operations of other gateways. This module selects the family, passes the document on, and maps errors to
//! Kafka's codes.

use ::operations::family::{Effect, OperationError};
use kafka_protocol::error::ResponseError;
use serde_json::Value;

use super::{DocumentResult, invalid};
use crate::errors::Fault;
use crate::gateway::Gateway;

/// The effect of an operation. An unknown family or operation counts as a change.
pub(super) fn effect(gateway: &Gateway, family: &str, operation: &Value) -> Effect {
    let families = &gateway.options.families;
    let found = families.iter().find(|(name, _)| *name == family);
    let document = serde_json::to_vec(operation).unwrap_or_default();
    found.map_or(Effect::Change(String::new()), |(_, found)| found.effect(&document))
}

/// Whether the operation holds megabytes of stored data while it runs.
pub(super) fn holds_data(gateway: &Gateway, family: &str, operation: &Value) -> bool {
    let families = &gateway.options.families;
    let found = families.iter().find(|(name, _)| *name == family);
    let document = serde_json::to_vec(operation).unwrap_or_default();
    found.is_some_and(|(_, found)| found.holds_data(&document))
}

pub(super) async fn carry_out(
    gateway: &Gateway,
    family: &str,
    operation: &Value,
) -> DocumentResult {
    let families = &gateway.options.families;
    let Some((_, found)) = families.iter().find(|(name, _)| *name == family) else {
        return Err(invalid(format!("this node has no operations of {family}")));
    };
    let operation = serde_json::to_vec(operation)
        .map_err(|error| invalid(format!("the operation is no JSON: {error}")))?;
    found.carry_out(operation).await.map_err(|error| {
        let code = match &error {
            OperationError::Invalid(_) => ResponseError::InvalidRequest,
            OperationError::NotFound(_) => ResponseError::ResourceNotFound,
            OperationError::NotAllowed(_) => ResponseError::ClusterAuthorizationFailed,
            OperationError::Elsewhere(_) => ResponseError::NotCoordinator,
            OperationError::Unavailable(_) => ResponseError::RequestTimedOut,
            OperationError::Failed(_) => ResponseError::UnknownServerError,
        };
        Fault::new(code, error.to_string())
    })
}
