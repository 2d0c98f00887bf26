//! Options of a journal.

use base::limits;

use crate::damage::BatchCheck;
use crate::error::OpenError;

/// Smaller segments would be mostly overhead. Tests use these; `limits` has the operator's minimum.
const SEGMENT_BYTES_MIN: u64 = 64 << 10;
const FRAME_BYTES_MIN: usize = 4 << 10;

#[derive(Clone, Debug)]
pub struct Options {
    /// Size of a segment's file; a single larger entry makes one larger segment.
    pub segment_bytes: u64,
    /// Byte limit of one group commit; a single larger entry makes one larger frame.
    pub frame_bytes_max: usize,
    /// Recent entries kept in memory for consumers that keep up.
    pub tail_cache_bytes: usize,
    /// Address tables of sealed segments kept in memory.
    pub sidecar_cache_bytes: usize,
    /// Free bytes of the file system below which `room` is `Full`.
    pub disk_reserve_bytes: u64,
    /// A snapshot retains the log that it covers until the log is purged, even across a restart,
    /// which reads it again: other nodes may lack it.
    pub keep_log: bool,
    /// Check of bytes read from a segment. Bytes that fail it are damage, and are not served.
    pub check: BatchCheck,
    /// Another node has the same data. A damaged segment that the log no longer writes to is
    /// repaired from there, and does not prevent opening the journal.
    pub repairable: bool,
    /// Threads for reads that neither the tail cache nor the page cache serves.
    pub readers: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            segment_bytes: limits::SEGMENT_BYTES_DEFAULT,
            frame_bytes_max: limits::FRAME_BYTES_MAX,
            tail_cache_bytes: crate::limits::TAIL_CACHE_BYTES,
            sidecar_cache_bytes: crate::limits::SIDECAR_CACHE_BYTES,
            disk_reserve_bytes: limits::DISK_RESERVE_BYTES_DEFAULT,
            keep_log: false,
            check: BatchCheck(|_, _| true),
            repairable: false,
            readers: 4,
        }
    }
}

impl Options {
    pub(crate) fn check(&self) -> Result<(), OpenError> {
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
