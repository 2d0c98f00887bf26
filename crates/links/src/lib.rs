//! Connections between the nodes of a cluster: lanes, requests, streamed appends, gossip, and the ends of
//! connections.
//!
//! It carries bytes and knows no consensus. Each node opens its own connection to each peer, by [`Lane`], on which
//! it sends requests and the peer replies. So two nodes that connect at the same time need not agree on one
//! connection, and each detects by itself that the other is gone. `docs/internals/links.md` has the reasons.
//!
//! * [`Links`]: all links of a node; dropping it ends them
//! * [`Peer`]: another node: requests with deadlines, streams of [`AppendSender`], and [`Status`]
//! * [`Service`]: replies to requests of peers
//! * [`Admission`]: decides which nodes are peers
//! * [`introduce`], [`join`]: how a node without a cluster finds the one that it will be part of;
//!   [`PeerListener`]: its listening socket meanwhile
//! * [`ConnectionEnd`], [`ConnectError`], [`Refusal`]: the end of a connection, or the reason why there is none
//! * [`Security`]: encryption and authentication of links
//!
//! Nothing here waits for a disk, and all memory is bounded (`base::limits`, `LINK_…`).

mod arrivals;
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
pub mod limits;
mod link;
mod links;
mod listener;
mod node_id;
mod outbox;
mod peer;
mod refusal;
mod requester;
mod responder;
mod security;
mod service;
mod status;
mod window;

pub use end::{ConnectError, ConnectionEnd, Insecure, Violation};
pub use frame::{Message, ReceivedMessage};
pub use identity::{Admission, DirectoryIdentity, Identity, JoiningNode};
pub use introduction::{introduce, join};
pub use lane::Lane;
pub use links::{GossipTooLong, Links, Options};
pub use listener::{PeerListener, StartError};
pub use node_id::NodeId;
pub use peer::{Peer, RequestError, StatusWatch};
pub use refusal::{Refusal, Versions};
pub use requester::{AppendError, AppendSender, Replies};
pub use security::{Security, SecurityError, Tls};
pub use service::{Declined, IncomingAppend, IncomingAppends, Request, Service};
pub use status::{DeathEvidence, EndedConnection, Phase, Status};
