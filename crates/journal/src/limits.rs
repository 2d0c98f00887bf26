//! Bounds of this crate: memory, sizes and times. A bound that a user can set has its default here and its setting in
//! the comment. The others keep one bad client from harming the others.

use std::time::Duration;

/// Bytes of recent entries kept in memory for consumers that keep up.
pub(crate) const TAIL_CACHE_BYTES: usize = 32 << 20;
/// Bytes of sidecar indexes of sealed segments kept in memory.
pub(crate) const SIDECAR_CACHE_BYTES: usize = 16 << 20;
/// A longer file is not accepted as a sidecar: 28 bytes for each batch of the largest segment. A row of a shared
/// body takes 16.
pub(crate) const SIDECAR_BYTES_MAX: u64 = 2 << 30;
/// Segments that readers keep open.
pub(crate) const SEGMENTS_OPEN_MAX: usize = 256;
/// Size limit of one read call that covers batches near each other.
pub(crate) const READ_CALL_BYTES_MAX: usize = 4 << 20;
/// A read of more than this goes to a reader thread even if the page cache has it.
pub(crate) const READ_INLINE_BYTES_MAX: usize = 2 << 20;
/// Smallest buffer of reads that is reused.
pub(crate) const READ_BUFFER_KEPT_BYTES_MIN: usize = 64 << 10;
/// Bytes of buffers that a journal keeps for its next reads.
pub(crate) const READ_BUFFERS_KEPT_BYTES_MAX: usize = 16 << 20;
/// How long a received snapshot waits for disk space to be installed, and how often the space is checked. Then the
/// node stops.
pub(crate) const SNAPSHOT_ROOM_WAITED_FOR: Duration = Duration::from_secs(60);
pub(crate) const SNAPSHOT_ROOM_LOOKED_FOR_EVERY: Duration = Duration::from_millis(200);
