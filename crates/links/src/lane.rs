//! Lanes: the connections between two nodes, by their traffic.
//!
//! One TCP stream is first in, first out. A vote that waits behind 8 MiB of bodies causes an election, so urgent
//! messages have a connection of their own.

use crate::limits::{
    LINK_BULK_REQUESTS_MAX, LINK_CONTROL_BYTES_MAX, LINK_CONTROL_REQUESTS_MAX,
    LINK_REQUESTS_BYTES_MAX, LINK_REQUESTS_MAX,
};
use base::Level;
use base::limits::LINK_MESSAGE_BYTES_MAX;

use crate::window::Bounds;

/// The traffic of a connection between two nodes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Lane {
    /// Votes, heartbeats, gossip: small, and never behind a large message.
    Control = 0,
    /// Streamed appends of all shards.
    Replication = 1,
    /// Snapshots, moves, backups.
    Bulk = 2,
    /// Requests for shards with their leader on another node.
    Proxy = 3,
}

base::levels!(Lane {
    Level::FIRST => Control | Replication | Bulk | Proxy;
});

impl Lane {
    pub const ALL: [Self; 4] = [Self::Control, Self::Replication, Self::Bulk, Self::Proxy];

    pub fn name(self) -> &'static str {
        match self {
            Self::Control => "control",
            Self::Replication => "replication",
            Self::Bulk => "bulk",
            Self::Proxy => "proxy",
        }
    }

    /// The longest message on this lane, in bytes, as [`crate::Message::bytes`] counts them.
    pub fn message_bytes_max(self) -> usize {
        match self {
            Self::Control => LINK_CONTROL_BYTES_MAX,
            Self::Replication | Self::Bulk | Self::Proxy => LINK_MESSAGE_BYTES_MAX,
        }
    }

    /// Limit of unanswered requests; appends have windows of their own.
    pub(crate) fn requests(self) -> Bounds {
        let count = match self {
            Self::Control => LINK_CONTROL_REQUESTS_MAX,
            Self::Bulk => LINK_BULK_REQUESTS_MAX,
            Self::Replication | Self::Proxy => LINK_REQUESTS_MAX,
        };
        Bounds { count, bytes: LINK_REQUESTS_BYTES_MAX }
    }

    /// Bytes that are read ahead of a frame's header. Many small frames then arrive with one call and are copied
    /// out of the buffer; of a large frame no more than that is copied. Appends at low load and all replies to
    /// them are small: without read-ahead, each took three calls (header, rest, nothing more).
    pub(crate) fn read_ahead(self) -> usize {
        match self {
            Self::Control | Self::Proxy => 4 << 10,
            Self::Replication => 16 << 10,
            Self::Bulk => crate::frame::HEADER_BYTES,
        }
    }

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|lane| *lane as u8 == code)
    }
}
