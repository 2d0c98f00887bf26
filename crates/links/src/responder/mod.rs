//! The replying side of a connection: it accepted the connection, and sends no requests.
//!
//! * [`accepted`]: one connection for each peer and lane: a later one replaces an earlier one
//! * [`requests`]: a request on its way to the service and back
//! * [`role`]: how the connection's task handles arriving frames

mod accepted;
mod requests;
mod role;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub(crate) use accepted::AcceptedConnections;
use base::limits::LINK_HANDSHAKE_WITHIN;
use futures_util::FutureExt;
use gateway::Connection;
use tokio::sync::watch;
use tokio::time::timeout;
use tracing::{debug, info, warn};
use world::net::Stream;

use crate::arrivals::Arrivals;
use crate::connection::drive;
use crate::end::{ConnectError, ConnectionEnd};
use crate::handshake::SeenRuns;
use crate::handshake::{self, AcceptedConnection, HandshakeSide};
use crate::identity::{Admission, Identity};
use crate::outbox::Outbox;
use crate::refusal::Refusal;
use crate::security::{Security, Wire};
use crate::service::Service;
use role::Responder;

/// State shared by all connections of peers.
pub(crate) struct ResponderState {
    pub(crate) ours: Identity,
    pub(crate) security: Security,
    pub(crate) seen: Arc<SeenRuns>,
    pub(crate) admission: Arc<dyn Admission>,
    pub(crate) service: Arc<dyn Service>,
    pub(crate) accepted: AcceptedConnections,
    pub(crate) arrivals: Arc<Arrivals>,
}

impl ResponderState {
    /// Serves one connection until it ends.
    pub(crate) async fn serve(
        self: Arc<Self>,
        stream: Stream,
        connection: Connection,
        mut stopping: watch::Receiver<bool>,
    ) {
        let address = connection.peer();
        let (mut wire, arrival) = match self.handshake(stream).await {
            Ok(arrived) => arrived,
            Err(ConnectError::RefusedHere(Refusal::JoinPending { .. })) => {
                debug!(%address, "a node asks to join");
                return;
            }
            Err(ConnectError::RefusedHere(refusal)) => {
                warn!(%address, %refusal, "a node is refused");
                return;
            }
            Err(error) => {
                debug!(%address, %error, "no handshake");
                return;
            }
        };
        let (peer, lane, incoming) = match arrival {
            AcceptedConnection::Peer(peer, lane, incoming) => (peer, lane, incoming),
            AcceptedConnection::Newcomer(peer) => {
                info!(node = %peer.at.node, %address, "a newcomer was told of this cluster");
                return;
            }
        };
        let (node, lane_name) = (peer.at.node, lane.name());
        connection.set_client(&format!("{node}, {lane_name}"));
        debug!(%node, lane = lane_name, %address, "a node has connected");
        let replaced = self.accepted.insert(node, lane);
        self.arrivals.note(node);
        let outbox = Arc::new(Outbox::new(crate::limits::LINK_REPLIES_BYTES_MAX));
        let stopping = async move {
            // Without a sender the listener was dropped, and this task with it.
            let _ = stopping.wait_for(|stopping| *stopping).await;
        };
        let service = Arc::clone(&self.service);
        let mut role = Responder::new(node, lane, service, Arc::clone(&outbox));
        role.ends_when(replaced, stopping.boxed(), connection);
        let end = drive(&mut wire, incoming, &outbox, &mut role).await;
        match end {
            ConnectionEnd::Left | ConnectionEnd::Here | ConnectionEnd::Replaced => {
                debug!(%node, lane = lane_name, %end, "a node's connection ended");
            }
            _ => info!(%node, lane = lane_name, %end, "a node's connection ended"),
        }
    }

    async fn handshake(&self, stream: Stream) -> Result<(Wire, AcceptedConnection), ConnectError> {
        let handshake = async {
            let wire = self.security.accept(stream).await;
            let mut wire = wire.map_err(|error| ConnectError::Ended(ConnectionEnd::of(&error)))?;
            let side =
                HandshakeSide { ours: &self.ours, seen: &self.seen, admission: &*self.admission };
            let arrival = handshake::accept(&mut wire, side).await?;
            Ok((wire, arrival))
        };
        timeout(LINK_HANDSHAKE_WITHIN, handshake).await.unwrap_or(Err(ConnectError::Unanswered))
    }
}
