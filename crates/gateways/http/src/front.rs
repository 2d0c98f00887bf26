//! What all connections share: something to say from the first moment on, and the node once it is open.
//!
//! A probe must learn that a node recovers, which takes as long as it takes. So the listener is there before the
//! broker, and is given it when it is open.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use access::{Quotas, Rights, Users};
use base::limits::{
    HTTP_ANSWER_BYTES_IN_FLIGHT_MAX, HTTP_ARRIVING_BYTES_MAX, PARSED_INLINE_BYTES_MAX,
};
use broker::delivery::SessionUser;
use broker::operations::{OperationAnswer, OperationError};
use broker::{Broker, Budget, CpuPool, LeaseSession, Permit, Unready};
use gateway::Tls;
use operations::document::Operation;
use tasks::Failure;
use tokio::sync::watch;
use topology::Topology;
use world::Entropy;

use crate::metrics::{ProcessSeen, Requests};
use crate::options::{GatewayOptions, LoginOptions};
use crate::problem::Problem;
use crate::sessions::Sessions;

/// Returns the reason why a node is not ready, if it is known.
type WaitsFor = Box<dyn Fn() -> Option<String> + Send + Sync>;

/// Clones are the same.
#[derive(Clone, Debug)]
pub struct Front(Arc<Inner>);

struct Inner {
    options: GatewayOptions,
    failure: Failure,
    entropy: Arc<dyn Entropy>,
    node: OnceLock<Node>,
    waiting: OnceLock<WaitsFor>,
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
        f.debug_struct("Front").field("options", &self.options).finish_non_exhaustive()
    }
}

/// A port that clients may connect to.
#[derive(Clone, Debug)]
pub struct ListeningPort {
    /// As RabbitMQ names it where it has it: `amqp`, `amqp/ssl`, `http`, `https`.
    pub protocol: &'static str,
    pub address: SocketAddr,
}

/// A node that is open.
#[derive(Clone, Debug)]
pub struct Node {
    pub broker: Broker,
    /// What is declared; `None`: there is no management API.
    pub topology: Option<Topology>,
    /// Where clients may connect.
    pub listening: Vec<ListeningPort>,
    /// `None`: nobody can log in.
    pub users: Option<Users>,
    pub login: LoginOptions,
    /// How much clients may send, take and change in a second.
    pub quotas: Quotas,
    /// What operators ask for.
    pub operator: Arc<dyn Operator>,
    /// Whoever knows it is the operator.
    pub operator_token: Option<Arc<str>>,
    /// What the product calls itself.
    pub version: &'static str,
    /// What encrypts the node's ports, if one does.
    pub tls: Option<Tls>,
    /// What the machine says of the process; asked for each scrape.
    pub process: fn() -> ProcessSeen,
    /// What became of spans of traced records; `None`: none are made.
    pub spans: Option<spans::Counts>,
}

/// Carries out what operators ask for, which stands in one place for all who ask.
pub trait Operator: Send + Sync + fmt::Debug {
    /// For somebody who may do so much. Answers the document of the answer.
    fn carry_out<'a>(&'a self, rights: &'a Rights, operation: Operation) -> OperationAnswer<'a>;

    /// Whether somebody may do that, without doing it.
    fn check(&self, rights: &Rights, operation: &Operation) -> Result<(), OperationError>;
}

/// Whether clients should be sent here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Readiness {
    Ready,
    Recovering,
    Draining,
    Failed(String),
    Broker(Unready),
}

impl Front {
    /// `failure` is the node's, of which parts may fail before it is open.
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

    /// The node is open: from now on it is served.
    pub fn open(&self, node: Node) {
        let opened = self.0.node.set(node);
        debug_assert!(opened.is_ok(), "a node is opened once");
    }

    /// Probes are answered with what the node waits for, from now on.
    pub fn explain(&self, waits_for: impl Fn() -> Option<String> + Send + Sync + 'static) {
        let _ = self.0.waiting.set(Box::new(waits_for));
    }

    pub(crate) fn waits_for(&self) -> Option<String> {
        self.0.waiting.get().and_then(|waits_for| waits_for())
    }

    /// The node shuts down: nobody should come any more, and whoever waits for something is answered.
    pub fn drain(&self) {
        self.0.draining.send_replace(true);
    }

    /// Nobody is served any more: connections finish the requests that they have begun. Probes should be answered for
    /// as long as the node drains, so this comes after all else.
    pub fn stop(&self) {
        self.0.stopping.send_replace(true);
    }

    /// Becomes true when connections are to end. The other end is gone only together with this.
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

    /// The session of all leases that are taken by HTTP on this node.
    pub(crate) fn leases(&self, broker: &Broker) -> &LeaseSession {
        // Of everybody who comes by HTTP.
        let user = || SessionUser { protocol: "http".into(), ..SessionUser::default() };
        self.0.leases.get_or_init(|| broker.lease_session_of(user()))
    }

    /// Room for more of a body, beside what it has.
    pub(crate) async fn arriving_room(&self, room: &mut Permit, bytes: usize) {
        self.0.arriving.grow(room, bytes).await;
    }

    /// Parses a document of so many bytes. A large one is parsed by another thread, one at a time: the threads that serve
    /// sockets also carry every append and answer the probes.
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

    /// Room for an answer with so many bytes of records.
    pub(crate) async fn answer_room(&self, bytes: usize) -> Permit {
        self.0.answers.admit(bytes).await
    }

    pub(crate) fn is_draining(&self) -> bool {
        *self.0.draining.borrow()
    }

    /// Returns when the node shuts down: whoever waits for something that may never come is answered then.
    pub(crate) async fn draining(&self) {
        // The other end is this.
        let _ = self.0.draining.subscribe().wait_for(|draining| *draining).await;
    }

    pub(crate) fn entropy(&self) -> &dyn Entropy {
        &*self.0.entropy
    }

    /// Of browsers.
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
