//! What a node does with what its peers ask.

use std::time::Duration;

use base::ShardId;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use thiserror::Error;

use crate::answering::IncomingAppends;
use crate::frame::{Message, Received};
use crate::identity::NodeId;
use crate::lane::Lane;

/// One request of a peer.
#[derive(Debug)]
pub struct Request {
    pub from: NodeId,
    pub lane: Lane,
    pub shard: ShardId,
    pub message: Received,
    /// How long the peer waits for the answer. The future that answers is dropped after that.
    pub within: Duration,
}

/// Why a request has no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Declined {
    /// The peer does not serve this.
    #[error("the peer does not serve this")]
    NotServed,
    /// The peer has more to do than it may hold; later it may be different.
    #[error("the peer is too busy")]
    Busy,
    /// The answer was not there when the deadline passed. What was asked for may be done all the same.
    #[error("the peer did not answer in time")]
    TooLate,
    /// The answer is longer than its lane allows.
    #[error("the peer's answer is too long")]
    AnswerTooLong,
}

impl Declined {
    const ALL: [Self; 4] = [Self::NotServed, Self::Busy, Self::TooLate, Self::AnswerTooLong];

    pub(crate) fn code(self) -> u8 {
        match self {
            Self::NotServed => 1,
            Self::Busy => 2,
            Self::TooLate => 3,
            Self::AnswerTooLong => 4,
        }
    }

    /// Of a later version's reasons only that it is one is known.
    pub(crate) fn of_code(code: u8) -> Self {
        Self::ALL.into_iter().find(|it| it.code() == code).unwrap_or(Self::NotServed)
    }
}

/// Answers peers. Its futures run in tasks of the connection and are dropped with it.
pub trait Service: Send + Sync + 'static {
    /// Answers a request. Requests of one connection run beside each other.
    fn answer(&self, request: Request) -> BoxFuture<'static, Result<Message, Declined>>;

    /// Takes a stream of appends until it ends. When the future returns the stream is over, and the peer
    /// hears that. When the peer begins another stream for the shard the future is dropped.
    fn appends(&self, appends: IncomingAppends) -> BoxFuture<'static, ()>;

    /// What a peer tells everybody; it comes again each second. Must not wait.
    fn gossip(&self, from: NodeId, payload: Bytes);
}
