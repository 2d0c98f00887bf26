//! Requests of operators to a node, and its replies: the documents, and the numbers of the Kafka request `Operate` that
//! carries them.
//!
//! Both ends need these types and neither should depend on the other: the Kafka gateway receives the request, the
//! client sends it. The crate has types and constants and no I/O, so that it costs neither of them anything.
//!
//! ```text
//! request   header version 1 (not flexible), then  body: int32 length, JSON
//! response  correlation id: int32, error: int16, message: nullable string, body: int32 length, JSON
//! ```
//!
//! Version 0 is an [`Operation`](document::Operation); version 1 is a
//! [`WithToken`](document::WithToken) around one.
//!
//! * [`document`]: requests and replies
//! * [`offset_groups`]: the same for groups that commit offsets
//! * [`history`]: search for records, and their history
//! * [`cluster`]: operations on a cluster as a whole
//! * [`amqp`]: operations on virtual hosts, policies and users
//! * [`overview`]: a repeated summary of a node
//! * [`backup`]: a backup, pulled piece by piece
//! * [`family`]: operations of a part of the node, as the part implements them
//! * `record`: a stored record, and its death
//! * [`payload`]: bytes of a record in a JSON document
//! * [`time`], [`position`]: times, and places in a partition, in human notation

pub mod amqp;
pub mod backup;
pub mod cluster;
pub mod document;
pub mod family;
pub mod history;
pub mod offset_groups;
pub mod overview;
pub mod payload;
pub mod position;
mod record;
pub mod time;

/// The key of `Operate`, far from those of Kafka.
pub const API_KEY: i16 = 20_000;
pub const VERSION: i16 = 0;
/// The same with the operators' token.
pub const VERSION_WITH_TOKEN: i16 = 1;
/// Client software name (KIP-511) to which the request is advertised: stock clients never see it.
pub const KNOWN_TO: &str = "postroad-cli";
