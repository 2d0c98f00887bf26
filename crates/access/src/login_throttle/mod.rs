//! Queues of log-ins, and delays after failed ones: guesses of passwords are slow, and cost other clients little.
//!
//! Depends on [`crate::audit`], which records failures.

mod failures;
mod fair_queue;
mod login_queue;

pub(crate) use failures::Failures;
pub(crate) use fair_queue::QueueFull;
pub(crate) use login_queue::LoginQueue;
