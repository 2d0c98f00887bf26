//! Kafka's RecordBatch v2: the one format for records on the wire, in the journal and in memory.
//!
//! A batch stays bytes: a received batch is validated in place, gets its offset written into its
//! first 16 bytes, is stored and is sent again without ever becoming objects. Everything here is a
//! pure function over such bytes; there is no I/O and no clock.
//!
//! * [`header`]: the 61 bytes that open every batch; splitting bytes into batches
//! * [`validate`]: validation of a producer's batches
//! * [`refused`]: records of a valid batch that a topic refuses
//! * [`records`]: reading the records of a batch without copying them
//! * [`shared`]: a batch whose records are shared one by one
//! * [`reserved`]: the headers that the broker reads and writes
//! * [`builder`]: building a batch from single records
//! * [`rewrite`]: changes of an existing batch by a broker
//! * [`search`]: finding a record by its timestamp
//! * [`compression`]: the four codecs, bounded
//! * [`partitioner`]: the partition of a key
//! * [`marker`]: control batches that end transactions
//! * [`varint`]: zigzag integers, as records use them
//!
//! Source: <https://kafka.apache.org/documentation/#recordbatch>, KIP-98 (the format) and KIP-534
//! (the delete horizon).

pub mod builder;
pub mod compression;
pub mod error;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod header;
pub mod marker;
pub mod partitioner;
pub mod records;
pub mod refused;
pub mod reserved;
pub mod rewrite;
pub mod search;
pub mod shared;
pub mod validate;
pub mod varint;

pub use builder::{BatchBuilder, BatchOptions, EncodedHeaders};
pub use compression::{Compression, CompressionError, UnknownCompressionName};
pub use error::{BatchError, RecordFault};
pub use header::{
    Attributes, BatchHeader, HEADER_LEN, MAGIC, Split, TimestampType, split, split_at,
    verify_checksum,
};
pub use partitioner::partition_of_key;
pub use records::{Batch, Header, HeadersView, RecordView, Records, value_bytes};
pub use refused::{RefusalReason, RefusedRecord, RefusedRecords};
pub use reserved::ReservedHeaders;
pub use rewrite::{
    CompactionResult, assign, empty, recompress, recompress_at, retain, retain_or_empty,
    set_log_append_time, set_max_timestamp,
};
pub use search::{first_with_max_timestamp, offset_at_or_after};
pub use shared::{SharedBatch, SharedRecord};
pub use validate::{ValidBatch, ValidateLimits, validate};
