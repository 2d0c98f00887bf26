//! A backup: a directory with each shard's snapshot, live batches and following log, and a manifest that is written
//! last. [ADR 0019](../../../docs/adr/0019-a-backup-is-a-cut-through-the-logs.md) has the reasons.
//!
//! * [`backup_run`]: pulls a backup from a node, piece by piece, and writes it
//! * [`manifest`]: description of a backup; [`files`]: its files, written and read
//! * [`cut`]: chooses the last entry of each shard, so that all fit together; pure
//! * [`replay`]: the shards' knowledge of each other at each of the last entries
//! * [`stored_backup`]: an existing backup, checked and read

pub mod backup_run;
pub mod cut;
pub mod files;
pub mod manifest;
pub mod replay;
pub mod stored_backup;

pub use backup_run::{BackupProgress, Source, TakeError, take};
pub use manifest::{Manifest, ShardEntry};
pub use stored_backup::{StoredBackup, StoredError};
