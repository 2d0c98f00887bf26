//! What the one who runs the node decides about this gateway.

use std::time::Duration;

use access::Admission;
use base::limits;
use gateway::Connections;

/// How clients log in.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoginOptions {
    /// On the port that does not encrypt.
    pub plain: Admission,
    /// On the port that does.
    pub tls: Admission,
    /// Passwords may be said where others may hear them.
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
    /// The node's live connections, those of other gateways too.
    pub connections: Connections,
    /// Further names that clients may call this node by where nobody logs in.
    pub hosts: Vec<String>,
    /// A client that takes nothing of its answer for so long is cut off.
    pub answer_taken_within: Duration,
    /// How long sessions may take to finish what they have begun when the node shuts down.
    pub drain_within: Duration,
}

impl Default for GatewayOptions {
    fn default() -> Self {
        Self {
            sessions_max: limits::SESSIONS_MAX_DEFAULT,
            connections: Connections::default(),
            hosts: Vec::new(),
            answer_taken_within: limits::HTTP_ANSWER_TAKEN_WITHIN,
            drain_within: Duration::from_secs(5),
        }
    }
}
