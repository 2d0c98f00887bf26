//! Cost of checking a produced batch, and the limit for the thread that serves the socket.

use crate::limits::REPACKED_FACTOR_MAX;
use base::limits::PRODUCED_UNPACKED_BYTES_MAX;
use broker::config::{CompressionType, TopicConfig};
use record::{BatchHeader, Compression};

/// Budget for checks before they move to another thread.
pub(crate) enum Effort {
    /// On the thread that serves the socket: some 100 us at most.
    Inline {
        bytes: usize,
        records: usize,
        packed: usize,
    },
    Unbounded,
}

/// Switching to another thread and back takes 20 to 40 us. In that time a thread walks 20,000 records,
/// checksums 1 MB, decompresses 32 KB, or compresses 4 KB.
const INLINE_BYTES: usize = 1 << 20;
const INLINE_RECORDS: usize = 10_000;
const INLINE_PACKED_BATCHES: usize = 4;
const INLINE_PACKED_BYTES: usize = 8 << 10;
const INLINE_UNPACKED_BYTES: usize = 32 << 10;
const INLINE_REPACKED_BYTES: usize = 4 << 10;
/// Above this level, Zstandard's setup takes longer than switching threads.
const INLINE_LEVEL_MAX: i32 = 6;

impl Effort {
    pub(crate) fn inline() -> Self {
        Self::Inline { bytes: INLINE_BYTES, records: INLINE_RECORDS, packed: INLINE_PACKED_BATCHES }
    }

    /// Limit for decompressing this batch here; `None` if another thread must check it.
    pub(crate) fn unpacked_max(&mut self, batch: &[u8], config: &TopicConfig) -> Option<usize> {
        let Self::Inline { bytes, records, packed } = self else {
            return Some(unpacked_max(config));
        };
        // An unreadable batch is rejected at no cost.
        let Ok(header) = BatchHeader::parse(batch) else { return Some(INLINE_UNPACKED_BYTES) };
        let compression = header.attributes.compression();
        let repacked = codec(config).filter(|(codec, _)| *codec != compression);
        let count = usize::try_from(header.record_count).unwrap_or(0);
        if let Some((_, level)) = repacked
            && (!compression.is_none()
                || batch.len() > INLINE_REPACKED_BYTES
                || level.is_some_and(|level| level > INLINE_LEVEL_MAX))
        {
            return None;
        }
        *bytes = bytes.checked_sub(batch.len())?;
        *records = records.checked_sub(count)?;
        if !compression.is_none() {
            *packed = packed.checked_sub(1)?;
            if batch.len() > INLINE_PACKED_BYTES {
                return None;
            }
        }
        Some(INLINE_UNPACKED_BYTES)
    }
}

/// Limit of a batch's decompressed size in this topic.
fn unpacked_max(config: &TopicConfig) -> usize {
    if codec(config).is_none() && config.dedup_window_ms == 0 {
        return PRODUCED_UNPACKED_BYTES_MAX;
    }
    // The batch will be recompressed, which takes a hundred times longer than decompressing it, or its record
    // ids will be read.
    let max = REPACKED_FACTOR_MAX * config.max_message_bytes as usize;
    max.clamp(PRODUCED_UNPACKED_BYTES_MAX / 16, PRODUCED_UNPACKED_BYTES_MAX)
}

/// A topic's compression, with its level if it has one; `None` keeps that of producers.
pub(crate) fn codec(config: &TopicConfig) -> Option<(Compression, Option<i32>)> {
    match config.compression_type {
        CompressionType::Producer => None,
        CompressionType::Uncompressed => Some((Compression::None, None)),
        CompressionType::Gzip => Some((Compression::Gzip, Some(config.compression_gzip_level))),
        CompressionType::Snappy => Some((Compression::Snappy, None)),
        CompressionType::Lz4 => Some((Compression::Lz4, None)),
        CompressionType::Zstd => Some((Compression::Zstd, Some(config.compression_zstd_level))),
    }
}
