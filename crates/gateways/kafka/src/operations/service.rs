//! The operations for callers that do not use this gateway's own request.

use std::sync::Arc;

use ::access::Rights;
use ::operations::family::OperationError;
use kafka_protocol::error::ResponseError::*;

use super::{carry_out, families, rights};
use crate::errors::Fault;
use crate::gateway::Gateway;

use ::operations::document::Operation;

/// Executes operations. Clones share the gateway.
#[derive(Clone, Debug)]
pub struct Operations(Arc<Gateway>);

impl Operations {
    pub(crate) fn of(gateway: &Arc<Gateway>) -> Self {
        Self(Arc::clone(gateway))
    }

    /// Executes an operation with the caller's rights. Returns the response's document.
    pub async fn carry_out(
        &self,
        asker: &Rights,
        operation: Operation,
    ) -> Result<Vec<u8>, OperationError> {
        self.check(asker, &operation)?;
        carry_out(&self.0, asker, operation).await.map_err(operation_error)
    }

    /// Whether this is the operator token of a node of the cluster.
    pub fn accept_operator_token(&self, token: &str) -> bool {
        self.0.options.nodes.accept_operator_token(token)
    }

    /// Checks that the caller may execute the operation, without executing it.
    pub fn check(&self, asker: &Rights, operation: &Operation) -> Result<(), OperationError> {
        let effect = |family: &str, operation: &_| families::effect(&self.0, family, operation);
        rights::check(asker, operation, effect).map_err(operation_error)
    }
}

/// Maps a fault to an error without Kafka's codes.
fn operation_error(fault: Fault) -> OperationError {
    let message = fault.message().map_or_else(|| fault.error.to_string(), str::to_owned);
    match fault.error {
        TopicAuthorizationFailed | GroupAuthorizationFailed | ClusterAuthorizationFailed => {
            OperationError::NotAllowed(message)
        }
        UnknownTopicOrPartition | UnknownTopicId | GroupIdNotFound | ResourceNotFound => {
            OperationError::NotFound(message)
        }
        NotCoordinator => OperationError::Elsewhere(message),
        NotLeaderOrFollower
        | NotController
        | CoordinatorNotAvailable
        | CoordinatorLoadInProgress
        | RequestTimedOut => OperationError::Unavailable(message),
        UnknownServerError | KafkaStorageError => OperationError::Failed(message),
        // All other codes mean an invalid operation.
        _ => OperationError::Invalid(message),
    }
}
