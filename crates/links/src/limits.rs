//! Bounds of this crate: memory, sizes and times. A bound that a user can set has its default here and its setting in
//! the comment. The others keep one bad client from harming the others.

use std::time::Duration;

use base::limits::{APPEND_BYTES_IN_FLIGHT_MAX, APPENDS_IN_FLIGHT_MAX};

const _: () = assert!(LINK_GOSSIP_BYTES_MAX < LINK_CONTROL_BYTES_MAX);

/// The longest message of a node to another one on the control lane: votes, gossip.
pub const LINK_CONTROL_BYTES_MAX: usize = 256 << 10;
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
/// Ping interval of a connection, and the silence after which it is closed: twice the longest election timeout.
pub const LINK_PING_EVERY: Duration = Duration::from_millis(400);
pub const LINK_SILENT_AFTER: Duration = Duration::from_millis(1_600);
/// How long the appends of a stream may make no progress while the link is alive, as when the follower's disk
/// hangs. Also how long a peer may read nothing from its socket.
pub const LINK_PROGRESS_WITHIN: Duration = Duration::from_secs(30);
/// How often unchanged gossip is repeated.
pub const LINK_GOSSIP_EVERY: Duration = Duration::from_secs(1);
/// The pause after the peer rejected this node: only an operator changes that.
pub const LINK_REFUSED_RETRY: Duration = Duration::from_secs(2);
/// If the peer closed the connection and does not accept a new one for this long, its process is considered gone.
pub const LINK_UNANSWERED_AFTER: Duration = Duration::from_millis(150);
/// How long a link may take to send its last messages when the node stops.
pub const LINK_CLOSES_WITHIN: Duration = Duration::from_secs(1);
