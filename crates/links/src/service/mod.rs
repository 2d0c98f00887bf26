//! The service of a node for the requests of its peers: the interface, and its inputs.
//!
//! * `appends`: a stream of appends
//!
//! It depends on `frame` and `outbox`, and knows no connection.

mod appends;

use std::time::Duration;

use base::ShardId;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use thiserror::Error;

use crate::frame::{Kind, Message, QueuedFrame, ReceivedMessage};
use crate::lane::Lane;
use crate::node_id::NodeId;

pub use appends::{IncomingAppend, IncomingAppends};

/// One request of a peer.
#[derive(Debug)]
pub struct Request {
    pub from: NodeId,
    pub lane: Lane,
    pub shard: ShardId,
    pub message: ReceivedMessage,
    /// How long the peer waits for the reply. The future of the reply is dropped after that.
    pub within: Duration,
}

/// Reason why a request is declined.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Declined {
    /// The peer does not serve this.
    #[error("the peer does not serve this")]
    NotServed,
    /// The peer is at its limit; a retry may succeed.
    #[error("the peer is too busy")]
    Busy,
    /// The deadline passed before the reply. The request may be carried out nevertheless.
    #[error("the peer did not answer in time")]
    TooLate,
    /// The reply is longer than its lane allows.
    #[error("the peer's answer is too long")]
    AnswerTooLong,
}

impl Declined {
    const ALL: [Self; 4] = [Self::NotServed, Self::Busy, Self::TooLate, Self::AnswerTooLong];

    fn code(self) -> u8 {
        match self {
            Self::NotServed => 1,
            Self::Busy => 2,
            Self::TooLate => 3,
            Self::AnswerTooLong => 4,
        }
    }

    /// The reply to the request of this number.
    pub(crate) fn frame(self, number: u32) -> QueuedFrame {
        QueuedFrame::new(Kind::Declined, number, Message::from_head(vec![self.code()]))
    }

    /// An unknown reason of a later version becomes `NotServed`.
    pub(crate) fn from_code(code: u8) -> Self {
        Self::ALL.into_iter().find(|it| it.code() == code).unwrap_or(Self::NotServed)
    }
}

/// Replies to peers. Its futures run in tasks of the connection and are dropped with it.
pub trait Service: Send + Sync + 'static {
    /// Handles a request. Requests of one connection run concurrently.
    fn answer(&self, request: Request) -> BoxFuture<'static, Result<Message, Declined>>;

    /// Handles a stream of appends until it ends. When the future returns the stream is over, which is sent to the
    /// peer. When the peer begins another stream for the shard the future is dropped.
    fn appends(&self, appends: IncomingAppends) -> BoxFuture<'static, ()>;

    /// Receives the gossip of a peer, which is repeated each second. Must not wait.
    fn gossip(&self, from: NodeId, payload: Bytes);
}
