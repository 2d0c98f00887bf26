//! Options of this gateway, set by the server.

use std::time::Duration;

use access::{Admission, Quotas, Users};
use admin::Admin;
use base::limits;
use consumer_groups::Groups;
use gateway::Connections;
use nodes::Nodes;

/// Login requirements of clients.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoginOptions {
    /// For the port without TLS.
    pub plain: Admission,
    /// For the port with TLS.
    pub tls: Admission,
    /// Passwords are accepted over connections without TLS.
    pub plaintext: bool,
    /// A client must log in again after so long (KIP-368); `None`: never.
    pub session_max: Option<Duration>,
}

#[derive(Clone, Debug)]
pub struct GatewayOptions {
    /// Advertised endpoints of this node and of others; they may differ from the bound addresses.
    pub nodes: Nodes,
    /// The groups that this node coordinates.
    pub groups: Groups,
    /// Carries out operations of operators.
    pub admin: Admin,
    /// Kafka's `auto.create.topics.enable`: a metadata request may create the topics that it names.
    pub auto_create_topics: bool,
    /// Kafka's `num.partitions`: partitions of a topic that is created without a count.
    pub partitions_default: u32,
    pub sessions_max: usize,
    /// The node's live connections, including those of other gateways.
    pub connections: Connections,
    pub request_bytes_max: usize,
    /// Limit of the time between the first and the last byte of a request.
    pub request_arrives_within: Duration,
    /// A client that takes nothing of its response for so long is disconnected.
    pub response_taken_within: Duration,
    pub session_idle_max: Duration,
    /// Time for sessions to finish their started requests when the node shuts down.
    pub drain_within: Duration,
    /// Fetch sessions kept between requests.
    pub fetch_sessions_max: usize,
    /// Bytes held by waiting requests on the whole node.
    pub waiting_bytes_max: usize,
    /// Users that may log in; `None`: login is impossible.
    pub users: Option<Users>,
    pub login: LoginOptions,
    /// Rates at which clients may send, receive and change.
    pub quotas: Quotas,
}

impl GatewayOptions {
    /// Whether a client must log in on this kind of connection.
    pub(crate) fn login_is_required(&self, encrypted: bool) -> bool {
        let admission = if encrypted { self.login.tls } else { self.login.plain };
        admission.is_log_in_required(self.users.as_ref())
    }

    /// Options of a single node.
    #[cfg(test)]
    pub(crate) fn single_node(broker: &broker::Broker) -> Self {
        let (groups, connections) = (Groups::start(broker), Connections::default());
        let admin = Admin::new(broker.clone(), groups.clone(), connections, Vec::new());
        let kafka = nodes::Endpoint { host: "node-1".to_owned(), port: 9001 };
        let endpoints = nodes::Endpoints { kafka, amqp: None, kafka_tls: None, rack: None };
        Self::new(Nodes::alone(1, endpoints), groups, admin)
    }

    /// The live connections are those that `admin` lists.
    pub fn new(nodes: Nodes, groups: Groups, admin: Admin) -> Self {
        Self {
            nodes,
            groups,
            connections: admin.connections().clone(),
            admin,
            auto_create_topics: true,
            partitions_default: 1,
            sessions_max: limits::SESSIONS_MAX_DEFAULT,
            request_bytes_max: limits::REQUEST_BYTES_MAX,
            request_arrives_within: limits::REQUEST_ARRIVES_WITHIN,
            response_taken_within: limits::RESPONSE_TAKEN_WITHIN,
            session_idle_max: crate::limits::SESSION_IDLE_MAX,
            drain_within: Duration::from_secs(5),
            fetch_sessions_max: crate::limits::FETCH_SESSIONS_MAX,
            waiting_bytes_max: crate::limits::WAITING_BYTES_MAX,
            users: None,
            login: LoginOptions::default(),
            quotas: Quotas::default(),
        }
    }
}
