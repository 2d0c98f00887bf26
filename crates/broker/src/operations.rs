//! What operators ask of one gateway and another carries out.
//!
//! Operators talk to the one gateway that has a request for it, and some of what they ask is about
//! entities of another protocol. Gateways do not know each other, so each that has operations of its
//! own implements [`OperationFamily`], and the server gives it to the one that hears operators. The
//! decision that shapes it: an operation is a document that only the family reads, so that neither
//! the broker nor the gateway in between learns the other's words, and an operation more is a change
//! in one crate.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;

/// The document of an answer.
pub type OperationAnswer<'a> =
    Pin<Box<dyn Future<Output = Result<Vec<u8>, OperationError>> + Send + 'a>>;

/// The operations of one gateway.
pub trait OperationFamily: Send + Sync + Debug {
    /// What an operation is about to do, which comes as [`OperationFamily::carry_out`] gets it.
    fn effect(&self, operation: &[u8]) -> Effect;

    /// Whether the operation holds megabytes of stored data while it is carried out. Few of them run at a time.
    fn holds_data(&self, _operation: &[u8]) -> bool {
        false
    }

    /// Carries out one operation. It comes as a JSON document of at most
    /// [`base::limits::OPERATION_BYTES_MAX`] bytes, unread; the answer is one, too.
    fn carry_out(&self, operation: Vec<u8>) -> OperationAnswer<'_>;
}

/// What an operation does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Nothing: whoever may see the cluster may ask for it.
    Look,
    /// Only who may change the cluster may ask for it. In words, which are written and read by others: names, and no
    /// values. What makes no sense is a change, without words.
    Change(String),
}

/// Why an operation was not carried out, in words for whoever asked for it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OperationError {
    /// It makes no sense, or contradicts what is there.
    #[error("{0}")]
    Invalid(String),
    /// What it is about is not there.
    #[error("{0}")]
    NotFound(String),
    /// Whoever asked may not do that.
    #[error("{0}")]
    NotAllowed(String),
    /// Another node knows of it, which is to be asked.
    #[error("{0}")]
    Elsewhere(String),
    /// The node could not do it now.
    #[error("{0}")]
    Unavailable(String),
    /// The node could not do it.
    #[error("{0}")]
    Failed(String),
}
