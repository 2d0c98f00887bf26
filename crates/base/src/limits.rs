//! Every bound of the product, in one place. Its files: `between_nodes`, `dedup` (ids of records), `delivery`,
//! `documents` (parsed ones), `http`, `tokens`, and `traces` (events of records). A limit that a user can set has
//! its default here and its setting in the comment. The others keep one bad client from hurting the rest.

mod between_nodes;
mod dedup;
mod delivery;
mod documents;
mod http;
mod tokens;
mod traces;

use std::time::Duration;

pub use between_nodes::*;
pub use dedup::*;
pub use delivery::*;
pub use documents::*;
pub use http::*;
pub use tokens::*;
pub use traces::*;

// ---------------------------------------------------------------------------- records, batches

/// Largest batch that a topic accepts unless its `max.message.bytes` says otherwise (Kafka's default).
pub const BATCH_BYTES_DEFAULT: u32 = 1_048_588;
/// Largest value that `max.message.bytes` may have: a batch must fit a frame and a request.
pub const BATCH_BYTES_MAX: u32 = 64 << 20;
/// Decompressed size limit of a batch from a producer: 64 times the default batch limit of a topic. A
/// decompression bomb is rejected before it is unpacked. The producer gets the error for a too large message,
/// which makes clients split the batch.
pub const PRODUCED_UNPACKED_BYTES_MAX: usize = 64 << 20;
/// The same limit in a topic that recompresses batches, as a multiple of its `max.message.bytes`.
pub const REPACKED_FACTOR_MAX: usize = 16;
/// Decompressed size limit of a stored batch.
pub const BATCH_DECOMPRESSED_BYTES_MAX: usize = 256 << 20;
/// Records in one batch; the count is an `i32` on the wire.
pub const BATCH_RECORDS_MAX: u32 = 4_000_000;
/// Rejected records of one request that the response names (6 bytes each). Further records are rejected without
/// being named. The stock clients' largest batches have 10,000 records by default.
pub const REFUSED_RECORDS_NAMED_MAX: usize = 100_000;
/// Rejected records with a message of their own. For the others the batch's message stands.
pub const REFUSED_RECORDS_EXPLAINED_MAX: usize = 100;

// ------------------------------------------------------------------------------------- journal

/// Size of a journal segment (`--segment-bytes`).
pub const SEGMENT_BYTES_DEFAULT: u64 = 128 << 20;
pub const SEGMENT_BYTES_MIN: u64 = 1 << 20;
/// Positions in a segment are 32 bits.
pub const SEGMENT_BYTES_MAX: u64 = 2 << 30;
/// Size limit of one group commit: keeps a sync short and a torn tail small.
pub const FRAME_BYTES_MAX: usize = 8 << 20;
/// Bytes of recent entries kept in memory for consumers that keep up.
pub const TAIL_CACHE_BYTES: usize = 32 << 20;
/// Age limit of those entries. A consumer that comes later does not keep up. Idle queues are read from their
/// segments.
pub const TAIL_CACHE_AGE_MAX: Duration = Duration::from_secs(5);
/// Bytes of sidecar indexes of sealed segments kept in memory.
pub const SIDECAR_CACHE_BYTES: usize = 16 << 20;
/// A longer file is not accepted as a sidecar: 28 bytes for each batch of the largest segment. A row of a shared
/// body takes 16.
pub const SIDECAR_BYTES_MAX: u64 = 2 << 30;
/// Segments that readers keep open.
pub const SEGMENTS_OPEN_MAX: usize = 256;
/// Size limit of one read call that covers batches near each other.
pub const READ_CALL_BYTES_MAX: usize = 4 << 20;
/// A read of more than this goes to a reader thread even if the page cache has it.
pub const READ_INLINE_BYTES_MAX: usize = 2 << 20;
/// Smallest buffer of reads that is reused.
pub const READ_BUFFER_KEPT_BYTES_MIN: usize = 64 << 10;
/// Bytes of buffers that a journal keeps for its next reads.
pub const READ_BUFFERS_KEPT_BYTES_MAX: usize = 16 << 20;
/// Bytes accepted by the journal and not yet durable; above it producers wait.
pub const JOURNAL_QUEUED_BYTES_MAX: usize = 64 << 20;
/// Free bytes on the journal's file system below which produce is refused (`--disk-reserve`).
pub const DISK_RESERVE_BYTES_DEFAULT: u64 = 256 << 20;
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

// --------------------------------------------------------------------------------------- shard

/// Proposals in flight in consensus. Requests that arrive meanwhile join the next one.
pub const PROPOSALS_IN_FLIGHT_MAX: usize = 8;
/// How long requests wait while the shard has no leader. Then they are rejected.
pub const LEADERLESS_HOLD: Duration = Duration::from_secs(5);
/// A request to a shard's leader on another node has an unknown outcome without a reply in this time. Longer than
/// [`LEADERLESS_HOLD`]: that node may wait for a majority.
pub const REMOTE_ANSWERED_WITHIN: Duration = Duration::from_secs(10);
/// State that does not survive a restart of a node is deleted by the other nodes once the node was disconnected
/// for so long.
pub const RUN_GONE_AFTER: Duration = Duration::from_secs(30);
/// A node whose copy of the catalog cannot be shown to be current within this time does not report that an item is
/// absent. A reader does not begin in a partition whose copy cannot be shown to be current.
pub const BARRIER_WITHIN: Duration = Duration::from_secs(5);
/// Wait for current copies before an estimate (metrics, `postroad top`) is computed from the node's own copies.
pub const ESTIMATE_WITHIN: Duration = Duration::from_secs(1);
/// A change of the catalog is confirmed after this time even if a shard has not adopted it: the shard may have no
/// leader.
pub const ADOPTED_WITHIN: Duration = Duration::from_secs(5);
/// Approximate memory of a row of a batch while its entry is in flight: its descriptor, its reply, and its parts
/// in the machine and the index.
pub const ENTRY_ROW_BYTES: usize = 128;
/// Bytes of one command that settles records; more become several commands. Applying one takes some 10 ms, which
/// delays the entries behind it.
pub const SETTLE_COMMAND_BYTES_MAX: usize = 256 << 10;
/// Bytes of batches in one proposal.
pub const PROPOSAL_BYTES_MAX: usize = 4 << 20;
/// Limit of the changes that a restart has to replay, one to two microseconds each. At the limit the state is
/// saved, unless it is so large that saving it costs as much as it spares.
pub const REPLAYED_CHANGES_MAX: u64 = 500_000;
/// Bytes of produce requests in a node, from decoded to durable; above it sockets are not read.
pub const PRODUCE_BYTES_IN_FLIGHT_MAX: usize = 64 << 20;
/// The same of sessions whose batches take long to check.
pub const PACKED_BYTES_IN_FLIGHT_MAX: usize = 32 << 20;
/// Batches that are unpacked, packed or decoded at the same time, away from the threads of sockets.
/// Each may hold [`PRODUCED_UNPACKED_BYTES_MAX`].
pub const CPU_JOBS_MAX: usize = 4;
/// Bytes of fetch responses in a node, from read to written.
pub const FETCH_BYTES_IN_FLIGHT_MAX: usize = 64 << 20;
/// Bytes of other large responses in a node (metadata, offsets, groups), from the first row to written; one for a
/// million partitions has 30 MB.
pub const ANSWER_BYTES_IN_FLIGHT_MAX: usize = 96 << 20;
/// Size limit of one response that describes items named by a client. Beyond it the client is asked to name fewer.
/// The configurations of 10,000 topics have 16 MB.
pub const DESCRIBED_BYTES_MAX: usize = 32 << 20;
/// Smaller responses are not counted.
pub const ANSWER_UNCOUNTED_BYTES_MAX: usize = 64 << 10;
/// Batches that a producer id remembers per partition, to recognise a retry (Kafka: 5).
pub const PRODUCER_BATCHES_REMEMBERED: usize = 5;
/// Producer ids that a partition remembers. Beyond it the ids with the longest silence are forgotten.
pub const PRODUCERS_PER_PARTITION_MAX: usize = 10_000;
/// A producer id that was silent for so long is forgotten (Kafka's `producer.id.expiration.ms`).
pub const PRODUCER_ID_EXPIRATION: Duration = Duration::from_secs(24 * 60 * 60);

// --------------------------------------------------------------------------------------- group

/// Bytes of entries that a leader sends in one message; a single larger entry makes one larger message.
pub const APPEND_BYTES_MAX: usize = 1 << 20;
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
/// Snapshot bytes that a node receives in a second, all its shards together, so that its disk can do its other
/// work.
pub const SNAPSHOT_BYTES_PER_SECOND: u64 = 112 << 20;
/// The largest state, and the longest list of live batches, that a member accepts from another one.
pub const SNAPSHOT_SECTION_BYTES_MAX: u64 = 8 << 30;
/// Scrub rate: the minimum, so that a pass ends; the maximum of the periodic scrub; and the rate of a scrub that
/// an operator requests.
pub const SCRUB_BYTES_PER_SECOND_MIN: u64 = 1 << 20;
pub const SCRUB_BYTES_PER_SECOND_MAX: u64 = 32 << 20;
pub const SCRUB_BYTES_PER_SECOND_ASKED: u64 = 64 << 20;
/// Time between two passes.
pub const SCRUB_INTERVAL_DEFAULT: Duration = Duration::from_secs(7 * 86_400);
/// Backup bytes that a node sends in a second, so that its disk can do its other work.
pub const BACKUP_BYTES_PER_SECOND: u64 = 64 << 20;
/// Backups that a node sends at a time, and how long it holds one that is not fetched.
pub const BACKUPS_SENT_MAX: usize = 2;
pub const BACKUP_HELD_FOR: Duration = Duration::from_secs(60);
/// Log of a shard that is kept for a backup which does not fetch it.
pub const BACKUP_LOG_BYTES_MAX: u64 = 1 << 30;
/// How long a received snapshot waits for disk space to be installed, and how often the space is checked. Then the
/// node stops.
pub const SNAPSHOT_ROOM_WAITED_FOR: Duration = Duration::from_secs(60);
pub const SNAPSHOT_ROOM_LOOKED_FOR_EVERY: Duration = Duration::from_millis(200);
/// Snapshots that a member sends at a time, and how long it holds one that is not fetched.
pub const SNAPSHOTS_SENT_MAX: usize = 4;
pub const SNAPSHOT_HELD_FOR: Duration = Duration::from_secs(600);
/// A snapshot that was not fetched for this time makes room for another member's. A receiving member fetches every
/// few seconds. If its snapshot is no longer held, it restarts behind the parts that it has.
pub const SNAPSHOT_IDLE_AFTER: Duration = Duration::from_secs(30);

// ------------------------------------------------------------------------------------- catalog

pub const TOPIC_NAME_BYTES_MAX: usize = 249;
pub const PARTITIONS_PER_TOPIC_MAX: u32 = 1_000_000;
/// The same for new topics and new partitions. librdkafka rejects all metadata of a cluster with a larger topic.
pub const NEW_TOPIC_PARTITIONS_MAX: u32 = 100_000;
/// Partitions in one shard, all topics together.
pub const PARTITIONS_PER_SHARD_MAX: u64 = 2_000_000;

// -------------------------------------------------------------------------------------- groups

/// Deleted topics and lease groups that the catalog remembers. A shard that missed more receives the complete list
/// of existing ones.
pub const REMOVALS_REMEMBERED: usize = 65_536;
/// Groups of consumers are spread over this many slots, and the slots over the shards.
pub const GROUP_SLOTS: u32 = 256;
/// Writes of the catalog are small.
pub const CATALOG_SEGMENT_BYTES: u64 = 16 << 20;
/// Largest number of shards with records that a node creates at founding.
pub const SHARDS_MAX: u32 = 256;

// ------------------------------------------------------------------------------------ channels

/// Messages that a shard has sent to another one without an acknowledgement: their number, and the bytes of their
/// batches and of the names of their target partitions. Further messages wait. A message of any size fits an empty
/// outbox.
pub const OUTBOX_MESSAGES_MAX: usize = 1_024;
pub const OUTBOX_BYTES_MAX: u64 = 16 << 20;
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

pub const GROUP_NAME_BYTES_MAX: usize = 1024;
/// Memory of groups with committed offsets: their names, and offsets with their metadata, some 100 bytes each. A
/// client may commit under any name; commits beyond this are rejected.
pub const OFFSET_GROUPS_BYTES_MAX: u64 = 192 << 20;
/// Groups with a configuration of their own.
pub const GROUP_CONFIGS_MAX: usize = 100_000;
/// Members of one group (`group.max.size`, `group.consumer.max.size` may be less).
pub const GROUP_MEMBERS_MAX: usize = 10_000;
/// Groups with known members, all together; more groups may have committed offsets.
pub const GROUPS_MAX: usize = 100_000;
/// Memory of the members of all groups: subscriptions, assignments, ids.
pub const GROUPS_BYTES_MAX: usize = 256 << 20;
/// Size limit of one member's metadata, and of the assignment that it gets from its leader.
pub const GROUP_MEMBER_BYTES_MAX: usize = 1 << 20;
/// The stored members of one group. Members of a larger group join again at the next coordinator.
pub const MEMBERSHIP_BYTES_MAX: usize = 1 << 20;
/// The same of all groups of a shard.
pub const MEMBERSHIPS_BYTES_MAX: usize = 64 << 20;
/// Compiled size of a pattern that a member subscribes with, and its length as text.
pub const SUBSCRIPTION_PATTERN_COMPILED_BYTES_MAX: usize = 1 << 20;
pub const SUBSCRIPTION_PATTERN_BYTES_MAX: usize = 1024;
/// How often expired offsets are looked for (Kafka's `offsets.retention.check.interval.ms`).
pub const OFFSETS_RETENTION_CHECK_INTERVAL: Duration = Duration::from_secs(10 * 60);
/// Metadata of a committed offset in UTF-16 code units (Kafka's `offset.metadata.max.bytes`, which counts Java's
/// characters). Below [`Level::METADATA_UNITS`](crate::Level::METADATA_UNITS) it is also the limit in bytes.
pub const OFFSET_METADATA_UNITS_MAX: usize = 4096;
/// The same in bytes of UTF-8: a code unit takes three at most.
pub const OFFSET_METADATA_BYTES_MAX: usize = 3 * OFFSET_METADATA_UNITS_MAX;
/// Tasks of one Streams group: its subtopologies times the partitions that each reads.
pub const STREAMS_TASKS_MAX: u64 = 20_000;
/// A record is kept for this long after its append before it can be deleted by time (Kafka's
/// `log.retention.check.interval.ms`): a backfill of old records can be read.
pub const RETENTION_CHECK_INTERVAL: Duration = Duration::from_secs(5 * 60);
/// Committed offsets of an empty group are kept this long (Kafka's `offsets.retention.minutes`).
pub const OFFSETS_RETENTION: Duration = Duration::from_secs(7 * 24 * 60 * 60);

// ----------------------------------------------------------------------------------- documents

/// A document's body.
pub const DOCUMENT_BYTES_MAX: usize = 1 << 20;
/// The name of a space of documents, and of a document in it.
pub const DOCUMENT_SPACE_BYTES_MAX: usize = 255;
pub const DOCUMENT_NAME_BYTES_MAX: usize = 4096;
/// Documents in one shard, and the bytes of their names and bodies.
pub const DOCUMENTS_MAX: usize = 1_000_000;
pub const DOCUMENTS_BYTES_MAX: u64 = 256 << 20;
/// Changed documents that are listed for a watcher. Beyond it the watcher re-reads its spaces.
pub const DOCUMENT_CHANGES_NOTED_MAX: usize = 65_536;

// ------------------------------------------------------------------------------------ sessions

/// Largest request on any wire (Kafka's `socket.request.max.bytes`).
pub const REQUEST_BYTES_MAX: usize = 100 << 20;
/// Requests of one session in flight. At the limit its socket is not read.
pub const REQUESTS_IN_FLIGHT_PER_SESSION_MAX: usize = 64;
/// A request of up to so many bytes, other than a produce request, counts against no budget of the
/// node: a heartbeat must not wait for others.
pub const REQUEST_UNCOUNTED_BYTES_MAX: usize = 4 << 10;
/// Bytes of such requests of one session that are read while an earlier one is not answered.
pub const REQUEST_BACKLOG_PER_SESSION_BYTES_MAX: usize = 16 << 10;
/// Bytes of other requests in a node, produce requests apart, from read to answered or waiting. The size on the
/// wire counts four times, because a decoded request is larger.
pub const REQUEST_BYTES_IN_FLIGHT_MAX: usize = 64 << 20;
/// Bytes of requests that have not arrived whole, in a node.
pub const ARRIVING_BYTES_MAX: usize = 64 << 20;
/// Memory of waiting requests in a node. A fetch without room waits without being woken, for
/// [`FETCH_WAIT_WITHOUT_ROOM`] at most.
pub const WAITING_BYTES_MAX: usize = 256 << 20;
pub const FETCH_WAIT_WITHOUT_ROOM: Duration = Duration::from_secs(2);
/// Bytes kept of a client's self-description (name, version), for logs and operators.
pub const CONNECTION_TEXT_BYTES_MAX: usize = 256;
/// Sessions on a node (`--max-connections`).
pub const SESSIONS_MAX_DEFAULT: usize = 10_000;

/// A client finishes its TLS handshake within this time, from connecting on.
pub const TLS_HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);
/// Handshakes in progress at a time, on all encrypted ports of a node; the others wait. Each holds at most 64 KiB
/// from its client, and costs a signature.
pub const TLS_HANDSHAKES_AT_ONCE_MAX: usize = 256;
/// Bytes read from a client after a failed handshake, and how long they are read, so that the client receives the
/// alert.
pub const TLS_REFUSED_READ_BYTES_MAX: usize = 64 << 10;
pub const TLS_REFUSED_CLOSES_WITHIN: Duration = Duration::from_secs(1);
/// Bytes that are encrypted before the socket has taken them.
pub const TLS_WRITTEN_AT_ONCE_BYTES_MAX: usize = 32 << 10;
/// A started request must arrive whole within this time: half a frame holds memory.
pub const REQUEST_ARRIVES_WITHIN: Duration = Duration::from_secs(30);
/// A client that does not take its response for so long is cut off.
pub const RESPONSE_TAKEN_WITHIN: Duration = Duration::from_secs(60);
/// Bytes that it must read in each such period while its socket is full, unless less is left. A client that reads
/// a byte a minute would hold its response's memory for ever.
pub const RESPONSE_TAKEN_BYTES_MIN: usize = 64 << 10;
/// Bytes written to a socket before other sockets have their turn: the kernel copies them, and a socket may accept
/// megabytes at once.
pub const WRITTEN_AT_ONCE_BYTES_MAX: usize = 256 << 10;
/// Slices given to one system call; Linux takes 1,024.
pub const WRITTEN_AT_ONCE_SLICES_MAX: usize = 256;
/// A session's empty output buffer is freed if it grew beyond this.
pub const UNSENT_KEPT_BYTES_MAX: usize = 64 << 10;
/// A session without traffic is closed after this time (Kafka's `connections.max.idle.ms`).
pub const SESSION_IDLE_MAX: Duration = Duration::from_secs(10 * 60);
/// Longest wait of a fetch, whatever its request says.
pub const FETCH_WAIT_MAX: Duration = Duration::from_secs(5 * 60);
/// Size limit of a fetch response, whatever its request says.
pub const FETCH_BYTES_MAX: usize = 55 << 20;
/// Fetch sessions kept (Kafka's `max.incremental.fetch.session.cache.slots`).
pub const FETCH_SESSIONS_MAX: usize = 1_000;

// ---------------------------------------------------------------------------------- operations

/// Size limit of an operation's document (the command line's own request).
pub const OPERATION_BYTES_MAX: usize = 1 << 20;
/// Bytes of records in a response; the first record is included whatever its size.
pub const OPERATION_PAGE_BYTES_MAX: usize = 4 << 20;
/// Records, queues or connections in a response.
pub const OPERATION_RECORDS_MAX: usize = 10_000;
/// Records examined for a response.
pub const OPERATION_PAGE_SCAN_MAX: usize = 20_000;
/// Leases in the description of a queue.
pub const OPERATION_LEASES_MAX: usize = 100;
/// Rows in the overview of a node: a screen has no more.
pub const OVERVIEW_ROWS_MAX: usize = 500;
/// Queues whose leased records are queried, and groups whose oldest record is looked up, for an overview.
pub const OVERVIEW_ASKED_MAX: usize = 256;
/// Committed offsets that are counted for an overview.
pub const OVERVIEW_OFFSETS_MAX: usize = 200_000;

// ---------------------------------------------------------------------------------------- amqp

/// Values that `connection.tune` offers (RabbitMQ's `frame_max`, `channel_max`, `heartbeat`).
pub const AMQP_FRAME_BYTES_MAX: u32 = 128 << 10;
pub const AMQP_CHANNELS_PER_SESSION_MAX: u16 = 2047;
/// Bytes kept of a client's properties, for operators; larger properties are not kept.
pub const AMQP_CLIENT_PROPERTIES_BYTES_MAX: usize = 4 << 10;
pub const AMQP_HEARTBEAT: Duration = Duration::from_secs(60);
/// Largest message (RabbitMQ's `max_message_size`). A topic may allow less.
pub const AMQP_MESSAGE_BYTES_MAX: u64 = 16 << 20;
/// Bytes of messages over [`AMQP_READ_BYTES_MIN`] of which a part has arrived, of all connections of a node. Beyond
/// it one connection at a time continues, the others wait.
pub const AMQP_ARRIVING_BYTES_MAX: usize = 64 << 20;
/// The largest frame before the login.
pub const AMQP_HANDSHAKE_FRAME_BYTES_MAX: usize = 16 << 10;
/// From connecting to an open connection (RabbitMQ's `handshake_timeout`).
pub const AMQP_HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);
/// Bytes read at once while the node's budget has room; the minimum applies without room, and at first.
pub const AMQP_READ_BYTES_MAX: usize = 256 << 10;
pub const AMQP_READ_BYTES_MIN: usize = 16 << 10;
/// Unsent bytes at which a session gets no more deliveries.
pub const AMQP_UNSENT_BYTES_SOFT: usize = 256 << 10;
/// Unsent bytes at which a session's socket is not read: the client reads no replies and sends further requests.
pub const AMQP_UNSENT_BYTES_MAX: usize = 4 << 20;
/// Unsettled deliveries of a consumer without a prefetch limit: each is remembered.
pub const AMQP_UNSETTLED_PER_CONSUMER_MAX: u32 = 250_000;
/// Bytes that a transaction holds until it is committed.
pub const AMQP_TRANSACTION_BYTES_MAX: usize = 16 << 20;
/// The same of all transactions of a node.
pub const AMQP_TRANSACTIONS_BYTES_MAX: usize = 128 << 20;
/// Settles that a transaction holds until it is committed.
pub const AMQP_TRANSACTION_SETTLES_MAX: usize = 250_000;
/// Replies (`amq.rabbitmq.reply-to`) and stream records in flight to one session.
pub const AMQP_POSTED_MAX: usize = 1_024;
/// Users created by commands.
pub const AMQP_USERS_MAX: usize = 10_000;
pub const AMQP_PASSWORD_BYTES_MAX: usize = 1_024;
/// Access rules of the cluster: all are one document.
pub const ACCESS_RULES_MAX: usize = 4_000;
/// Audit events that wait to be written; further ones are dropped, or their requests rejected.
pub const AUDIT_EVENTS_QUEUED_MAX: usize = 10_000;
/// Events of one batch, which must fit a record batch whatever their names are.
pub const AUDIT_EVENTS_AT_ONCE_MAX: usize = 128;
/// Length at which names and paths in an event are cut off.
pub const AUDIT_TEXT_BYTES_MAX: usize = 512;
/// Denials of one user that are audited in a minute.
pub const AUDIT_DENIALS_A_MINUTE_MAX: u32 = 10;
/// Users whose recently audited denials are counted.
pub const AUDIT_SAMPLED_KEPT_MAX: usize = 10_000;
/// Default retention of audit events: 90 days, and bytes.
pub const AUDIT_KEPT_MS: i64 = 90 * 24 * 3600 * 1000;
pub const AUDIT_KEPT_BYTES: i64 = 1 << 30;
/// Users, clients and addresses that have quotas: all are one document.
pub const QUOTAS_MAX: usize = 4_000;
pub const QUOTA_NAME_BYTES_MAX: usize = 1_024;
/// Number of quota buckets from which on unused ones without debt are removed.
pub const QUOTA_BUCKETS_MIN: usize = 1_024;
/// Addresses and names whose failed log-ins are remembered.
pub const LOGIN_FAILURES_KEPT_MAX: usize = 10_000;
/// A Kafka client that must log in does so within this time.
pub const LOGIN_WITHIN: Duration = Duration::from_secs(10);
/// Frame size limit of a client that has not logged in.
pub const LOGIN_FRAME_BYTES_MAX: usize = 64 << 10;
/// Password checks at a time: each takes a core, and as much memory as its hash says.
pub const AMQP_PASSWORD_CHECKS_AT_ONCE_MAX: usize = 2;
/// Log-ins of one address that wait for their password check. Further ones are rejected at once.
pub const LOGINS_WAITING_PER_ADDRESS_MAX: usize = 1_000;
/// Concurrent log-ins of one address by one name, until they are answered. The reply to a failure is delayed.
pub const LOGINS_AT_ONCE_PER_NAME_MAX: usize = 4;
/// Addresses and kinds of lines about closed connections that are counted instead of written.
pub const CLOSED_LINES_KEPT_MAX: usize = 1_000;
/// Memory cost limit of a password hash.
pub const AMQP_PASSWORD_HASH_KIB_MAX: u32 = 64 << 10;

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
const _: () = assert!(LINK_GOSSIP_BYTES_MAX < LINK_CONTROL_BYTES_MAX);
// A consumer that a leader sends to a copy is not sent back at once.
const _: () = assert!(COPY_NEAR_ENTRIES_MAX < COPY_BEHIND_ENTRIES_MAX);
// A shard has 16 bits in a link's frames.
const _: () = assert!(SHARDS_MAX <= u16::MAX as u32);
// A message must fit a batch.
const _: () = assert!(AMQP_MESSAGE_BYTES_MAX < BATCH_BYTES_MAX as u64);
// Every batch that a producer may send can be forwarded.
const _: () = assert!(
    PRODUCED_UNPACKED_BYTES_MAX + RELAY_BATCH_BYTES + LINK_AROUND_BYTES_MAX
        < LINK_MESSAGE_BYTES_MAX
);
