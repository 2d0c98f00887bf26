//! Bounds of this crate: memory, sizes and times. A bound that a user can set has its default here and its setting in
//! the comment. The others keep one bad client from harming the others.

/// Ready records of a partition that the delivery engine holds one by one, 40 bytes and more each; at times twice
/// as many. Other ready records are held as ranges or are not read yet.
pub(crate) const LEASE_READY_PER_PARTITION: usize = 4_096;
/// The same over all partitions of a group; beyond it each partition keeps a few.
pub(crate) const LEASE_READY_PER_GROUP: usize = 65_536;
/// Blocks of 64 offsets of ready records in a partition, 44 bytes each. With priorities a backlog is read to its
/// end as long as its kept records are scattered over no more blocks.
pub(crate) const LEASE_READY_CELLS_PER_PARTITION: usize = 1_000_000;
/// With priorities the best record may be the last. At most this many records are read before one is handed out. A
/// longer backlog is delivered while it is read.
pub(crate) const LEASE_READ_FIRST_PER_PARTITION: u64 = 65_536;
/// Records of a group that wait behind an earlier one of their key.
pub(crate) const LEASE_BLOCKED_PER_GROUP: usize = 262_144;
/// Delayed records of a group, 20 bytes each; a later one waits unread until some are due.
pub(crate) const LEASE_DELAYED_PER_GROUP: u64 = 50_000_000;
/// Dead letters of a group that are not appended yet.
pub(crate) const LEASE_DEAD_PER_GROUP: usize = 4_096;
/// Unsettled records of a group in one shard with counted attempts, about 26 bytes each on every replica.
pub(crate) const LEASE_ATTEMPTS_PER_GROUP: usize = 1_000_000;
/// Live leases of a group, about 120 bytes each: the credit of consumers that set none.
pub(crate) const LEASES_PER_GROUP: usize = 4_000_000;
/// Timers that one tick of a group looks at, so that many due at once do not hold up the rest.
pub(crate) const LEASE_TIMERS_PER_TICK: usize = 16_384;
