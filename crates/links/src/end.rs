//! The end of connections, and failures to connect: for parts that decide whether a node is dead.

use std::io;

use crate::limits::{LINK_PROGRESS_WITHIN, LINK_SILENT_AFTER};
use thiserror::Error;

use crate::refusal::Refusal;

/// The end of an established connection.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum ConnectionEnd {
    /// The peer announced that it closes: its node stops, or no longer wants this link.
    #[error("the peer closed it in order")]
    Left,
    /// The peer's end of the stream, without an announcement, as when a process is killed.
    #[error("the peer's end was closed without a word")]
    Closed,
    /// The peer's system reset it, or the network reported an error.
    #[error("broken: {0}")]
    Broken(io::ErrorKind),
    /// Nothing arrived for [`LINK_SILENT_AFTER`]: the network is cut, or the peer is paused.
    #[error("nothing was heard for {LINK_SILENT_AFTER:?}")]
    Silent,
    /// The peer read nothing for [`LINK_PROGRESS_WITHIN`], or left a request unanswered for so long beyond its
    /// deadline.
    #[error("no progress for {LINK_PROGRESS_WITHIN:?}")]
    Stalled,
    /// The peer broke the protocol, or bytes were changed on the way.
    #[error("{0}")]
    Violation(#[from] Violation),
    /// A later connection of the same peer and lane replaced it.
    #[error("replaced by a later connection")]
    Replaced,
    /// This node closed it: it stops, or the peer was removed.
    #[error("closed by this node")]
    Here,
}

impl ConnectionEnd {
    pub(crate) fn of(error: &io::Error) -> Self {
        match error.kind() {
            // TLS has a closing message of its own, which a killed process does not send either.
            io::ErrorKind::UnexpectedEof => Self::Closed,
            kind => Self::Broken(kind),
        }
    }

    /// Whether the peer's process or its system ended it, as when the process is killed.
    pub fn is_by_peer(&self) -> bool {
        use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
        match self {
            Self::Left | Self::Closed => true,
            Self::Broken(kind) => matches!(kind, ConnectionReset | ConnectionAborted | BrokenPipe),
            _ => false,
        }
    }
}

/// Violations of the protocol by a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Violation {
    #[error("a frame's header has a wrong checksum")]
    Header,
    #[error("a message has a wrong checksum")]
    Message,
    #[error("a message's parts do not fit its length")]
    Layout,
    #[error("a frame of {bytes} bytes, of which {max} are allowed")]
    TooLong { bytes: usize, max: usize },
    #[error("a frame of kind {kind}, which is not allowed here")]
    Kind { kind: u8 },
    #[error("flags {flags:#x}, which are not known")]
    Flags { flags: u8 },
    #[error("more unanswered requests or bytes than the window has")]
    Window,
    #[error("an append of no stream, or more streams than shards")]
    Stream,
    #[error("a handshake that cannot be read")]
    Handshake,
}

/// Reason why an attempt to connect failed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum ConnectError {
    /// The connection was refused: the process is gone, its machine is not.
    #[error("no process listens at the address")]
    NobodyListens,
    #[error("cannot be reached: {0}")]
    Unreachable(io::ErrorKind),
    #[error("not answered in time")]
    Unanswered,
    #[error("the peer refuses this node: {0}")]
    Refused(Refusal),
    /// By this node's own [`crate::Admission`].
    #[error("the peer is refused: {0}")]
    RefusedHere(Refusal),
    #[error("ended during the handshake: {0}")]
    Ended(ConnectionEnd),
    #[error("{0}")]
    Insecure(#[from] Insecure),
    /// The two nodes do not trust each other's keys, or one of them does not use TLS.
    #[error("no TLS with the peer: {0}")]
    Tls(String),
}

/// Bytes between nodes are not encrypted and their sender is not authenticated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error(
    "links without TLS are for this machine only: give all nodes one secret (--peer-secret) or certificates, or \
     declare the network between them private (--peer-plaintext)"
)]
pub struct Insecure;
