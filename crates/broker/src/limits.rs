//! Bounds of this crate: memory, sizes and times. A bound that a user can set has its default here and its setting in
//! the comment. The others keep one bad client from harming the others.

use std::time::Duration;

use base::limits::NUMBERED_ROWS_KEPT;

/// Duration from which a write or sync is slow; from the second duration on the disk counts as stuck. Leadership
/// of its shards then moves to another node that makes progress, if there is one.
pub const DISK_SLOW_AFTER: Duration = Duration::from_millis(200);
pub const DISK_STUCK_AFTER: Duration = Duration::from_millis(500);
/// A node whose disk was stuck may lead again once the disk was not slow for this long.
pub const DISK_WELL_AFTER: Duration = Duration::from_secs(60);
/// A node with such a disk campaigns nevertheless once a shard had no leader for this long.
pub const CAMPAIGNS_ANYWAY_AFTER: Duration = Duration::from_secs(1);
/// A change of the catalog is confirmed after this time even if a shard has not adopted it: the shard may have no
/// leader.
pub const ADOPTED_WITHIN: Duration = Duration::from_secs(5);
/// Time limit for the reply of a node about the history of a record.
pub const HISTORY_WITHIN: Duration = Duration::from_secs(2);
/// Bytes of produce requests in a node, from decoded to durable; above it sockets are not read.
pub const PRODUCE_BYTES_IN_FLIGHT_MAX: usize = 64 << 20;
/// Groups of consumers are spread over this many slots, and the slots over the shards.
pub const GROUP_SLOTS: u32 = 256;
/// Writes of the catalog are small.
pub const CATALOG_SEGMENT_BYTES: u64 = 16 << 20;
/// A consumer is sent to a near copy that lacks at most this many of the newest entries of its shard's log. It is
/// sent back once the copy lacks more than the second of these.
pub const COPY_NEAR_ENTRIES_MAX: u64 = 1_000;
pub const COPY_BEHIND_ENTRIES_MAX: u64 = 10_000;
// A consumer that a leader sends to a copy is not sent back at once.
const _: () = assert!(COPY_NEAR_ENTRIES_MAX < COPY_BEHIND_ENTRIES_MAX);
/// Approximate size of a request that forwards appends to a shard's leader on another node, unless one append is
/// larger.
pub const FORWARDED_BYTES: usize = 1 << 20;
/// Rows of such a request. An append with more is split.
pub const FORWARDED_ROWS: usize = NUMBERED_ROWS_KEPT as usize;

/// How long events of traced topics wait for others, so that a request to the log carries several.
pub const TRACED_STEPS_WRITTEN_EVERY: Duration = Duration::from_millis(100);
pub const TRACED_STEPS_AT_ONCE_MAX: usize = 1_000;
/// Bytes of them in one batch, before it is compressed.
pub const TRACED_BATCH_BYTES: usize = 256 << 10;
/// Ranges written for one event of a topic that traces a share of its records.
pub const TRACED_RUNS_OF_STEP_MAX: usize = 100;
/// Write attempts, after which the events are counted as dropped.
pub const TRACED_TRIES_MAX: usize = 10;
/// Retention of the trace topic in time and bytes, unless an administrator sets something else.
pub const TRACED_KEPT_MS: i64 = 7 * 24 * 60 * 60 * 1000;
pub const TRACED_KEPT_BYTES: i64 = 1 << 30;
/// Bytes read of that topic for one record, the time limit of a read, and concurrent reads.
pub const TRACED_READ_BYTES_MAX: usize = 16 << 20;
pub const TRACED_READ_WITHIN: Duration = Duration::from_millis(500);
pub const TRACED_READS_AT_ONCE: usize = 2;
/// The read begins this long before a record's own timestamp: clients' clocks may be ahead.
pub const TRACED_READ_FROM_BEFORE_MS: i64 = 60 * 60 * 1000;
