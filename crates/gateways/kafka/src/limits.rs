//! Bounds of this crate: memory, sizes and times. A bound that a user can set has its default here and its setting in
//! the comment. The others keep one bad client from harming the others.

use std::time::Duration;

use base::json::JsonLimits;
use base::limits::JSON_DEPTH_MAX;

/// Decompressed size limit of a batch from a producer in a topic that recompresses batches, as a multiple of its
/// `max.message.bytes`.
pub const REPACKED_FACTOR_MAX: usize = 16;
/// Rejected records with a message of their own. For the others the batch's message stands.
pub const REFUSED_RECORDS_EXPLAINED_MAX: usize = 100;
/// Bytes of produce requests in a node, from decoded to durable, of sessions whose batches take long to check.
pub const PACKED_BYTES_IN_FLIGHT_MAX: usize = 32 << 20;
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
/// Size limit of one member's metadata, and of the assignment that it gets from its leader.
pub const GROUP_MEMBER_BYTES_MAX: usize = 1 << 20;
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
/// Bytes that it must read in each such period while its socket is full, unless less is left. A client that reads
/// a byte a minute would hold its response's memory for ever.
pub const RESPONSE_TAKEN_BYTES_MIN: usize = 64 << 10;
/// A session without traffic is closed after this time (Kafka's `connections.max.idle.ms`).
pub const SESSION_IDLE_MAX: Duration = Duration::from_secs(10 * 60);
/// Fetch sessions kept (Kafka's `max.incremental.fetch.session.cache.slots`).
pub const FETCH_SESSIONS_MAX: usize = 1_000;
/// A Kafka client that must log in does so within this time.
pub const LOGIN_WITHIN: Duration = Duration::from_secs(10);
/// Frame size limit of a client that has not logged in.
pub const LOGIN_FRAME_BYTES_MAX: usize = 64 << 10;

/// Minimum of a produce request's `timeout_ms`. An append here waits for a disk sync even where Kafka replies from
/// memory.
pub const PRODUCE_TIMEOUT_MIN: Duration = Duration::from_secs(1);
/// Longest wait of a fetch at a copy: a copy that falls behind wakes no fetch.
pub const COPY_FETCH_WAIT_MAX: Duration = Duration::from_secs(2);

/// Longest timeout of a transaction (Kafka's `transaction.max.timeout.ms`).
pub const TRANSACTION_TIMEOUT_MS_MAX: u32 = 15 * 60 * 1000;

/// An operation of the command line. It may name 10,000 records or offsets.
pub const OPERATION_LIMITS: JsonLimits =
    JsonLimits { values: 150_000, depth: JSON_DEPTH_MAX, bytes: 32 << 20 };
