//! Batches built by a gateway from single records, by their topic's settings.

use base::PartitionId;
use bytes::{Bytes, BytesMut};
use machine::config::{CompressionType, LimitOverflow, TopicConfig};
use record::{BatchBuilder, BatchHeader, BatchOptions, Compression};

use crate::append::AppendBatch;

/// Returns the options of a batch for the topic.
pub fn batch_options(config: &TopicConfig) -> BatchOptions {
    let compression = match config.compression_type {
        CompressionType::Producer | CompressionType::Uncompressed => Compression::None,
        CompressionType::Gzip => Compression::Gzip,
        CompressionType::Snappy => Compression::Snappy,
        CompressionType::Lz4 => Compression::Lz4,
        CompressionType::Zstd => Compression::Zstd,
    };
    BatchOptions { compression, ..BatchOptions::default() }
}

/// Whether the topic rejects records when it is full: then each record gets its own batch, so that those which fit
/// are accepted.
pub fn refuses_when_full(config: &TopicConfig) -> bool {
    let limited = config.limit_records.is_some() || config.limit_bytes.is_some();
    limited && config.limit_overflow != LimitOverflow::DropOldest
}

impl AppendBatch {
    /// Returns the built batch for a partition. `log_append_time`: its records get the time of the append, which is
    /// that of the newest.
    pub fn made(partition: PartitionId, builder: BatchBuilder, log_append_time: bool) -> Self {
        let mut bytes = BytesMut::from(Bytes::from(builder.finish()));
        let parsed = BatchHeader::parse(&bytes);
        let mut header = parsed.expect("the header of a batch that was just made");
        if log_append_time {
            record::set_log_append_time(&mut bytes, header.max_timestamp);
            header = BatchHeader::parse(&bytes).expect("only its time was set");
        }
        Self::new(partition, header, bytes)
    }
}
