//! Bounds of this crate: memory, sizes and times. A bound that a user can set has its default here and its setting in
//! the comment.

use std::time::Duration;

/// Age limit of records in the cache of the newest ones. A consumer that comes later does not keep up. Idle queues are
/// read from their segments.
pub const TAIL_CACHE_AGE_MAX: Duration = Duration::from_secs(5);
/// A sync that takes longer than this is reported as hung.
pub const SYNC_HUNG_AFTER: Duration = Duration::from_secs(10);
/// Scrub rate: the minimum, so that a pass ends; the maximum of the periodic scrub; and the rate of a scrub that
/// an operator requests.
pub const SCRUB_BYTES_PER_SECOND_MIN: u64 = 1 << 20;
pub const SCRUB_BYTES_PER_SECOND_MAX: u64 = 32 << 20;
pub const SCRUB_BYTES_PER_SECOND_REQUESTED: u64 = 64 << 20;
/// Backup bytes that a node sends in a second, so that its disk can do its other work.
pub const BACKUP_BYTES_PER_SECOND: u64 = 64 << 20;
/// How long a node holds a backup that is not fetched.
pub const BACKUP_HELD_FOR: Duration = Duration::from_secs(60);
/// Log of a shard that is kept for a backup which does not fetch it.
pub const BACKUP_LOG_BYTES_MAX: u64 = 1 << 30;
