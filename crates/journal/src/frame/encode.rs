//! Encodes an entry for writing.

use base::HashSet;
use base::checksum::crc32c_append;
use bytes::Bytes;

use super::{
    ENTRY_CHECKSUM_AT, ENTRY_HEADER_BYTES, ENTRY_VERSION, EntryLayout, bitmap_bytes,
    descriptor_len, entry_checksum_start,
};
use crate::address::Address;
use crate::entry::{Body, Entry, EntryId};

/// An entry ready to be written: its small parts encoded, its checksum known.
#[derive(Debug)]
pub(crate) struct EncodedEntry {
    pub(crate) entry: Entry,
    /// Header and rows.
    pub(crate) descriptor: Bytes,
    pub(crate) checksum: u32,
    /// All bytes of the entry in the frame.
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
        let mut checksum = crc32c_append(entry_checksum_start(&descriptor), &entry.head);
        let encoded = Self {
            entry,
            descriptor: Bytes::new(),
            checksum: 0,
            len: end as u32,
            body_starts: body_starts.into(),
        };
        for (_, bytes) in encoded.written_bodies() {
            checksum = crc32c_append(checksum, bytes);
        }
        descriptor[ENTRY_CHECKSUM_AT..ENTRY_CHECKSUM_AT + 4]
            .copy_from_slice(&checksum.to_le_bytes());
        Self { checksum, descriptor: descriptor.into(), ..encoded }
    }

    /// The entry of this layout at the start of `bytes`, which it shares. The caller has verified
    /// its checksum.
    pub(crate) fn found(layout: &EntryLayout, bytes: &Bytes) -> Self {
        let starts = layout.addresses(bytes, 0, 0).map(|(_, address)| address.position);
        Self {
            entry: layout.entry(bytes),
            descriptor: bytes.slice(..layout.head.start),
            checksum: layout.checksum,
            len: layout.len as u32,
            body_starts: starts.collect(),
        }
    }

    /// The bodies that are written: those of the own rows, each with its row.
    pub(crate) fn written_bodies(&self) -> impl Iterator<Item = (usize, &Bytes)> + '_ {
        let rows = self.entry.bodies.iter().enumerate();
        rows.filter(|(row, _)| !self.is_share(*row)).map(|(row, body)| (row, &body.bytes))
    }

    /// Whether the row shares the body of the row before.
    fn is_share(&self, row: usize) -> bool {
        let Some(before) = row.checked_sub(1) else { return false };
        let start = |row| self.body_starts.get(row);
        // Two bodies begin at the same place only if the first of them is empty.
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
        // Several rows that begin there share the body or are empty: any of them will do.
        self.entry.bodies.get(place)
    }
}

/// For each row, whether it shares the body of the row before; empty if none does. The rows of a
/// body belong to different streams, so that stream and place identify a row.
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
            // The stream has the body already: it is written again for the rows from here on.
            streams.clear();
            streams.insert(pair[1].stream);
        }
    }
    shares
}
