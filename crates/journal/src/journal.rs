//! The handle that consensus and the broker hold. It owns no logic: each call goes to the part
//! that knows (`commit`, `recover`, `index`, ...).

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use base::limits;
use bytes::Bytes;

use crate::address::Address;
use crate::disk::Disk;
use crate::entry::{Entry, EntryId};
use crate::error::{JournalFailed, OpenError, ReadError};
use crate::stats::{Reclaimed, RecoveryReport, Room, SegmentInfo, Stats};

#[derive(Clone, Debug)]
pub struct Options {
    /// Size of a segment's file; a single larger entry makes one larger segment.
    pub segment_bytes: u64,
    /// What one group commit writes at most; a single larger entry makes one larger frame.
    pub frame_bytes_max: usize,
    /// Recent entries kept in memory for consumers that keep up.
    pub tail_cache_bytes: usize,
    /// Address tables of sealed segments kept in memory.
    pub sidecar_cache_bytes: usize,
    /// Free bytes of the file system below which `room` is `Full`.
    pub disk_reserve_bytes: u64,
    /// Threads that read what is in neither the tail cache nor the page cache.
    pub readers: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            segment_bytes: limits::SEGMENT_BYTES_DEFAULT,
            frame_bytes_max: limits::FRAME_BYTES_MAX,
            tail_cache_bytes: limits::TAIL_CACHE_BYTES,
            sidecar_cache_bytes: limits::SIDECAR_CACHE_BYTES,
            disk_reserve_bytes: limits::DISK_RESERVE_BYTES_DEFAULT,
            readers: 4,
        }
    }
}

#[derive(Debug)]
pub struct Opened {
    pub journal: Journal,
    /// The newest snapshot: the machine starts from it and then applies what the log holds.
    pub snapshot: Option<Snapshot>,
    pub report: RecoveryReport,
}

/// A saved state of the machine, with all entries up to `id` applied.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Snapshot {
    pub id: EntryId,
    /// Consensus' own part, opaque here.
    pub meta: Bytes,
    /// The machine's part, opaque here.
    pub machine: Bytes,
}

/// What key compaction does with a batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Keep {
    Same,
    Drop,
    /// A smaller batch for the same offsets.
    Replace(Bytes),
}

/// A shard's journal. Clones share it; it closes with the last of them.
#[derive(Clone, Debug)]
pub struct Journal {}

/// A snapshot whose content is fixed and which is not yet on disk.
#[derive(Debug)]
pub struct PendingSnapshot {}

impl PendingSnapshot {
    /// Writes it durably; blocking, for a thread of its own. Afterwards the log's claim on older
    /// segments is gone.
    pub fn write(self) -> io::Result<()> {
        todo!()
    }
}

/// The Raft log, for consensus.
impl Journal {
    /// Opens or makes the journal in `dir`, recovering what a crash left.
    pub fn open(_disk: Arc<dyn Disk>, _dir: &Path, _options: Options) -> Result<Opened, OpenError> {
        todo!()
    }

    /// Appends to the log. Readable on return; `durable` is called (from the journal's thread, in
    /// order) after the sync that covers the last of them. A failed sync poisons the journal: every
    /// callback gets the error, the `on_fatal` hook is called, nothing is ever acknowledged again.
    pub fn append(
        &self,
        _entries: Vec<Entry>,
        _durable: impl FnOnce(Result<(), JournalFailed>) + Send + 'static,
    ) -> Result<(), JournalFailed> {
        todo!()
    }

    /// Entries of `range`, in order, at most `bytes_max` bytes of them but at least one; fewer when
    /// the log ends before. Memory first, then (blocking) disk.
    pub fn entries(&self, _range: Range<u64>, _bytes_max: usize) -> Result<Vec<Entry>, ReadError> {
        todo!()
    }

    pub fn entry_id(&self, _index: u64) -> Option<EntryId> {
        todo!()
    }

    /// The last entry of the log, or what was purged last when the log is empty.
    pub fn last_id(&self) -> Option<EntryId> {
        todo!()
    }

    pub fn purged_id(&self) -> Option<EntryId> {
        todo!()
    }

    /// Forgets the entries after `index` (all, when `None`). Takes effect on disk with the entries
    /// appended in their place: until then a crash may bring the old ones back, which Raft allows.
    pub fn truncate_after(&self, _index: Option<u64>) -> Result<(), JournalFailed> {
        todo!()
    }

    /// Entries up to `id` are covered by a snapshot and no longer part of the log. Their bodies stay.
    pub fn purge(&self, _id: EntryId) {
        todo!()
    }

    /// Durable on return. Blocking.
    pub fn save_vote(&self, _vote: &[u8]) -> io::Result<()> {
        todo!()
    }

    pub fn vote(&self) -> Option<Bytes> {
        todo!()
    }

    /// Called in apply order while nothing else is applied: fixes the index as of `id` at once and
    /// returns the work of writing it.
    pub fn begin_snapshot(&self, _id: EntryId, _meta: Bytes, _machine: Bytes) -> PendingSnapshot {
        todo!()
    }

    /// Bytes written to the log since the newest durable snapshot.
    pub fn bytes_since_snapshot(&self) -> u64 {
        todo!()
    }
}

/// Bodies, for the broker: called from apply, in log order.
impl Journal {
    /// The machine took this body: it is served from now on.
    pub fn accept(&self, _log_index: u64, _body: usize) {
        todo!()
    }

    /// The machine did not take it: its bytes are dead.
    pub fn refuse(&self, _log_index: u64, _body: usize) {
        todo!()
    }

    /// Everything of `stream` below `start_offset` is dead.
    pub fn trim(&self, _stream: u64, _start_offset: u64) {
        todo!()
    }

    /// All of these streams is dead: their topic was deleted.
    pub fn remove(&self, _streams: Range<u64>) {
        todo!()
    }
}

/// Reading, for the broker.
impl Journal {
    /// Consecutive batches from the one that holds `offset` (or the next after it) on: at least one,
    /// even if larger than `bytes_max`; empty at the end. Adjacent batches may share one `Bytes`.
    pub async fn read(
        &self,
        _stream: u64,
        _offset: u64,
        _bytes_max: usize,
    ) -> Result<Vec<Bytes>, ReadError> {
        todo!()
    }

    /// The first batch with a record at or after `timestamp`.
    pub async fn find_time(
        &self,
        _stream: u64,
        _timestamp: i64,
    ) -> Result<Option<(Address, Bytes)>, ReadError> {
        todo!()
    }

    /// The batch with the largest timestamp.
    pub async fn find_max_time(&self, _stream: u64) -> Result<Option<(Address, Bytes)>, ReadError> {
        todo!()
    }

    /// Live bytes.
    pub fn stream_bytes(&self, _stream: u64) -> u64 {
        todo!()
    }

    /// The start offset that keeps at least `keep_bytes`. Blocking.
    pub fn retention_by_bytes(&self, _stream: u64, _keep_bytes: u64) -> Option<u64> {
        todo!()
    }

    /// The offset of the first batch with `max_timestamp >= before`, or the end. Blocking.
    pub fn retention_by_time(&self, _stream: u64, _before: i64) -> Option<u64> {
        todo!()
    }

    /// Addresses from the batch that holds `from` on. Blocking.
    pub fn batches(&self, _stream: u64, _from: u64) -> Result<Vec<Address>, ReadError> {
        todo!()
    }
}

/// Space, for housekeeping.
impl Journal {
    pub fn segments(&self) -> Vec<SegmentInfo> {
        todo!()
    }

    /// Seals the active segment before the next frame.
    pub fn roll(&self) {
        todo!()
    }

    /// Deletes dead segments and rewrites mostly dead ones. Blocking.
    pub fn reclaim(&self) -> io::Result<Reclaimed> {
        todo!()
    }

    /// Rewrites a sealed segment, asking about each of its live batches. Blocking.
    pub fn rewrite(
        &self,
        _segment: u32,
        _keep: &mut dyn FnMut(u64, &Address, &[u8]) -> Keep,
    ) -> io::Result<()> {
        todo!()
    }

    pub fn room(&self) -> Room {
        todo!()
    }
}

/// Health.
impl Journal {
    /// Called once when the journal fails for good; at once when it already has.
    pub fn on_fatal(&self, _hook: impl Fn(&JournalFailed) + Send + Sync + 'static) {
        todo!()
    }

    /// Called with the last log index that was written, before it is synced.
    pub fn on_written(&self, _hook: impl Fn(u64) + Send + Sync + 'static) {
        todo!()
    }

    pub fn stats(&self) -> Stats {
        todo!()
    }

    /// Waits while too many bytes are queued (`JOURNAL_QUEUED_BYTES_MAX`).
    pub async fn queue_room(&self) {
        todo!()
    }

    /// Makes durable what was appended and stops the threads. Later appends fail.
    pub fn close(&self) {
        todo!()
    }
}
