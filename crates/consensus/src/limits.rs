//! Bounds of this crate: memory, sizes and times. A bound that a user can set has its default here and its setting in
//! the comment. The others keep one bad client from harming the others.

use std::time::Duration;

/// Limit of the changes that a restart has to replay, one to two microseconds each. At the limit the state is
/// saved, unless it is so large that saving it costs as much as it spares.
pub(crate) const REPLAYED_CHANGES_MAX: u64 = 500_000;
/// Bytes of entries that a leader sends in one message; a single larger entry makes one larger message.
pub(crate) const APPEND_BYTES_MAX: usize = 1 << 20;
/// Snapshot bytes that a node receives in a second, all its shards together, so that its disk can do its other
/// work.
pub(crate) const SNAPSHOT_BYTES_PER_SECOND: u64 = 112 << 20;
/// The largest state, and the longest list of live batches, that a member accepts from another one.
pub(crate) const SNAPSHOT_SECTION_BYTES_MAX: u64 = 8 << 30;
/// Snapshots that a member sends at a time, and how long it holds one that is not fetched.
pub(crate) const SNAPSHOTS_SENT_MAX: usize = 4;
pub(crate) const SNAPSHOT_HELD_FOR: Duration = Duration::from_secs(600);
/// A snapshot that was not fetched for this time makes room for another member's. A receiving member fetches every
/// few seconds. If its snapshot is no longer held, it restarts behind the parts that it has.
pub(crate) const SNAPSHOT_IDLE_AFTER: Duration = Duration::from_secs(30);
