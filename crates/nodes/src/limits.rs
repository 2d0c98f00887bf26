//! Bounds of this crate: memory, sizes and times. A bound that a user can set has its default here and its setting in
//! the comment. The others keep one bad client from harming the others.

/// Nodes that may join below [`base::Level::REPLICAS`], where each has all shards; voters of the catalog from
/// there on.
pub(crate) const NODES_JOINED_MAX: usize = 5;
