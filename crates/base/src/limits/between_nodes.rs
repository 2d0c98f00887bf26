//! Bounds of connections between nodes, of relays of lease sessions over them, and of reads from near nodes.

use std::time::Duration;

use super::{
    APPEND_BYTES_IN_FLIGHT_MAX, APPEND_MESSAGE_BYTES_MAX, APPENDS_IN_FLIGHT_MAX,
    GROUP_MESSAGE_BYTES_MAX,
};

/// Nodes of a cluster.
pub const NODES_MAX: usize = 64;
/// Nodes that may join below [`crate::Level::REPLICAS`], where each has all shards; voters of the catalog from
/// there on.
pub const NODES_JOINED_MAX: usize = 5;
/// Nodes with a replica of a shard with rows, from [`crate::Level::REPLICAS`] on.
pub const REPLICAS: usize = 3;

// --------------------------------------------------------------------------------------- links

/// The longest message of a node to another one on the control lane: votes, gossip.
pub const LINK_CONTROL_BYTES_MAX: usize = 256 << 10;
/// The longest message on the other lanes: the longest append of a group must fit, or its follower would never
/// receive it.
pub const LINK_MESSAGE_BYTES_MAX: usize =
    APPEND_MESSAGE_BYTES_MAX + GROUP_MESSAGE_BYTES_MAX + LINK_AROUND_BYTES_MAX;
/// Bytes that a link adds to a message.
pub const LINK_AROUND_BYTES_MAX: usize = 64;
/// The longest message before the peer has authenticated.
pub const LINK_HANDSHAKE_BYTES_MAX: usize = 2 << 10;
/// Size limit of the gossip that a node sends to all others each second.
pub const LINK_GOSSIP_BYTES_MAX: usize = 64 << 10;
/// Unacknowledged appends of a stream (of a shard, to a follower), and their bytes; a larger one is sent alone.
/// The group has as many in flight.
pub const LINK_APPENDS_MAX: usize = APPENDS_IN_FLIGHT_MAX;
pub const LINK_APPENDS_BYTES_MAX: usize = APPEND_BYTES_IN_FLIGHT_MAX;
/// Unanswered requests of a connection, by lane, and their bytes.
pub const LINK_CONTROL_REQUESTS_MAX: usize = 512;
pub const LINK_REQUESTS_MAX: usize = 1_024;
pub const LINK_BULK_REQUESTS_MAX: usize = 16;
pub const LINK_REQUESTS_BYTES_MAX: usize = 16 << 20;
/// Bytes of replies that a connection holds before they are written to its socket; a larger one is sent alone.
pub const LINK_REPLIES_BYTES_MAX: usize = 8 << 20;
/// Connections of peers that a node serves: 64 nodes with four lanes, and as many again that are about to be
/// replaced.
pub const LINK_SESSIONS_MAX: usize = 512;
/// Time limit of connecting, and of the handshake after it.
pub const LINK_CONNECTS_WITHIN: Duration = Duration::from_secs(1);
pub const LINK_HANDSHAKE_WITHIN: Duration = Duration::from_millis(1_600);
/// Ping interval of a connection, and the silence after which it is closed: twice the longest election timeout.
pub const LINK_PING_EVERY: Duration = Duration::from_millis(400);
pub const LINK_SILENT_AFTER: Duration = Duration::from_millis(1_600);
/// How long the appends of a stream may make no progress while the link is alive, as when the follower's disk
/// hangs. Also how long a peer may read nothing from its socket.
pub const LINK_PROGRESS_WITHIN: Duration = Duration::from_secs(30);
/// How often unchanged gossip is repeated.
pub const LINK_GOSSIP_EVERY: Duration = Duration::from_secs(1);
/// Pauses between connection attempts grow from the first to the second of these.
pub const LINK_RETRY_MIN: Duration = Duration::from_millis(50);
pub const LINK_RETRY_MAX: Duration = Duration::from_secs(1);
/// The pause after the peer rejected this node: only an operator changes that.
pub const LINK_REFUSED_RETRY: Duration = Duration::from_secs(2);
/// If the peer closed the connection and does not accept a new one for this long, its process is considered gone.
pub const LINK_UNANSWERED_AFTER: Duration = Duration::from_millis(150);
/// Requests are rejected after this time without a leader if no majority of the shard's voters is connected
/// either.
pub const MAJORITY_AWAITED_FOR: Duration = Duration::from_secs(1);
/// Pending proposals of a leader whose term ended are answered "outcome unknown" after this time. While a majority
/// is connected and has no leader yet, they wait for [`super::LEADERLESS_HOLD`].
pub const OUTCOME_AWAITED_FOR: Duration = Duration::from_secs(1);
/// Minimum of a produce request's `timeout_ms`. An append here waits for a disk sync even where Kafka replies from
/// memory.
pub const PRODUCE_TIMEOUT_MIN: Duration = Duration::from_secs(1);
/// How long a link may take to send its last messages when the node stops.
pub const LINK_CLOSES_WITHIN: Duration = Duration::from_secs(1);

// ---------------------------------------------------------------------------------- relays of leases

/// Approximate size of a batch between a node and the leader of a shard, unless one item is larger, and the limit
/// of its items.
pub const RELAY_BATCH_BYTES: usize = 1 << 20;
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

// --------------------------------------------------------------------------------- reading near by

/// Size limit of the name of a rack, which each node sends to other nodes and to clients.
pub const RACK_BYTES_MAX: usize = 255;
/// A consumer is sent to a near copy that lacks at most this many of the newest entries of its shard's log. It is
/// sent back once the copy lacks more than the second of these.
pub const COPY_NEAR_ENTRIES_MAX: u64 = 1_000;
pub const COPY_BEHIND_ENTRIES_MAX: u64 = 10_000;
/// Longest wait of a fetch at a copy: a copy that falls behind wakes no fetch.
pub const COPY_FETCH_WAIT_MAX: Duration = Duration::from_secs(2);
/// Approximate size of a request that forwards appends to a shard's leader on another node, unless one append is
/// larger.
pub const FORWARDED_BYTES: usize = 1 << 20;
/// Rows of such a request. An append with more is split.
pub const FORWARDED_ROWS: usize = NUMBERED_ROWS_KEPT as usize;
/// Numbered rows of each node whose positions a shard remembers, so that the node may retry.
pub const NUMBERED_ROWS_KEPT: u64 = 4_096;
/// Nodes whose rows a shard remembers: more than a cluster has.
pub const NUMBERED_NODES_MAX: usize = 256;
