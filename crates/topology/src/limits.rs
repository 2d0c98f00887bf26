//! Bounds of this crate: memory, sizes and times. A bound that a user can set has its default here and its setting in
//! the comment. The others keep one bad client from harming the others.

use std::time::Duration;

/// State that does not survive a restart of a node is deleted by the other nodes once the node was disconnected
/// for so long.
pub(crate) const RUN_GONE_AFTER: Duration = Duration::from_secs(30);
