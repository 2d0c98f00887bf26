//! Bounds of this crate: memory, sizes and times. A bound that a user can set has its default here and its setting in
//! the comment. The others keep one bad client from harming the others.

/// Queues whose leased records are queried, and groups whose oldest record is looked up, for an overview.
pub(crate) const OVERVIEW_ASKED_MAX: usize = 256;
/// Committed offsets that are counted for an overview.
pub(crate) const OVERVIEW_OFFSETS_MAX: usize = 200_000;
