//! Bounds that several crates share. Each crate has its own in its module `limits`; docs/internals/bounds.md describes
//! the budgets of a node. A bound that a user can set has its default here and its setting in the comment. The others keep one bad client
//! from harming the others.

use std::time::Duration;

// ---------------------------------------------------------------------------- records, batches

/// Largest batch that a topic accepts unless its `max.message.bytes` says otherwise (Kafka's default).
pub const BATCH_BYTES_DEFAULT: u32 = 1_048_588;
/// Largest value that `max.message.bytes` may have: a batch must fit a frame and a request.
pub const BATCH_BYTES_MAX: u32 = 64 << 20;
/// Decompressed size limit of a batch from a producer: 64 times the default batch limit of a topic. A
/// decompression bomb is rejected before it is unpacked. The producer gets the error for a too large message,
/// which makes clients split the batch.
pub const PRODUCED_UNPACKED_BYTES_MAX: usize = 64 << 20;
/// Decompressed size limit of a stored batch.
pub const BATCH_DECOMPRESSED_BYTES_MAX: usize = 256 << 20;
/// Records in one batch; the count is an `i32` on the wire.
pub const BATCH_RECORDS_MAX: u32 = 4_000_000;
/// Rejected records of one request that the response names (6 bytes each). Further records are rejected without
/// being named. The stock clients' largest batches have 10,000 records by default.
pub const REFUSED_RECORDS_NAMED_MAX: usize = 100_000;

// ------------------------------------------------------------------------------------- journal

/// Size of a journal segment (`--segment-bytes`).
pub const SEGMENT_BYTES_DEFAULT: u64 = 128 << 20;
pub const SEGMENT_BYTES_MIN: u64 = 1 << 20;
/// Positions in a segment are 32 bits.
pub const SEGMENT_BYTES_MAX: u64 = 2 << 30;
/// Size limit of one group commit: keeps a sync short and a torn tail small.
pub const FRAME_BYTES_MAX: usize = 8 << 20;
/// Bytes accepted by the journal and not yet durable; above it producers wait.
pub const JOURNAL_QUEUED_BYTES_MAX: usize = 64 << 20;
/// Free bytes on the journal's file system below which produce is refused (`--disk-reserve`).
pub const DISK_RESERVE_BYTES_DEFAULT: u64 = 256 << 20;

// --------------------------------------------------------------------------------------- shard

/// A node whose copy of the catalog cannot be shown to be current within this time does not report that an item is
/// absent. A reader does not begin in a partition whose copy cannot be shown to be current.
pub const BARRIER_WITHIN: Duration = Duration::from_secs(5);
/// Wait for current copies before an estimate (metrics, `postroad top`) is computed from the node's own copies.
pub const ESTIMATE_WITHIN: Duration = Duration::from_secs(1);
/// Approximate memory of a row of a batch while its entry is in flight: its descriptor, its reply, and its parts
/// in the machine and the index.
pub const ENTRY_ROW_BYTES: usize = 128;
/// Bytes of batches in one proposal.
pub const PROPOSAL_BYTES_MAX: usize = 4 << 20;
/// Batches that are unpacked, packed or decoded at the same time, away from the threads of sockets.
/// Each may hold [`PRODUCED_UNPACKED_BYTES_MAX`].
pub const CPU_JOBS_MAX: usize = 4;

// --------------------------------------------------------------------------------------- group

/// Entries in one message, and size limit of a message that is decoded: the largest batch in an entry, with
/// everything that may be proposed together with it.
pub const APPEND_ENTRIES_MAX: usize = 4_096;
pub const APPEND_MESSAGE_BYTES_MAX: usize = BATCH_BYTES_MAX as usize + 2 * PROPOSAL_BYTES_MAX;
/// Size limit of the head before the entries of a message, and of every other message of a group.
pub const GROUP_MESSAGE_BYTES_MAX: usize = 1 << 10;
/// Messages with entries that one follower has not acknowledged, and their bytes. The receiver enforces the limit
/// too: it bounds the appends that a vote waits for.
pub const APPENDS_IN_FLIGHT_MAX: usize = 4;
pub const APPEND_BYTES_IN_FLIGHT_MAX: usize = 8 << 20;
/// Bytes of log that a snapshot covers and that are kept for members without these entries.
pub const KEPT_LOG_BYTES_MAX: u64 = 1 << 30;
/// Size limit of one piece requested of a snapshot in transfer; a larger batch is sent alone.
pub const SNAPSHOT_PIECE_BYTES: usize = 1 << 20;
/// Time between two passes.
pub const SCRUB_INTERVAL_DEFAULT: Duration = Duration::from_secs(7 * 86_400);

// ------------------------------------------------------------------------------------- catalog

pub const TOPIC_NAME_BYTES_MAX: usize = 249;
pub const PARTITIONS_PER_TOPIC_MAX: u32 = 1_000_000;
/// The same for new topics and new partitions. librdkafka rejects all metadata of a cluster with a larger topic.
pub const NEW_TOPIC_PARTITIONS_MAX: u32 = 100_000;

// -------------------------------------------------------------------------------------- groups

/// Largest number of shards with records that a node creates at founding.
pub const SHARDS_MAX: u32 = 256;

// ------------------------------------------------------------------------------------ channels

/// Messages that a shard has sent to another one without an acknowledgement: their number, and the bytes of their
/// batches and of the names of their target partitions. Further messages wait. A message of any size fits an empty
/// outbox.
pub const OUTBOX_MESSAGES_MAX: usize = 1_024;
pub const OUTBOX_BYTES_MAX: u64 = 16 << 20;

pub const GROUP_NAME_BYTES_MAX: usize = 1024;
/// The stored members of one group. Members of a larger group join again at the next coordinator.
pub const MEMBERSHIP_BYTES_MAX: usize = 1 << 20;
/// Metadata of a committed offset in UTF-16 code units (Kafka's `offset.metadata.max.bytes`, which counts Java's
/// characters). Below [`Level::METADATA_UNITS`](crate::Level::METADATA_UNITS) it is also the limit in bytes.
pub const OFFSET_METADATA_UNITS_MAX: usize = 4096;

// ------------------------------------------------------------------------------------ sessions

/// Largest request on any wire (Kafka's `socket.request.max.bytes`).
pub const REQUEST_BYTES_MAX: usize = 100 << 20;
/// Requests of one session in flight. At the limit its socket is not read.
pub const REQUESTS_IN_FLIGHT_PER_SESSION_MAX: usize = 64;
/// Sessions on a node (`--max-connections`).
pub const SESSIONS_MAX_DEFAULT: usize = 10_000;

/// A started request must arrive whole within this time: half a frame holds memory.
pub const REQUEST_ARRIVES_WITHIN: Duration = Duration::from_secs(30);
/// A client that does not take its response for so long is cut off.
pub const RESPONSE_TAKEN_WITHIN: Duration = Duration::from_secs(60);
/// Bytes written to a socket before other sockets have their turn: the kernel copies them, and a socket may accept
/// megabytes at once.
pub const WRITTEN_AT_ONCE_BYTES_MAX: usize = 256 << 10;
/// Longest wait of a fetch, whatever its request says.
pub const FETCH_WAIT_MAX: Duration = Duration::from_secs(5 * 60);
/// Size limit of a fetch response, whatever its request says.
pub const FETCH_BYTES_MAX: usize = 55 << 20;

// ---------------------------------------------------------------------------------- operations

/// Size limit of an operation's document (the command line's own request).
pub const OPERATION_BYTES_MAX: usize = 1 << 20;
/// Bytes of records in a response; the first record is included whatever its size.
pub const OPERATION_PAGE_BYTES_MAX: usize = 4 << 20;
/// Records, queues or connections in a response.
pub const OPERATION_RECORDS_MAX: usize = 10_000;
/// Rows in the overview of a node: a screen has no more.
pub const OVERVIEW_ROWS_MAX: usize = 500;

// ---------------------------------------------------------------------------------------- amqp

/// Largest message (RabbitMQ's `max_message_size`). A topic may allow less.
pub const AMQP_MESSAGE_BYTES_MAX: u64 = 16 << 20;
pub const AMQP_PASSWORD_BYTES_MAX: usize = 1_024;

// ----------------------------------------------------------------------------------- between nodes

/// Nodes of a cluster.
pub const NODES_MAX: usize = 64;
/// Nodes with a replica of a shard with rows, from [`crate::Level::REPLICAS`] on.
pub const REPLICAS: usize = 3;

// --------------------------------------------------------------------------------------- links

/// The longest message on the other lanes: the longest append of a group must fit, or its follower would never
/// receive it.
pub const LINK_MESSAGE_BYTES_MAX: usize =
    APPEND_MESSAGE_BYTES_MAX + GROUP_MESSAGE_BYTES_MAX + LINK_AROUND_BYTES_MAX;
/// Bytes that a link adds to a message.
pub const LINK_AROUND_BYTES_MAX: usize = 64;
/// Time limit of connecting, and of the handshake after it.
pub const LINK_CONNECTS_WITHIN: Duration = Duration::from_secs(1);
pub const LINK_HANDSHAKE_WITHIN: Duration = Duration::from_millis(1_600);
/// Pauses between connection attempts grow from the first to the second of these.
pub const LINK_RETRY_MIN: Duration = Duration::from_millis(50);
pub const LINK_RETRY_MAX: Duration = Duration::from_secs(1);

// ---------------------------------------------------------------------------------- relays of leases

/// Approximate size of a batch between a node and the leader of a shard, unless one item is larger, and the limit
/// of its items.
pub const RELAY_BATCH_BYTES: usize = 1 << 20;

/// Numbered rows of each node whose positions a shard remembers, so that the node may retry.
pub const NUMBERED_ROWS_KEPT: u64 = 4_096;

// ------------------------------------------------------------------------------------------- dedup

/// Ids that a topic with `dedup.window.ms` remembers in each shard unless `dedup.ids.max` says otherwise. Beyond
/// it the oldest are forgotten early.
pub const DEDUP_IDS_MAX: usize = 4_000_000;
/// Ids of a topic that one entry forgets: applying it must not take long.
pub const DEDUP_IDS_FORGOTTEN_PER_CHANGE: usize = 65_536;

// ---------------------------------------------------------------------------------------- delivery

/// Bytes of one read of the records to be delivered next.
pub const LEASE_READ_BYTES: usize = 1 << 20;

// --------------------------------------------------------------------------------------- documents

/// A document of up to this size is parsed about as fast as another thread starts. The CPU pool parses larger ones.
pub const PARSED_INLINE_BYTES_MAX: usize = 16 << 10;
/// Depth of a JSON document. The parser has the same limit.
pub const JSON_DEPTH_MAX: usize = 127;

// -------------------------------------------------------------------------------------------- http

/// Rows of one page.
pub const HTTP_PAGE_MAX: usize = 1_000;

// ------------------------------------------------------------------------------------------ traces

/// Memory of the history of records (`--history-bytes`), and ended sessions whose users it remembers.
pub const HISTORY_BYTES_PER_SHARD_DEFAULT: usize = 2 << 20;

// ------------------------------------------------------------------------------- relations of bounds

// A batch must fit a frame's worth of memory, a request, and a segment.
const _: () = assert!((BATCH_BYTES_MAX as usize) < REQUEST_BYTES_MAX);
const _: () = assert!((BATCH_BYTES_DEFAULT as usize) < FRAME_BYTES_MAX);
const _: () = assert!(BATCH_BYTES_DEFAULT as u64 * 2 < SEGMENT_BYTES_DEFAULT);
const _: () = assert!(SEGMENT_BYTES_MAX <= u32::MAX as u64);
// A batch that was accepted can be read.
const _: () = assert!(PRODUCED_UNPACKED_BYTES_MAX <= BATCH_DECOMPRESSED_BYTES_MAX);
// One proposal must not be able to stall the queue that it waits in.
const _: () = assert!(PROPOSAL_BYTES_MAX * 2 <= JOURNAL_QUEUED_BYTES_MAX);
// An entry with the largest batch must fit a message between nodes, whose length is 32 bits.
const _: () = assert!(LINK_MESSAGE_BYTES_MAX <= u32::MAX as usize);
// A shard has 16 bits in a link's frames.
const _: () = assert!(SHARDS_MAX <= u16::MAX as u32);
// A message must fit a batch.
const _: () = assert!(AMQP_MESSAGE_BYTES_MAX < BATCH_BYTES_MAX as u64);
// Every batch that a producer may send can be forwarded.
const _: () = assert!(
    PRODUCED_UNPACKED_BYTES_MAX + RELAY_BATCH_BYTES + LINK_AROUND_BYTES_MAX
        < LINK_MESSAGE_BYTES_MAX
);
