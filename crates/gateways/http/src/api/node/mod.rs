//! The node, its cluster, and its connections. The overview counts the queues of `messaging`.

pub(super) mod channels;
pub(super) mod connections;
pub(super) mod health;
pub(super) mod nodes;
pub(super) mod overview;
