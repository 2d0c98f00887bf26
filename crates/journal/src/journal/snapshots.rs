//! Snapshots of the machine: captured at once, encoded and written later.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::Journal;
use crate::entry::EntryId;
use crate::index::Capture;
use crate::log::LogPosition;
use crate::shared::Shared;
use crate::snapshot::SnapshotFile;

/// A snapshot with fixed content, neither encoded nor on disk yet.
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
    /// Encodes it, with the machine's state of the same moment, and writes it durably. Blocking;
    /// run it on a thread of its own. Afterwards the log no longer claims older segments. Nothing
    /// is written if a later snapshot is already durable. Returns the snapshot's size.
    pub fn write(self, machine: Bytes) -> io::Result<u64> {
        let Self { shared, id, scan_from, meta, capture: Capture { table, dead }, .. } = self;
        shared.check().map_err(io::Error::other)?;
        let encoded = Bytes::from(table.encode());
        // Dropped before the write, to free the chunks that only this copy still holds.
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

impl Journal {
    /// Called in apply order while nothing else is applied: captures the index as of `id` at once
    /// and returns the work of encoding and writing it. Entries up to `id` must be durable when it
    /// is written. The capture is shared with the index: it takes little time, and memory only for
    /// later changes.
    pub fn begin_snapshot(&self, id: EntryId, meta: Bytes) -> PendingSnapshot {
        let shared = self.inner.shared.clone();
        shared.index.applied(id.index);
        let bytes_written = shared.counters.bytes.load(Ordering::Relaxed);
        let refusing = shared.refusing.lock();
        let log = shared.log.read();
        let scan_from = match shared.options.keep_log || log.is_pinned() {
            true => log.scan_from_first(id.index),
            false => log.scan_from(id.index),
        };
        drop(log);
        let capture = shared.index.capture();
        drop(refusing);
        PendingSnapshot { shared, id, scan_from, meta, capture, bytes_written }
    }

    /// Whether another snapshot of the same entry `id` would claim less of the log, which was
    /// purged since.
    pub fn would_claim_less(&self, id: EntryId) -> bool {
        let shared = &self.inner.shared;
        shared.options.keep_log
            && shared.log.read().scan_from_first(id.index).segment > shared.index.claimed_from()
    }

    /// Bytes written to the log since the newest durable snapshot.
    pub fn bytes_since_snapshot(&self) -> u64 {
        let shared = &self.inner.shared;
        let bytes = shared.counters.bytes.load(Ordering::Relaxed);
        bytes.wrapping_sub(shared.bytes_at_snapshot.load(Ordering::Relaxed))
    }

    /// Size of the newest snapshot; 0 before the first.
    pub fn snapshot_bytes(&self) -> u64 {
        self.inner.shared.snapshot_bytes.load(Ordering::Relaxed)
    }
}
