//! Operations of a part of the node, such as the nodes of the cluster or one gateway.
//!
//! Operators talk to one service of the node, and some of their requests concern entities that only another part knows.
//! Each such part implements [`OperationFamily`], and the server passes it to that service. An operation is a document
//! that only the family reads. So the service in between does not know the family's terms, and a new operation is a
//! change in one crate.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// The document of a reply.
pub type OperationAnswer<'a> =
    Pin<Box<dyn Future<Output = Result<Vec<u8>, OperationError>> + Send + 'a>>;

/// Families by name.
pub type NamedFamilies = Vec<(&'static str, Arc<dyn OperationFamily>)>;

/// The operations of one part of the node.
pub trait OperationFamily: Send + Sync + Debug {
    /// Returns the effect of an operation, given as to [`OperationFamily::carry_out`].
    fn effect(&self, operation: &[u8]) -> Effect;

    /// Whether the operation holds megabytes of stored data while it runs. Few of them run at a time.
    fn holds_data(&self, _operation: &[u8]) -> bool {
        false
    }

    /// Carries out one operation. The operation is a JSON document that was bounded in size but not parsed; the reply is
    /// one, too.
    fn carry_out(&self, operation: Vec<u8>) -> OperationAnswer<'_>;
}

/// Effect of an operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    /// No change: everyone allowed to see the cluster may request it.
    Look,
    /// A change: only users allowed to change the cluster may request it. The text is logged and read by people: it
    /// has names, and no values. An invalid operation is a change with an empty text.
    Change(String),
}

/// Reason why an operation was not carried out, as a message to its user.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OperationError {
    /// The operation is invalid, or contradicts the present state.
    #[error("{0}")]
    Invalid(String),
    /// The subject of the operation does not exist.
    #[error("{0}")]
    NotFound(String),
    /// The user is not authorized.
    #[error("{0}")]
    NotAllowed(String),
    /// Another node has to be queried.
    #[error("{0}")]
    Elsewhere(String),
    /// The node cannot do it now.
    #[error("{0}")]
    Unavailable(String),
    /// The node failed to do it.
    #[error("{0}")]
    Failed(String),
}
