//! The one Kafka client of Postroad: for the command line, loads and checkers, tests, simulations and the benchmark
//! suite. It works with Postroad, or with any other broker of Kafka's protocol.
//!
//! It owns no clock, no entropy and no network. Time is tokio's, random ids come from the caller, and a [`Connect`]
//! chosen once opens the streams. So a simulation runs it whole, under a paused clock and over streams of its own.
//!
//! There are three kinds of connection over one codec:
//!
//! * [`Connection`]: many callers, negotiated versions, two tasks; used by [`Client`]
//! * [`Pipeline`]: one caller, in its own task, versions named by the caller
//! * [`blocking::Connection`]: one blocking thread, without a runtime
//!
//! The modules above them:
//!
//! * [`cluster`]: [`Client`]: the brokers of a cluster, the leaders of partitions, the coordinators of groups
//! * [`admin`]: topics, their configuration, their size
//! * [`offsets`]: start and end of partitions, and offsets by time
//! * [`operate`]: Postroad's own request: queues, dead letters, scheduled records
//! * [`groups`]: lists of groups, their members and their committed offsets
//! * [`member`]: membership in a group, by the classic protocol
//! * [`consumer`]: membership by KIP-848's protocol, with server-side assignment
//! * [`share`]: share groups: records leased and settled one by one
//! * [`producer`]: sending batches, idempotently
//! * [`fetcher`]: reading partitions
//! * [`requests`], [`records`]: requests and batches for callers that send them themselves
//! * [`login`]: authentication of clients
//! * [`connect`], `frame`, `codec`: streams, frames, and ordered replies
//! * `consumer_protocol`: subscriptions and assignments exchanged by members of a group
//! * [`error`]: error types
//!
//! Channels and awaits carry batches, not single records.

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
pub use codec::RequestHandle;
pub use connect::{Connect, Stream, Tcp, TlsTcp};
pub use connection::{Connection, PendingResponse};
pub use error::{BrokerRejection, CallError, ClientError};
pub use login::{Login, Mechanism};
pub use pipeline::Pipeline;

/// The client's name in requests and ApiVersions. Postroad offers its own request to this name.
pub const CLIENT_ID: StrBytes = StrBytes::from_static_str(operations::KNOWN_TO);
