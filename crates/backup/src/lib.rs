//! A backup: a directory with a snapshot of each shard, what is live of it, the log behind it, and a manifest that is written
//! last. [ADR 0019](../../../docs/adr/0019-a-backup-is-a-cut-through-the-logs.md) has the reasons.
//!
//! * [`taking`]: asks a node for one, piece by piece, and writes it
//! * [`manifest`]: what a backup says of itself; [`files`]: its files, written and read
//! * [`cut`]: the last entry of each shard, so that all fit together; pure
//! * [`replay`]: what shards knew of each other at each of the last entries
//! * [`stored`]: a backup that is there, checked and read

pub mod cut;
pub mod files;
pub mod manifest;
pub mod replay;
pub mod stored;
pub mod taking;

pub use manifest::{Manifest, ShardEntry};
pub use stored::{Stored, StoredError};
pub use taking::{Source, TakeError, Taken, take};
