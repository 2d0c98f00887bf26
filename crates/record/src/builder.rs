//! Builds a batch from single records. Records are written in place behind room for the header, so
//! that an uncompressed batch is finished without moving a byte.

use base::limits::{BATCH_BYTES_MAX, BATCH_RECORDS_MAX};

use crate::compression::Compression;
use crate::error::BatchError;
use crate::header::{Attributes, BatchHeader, HEADER_LEN, MAGIC, seal};
use crate::records::Header;
use crate::varint;

/// Fields of a batch besides its records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchOptions {
    pub compression: Compression,
    pub base_offset: u64,
    /// -1: unknown yet, as producers send it.
    pub leader_epoch: i32,
    /// -1: not idempotent; the next two are -1 then as well.
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub base_sequence: i32,
    /// The records belong to the producer's transaction.
    pub transactional: bool,
}

impl Default for BatchOptions {
    fn default() -> Self {
        Self {
            compression: Compression::None,
            base_offset: 0,
            leader_epoch: -1,
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            transactional: false,
        }
    }
}

/// Collects records into one batch.
#[derive(Clone, Debug)]
pub struct BatchBuilder {
    options: BatchOptions,
    /// Room for the header, then the records.
    bytes: Vec<u8>,
    record_count: u32,
    base_timestamp: i64,
    max_timestamp: i64,
}

impl BatchBuilder {
    pub fn new(options: BatchOptions) -> Self {
        Self::with_capacity(options, 0)
    }

    /// Reserves room for `body_bytes` of records.
    pub fn with_capacity(options: BatchOptions, body_bytes: usize) -> Self {
        let mut bytes = Vec::with_capacity(HEADER_LEN + body_bytes);
        bytes.resize(HEADER_LEN, 0);
        Self { options, bytes, record_count: 0, base_timestamp: 0, max_timestamp: i64::MIN }
    }

    /// Appends a record. Fails without a change if the batch would exceed the size or the number of
    /// records allowed for any batch; a topic may allow less, see [`BatchBuilder::len_with`].
    pub fn push(
        &mut self,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[Header<'_>],
    ) -> Result<(), BatchError> {
        if self.record_count == BATCH_RECORDS_MAX {
            return Err(BatchError::TooManyRecords { limit: BATCH_RECORDS_MAX });
        }
        // Lengths are an i32 on the wire: this check makes the casts below safe.
        let (bytes, limit) = (self.len_with(key, value, headers), BATCH_BYTES_MAX as usize);
        if bytes > limit {
            return Err(BatchError::TooLarge { bytes, limit });
        }
        if self.record_count == 0 {
            self.base_timestamp = timestamp;
        }
        self.max_timestamp = self.max_timestamp.max(timestamp);
        let record = RecordParts {
            timestamp_delta: timestamp.wrapping_sub(self.base_timestamp),
            offset_delta: self.record_count as i32,
            key,
            value,
            headers,
        };
        record.write(&mut self.bytes);
        self.record_count += 1;
        Ok(())
    }

    /// As [`BatchBuilder::push`], for a value in slices and encoded headers, as a gateway has them
    /// that receives bodies in pieces.
    pub fn push_sliced(
        &mut self,
        timestamp: i64,
        key: Option<&[u8]>,
        value: &[impl AsRef<[u8]>],
        headers: &EncodedHeaders,
    ) -> Result<(), BatchError> {
        self.push_encoded(timestamp, key, Some(value), headers)
    }

    /// As [`BatchBuilder::push_sliced`], of a record that may have no value.
    pub fn push_encoded(
        &mut self,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[impl AsRef<[u8]>]>,
        headers: &EncodedHeaders,
    ) -> Result<(), BatchError> {
        if self.record_count == BATCH_RECORDS_MAX {
            return Err(BatchError::TooManyRecords { limit: BATCH_RECORDS_MAX });
        }
        let value_bytes = value.unwrap_or_default().iter().map(|slice| slice.as_ref().len()).sum();
        let value_len = if value.is_some() { value_bytes as i32 } else { NO_VALUE };
        let (bytes, limit) =
            (self.len_with_encoded(key, value_bytes, headers), BATCH_BYTES_MAX as usize);
        if bytes > limit {
            return Err(BatchError::TooLarge { bytes, limit });
        }
        if self.record_count == 0 {
            self.base_timestamp = timestamp;
        }
        self.max_timestamp = self.max_timestamp.max(timestamp);
        let timestamp_delta = timestamp.wrapping_sub(self.base_timestamp);
        let offset_delta = self.record_count as i32;
        let length = 1
            + varint::len_i64(timestamp_delta)
            + varint::len_i32(offset_delta)
            + nullable_len(key)
            + varint::len_i32(value_len)
            + value_bytes
            + varint::len_i32(headers.count as i32)
            + headers.bytes.len();
        let out = &mut self.bytes;
        if self.record_count == 0 {
            // Many batches stay with one record, and are kept in memory for a while.
            out.reserve_exact(varint::len_i32(length as i32) + length);
        }
        varint::write_i32(out, length as i32);
        out.push(0);
        varint::write_i64(out, timestamp_delta);
        varint::write_i32(out, offset_delta);
        write_nullable(out, key);
        varint::write_i32(out, value_len);
        for slice in value.unwrap_or_default() {
            out.extend_from_slice(slice.as_ref());
        }
        varint::write_i32(out, headers.count as i32);
        out.extend_from_slice(&headers.bytes);
        self.record_count += 1;
        Ok(())
    }

    /// As [`BatchBuilder::len_with`], for [`BatchBuilder::push_sliced`].
    pub fn len_with_encoded(
        &self,
        key: Option<&[u8]>,
        value_bytes: usize,
        headers: &EncodedHeaders,
    ) -> usize {
        let key = key.map_or(0, <[u8]>::len) + LENGTH_BYTES_MAX;
        self.len()
            + RECORD_OVERHEAD_MAX
            + key
            + LENGTH_BYTES_MAX
            + value_bytes
            + headers.bytes.len()
    }

    pub fn record_count(&self) -> u32 {
        self.record_count
    }

    pub fn is_empty(&self) -> bool {
        self.record_count == 0
    }

    /// Current size of the batch, before compression.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Maximum size of the batch, before compression, with this record added.
    pub fn len_with(
        &self,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[Header<'_>],
    ) -> usize {
        let field = |bytes: Option<&[u8]>| bytes.map_or(0, <[u8]>::len) + LENGTH_BYTES_MAX;
        let headers: usize = headers
            .iter()
            .map(|header| header.key.len() + LENGTH_BYTES_MAX + field(header.value))
            .sum();
        self.len() + RECORD_OVERHEAD_MAX + field(key) + field(value) + headers
    }

    /// The finished batch. Panics without records: a batch has at least one.
    pub fn finish(self) -> Vec<u8> {
        assert!(self.record_count > 0, "a batch has at least one record");
        let options = self.options;
        let mut attributes = Attributes::default().with_compression(options.compression);
        if options.transactional {
            attributes = attributes.with_transactional();
        }
        let header = BatchHeader {
            base_offset: options.base_offset,
            batch_length: 0,
            leader_epoch: options.leader_epoch,
            magic: MAGIC,
            crc: 0,
            attributes,
            last_offset_delta: self.record_count as i32 - 1,
            base_timestamp: self.base_timestamp,
            max_timestamp: self.max_timestamp,
            producer_id: options.producer_id,
            producer_epoch: options.producer_epoch,
            base_sequence: options.base_sequence,
            record_count: self.record_count as i32,
        };
        let mut batch = if options.compression.is_none() {
            self.bytes
        } else {
            let mut packed = vec![0; HEADER_LEN];
            options.compression.compress(&self.bytes[HEADER_LEN..], &mut packed);
            packed
        };
        seal(&mut batch, header);
        batch
    }
}

/// A record's headers, encoded as they are added; reused from record to record, without allocating
/// a list.
#[derive(Clone, Debug, Default)]
pub struct EncodedHeaders {
    count: u32,
    bytes: Vec<u8>,
}

impl EncodedHeaders {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn clear(&mut self) {
        self.count = 0;
        self.bytes.clear();
    }

    pub fn push(&mut self, key: &[u8], value: Option<&[u8]>) {
        write_nullable(&mut self.bytes, Some(key));
        write_nullable(&mut self.bytes, value);
        self.count += 1;
    }

    pub fn len(&self) -> usize {
        self.count as usize
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// The length of an absent value.
const NO_VALUE: i32 = -1;
const LENGTH_BYTES_MAX: usize = 5;
/// Length, attributes, timestamp delta, offset delta, number of headers.
const RECORD_OVERHEAD_MAX: usize = LENGTH_BYTES_MAX + 1 + 10 + LENGTH_BYTES_MAX + LENGTH_BYTES_MAX;

/// A record about to be written.
struct RecordParts<'a> {
    timestamp_delta: i64,
    offset_delta: i32,
    key: Option<&'a [u8]>,
    value: Option<&'a [u8]>,
    headers: &'a [Header<'a>],
}

impl RecordParts<'_> {
    /// Bytes after the record's length.
    fn len(&self) -> usize {
        let headers: usize = self
            .headers
            .iter()
            .map(|header| nullable_len(Some(header.key)) + nullable_len(header.value))
            .sum();
        1 + varint::len_i64(self.timestamp_delta)
            + varint::len_i32(self.offset_delta)
            + nullable_len(self.key)
            + nullable_len(self.value)
            + varint::len_i32(self.headers.len() as i32)
            + headers
    }

    fn write(&self, out: &mut Vec<u8>) {
        varint::write_i32(out, self.len() as i32);
        out.push(0);
        varint::write_i64(out, self.timestamp_delta);
        varint::write_i32(out, self.offset_delta);
        write_nullable(out, self.key);
        write_nullable(out, self.value);
        varint::write_i32(out, self.headers.len() as i32);
        for header in self.headers {
            write_nullable(out, Some(header.key));
            write_nullable(out, header.value);
        }
    }
}

fn nullable_len(bytes: Option<&[u8]>) -> usize {
    bytes.map_or(varint::len_i32(-1), |bytes| varint::len_i32(bytes.len() as i32) + bytes.len())
}

fn write_nullable(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        None => varint::write_i32(out, -1),
        Some(bytes) => {
            varint::write_i32(out, bytes.len() as i32);
            out.extend_from_slice(bytes);
        }
    }
}
