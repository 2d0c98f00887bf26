//! Connections between nodes, the relays of lease sessions on them, and what clients are told of nodes near by.

use std::time::Duration;

use super::{
    APPEND_BYTES_IN_FLIGHT_MAX, APPEND_MESSAGE_BYTES_MAX, APPENDS_IN_FLIGHT_MAX,
    GROUP_MESSAGE_BYTES_MAX,
};

/// Nodes of a cluster.
pub const NODES_MAX: usize = 64;
/// Nodes that may join below [`crate::Level::REPLICAS`], where each has all shards; voters of the catalog from there on.
pub const NODES_JOINED_MAX: usize = 5;
/// Nodes that have a shard with rows, from [`crate::Level::REPLICAS`] on.
pub const REPLICAS: usize = 3;

// --------------------------------------------------------------------------------------- links

/// The longest message of a node to another one on the control lane: votes, gossip.
pub const LINK_CONTROL_BYTES_MAX: usize = 256 << 10;
/// The longest on the other lanes: the longest append of a group must fit, or its follower would never have it.
pub const LINK_MESSAGE_BYTES_MAX: usize =
    APPEND_MESSAGE_BYTES_MAX + GROUP_MESSAGE_BYTES_MAX + LINK_AROUND_BYTES_MAX;
/// What a link puts around a message.
pub const LINK_AROUND_BYTES_MAX: usize = 64;
/// The longest before the peer has shown who it is.
pub const LINK_HANDSHAKE_BYTES_MAX: usize = 2 << 10;
/// What a node tells all others each second.
pub const LINK_GOSSIP_BYTES_MAX: usize = 64 << 10;
/// Appends of a stream (a shard, to a follower) that are not answered, and their bytes; a larger one goes
/// alone. As many as the group has on their way.
pub const LINK_APPENDS_MAX: usize = APPENDS_IN_FLIGHT_MAX;
pub const LINK_APPENDS_BYTES_MAX: usize = APPEND_BYTES_IN_FLIGHT_MAX;
/// Requests of a connection that are not answered, by lane, and their bytes.
pub const LINK_CONTROL_REQUESTS_MAX: usize = 512;
pub const LINK_REQUESTS_MAX: usize = 1_024;
pub const LINK_BULK_REQUESTS_MAX: usize = 16;
pub const LINK_REQUESTS_BYTES_MAX: usize = 16 << 20;
/// Bytes of replies that a connection holds and has not given to its socket; a larger one goes alone.
pub const LINK_REPLIES_BYTES_MAX: usize = 8 << 20;
/// Connections of peers that a node serves: 64 nodes with four lanes, and as many again that are about to
/// be replaced.
pub const LINK_SESSIONS_MAX: usize = 512;
/// How long connecting may take, and the handshake after it.
pub const LINK_CONNECTS_WITHIN: Duration = Duration::from_secs(1);
pub const LINK_HANDSHAKE_WITHIN: Duration = Duration::from_millis(1_600);
/// A connection says something at least so often, and is closed when it has heard nothing for so long:
/// twice the longest election timeout.
pub const LINK_PING_EVERY: Duration = Duration::from_millis(400);
pub const LINK_SILENT_AFTER: Duration = Duration::from_millis(1_600);
/// For how long appends of a stream may make no progress while the link is alive, as they do when the
/// follower's disk hangs; and for how long a peer may take nothing of what is sent to it.
pub const LINK_PROGRESS_WITHIN: Duration = Duration::from_secs(30);
/// How often gossip is told again that has not changed.
pub const LINK_GOSSIP_EVERY: Duration = Duration::from_secs(1);
/// Pauses between attempts to connect grow from the first to the second of these.
pub const LINK_RETRY_MIN: Duration = Duration::from_millis(50);
pub const LINK_RETRY_MAX: Duration = Duration::from_secs(1);
/// The pause after the peer refused this node: only an operator changes that.
pub const LINK_REFUSED_RETRY: Duration = Duration::from_secs(2);
/// A connection closed by the peer is not answered for so long when this node connects again: a sign that
/// the process is gone.
pub const LINK_UNANSWERED_AFTER: Duration = Duration::from_millis(150);
/// Requests are refused after so long without a leader where no majority of the shard's voters is connected either.
pub const MAJORITY_AWAITED_FOR: Duration = Duration::from_secs(1);
/// Once a leader's term is over, its open proposals are answered "outcome unknown" after so long. Where a majority is
/// connected and no other node leads yet, they wait for [`super::LEADERLESS_HOLD`].
pub const OUTCOME_AWAITED_FOR: Duration = Duration::from_secs(1);
/// A shorter `timeout_ms` of a produce request counts as this. An append here waits for a sync of the disk also where
/// Kafka answers from memory.
pub const PRODUCE_TIMEOUT_MIN: Duration = Duration::from_secs(1);
/// How long a link may take to say its last words when the node stops.
pub const LINK_CLOSES_WITHIN: Duration = Duration::from_secs(1);

// ---------------------------------------------------------------------------------- relays of leases

/// A batch of what a node says to the leader of a shard, or hears from it, holds about so much, unless one thing is
/// larger; and not more things than this.
pub const RELAY_BATCH_BYTES: usize = 1 << 20;
pub const RELAY_BATCH_ITEMS_MAX: usize = 4_096;
/// What a batch says apart from records: the settles of a large transaction must fit.
pub const RELAY_HEAD_BYTES_MAX: usize = 16 << 20;
/// Batches that are not acknowledged, in each direction.
pub const RELAY_BATCHES_IN_FLIGHT: usize = 2;
/// The leader acknowledges no more while what it has not answered is larger: about 256 bytes each, and what is to be
/// appended.
pub const RELAY_UNANSWERED_BYTES_MAX: usize = 32 << 20;
/// What one take through a relay is given at most, but for a first record that is larger.
pub const RELAY_TAKE_BYTES_MAX: u64 = 8 << 20;
/// Sessions of one node that the leader of a shard has open, as many as it has channels.
pub const RELAY_SESSIONS_MAX: usize = 1_000_000;
/// Who has nothing to tell says so this often; a relay that is not asked for so long is over.
pub const RELAY_SIGN_EVERY: Duration = Duration::from_secs(2);
pub const RELAY_SILENT_AFTER: Duration = Duration::from_secs(5);
/// Who was elected waits for so long for what sessions of the other nodes have leased, before records are handed out.
/// What is presented later is over where its record was looked at.
pub const LEASES_PRESENTED_WITHIN: Duration = Duration::from_millis(500);
/// So many leases are presented in one piece.
pub const LEASES_PRESENTED_TOGETHER: usize = 1_000;
/// A relay that nobody uses is given up after this.
pub const RELAY_IDLE_MAX: Duration = Duration::from_secs(10);
/// The pause between two attempts to begin.
pub const RELAY_RETRY_EVERY: Duration = Duration::from_millis(50);

// --------------------------------------------------------------------------------- reading near by

/// The name of a rack: each node tells it to the others, and to clients.
pub const RACK_BYTES_MAX: usize = 255;
/// A consumer is sent to a copy near by that is not known to have so many of the newest entries of its shard's log at
/// most, and sent back once the copy lacks more than the other of these.
pub const COPY_NEAR_ENTRIES_MAX: u64 = 1_000;
pub const COPY_BEHIND_ENTRIES_MAX: u64 = 10_000;
/// A fetch at a copy waits so long at most: what makes the copy a bad one wakes nobody.
pub const COPY_FETCH_WAIT_MAX: Duration = Duration::from_secs(2);
/// Appends for a shard that another node leads go there in requests of about so much, unless one is larger.
pub const FORWARDED_BYTES: usize = 1 << 20;
/// And of at most so many rows: an append with more goes in parts.
pub const FORWARDED_ROWS: usize = NUMBERED_ROWS_KEPT as usize;
/// A shard knows where the last rows of each node went that brought some: so many, so that the node may ask again.
pub const NUMBERED_ROWS_KEPT: u64 = 4_096;
/// Of so many nodes: more than a cluster has.
pub const NUMBERED_NODES_MAX: usize = 256;
