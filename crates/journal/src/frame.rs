//! What lies in a segment: frames, each of them one group commit, each holding whole entries.
//!
//! The decision that shapes it: a frame is the unit of loss. It is complete or it is not, by one
//! checksum; it says where it belongs (segment, position) and what came before it (`previous`, the
//! checksum of the frame before, across segments). So a frame that was moved, repeated or left over
//! from a former use of the blocks is never taken for one of the log's.
//!
//! All numbers are little-endian. Frames begin at multiples of [`BLOCK`]; padding is zero.
//!
//! ```text
//! frame   0 magic "PRfr"   4 version u8  5 flags u8  6 zero u16
//!         8 bytes of the frame with padding u32      12 segment u32     16 position u32
//!        20 previous u32 (checksum of the frame before; 0 before the first)
//!        24 salt u32 (the segment's)                 28 entries u32     32 bytes of content u32
//!        36 checksum of the entries' checksums u32   40 index of the first entry u64
//!        48 checksum of bytes 0..48 u32              52 zero             64 entries...
//! entry   0 index u64   8 term u64   16 leader u64   24 bytes of head u32   28 bodies u32
//!        32 kind u8    33 zero      36 checksum of all of the entry but these four bytes u32
//!        40 a row per body, then the head, then the bodies
//! row     0 stream u64  8 base offset u64  16 max timestamp i64  24 span u32  28 bytes u32
//! ```
//!
//! An entry's checksum is computed by whoever appends it, so that the journal's thread has only
//! small things left to do between two syncs, and is enough to check an entry read on its own.

use std::ops::Range;

use base::checksum::{crc32c, crc32c_append};
use bytes::Bytes;

use crate::address::Address;
use crate::entry::{Body, Entry, EntryId, EntryKind};

/// What disks write whole or not at all; frames begin at multiples of it.
pub(crate) const BLOCK: usize = 512;
pub(crate) const FRAME_HEADER_BYTES: usize = 64;
pub(crate) const ENTRY_HEADER_BYTES: usize = 40;
pub(crate) const BODY_ROW_BYTES: usize = 32;

const MAGIC: [u8; 4] = *b"PRfr";
const VERSION: u8 = 1;
const CHECKSUM_AT: usize = 48;
const ENTRY_CHECKSUM_AT: usize = 36;

// A torn write then never leaves half a header.
const _: () = assert!(FRAME_HEADER_BYTES <= BLOCK);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FrameHeader {
    /// With header and padding; a multiple of [`BLOCK`].
    pub(crate) bytes: u32,
    pub(crate) segment: u32,
    pub(crate) position: u32,
    pub(crate) previous: u32,
    pub(crate) salt: u32,
    pub(crate) entries: u32,
    pub(crate) content_bytes: u32,
    pub(crate) entries_checksum: u32,
    pub(crate) first_index: u64,
}

/// Bytes that a frame with so much content takes.
pub(crate) fn frame_bytes(content_bytes: u64) -> u64 {
    (FRAME_HEADER_BYTES as u64 + content_bytes).next_multiple_of(BLOCK as u64)
}

impl FrameHeader {
    pub(crate) fn encode(&self) -> [u8; FRAME_HEADER_BYTES] {
        let mut out = [0; FRAME_HEADER_BYTES];
        out[0..4].copy_from_slice(&MAGIC);
        out[4] = VERSION;
        let numbers = [
            self.bytes,
            self.segment,
            self.position,
            self.previous,
            self.salt,
            self.entries,
            self.content_bytes,
            self.entries_checksum,
        ];
        for (place, number) in numbers.into_iter().enumerate() {
            out[8 + place * 4..][..4].copy_from_slice(&number.to_le_bytes());
        }
        out[40..48].copy_from_slice(&self.first_index.to_le_bytes());
        let checksum = crc32c(&out[..CHECKSUM_AT]);
        out[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&checksum.to_le_bytes());
        out
    }

    /// `None` when these bytes are not a header, or one of a version that this code does not know.
    pub(crate) fn decode(block: &[u8]) -> Option<FrameHeader> {
        let header = block.get(..FRAME_HEADER_BYTES)?;
        if header[..4] != MAGIC || header[4] != VERSION {
            return None;
        }
        if crc32c(&header[..CHECKSUM_AT]) != u32_at(header, CHECKSUM_AT) {
            return None;
        }
        let found = FrameHeader {
            bytes: u32_at(header, 8),
            segment: u32_at(header, 12),
            position: u32_at(header, 16),
            previous: u32_at(header, 20),
            salt: u32_at(header, 24),
            entries: u32_at(header, 28),
            content_bytes: u32_at(header, 32),
            entries_checksum: u32_at(header, 36),
            first_index: u64_at(header, 40),
        };
        let fits = u64::from(found.bytes) == frame_bytes(u64::from(found.content_bytes));
        fits.then_some(found)
    }

    /// What the next frame names as its previous one.
    pub(crate) fn checksum(&self) -> u32 {
        crc32c(&self.encode()[..CHECKSUM_AT])
    }

    pub(crate) fn end(&self) -> u64 {
        u64::from(self.position) + u64::from(self.bytes)
    }
}

/// An entry ready to be written: its small parts encoded, its checksum known.
#[derive(Debug)]
pub(crate) struct EncodedEntry {
    pub(crate) entry: Entry,
    /// Header and rows.
    pub(crate) descriptor: Box<[u8]>,
    pub(crate) checksum: u32,
    /// All bytes in the frame.
    pub(crate) len: u32,
    /// Where each body begins, from the entry's first byte.
    body_starts: Box<[u32]>,
}

impl EncodedEntry {
    pub(crate) fn new(entry: Entry) -> Self {
        let mut descriptor =
            Vec::with_capacity(ENTRY_HEADER_BYTES + entry.bodies.len() * BODY_ROW_BYTES);
        let EntryId { term, leader, index } = entry.id;
        for number in [index, term, leader] {
            descriptor.extend_from_slice(&number.to_le_bytes());
        }
        for number in [entry.head.len() as u32, entry.bodies.len() as u32, entry.kind as u32, 0] {
            descriptor.extend_from_slice(&number.to_le_bytes());
        }
        let mut end = descriptor.capacity() + entry.head.len();
        let mut body_starts = Vec::with_capacity(entry.bodies.len());
        for body in &entry.bodies {
            for number in [body.stream, body.base_offset, body.max_timestamp as u64] {
                descriptor.extend_from_slice(&number.to_le_bytes());
            }
            descriptor.extend_from_slice(&body.span.to_le_bytes());
            descriptor.extend_from_slice(&(body.bytes.len() as u32).to_le_bytes());
            body_starts.push(end as u32);
            end += body.bytes.len();
        }
        assert!(end < u32::MAX as usize / 2, "an entry must fit a segment, this has {end} bytes");
        let mut checksum = entry_checksum_start(&descriptor);
        checksum = crc32c_append(checksum, &entry.head);
        for body in &entry.bodies {
            checksum = crc32c_append(checksum, &body.bytes);
        }
        descriptor[ENTRY_CHECKSUM_AT..ENTRY_HEADER_BYTES].copy_from_slice(&checksum.to_le_bytes());
        Self {
            entry,
            descriptor: descriptor.into(),
            checksum,
            len: end as u32,
            body_starts: body_starts.into(),
        }
    }

    /// Stream and address of each body, once the entry's place is known.
    pub(crate) fn addresses(
        &self,
        segment: u32,
        at: u32,
    ) -> impl Iterator<Item = (u64, Address)> + '_ {
        self.entry.bodies.iter().zip(&self.body_starts).map(move |(body, start)| {
            let address = Address {
                segment,
                position: at + start,
                len: body.bytes.len() as u32,
                span: body.span,
                base_offset: body.base_offset,
                max_timestamp: body.max_timestamp,
            };
            (body.stream, address)
        })
    }

    /// The body that begins `start` bytes after the entry, if one does.
    pub(crate) fn body_at(&self, start: u32) -> Option<&Body> {
        let place = self.body_starts.binary_search(&start).ok()?;
        // Bodies may be empty: then several begin at one place, and any of those is as good.
        self.entry.bodies.get(place)
    }
}

fn entry_checksum_start(descriptor: &[u8]) -> u32 {
    let checksum = crc32c(&descriptor[..ENTRY_CHECKSUM_AT]);
    crc32c_append(checksum, &descriptor[ENTRY_HEADER_BYTES..])
}

/// The checksum that a frame's header carries for its entries.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EntriesChecksum(u32);

impl EntriesChecksum {
    pub(crate) fn add(&mut self, entry_checksum: u32) {
        self.0 = crc32c_append(self.0, &entry_checksum.to_le_bytes());
    }

    pub(crate) fn get(self) -> u32 {
        self.0
    }
}

/// An entry in bytes that were read, found by its header alone. Lengths fit the bytes given.
#[derive(Clone, Debug)]
pub(crate) struct EntryLayout {
    pub(crate) id: EntryId,
    pub(crate) kind: EntryKind,
    /// Place of the head in the entry.
    pub(crate) head: Range<usize>,
    checksum: u32,
    /// Bytes of the entry.
    pub(crate) len: usize,
}

/// Bytes that begin with an entry, but are not one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NotAnEntry;

impl EntryLayout {
    /// Of the entry that `bytes` begins with; its checksum is not yet looked at.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, NotAnEntry> {
        let header = bytes.get(..ENTRY_HEADER_BYTES).ok_or(NotAnEntry)?;
        let bodies = u32_at(header, 28);
        let rows = (bodies as usize).checked_mul(BODY_ROW_BYTES).ok_or(NotAnEntry)?;
        let head_start = ENTRY_HEADER_BYTES + rows;
        let head = head_start..head_start + u32_at(header, 24) as usize;
        let rows = bytes.get(ENTRY_HEADER_BYTES..head_start).ok_or(NotAnEntry)?;
        let body_bytes: usize =
            rows.chunks_exact(BODY_ROW_BYTES).map(|row| u32_at(row, 28) as usize).sum();
        let kind = match header[32] {
            0 => EntryKind::Blank,
            1 => EntryKind::Command,
            2 => EntryKind::Membership,
            _ => return Err(NotAnEntry),
        };
        let (index, term, leader) = (u64_at(header, 0), u64_at(header, 8), u64_at(header, 16));
        let id = EntryId { term, leader, index };
        let checksum = u32_at(header, ENTRY_CHECKSUM_AT);
        Ok(Self { id, kind, len: head.end + body_bytes, head, checksum })
    }

    /// Bytes of header and rows of the entry that `bytes` begins with.
    pub(crate) fn descriptor_bytes(bytes: &[u8]) -> Option<u64> {
        let header = bytes.get(..ENTRY_HEADER_BYTES)?;
        Some((ENTRY_HEADER_BYTES as u64) + u64::from(u32_at(header, 28)) * BODY_ROW_BYTES as u64)
    }

    /// Whether all of the entry is there and right. `bytes` as given to `read`.
    pub(crate) fn is_sound(&self, bytes: &[u8]) -> bool {
        let Some(entry) = bytes.get(..self.len) else { return false };
        let (descriptor, rest) = entry.split_at(self.head.start);
        crc32c_append(entry_checksum_start(descriptor), rest) == self.checksum
    }

    /// Stream and address of each body; `at` is where the entry begins.
    pub(crate) fn addresses(
        &self,
        bytes: &[u8],
        segment: u32,
        at: u32,
    ) -> impl Iterator<Item = (u64, Address)> {
        let rows = &bytes[ENTRY_HEADER_BYTES..self.head.start];
        let mut position = at + self.head.end as u32;
        rows.chunks_exact(BODY_ROW_BYTES).map(move |row| {
            let address = Address {
                segment,
                position,
                len: u32_at(row, 28),
                span: u32_at(row, 24),
                base_offset: u64_at(row, 8),
                max_timestamp: u64_at(row, 16) as i64,
            };
            position += address.len;
            (u64_at(row, 0), address)
        })
    }

    /// The entry itself, sharing `bytes`, as given to `read`; `is_sound` was asked.
    pub(crate) fn entry(&self, bytes: &Bytes) -> Entry {
        let bodies = self.addresses(bytes, 0, 0).map(|(stream, address)| {
            let start = address.position as usize;
            Body {
                stream,
                base_offset: address.base_offset,
                span: address.span,
                max_timestamp: address.max_timestamp,
                bytes: bytes.slice(start..start + address.len as usize),
            }
        });
        let bodies = bodies.collect();
        Entry { id: self.id, kind: self.kind, head: bytes.slice(self.head.clone()), bodies }
    }
}

/// Walks the entries of a frame's content and checks each. Stops, with `Err`, at the first that is
/// not sound; the frame is complete when all came and the checksum of checksums is the header's.
pub(crate) fn check_content(header: &FrameHeader, content: &[u8]) -> Result<(), NotAnEntry> {
    let mut checksum = EntriesChecksum::default();
    let mut rest = content.get(..header.content_bytes as usize).ok_or(NotAnEntry)?;
    for _ in 0..header.entries {
        let layout = EntryLayout::read(rest)?;
        if !layout.is_sound(rest) {
            return Err(NotAnEntry);
        }
        checksum.add(layout.checksum);
        rest = &rest[layout.len..];
    }
    let complete = rest.is_empty() && checksum.get() == header.entries_checksum;
    if complete { Ok(()) } else { Err(NotAnEntry) }
}

/// The entries of a frame that `check_content` found complete, each with its place in the content.
pub(crate) fn layouts(content: &[u8]) -> impl Iterator<Item = (usize, EntryLayout)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let layout = EntryLayout::read(content.get(at..)?).ok()?;
        let start = at;
        at += layout.len;
        Some((start, layout))
    })
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(number)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(number)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn body() -> impl Strategy<Value = Body> {
        (any::<u64>(), any::<u64>(), 1..1000_u32, any::<i64>(), vec(any::<u8>(), 0..300)).prop_map(
            |(stream, base_offset, span, max_timestamp, bytes)| Body {
                stream,
                base_offset,
                span,
                max_timestamp,
                bytes: bytes.into(),
            },
        )
    }

    fn entry() -> impl Strategy<Value = Entry> {
        let kind = prop_oneof![
            Just(EntryKind::Blank),
            Just(EntryKind::Command),
            Just(EntryKind::Membership)
        ];
        (any::<[u64; 3]>(), kind, vec(any::<u8>(), 0..200), vec(body(), 0..5)).prop_map(
            |([term, leader, index], kind, head, bodies)| Entry {
                id: EntryId { term, leader, index },
                kind,
                head: head.into(),
                bodies,
            },
        )
    }

    fn frame_of(entries: &[Entry]) -> (FrameHeader, Vec<u8>) {
        let (mut content, mut checksum) = (Vec::new(), EntriesChecksum::default());
        for entry in entries {
            let encoded = EncodedEntry::new(entry.clone());
            content.extend_from_slice(&encoded.descriptor);
            content.extend_from_slice(&entry.head);
            entry.bodies.iter().for_each(|body| content.extend_from_slice(&body.bytes));
            checksum.add(encoded.checksum);
        }
        let header = FrameHeader {
            bytes: frame_bytes(content.len() as u64) as u32,
            segment: 3,
            position: 1024,
            previous: 77,
            salt: 5,
            entries: entries.len() as u32,
            content_bytes: content.len() as u32,
            entries_checksum: checksum.get(),
            first_index: entries[0].id.index,
        };
        (header, content)
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(entries in vec(entry(), 1..6)) {
            let (header, content) = frame_of(&entries);
            prop_assert_eq!(FrameHeader::decode(&header.encode()), Some(header));
            prop_assert_eq!(check_content(&header, &content), Ok(()));
            let content = Bytes::from(content);
            let back: Vec<Entry> = layouts(&content)
                .map(|(at, layout)| layout.entry(&content.slice(at..at + layout.len)))
                .collect();
            prop_assert_eq!(back, entries);
        }

        #[test]
        fn addresses_lead_to_the_bodies(entry in entry(), at in 0..100_000_u32) {
            let (_, content) = frame_of(std::slice::from_ref(&entry));
            let encoded = EncodedEntry::new(entry.clone());
            let layout = EntryLayout::read(&content).unwrap();
            for ((stream, address), body) in layout.addresses(&content, 9, at).zip(&entry.bodies) {
                let start = (address.position - at) as usize;
                prop_assert_eq!(&content[start..start + address.len as usize], &body.bytes[..]);
                prop_assert_eq!((stream, address.segment), (body.stream, 9));
                let found = encoded.body_at(address.position - at).unwrap();
                prop_assert!(found.bytes == body.bytes || body.bytes.is_empty());
            }
        }

        #[test]
        fn one_flipped_bit_anywhere_is_noticed(
            entries in vec(entry(), 1..4), place in any::<prop::sample::Index>(), bit in 0..8_u8,
        ) {
            let (header, content) = frame_of(&entries);
            let mut bytes = [&header.encode()[..52], &content].concat();
            let place = place.index(bytes.len());
            bytes[place] ^= 1 << bit;
            let mut block = bytes[..52].to_vec();
            block.resize(FRAME_HEADER_BYTES, 0);
            let complete = FrameHeader::decode(&block)
                .is_some_and(|header| check_content(&header, &bytes[52..]).is_ok());
            prop_assert!(!complete);
        }

        #[test]
        fn garbage_is_refused_without_a_panic(bytes in vec(any::<u8>(), 0..2000)) {
            prop_assert!(FrameHeader::decode(&bytes).is_none());
            if let Ok(layout) = EntryLayout::read(&bytes) {
                prop_assert!(!layout.is_sound(&bytes));
            }
        }

        #[test]
        fn a_cut_frame_is_incomplete(entries in vec(entry(), 1..4), keep in 0.0..1.0_f64) {
            let (header, content) = frame_of(&entries);
            let keep = (content.len() as f64 * keep) as usize;
            prop_assert!(check_content(&header, &content[..keep]).is_err());
            let mut zeroed = content.clone();
            zeroed[keep..].fill(0);
            prop_assert!(zeroed == content || check_content(&header, &zeroed).is_err());
        }
    }
}
