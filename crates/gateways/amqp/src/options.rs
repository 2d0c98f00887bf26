//! What the one who runs the node decides about this gateway.

use std::time::Duration;

use access::Quotas;
use base::limits;
use gateway::Connections;

#[derive(Clone, Debug)]
pub struct GatewayOptions {
    pub sessions_max: usize,
    /// The node's live connections, those of other gateways too.
    pub connections: Connections,
    /// What the server offers in `connection.tune`; a client may ask for less.
    pub frame_max: u32,
    pub channel_max: u16,
    pub heartbeat: Duration,
    /// Who a client is that logs in without a name (SASL ANONYMOUS); `None`: none may.
    pub anonymous_user: Option<String>,
    /// How much clients may send, take and change in a second.
    pub quotas: Quotas,
    /// Passwords may be said where others may hear them.
    pub plaintext_passwords: bool,
    /// Largest message body.
    pub message_bytes_max: u64,
    /// From connecting to an open connection.
    pub handshake_within: Duration,
    /// A message that has begun must arrive whole within this time.
    pub message_arrives_within: Duration,
    /// A client that takes nothing of its replies for so long is cut off.
    pub replies_taken_within: Duration,
    /// How long sessions may take to finish what they have begun when the node shuts down.
    pub drain_within: Duration,
}

impl Default for GatewayOptions {
    fn default() -> Self {
        Self {
            sessions_max: limits::SESSIONS_MAX_DEFAULT,
            connections: Connections::default(),
            frame_max: limits::AMQP_FRAME_BYTES_MAX,
            channel_max: limits::AMQP_CHANNELS_PER_SESSION_MAX,
            heartbeat: limits::AMQP_HEARTBEAT,
            anonymous_user: None,
            quotas: Quotas::default(),
            plaintext_passwords: false,
            message_bytes_max: limits::AMQP_MESSAGE_BYTES_MAX,
            handshake_within: limits::AMQP_HANDSHAKE_WITHIN,
            message_arrives_within: limits::REQUEST_ARRIVES_WITHIN,
            replies_taken_within: limits::RESPONSE_TAKEN_WITHIN,
            drain_within: Duration::from_secs(5),
        }
    }
}
