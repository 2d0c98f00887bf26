//! Bounds of this crate: memory, sizes and times. A bound that a user can set has its default here and its setting in
//! the comment. The others keep one bad client from harming the others.

use std::time::Duration;

/// A request to a shard's leader on another node has an unknown outcome without a reply in this time. Longer than
/// [`shard::limits::LEADERLESS_HOLD`]: that node may wait for a majority.
pub const REMOTE_ANSWERED_WITHIN: Duration = Duration::from_secs(10);
/// Backups that a node sends at a time.
pub const BACKUPS_SENT_MAX: usize = 2;
/// Messages of one channel in flight at once, and their bytes.
pub const MESSAGES_IN_FLIGHT_MAX: usize = 64;
pub const MESSAGE_BYTES_IN_FLIGHT_MAX: u64 = 8 << 20;
/// Messages of a shard that are read from its disk at once, at most one of each channel.
pub const MESSAGE_READS_IN_FLIGHT_MAX: usize = 16;
/// Messages received at the other end are acknowledged in the log after this time, several by one command. Sooner
/// if they are a quarter of an outbox.
pub const ACKNOWLEDGED_WITHIN: Duration = Duration::from_millis(200);
