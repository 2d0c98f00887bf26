//! What the one who runs the node decides about this gateway.

use std::sync::Arc;
use std::time::Duration;

use access::{Admission, Quotas, Users};
use base::limits;
use broker::operations::OperationFamily;
use gateway::Connections;
use nodes::Nodes;

/// How clients log in.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoginOptions {
    /// On the port that does not encrypt.
    pub plain: Admission,
    /// On the port that does.
    pub tls: Admission,
    /// Passwords may be said where others may hear them.
    pub plaintext: bool,
    /// A client must log in anew after so long (KIP-368); `None`: never.
    pub session_max: Option<Duration>,
}

#[derive(Clone, Debug)]
pub struct GatewayOptions {
    /// Where clients are told to connect, to this node and to others; may differ from where the listener is bound.
    pub nodes: Nodes,
    /// Kafka's `auto.create.topics.enable`: a client that asks for a topic may bring it about.
    pub auto_create_topics: bool,
    /// Kafka's `num.partitions`: of a topic that is made without saying how many.
    pub partitions_default: u32,
    pub sessions_max: usize,
    /// The node's live connections, those of other gateways too.
    pub connections: Connections,
    pub request_bytes_max: usize,
    /// A request that has begun must arrive whole within this time.
    pub request_arrives_within: Duration,
    /// A client that takes nothing of its response for so long is cut off.
    pub response_taken_within: Duration,
    pub session_idle_max: Duration,
    /// How long sessions may take to finish what they have begun when the node shuts down.
    pub drain_within: Duration,
    /// Fetch sessions kept between requests.
    pub fetch_sessions_max: usize,
    /// Bytes of what waiting requests hold on the whole node.
    pub waiting_bytes_max: usize,
    /// What an operator who is on another machine must know ([`crate::operations`]); without one, none
    /// of these may operate.
    pub operator_token: Option<Arc<str>>,
    /// Who may log in; `None`: nobody can.
    pub users: Option<Users>,
    pub login: LoginOptions,
    /// How much clients may send, take and change in a second.
    pub quotas: Quotas,
    /// Operations of other gateways, which operators ask for here, by the family's name.
    pub families: Vec<(&'static str, Arc<dyn OperationFamily>)>,
}

impl GatewayOptions {
    /// Whether a client that connects now must log in.
    pub(crate) fn login_is_required(&self, encrypted: bool) -> bool {
        let admission = if encrypted { self.login.tls } else { self.login.plain };
        admission.is_log_in_required(self.users.as_ref())
    }

    pub fn new(nodes: Nodes) -> Self {
        Self {
            nodes,
            auto_create_topics: true,
            partitions_default: 1,
            sessions_max: limits::SESSIONS_MAX_DEFAULT,
            connections: Connections::default(),
            request_bytes_max: limits::REQUEST_BYTES_MAX,
            request_arrives_within: limits::REQUEST_ARRIVES_WITHIN,
            response_taken_within: limits::RESPONSE_TAKEN_WITHIN,
            session_idle_max: limits::SESSION_IDLE_MAX,
            drain_within: Duration::from_secs(5),
            fetch_sessions_max: limits::FETCH_SESSIONS_MAX,
            waiting_bytes_max: limits::WAITING_BYTES_MAX,
            operator_token: None,
            users: None,
            login: LoginOptions::default(),
            quotas: Quotas::default(),
            families: Vec::new(),
        }
    }
}
