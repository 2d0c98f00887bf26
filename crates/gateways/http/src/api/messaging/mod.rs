//! Objects of applications: exchanges, queues, bindings and messages.

pub(super) mod bindings;
pub(super) mod exchanges;
pub(super) mod messages;
pub(super) mod queues;
