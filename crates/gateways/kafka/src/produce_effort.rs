//! How much work the checks of a produced batch are, and which of it is too much for the thread that serves the socket.

use base::limits::{PRODUCED_UNPACKED_BYTES_MAX, REPACKED_FACTOR_MAX};
use broker::config::{CompressionType, TopicConfig};
use record::{BatchHeader, Compression};

/// What checking may cost before it goes to another thread.
pub(crate) enum Effort {
    /// On the thread that serves the socket: what takes some 100 us at most.
    Inline {
        bytes: usize,
        records: usize,
        packed: usize,
    },
    Unbounded,
}

/// The hop to another thread and back takes 20 to 40 us. That is what walking 20,000 records takes,
/// the checksum of 1 MB, unpacking 32 KB, or packing 4 KB.
const INLINE_BYTES: usize = 1 << 20;
const INLINE_RECORDS: usize = 10_000;
const INLINE_PACKED_BATCHES: usize = 4;
const INLINE_PACKED_BYTES: usize = 8 << 10;
const INLINE_UNPACKED_BYTES: usize = 32 << 10;
const INLINE_REPACKED_BYTES: usize = 4 << 10;
/// Beyond this level Zstandard takes longer to begin than the hop.
const INLINE_LEVEL_MAX: i32 = 6;

impl Effort {
    pub(crate) fn inline() -> Self {
        Self::Inline { bytes: INLINE_BYTES, records: INLINE_RECORDS, packed: INLINE_PACKED_BATCHES }
    }

    /// How far this batch may be unpacked here; `None` if it is to be checked elsewhere.
    pub(crate) fn unpacked_max(&mut self, batch: &[u8], config: &TopicConfig) -> Option<usize> {
        let Self::Inline { bytes, records, packed } = self else {
            return Some(unpacked_max(config));
        };
        // What cannot be read is refused before it costs anything.
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

/// What a batch may unfold to in this topic.
fn unpacked_max(config: &TopicConfig) -> usize {
    if codec(config).is_none() && config.dedup_window_ms == 0 {
        return PRODUCED_UNPACKED_BYTES_MAX;
    }
    // It is packed again, which takes a hundred times longer than unpacking it; or it is where some
    // of its records were appended before.
    let max = REPACKED_FACTOR_MAX * config.max_message_bytes as usize;
    max.clamp(PRODUCED_UNPACKED_BYTES_MAX / 16, PRODUCED_UNPACKED_BYTES_MAX)
}

/// What a topic compresses with, and at which level if it has one; `None` leaves it to producers.
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
