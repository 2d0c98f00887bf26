//! What operators ask of a node and what it answers: the documents, and the numbers of the Kafka
//! request `Operate` that carries them.
//!
//! A crate of its own because both ends need it and neither should depend on the other: the Kafka
//! gateway, which hears the request, and the client, which sends it. It holds types and constants
//! and no I/O, so that it costs neither of them anything.
//!
//! ```text
//! request   header version 1 (not flexible), then  body: int32 length, JSON
//! response  correlation id: int32, error: int16, message: nullable string, body: int32 length, JSON
//! ```
//!
//! Version 0 is an [`Operation`](document::Operation); version 1 is a
//! [`WithToken`](document::WithToken) around one.
//!
//! * [`document`]: what is asked and answered
//! * [`offset_groups`]: the same of groups that commit offsets
//! * [`history`]: where records are, and what became of them
//! * [`cluster`]: what is asked of a cluster as a whole, and answered
//! * [`overview`]: a node at a glance, again and again
//! * [`backup`]: a backup, asked for piece by piece
//! * [`payload`]: bytes of a record in a JSON document
//! * [`time`], [`position`]: times, and places in a partition, as people write them

pub mod backup;
pub mod cluster;
pub mod document;
pub mod history;
pub mod offset_groups;
pub mod overview;
pub mod payload;
pub mod position;
pub mod time;

/// The key of `Operate`, far from those of Kafka.
pub const API_KEY: i16 = 20_000;
pub const VERSION: i16 = 0;
/// The same with the operators' token.
pub const VERSION_WITH_TOKEN: i16 = 1;
/// The client software that is told about the request (KIP-511): stock clients never meet it.
pub const KNOWN_TO: &str = "postroad-cli";
