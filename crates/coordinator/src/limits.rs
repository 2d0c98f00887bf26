//! Bounds of this crate: memory, sizes and times. A bound that a user can set has its default here and its setting in
//! the comment. The others keep one bad client from harming the others.

/// Groups with known members, all together; more groups may have committed offsets.
pub(crate) const GROUPS_MAX: usize = 100_000;
/// Memory of the members of all groups: subscriptions, assignments, ids.
pub(crate) const GROUPS_BYTES_MAX: usize = 256 << 20;
/// Compiled size of a pattern that a member subscribes with, and its length as text.
pub(crate) const SUBSCRIPTION_PATTERN_COMPILED_BYTES_MAX: usize = 1 << 20;
pub(crate) const SUBSCRIPTION_PATTERN_BYTES_MAX: usize = 1024;
/// Tasks of one Streams group: its subtopologies times the partitions that each reads.
pub(crate) const STREAMS_TASKS_MAX: u64 = 20_000;
