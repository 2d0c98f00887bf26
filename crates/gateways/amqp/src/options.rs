//! Settings of this gateway by the node's operator.

use std::time::Duration;

use access::Quotas;
use base::limits;
use gateway::Connections;

#[derive(Clone, Debug)]
pub struct GatewayOptions {
    pub sessions_max: usize,
    /// The node's live connections, including those of other gateways.
    pub connections: Connections,
    /// The server's offer in `connection.tune`; a client may choose less.
    pub frame_max: u32,
    pub channel_max: u16,
    pub heartbeat: Duration,
    /// User of a client that logs in without a name (SASL ANONYMOUS); `None`: such logins are rejected.
    pub anonymous_user: Option<String>,
    /// Limits per second of bytes sent, bytes received and changes by clients.
    pub quotas: Quotas,
    /// Accepts passwords over unencrypted connections from other hosts.
    pub plaintext_passwords: bool,
    /// Largest message body.
    pub message_bytes_max: u64,
    /// Time from the TCP connection to an open AMQP connection.
    pub handshake_within: Duration,
    /// Time within which a message must arrive completely, from its first frame.
    pub message_arrives_within: Duration,
    /// A client that takes none of its output for this long is disconnected.
    pub replies_taken_within: Duration,
    /// Time for sessions to finish their work in flight at shutdown.
    pub drain_within: Duration,
}

impl Default for GatewayOptions {
    fn default() -> Self {
        Self {
            sessions_max: limits::SESSIONS_MAX_DEFAULT,
            connections: Connections::default(),
            frame_max: crate::limits::AMQP_FRAME_BYTES_MAX,
            channel_max: crate::limits::AMQP_CHANNELS_PER_SESSION_MAX,
            heartbeat: crate::limits::AMQP_HEARTBEAT,
            anonymous_user: None,
            quotas: Quotas::default(),
            plaintext_passwords: false,
            message_bytes_max: limits::AMQP_MESSAGE_BYTES_MAX,
            handshake_within: crate::limits::AMQP_HANDSHAKE_WITHIN,
            message_arrives_within: limits::REQUEST_ARRIVES_WITHIN,
            replies_taken_within: limits::RESPONSE_TAKEN_WITHIN,
            drain_within: Duration::from_secs(5),
        }
    }
}
