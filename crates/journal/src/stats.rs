//! Counters and reports of the journal. Counters are atomics, so that reading them takes no lock.

use std::fmt;
use std::time::Duration;

/// Buckets of sync durations, by upper bound.
pub const SYNC_BUCKETS_MICROS: [u64; 12] =
    [100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 100_000, 500_000, 2_500_000, 10_000_000];

/// Totals since the journal was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    pub frames: u64,
    pub entries: u64,
    pub syncs: u64,
    /// Bytes written, frames with their padding.
    pub bytes: u64,
    pub last_sync_micros: u64,
    pub total_sync_micros: u64,
    /// Syncs by duration: at most each of [`SYNC_BUCKETS_MICROS`] and more than the previous one;
    /// last, the rest.
    pub sync_buckets: [u64; SYNC_BUCKETS_MICROS.len() + 1],
    /// Time since the write or sync in progress began.
    pub busy_for: Option<Duration>,
    /// Bytes accepted and not yet durable.
    pub queued_bytes: usize,
}

/// Whether there is room for more records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiskRoom {
    Ok,
    /// Free bytes fell below the reserve, or the next segment could not be allocated. Small
    /// commands still succeed; records are to be refused until it is `Ok` again, which happens by
    /// itself.
    Full {
        free_bytes: u64,
        reserve_bytes: u64,
    },
}

/// Public description of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentInfo {
    pub id: u32,
    /// How often it was rewritten, from 1.
    pub generation: u32,
    /// No more frames are written to it.
    pub sealed: bool,
    pub file_bytes: u64,
    /// Bytes of live bodies in it.
    pub live_bytes: u64,
    /// The next reclaim removes it.
    pub droppable: bool,
}

/// Result of one pass of reclaim.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReclaimReport {
    pub removed: u32,
    pub rewritten: u32,
    pub bytes: u64,
    /// Dead segments waiting for the next snapshot: without one they stay.
    pub waiting: u32,
    /// Disk space of those segments.
    pub waiting_bytes: u64,
}

/// Ages of a stream's batches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Age {
    /// The offset of the first batch that is not too old, or the end; `None` if no batch precedes
    /// it.
    pub old_to: Option<u64>,
    /// That batch's largest timestamp: no other batch becomes too old before it.
    pub young_ms: Option<i64>,
}

/// Result of opening a journal, displayed as one line.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RecoveryReport {
    pub segments: usize,
    pub stored_bytes: u64,
    /// Log index of the snapshot that recovery started from.
    pub snapshot: Option<u64>,
    /// Frames read after the snapshot.
    pub frames: u64,
    pub entries: u64,
    pub last_index: Option<u64>,
    /// Position and length of a frame that a crash cut short; it was never acknowledged.
    pub torn_tail: Option<TornTail>,
    /// Part of `took`: reading the newest snapshot, with its table of batches.
    pub snapshot_took: Duration,
    /// Part of `took`: reading the log from there on.
    pub log_took: Duration,
    pub took: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TornTail {
    pub segment: u32,
    pub position: u64,
    pub bytes: u64,
}

impl fmt::Display for RecoveryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "journal: {} segments, {} MB", self.segments, self.stored_bytes >> 20)?;
        match self.snapshot {
            Some(index) => write!(f, ", snapshot at {index}")?,
            None => write!(f, ", no snapshot")?,
        }
        write!(f, ", {} entries in {} frames read", self.entries, self.frames)?;
        match self.last_index {
            Some(index) => write!(f, " up to {index}")?,
            None => write!(f, ", log empty")?,
        }
        if let Some(torn) = self.torn_tail {
            let TornTail { segment, position, bytes } = torn;
            write!(f, ", torn tail of {bytes} bytes cut at {segment}:{position}")?;
        }
        let [snapshot, log, all] =
            [self.snapshot_took, self.log_took, self.took].map(|took| took.as_millis());
        write!(f, ", {all} ms (snapshot {snapshot}, log {log})")
    }
}
