//! A small Kafka client: what the command line needs to talk to Postroad, or to any other broker
//! that speaks Kafka's protocol.
//!
//! Written for pipes: batches, not records, cross every channel and every await.
//!
//! * [`connection`]: one socket; versions negotiated, requests pipelined
//! * [`cluster`]: the brokers of a cluster, who leads what, who coordinates a group
//! * [`admin`]: topics, their configuration, their size
//! * [`offsets`]: where partitions begin and end, and where a time lies
//! * [`operate`]: Postroad's own request: queues, dead letters, scheduled records
//! * [`groups`]: what groups there are, what they committed
//! * [`member`]: being a member of a group, by the classic protocol
//! * [`producer`]: sending batches, idempotently
//! * [`fetcher`]: reading partitions
//! * [`error`]: what can go wrong

pub(crate) mod admin;
pub(crate) mod cluster;
pub(crate) mod connection;
pub(crate) mod error;
pub(crate) mod fetcher;
pub(crate) mod groups;
pub(crate) mod member;
pub(crate) mod offsets;
pub(crate) mod operate;
pub(crate) mod producer;

pub(crate) use cluster::{Client, TopicPartition};
pub(crate) use error::ClientError;
