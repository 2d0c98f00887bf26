//! Bounds of lease groups and of the deliveries to their consumers.

use std::time::Duration;

/// Lease groups in one shard.
pub const LEASE_GROUPS_MAX: usize = 1_000_000;
/// Partitions of lease groups in one shard, each group's counted: an idle one is 16 bytes.
pub const LEASE_GROUP_PARTITIONS_MAX: u64 = 8_000_000;
/// Bytes of deliveries that the sessions of a connection have not read: the bound of a client that reads nothing.
pub const LEASE_CONNECTION_UNREAD_BYTES_MAX: usize = 8 << 20;
/// Unread bytes of a node. Beyond it each connection is limited to the next bound.
pub const LEASE_NODE_UNREAD_BYTES_MAX: usize = 256 << 20;
/// Unread bytes that a connection may always have, whatever others leave unread.
pub const LEASE_CONNECTION_UNREAD_BYTES_ALWAYS: usize = 64 << 10;
/// Consumers of one session.
pub const LEASE_CONSUMERS_PER_SESSION_MAX: usize = 65_536;
/// Bytes of unpacked batches that a shard keeps for deliveries to point into.
pub const LEASE_BATCH_CACHE_BYTES: usize = 64 << 20;
/// Bytes of one read of the records to be delivered next.
pub const LEASE_READ_BYTES: usize = 1 << 20;
/// Unpacked size from which on no further batch of that read is unpacked.
pub const LEASE_READ_UNPACKED_BYTES: usize = 4 << 20;
/// Bytes of records that become dead letters in one request after overflow.
pub const OVERFLOW_BYTES_AT_ONCE: usize = 1 << 20;
/// Such reads in flight at once, in a shard.
pub const LEASE_READS_IN_FLIGHT_MAX: usize = 16;
/// Log entries of settles in flight at once, in a shard; meanwhile further settles are joined.
pub const SETTLES_IN_FLIGHT_MAX: usize = 2;
/// How long settles without a waiting client may wait for others: each of their log entries takes a disk write
/// from records that are to be confirmed.
pub const SETTLE_UNAWAITED_DELAY: Duration = Duration::from_millis(10);
/// Inputs that a shard's driver handles in one scheduling slot.
pub const LEASE_MESSAGES_PER_TURN: usize = 1_024;
pub const LEASE_GROUPS_PER_TURN: usize = 256;
/// Yield budget of a shard's driver. The piece of work in which it ends is completed first.
pub const LEASE_TURN_TIME: Duration = Duration::from_millis(1);
/// Dead letters that one log entry carries.
pub const DEAD_LETTERS_PER_ENTRY: usize = 1_000;
/// The driver forgets a lease group without users after this time.
pub const LEASE_GROUP_IDLE_MAX: Duration = Duration::from_secs(10);
/// Ready records of a partition that the delivery engine holds one by one, 40 bytes and more each; at times twice
/// as many. Other ready records are held as ranges or are not read yet.
pub const LEASE_READY_PER_PARTITION: usize = 4_096;
/// The same over all partitions of a group; beyond it each partition keeps a few.
pub const LEASE_READY_PER_GROUP: usize = 65_536;
/// Blocks of 64 offsets of ready records in a partition, 44 bytes each. With priorities a backlog is read to its
/// end as long as its kept records are scattered over no more blocks.
pub const LEASE_READY_CELLS_PER_PARTITION: usize = 1_000_000;
/// With priorities the best record may be the last. At most this many records are read before one is handed out. A
/// longer backlog is delivered while it is read.
pub const LEASE_READ_FIRST_PER_PARTITION: u64 = 65_536;
/// Batches of a topic with a limit in bytes, 16 bytes each, that are counted until the delivery engine has read
/// them. Beyond it the oldest, which are read next, are forgotten.
pub const LEASE_SEQUENCED_BATCHES_MAX: usize = 65_536;
/// Records of a group that wait behind an earlier one of their key.
pub const LEASE_BLOCKED_PER_GROUP: usize = 262_144;
/// Delayed records of a group, 20 bytes each; a later one waits unread until some are due.
pub const LEASE_DELAYED_PER_GROUP: u64 = 50_000_000;
/// Dead letters of a group that are not appended yet.
pub const LEASE_DEAD_PER_GROUP: usize = 4_096;
/// Unsettled records of a group in one shard with counted attempts, about 26 bytes each on every replica.
pub const LEASE_ATTEMPTS_PER_GROUP: usize = 1_000_000;
/// Live leases of a group, about 120 bytes each: the credit of consumers that set none.
pub const LEASES_PER_GROUP: usize = 4_000_000;
/// Timers that one tick of a group looks at, so that many due at once do not hold up the rest.
pub const LEASE_TIMERS_PER_TICK: usize = 16_384;
