//! Another node, as its callers use it.

use std::sync::Arc;

use base::ShardId;
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::timeout_at;
use world::Instant;

use crate::end::{ConnectError, ConnectionEnd};
use crate::frame::{Message, ReceivedMessage};
use crate::lane::Lane;
use crate::link::{Link, State};
use crate::node_id::NodeId;
use crate::requester::{self, AppendSender, LostReply, Replies, Session, shard_on_the_wire};
use crate::service::Declined;
use crate::status::{Phase, Status};

/// Another node. Clones refer to the same one. It keeps nothing alive: when [`crate::Links`] or the peer is gone,
/// requests fail.
#[derive(Clone, Debug)]
pub struct Peer {
    pub(crate) node: NodeId,
    pub(crate) lanes: Arc<[LaneHandle; 4]>,
}

/// A lane without its task.
#[derive(Debug)]
pub(crate) struct LaneHandle {
    pub(crate) link: std::sync::Weak<Link>,
    pub(crate) state: watch::Receiver<State>,
}

/// Reason why a request has no reply.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum RequestError {
    /// It was not sent.
    #[error("not connected: {0}")]
    NotConnected(ConnectError),
    /// It was not sent: the peer was removed, or this node stops.
    #[error("the node is none to connect to any more")]
    Gone,
    /// It was not sent.
    #[error("{bytes} bytes, of which {max} are allowed")]
    TooLong { bytes: usize, max: usize },
    /// It was not sent.
    #[error("{0} has no number that links know")]
    NoSuchShard(ShardId),
    /// The deadline passed before there was a connection, or room, to send it.
    #[error("not sent before the deadline")]
    NotSent,
    /// It was sent; whether it is carried out is unknown.
    #[error("not answered before the deadline")]
    TooLate,
    /// It may have been sent; whether it is carried out is unknown.
    #[error("the connection ended: {0}")]
    Ended(ConnectionEnd),
    /// The peer declined the request.
    #[error("{0}")]
    Declined(Declined),
}

impl RequestError {
    /// Whether the peer certainly has not seen the request.
    pub fn is_not_sent(&self) -> bool {
        match self {
            Self::NotConnected(_)
            | Self::Gone
            | Self::TooLong { .. }
            | Self::NoSuchShard(_)
            | Self::NotSent => true,
            Self::TooLate | Self::Ended(_) | Self::Declined(_) => false,
        }
    }
}

impl Peer {
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// Sends a request and waits for its reply until the deadline. Fails at once while there is no connection and
    /// none is being made. The peer may carry the request out even if this is dropped.
    pub async fn request(
        &self,
        lane: Lane,
        shard: ShardId,
        message: Message,
        deadline: Instant,
    ) -> Result<ReceivedMessage, RequestError> {
        let shard = shard_on_the_wire(shard).ok_or(RequestError::NoSuchShard(shard))?;
        let (bytes, max) = (message.bytes(), lane.message_bytes_max());
        if bytes > max {
            return Err(RequestError::TooLong { bytes, max });
        }
        let sending = async {
            let session = self.connected(lane).await?;
            let ended = || {
                // The session ended before the request had room, so it was not sent.
                let end = session.ended().unwrap_or(ConnectionEnd::Here);
                RequestError::NotConnected(ConnectError::Ended(end))
            };
            let place = session.window.place().await.map_err(|_| ended())?;
            let slot = session.window.fill(place, bytes).await.map_err(|_| ended())?;
            session.request(shard, message, deadline, slot).map_err(|_| ended())
        };
        let answer = timeout_at(deadline, sending).await.unwrap_or(Err(RequestError::NotSent))?;
        match timeout_at(deadline, answer).await {
            Err(_) => Err(RequestError::TooLate),
            // The link answers every accepted request before it drops it.
            Ok(Err(_)) => Err(RequestError::Gone),
            Ok(Ok(Ok(received))) => Ok(received),
            Ok(Ok(Err(lost))) => Err(match lost {
                LostReply::Ended(end) => RequestError::Ended(end),
                LostReply::Declined(Declined::TooLate) => RequestError::TooLate,
                LostReply::Declined(declined) => RequestError::Declined(declined),
                LostReply::NotSent => RequestError::NotSent,
                // Outcomes of streams only.
                LostReply::Superseded | LostReply::Stalled | LostReply::StreamEnded => {
                    RequestError::Gone
                }
            }),
        }
    }

    /// Begins a stream of appends of a shard on the replication lane, once there is a connection. It belongs to
    /// that connection and ends with it. It ends an earlier stream of the shard to this peer.
    pub async fn appends(
        &self,
        shard: ShardId,
        deadline: Instant,
    ) -> Result<(AppendSender, Replies), RequestError> {
        let shard = shard_on_the_wire(shard).ok_or(RequestError::NoSuchShard(shard))?;
        let connected = timeout_at(deadline, self.connected(Lane::Replication)).await;
        let session = connected.unwrap_or(Err(RequestError::NotSent))?;
        requester::begin_appends(session, shard)
            .map_err(|end| RequestError::NotConnected(ConnectError::Ended(end)))
    }

    /// The status of a lane.
    pub fn status(&self, lane: Lane) -> Status {
        self.lanes[lane as usize].state.borrow().status.clone()
    }

    /// Reports each change of a lane's status.
    pub fn watch(&self, lane: Lane) -> StatusWatch {
        StatusWatch(self.lanes[lane as usize].state.clone())
    }

    /// Connects a lane before its first request.
    pub fn connect(&self, lane: Lane) {
        if let Some(link) = self.lanes[lane as usize].link.upgrade() {
            link.want();
        }
    }

    async fn connected(&self, lane: Lane) -> Result<Arc<Session>, RequestError> {
        let mut state = self.lanes[lane as usize].state.clone();
        loop {
            {
                let state = state.borrow_and_update();
                match (&state.session, &state.status.phase) {
                    (Some(session), _) => return Ok(Arc::clone(session)),
                    (None, Phase::Waiting { error, .. }) => {
                        return Err(RequestError::NotConnected(error.clone()));
                    }
                    (None, Phase::Closed) => return Err(RequestError::Gone),
                    (None, Phase::Idle) => self.connect(lane),
                    (None, Phase::Connecting { .. } | Phase::Connected { .. }) => {}
                }
            }
            state.changed().await.map_err(|_| RequestError::Gone)?;
        }
    }
}

/// Follows the status of a lane.
#[derive(Clone, Debug)]
pub struct StatusWatch(watch::Receiver<State>);

impl StatusWatch {
    /// The current status.
    pub fn get(&self) -> Status {
        self.0.borrow().status.clone()
    }

    /// The status after its next change; `None` once the peer is gone. Several changes at a time are one. Nothing
    /// is lost if this is dropped.
    pub async fn changed(&mut self) -> Option<Status> {
        self.0.changed().await.ok()?;
        Some(self.0.borrow_and_update().status.clone())
    }
}
