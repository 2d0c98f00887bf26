//! Automatic deletion: leftovers of a restart or a crash at the start ([`recovery`]), entities of ended runs
//! ([`sweep`]) and unused queues ([`expiry`]). Depends on [`crate::changes`].

pub(crate) mod expiry;
pub(crate) mod recovery;
pub(crate) mod sweep;

pub use recovery::OpenError;
