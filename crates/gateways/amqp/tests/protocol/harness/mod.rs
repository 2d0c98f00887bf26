//! A node and clients for the tests.

mod client;
mod messages;
mod node;

use std::time::Duration;

pub(crate) use client::{Client, client_properties};
pub(crate) use messages::table;
pub(crate) use node::{Node, user};

/// Longer than any step of a test, shorter than a hang.
pub(crate) const SOON: Duration = Duration::from_secs(20);
/// Long enough to assert that no frame arrives.
pub(crate) const A_WHILE: Duration = Duration::from_millis(150);
