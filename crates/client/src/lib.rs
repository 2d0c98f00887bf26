//! The one Kafka client of Postroad: for the command line, loads and checkers, tests, simulations and
//! the benchmark suite. It talks to Postroad, or to any other broker that speaks Kafka's protocol.
//!
//! The decision that shapes it: it owns no clock, no entropy and no network. Time is tokio's, ids
//! that must be random come from the caller, and a [`Connect`] chosen once makes the streams. So a
//! simulation runs it whole, under a paused clock and over streams of its own.
//!
//! Three ways to hold a connection, over one codec:
//!
//! * [`Connection`]: many callers, versions negotiated, two tasks; what [`Client`] uses
//! * [`Pipeline`]: one caller, its own task, versions named by the caller
//! * [`blocking::Connection`]: one thread that blocks, without a runtime
//!
//! What is built on them:
//!
//! * [`cluster`]: [`Client`]: the brokers of a cluster, who leads what, who coordinates a group
//! * [`admin`]: topics, their configuration, their size
//! * [`offsets`]: where partitions begin and end, and where a time lies
//! * [`operate`]: Postroad's own request: queues, dead letters, scheduled records
//! * [`groups`]: what groups there are, what they committed
//! * [`member`]: being a member of a group, by the classic protocol
//! * [`consumer`]: the same by KIP-848's protocol, where the group decides
//! * [`share`]: share groups: records leased and settled one by one
//! * [`producer`]: sending batches, idempotently
//! * [`fetcher`]: reading partitions
//! * [`requests`], [`records`]: requests and batches for callers that send them themselves
//! * [`login`]: saying who one is
//! * [`connect`], `frame`, `codec`: streams, frames, and answers in order
//! * `consumer_protocol`: what members of a group tell each other
//! * [`error`]: what can go wrong
//!
//! Batches, not records, cross every channel and every await.

pub mod admin;
pub mod blocking;
pub mod cluster;
mod codec;
pub mod connect;
pub mod connection;
pub mod consumer;
mod consumer_protocol;
pub mod error;
pub mod fetcher;
mod frame;
pub mod groups;
pub mod login;
pub mod member;
pub mod offsets;
pub mod operate;
mod pipeline;
pub mod producer;
pub mod records;
pub mod requests;
pub mod share;

use kafka_protocol::protocol::StrBytes;

pub use cluster::{Client, TopicPartition};
pub use codec::Sent;
pub use connect::{Connect, Stream, Tcp, TlsTcp};
pub use connection::{Connection, Pending};
pub use error::{CallError, ClientError, Refused};
pub use login::{Login, Mechanism};
pub use pipeline::Pipeline;

/// What requests and ApiVersions call this client. Also what tells Postroad that it may offer its own
/// request.
pub const CLIENT_ID: StrBytes = StrBytes::from_static_str(operations::KNOWN_TO);
