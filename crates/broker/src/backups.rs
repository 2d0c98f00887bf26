//! The backups being taken from this node: the data retained for each, and for how long.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::limits::{BACKUP_BYTES_PER_SECOND, BACKUP_HELD_FOR, BACKUP_LOG_BYTES_MAX};
use base::ShardId;
use journal::LogPin;
use journal::transfer::Export;
use parking_lot::Mutex;
use shard_peers::limits::BACKUPS_SENT_MAX;
use world::Instant;

use crate::local_shard::LocalShard;

pub use shard_peers::backup_parts::BackupError;

/// The backups being taken from this node.
#[derive(Debug, Default)]
pub(crate) struct Backups(Mutex<OpenBackups>);

#[derive(Debug, Default)]
struct OpenBackups {
    backups: BTreeMap<u64, Backup>,
}

#[derive(Debug)]
pub(crate) struct Backup {
    asked: Instant,
    /// Unfinished steps that take long.
    under_way: u32,
    pub(crate) shards: BTreeMap<ShardId, Arc<ShardBackup>>,
    /// Earliest time of the next piece, by the limit of bytes a second.
    free_at: Instant,
    /// Nodes that send the shards without a replica here.
    pub(crate) elsewhere: BTreeMap<ShardId, u32>,
    /// The catalog's count of changes of moves at the last query.
    pub(crate) moves: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct ShardBackup {
    pub(crate) export: Mutex<Export>,
    /// Index of the first entry after the snapshot.
    pub(crate) first: u64,
    pub(crate) pin: LogPin,
    /// Bytes written to the log when it was last fetched completely.
    pub(crate) fetched_bytes: Mutex<u64>,
}

impl Backups {
    pub(crate) fn begin(&self, number: u64) -> Result<(), BackupError> {
        let mut held = self.0.lock();
        if held.backups.len() >= BACKUPS_SENT_MAX {
            return Err(BackupError::TooMany);
        }
        let now = Instant::now();
        held.backups.insert(
            number,
            Backup {
                asked: now,
                under_way: 0,
                shards: BTreeMap::new(),
                free_at: now,
                elsewhere: BTreeMap::new(),
                moves: None,
            },
        );
        Ok(())
    }

    pub(crate) fn knows(&self, number: u64) -> bool {
        self.0.lock().backups.contains_key(&number)
    }

    /// Ends a backup and returns the nodes that send shards for it.
    pub(crate) fn end(&self, number: u64) -> BTreeMap<ShardId, u32> {
        // Dropped after the lock is released.
        let ended = self.0.lock().backups.remove(&number);
        ended.map(|ended| ended.elsewhere).unwrap_or_default()
    }

    /// Drops backups without requests for too long, or with too much unfetched log; to be called periodically.
    pub(crate) fn expire(&self, shards: &[Arc<LocalShard>]) {
        let numbers: Vec<u64> = {
            let held = self.0.lock();
            let is_over = |backup: &Backup| {
                let is_late = backup.under_way == 0 && backup.asked.elapsed() >= BACKUP_HELD_FOR;
                is_late || backup.too_slow(shards).is_some()
            };
            held.backups.iter().filter(|(_, it)| is_over(it)).map(|(number, _)| *number).collect()
        };
        for number in numbers {
            tracing::warn!(
                "a backup is abandoned: its client requests nothing more, or is too slow"
            );
            let _ = self.end(number);
        }
    }

    pub(crate) fn with<T>(
        &self,
        number: u64,
        then: impl FnOnce(&mut Backup) -> Result<T, BackupError>,
    ) -> Result<T, BackupError> {
        let mut held = self.0.lock();
        let backup = held.backups.get_mut(&number).ok_or(BackupError::Unknown)?;
        backup.asked = Instant::now();
        then(backup)
    }

    /// Keeps the backup from expiring until the guard is dropped.
    pub(crate) fn enter(&self, number: u64) -> Result<BackupGuard<'_>, BackupError> {
        self.with(number, |backup| {
            backup.under_way += 1;
            Ok(())
        })?;
        Ok(BackupGuard { backups: self, number })
    }

    pub(crate) fn shard(
        &self,
        number: u64,
        shard: ShardId,
    ) -> Result<Arc<ShardBackup>, BackupError> {
        self.with(number, |backup| {
            backup.shards.get(&shard).cloned().ok_or(BackupError::NoShard(shard))
        })
    }

    /// Accounts for the bytes of a piece, and returns when the next one may be sent.
    pub(crate) fn sent(&self, number: u64, bytes: usize) -> Result<Instant, BackupError> {
        self.with(number, |backup| {
            let nanos = (bytes as u64).saturating_mul(1_000_000_000) / BACKUP_BYTES_PER_SECOND;
            backup.free_at = backup.free_at.max(Instant::now()) + Duration::from_nanos(nanos);
            Ok(backup.free_at)
        })
    }
}

#[derive(Debug)]
pub(crate) struct BackupGuard<'a> {
    backups: &'a Backups,
    number: u64,
}

impl Drop for BackupGuard<'_> {
    fn drop(&mut self) {
        // The backup may have expired.
        let _ = self.backups.with(self.number, |backup| {
            backup.under_way -= 1;
            Ok(())
        });
    }
}

impl Backup {
    pub(crate) fn too_slow(&self, shards: &[Arc<LocalShard>]) -> Option<ShardId> {
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
        let backups = Backups::default();
        backups.begin(1).expect("there is room");
        backups.begin(2).expect("there is room");
        assert!(matches!(backups.begin(3), Err(BackupError::TooMany)));
        advance(BACKUP_HELD_FOR / 2).await;
        backups.sent(2, 1).expect("it is held");
        let under_way = backups.enter(1).expect("it is held");
        advance(BACKUP_HELD_FOR / 2).await;
        backups.expire(&[]);
        backups.sent(2, 1).expect("it is held");
        advance(BACKUP_HELD_FOR).await;
        backups.expire(&[]);
        assert!(matches!(backups.sent(2, 1), Err(BackupError::Unknown)));
        // A long step keeps the backup alive.
        drop(under_way);
        backups.sent(1, 1).expect("it is held");
        backups.begin(3).expect("there is room");
        backups.end(1);
        assert!(matches!(backups.shard(1, ShardId(1)), Err(BackupError::Unknown)));
    }

    #[tokio::test(start_paused = true)]
    async fn backup_is_paced_to_the_bytes_per_second() {
        let backups = Backups::default();
        backups.begin(1).expect("there is room");
        let begun = Instant::now();
        for _ in 0..3 {
            let next = backups.sent(1, BACKUP_BYTES_PER_SECOND as usize).expect("it is held");
            sleep_until(next).await;
        }
        assert_eq!(begun.elapsed().as_secs(), 3);
    }
}
