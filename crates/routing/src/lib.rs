//! Routes messages to destinations: AMQP's exchanges, without the wire protocol.
//!
//! A [`Network`] is a graph: its nodes match a message against their bindings and pass it on, to
//! other nodes or to sinks. Pure and synchronous; it depends on neither brokers nor protocols, and
//! its user defines the content of a sink. It is changed in place and read through `&self`: a user
//! that shares it takes a lock once for many messages.
//!
//! From the top:
//!
//! * [`network`]: the graph, and the traversal (cycles, duplicates, alternates)
//! * [`matcher`]: the kinds of nodes, behind one type
//! * [`topic`]: words with `*` and `#`, as a trie
//! * [`headers`]: matching by headers, indexed
//! * [`consistent`]: spreading by a hash, with weights
//! * [`random`]: random spreading
//! * [`upstream`]: the downstream of a federation link, which limits hops
//! * [`targets`]: destinations, and a set of them with counts
//! * [`message`]: messages, and the values of headers

pub mod consistent;
pub mod headers;
pub mod matcher;
pub mod message;
pub mod network;
pub mod random;
pub mod targets;
pub mod topic;
pub mod upstream;

pub use consistent::HashOn;
pub use headers::{HeaderMatch, HeaderPattern};
pub use matcher::{Arguments, Kind, Matcher};
pub use message::{Headers, Hop, Message, NoHeaders, Property, Value};
pub use network::{Network, NodeOptions, Route};
pub use targets::{BindingTarget, NodeId, SinkId};
pub use upstream::Downstream;
