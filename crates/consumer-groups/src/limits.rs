//! Bounds of this crate: memory, sizes and times. A bound that a user can set has its default here and its setting in
//! the comment. The others keep one bad client from harming the others.

use std::time::Duration;

/// Groups with committed offsets per query: it delays appends meanwhile.
pub const GROUPS_PER_LOOK: usize = 500;
/// How often expired offsets are looked for (Kafka's `offsets.retention.check.interval.ms`).
pub const OFFSETS_RETENTION_CHECK_INTERVAL: Duration = Duration::from_secs(10 * 60);
