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
//! entry   0 index u64   8 term u64   16 leader u64   24 bytes of head u32   28 rows u32
//!        32 kind u8    33 version u8 34 zero u16    36 checksum of the entry but these 4 bytes u32
//!        40 share rows u32           44 zero u32
//!        48 which rows are share rows: a bit each, to a multiple of 8 bytes; absent without any
//!         … the rows, then the head, then the bodies of the own rows
//! own row    0 stream u64  8 base offset u64  16 max timestamp i64  24 span u32  28 bytes u32
//! share row  0 stream u64  8 base offset u64
//! ```
//!
//! A body that goes to several streams is written once: its first row is an own row, the others are
//! share rows behind it, each of which has the body of the nearest own row before it and takes all
//! but stream and base offset from there. The bytes of such a body begin with an offset that counts
//! for none of its rows: whoever reads puts the row's own in its place.
//!
//! Entries of version 1 (its byte is 0) have a header of 40 bytes and own rows only. They are read.
//!
//! An entry's checksum is computed by whoever appends it, so that the journal's thread has only
//! small things left to do between two syncs, and is enough to check an entry read on its own.

use std::ops::Range;

use base::HashSet;
use base::checksum::{crc32c, crc32c_append};
use bytes::Bytes;

use crate::address::Address;
use crate::entry::{Body, Entry, EntryId, EntryKind};

/// What disks write whole or not at all; frames begin at multiples of it.
pub(crate) const BLOCK: usize = 512;
pub(crate) const FRAME_HEADER_BYTES: usize = 64;
const ENTRY_HEADER_BYTES: usize = 48;
const ENTRY_HEADER_V1_BYTES: usize = 40;
const OWN_ROW_BYTES: usize = 32;
const SHARE_ROW_BYTES: usize = 16;

const MAGIC: [u8; 4] = *b"PRfr";
const VERSION: u8 = 1;
const CHECKSUM_AT: usize = 48;
const ENTRY_VERSION: u8 = 2;
/// What the byte held before there were versions.
const ENTRY_VERSION_1: u8 = 0;
const ENTRY_VERSION_AT: usize = 33;
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
    /// Where the body of each row begins, from the entry's first byte.
    body_starts: Box<[u32]>,
}

impl EncodedEntry {
    pub(crate) fn new(entry: Entry) -> Self {
        let rows = entry.bodies.len();
        let shares = shares(&entry.bodies);
        let share_count = shares.iter().filter(|share| **share).count();
        let len = descriptor_len(ENTRY_HEADER_BYTES, rows as u64, share_count as u64) as usize;
        let mut descriptor = Vec::with_capacity(len);
        let EntryId { term, leader, index } = entry.id;
        for number in [index, term, leader] {
            descriptor.extend_from_slice(&number.to_le_bytes());
        }
        let kind = entry.kind as u32 | u32::from(ENTRY_VERSION) << 8;
        for number in [entry.head.len() as u32, rows as u32, kind, 0, share_count as u32, 0] {
            descriptor.extend_from_slice(&number.to_le_bytes());
        }
        if share_count > 0 {
            descriptor.resize(ENTRY_HEADER_BYTES + bitmap_bytes(rows as u64) as usize, 0);
            for (row, _) in shares.iter().enumerate().filter(|(_, share)| **share) {
                descriptor[ENTRY_HEADER_BYTES + row / 8] |= 1 << (row % 8);
            }
        }
        let mut end = len + entry.head.len();
        let mut body_starts = Vec::with_capacity(rows);
        let mut start = end;
        for (row, body) in entry.bodies.iter().enumerate() {
            descriptor.extend_from_slice(&body.stream.to_le_bytes());
            descriptor.extend_from_slice(&body.base_offset.to_le_bytes());
            if !shares.get(row).is_some_and(|share| *share) {
                descriptor.extend_from_slice(&body.max_timestamp.to_le_bytes());
                descriptor.extend_from_slice(&body.span.to_le_bytes());
                descriptor.extend_from_slice(&(body.bytes.len() as u32).to_le_bytes());
                start = end;
                end += body.bytes.len();
            }
            body_starts.push(start as u32);
        }
        debug_assert_eq!(descriptor.len(), len);
        assert!(end < u32::MAX as usize / 2, "an entry must fit a segment, this has {end} bytes");
        let mut encoded = Self {
            entry,
            descriptor: descriptor.into(),
            checksum: 0,
            len: end as u32,
            body_starts: body_starts.into(),
        };
        let mut checksum = entry_checksum_start(&encoded.descriptor);
        checksum = crc32c_append(checksum, &encoded.entry.head);
        for (_, bytes) in encoded.written_bodies() {
            checksum = crc32c_append(checksum, bytes);
        }
        encoded.checksum = checksum;
        encoded.descriptor[ENTRY_CHECKSUM_AT..ENTRY_CHECKSUM_AT + 4]
            .copy_from_slice(&checksum.to_le_bytes());
        encoded
    }

    /// The bodies as they lie in the entry: those of the own rows, each with its row.
    pub(crate) fn written_bodies(&self) -> impl Iterator<Item = (usize, &Bytes)> + '_ {
        let rows = self.entry.bodies.iter().enumerate();
        rows.filter(|(row, _)| !self.is_share(*row)).map(|(row, body)| (row, &body.bytes))
    }

    /// Whether the row has the body of the one before.
    fn is_share(&self, row: usize) -> bool {
        let Some(before) = row.checked_sub(1) else { return false };
        let start = |row| self.body_starts.get(row);
        // Only what is empty does not move the next one on.
        start(row).is_some() && start(row) == start(before) && self.has_bytes(before)
    }

    fn has_bytes(&self, row: usize) -> bool {
        self.entry.bodies.get(row).is_some_and(|body| !body.bytes.is_empty())
    }

    /// Stream and address of each row, once the entry's place is known.
    pub(crate) fn addresses(
        &self,
        segment: u32,
        at: u32,
    ) -> impl Iterator<Item = (u64, Address)> + '_ {
        let rows = self.entry.bodies.iter().zip(&self.body_starts).enumerate();
        rows.map(move |(row, (body, start))| {
            let address = Address {
                segment,
                position: at + start,
                len: body.bytes.len() as u32,
                span: body.span,
                base_offset: body.base_offset,
                max_timestamp: body.max_timestamp,
                shared: self.is_share(row) || self.is_share(row + 1),
            };
            (body.stream, address)
        })
    }

    /// The body that begins `start` bytes after the entry, if one does.
    pub(crate) fn body_at(&self, start: u32) -> Option<&Body> {
        let place = self.body_starts.binary_search(&start).ok()?;
        // Several rows may share it. Or some are empty: any of those is as good.
        self.entry.bodies.get(place)
    }
}

/// For each row whether it shares the body of the one before; empty when none does. The rows of a
/// body are of different streams: by stream and place each of them can be told from the others.
fn shares(bodies: &[Body]) -> Vec<bool> {
    let mut shares = Vec::new();
    let mut streams: HashSet<u64> = HashSet::default();
    for (row, pair) in bodies.windows(2).enumerate() {
        if !pair[1].shares_bytes_of(&pair[0]) {
            streams.clear();
            continue;
        }
        if streams.is_empty() {
            streams.insert(pair[0].stream);
        }
        if streams.insert(pair[1].stream) {
            shares.resize(bodies.len(), false);
            shares[row + 1] = true;
        } else {
            // Written once more, for the rows from here on.
            streams.clear();
            streams.insert(pair[1].stream);
        }
    }
    shares
}

/// Bytes of header, bitmap and rows.
fn descriptor_len(header: usize, rows: u64, share_rows: u64) -> u64 {
    let bitmap = if share_rows > 0 { bitmap_bytes(rows) } else { 0 };
    let own = rows.saturating_sub(share_rows);
    header as u64 + bitmap + own * OWN_ROW_BYTES as u64 + share_rows * SHARE_ROW_BYTES as u64
}

fn bitmap_bytes(rows: u64) -> u64 {
    rows.div_ceil(64) * 8
}

fn entry_checksum_start(descriptor: &[u8]) -> u32 {
    let checksum = crc32c(&descriptor[..ENTRY_CHECKSUM_AT]);
    crc32c_append(checksum, &descriptor[ENTRY_CHECKSUM_AT + 4..])
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

/// An entry in bytes that were read, found by its header and rows alone.
#[derive(Clone, Debug)]
pub(crate) struct EntryLayout {
    pub(crate) id: EntryId,
    pub(crate) kind: EntryKind,
    /// Place of the head in the entry.
    pub(crate) head: Range<usize>,
    checksum: u32,
    /// Bytes of the entry.
    pub(crate) len: usize,
    rows: usize,
    /// Where the bitmap lies, empty when there are no share rows, and where the rows begin.
    bitmap: Range<usize>,
}

/// Bytes that begin with an entry, but are not one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NotAnEntry;

/// What an entry's header says of its size.
struct Sizes {
    header: usize,
    rows: u64,
    share_rows: u64,
}

impl Sizes {
    fn read(bytes: &[u8]) -> Option<Self> {
        let version = *bytes.get(ENTRY_VERSION_AT)?;
        let header = match version {
            ENTRY_VERSION_1 => ENTRY_HEADER_V1_BYTES,
            ENTRY_VERSION => ENTRY_HEADER_BYTES,
            _ => return None,
        };
        let bytes = bytes.get(..header)?;
        let rows = u64::from(u32_at(bytes, 28));
        let share_rows = if version == ENTRY_VERSION { u64::from(u32_at(bytes, 40)) } else { 0 };
        // There is an own row before the first that shares.
        let sensible = share_rows == 0 || share_rows < rows;
        sensible.then_some(Self { header, rows, share_rows })
    }

    fn descriptor(&self) -> u64 {
        descriptor_len(self.header, self.rows, self.share_rows)
    }
}

/// A row as it lies in an entry.
struct Row<'a> {
    stream: u64,
    base_offset: u64,
    /// The rest of an own row.
    own: Option<&'a [u8]>,
}

impl EntryLayout {
    /// Of the entry that `bytes` begins with; its checksum is not yet looked at.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, NotAnEntry> {
        let sizes = Sizes::read(bytes).ok_or(NotAnEntry)?;
        let kind = match bytes[32] {
            0 => EntryKind::Blank,
            1 => EntryKind::Command,
            2 => EntryKind::Membership,
            _ => return Err(NotAnEntry),
        };
        let head_start = usize::try_from(sizes.descriptor()).map_err(|_| NotAnEntry)?;
        let descriptor = bytes.get(..head_start).ok_or(NotAnEntry)?;
        let head = head_start..head_start + u32_at(bytes, 24) as usize;
        let bitmap_len = if sizes.share_rows > 0 { bitmap_bytes(sizes.rows) as usize } else { 0 };
        let bitmap = sizes.header..sizes.header + bitmap_len;
        let (index, term, leader) = (u64_at(bytes, 0), u64_at(bytes, 8), u64_at(bytes, 16));
        let id = EntryId { term, leader, index };
        let checksum = u32_at(bytes, ENTRY_CHECKSUM_AT);
        let rows = sizes.rows as usize;
        let mut layout = Self { id, kind, len: head.end, head, checksum, rows, bitmap };
        // What the bitmap says has to fit what the header counts, or rows would be read beyond
        // their end; the first row has no own row before it.
        let marked: u64 =
            descriptor[layout.bitmap.clone()].iter().map(|byte| u64::from(byte.count_ones())).sum();
        let beyond = (layout.rows..bitmap_len * 8).any(|row| layout.is_share(descriptor, row));
        if marked != sizes.share_rows || beyond || layout.is_share(descriptor, 0) {
            return Err(NotAnEntry);
        }
        let bodies = layout.rows(descriptor).filter_map(|row| row.own);
        let body_bytes: usize = bodies.map(|own| u32_at(own, 12) as usize).sum();
        layout.len += body_bytes;
        Ok(layout)
    }

    fn is_share(&self, descriptor: &[u8], row: usize) -> bool {
        let byte = descriptor[self.bitmap.clone()].get(row / 8);
        byte.is_some_and(|byte| byte >> (row % 8) & 1 == 1)
    }

    fn rows<'a>(&'a self, descriptor: &'a [u8]) -> impl Iterator<Item = Row<'a>> + 'a {
        let mut rest = &descriptor[self.bitmap.end..self.head.start];
        (0..self.rows).map_while(move |row| {
            let len = if self.is_share(descriptor, row) { SHARE_ROW_BYTES } else { OWN_ROW_BYTES };
            let (found, more) = rest.split_at_checked(len)?;
            rest = more;
            let (stream, base_offset) = (u64_at(found, 0), u64_at(found, 8));
            let own = (len == OWN_ROW_BYTES).then(|| &found[SHARE_ROW_BYTES..]);
            Some(Row { stream, base_offset, own })
        })
    }

    /// Bytes of header and rows of the entry that `bytes` begins with.
    pub(crate) fn descriptor_bytes(bytes: &[u8]) -> Option<u64> {
        Sizes::read(bytes).map(|sizes| sizes.descriptor())
    }

    /// Whether all of the entry is there and right. `bytes` as given to `read`.
    pub(crate) fn is_sound(&self, bytes: &[u8]) -> bool {
        let Some(entry) = bytes.get(..self.len) else { return false };
        let (descriptor, rest) = entry.split_at(self.head.start);
        crc32c_append(entry_checksum_start(descriptor), rest) == self.checksum
    }

    /// Stream and address of each row; `at` is where the entry begins.
    pub(crate) fn addresses<'a>(
        &'a self,
        bytes: &'a [u8],
        segment: u32,
        at: u32,
    ) -> impl Iterator<Item = (u64, Address)> + 'a {
        let mut end = at.wrapping_add(self.head.end as u32);
        let (mut position, mut own) = (end, &[0; SHARE_ROW_BYTES][..]);
        self.rows(bytes).enumerate().map(move |(place, row)| {
            if let Some(found) = row.own {
                (position, own) = (end, found);
                end = end.wrapping_add(u32_at(own, 12));
            }
            let address = Address {
                segment,
                position,
                len: u32_at(own, 12),
                span: u32_at(own, 8),
                base_offset: row.base_offset,
                max_timestamp: u64_at(own, 0) as i64,
                shared: row.own.is_none() || self.is_share(bytes, place + 1),
            };
            (row.stream, address)
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
        let bodies = prop_oneof![vec(body(), 0..5), shared_bodies()];
        (any::<[u64; 3]>(), kind, vec(any::<u8>(), 0..200), bodies).prop_map(
            |([term, leader, index], kind, head, bodies)| Entry {
                id: EntryId { term, leader, index },
                kind,
                head: head.into(),
                bodies,
            },
        )
    }

    /// Bodies of which some are clones of the one before, for other streams or, now and then, the
    /// same.
    fn shared_bodies() -> impl Strategy<Value = Vec<Body>> {
        vec((body(), vec(0..6_u64, 0..8)), 0..4).prop_map(|bodies| {
            let rows = bodies.into_iter().flat_map(|(body, streams)| {
                let first = Body { stream: 0, ..body };
                let clone = first.clone();
                let others = streams.into_iter().enumerate().map(move |(place, stream)| Body {
                    stream,
                    base_offset: place as u64,
                    ..clone.clone()
                });
                std::iter::once(first).chain(others)
            });
            rows.collect()
        })
    }

    fn frame_of(entries: &[Entry]) -> (FrameHeader, Vec<u8>) {
        let (mut content, mut checksum) = (Vec::new(), EntriesChecksum::default());
        for entry in entries {
            let encoded = EncodedEntry::new(entry.clone());
            content.extend_from_slice(&encoded.descriptor);
            content.extend_from_slice(&entry.head);
            encoded.written_bodies().for_each(|(_, bytes)| content.extend_from_slice(bytes));
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
            let of_layout: Vec<_> = layout.addresses(&content, 9, at).collect();
            prop_assert_eq!(&of_layout, &encoded.addresses(9, at).collect::<Vec<_>>());
            for ((stream, address), body) in of_layout.into_iter().zip(&entry.bodies) {
                let start = (address.position - at) as usize;
                prop_assert_eq!(&content[start..start + address.len as usize], &body.bytes[..]);
                prop_assert_eq!((stream, address.segment), (body.stream, 9));
                let found = encoded.body_at(address.position - at).unwrap();
                prop_assert!(found.bytes == body.bytes || body.bytes.is_empty());
            }
        }

        #[test]
        fn what_several_streams_have_is_written_once(entry in entry()) {
            let (_, content) = frame_of(std::slice::from_ref(&entry));
            let layout = EntryLayout::read(&content).unwrap();
            let rows: Vec<(u64, Address)> = layout.addresses(&content, 1, 0).collect();
            // By place and stream every row with bytes can be told from the others.
            let names: HashSet<(u32, u64)> =
                rows.iter().filter(|it| it.1.len > 0).map(|it| (it.1.position, it.0)).collect();
            prop_assert_eq!(names.len(), rows.iter().filter(|it| it.1.len > 0).count());
            let mut once: Vec<(u32, u32)> = rows.iter().map(|it| (it.1.position, it.1.len)).collect();
            once.sort_unstable();
            once.dedup();
            let bodies: usize = once.iter().map(|(_, len)| *len as usize).sum();
            prop_assert_eq!(content.len(), layout.head.end + bodies);
            for (_, address) in rows.iter().filter(|it| it.1.len > 0) {
                let sharing = rows.iter().filter(|it| it.1.len > 0 && it.1.position == address.position);
                prop_assert_eq!(address.shared, sharing.count() > 1);
            }
            // What is read back shares its bytes as well, and is the same entry when written again.
            let again = EncodedEntry::new(layout.entry(&Bytes::from(content.clone())));
            prop_assert_eq!(&again.descriptor[..], &content[..layout.head.start]);
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
    fn three_streams_and_one() -> Entry {
        let shared = Body {
            stream: 7,
            base_offset: 100,
            span: 2,
            max_timestamp: 1_234,
            bytes: Bytes::from_static(b"offset..body"),
        };
        let bodies = vec![
            shared.clone(),
            Body { stream: 8, base_offset: 5, ..shared.clone() },
            Body { stream: 9, base_offset: 0, ..shared },
            Body {
                stream: 7,
                base_offset: 102,
                span: 1,
                max_timestamp: -1,
                bytes: Bytes::from_static(b"alone"),
            },
        ];
        let id = EntryId { term: 3, leader: 2, index: 41 };
        Entry { id, kind: EntryKind::Command, head: Bytes::from_static(b"head"), bodies }
    }

    fn bytes_of(entry: &Entry) -> Vec<u8> {
        frame_of(std::slice::from_ref(entry)).1
    }

    #[test]
    fn an_entry_is_these_bytes() {
        let numbers = |numbers: &[u64]| -> Vec<u8> {
            numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
        };
        let small = |numbers: &[u32]| -> Vec<u8> {
            numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
        };
        let golden = [
            numbers(&[41, 3, 2]),
            small(&[4, 4]),
            vec![1, 2, 0, 0],
            small(&[0x3f16_c9e8]),
            small(&[2, 0]),
            // The second and the third row are share rows.
            vec![0b0110, 0, 0, 0, 0, 0, 0, 0],
            numbers(&[7, 100, 1_234]),
            small(&[2, 12]),
            numbers(&[8, 5]),
            numbers(&[9, 0]),
            numbers(&[7, 102, u64::MAX]),
            small(&[1, 5]),
            b"headoffset..bodyalone".to_vec(),
        ];
        let golden = golden.concat();
        assert_eq!(bytes_of(&three_streams_and_one()), golden);
        let layout = EntryLayout::read(&golden).unwrap();
        assert!(layout.is_sound(&golden));
        assert_eq!(layout.entry(&Bytes::from(golden)), three_streams_and_one());
    }

    #[test]
    fn an_entry_of_version_1_is_still_read() {
        let entry = Entry {
            bodies: three_streams_and_one().bodies[2..].to_vec(),
            ..three_streams_and_one()
        };
        let mut old = bytes_of(&entry);
        old.drain(40..48);
        old[ENTRY_VERSION_AT] = 0;
        let checksum = crc32c_append(crc32c(&old[..36]), &old[40..]);
        old[36..40].copy_from_slice(&checksum.to_le_bytes());
        let layout = EntryLayout::read(&old).unwrap();
        assert!(layout.is_sound(&old));
        assert_eq!(EntryLayout::descriptor_bytes(&old), Some(40 + 2 * 32));
        assert!(layout.addresses(&old, 1, 0).all(|(_, address)| !address.shared));
        assert_eq!(layout.entry(&Bytes::from(old)), entry);
    }

    #[test]
    fn a_bitmap_that_lies_is_no_entry() {
        let good = bytes_of(&three_streams_and_one());
        let spoilt = |at: usize, byte: u8| {
            let mut bad = good.clone();
            bad[at] = byte;
            EntryLayout::read(&bad).err()
        };
        // One more and one less than was counted, the first row, a row that is not there.
        for bitmap in [0b1110, 0b0100, 0b0101, 0b1010_0000] {
            assert_eq!(spoilt(48, bitmap), Some(NotAnEntry), "{bitmap:b}");
        }
        assert_eq!(spoilt(48 + 7, 0x80), Some(NotAnEntry));
        // More rows share than there are, a version to come.
        assert_eq!(spoilt(40, 4), Some(NotAnEntry));
        assert_eq!(spoilt(ENTRY_VERSION_AT, 3), Some(NotAnEntry));
        assert_eq!(spoilt(ENTRY_VERSION_AT, 1), Some(NotAnEntry));
        // Which row shares may be told otherwise: then the checksum is another.
        let mut other = good.clone();
        other[48] = 0b1100;
        let sound = EntryLayout::read(&other).is_ok_and(|layout| layout.is_sound(&other));
        assert!(!sound);
    }

    #[test]
    fn ten_streams_cost_little_more_than_one() {
        let mut entry = three_streams_and_one();
        let bytes = Bytes::from(vec![7; 1024]);
        entry.bodies = (0..10)
            .map(|stream| Body {
                stream,
                base_offset: stream,
                span: 1,
                max_timestamp: 0,
                bytes: bytes.clone(),
            })
            .collect();
        let ten = EncodedEntry::new(entry.clone()).len;
        entry.bodies.truncate(1);
        let one = EncodedEntry::new(entry).len;
        assert!(f64::from(ten) / f64::from(one) < 1.15, "{ten} and {one} bytes");
    }
}
