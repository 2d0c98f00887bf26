//! Changes of a virtual host's entities. Each is planned from memory, and [`commit`] makes it by one command of the
//! log. Depends on [`crate::virtual_host`], and on [`crate::projection`], which updates memory after a commit.

mod bindings;
mod commit;
mod exchanges;
mod metadata;
mod policies;
mod queues;
pub(crate) mod uses;

use documents::StoreError;

use crate::error::ChangeError;
pub use bindings::BindingRequest;
pub(crate) use commit::{AttemptOutcome, Attempts};

/// Ignores all errors but those of the store: an entity to be cleaned up may be gone with its vhost.
fn unless_gone(deleted: Result<(), ChangeError>) -> Result<(), StoreError> {
    match deleted {
        Err(ChangeError::Store(error)) => Err(error),
        _ => Ok(()),
    }
}

fn refuse_default(exchange: &str) -> Result<(), ChangeError> {
    if exchange.is_empty() { Err(ChangeError::DefaultExchange) } else { Ok(()) }
}
