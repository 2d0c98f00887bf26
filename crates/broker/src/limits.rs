//! Bounds of this crate: memory, sizes and times. A bound that a user can set has its default here and its setting in
//! the comment. The others keep one bad client from harming the others.

use std::time::Duration;

use base::limits::NUMBERED_ROWS_KEPT;

/// Age limit of those entries. A consumer that comes later does not keep up. Idle queues are read from their
/// segments.
pub const TAIL_CACHE_AGE_MAX: Duration = Duration::from_secs(5);
/// A sync that takes longer than this is reported as hung.
pub const SYNC_HUNG_AFTER: Duration = Duration::from_secs(10);
/// Duration from which a write or sync is slow; from the second duration on the disk counts as stuck. Leadership
/// of its shards then moves to another node that makes progress, if there is one.
pub const DISK_SLOW_AFTER: Duration = Duration::from_millis(200);
pub const DISK_STUCK_AFTER: Duration = Duration::from_millis(500);
/// A node whose disk was stuck may lead again once the disk was not slow for this long.
pub const DISK_WELL_AFTER: Duration = Duration::from_secs(60);
/// A node with such a disk campaigns nevertheless once a shard had no leader for this long.
pub const STANDS_ANYWAY_AFTER: Duration = Duration::from_secs(1);
/// Proposals in flight in consensus. Requests that arrive meanwhile join the next one.
pub const PROPOSALS_IN_FLIGHT_MAX: usize = 8;
/// How long requests wait while the shard has no leader. Then they are rejected.
pub const LEADERLESS_HOLD: Duration = Duration::from_secs(5);
/// A request to a shard's leader on another node has an unknown outcome without a reply in this time. Longer than
/// [`LEADERLESS_HOLD`]: that node may wait for a majority.
pub const REMOTE_ANSWERED_WITHIN: Duration = Duration::from_secs(10);
/// A change of the catalog is confirmed after this time even if a shard has not adopted it: the shard may have no
/// leader.
pub const ADOPTED_WITHIN: Duration = Duration::from_secs(5);
/// Bytes of one command that settles records; more become several commands. Applying one takes some 10 ms, which
/// delays the entries behind it.
pub const SETTLE_COMMAND_BYTES_MAX: usize = 256 << 10;
/// Bytes of produce requests in a node, from decoded to durable; above it sockets are not read.
pub const PRODUCE_BYTES_IN_FLIGHT_MAX: usize = 64 << 20;
/// Scrub rate: the minimum, so that a pass ends; the maximum of the periodic scrub; and the rate of a scrub that
/// an operator requests.
pub const SCRUB_BYTES_PER_SECOND_MIN: u64 = 1 << 20;
pub const SCRUB_BYTES_PER_SECOND_MAX: u64 = 32 << 20;
pub const SCRUB_BYTES_PER_SECOND_ASKED: u64 = 64 << 20;
/// Backup bytes that a node sends in a second, so that its disk can do its other work.
pub const BACKUP_BYTES_PER_SECOND: u64 = 64 << 20;
/// Backups that a node sends at a time, and how long it holds one that is not fetched.
pub const BACKUPS_SENT_MAX: usize = 2;
pub const BACKUP_HELD_FOR: Duration = Duration::from_secs(60);
/// Log of a shard that is kept for a backup which does not fetch it.
pub const BACKUP_LOG_BYTES_MAX: u64 = 1 << 30;
/// Groups of consumers are spread over this many slots, and the slots over the shards.
pub const GROUP_SLOTS: u32 = 256;
/// Writes of the catalog are small.
pub const CATALOG_SEGMENT_BYTES: u64 = 16 << 20;
/// Messages of one channel in flight at once, and their bytes.
pub const MESSAGES_IN_FLIGHT_MAX: usize = 64;
pub const MESSAGE_BYTES_IN_FLIGHT_MAX: u64 = 8 << 20;
/// Messages of a shard that are read from its disk at once, at most one of each channel.
pub const MESSAGE_READS_IN_FLIGHT_MAX: usize = 16;
/// Messages received at the other end are acknowledged in the log after this time, several by one command. Sooner
/// if they are a quarter of an outbox.
pub const ACKNOWLEDGED_WITHIN: Duration = Duration::from_millis(200);
/// How long a message waits for room in an outbox. Then it is rejected.
pub const OUTBOX_HOLD: Duration = Duration::from_secs(5);
/// Bytes of units that wait for one outbox; one of any size may wait alone.
pub const OUTBOX_HELD_BYTES_MAX: usize = 32 << 20;
/// Changed documents that are listed for a watcher. Beyond it the watcher re-reads its spaces.
pub const DOCUMENT_CHANGES_NOTED_MAX: usize = 65_536;
// A consumer that a leader sends to a copy is not sent back at once.
const _: () = assert!(COPY_NEAR_ENTRIES_MAX < COPY_BEHIND_ENTRIES_MAX);

/// Requests are rejected after this time without a leader if no majority of the shard's voters is connected
/// either.
pub const MAJORITY_AWAITED_FOR: Duration = Duration::from_secs(1);
/// Pending proposals of a leader whose term ended are answered "outcome unknown" after this time. While a majority
/// is connected and has no leader yet, they wait for [`super::LEADERLESS_HOLD`].
pub const OUTCOME_AWAITED_FOR: Duration = Duration::from_secs(1);
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
/// How long a new leader waits for the leases of sessions on other nodes before it hands out records. A lease
/// presented later is invalid if its record was examined meanwhile.
pub const LEASES_PRESENTED_WITHIN: Duration = Duration::from_millis(500);
/// Leases that are presented in one message.
pub const LEASES_PRESENTED_TOGETHER: usize = 1_000;
/// An unused relay is closed after this time.
pub const RELAY_IDLE_MAX: Duration = Duration::from_secs(10);
/// The pause between two attempts to open a relay.
pub const RELAY_RETRY_EVERY: Duration = Duration::from_millis(50);
/// A consumer is sent to a near copy that lacks at most this many of the newest entries of its shard's log. It is
/// sent back once the copy lacks more than the second of these.
pub const COPY_NEAR_ENTRIES_MAX: u64 = 1_000;
pub const COPY_BEHIND_ENTRIES_MAX: u64 = 10_000;
/// Approximate size of a request that forwards appends to a shard's leader on another node, unless one append is
/// larger.
pub const FORWARDED_BYTES: usize = 1 << 20;
/// Rows of such a request. An append with more is split.
pub const FORWARDED_ROWS: usize = NUMBERED_ROWS_KEPT as usize;

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
/// Dead letters that one log entry carries.
pub const DEAD_LETTERS_PER_ENTRY: usize = 1_000;
/// The driver forgets a lease group without users after this time.
pub const LEASE_GROUP_IDLE_MAX: Duration = Duration::from_secs(10);
/// Batches of a topic with a limit in bytes, 16 bytes each, that are counted until the delivery engine has read
/// them. Beyond it the oldest, which are read next, are forgotten.
pub const LEASE_SEQUENCED_BATCHES_MAX: usize = 65_536;

pub const HISTORY_SESSIONS_KEPT: usize = 1_024;
/// Events of traced topics that wait to be written; further ones are dropped and counted.
pub const TRACED_STEPS_QUEUED_MAX: usize = 16_384;
/// How long they wait for others, so that a request to the log carries several.
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
