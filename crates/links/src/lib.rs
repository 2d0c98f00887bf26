//! Connections between the nodes of a cluster: lanes, requests, streamed appends, gossip, and how they end.
//!
//! It carries bytes and knows no consensus. Each node makes its own connection to each peer, by [`Lane`], on
//! which it asks and the peer answers: so two nodes that connect at a time need not agree on one, and each
//! finds out by itself that the other is gone. `docs/internals/links.md` has the reasons.
//!
//! * [`Links`]: all of a node, which everything ends with
//! * [`Peer`]: another node: requests with deadlines, streams of [`Appends`], and [`Status`]
//! * [`Service`]: answers what peers ask
//! * [`Admission`]: decides who is a peer
//! * [`introduce`], [`join`]: how a node of no cluster learns which it will be part of; [`PeerListener`]: where it
//!   listens meanwhile
//! * [`End`], [`ConnectError`], [`Refusal`]: how a connection ended, or why there is none
//! * [`Security`]: what is encrypted
//!
//! Nothing here waits for a disk, and all that is held is bounded (`base::limits`, `LINK_…`).

mod answering;
mod asking;
mod backoff;
mod connection;
mod end;
mod frame;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod gossip;
mod handshake;
mod identity;
mod introduction;
mod lane;
mod link;
mod links;
mod listener;
mod outbox;
mod peer;
mod refusal;
mod security;
mod seen;
mod service;
mod status;
mod window;

pub use answering::{IncomingAppend, IncomingAppends};
pub use asking::{AppendError, Appends, Replies};
pub use end::{ConnectError, End, Insecure, Violation};
pub use frame::{Message, Received};
pub use identity::{Admission, DirectoryIdentity, Identity, Joining, NodeId};
pub use introduction::{introduce, join};
pub use lane::Lane;
pub use links::{GossipTooLong, Links, Options, StartError};
pub use listener::PeerListener;
pub use peer::{Peer, RequestError, StatusWatch};
pub use refusal::{Refusal, Versions};
pub use security::{Security, SecurityError, Tls};
pub use service::{Declined, Request, Service};
pub use status::{Ended, Phase, SignOfDeath, Status};
