//! Decodes an entry from untrusted bytes.

use std::ops::Range;

use base::checksum::crc32c_append;
use bytes::Bytes;
use thiserror::Error;

use super::{
    ENTRY_CHECKSUM_AT, ENTRY_HEADER_BYTES, ENTRY_HEADER_V1_BYTES, ENTRY_VERSION, ENTRY_VERSION_1,
    ENTRY_VERSION_AT, OWN_ROW_BYTES, SHARE_ROW_BYTES, bitmap_bytes, descriptor_len,
    entry_checksum_start,
};
use crate::address::Address;
use crate::entry::{Body, Entry, EntryId, EntryKind};
use crate::little_endian::{u32_at, u64_at};

/// Layout of an entry, read from its header and rows alone.
#[derive(Clone, Debug)]
pub(crate) struct EntryLayout {
    pub(crate) id: EntryId,
    pub(crate) kind: EntryKind,
    /// Place of the head in the entry.
    pub(crate) head: Range<usize>,
    pub(super) checksum: u32,
    /// Bytes of the entry.
    pub(crate) len: usize,
    rows: usize,
    /// Range of the bitmap, empty without share rows. The rows follow it.
    bitmap: Range<usize>,
}

/// The bytes are not a sound entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("the bytes are not a sound entry")]
pub struct NotAnEntry;

/// Sizes from an entry's header.
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
        // An own row precedes the first share row.
        let sensible = share_rows == 0 || share_rows < rows;
        sensible.then_some(Self { header, rows, share_rows })
    }

    fn descriptor(&self) -> u64 {
        descriptor_len(self.header, self.rows, self.share_rows)
    }
}

/// A row as stored in an entry.
struct Row<'a> {
    stream: u64,
    base_offset: u64,
    /// The rest of an own row.
    own: Option<&'a [u8]>,
}

impl EntryLayout {
    /// The layout of the entry that `bytes` begins with. Its checksum is not checked.
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
        // The bitmap must match the counts in the header, or rows would be read beyond their end.
        // The first row is never a share row: no own row precedes it.
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

    /// Whether the entry is complete and its checksum right. `bytes` are those passed to `read`.
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

    /// The entry, which shares `bytes` (those passed to `read`). Call `is_sound` before.
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
