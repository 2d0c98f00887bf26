//! State shared by the handle and the journal's threads.

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tasks::Task;
use tokio::sync::Notify;

use crate::address::Address;
use crate::entry::EntryId;
use crate::error::JournalFailed;
use crate::index::Index;
use crate::log::Log;
use crate::options::Options;
use crate::queue::Queue;
use crate::segment::Spares;
use crate::stats::{SYNC_BUCKETS_MICROS, Stats};
use crate::vote::Vote;
use world::{Disk, Instant};

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) dir: PathBuf,
    pub(crate) options: Options,
    pub(crate) log: Arc<Log>,
    pub(crate) index: Arc<Index>,
    pub(crate) queue: Queue,
    pub(crate) spares: Spares,
    pub(crate) vote: Vote,
    pub(crate) counters: Counters,
    pub(crate) durable_end: DurableEnd,
    pub(crate) hooks: Hooks,
    pub(crate) failed: OnceLock<JournalFailed>,
    /// Notified each time that queued bytes became durable.
    pub(crate) drained: Notify,
    /// Notified each time that entries were placed, and when the journal fails.
    pub(crate) placed: Notify,
    /// Held while an entry leaves the log, until its bodies are dead in the index, and while a
    /// snapshot is captured. A snapshot that excludes the entry from recovery therefore also has
    /// its bodies as dead.
    pub(crate) refusing: Mutex<()>,
    /// Bodies of the entry being applied: looked up once, used one by one.
    pub(crate) applying: Mutex<ApplyingEntry>,
    /// The newest durable snapshot, and the count of bytes written when it was begun. The lock is
    /// held while one is written, so that they become durable one after the other.
    pub(crate) snapshot: Mutex<Option<EntryId>>,
    pub(crate) bytes_at_snapshot: AtomicU64,
    /// Another node's snapshot, while it is received.
    pub(crate) import: Mutex<ImportState>,
    /// Size of the newest durable snapshot.
    pub(crate) snapshot_bytes: AtomicU64,
}

/// State of an import in the journal.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ImportState {
    /// Id of the first segment that came from another node and is not installed.
    pub(crate) from: Option<u32>,
    pub(crate) busy: bool,
}

#[derive(Debug, Default)]
pub(crate) struct ApplyingEntry {
    pub(crate) index: Option<u64>,
    pub(crate) bodies: Vec<(u64, Address)>,
}

/// Segment and position behind the last frame that is durable. Readers of the disk stay in front of it.
#[derive(Debug)]
pub(crate) struct DurableEnd(AtomicU64);

impl DurableEnd {
    pub(crate) fn new(segment: u32, position: u64) -> Self {
        let end = Self(AtomicU64::new(0));
        end.set(segment, position);
        end
    }

    /// Only the journal's thread sets it.
    pub(crate) fn set(&self, segment: u32, position: u64) {
        // Segments end below 4 GiB: a frame's header has its position in 32 bits.
        self.0.store(u64::from(segment) << 32 | position & u64::from(u32::MAX), Ordering::Release);
    }

    pub(crate) fn get(&self) -> (u32, u64) {
        let end = self.0.load(Ordering::Acquire);
        ((end >> 32) as u32, end & u64::from(u32::MAX))
    }
}

type FatalHook = Box<dyn Fn(&JournalFailed) + Send + Sync>;
type WrittenHook = Box<dyn Fn(u64) + Send + Sync>;

#[derive(Default)]
pub(crate) struct Hooks {
    pub(crate) fatal: Mutex<Vec<FatalHook>>,
    pub(crate) written: RwLock<Vec<WrittenHook>>,
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hooks")
    }
}

impl Shared {
    pub(crate) fn check(&self) -> Result<(), JournalFailed> {
        match self.failed.get() {
            None => Ok(()),
            Some(failed) => Err(failed.clone()),
        }
    }

    /// Panic handler of a thread of the journal.
    pub(crate) fn panicked(self: Arc<Self>, thread: Task) -> impl Fn() + Clone + Send + 'static {
        move || self.fail(JournalFailed::Panicked { thread: thread.name() })
    }

    /// The end of this journal: nothing is acknowledged from here on.
    pub(crate) fn fail(&self, failed: JournalFailed) {
        // Only the first failure, the cause, is reported; later ones just release the waiters.
        let hooks = self.hooks.fatal.lock();
        if self.failed.set(failed.clone()).is_ok() && !matches!(failed, JournalFailed::Closed) {
            // Hooks before the log message, which may block: a hook may end the process.
            hooks.iter().for_each(|hook| hook(&failed));
            tracing::error!(error = %failed, "the journal failed, nothing is acknowledged any more");
        }
        drop(hooks);
        for durable in self.queue.fail() {
            durable(Err(failed.clone()));
        }
        self.counters.queued_bytes.store(0, Ordering::Relaxed);
        self.spares.close();
        self.drained.notify_waiters();
        self.placed.notify_waiters();
    }
}

/// Totals since the journal was opened. Only its thread writes them.
#[derive(Debug)]
pub(crate) struct Counters {
    started: Instant,
    pub(crate) frames: AtomicU64,
    pub(crate) entries: AtomicU64,
    pub(crate) syncs: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) queued_bytes: AtomicU64,
    last_sync_micros: AtomicU64,
    total_sync_micros: AtomicU64,
    sync_buckets: [AtomicU64; SYNC_BUCKETS_MICROS.len() + 1],
    /// Start of the write or sync in progress, in microseconds since the start, plus one; 0: none.
    busy_since: AtomicU64,
}

impl Counters {
    pub(crate) fn new() -> Self {
        Self {
            started: Instant::now(),
            frames: AtomicU64::new(0),
            entries: AtomicU64::new(0),
            syncs: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            queued_bytes: AtomicU64::new(0),
            last_sync_micros: AtomicU64::new(0),
            total_sync_micros: AtomicU64::new(0),
            sync_buckets: Default::default(),
            busy_since: AtomicU64::new(0),
        }
    }

    pub(crate) fn begin_io(&self) {
        let now = self.started.elapsed().as_micros() as u64;
        self.busy_since.store(now + 1, Ordering::Relaxed);
    }

    pub(crate) fn end_io(&self) {
        self.busy_since.store(0, Ordering::Relaxed);
    }

    pub(crate) fn synced(&self, took: Duration) {
        let micros = took.as_micros() as u64;
        self.syncs.fetch_add(1, Ordering::Relaxed);
        self.last_sync_micros.store(micros, Ordering::Relaxed);
        self.total_sync_micros.fetch_add(micros, Ordering::Relaxed);
        let bucket = SYNC_BUCKETS_MICROS.partition_point(|bound| *bound < micros);
        self.sync_buckets[bucket].fetch_add(1, Ordering::Relaxed);
    }

    /// Time since the write or sync in progress began, at `now` since the start.
    fn busy_for(&self, now: Duration) -> Option<Duration> {
        let since = self.busy_since.load(Ordering::Relaxed).checked_sub(1)?;
        Some(now.saturating_sub(Duration::from_micros(since)))
    }

    pub(crate) fn stats(&self) -> Stats {
        let busy_for = self.busy_for(self.started.elapsed());
        Stats {
            frames: self.frames.load(Ordering::Relaxed),
            entries: self.entries.load(Ordering::Relaxed),
            syncs: self.syncs.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            last_sync_micros: self.last_sync_micros.load(Ordering::Relaxed),
            total_sync_micros: self.total_sync_micros.load(Ordering::Relaxed),
            sync_buckets: self.sync_buckets.each_ref().map(|count| count.load(Ordering::Relaxed)),
            busy_for,
            queued_bytes: self.queued_bytes.load(Ordering::Relaxed) as usize,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_or_sync_is_busy_until_it_returns() {
        let counters = Counters::new();
        let later = Duration::from_secs(101);
        assert_eq!(counters.busy_for(later), None);
        counters.begin_io();
        let busy = counters.busy_for(later).expect("it has begun");
        assert!(busy >= Duration::from_secs(100), "{busy:?}");
        counters.end_io();
        assert_eq!(counters.busy_for(later), None);
    }
}
