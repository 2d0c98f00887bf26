//! The way to the other members of a group, as the group is given it.
//!
//! Messages are bytes here: what is in them is this crate's business, and how they travel is not. Whoever
//! receives them gives them to [`Consensus::answer`](crate::Consensus::answer) and
//! [`Consensus::answer_appends`](crate::Consensus::answer_appends) of the member that they are for, and
//! sends back what these answer.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use thiserror::Error;

use crate::catch_up::Fetched;

/// The member that a message is for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    pub node: u64,
    /// As the list of members has it.
    pub address: String,
}

/// One append: entries for the end of the target's log, or none.
#[derive(Clone, Debug)]
pub struct AppendMessage {
    /// At most `GROUP_MESSAGE_BYTES_MAX`.
    pub head: Bytes,
    /// The entries, one after the other, from where they lie in memory.
    pub entries: Vec<Bytes>,
}

/// The same as it arrived: the entries in one buffer, of which what is kept holds slices.
#[derive(Clone, Debug)]
pub struct ReceivedAppend {
    pub head: Bytes,
    pub entries: Bytes,
}

/// Why no answer came.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum PeerError {
    /// There is no connection. It is tried again after a while that grows.
    #[error("it cannot be reached: {0}")]
    Unreachable(String),
    /// The connection ended, or took too long.
    #[error("the answer did not come: {0}")]
    Broken(String),
}

pub type Answers = BoxStream<'static, Result<Bytes, PeerError>>;

/// Sends to the other members. Every call may be dropped at any moment, and what it was about with it.
pub trait Peers: Send + Sync + 'static {
    /// Votes and what else must not wait behind entries. The answer is of no use after `within`.
    fn request(
        &self,
        to: Target,
        request: Bytes,
        within: Duration,
    ) -> BoxFuture<'static, Result<Bytes, PeerError>>;

    /// Appends in order, and their answers in the same order. `appends` says by itself how many may be
    /// unanswered: it is polled as long as the answers are, and holds back where they are not read. A
    /// stream of one append that ends is a heartbeat, and must not wait behind entries of another one.
    /// Ends when `appends` did and all is answered, or with an error.
    fn append(
        &self,
        to: Target,
        appends: BoxStream<'static, AppendMessage>,
    ) -> BoxFuture<'static, Result<Answers, PeerError>>;

    /// A piece of a snapshot, small or large, that must not be in the way of the rest: what
    /// [`Consensus::answer_fetch`](crate::Consensus::answer_fetch) of the target answers.
    fn fetch(
        &self,
        to: Target,
        request: Bytes,
        within: Duration,
    ) -> BoxFuture<'static, Result<Fetched, PeerError>>;
}

/// For a group of one that has nobody to send to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoPeers;

impl NoPeers {
    fn unreachable<T>(to: &Target) -> Result<T, PeerError> {
        let Target { node, address } = to;
        Err(PeerError::Unreachable(format!("no link to node {node} at '{address}' was set up")))
    }
}

impl Peers for NoPeers {
    fn request(
        &self,
        to: Target,
        _: Bytes,
        _: Duration,
    ) -> BoxFuture<'static, Result<Bytes, PeerError>> {
        Box::pin(async move { Self::unreachable(&to) })
    }

    fn append(
        &self,
        to: Target,
        _: BoxStream<'static, AppendMessage>,
    ) -> BoxFuture<'static, Result<Answers, PeerError>> {
        Box::pin(async move { Self::unreachable(&to) })
    }

    fn fetch(
        &self,
        to: Target,
        _: Bytes,
        _: Duration,
    ) -> BoxFuture<'static, Result<Fetched, PeerError>> {
        Box::pin(async move { Self::unreachable(&to) })
    }
}
