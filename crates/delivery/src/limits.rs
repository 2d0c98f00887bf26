//! Bounds of this crate: memory, sizes and times. A bound that a user can set has its default here and its setting in
//! the comment. The others keep one bad client from harming the others.

use std::time::Duration;

/// Bytes of one command that settles records; more become several commands. Applying one takes some 10 ms, which
/// delays the entries behind it.
pub const SETTLE_COMMAND_BYTES_MAX: usize = 256 << 10;
pub const RELAY_BATCH_ITEMS_MAX: usize = 4_096;
/// Size limit of a batch apart from records: the settles of a large transaction must fit.
pub const RELAY_HEAD_BYTES_MAX: usize = 16 << 20;
/// Batches that are not acknowledged, in each direction.
pub const RELAY_BATCHES_IN_FLIGHT: usize = 2;
/// Bytes of unanswered requests at which the leader acknowledges no further batches: about 256 bytes each, and the
/// records to be appended.
pub const RELAY_UNANSWERED_BYTES_MAX: usize = 32 << 20;
/// Byte limit of one remote fetch of leased records. A single larger record is still returned.
pub const RELAY_TAKE_BYTES_MAX: u64 = 8 << 20;
/// Sessions of one node that a shard's leader has open: as many as the node has channels.
pub const RELAY_SESSIONS_MAX: usize = 1_000_000;
/// Keep-alive interval of a relay, and the silence after which it ends.
pub const RELAY_SIGN_EVERY: Duration = Duration::from_secs(2);
pub const RELAY_SILENT_AFTER: Duration = Duration::from_secs(5);
/// How long a new leader waits for the leases of sessions on connected nodes before it hands out records. A lease
/// presented later is invalid if its record was examined meanwhile. A silent connection ends before.
pub const LEASES_PRESENTED_WITHIN: Duration = Duration::from_secs(2);
/// Interval at which it checks which nodes are connected.
pub const PRESENTING_NODES_EVERY: Duration = Duration::from_millis(50);
/// How long the leader keeps the leases of another node's sessions without a relay, unless that node's process looks
/// gone. A node that lives begins the next relay at once.
pub const RELAY_RESUMED_WITHIN: Duration = Duration::from_secs(2);
/// Interval at which it checks whether that process looks gone.
pub const RELAY_PROCESS_CHECKED_EVERY: Duration = Duration::from_millis(50);
/// Leases that are presented in one message.
pub const LEASES_PRESENTED_TOGETHER: usize = 1_000;
/// An unused relay is closed after this time.
pub const RELAY_IDLE_MAX: Duration = Duration::from_secs(10);
/// The pause between two attempts to open a relay.
pub const RELAY_RETRY_EVERY: Duration = Duration::from_millis(50);
/// Consumers of one session.
pub const LEASE_CONSUMERS_PER_SESSION_MAX: usize = 65_536;
/// Bytes of unpacked batches that a shard keeps for deliveries to point into.
pub const LEASE_BATCH_CACHE_BYTES: usize = 64 << 20;
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
/// How long the first delivery of a term waits for shards without a leader, which may have decided on transfers with
/// records of this shard.
pub const FENCED_WITHIN: Duration = Duration::from_secs(2);
/// How long records that a transfer over several shards withholds wait for its decision once its session has ended.
/// After that the other shards refuse it.
pub const DECIDED_WITHIN: Duration = Duration::from_secs(1);
/// Dead letters that one log entry carries.
pub const DEAD_LETTERS_PER_ENTRY: usize = 1_000;
/// The driver forgets a lease group without users after this time.
pub const LEASE_GROUP_IDLE_MAX: Duration = Duration::from_secs(10);
