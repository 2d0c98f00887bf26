//! The run table as bytes, for the journal's snapshots.
//!
//! ```text
//! magic "PRIT" | version u32 | content | crc32c of all before u32
//! content   undecided
//!           segments n x { id+, generation, kind u8, [last_index], file_bytes, payload_bytes,
//!                          refused n x { position+, 0 or stream and 1 },
//!                          0 or first index and 1, [indexes to the last],
//!                          shared u8, [live bytes once, counted at],
//!                          not sealed: streams n x { stream+, n x { position+, len and a bit,
//!                                                    span, gap, timestamp+- } } }
//!           streams  n x { stream+, n x { segment+, gap, length, bytes, timestamp+- } }
//!           ragged   n x { segment, stream }
//!           holes    n x { stream+, n x { gap, length } }
//! ```
//! Numbers of the content are varints; `+` is the difference to the one before, `+-` the same with
//! a sign, `gap` the offsets between the end of the one before and this one. Streams ascend, so
//! that equal tables have equal bytes. Decoding does not rely on the checksum: it checks lengths
//! against the bytes left, sums against overflow, and references against declarations.
//!
//! The bit below a length marks a shared batch. Version 3 is written. Earlier versions have no
//! shared batches and no indexes: refused bodies are positions that ascend, and lengths have no
//! bit. Version 1 has no holes either. Both can still be read.

use std::num::NonZeroU32;
use std::sync::Arc;

use base::checksum::crc32c;
use base::{Format, Levels, OffsetRanges};
use thiserror::Error;

use super::addresses::{AddressList, Addresses};
use super::fields::{Fields, put_signed, put_varint};
use super::runs::{Run, Runs};
use super::table::{Content, RefusedBody, RunTable, Segment, SharedBytes};
use crate::address::Address;

const MAGIC: [u8; 4] = *b"PRIT";
const VERSION: u32 = 3;
const _: () = assert!(VERSION == Format::RunTable.newest(Levels::OURS.max));
/// The first version with holes.
const HOLES_SINCE: u32 = 2;
/// The first version with shared bodies and the indexes of a segment.
const SHARED_SINCE: u32 = 3;

/// State of a segment's addresses: incoming, (nearly) complete, in the sidecar.
const KIND_OPEN: u8 = 0;
const KIND_FULL: u8 = 1;
const KIND_SEALED: u8 = 2;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub(crate) enum TableError {
    #[error("the run table is damaged")]
    Damaged,
    #[error("the run table has version {0}, this program knows {VERSION}")]
    Version(u32),
    #[error("the run table makes no sense: {0}")]
    Senseless(&'static str),
}

impl RunTable {
    pub(crate) fn encode(&self) -> Vec<u8> {
        self.encode_version(VERSION)
    }

    /// Tests write former versions of a table without newer features.
    pub(super) fn encode_version(&self, version: u32) -> Vec<u8> {
        // About 16 bytes a run and a batch: one growth at most for the usual table.
        let mut out = Vec::with_capacity(64 + self.streams.len() * 16);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&version.to_le_bytes());
        put_varint(&mut out, self.undecided);
        put_varint(&mut out, self.segments.len() as u64);
        let mut last = 0;
        for (&id, segment) in &self.segments {
            put_varint(&mut out, u64::from(id - last));
            put_segment(&mut out, segment, version);
            last = id;
        }
        put_varint(&mut out, self.streams.len() as u64);
        put_ascending(&mut out, self.streams.iter().map(by_id), put_runs);
        put_varint(&mut out, self.ragged.len() as u64);
        for &(segment, stream) in self.ragged.keys() {
            put_varint(&mut out, u64::from(segment));
            put_varint(&mut out, stream);
        }
        if version >= HOLES_SINCE {
            put_varint(&mut out, self.holes.len() as u64);
            put_ascending(&mut out, self.holes.iter().map(by_id), |out, holes| {
                put_holes(out, holes)
            });
        }
        let crc = crc32c(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, TableError> {
        let (content, crc) = bytes.split_last_chunk::<4>().ok_or(TableError::Damaged)?;
        if crc32c(content) != u32::from_le_bytes(*crc) {
            return Err(TableError::Damaged);
        }
        let mut fields = Fields::new(content);
        if fields.array() != Some(MAGIC) {
            return Err(TableError::Damaged);
        }
        let version = match fields.u32() {
            Some(version @ 1..=VERSION) => version,
            Some(other) => return Err(TableError::Version(other)),
            None => return Err(TableError::Damaged),
        };
        let early = TableError::Senseless("it ends early");
        let mut table = table(&mut fields, version).ok_or(early)?;
        if version >= HOLES_SINCE {
            holes(&mut fields, &mut table).ok_or(early)?;
        }
        if fields.remaining() != 0 {
            return Err(TableError::Senseless("something follows it"));
        }
        table.count_live_bytes()?;
        Ok(table)
    }

    /// Live bytes are not stored: they are the sum of the runs.
    fn count_live_bytes(&mut self) -> Result<(), TableError> {
        for runs in self.streams.values() {
            for run in runs.iter() {
                let segment = self
                    .segments
                    .get_mut(&run.segment())
                    .ok_or(TableError::Senseless("a run lies in an unknown segment"))?;
                segment.live_bytes += u64::from(run.bytes);
            }
        }
        for &(segment, stream) in self.ragged.keys() {
            let sealed = self.segments.get(&segment).is_some_and(Segment::sealed);
            let run = self.streams.get(&stream).and_then(|runs| runs.find(segment));
            if !sealed || run.is_none() {
                return Err(TableError::Senseless("a ragged run does not exist"));
            }
        }
        if self.holes.keys().any(|stream| !self.streams.contains_key(stream)) {
            return Err(TableError::Senseless("a stream without runs has holes"));
        }
        // Segments that are dead in the table at a restart may be deleted at once.
        for segment in self.segments.values_mut() {
            segment.dead_in_snapshot = segment.sealed() && segment.live_bytes == 0;
        }
        self.note_seal_after();
        Ok(())
    }
}

fn put_segment(out: &mut Vec<u8>, segment: &Segment, version: u32) {
    put_varint(out, u64::from(segment.generation));
    let addresses = match &segment.content {
        Content::Memory { addresses, last_index } => {
            out.push(if last_index.is_some() { KIND_FULL } else { KIND_OPEN });
            if let Some(last_index) = last_index {
                put_varint(out, *last_index);
            }
            Some(addresses)
        }
        Content::Sealed => {
            out.push(KIND_SEALED);
            None
        }
    };
    put_varint(out, segment.file_bytes);
    put_varint(out, segment.payload_bytes);
    put_varint(out, segment.refused.len() as u64);
    let mut last = 0;
    for &(position, stream) in segment.refused.iter() {
        put_varint(out, u64::from(position - last));
        if version >= SHARED_SINCE {
            put_optional(out, stream);
        }
        last = position;
    }
    if version >= SHARED_SINCE {
        put_optional(out, segment.indexes.map(|(first, _)| first));
        if let Some((first, last)) = segment.indexes {
            put_varint(out, last - first);
        }
        out.push(u8::from(segment.shared.is_some()));
        if let Some(SharedBytes { once, counted_at }) = segment.shared {
            put_varint(out, once);
            put_varint(out, counted_at);
        }
    }
    if let Some(addresses) = addresses {
        put_varint(out, addresses.len() as u64);
        put_ascending(out, addresses.iter(), |out, list| put_addresses(out, list, version));
    }
}

/// 0 is `None`, else the number plus one: numbers here end below the maximum.
fn put_optional(out: &mut Vec<u8>, number: Option<u64>) {
    put_varint(out, number.map_or(0, |number| number.saturating_add(1)));
}

fn by_id<'a, T>((&id, value): (&u64, &'a T)) -> (u64, &'a T) {
    (id, value)
}

fn put_ascending<'a, T: 'a>(
    out: &mut Vec<u8>,
    streams: impl Iterator<Item = (u64, &'a T)>,
    put: impl Fn(&mut Vec<u8>, &T),
) {
    let mut last = 0;
    for (stream, value) in streams {
        put_varint(out, stream - last);
        put(out, value);
        last = stream;
    }
}

fn put_runs(out: &mut Vec<u8>, runs: &Runs) {
    put_varint(out, runs.len() as u64);
    let (mut segment, mut offset, mut timestamp) = (0, 0, 0_i64);
    for run in runs.iter() {
        put_varint(out, u64::from(run.segment() - segment));
        put_varint(out, run.first_offset - offset);
        put_varint(out, run.next_offset - run.first_offset);
        put_varint(out, u64::from(run.bytes));
        put_signed(out, run.max_timestamp.wrapping_sub(timestamp));
        (segment, offset, timestamp) = (run.segment(), run.next_offset, run.max_timestamp);
    }
}

fn put_addresses(out: &mut Vec<u8>, addresses: &AddressList, version: u32) {
    put_varint(out, addresses.len() as u64);
    let (mut position, mut offset, mut timestamp) = (0, 0, 0_i64);
    for address in addresses.iter() {
        put_varint(out, u64::from(address.position - position));
        let len = u64::from(address.len);
        let shared = u64::from(address.shared);
        put_varint(out, if version >= SHARED_SINCE { len << 1 | shared } else { len });
        put_varint(out, u64::from(address.span));
        put_varint(out, address.base_offset - offset);
        put_signed(out, address.max_timestamp.wrapping_sub(timestamp));
        position = address.position;
        (offset, timestamp) = (address.next_offset(), address.max_timestamp);
    }
}

fn put_holes(out: &mut Vec<u8>, holes: &OffsetRanges) {
    put_varint(out, holes.len() as u64);
    let mut offset = 0;
    for (from, to) in holes.iter() {
        put_varint(out, from - offset);
        put_varint(out, to - from);
        offset = to;
    }
}

fn table(fields: &mut Fields<'_>, version: u32) -> Option<RunTable> {
    let mut table = RunTable { undecided: fields.varint()?, ..RunTable::default() };
    let mut id = 0_u32;
    for _ in 0..fields.count(6)? {
        id = ascend_u32(id, fields)?;
        table.segments.insert(id, segment(id, fields, version)?);
    }
    let count = fields.count(7)?;
    let mut last = None;
    for _ in 0..count {
        let stream = ascend(last, fields)?;
        table.streams.insert(stream, runs(fields)?);
        last = Some(stream);
    }
    for _ in 0..fields.count(2)? {
        table.ragged.insert((fields.varint_u32()?, fields.varint()?), ());
    }
    Some(table)
}

fn segment(id: u32, fields: &mut Fields<'_>, version: u32) -> Option<Segment> {
    let generation = fields.varint_u32()?;
    let [kind] = fields.array()?;
    let last_index = if kind == KIND_FULL { Some(fields.varint()?) } else { None };
    let (file_bytes, payload_bytes) = (fields.varint()?, fields.varint()?);
    let refused = refused(fields, version)?;
    let (mut indexes, mut shared) = (None, None);
    if version >= SHARED_SINCE {
        if let Some(first) = optional(fields)? {
            indexes = Some((first, first.checked_add(fields.varint()?)?));
        }
        shared = match fields.array()? {
            [0] => None,
            [1] => Some(SharedBytes { once: fields.varint()?, counted_at: fields.varint()? }),
            _ => return None,
        };
    }
    let content = match kind {
        KIND_OPEN | KIND_FULL => {
            let addresses = addresses_of_streams(id, fields, version)?;
            Content::Memory { addresses, last_index }
        }
        KIND_SEALED => Content::Sealed,
        _ => return None,
    };
    let segment = Segment {
        generation,
        content,
        live_bytes: 0,
        file_bytes,
        payload_bytes,
        refused,
        indexes,
        shared,
        dead_in_snapshot: false,
    };
    (generation > 0).then_some(segment)
}

fn refused(fields: &mut Fields<'_>, version: u32) -> Option<Arc<Vec<RefusedBody>>> {
    let count = fields.count(1)?;
    let mut refused: Vec<RefusedBody> = Vec::with_capacity(count);
    for _ in 0..count {
        let last = refused.last().copied();
        let position =
            last.map_or(0, |(position, _)| position).checked_add(fields.varint_u32()?)?;
        let stream = if version >= SHARED_SINCE { optional(fields)? } else { None };
        if last.is_some_and(|last| last >= (position, stream)) || position == 0 {
            return None;
        }
        refused.push((position, stream));
    }
    Some(Arc::new(refused))
}

/// Inverse of [`put_optional`].
fn optional(fields: &mut Fields<'_>) -> Option<Option<u64>> {
    fields.varint().map(|number| number.checked_sub(1))
}

fn addresses_of_streams(segment: u32, fields: &mut Fields<'_>, version: u32) -> Option<Addresses> {
    let count = fields.count(7)?;
    let mut streams = Addresses::new();
    let mut last = None;
    for _ in 0..count {
        let stream = ascend(last, fields)?;
        let batch_count = fields.count(5)?;
        let (mut position, mut offset, mut timestamp) = (0_u32, 0_u64, 0_i64);
        for _ in 0..batch_count {
            position = position.checked_add(fields.varint_u32()?)?;
            let (len, shared) = match fields.varint()? {
                len if version < SHARED_SINCE => (len, false),
                len => (len >> 1, len & 1 == 1),
            };
            let (len, span) = (u32::try_from(len).ok()?, fields.varint_u32()?);
            let base_offset = offset.checked_add(fields.varint()?)?;
            offset = base_offset.checked_add(u64::from(span))?;
            timestamp = timestamp.wrapping_add(fields.signed()?);
            let max_timestamp = timestamp;
            streams.push(
                stream,
                Address { segment, position, len, span, base_offset, max_timestamp, shared },
            );
        }
        last = Some(stream);
    }
    Some(streams)
}

fn runs(fields: &mut Fields<'_>) -> Option<Runs> {
    let count = fields.count(5)?;
    let (mut segment, mut offset, mut timestamp) = (0_u32, 0_u64, 0_i64);
    let mut runs: Option<Runs> = None;
    for _ in 0..count {
        segment = ascend_u32(segment, fields)?;
        let first_offset = offset.checked_add(fields.varint()?)?;
        let next_offset = first_offset.checked_add(fields.varint()?)?;
        let bytes = fields.varint_u32()?;
        timestamp = timestamp.wrapping_add(fields.signed()?);
        let segment = NonZeroU32::new(segment)?;
        let run = Run { segment, bytes, first_offset, next_offset, max_timestamp: timestamp };
        match &mut runs {
            None => runs = Some(Runs::One(run)),
            Some(runs) => runs.push(run),
        }
        offset = next_offset;
    }
    // A stream without runs is not in the table.
    runs
}

fn holes(fields: &mut Fields<'_>, table: &mut RunTable) -> Option<()> {
    let mut last = None;
    for _ in 0..fields.count(4)? {
        let stream = ascend(last, fields)?;
        let mut holes = OffsetRanges::new();
        let mut offset = 0_u64;
        for place in 0..fields.count(2)? {
            let gap = fields.varint()?;
            let from = offset.checked_add(gap)?;
            offset = from.checked_add(fields.varint()?)?;
            // Adjacent ranges would have been merged.
            if (place > 0 && gap == 0) || holes.insert(from, offset) == 0 {
                return None;
            }
        }
        if holes.is_empty() {
            return None;
        }
        table.holes.insert(stream, Arc::new(holes));
        last = Some(stream);
    }
    Some(())
}

/// The next of a strictly ascending sequence with any start.
fn ascend(last: Option<u64>, fields: &mut Fields<'_>) -> Option<u64> {
    let step = fields.varint()?;
    match last {
        None => Some(step),
        Some(_) if step == 0 => None,
        Some(last) => last.checked_add(step),
    }
}

/// The next of a strictly ascending sequence that starts above 0.
fn ascend_u32(last: u32, fields: &mut Fields<'_>) -> Option<u32> {
    let step = fields.varint_u32()?;
    if step == 0 { None } else { last.checked_add(step) }
}
