//! Settings of this gateway.

use std::time::Duration;

use access::Admission;
use base::limits;
use gateway::Connections;

/// Log-in requirements.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoginOptions {
    /// On the unencrypted port.
    pub plain: Admission,
    /// On the encrypted port.
    pub tls: Admission,
    /// Accepts passwords on unencrypted remote connections.
    pub plaintext: bool,
}

impl LoginOptions {
    pub(crate) fn admission(&self, encrypted: bool) -> Admission {
        if encrypted { self.tls } else { self.plain }
    }
}

#[derive(Clone, Debug)]
pub struct GatewayOptions {
    pub sessions_max: usize,
    /// The node's live connections, including those of other gateways.
    pub connections: Connections,
    /// Further host names that are accepted where there is no log-in.
    pub hosts: Vec<String>,
    /// A client that reads nothing of its response for this long is disconnected.
    pub answer_taken_within: Duration,
    /// Time that connections have at shutdown to finish their requests in flight.
    pub drain_within: Duration,
}

impl Default for GatewayOptions {
    fn default() -> Self {
        Self {
            sessions_max: limits::SESSIONS_MAX_DEFAULT,
            connections: Connections::default(),
            hosts: Vec::new(),
            answer_taken_within: crate::limits::HTTP_ANSWER_TAKEN_WITHIN,
            drain_within: Duration::from_secs(5),
        }
    }
}
