//! The backups being taken from this node: the data retained for each, and its time limit.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base::ShardId;
use journal::LogPin;
use journal::transfer::Export;
use parking_lot::Mutex;
use shard::LocalShard;
use shard_peers::backup_parts::BackupError;
use shard_peers::limits::BACKUPS_SENT_MAX;
use world::Instant;

use crate::limits::{BACKUP_BYTES_PER_SECOND, BACKUP_HELD_FOR, BACKUP_LOG_BYTES_MAX};

/// The backups being taken from this node, by number.
#[derive(Debug, Default)]
pub(super) struct OpenBackups(Mutex<BTreeMap<u64, Backup>>);

#[derive(Debug)]
pub(super) struct Backup {
    last_request: Instant,
    /// Unfinished steps that take long.
    running_steps: u32,
    pub(super) shards: BTreeMap<ShardId, Arc<ShardBackup>>,
    /// Earliest time of the next piece, by the limit of bytes a second.
    free_at: Instant,
    /// Nodes that send the shards without a replica here.
    pub(super) elsewhere: BTreeMap<ShardId, u32>,
    /// The catalog's count of changes of moves at the last query.
    pub(super) moves: Option<u64>,
}

#[derive(Debug)]
pub(super) struct ShardBackup {
    pub(super) export: Mutex<Export>,
    /// Index of the first entry after the snapshot.
    pub(super) first: u64,
    pub(super) pin: LogPin,
    /// Bytes written to the log when it was last fetched completely.
    pub(super) fetched_bytes: Mutex<u64>,
}

impl OpenBackups {
    pub(super) fn begin(&self, number: u64) -> Result<(), BackupError> {
        let mut open = self.0.lock();
        if open.len() >= BACKUPS_SENT_MAX {
            return Err(BackupError::TooMany);
        }
        let now = Instant::now();
        open.insert(
            number,
            Backup {
                last_request: now,
                running_steps: 0,
                shards: BTreeMap::new(),
                free_at: now,
                elsewhere: BTreeMap::new(),
                moves: None,
            },
        );
        Ok(())
    }

    pub(super) fn knows(&self, number: u64) -> bool {
        self.0.lock().contains_key(&number)
    }

    /// Ends a backup and returns the nodes that send shards for it.
    pub(super) fn end(&self, number: u64) -> BTreeMap<ShardId, u32> {
        // Dropped after the lock is released.
        let ended = self.0.lock().remove(&number);
        ended.map(|ended| ended.elsewhere).unwrap_or_default()
    }

    /// Drops backups without requests for too long, or with too much unfetched log; to be called periodically.
    pub(super) fn expire(&self, shards: &[Arc<LocalShard>]) {
        let numbers: Vec<u64> = {
            let open = self.0.lock();
            let is_over = |backup: &Backup| {
                let is_late =
                    backup.running_steps == 0 && backup.last_request.elapsed() >= BACKUP_HELD_FOR;
                is_late || backup.too_slow(shards).is_some()
            };
            open.iter().filter(|(_, it)| is_over(it)).map(|(number, _)| *number).collect()
        };
        for number in numbers {
            tracing::warn!(
                "a backup is abandoned: its client requests nothing more, or is too slow"
            );
            let _ = self.end(number);
        }
    }

    pub(super) fn with<T>(
        &self,
        number: u64,
        then: impl FnOnce(&mut Backup) -> Result<T, BackupError>,
    ) -> Result<T, BackupError> {
        let mut open = self.0.lock();
        let backup = open.get_mut(&number).ok_or(BackupError::Unknown)?;
        backup.last_request = Instant::now();
        then(backup)
    }

    /// Keeps the backup from expiring until the guard is dropped.
    pub(super) fn enter(&self, number: u64) -> Result<BackupGuard<'_>, BackupError> {
        self.with(number, |backup| {
            backup.running_steps += 1;
            Ok(())
        })?;
        Ok(BackupGuard { backups: self, number })
    }

    pub(super) fn shard(
        &self,
        number: u64,
        shard: ShardId,
    ) -> Result<Arc<ShardBackup>, BackupError> {
        self.with(number, |backup| {
            backup.shards.get(&shard).cloned().ok_or(BackupError::NoShard(shard))
        })
    }

    /// Accounts for the bytes of a piece, and returns when the next one may be sent.
    pub(super) fn sent(&self, number: u64, bytes: usize) -> Result<Instant, BackupError> {
        self.with(number, |backup| {
            let nanos = (bytes as u64).saturating_mul(1_000_000_000) / BACKUP_BYTES_PER_SECOND;
            backup.free_at = backup.free_at.max(Instant::now()) + Duration::from_nanos(nanos);
            Ok(backup.free_at)
        })
    }
}

#[derive(Debug)]
pub(super) struct BackupGuard<'a> {
    backups: &'a OpenBackups,
    number: u64,
}

impl Drop for BackupGuard<'_> {
    fn drop(&mut self) {
        // The backup may have expired.
        let _ = self.backups.with(self.number, |backup| {
            backup.running_steps -= 1;
            Ok(())
        });
    }
}

impl Backup {
    pub(super) fn too_slow(&self, shards: &[Arc<LocalShard>]) -> Option<ShardId> {
        let of = |(id, held): (&ShardId, &Arc<ShardBackup>)| {
            let shard = shards.iter().find(|shard| shard.id() == *id)?;
            let written = shard.journal().stats().bytes;
            let kept = written.saturating_sub(*held.fetched_bytes.lock());
            (kept > BACKUP_LOG_BYTES_MAX).then_some(*id)
        };
        self.shards.iter().find_map(of)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{advance, sleep_until};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn unused_backup_expires_and_frees_its_slot() {
        let backups = OpenBackups::default();
        backups.begin(1).expect("there is room");
        backups.begin(2).expect("there is room");
        assert!(matches!(backups.begin(3), Err(BackupError::TooMany)));
        advance(BACKUP_HELD_FOR / 2).await;
        backups.sent(2, 1).expect("it is held");
        let running_steps = backups.enter(1).expect("it is held");
        advance(BACKUP_HELD_FOR / 2).await;
        backups.expire(&[]);
        backups.sent(2, 1).expect("it is held");
        advance(BACKUP_HELD_FOR).await;
        backups.expire(&[]);
        assert!(matches!(backups.sent(2, 1), Err(BackupError::Unknown)));
        // A long step keeps the backup alive.
        drop(running_steps);
        backups.sent(1, 1).expect("it is held");
        backups.begin(3).expect("there is room");
        backups.end(1);
        assert!(matches!(backups.shard(1, ShardId(1)), Err(BackupError::Unknown)));
    }

    #[tokio::test(start_paused = true)]
    async fn backup_is_paced_to_the_bytes_per_second() {
        let backups = OpenBackups::default();
        backups.begin(1).expect("there is room");
        let begun = Instant::now();
        for _ in 0..3 {
            let next = backups.sent(1, BACKUP_BYTES_PER_SECOND as usize).expect("it is held");
            sleep_until(next).await;
        }
        assert_eq!(begun.elapsed().as_secs(), 3);
    }
}
