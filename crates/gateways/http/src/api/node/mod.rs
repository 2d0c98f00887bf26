//! The node, its cluster, and its connections.

pub(super) mod channels;
pub(super) mod connections;
pub(super) mod health;
pub(super) mod nodes;
pub(super) mod overview;
