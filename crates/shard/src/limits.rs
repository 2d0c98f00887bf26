//! Bounds of this crate: memory, sizes and times. A bound that a user can set has its default here and its setting in
//! the comment. The others keep one bad client from harming the others.

use std::time::Duration;

/// Proposals in flight in consensus. Requests that arrive meanwhile join the next one.
pub const PROPOSALS_IN_FLIGHT_MAX: usize = 8;
/// How long requests wait while the shard has no leader. Then they are rejected.
pub const LEADERLESS_HOLD: Duration = Duration::from_secs(5);
/// How long a message waits for room in an outbox. Then it is rejected.
pub const OUTBOX_HOLD: Duration = Duration::from_secs(5);
/// Bytes of units that wait for one outbox; one of any size may wait alone.
pub const OUTBOX_HELD_BYTES_MAX: usize = 32 << 20;
/// Changed documents that are listed for a watcher. Beyond it the watcher re-reads its spaces.
pub const DOCUMENT_CHANGES_NOTED_MAX: usize = 65_536;
/// Requests are rejected after this time without a leader if no majority of the shard's voters is connected
/// either.
pub const MAJORITY_AWAITED_FOR: Duration = Duration::from_secs(1);
/// Pending proposals of a leader whose term ended are answered "outcome unknown" after this time. While a majority
/// is connected and has no leader yet, they wait for [`LEADERLESS_HOLD`].
pub const OUTCOME_AWAITED_FOR: Duration = Duration::from_secs(1);
/// Memory of an id, as counted for `dedup.memory.max.bytes`: 32 bytes, and its part of a hash table.
pub const DEDUP_BYTES_PER_ID: u64 = 40;
/// Ids in one entry that were not appended by it: ids of a partition that moves, or ids learned from the log.
pub const DEDUP_IDS_PER_ENTRY: usize = 20_000;
/// Records with an id in one batch, about 18 bytes each in addition to the batch in its entry. A larger batch is
/// rejected.
pub const DEDUP_IDS_PER_BATCH_MAX: usize = 400_000;
/// Bytes of deliveries that the sessions of a connection have not read: the bound of a client that reads nothing.
pub const LEASE_CONNECTION_UNREAD_BYTES_MAX: usize = 8 << 20;
/// Unread bytes of a node. Beyond it each connection is limited to the next bound.
pub const LEASE_NODE_UNREAD_BYTES_MAX: usize = 256 << 20;
/// Unread bytes that a connection may always have, whatever others leave unread.
pub const LEASE_CONNECTION_UNREAD_BYTES_ALWAYS: usize = 64 << 10;
/// Batches of a topic with a limit in bytes, 16 bytes each, that are counted until the delivery engine has read
/// them. Beyond it the oldest, which are read next, are forgotten.
pub const LEASE_SEQUENCED_BATCHES_MAX: usize = 65_536;
pub const HISTORY_SESSIONS_KEPT: usize = 1_024;
/// Events of traced topics that wait to be written; further ones are dropped and counted.
pub const TRACED_STEPS_QUEUED_MAX: usize = 16_384;
