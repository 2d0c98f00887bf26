//! The handle that consensus and the broker hold. It owns no logic: each call goes to the part
//! that knows (`commit`, `recover`, `index`, ...).

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use base::limits;
use bytes::Bytes;
use parking_lot::Mutex;
use tasks::{Running, Task, Workers};
use tokio::sync::Notify;

use crate::address::{Address, Stored};
use crate::commit::{WriteEnd, Writer};
use crate::entry::{Entry, EntryId};
use crate::error::{JournalFailed, OpenError, ReadError};
use crate::frame::EncodedEntry;
use crate::index::files::{FileKind, file_name};
use crate::index::{Capture, Index, Setup};
use crate::log::{Log, LogPosition};
use crate::prepare::{Preparer, Signals, Spares};
use crate::queue::Queue;
use crate::read::Reader;
use crate::recover::{Full, Recovered, Sizes, recover};
use crate::shared::{Applying, Counters, Hooks, Shared};
use crate::snapshot::SnapshotFile;
use crate::stats::{Age, Reclaimed, RecoveryReport, Room, SegmentInfo, Stats};
use crate::vote::Vote;
use world::{Disk, Instant, World};

/// Smaller segments would be mostly ends. Tests use these; an operator's least is in `limits`.
const SEGMENT_BYTES_MIN: u64 = 64 << 10;
const FRAME_BYTES_MIN: usize = 4 << 10;

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
    /// How many bytes the whole snapshot has, the journal's own part among them.
    pub bytes: u64,
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
pub struct Journal {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    shared: Arc<Shared>,
    reader: Reader,
    threads: Mutex<Option<Threads>>,
}

struct Threads {
    writer: Running,
    preparer: Running,
    sealer: Running,
    /// Given back when nothing of ours touches the directory any more.
    _claim: Box<dyn Send + Sync>,
}

impl fmt::Debug for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Threads")
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.close();
    }
}

/// A snapshot whose content is fixed and which is neither encoded nor on disk yet.
#[derive(Debug)]
pub struct PendingSnapshot {
    shared: Arc<Shared>,
    id: EntryId,
    scan_from: LogPosition,
    meta: Bytes,
    capture: Capture,
    bytes_written: u64,
}

impl PendingSnapshot {
    /// Encodes it, with the machine's state of the same moment, and writes it durably; blocking, for a
    /// thread of its own. Afterwards the log's claim on older segments is gone. Nothing is written when
    /// a later snapshot is durable already. Answers how many bytes the snapshot has.
    pub fn write(self, machine: Bytes) -> io::Result<u64> {
        let Self { shared, id, scan_from, meta, capture: Capture { table, dead }, .. } = self;
        shared.check().map_err(io::Error::other)?;
        let encoded = Bytes::from(table.encode());
        // Its memory, as far as the index has let go of it, is given back before the disk is waited for.
        drop(table);
        let file = SnapshotFile { id, scan_from, meta, machine, table: encoded };
        let mut newest = shared.snapshot.lock();
        if newest.is_some_and(|newest| newest.index > id.index) {
            return Ok(file.bytes());
        }
        file.write(&*shared.disk, &shared.dir)?;
        shared.snapshot_bytes.store(file.bytes(), Ordering::Relaxed);
        shared.index.snapshot_written(&dead, scan_from.segment);
        shared.bytes_at_snapshot.store(self.bytes_written, Ordering::Relaxed);
        *newest = Some(id);
        Ok(file.bytes())
    }
}

/// The Raft log, for consensus.
impl Journal {
    /// Opens or makes the journal in `dir`, recovering what a crash left.
    pub fn open(world: &World, dir: &Path, options: Options) -> Result<Opened, OpenError> {
        let disk = &world.disk;
        let begun = Instant::now();
        options.check()?;
        let io_error = |operation| {
            let path = dir.to_owned();
            move |source| OpenError::Io { operation, path, source }
        };
        disk.create_dir(dir).map_err(io_error("make"))?;
        let claim = disk.lock(dir).map_err(|source| match source.kind() {
            io::ErrorKind::WouldBlock => OpenError::InUse { dir: dir.to_owned() },
            _ => io_error("lock")(source),
        })?;
        let vote = Vote::load(disk, dir)?;
        let sizes = Sizes {
            segment_bytes: options.segment_bytes,
            frame_bytes_max: options.frame_bytes_max,
            tail_cache_bytes: options.tail_cache_bytes,
        };
        let mut recovered = recover(world, dir, sizes)?;
        let snapshot_bytes = recovered.snapshot.as_ref().map_or(0, SnapshotFile::bytes);
        let snapshot = recovered.snapshot.take().map(|file| Snapshot {
            bytes: file.bytes(),
            id: file.id,
            meta: file.meta,
            machine: file.machine,
        });
        let mut report = std::mem::take(&mut recovered.report);
        let journal = Self::start(world, dir, options, vote, recovered, claim)?;
        journal.inner.shared.snapshot_bytes.store(snapshot_bytes, Ordering::Relaxed);
        report.took = begun.elapsed();
        tracing::info!("{report}");
        Ok(Opened { journal, snapshot, report })
    }

    fn start(
        world: &World,
        dir: &Path,
        options: Options,
        vote: Vote,
        recovered: Recovered,
        claim: Box<dyn Send + Sync>,
    ) -> Result<Self, OpenError> {
        let disk = &world.disk;
        let Recovered { log, end, spare, table, scan_from, full, replaced, bytes, .. } = recovered;
        let snapshot = log.purged;
        let older = !end.segment.header.takes_entries();
        let next_id = end.segment.header.id + 1 + u32::from(spare.is_some());
        let log = Arc::new(Log::new(disk.clone(), dir, log));
        let setup = Setup {
            disk: disk.clone(),
            dir: dir.to_owned(),
            log: log.clone(),
            sidecar_cache_bytes: options.sidecar_cache_bytes,
        };
        let index = Arc::new(Index::open(setup, table, scan_from.segment)?);
        left_before(disk, dir, &index, scan_from.segment, snapshot)
            .map_err(|source| OpenError::Io { operation: "measure", path: dir.into(), source })?;
        for Full { segment, last_index, file_bytes } in full {
            index.full(segment, last_index, file_bytes);
        }
        let unreadable = |error: ReadError| OpenError::Unusable {
            file: dir.to_owned(),
            what: format!("an entry that was replaced cannot be read: {error}"),
        };
        for (entry, slot) in replaced {
            for (stream, address) in log.stored_bodies(entry, &slot).map_err(unreadable)? {
                index.refuse(0, stream, address);
            }
        }
        let signals = Signals::default();
        let spares = Spares::new(
            world.clone(),
            dir.to_owned(),
            options.segment_bytes,
            options.disk_reserve_bytes,
            spare,
            next_id,
            signals.clone(),
        );
        let threads_error =
            |source| OpenError::Io { operation: "start threads for", path: dir.to_owned(), source };
        let readers = options.readers;
        let shared = Arc::new(Shared {
            disk: disk.clone(),
            dir: dir.to_owned(),
            options,
            log,
            index,
            queue: Queue::new(signals.writer.clone()),
            spares,
            vote,
            counters: Counters::new(),
            hooks: Hooks::default(),
            failed: OnceLock::new(),
            drained: Notify::new(),
            placed: Notify::new(),
            applying: Mutex::default(),
            snapshot: Mutex::new(snapshot),
            snapshot_bytes: AtomicU64::new(0),
            // Wraps: the counter of bytes begins at 0 with each opening.
            bytes_at_snapshot: AtomicU64::new(0_u64.wrapping_sub(bytes)),
        });
        let on_panic = shared.clone().panicked(Task::JournalReader);
        let reader = Reader::new(shared.index.clone(), &world.workers, readers, on_panic)
            .map_err(threads_error)?;
        if older {
            shared.queue.roll();
        }
        let threads =
            Threads::start(&world.workers, &shared, &signals, end, claim).map_err(threads_error)?;
        Ok(Self { inner: Arc::new(Inner { shared, reader, threads: Mutex::new(Some(threads)) }) })
    }

    /// Appends to the log. Readable on return; `durable` is called (from the journal's thread, in
    /// order) after the sync that covers the last of them. A failed sync poisons the journal: every
    /// callback gets the error, the `on_fatal` hook is called, nothing is ever acknowledged again.
    /// On an error here nothing was appended and `durable` is not called.
    ///
    /// Indexes are dense: an entry that does not follow the last one is a bug of the caller, and
    /// panics.
    pub fn append(
        &self,
        entries: Vec<Entry>,
        durable: impl FnOnce(Result<(), JournalFailed>) + Send + 'static,
    ) -> Result<(), JournalFailed> {
        let shared = &self.inner.shared;
        shared.check()?;
        // Outside of any lock: here the checksums are computed.
        let encoded: Vec<Arc<EncodedEntry>> =
            entries.into_iter().map(|entry| Arc::new(EncodedEntry::new(entry))).collect();
        let bytes: u64 = encoded.iter().map(|entry| u64::from(entry.len)).sum();
        let mut log = shared.log.write();
        shared.counters.queued_bytes.fetch_add(bytes, Ordering::Relaxed);
        if !shared.queue.put(&encoded, Box::new(durable)) {
            shared.counters.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
            return Err(shared.failed.get().cloned().unwrap_or(JournalFailed::Closed));
        }
        encoded.iter().for_each(|entry| log.append(entry));
        drop(log);
        shared.queue.wake();
        Ok(())
    }

    /// Entries of `range`, in order, at most `bytes_max` bytes of them but at least one; fewer when
    /// the log ends before. Memory first, then (blocking) disk.
    pub fn entries(&self, range: Range<u64>, bytes_max: usize) -> Result<Vec<Entry>, ReadError> {
        self.inner.shared.log.entries(range, bytes_max)
    }

    pub fn entry_id(&self, index: u64) -> Option<EntryId> {
        self.inner.shared.log.read().entry_id(index)
    }

    /// The last entry of the log, or what was purged last when the log is empty.
    pub fn last_id(&self) -> Option<EntryId> {
        self.inner.shared.log.read().last_id()
    }

    pub fn purged_id(&self) -> Option<EntryId> {
        self.inner.shared.log.read().purged
    }

    /// Forgets the entries after `index` (all, when `None`). Takes effect on disk with the entries
    /// appended in their place: until then a crash may bring the old ones back, which Raft allows.
    pub fn truncate_after(&self, index: Option<u64>) -> Result<(), JournalFailed> {
        let shared = &self.inner.shared;
        shared.check()?;
        let from = index.map_or(0, |index| index + 1);
        let cut = shared.log.read().placed_from(from);
        for (entry, slot) in cut {
            let bodies = shared.log.stored_bodies(entry, &slot).map_err(|error| {
                let file = shared.dir.clone();
                JournalFailed::io("read entries to cut", file, io::Error::other(error))
            })?;
            for (stream, address) in bodies {
                shared.index.refuse(0, stream, address);
            }
        }
        shared.log.write().truncate_from(from);
        Ok(())
    }

    /// Entries up to `id` are covered by a snapshot and no longer part of the log. Their bodies stay.
    pub fn purge(&self, id: EntryId) {
        self.inner.shared.log.write().purge(id);
    }

    /// Durable on return. Blocking.
    pub fn save_vote(&self, vote: &[u8]) -> io::Result<()> {
        let shared = &self.inner.shared;
        shared.check().map_err(io::Error::other)?;
        shared.vote.save(&*shared.disk, &shared.dir, vote)
    }

    pub fn vote(&self) -> Option<Bytes> {
        self.inner.shared.vote.get()
    }

    /// Called in apply order while nothing else is applied: fixes the index as of `id` at once and
    /// returns the work of encoding and writing it. What was fixed is shared with the index: it takes
    /// little time, and memory for what changes until it is written.
    pub fn begin_snapshot(&self, id: EntryId, meta: Bytes) -> PendingSnapshot {
        let shared = self.inner.shared.clone();
        shared.index.applied(id.index);
        let bytes_written = shared.counters.bytes.load(Ordering::Relaxed);
        let scan_from = shared.log.read().scan_from(id.index);
        let capture = shared.index.capture();
        PendingSnapshot { shared, id, scan_from, meta, capture, bytes_written }
    }

    /// Bytes written to the log since the newest durable snapshot.
    pub fn bytes_since_snapshot(&self) -> u64 {
        let shared = &self.inner.shared;
        let bytes = shared.counters.bytes.load(Ordering::Relaxed);
        bytes.wrapping_sub(shared.bytes_at_snapshot.load(Ordering::Relaxed))
    }
}

/// Bodies, for the broker: called from apply, in log order.
impl Journal {
    /// Waits until entry `index`, and so every one before it, has its place in a segment: then
    /// `accept` and `refuse` need not wait for the disk. To be awaited before a lock is taken under
    /// which entries are applied. In a group of one they have it when they are committed.
    pub async fn placed(&self, index: u64) -> Result<(), JournalFailed> {
        let shared = &self.inner.shared;
        loop {
            // Made before looking, so that what is placed in between is not missed.
            let placed = shared.placed.notified();
            if !shared.log.read().waits_for_place(index) {
                return Ok(());
            }
            shared.check()?;
            placed.await;
        }
    }

    /// The machine took this body: it is served from now on.
    pub fn accept(&self, log_index: u64, body: usize) {
        self.decide(log_index, body, |index, stream, address| {
            index.accept(log_index, stream, address);
        });
    }

    /// The machine did not take it: its bytes are dead.
    pub fn refuse(&self, log_index: u64, body: usize) {
        self.decide(log_index, body, |index, stream, address| {
            index.refuse(log_index, stream, address);
        });
    }

    fn decide(&self, log_index: u64, body: usize, tell: impl FnOnce(&Index, u64, Address)) {
        let shared = &self.inner.shared;
        let mut applying = shared.applying.lock();
        if applying.index != Some(log_index) {
            match shared.log.bodies(log_index) {
                Ok(bodies) => *applying = Applying { index: Some(log_index), bodies },
                Err(error) => {
                    // What was committed cannot be served: the machine must not go on.
                    let error = io::Error::other(error);
                    shared.fail(JournalFailed::io("read", shared.dir.clone(), error));
                    return;
                }
            }
        }
        let (stream, address) = applying.bodies[body];
        tell(&shared.index, stream, address);
    }

    /// Everything of `stream` below `start_offset` is dead.
    pub fn trim(&self, stream: u64, start_offset: u64) {
        self.inner.shared.index.trim(stream, start_offset);
    }

    /// The offsets `from..to` of `stream` are dead, between others that are not. A batch goes once
    /// all its offsets are dead, by however many calls and by `trim`. Idempotent.
    pub fn punch(&self, stream: u64, from: u64, to: u64) {
        self.inner.shared.index.punch(stream, from, to);
    }

    /// All of these streams is dead: their topic was deleted.
    pub fn remove(&self, streams: Range<u64>) {
        self.inner.shared.index.remove(streams);
    }
}

/// Reading, for the broker.
impl Journal {
    /// Consecutive batches from the one that holds `offset` (or the next after it) on: at least one,
    /// even if larger than `bytes_max`; empty at the end. Adjacent batches may share one [`Stored`].
    pub async fn read(
        &self,
        stream: u64,
        offset: u64,
        bytes_max: usize,
    ) -> Result<Vec<Stored>, ReadError> {
        self.inner.reader.read(stream, offset, bytes_max).await
    }

    /// As [`Journal::read`], on the caller's thread. Blocking.
    pub fn read_blocking(
        &self,
        stream: u64,
        offset: u64,
        bytes_max: usize,
    ) -> Result<Vec<Stored>, ReadError> {
        self.inner.reader.read_blocking(stream, offset, bytes_max)
    }

    /// The first batch with a record at or after `timestamp`.
    pub async fn find_time(
        &self,
        stream: u64,
        timestamp: i64,
    ) -> Result<Option<(Address, Stored)>, ReadError> {
        self.inner.reader.find_time(stream, timestamp).await
    }

    /// The batch with the largest timestamp.
    pub async fn find_max_time(&self, stream: u64) -> Result<Option<(Address, Stored)>, ReadError> {
        self.inner.reader.find_max_time(stream).await
    }

    /// Live bytes.
    pub fn stream_bytes(&self, stream: u64) -> u64 {
        self.inner.shared.index.stream_bytes(stream)
    }

    /// The start offset that keeps at least `keep_bytes`; `None` when that is all there is. Blocking.
    pub fn retention_by_bytes(
        &self,
        stream: u64,
        keep_bytes: u64,
    ) -> Result<Option<u64>, ReadError> {
        self.inner.shared.index.retention_by_bytes(stream, keep_bytes)
    }

    /// What of a stream is older than `before`, and when the rest will be. Blocking.
    pub fn age(&self, stream: u64, before: i64) -> Result<Age, ReadError> {
        let index = &self.inner.shared.index;
        let old_to = index.retention_by_time(stream, before)?;
        let young_ms = index.find_time(stream, before)?.map(|(batch, _)| batch.max_timestamp);
        Ok(Age { old_to, young_ms })
    }

    /// Addresses from the batch that holds `from` on. Blocking.
    pub fn batches(&self, stream: u64, from: u64) -> Result<Vec<Address>, ReadError> {
        self.inner.shared.index.batches(stream, from)
    }
}

/// Tells the index of segments that the log had left when the snapshot was taken, in case it was
/// not told before that.
fn left_before(
    disk: &Arc<dyn Disk>,
    dir: &Path,
    index: &Index,
    scan_segment: u32,
    snapshot: Option<EntryId>,
) -> io::Result<()> {
    let Some(snapshot) = snapshot else { return Ok(()) };
    let left = |info: &SegmentInfo| info.id < scan_segment && !info.sealed;
    for SegmentInfo { id, generation, .. } in index.segments().into_iter().filter(left) {
        let path = dir.join(file_name(FileKind::Segment, id, generation));
        index.full(id, snapshot.index, disk.open(&path, false)?.len()?);
    }
    Ok(())
}

/// Space, for housekeeping.
impl Journal {
    pub fn segments(&self) -> Vec<SegmentInfo> {
        self.inner.shared.index.segments()
    }

    /// Seals the active segment before the next frame.
    pub fn roll(&self) {
        self.inner.shared.queue.roll();
    }

    /// Lets go of recent entries that have been durable for `age`; to be called now and then. They
    /// are read from their segments from then on.
    pub fn rest(&self, age: Duration) {
        let aged = self.inner.shared.log.write().rest(Instant::now(), age);
        // Many at times: not while the log is locked.
        drop(aged);
    }

    /// Size of the newest snapshot; 0 before the first.
    pub fn snapshot_bytes(&self) -> u64 {
        self.inner.shared.snapshot_bytes.load(Ordering::Relaxed)
    }

    /// Deletes dead segments and rewrites mostly dead ones. Blocking.
    pub fn reclaim(&self) -> io::Result<Reclaimed> {
        self.inner.shared.index.reclaim()
    }

    /// Rewrites a sealed segment, asking about each of its live batches. Blocking.
    pub fn rewrite(
        &self,
        segment: u32,
        keep: &mut dyn FnMut(u64, &Address, &[u8]) -> Keep,
    ) -> io::Result<()> {
        self.inner.shared.index.rewrite(segment, keep)
    }

    pub fn room(&self) -> Room {
        self.inner.shared.spares.room()
    }
}

/// Health.
impl Journal {
    /// Called once when the journal fails for good; at once when it already has.
    pub fn on_fatal(&self, hook: impl Fn(&JournalFailed) + Send + Sync + 'static) {
        let shared = &self.inner.shared;
        let mut hooks = shared.hooks.fatal.lock();
        match shared.failed.get() {
            None => hooks.push(Box::new(hook)),
            Some(JournalFailed::Closed) => {}
            Some(failed) => hook(failed),
        }
    }

    /// Called with the last log index that was written, before it is synced.
    pub fn on_written(&self, hook: impl Fn(u64) + Send + Sync + 'static) {
        self.inner.shared.hooks.written.write().push(Box::new(hook));
    }

    pub fn stats(&self) -> Stats {
        self.inner.shared.counters.stats()
    }

    /// Waits while too many bytes are queued (`JOURNAL_QUEUED_BYTES_MAX`).
    pub async fn queue_room(&self) {
        let shared = &self.inner.shared;
        loop {
            // Made before looking, so that what drains in between is not missed.
            let drained = shared.drained.notified();
            let queued = shared.counters.queued_bytes.load(Ordering::Relaxed);
            if queued <= limits::JOURNAL_QUEUED_BYTES_MAX as u64 {
                return;
            }
            drained.await;
        }
    }

    /// Makes durable what was appended and stops the threads. Later appends fail.
    pub fn close(&self) {
        self.inner.close();
    }
}

impl Inner {
    fn close(&self) {
        let Some(threads) = self.threads.lock().take() else { return };
        self.shared.spares.drain();
        self.shared.queue.close();
        self.shared.index.stop_sealing();
        threads.join();
    }
}

impl Threads {
    fn start(
        workers: &Workers,
        shared: &Arc<Shared>,
        signals: &Signals,
        end: WriteEnd,
        claim: Box<dyn Send + Sync>,
    ) -> io::Result<Self> {
        let on_panic = |task| shared.clone().panicked(task);
        let preparer = workers.start(
            Task::JournalPreparer,
            "journal-prepare",
            &signals.preparer,
            Preparer::new(shared.clone()),
            on_panic(Task::JournalPreparer),
        )?;
        let sealer = shared.index.seal_in_background(workers, on_panic(Task::JournalSealer))?;
        let writer = workers.start(
            Task::JournalWriter,
            "journal",
            &signals.writer,
            Writer::new(shared.clone(), end),
            on_panic(Task::JournalWriter),
        )?;
        Ok(Self { writer, preparer, sealer, _claim: claim })
    }

    fn join(self) {
        if self.writer.is_here() {
            // The last handle went in a callback: the thread that is to end is this one.
            let join = move || self.join();
            // Without a thread to spare they are not waited for, and end all the same.
            drop(tasks::thread(Task::JournalClosing, "journal-close".into(), join, || {}));
            return;
        }
        Running::join([self.writer, self.preparer, self.sealer]);
    }
}

impl Options {
    fn check(&self) -> Result<(), OpenError> {
        let refuse = |name, what: String| Err(OpenError::Option { name, what });
        let max = limits::SEGMENT_BYTES_MAX;
        if !(SEGMENT_BYTES_MIN..=max).contains(&self.segment_bytes) {
            let has = self.segment_bytes;
            let what = format!("{has} is not within {SEGMENT_BYTES_MIN} to {max}");
            return refuse("segment_bytes", what);
        }
        if self.frame_bytes_max < FRAME_BYTES_MIN {
            let has = self.frame_bytes_max;
            return refuse("frame_bytes_max", format!("{has} is below {FRAME_BYTES_MIN}"));
        }
        Ok(())
    }
}
