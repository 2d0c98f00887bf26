//! The handle used by consensus and the broker. It has no logic of its own: each call is forwarded
//! to its module (`commit`, `recover`, `index`, ...).
//!
//! * [`open`]: opening; [`threads`]: the journal's threads
//! * [`log`]: the Raft log, for consensus; [`pins`]: retaining it for readers
//! * [`snapshots`]: snapshots of the machine
//! * [`bodies`]: accepting, refusing and removing bodies, for apply
//! * [`reading`]: reading batches
//! * [`space`]: reclaiming space, for housekeeping

mod bodies;
mod log;
mod open;
mod pins;
mod reading;
mod snapshots;
mod space;
mod threads;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::limits;
use bytes::Bytes;
use parking_lot::Mutex;

use crate::entry::EntryId;
use crate::error::JournalFailed;
use crate::read::Reader;
use crate::shared::Shared;
use crate::stats::{RecoveryReport, Stats};

use threads::Threads;

pub use pins::LogPin;
pub use snapshots::PendingSnapshot;

#[derive(Debug)]
pub struct OpenedJournal {
    pub journal: Journal,
    /// The newest snapshot: the machine restores it and then applies the entries of the log.
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
    /// Size of the whole snapshot, including the journal's own part.
    pub bytes: u64,
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

impl Drop for Inner {
    fn drop(&mut self) {
        self.close();
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

impl Journal {
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.inner.shared
    }
}

/// Health.
impl Journal {
    /// Called once when the journal fails for good; immediately if it already has.
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
            // Created before the check, so that a notification in between is not missed.
            let drained = shared.drained.notified();
            let queued = shared.counters.queued_bytes.load(Ordering::Relaxed);
            if queued <= limits::JOURNAL_QUEUED_BYTES_MAX as u64 {
                return;
            }
            drained.await;
        }
    }

    /// Makes appended entries durable and stops the threads. Later appends fail.
    pub fn close(&self) {
        self.inner.close();
    }
}
