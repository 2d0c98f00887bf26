//! Reads the records of a batch. A record is a view into the batch's bytes, or into the
//! decompressed body; reading never copies a key or a value.
//!
//! A record: length, attributes (1 byte, unused), timestamp delta, offset delta, key, value,
//! headers; all integers are zigzag varints, and a length of -1 means null.

use bytes::Bytes;

use crate::error::{BatchError, RecordFault};
use crate::header::{BatchHeader, HEADER_LEN, TimestampType, parse_exact_at};
use crate::varint;

/// A readable batch: its header and its body, decompressed if necessary.
#[derive(Clone, Debug)]
pub struct Batch<'a> {
    header: BatchHeader,
    body: Body<'a>,
}

#[derive(Clone, Debug)]
enum Body<'a> {
    Borrowed(&'a [u8]),
    Shared(Bytes),
}

impl Batch<'static> {
    /// As [`Batch::decode`], for shared bytes: results of [`Batch::share`] then outlive the batch
    /// without a copy.
    pub fn decode_shared(batch: &Bytes) -> Result<Self, BatchError> {
        Self::decode_shared_at(batch, None)
    }

    /// The same, with this base offset instead of the one in the bytes.
    pub fn decode_shared_at(batch: &Bytes, base_offset: Option<u64>) -> Result<Self, BatchError> {
        let header = parse_exact_at(batch, base_offset)?;
        let body = match unpack(&header, &batch[HEADER_LEN..])? {
            Some(unpacked) => Bytes::from(unpacked),
            None => batch.slice(HEADER_LEN..),
        };
        Ok(Self { header, body: Body::Shared(body) })
    }
}

impl<'a> Batch<'a> {
    /// Decodes exactly one batch. The checksum is not verified: stored batches were validated on
    /// receipt, and the journal's frames have their own.
    pub fn decode(batch: &'a [u8]) -> Result<Self, BatchError> {
        Self::decode_at(batch, None)
    }

    /// The same, with this base offset instead of the one in the bytes.
    pub fn decode_at(batch: &'a [u8], base_offset: Option<u64>) -> Result<Self, BatchError> {
        let header = parse_exact_at(batch, base_offset)?;
        let body = &batch[HEADER_LEN..];
        let body = match unpack(&header, body)? {
            Some(unpacked) => Body::Shared(Bytes::from(unpacked)),
            None => Body::Borrowed(body),
        };
        Ok(Self { header, body })
    }

    pub fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// The records' bytes, uncompressed.
    pub fn body(&self) -> &[u8] {
        match &self.body {
            Body::Borrowed(body) => body,
            Body::Shared(body) => body,
        }
    }

    pub fn records(&self) -> Records<'_> {
        Records::new(&self.header, self.body())
    }

    /// A key, a value or a header of this batch as bytes that outlive it: without a copy unless the
    /// batch was decoded from borrowed uncompressed bytes. Panics if `part` belongs to another
    /// batch.
    pub fn share(&self, part: &[u8]) -> Bytes {
        match &self.body {
            Body::Borrowed(_) => Bytes::copy_from_slice(part),
            Body::Shared(body) => body.slice_ref(part),
        }
    }
}

/// The decompressed body of a batch; `None` if it is not compressed.
pub(crate) fn unpack(header: &BatchHeader, body: &[u8]) -> Result<Option<Vec<u8>>, BatchError> {
    unpack_bounded(header, body, base::limits::BATCH_DECOMPRESSED_BYTES_MAX)
}

pub(crate) fn unpack_bounded(
    header: &BatchHeader,
    body: &[u8],
    bytes_max: usize,
) -> Result<Option<Vec<u8>>, BatchError> {
    let compression = header.attributes.compression();
    if compression.is_none() {
        return Ok(None);
    }
    compression
        .decompress(body, bytes_max)
        .map(Some)
        .map_err(|error| BatchError::Compression { compression, error })
}

/// One record, in place.
#[derive(Clone, Copy, Debug)]
pub struct RecordView<'a> {
    pub offset: u64,
    /// Milliseconds since the epoch, or -1.
    pub timestamp: i64,
    pub key: Option<&'a [u8]>,
    /// `None` is a tombstone in a compacted topic.
    pub value: Option<&'a [u8]>,
    pub headers: HeadersView<'a>,
    pub(crate) offset_delta: i32,
    /// The whole record with its length in front.
    pub(crate) encoded: &'a [u8],
}

impl<'a> RecordView<'a> {
    /// Encoded length of the record, uncompressed.
    pub fn encoded_len(&self) -> usize {
        self.encoded.len()
    }

    /// The encoded record: its attributes, its timestamp delta, and the rest.
    pub(crate) fn split_at_timestamp(&self) -> (u8, i64, &'a [u8]) {
        let mut rest = self.encoded;
        let parts = varint::read_i32(&mut rest).and_then(|_length| {
            let (&attributes, mut rest) = rest.split_first()?;
            let timestamp_delta = varint::read_i64(&mut rest)?;
            Some((attributes, timestamp_delta, rest))
        });
        parts.expect("a record was read before it became a view")
    }
}

/// A record's header. Kafka specifies UTF-8 for the key, but no broker checks it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header<'a> {
    pub key: &'a [u8],
    pub value: Option<&'a [u8]>,
}

/// The headers of a record, in order; keys may repeat.
#[derive(Clone, Copy, Debug, Default)]
pub struct HeadersView<'a> {
    count: u32,
    /// Validated once when its record was read, so that iteration cannot fail.
    encoded: &'a [u8],
}

impl<'a> HeadersView<'a> {
    pub const fn len(&self) -> usize {
        self.count as usize
    }

    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn iter(&self) -> impl Iterator<Item = Header<'a>> + use<'a> {
        let mut rest = self.encoded;
        (0..self.count).map(move |_| {
            read_header(&mut rest).expect("headers were walked when their record was read")
        })
    }

    /// The value of the last header called `key`, which takes precedence.
    pub fn last(&self, key: &[u8]) -> Option<Option<&'a [u8]>> {
        self.iter().filter(|header| header.key == key).last().map(|header| header.value)
    }
}

/// The records of a batch, in order. Iteration ends after the first error.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    rest: &'a [u8],
    index: u32,
    count: u32,
    base_offset: u64,
    /// The minimum offset delta of the next record, and the maximum of all. A compacted batch has
    /// gaps between them.
    offset_delta_min: i64,
    offset_delta_max: i32,
    base_timestamp: i64,
    log_append_time: Option<i64>,
}

impl<'a> Records<'a> {
    /// `body` is uncompressed; `header` may be that of the compressed batch.
    pub fn new(header: &BatchHeader, body: &'a [u8]) -> Self {
        let log_append_time = match header.attributes.timestamp_type() {
            TimestampType::Create => None,
            TimestampType::LogAppend => Some(header.max_timestamp),
        };
        Self {
            rest: body,
            index: 0,
            count: header.record_count as u32,
            base_offset: header.base_offset,
            offset_delta_min: 0,
            offset_delta_max: header.last_offset_delta,
            base_timestamp: header.base_timestamp,
            log_append_time,
        }
    }

    /// Continues with the record of this number, which begins at `at`.
    pub(crate) fn skip_to(mut self, index: u32, at: usize) -> Self {
        self.rest = &self.rest[at..];
        self.index = index;
        self
    }

    /// The record at the start of `body`, whatever its place among the others.
    pub(crate) fn at(header: &BatchHeader, body: &'a [u8]) -> Result<RecordView<'a>, RecordFault> {
        Self::new(header, body).read()
    }

    #[inline]
    fn read(&mut self) -> Result<RecordView<'a>, RecordFault> {
        let start = self.rest;
        let length = read_length(&mut self.rest)?;
        let mut fields = take(&mut self.rest, length)?;
        let encoded = &start[..start.len() - self.rest.len()];

        let _attributes = take(&mut fields, 1)?;
        let timestamp_delta = varint::read_i64(&mut fields).ok_or(RecordFault::Varint)?;
        let offset_delta = varint::read_i32(&mut fields).ok_or(RecordFault::Varint)?;
        let key = read_nullable(&mut fields)?;
        let value = read_nullable(&mut fields)?;
        let headers = read_headers(&mut fields)?;
        if !fields.is_empty() {
            let used = length - fields.len();
            return Err(RecordFault::LengthMismatch { declared: length, used });
        }

        let (min, max) = (self.offset_delta_min, self.offset_delta_max);
        if i64::from(offset_delta) < min || offset_delta > max {
            return Err(RecordFault::OffsetDeltaOutOfRange { found: offset_delta, min, max });
        }
        self.offset_delta_min = i64::from(offset_delta) + 1;
        Ok(RecordView {
            offset: self.base_offset + offset_delta as u64,
            // Wraps as in Java, so that every timestamp has a delta to every base.
            timestamp: self
                .log_append_time
                .unwrap_or_else(|| self.base_timestamp.wrapping_add(timestamp_delta)),
            key,
            value,
            headers,
            offset_delta,
            encoded,
        })
    }

    fn stop(&mut self) {
        self.rest = &[];
        self.index = self.count;
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<RecordView<'a>, BatchError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.index == self.count {
            if self.rest.is_empty() {
                return None;
            }
            let bytes = self.rest.len();
            self.stop();
            return Some(Err(BatchError::TrailingBytes { bytes }));
        }
        let index = self.index;
        match self.read() {
            Ok(record) => {
                self.index += 1;
                Some(Ok(record))
            }
            Err(fault) => {
                self.stop();
                Some(Err(BatchError::Record { index, fault }))
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        // The header's count is untrusted: no memory may be reserved for it.
        (0, Some((self.count - self.index) as usize + 1))
    }
}

impl std::iter::FusedIterator for Records<'_> {}

#[inline]
fn take<'a>(bytes: &mut &'a [u8], len: usize) -> Result<&'a [u8], RecordFault> {
    let (taken, rest) = bytes.split_at_checked(len).ok_or(RecordFault::Truncated)?;
    *bytes = rest;
    Ok(taken)
}

#[inline]
fn read_length(bytes: &mut &[u8]) -> Result<usize, RecordFault> {
    if bytes.is_empty() {
        return Err(RecordFault::Truncated);
    }
    let length = varint::read_i32(bytes).ok_or(RecordFault::Varint)?;
    usize::try_from(length).map_err(|_| RecordFault::ImpossibleLength(length))
}

#[inline]
fn read_nullable<'a>(bytes: &mut &'a [u8]) -> Result<Option<&'a [u8]>, RecordFault> {
    if bytes.first() == Some(&NULL) {
        *bytes = &bytes[1..];
        return Ok(None);
    }
    let length = read_length(bytes)?;
    take(bytes, length).map(Some)
}

/// The length -1 as a varint.
const NULL: u8 = 1;

#[inline]
fn read_headers<'a>(bytes: &mut &'a [u8]) -> Result<HeadersView<'a>, RecordFault> {
    let count = read_length(bytes)?;
    let start = *bytes;
    // Each header takes at least two bytes, so a false count ends with the bytes.
    for _ in 0..count {
        read_header(bytes)?;
    }
    let encoded = &start[..start.len() - bytes.len()];
    Ok(HeadersView { count: count as u32, encoded })
}

fn read_header<'a>(bytes: &mut &'a [u8]) -> Result<Header<'a>, RecordFault> {
    let length = read_length(bytes)?;
    let key = take(bytes, length)?;
    let value = read_nullable(bytes)?;
    Ok(Header { key, value })
}
/// Bytes of the values of all records of a batch. Skips through the records without decompression:
/// for a compressed batch it is the size of its compressed records.
pub fn value_bytes(batch: &[u8]) -> u64 {
    let Ok(header) = BatchHeader::parse(batch) else { return 0 };
    let records = batch.get(HEADER_LEN..).unwrap_or_default();
    if header.attributes.compression() != crate::Compression::None {
        return records.len() as u64;
    }
    let values = Records::new(&header, records).map_while(Result::ok);
    values.map(|record| record.value.map_or(0, |value| value.len() as u64)).sum()
}
