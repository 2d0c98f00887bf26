//! One lane to one peer: connects, serves the connection, reconnects.

mod backoff;

use std::io;
use std::sync::Arc;

use base::limits::{LINK_CONNECTS_WITHIN, LINK_HANDSHAKE_WITHIN};
use futures_util::FutureExt;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep_until, timeout};
use tracing::{debug, info, warn};
use world::net::{Net, Stream};
use world::{Instant, World};

use crate::arrivals::Arrivals;
use crate::connection::drive;
use crate::end::{ConnectError, ConnectionEnd};
use crate::frame::Incoming;
use crate::gossip::Gossip;
use crate::handshake::SeenRuns;
use crate::handshake::{self, HandshakeSide};
use crate::identity::{Admission, Identity};
use crate::lane::Lane;
use crate::node_id::NodeId;
use crate::requester::{Requester, Session};
use crate::security::{Security, Wire};
use crate::status::{EndedConnection, Phase, Status};
use backoff::Backoff;

/// State shared by all links of a node.
pub(crate) struct Dialer {
    pub(crate) world: World,
    pub(crate) ours: Identity,
    pub(crate) security: Security,
    pub(crate) seen: Arc<SeenRuns>,
    pub(crate) admission: Arc<dyn Admission>,
    pub(crate) gossip: Arc<Gossip>,
    pub(crate) arrivals: Arc<Arrivals>,
    pub(crate) closing: watch::Receiver<bool>,
}

/// A lane to a peer, as its users see it.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) node: NodeId,
    pub(crate) lane: Lane,
    state: watch::Sender<State>,
    wanted: Notify,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    pub(crate) status: Status,
    pub(crate) session: Option<Arc<Session>>,
}

impl Link {
    pub(crate) fn new(node: NodeId, lane: Lane) -> Self {
        Self { node, lane, state: watch::Sender::default(), wanted: Notify::new() }
    }

    pub(crate) fn watch(&self) -> watch::Receiver<State> {
        self.state.subscribe()
    }

    /// Requests the lane: from now on it is kept connected.
    pub(crate) fn want(&self) {
        self.wanted.notify_one();
    }

    fn set(&self, phase: Phase, session: Option<Arc<Session>>) {
        self.state.send_modify(|state| {
            state.status.phase = phase;
            state.session = session;
        });
    }

    /// Keeps the lane connected until this node stops; does not return.
    pub(crate) async fn run(
        self: Arc<Self>,
        dialer: Arc<Dialer>,
        mut address: watch::Receiver<String>,
    ) {
        let mut closing = dialer.closing.clone();
        if self.lane != Lane::Control {
            tokio::select! {
                biased;
                _ = closing.wait_for(|closing| *closing) => {}
                () = self.wanted.notified() => {}
            }
        }
        let (mut backoff, arrivals) = (Backoff::default(), dialer.arrivals.of(self.node));
        while !*closing.borrow() {
            self.set(Phase::Connecting { since: Instant::now() }, None);
            let to = address.borrow_and_update().clone();
            let connected = tokio::select! {
                biased;
                _ = closing.wait_for(|closing| *closing) => break,
                Ok(()) = address.changed() => continue,
                connected = dialer.connect(&to, self.node, self.lane) => connected,
            };
            let error = match connected {
                Ok(connected) => {
                    let (since, end) = (Instant::now(), self.serve(&dialer, connected).await);
                    if backoff.ended(since, Instant::now()) {
                        continue;
                    }
                    ConnectError::Ended(end)
                }
                Err(error) => error,
            };
            let pause = backoff.failed(&error, &*dialer.world.entropy);
            self.note(&error, &to);
            let until = Instant::now() + pause;
            self.set(Phase::Waiting { until, error }, None);
            tokio::select! {
                biased;
                _ = closing.wait_for(|closing| *closing) => {}
                Ok(()) = address.changed() => {}
                // The peer has connected to this node.
                () = arrivals.notified() => {}
                () = sleep_until(until) => {}
            }
        }
        self.set(Phase::Closed, None);
        // The owner drops this.
        std::future::pending().await
    }

    /// Logs errors that an operator has to act on. Other parts report that a node is down.
    fn note(&self, error: &ConnectError, address: &str) {
        let (node, lane) = (self.node, self.lane.name());
        match error {
            ConnectError::Refused(_)
            | ConnectError::RefusedHere(_)
            | ConnectError::Insecure(_)
            | ConnectError::Tls(_)
                if self.lane == Lane::Control =>
            {
                warn!(%node, address, %error, "no link to a node");
            }
            _ => debug!(%node, lane, address, %error, "no link to a node"),
        }
    }

    async fn serve(&self, dialer: &Dialer, connected: OpenConnection) -> ConnectionEnd {
        let OpenConnection { mut wire, peer, incoming } = connected;
        let session = Arc::new(Session::new(peer, self.lane));
        let mut ends =
            EndPublisher { link: self, session: Arc::clone(&session), end: ConnectionEnd::Here };
        let phase = Phase::Connected { since: Instant::now(), peer };
        self.set(phase, Some(Arc::clone(&session)));
        info!(node = %self.node, lane = self.lane.name(), boot = peer.at.boot, "connected to a node");
        let mut closing = dialer.closing.clone();
        let closing = async move {
            // Without a sender this task is dropped as well.
            let _ = closing.wait_for(|closing| *closing).await;
        };
        let mut role = Requester::new(session, Arc::clone(&dialer.gossip), closing.boxed());
        ends.end = drive(&mut wire, incoming, &ends.session.outbox, &mut role).await;
        let end = ends.end.clone();
        info!(node = %self.node, lane = self.lane.name(), %end, "the link to a node ended");
        end
    }
}

/// Publishes how a connection ended, also when its task is dropped.
struct EndPublisher<'a> {
    link: &'a Link,
    session: Arc<Session>,
    end: ConnectionEnd,
}

impl Drop for EndPublisher<'_> {
    fn drop(&mut self) {
        let (end, at, peer) = (self.end.clone(), Instant::now(), self.session.peer);
        self.session.end(&end);
        self.link.state.send_modify(|state| {
            state.status.phase = Phase::Connecting { since: at };
            state.status.last = Some(EndedConnection { end, at, peer });
            state.session = None;
        });
    }
}

struct OpenConnection {
    wire: Wire,
    peer: Identity,
    incoming: Incoming,
}

/// Opens a connection to `HOST:PORT`, before any message.
pub(crate) async fn dial(net: Net, address: &str) -> Result<Stream, ConnectError> {
    let connecting = timeout(LINK_CONNECTS_WITHIN, net.connect(address)).await;
    let stream =
        connecting.map_err(|_| ConnectError::Unanswered)?.map_err(|error| match error.kind() {
            io::ErrorKind::ConnectionRefused => ConnectError::NobodyListens,
            io::ErrorKind::TimedOut => ConnectError::Unanswered,
            kind => ConnectError::Unreachable(kind),
        })?;
    if let Err(error) = stream.set_nodelay(true) {
        debug!(address, %error, "cannot set TCP_NODELAY");
    }
    Ok(stream)
}

impl Dialer {
    async fn connect(
        &self,
        address: &str,
        node: NodeId,
        lane: Lane,
    ) -> Result<OpenConnection, ConnectError> {
        let stream = dial(self.world.net, address).await?;
        let handshake = async {
            let mut wire = self.security.connect(stream, address).await?;
            let side =
                HandshakeSide { ours: &self.ours, seen: &self.seen, admission: &*self.admission };
            let (peer, incoming) = handshake::connect(&mut wire, side, node, lane).await?;
            Ok(OpenConnection { wire, peer, incoming })
        };
        timeout(LINK_HANDSHAKE_WITHIN, handshake).await.unwrap_or(Err(ConnectError::Unanswered))
    }
}
