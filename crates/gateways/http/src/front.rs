//! State shared by all connections: health from the first moment on, and the node once it is open.
//!
//! Probes must see that a node recovers, which may take long. So the listener starts before the broker, and receives
//! it once it is open.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use access::{Quotas, Users};
use admin::Admin;
use base::limits::PARSED_INLINE_BYTES_MAX;
use broker::delivery::SessionUser;
use broker::{Broker, Budget, CpuPool, LeaseSession, Permit, UnreadyReason};
use gateway::Tls;
use nodes::Nodes;
use tasks::Failure;
use tokio::sync::watch;
use topology::Topology;
use world::Entropy;

use crate::limits::{HTTP_ANSWER_BYTES_IN_FLIGHT_MAX, HTTP_ARRIVING_BYTES_MAX};
use crate::options::{GatewayOptions, LoginOptions};
use crate::problem::Problem;
use crate::request_counts::Requests;
use crate::sessions::Sessions;

/// Returns the reason why a node is not ready, if it is known.
type StartupStatus = Box<dyn Fn() -> Option<String> + Send + Sync>;

/// Clones share their state.
#[derive(Clone, Debug)]
pub struct FrontEnd(Arc<Inner>);

struct Inner {
    options: GatewayOptions,
    failure: Failure,
    entropy: Arc<dyn Entropy>,
    node: OnceLock<Node>,
    waiting: OnceLock<StartupStatus>,
    draining: watch::Sender<bool>,
    stopping: watch::Sender<bool>,
    requests: Requests,
    leases: OnceLock<LeaseSession>,
    arriving: Budget,
    answers: Budget,
    sessions: Sessions,
    documents: OnceLock<CpuPool>,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrontEnd").field("options", &self.options).finish_non_exhaustive()
    }
}

/// A port that clients may connect to.
#[derive(Clone, Debug)]
pub struct ListeningPort {
    /// RabbitMQ's name where it has one: `amqp`, `amqp/ssl`, `http`, `https`.
    pub protocol: &'static str,
    pub address: SocketAddr,
}

/// Process statistics of the operating system.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct ProcessSeen {
    pub cpu_seconds: f64,
    /// `None`, here and below: unknown on this system.
    pub resident_bytes: Option<u64>,
    pub open_files: Option<u64>,
    pub open_files_max: Option<u64>,
}

/// A node that is open.
#[derive(Clone, Debug)]
pub struct Node {
    pub broker: Broker,
    /// Vhosts, exchanges and queues; `None`: there is no management API.
    pub topology: Option<Topology>,
    /// Ports for clients.
    pub listening: Vec<ListeningPort>,
    /// `None`: log-in is impossible.
    pub users: Option<Users>,
    pub login: LoginOptions,
    /// Rates of produced, consumed and changed data for each client.
    pub quotas: Quotas,
    /// Carries out operations of operators.
    pub admin: Admin,
    /// The nodes of the cluster, whose operator tokens are accepted.
    pub nodes: Nodes,
    /// Version of the product.
    pub version: &'static str,
    /// TLS of the node's ports, if there is any.
    pub tls: Option<Tls>,
    /// Process statistics of the machine; read for each scrape.
    pub process: fn() -> ProcessSeen,
    /// Outcomes of spans of traced records; `None`: there are no spans.
    pub spans: Option<spans::Counts>,
}

/// Whether clients should be sent to this node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Readiness {
    Ready,
    Recovering,
    Draining,
    Failed(String),
    Broker(UnreadyReason),
}

impl FrontEnd {
    /// `failure` belongs to the node, parts of which may fail before it is open.
    pub fn new(options: GatewayOptions, failure: Failure, entropy: Arc<dyn Entropy>) -> Self {
        Self(Arc::new(Inner {
            options,
            failure,
            entropy,
            node: OnceLock::new(),
            waiting: OnceLock::new(),
            draining: watch::Sender::new(false),
            stopping: watch::Sender::new(false),
            requests: Requests::default(),
            leases: OnceLock::new(),
            arriving: Budget::new(HTTP_ARRIVING_BYTES_MAX),
            answers: Budget::new(HTTP_ANSWER_BYTES_IN_FLIGHT_MAX),
            sessions: Sessions::default(),
            documents: OnceLock::new(),
        }))
    }

    /// Sets the node, which is served from now on.
    pub fn open(&self, node: Node) {
        let opened = self.0.node.set(node);
        debug_assert!(opened.is_ok(), "a node is opened once");
    }

    /// Sets the reason that probes receive while the node is not ready.
    pub fn explain(&self, waits_for: impl Fn() -> Option<String> + Send + Sync + 'static) {
        let _ = self.0.waiting.set(Box::new(waits_for));
    }

    pub(crate) fn waits_for(&self) -> Option<String> {
        self.0.waiting.get().and_then(|waits_for| waits_for())
    }

    /// The node shuts down: it is no longer ready, and long-polling requests are answered.
    pub fn drain(&self) {
        self.0.draining.send_replace(true);
    }

    /// Ends all connections, after their requests in flight. Called last, since probes are served while the node
    /// drains.
    pub fn stop(&self) {
        self.0.stopping.send_replace(true);
    }

    /// Becomes true when connections are to end. The sender lives as long as this.
    pub(crate) fn stopping(&self) -> watch::Receiver<bool> {
        self.0.stopping.subscribe()
    }

    pub(crate) fn options(&self) -> &GatewayOptions {
        &self.0.options
    }

    pub(crate) fn node(&self) -> Option<&Node> {
        self.0.node.get()
    }

    /// The node, once it is open.
    pub(crate) fn opened(&self) -> Result<&Node, Problem> {
        self.node().ok_or_else(Problem::starting)
    }

    /// The session of all leases taken by HTTP on this node.
    pub(crate) fn leases(&self, broker: &Broker) -> &LeaseSession {
        // Shared by all users of HTTP.
        let user = || SessionUser { protocol: "http".into(), ..SessionUser::default() };
        self.0.leases.get_or_init(|| broker.lease_session_of(user()))
    }

    /// Admits more bytes of a request body, in addition to those that `room` covers.
    pub(crate) async fn arriving_room(&self, room: &mut Permit, bytes: usize) {
        self.0.arriving.grow(room, bytes).await;
    }

    /// Parses a document of this size. Large ones are parsed on another thread, one at a time: the threads that serve
    /// sockets also carry every append and answer probes.
    pub(crate) async fn parse<R: Send + 'static>(
        &self,
        bytes: usize,
        parse: impl FnOnce() -> R + Send + 'static,
    ) -> R {
        match self.node().filter(|_| bytes > PARSED_INLINE_BYTES_MAX) {
            Some(node) => {
                let documents = self.0.documents.get_or_init(|| node.broker.cpu().separate(1));
                documents.run(parse).await
            }
            None => parse(),
        }
    }

    /// Admits a response with this many bytes of records.
    pub(crate) async fn answer_room(&self, bytes: usize) -> Permit {
        self.0.answers.admit(bytes).await
    }

    pub(crate) fn is_draining(&self) -> bool {
        *self.0.draining.borrow()
    }

    /// Returns when the node shuts down, so that long-polling requests can be answered.
    pub(crate) async fn draining(&self) {
        // The sender is a field of this.
        let _ = self.0.draining.subscribe().wait_for(|draining| *draining).await;
    }

    pub(crate) fn entropy(&self) -> &dyn Entropy {
        &*self.0.entropy
    }

    /// Browser sessions.
    pub(crate) fn sessions(&self) -> &Sessions {
        &self.0.sessions
    }

    pub(crate) fn requests(&self) -> &Requests {
        &self.0.requests
    }

    pub(crate) fn readiness(&self) -> Readiness {
        if let Some(reason) = self.0.failure.reason() {
            return Readiness::Failed(reason);
        }
        if self.is_draining() {
            return Readiness::Draining;
        }
        let Some(node) = self.node() else { return Readiness::Recovering };
        node.broker.unready().map_or(Readiness::Ready, Readiness::Broker)
    }
}
