//! Index of the batches of each stream.
//!
//! Memory holds one *run* per stream and segment. Addresses of single batches are in memory only
//! for segments that are still being filled. A full segment's addresses go to its *sidecar* file,
//! which a read there loads as a whole. A backlog therefore costs memory by segments, not by
//! batches, and an idle stream costs one run.
//!
//! * [`table`]: the state, pure: runs, live bytes per segment
//! * [`runs`]: a stream's runs
//! * [`addresses`]: a segment's addresses in memory
//! * [`batches`]: one stream's batches in one segment
//! * [`snapshot`]: the table as bytes; [`fields`]: reads untrusted numbers
//! * [`sidecar`], [`cache`]: a sealed segment's addresses, and the cached ones
//! * [`blocks`]: format of a rewritten segment
//! * [`live_offsets`]: live offsets of each stream, for another replica
//! * [`files`]: names and handles
//! * [`open`]: matches the table with the existing files
//! * [`seal`]: writes and rebuilds sidecars
//! * [`lookup`]: queries of readers and retention
//!
//! One lock guards the table; no file is read or written under it.

use std::fmt::Debug;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};

use crate::address::Address;
use crate::buffers::Buffers;
use crate::damage::{BatchCheck, Damage, DamagedSegments, is_loss};
use crate::error::ReadError;
use world::DiskFile;

mod addresses;
mod batches;
mod blocks;
mod cache;
pub(crate) mod fields;
pub(crate) mod files;
mod live_offsets;
mod lookup;
mod open;
mod runs;
mod seal;
mod sidecar;
mod snapshot;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use batches::{Batches, SegmentBatches};
pub(crate) use blocks::{BlockWriter, check_block};
pub(crate) use files::{FileKind, Files};
pub(crate) use live_offsets::LiveOffsets;
pub(crate) use lookup::{PinnedSidecar, Plan, SegmentRead};
pub(crate) use open::Setup;
pub(crate) use seal::{LoadError, sidecar_of};
pub(crate) use sidecar::{DistinctBytes, Sidecar};
pub(crate) use table::{RunTable, SHIPPED_GENERATION, ShippedSegment};

use cache::SidecarCache;
use seal::SealQueue;

/// The index's view of the log that wrote the segments.
pub(crate) trait LogBodies: Send + Sync + Debug {
    /// Calls `found` with stream and address of each body in the frames of `file`, in order.
    fn scan(
        &self,
        segment: u32,
        file: &dyn DiskFile,
        found: &mut dyn FnMut(u64, Address),
    ) -> io::Result<()>;

    /// A body's bytes if they are in memory. If so, all later bodies of the log are in memory too.
    fn recent(&self, address: &Address) -> Option<Bytes>;
}

#[derive(Debug)]
pub(crate) struct Index {
    table: RwLock<RunTable>,
    files: Files,
    cache: SidecarCache,
    log: Arc<dyn LogBodies>,
    sealing: SealQueue,
    /// The log claims segments from this one on: recovery would begin to read there.
    claimed_from: AtomicU32,
    /// Read buffers.
    buffers: Buffers,
    /// Serializes passes of reclaim and rewrites.
    reclaiming: Mutex<()>,
    check: BatchCheck,
    damaged: DamagedSegments,
}

/// The run table as of one log index, for a snapshot.
#[derive(Debug)]
pub(crate) struct Capture {
    pub(crate) table: RunTable,
    /// Segments without a live byte in it: for [`Index::snapshot_written`].
    pub(crate) dead: Vec<u32>,
}

/// Reports from the journal, in log order.
impl Index {
    /// The machine accepted the body at `address`, of entry `log_index`: it is the stream's next.
    pub(crate) fn accept(&self, log_index: u64, stream: u64, address: Address) {
        let due = self.table.write().accept(log_index, stream, address);
        self.sealing.wake_if(due);
    }

    /// The machine refused the body. Also used for bodies of entries that the log truncated.
    pub(crate) fn refuse(&self, log_index: u64, stream: u64, address: Address) {
        let due = self.table.write().refuse(log_index, stream, address);
        self.sealing.wake_if(due);
    }

    /// Every body of entries up to and including `log_index` was accepted or refused. Accepting a
    /// body implies it for earlier entries; this call covers entries without bodies, and idle
    /// times.
    pub(crate) fn applied(&self, log_index: u64) {
        let due = self.table.write().decided(log_index + 1);
        self.sealing.wake_if(due);
    }

    /// The log no longer writes to `segment`: its last entry is `last_index`, its file has
    /// `file_bytes`. Idempotent, so that recovery may repeat it.
    pub(crate) fn full(&self, segment: u32, last_index: u64, file_bytes: u64) {
        let due = self.table.write().full(segment, last_index, file_bytes);
        self.sealing.wake_if(due);
    }

    /// Everything of `stream` below `start_offset` is dead.
    pub(crate) fn trim(&self, stream: u64, start_offset: u64) {
        self.table.write().trim(stream, start_offset);
    }

    /// The offsets `from..to` of `stream` are dead, and so are batches without another live offset.
    pub(crate) fn punch(&self, stream: u64, from: u64, to: u64) {
        self.table.write().punch(stream, from, to);
    }

    /// Everything in these streams is dead.
    pub(crate) fn remove(&self, streams: Range<u64>) {
        self.table.write().remove(streams);
    }

    /// The table as it stands, to be called between two entries. Copies little: see [`RunTable`].
    pub(crate) fn capture(&self) -> Capture {
        let table = self.table.read();
        Capture { table: table.clone(), dead: table.dead() }
    }

    /// The snapshot with this capture is durable, and recovery from it would begin to read in
    /// segment `claimed_from`. The segments `dead` in it may be deleted, and earlier ones
    /// rewritten.
    pub(crate) fn snapshot_written(&self, dead: &[u32], claimed_from: u32) {
        self.table.write().dead_in_snapshot(dead);
        self.claimed_from.store(claimed_from, Ordering::Release);
    }

    /// Replaces the state by another replica's. `table` is that state, durable in the snapshot from
    /// which recovery would begin to read in segment `claimed_from`.
    pub(crate) fn replace(&self, table: RunTable, claimed_from: u32) {
        let dead = table.dead();
        *self.table.write() = table;
        self.snapshot_written(&dead, claimed_from);
        self.sealing.wake_if(true);
    }

    pub(crate) fn claimed_from(&self) -> u32 {
        self.claimed_from.load(Ordering::Acquire)
    }
}

impl Index {
    pub(crate) fn table(&self) -> &RwLock<RunTable> {
        &self.table
    }

    pub(crate) fn files(&self) -> &Files {
        &self.files
    }

    pub(crate) fn buffers(&self) -> &Buffers {
        &self.buffers
    }

    pub(crate) fn log(&self) -> &dyn LogBodies {
        &*self.log
    }

    pub(crate) fn reclaiming(&self) -> &Mutex<()> {
        &self.reclaiming
    }

    pub(crate) fn damaged(&self) -> &DamagedSegments {
        &self.damaged
    }

    /// Whether these bytes are the batch that was written there.
    pub(crate) fn is_sound(&self, address: &Address, batch: &[u8]) -> bool {
        // The bytes of a shared body begin with the offset of one of its streams only.
        (self.check.0)(batch, (!address.shared).then_some(address.base_offset))
    }

    /// Records damage in the segment, unless a later generation has replaced it.
    pub(crate) fn is_damaged(
        &self,
        segment: u32,
        generation: u32,
        position: u64,
        what: &'static str,
    ) -> LoadError {
        if !self.is_current(segment, generation) {
            return LoadError::Gone;
        }
        let file = self.files.path(FileKind::Segment, segment, generation);
        let damage =
            Damage { segment, generation, file: file.clone(), position, what: what.to_owned() };
        self.damaged.note(damage);
        LoadError::Read(ReadError::Damaged { file, position, what })
    }

    /// Records a failed read of the segment if the error is permanent.
    pub(crate) fn is_unreadable(
        &self,
        segment: u32,
        generation: u32,
        position: u64,
        error: io::Error,
    ) -> LoadError {
        if !self.is_current(segment, generation) {
            return LoadError::Gone;
        }
        let file = self.files.path(FileKind::Segment, segment, generation);
        if is_loss(&error) {
            let what = error.to_string();
            self.damaged.note(Damage { segment, generation, file: file.clone(), position, what });
        }
        LoadError::Read(ReadError::Io { file, position, source: Arc::new(error) })
    }

    /// The file of the former generation is about to be removed, and its sidecar is no longer
    /// needed.
    pub(crate) fn forget_sidecar(&self, segment: u32, generation: u32) {
        self.cache.remove(segment, generation);
    }

    pub(crate) fn remember_sidecar(&self, segment: u32, generation: u32, sidecar: Arc<Sidecar>) {
        self.cache.insert(segment, generation, sidecar);
    }
}
