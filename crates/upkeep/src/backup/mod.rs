//! Backup data sent by this node: for each shard a snapshot, its live batches and the log after it.
//!
//! Shards are copied one after the other while the node serves clients; no shard is stopped to get a consistent cut.
//! The backup's writer receives a suffix of each log, and selects the last entries of a cut over all shards (crate
//! `backup`; ADR 0019). So this node only reads, and retains the part of the log that was not fetched yet.
//!
//! It reads as `scrub` does: past the page cache, at a bounded byte rate, and not while a write or sync takes long.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use base::ShardId;
use base::limits::SNAPSHOT_PIECE_BYTES;
use bytes::{Bytes, BytesMut};
use futures_util::future::try_join_all;
use journal::transfer::{Manifest, Section, SegmentPiece};
use journal::{Encoded, ReadError};
use parking_lot::Mutex;
use shard::LocalShard;
use shard::error::Unavailable;
use shard_peers::Peers;
use tasks::Task;
use tokio::time::{sleep, sleep_until, timeout};
use world::{Entropy, Instant};

use self::open_backups::{OpenBackups, ShardBackup};

pub use elsewhere::WeakBackups;
pub use shard_peers::backup_parts::BackupError;

mod elsewhere;
mod open_backups;

/// Duration from which a write or sync counts as slow: the backup reads nothing meanwhile.
const SLOW_WRITE: Duration = Duration::from_millis(20);
const SLOW_WRITE_PAUSE: Duration = Duration::from_millis(100);
/// Longest delay of one piece for slow writes, so that the backup makes progress on a disk that is always slow.
const SLOW_WRITE_WAITED: Duration = Duration::from_secs(2);
/// Time limit for the leaders to report their log ends and for this node to apply them.
const ENDS_WITHIN: Duration = Duration::from_secs(30);
const RETRY_DELAY: Duration = Duration::from_millis(20);

/// First part of a shard's backup.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShardStart {
    pub manifest: Manifest,
    pub segments: u64,
}

/// Entries of a log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogPiece {
    /// Encoded entries, one after the other.
    pub entries: Bytes,
    /// The index to request next.
    pub next: u64,
    pub more: bool,
}

/// The backups being taken from this node.
#[derive(Debug)]
pub struct Backups {
    open: OpenBackups,
    /// The catalog's shard, then those with rows.
    shards: Vec<Arc<LocalShard>>,
    peers: Arc<Peers>,
    entropy: Arc<dyn Entropy>,
}

impl Backups {
    pub fn new(
        shards: Vec<Arc<LocalShard>>,
        peers: Arc<Peers>,
        entropy: Arc<dyn Entropy>,
    ) -> Arc<Self> {
        Arc::new(Self { open: OpenBackups::default(), shards, peers, entropy })
    }

    /// Begins a backup and returns its number. No work is done until its shards are requested.
    pub fn begin(&self) -> Result<u64, BackupError> {
        // Unique over restarts of a node; it travels as a JSON number.
        let number = self.entropy.u64() >> 12;
        self.open.begin(number)?;
        tracing::info!("a backup is taken from this node");
        Ok(number)
    }

    pub fn end(&self, backup: u64) {
        let senders = self.open.end(backup);
        self.end_elsewhere(backup, senders);
    }

    /// Drops backups without requests for too long, or with too much unfetched log; to be called periodically.
    pub(crate) fn expire(&self) {
        self.open.expire(&self.shards);
    }

    /// Returns the shards of a backup, the catalog's first, including those that other nodes send.
    pub fn shards(&self) -> Vec<ShardId> {
        self.shards.iter().map(|shard| shard.id()).collect()
    }

    /// Returns a shard for another node's backup. Fails for a shard whose replica was removed from this node.
    fn replica(&self, shard: ShardId) -> Result<&Arc<LocalShard>, BackupError> {
        let found = self.local(shard).ok().filter(|local| local.has_rows());
        found.ok_or(BackupError::NoShard(shard))
    }

    fn local(&self, shard: ShardId) -> Result<&Arc<LocalShard>, BackupError> {
        let found = self.shards.iter().find(|local| local.id() == shard);
        found.ok_or(BackupError::NoShard(shard))
    }

    /// Takes a snapshot of a shard, and retains its log from there on. If this node has no replica of the shard,
    /// another node sends this part and the following ones.
    pub async fn begin_shard(
        &self,
        backup: u64,
        shard: ShardId,
    ) -> Result<ShardStart, BackupError> {
        let local = self.local(shard)?;
        match local.has_rows() {
            true => self.start_here(backup, local).await,
            false => self.start_elsewhere(backup, local).await,
        }
    }

    /// Reads bytes of a section of a shard's snapshot.
    pub async fn section(
        &self,
        backup: u64,
        shard: ShardId,
        section: Section,
        from: u64,
    ) -> Result<Bytes, BackupError> {
        let local = self.local(shard)?;
        match self.sends_itself(backup, shard)? {
            true => self.section_here(backup, local, section, from).await,
            false => self.section_elsewhere(backup, local, section, from).await,
        }
    }

    /// Reads batches of a shard's segment.
    pub async fn segment(
        &self,
        backup: u64,
        shard: ShardId,
        segment: u64,
        row: u64,
    ) -> Result<SegmentPiece, BackupError> {
        let local = self.local(shard)?;
        match self.sends_itself(backup, shard)? {
            true => self.segment_here(backup, local, segment, row).await,
            false => self.segment_elsewhere(backup, local, segment, row).await,
        }
    }

    /// Reads the applied entries of a shard's log at the sending node from `from` on. Entries before it are no longer
    /// retained.
    pub async fn log(
        &self,
        backup: u64,
        shard: ShardId,
        from: u64,
    ) -> Result<LogPiece, BackupError> {
        let local = self.local(shard)?;
        match self.sends_itself(backup, shard)? {
            true => self.log_here(backup, local, from).await,
            false => self.log_elsewhere(backup, local, from).await,
        }
    }

    /// Whether this node reads the shard's parts from its own replica.
    fn sends_itself(&self, backup: u64, shard: ShardId) -> Result<bool, BackupError> {
        self.open.with(backup, |backup| Ok(!backup.elsewhere.contains_key(&shard)))
    }

    async fn start_here(
        &self,
        backup: u64,
        local: &Arc<LocalShard>,
    ) -> Result<ShardStart, BackupError> {
        let shard = local.id();
        let _guard = self.open.enter(backup)?;
        let unreadable = |what: String| BackupError::Unreadable { shard, what };
        // Pinned before the snapshot, so that the log after it is complete.
        let pin = local.journal().pin_log();
        let fetched_bytes = Mutex::new(local.journal().stats().bytes);
        local.save_snapshot().await.map_err(|error| unreadable(error.to_string()))?;
        let journal = local.journal().clone();
        let export = blocking(local, shard, move || journal.export_all()).await?;
        let export = export.ok_or_else(|| unreadable("it has no snapshot yet".to_owned()))?;
        let start = ShardStart { manifest: export.manifest(), segments: export.segments() };
        let first = start.manifest.id.index + 1;
        pin.advance(first);
        let held = ShardBackup { export: Mutex::new(export), first, pin, fetched_bytes };
        self.open.with(backup, |backup| {
            backup.shards.insert(shard, Arc::new(held));
            Ok(())
        })?;
        Ok(start)
    }

    async fn section_here(
        &self,
        backup: u64,
        local: &LocalShard,
        section: Section,
        from: u64,
    ) -> Result<Bytes, BackupError> {
        let (shard, held) = (local.id(), self.open.shard(backup, local.id())?);
        let read = move || held.export.lock().section(section, from, SNAPSHOT_PIECE_BYTES);
        let bytes = blocking(local, shard, read).await?;
        self.paced(backup, local, bytes.len()).await?;
        Ok(bytes)
    }

    async fn segment_here(
        &self,
        backup: u64,
        local: &LocalShard,
        segment: u64,
        row: u64,
    ) -> Result<SegmentPiece, BackupError> {
        let (shard, held) = (local.id(), self.open.shard(backup, local.id())?);
        let read = move || held.export.lock().segment(segment, row, SNAPSHOT_PIECE_BYTES);
        let piece = blocking(local, shard, read).await?.ok_or(BackupError::NoSuchPlace)?;
        self.paced(backup, local, piece.bytes.len()).await?;
        Ok(piece)
    }

    async fn log_here(
        &self,
        backup: u64,
        local: &LocalShard,
        from: u64,
    ) -> Result<LogPiece, BackupError> {
        let (shard, held) = (local.id(), self.open.shard(backup, local.id())?);
        let journal = local.journal();
        if from < held.first {
            return Err(BackupError::NoSuchPlace);
        }
        held.pin.advance(from);
        let written = journal.stats().bytes;
        // Applied entries are committed: no later leader overwrites them.
        let end = local.consensus.applied().map_or(0, |applied| applied + 1);
        if journal.purged_id().is_some_and(|purged| purged.index >= from) {
            return Err(BackupError::Replaced(shard));
        }
        let mut piece = LogPiece { entries: Bytes::new(), next: from, more: false };
        if from < end {
            let of_read = journal.clone();
            let read = move || {
                let read = of_read.encoded_entries(from..end, SNAPSHOT_PIECE_BYTES);
                read.map_err(|error: ReadError| io::Error::other(error))
            };
            let entries: Vec<Encoded> = blocking(local, shard, read).await?;
            let mut bytes = BytesMut::new();
            for entry in &entries {
                entry.pieces().for_each(|piece| bytes.extend_from_slice(&piece));
            }
            piece.next = entries.last().map_or(from, |last| last.id().index + 1);
            (piece.entries, piece.more) = (bytes.freeze(), piece.next < end);
        }
        if !piece.more {
            *held.fetched_bytes.lock() = written;
        }
        if let Some(shard) = self.open.with(backup, |it| Ok(it.too_slow(&self.shards)))? {
            self.end(backup);
            return Err(BackupError::TooSlow(shard));
        }
        Ok(piece)
    }

    /// Returns the end of each shard's log, once everything acknowledged before the call is applied at the sending
    /// nodes.
    pub async fn ends(&self, backup: u64) -> Result<Vec<u64>, BackupError> {
        let _guard = self.open.enter(backup)?;
        let ends = async {
            // A partition that moves is in two logs, and a cut might take the wrong parts of each.
            let before = self.settled_move_count().await?;
            let ends = self.shards.iter().map(|shard| self.backup_end_of(backup, shard));
            let ends = try_join_all(ends).await?;
            match self.settled_move_count().await? == before {
                true => Ok((before, ends)),
                false => Err(BackupError::Moving),
            }
        };
        let ends = timeout(ENDS_WITHIN, ends).await;
        let (moves, ends) = ends.unwrap_or(Err(Unavailable::Unanswered.into()))?;
        self.open.with(backup, |backup| match backup.moves.replace(moves) {
            Some(before) if before != moves => Err(BackupError::Moving),
            _ => Ok(ends),
        })
    }

    /// Returns the end of a shard's log, applied at the node that sends the shard.
    async fn backup_end_of(&self, backup: u64, shard: &LocalShard) -> Result<u64, BackupError> {
        if self.sends_itself(backup, shard.id())? {
            return Ok(self.end_of(shard).await?);
        }
        let index = self.index_of(shard).await?;
        self.applied_elsewhere(backup, shard, index).await?;
        Ok(index)
    }

    /// Returns the catalog's count of changes of moves. Fails while a partition moves.
    async fn settled_move_count(&self) -> Result<u64, BackupError> {
        self.end_of(&self.shards[0]).await?;
        let (moving, moves) =
            self.shards[0].read(|view| (view.catalog.moving_count(), view.catalog.moves()));
        if moving == 0 { Ok(moves) } else { Err(BackupError::Moving) }
    }

    async fn end_of(&self, shard: &LocalShard) -> Result<u64, Unavailable> {
        let index = self.index_of(shard).await?;
        let applied = shard.consensus.applied_to(index).await;
        applied.map(|()| index).map_err(|error| Unavailable::from(&error))
    }

    /// Returns the index up to which the shard's leader has applied its log, including all that was acknowledged
    /// before.
    async fn index_of(&self, shard: &LocalShard) -> Result<u64, Unavailable> {
        loop {
            let index = match shard.is_led_here() {
                true => shard.read_index().await,
                false => self.peers.read_index(shard.leader(), shard.id()).await,
            };
            match index {
                Err(Unavailable::NotLeader | Unavailable::Unanswered) => {
                    sleep(RETRY_DELAY).await;
                }
                index => return index,
            }
        }
    }

    /// Waits until the next piece may be read.
    async fn paced(
        &self,
        backup: u64,
        shard: &LocalShard,
        bytes: usize,
    ) -> Result<(), BackupError> {
        sleep_until(self.open.sent(backup, bytes)?).await;
        let begun = Instant::now();
        while begun.elapsed() < SLOW_WRITE_WAITED
            && shard.journal().stats().busy_for.is_some_and(|busy| busy >= SLOW_WRITE)
        {
            sleep(SLOW_WRITE_PAUSE).await;
        }
        Ok(())
    }
}

async fn blocking<T: Send + 'static>(
    local: &LocalShard,
    shard: ShardId,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, BackupError> {
    let done = local.workers().blocking(Task::HousekeepingDisk, work).await;
    let done = done.map_err(|_| Unavailable::Stopping)?;
    done.map_err(|error| BackupError::Unreadable { shard, what: error.to_string() })
}
