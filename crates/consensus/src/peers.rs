//! The way to the other members of a group, which the caller provides.
//!
//! Messages are bytes here: their content is this crate's business, and their transport is not. The receiving node
//! passes them to [`Consensus::answer`](crate::Consensus::answer) and
//! [`Consensus::answer_appends`](crate::Consensus::answer_appends) of the target member, and sends the replies
//! back.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use thiserror::Error;

/// The member that a message is for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MessageTarget {
    pub node: u64,
    /// The address in the list of members.
    pub address: String,
}

/// One append: entries for the end of the target's log, or none.
#[derive(Clone, Debug)]
pub struct AppendMessage {
    /// At most `GROUP_MESSAGE_BYTES_MAX`.
    pub head: Bytes,
    /// The entries, one after the other, from their place in memory.
    pub entries: Vec<Bytes>,
}

/// A received append: the entries in one buffer, sliced by the parts that are kept.
#[derive(Clone, Debug)]
pub struct ReceivedAppend {
    pub head: Bytes,
    pub entries: Bytes,
}

/// Reason why no reply came.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum PeerError {
    /// There is no connection. It is retried after a growing pause.
    #[error("it cannot be reached: {0}")]
    Unreachable(String),
    /// The connection ended, or took too long.
    #[error("the answer did not come: {0}")]
    Broken(String),
}

/// The reply to a request on the bulk lane.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BulkReply {
    /// At most `GROUP_MESSAGE_BYTES_MAX`.
    pub head: Bytes,
    /// A piece, under checksums of its own.
    pub piece: Bytes,
}

pub type ReplyStream = BoxStream<'static, Result<Bytes, PeerError>>;

/// Sends to the other members. Every call may be dropped at any moment, which cancels it.
pub trait Peers: Send + Sync + 'static {
    /// Sends votes and other messages that must not wait behind entries. The reply is of no use after `within`.
    fn request(
        &self,
        to: MessageTarget,
        request: Bytes,
        within: Duration,
    ) -> BoxFuture<'static, Result<Bytes, PeerError>>;

    /// Sends appends in order, and returns their replies in the same order. `appends` limits the unanswered ones
    /// itself: it is polled as long as the replies are, and holds back while they are not read. A stream of one
    /// append that ends is a heartbeat, and must not wait behind entries of another stream. Ends when `appends`
    /// has ended and all are answered, or with an error.
    fn append(
        &self,
        to: MessageTarget,
        appends: BoxStream<'static, AppendMessage>,
    ) -> BoxFuture<'static, Result<ReplyStream, PeerError>>;

    /// Fetches a piece of a snapshot, small or large, that must not delay other messages: the reply of
    /// [`Consensus::answer_fetch`](crate::Consensus::answer_fetch) of the target.
    fn fetch(
        &self,
        to: MessageTarget,
        request: Bytes,
        within: Duration,
    ) -> BoxFuture<'static, Result<BulkReply, PeerError>>;
}

/// The peers of a group of one: none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoPeers;

impl NoPeers {
    fn unreachable<T>(to: &MessageTarget) -> Result<T, PeerError> {
        let MessageTarget { node, address } = to;
        Err(PeerError::Unreachable(format!("no link to node {node} at '{address}' was set up")))
    }
}

impl Peers for NoPeers {
    fn request(
        &self,
        to: MessageTarget,
        _: Bytes,
        _: Duration,
    ) -> BoxFuture<'static, Result<Bytes, PeerError>> {
        Box::pin(async move { Self::unreachable(&to) })
    }

    fn append(
        &self,
        to: MessageTarget,
        _: BoxStream<'static, AppendMessage>,
    ) -> BoxFuture<'static, Result<ReplyStream, PeerError>> {
        Box::pin(async move { Self::unreachable(&to) })
    }

    fn fetch(
        &self,
        to: MessageTarget,
        _: Bytes,
        _: Duration,
    ) -> BoxFuture<'static, Result<BulkReply, PeerError>> {
        Box::pin(async move { Self::unreachable(&to) })
    }
}
