//! A rewritten segment: the live batches of a segment, sorted by stream and offset. In a
//! [repaired](crate::transfer) segment a stream may occur more than once; there only the batches of
//! each stream ascend.
//!
//! A block holds batches of one stream: first their descriptors, then their bytes without gaps.
//! Neighbours in a stream are neighbours on disk, and one read serves many. A file is renamed to
//! its final name once its content is durable, so it is complete or absent; the end mark reveals a
//! file truncated by other means.
//!
//! ```text
//! file    header | block... | end
//! header  magic "PRRW" | version u32 | segment u32 | generation u32
//!         | log indexes of the first and the last entry u64, u64 | 12 zeros | crc32c u32
//! block   magic "PRBK" | count u32 | stream u64 | bytes u64 | crc32c of the descriptors u32
//!         | crc32c of this header u32
//!         | count x { base_offset u64, max_timestamp i64, span u32, shared bit and len u32,
//!                     crc32c u32, place u32 }
//!         | the batches
//! end     magic "PREN" | blocks u32 | batches u64 | bytes u64 | 4 zeros | crc32c u32
//! ```
//!
//! A batch shared by several streams is in the file once, with the first of them; the place in the
//! descriptors of the others points to it. A place of 0 means that the batch follows here. The
//! indexes are all ones where they are not known; the shared bit is the highest of the length.
//!
//! Version 2 is written. Version 1 can still be read: its header has no indexes, its descriptors
//! have no place, and no batch is shared.

use std::io::{self, IoSlice};

use base::checksum::crc32c;
use base::{Format, HashMap, Levels};
use bytes::Bytes;

use super::addresses::Addresses;
use super::fields::Fields;
use super::files::Draft;
use crate::address::Address;
use world::DiskFile;

const FILE_MAGIC: [u8; 4] = *b"PRRW";
const BLOCK_MAGIC: [u8; 4] = *b"PRBK";
const END_MAGIC: [u8; 4] = *b"PREN";
const VERSION: u32 = 2;
const _: () = assert!(VERSION == Format::RewrittenSegment.newest(Levels::OURS.max));
const FILE_HEADER_BYTES: usize = 48;
const FILE_HEADER_V1_BYTES: usize = 32;
const INDEXES_AT: usize = 16;
/// Header of a block, and of the end.
const HEADER_BYTES: usize = 32;
const DESCRIPTOR_BYTES: usize = 32;
const DESCRIPTOR_V1_BYTES: usize = 28;
const SHARED_BIT: u32 = 1 << 31;
const NO_INDEX: u64 = u64::MAX;
/// A block is gathered in memory and written with one call.
const BLOCK_BYTES_MAX: usize = 1 << 20;
const BLOCK_BATCHES_MAX: usize = 512;

#[derive(Debug)]
pub(crate) struct BlockWriter {
    segment: u32,
    draft: Draft,
    addresses: Addresses,
    pending: Vec<(Address, PendingBatch)>,
    /// Places in this segment of the shared batches of the segment being rewritten.
    shared: HashMap<u32, WrittenBatch>,
    stream: u64,
    pending_bytes: usize,
    blocks: u32,
    batches: u64,
    bytes: u64,
}

/// A batch waiting for its block.
#[derive(Debug)]
enum PendingBatch {
    Here(Bytes),
    Elsewhere(WrittenBatch),
}

/// A shared batch that is already in the file.
#[derive(Clone, Copy, Debug)]
struct WrittenBatch {
    place: u32,
    len: u32,
    crc: u32,
}

impl BlockWriter {
    pub(crate) fn new(
        mut draft: Draft,
        segment: u32,
        generation: u32,
        indexes: Option<(u64, u64)>,
    ) -> io::Result<Self> {
        let mut header = Vec::with_capacity(FILE_HEADER_BYTES);
        header.extend_from_slice(&FILE_MAGIC);
        for number in [VERSION, segment, generation] {
            header.extend_from_slice(&number.to_le_bytes());
        }
        let (first, last) = indexes.unwrap_or((NO_INDEX, NO_INDEX));
        for index in [first, last] {
            header.extend_from_slice(&index.to_le_bytes());
        }
        header.resize(FILE_HEADER_BYTES - 4, 0);
        seal_header(&mut header);
        debug_assert_eq!(header.len(), FILE_HEADER_BYTES);
        draft.append(&mut [IoSlice::new(&header)])?;
        Ok(Self {
            segment,
            draft,
            addresses: Addresses::new(),
            pending: Vec::new(),
            shared: HashMap::default(),
            stream: 0,
            pending_bytes: 0,
            blocks: 0,
            batches: 0,
            bytes: 0,
        })
    }

    /// The following batches belong to this stream. They may share those of earlier streams.
    pub(crate) fn begin_stream(&mut self, stream: u64) -> io::Result<()> {
        if stream != self.stream {
            self.flush()?;
        }
        self.stream = stream;
        Ok(())
    }

    /// Streams ascend, and so do the batches of each. `old` supplies all fields but place and
    /// length. A shared batch is written once, for all its streams.
    pub(crate) fn push(&mut self, old: Address, bytes: Bytes) -> io::Result<()> {
        self.make_room()?;
        self.pending_bytes += bytes.len();
        self.pending.push((old, PendingBatch::Here(bytes)));
        Ok(())
    }

    /// Pushes the batch at `old` if an earlier stream already wrote it; otherwise returns `false`.
    pub(crate) fn push_shared(&mut self, old: Address) -> io::Result<bool> {
        // A stream has a body only once, so that a body found here belongs to another stream.
        let written = self.shared.get(&old.position).copied();
        let Some(written) = written.filter(|it| it.len == old.len) else { return Ok(false) };
        self.make_room()?;
        self.pending.push((old, PendingBatch::Elsewhere(written)));
        Ok(true)
    }

    /// Whether an earlier stream already wrote the batch at `old`.
    pub(crate) fn has(&self, old: &Address) -> bool {
        old.shared && self.shared.contains_key(&old.position)
    }

    /// Batches pushed from here on share none with those pushed before: their places refer to
    /// another segment.
    pub(crate) fn forget_shared(&mut self) -> io::Result<()> {
        self.flush()?;
        self.shared.clear();
        Ok(())
    }

    fn make_room(&mut self) -> io::Result<()> {
        let full = self.pending_bytes >= BLOCK_BYTES_MAX || self.pending.len() >= BLOCK_BATCHES_MAX;
        if full { self.flush() } else { Ok(()) }
    }

    /// On return the file is durable under the draft's name. Also returns the new addresses.
    pub(crate) fn finish(mut self) -> io::Result<(Draft, Addresses)> {
        self.flush()?;
        let end = block_header(END_MAGIC, self.blocks, self.batches, self.bytes, 0);
        self.draft.append(&mut [IoSlice::new(&end)])?;
        self.draft.sync()?;
        Ok((self.draft, self.addresses))
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let count = self.pending.len();
        let mut descriptors = Vec::with_capacity(count * DESCRIPTOR_BYTES);
        let mut position =
            self.draft.len() + HEADER_BYTES as u64 + (count * DESCRIPTOR_BYTES) as u64;
        for (old, pending) in &self.pending {
            let (address, crc, elsewhere) = match pending {
                PendingBatch::Here(bytes) => {
                    let address = place(self.segment, position, old, bytes.len())?;
                    position += bytes.len() as u64;
                    let crc = crc32c(bytes);
                    if old.shared {
                        let written =
                            WrittenBatch { place: address.position, len: address.len, crc };
                        self.shared.insert(old.position, written);
                    }
                    (address, crc, 0)
                }
                PendingBatch::Elsewhere(WrittenBatch { place, crc, .. }) => {
                    (Address { position: *place, ..*old }, *crc, *place)
                }
            };
            let shared = if address.shared { SHARED_BIT } else { 0 };
            descriptors.extend_from_slice(&address.base_offset.to_le_bytes());
            descriptors.extend_from_slice(&address.max_timestamp.to_le_bytes());
            for number in [address.span, address.len | shared, crc, elsewhere] {
                descriptors.extend_from_slice(&number.to_le_bytes());
            }
            self.addresses.push(self.stream, address);
        }
        let (bytes, crc) = (self.pending_bytes as u64, crc32c(&descriptors));
        let header = block_header(BLOCK_MAGIC, count as u32, self.stream, bytes, crc);
        let mut slices = Vec::with_capacity(2 + count);
        slices.push(IoSlice::new(&header));
        slices.push(IoSlice::new(&descriptors));
        slices.extend(self.pending.iter().filter_map(|(_, pending)| match pending {
            PendingBatch::Here(bytes) => Some(IoSlice::new(bytes)),
            PendingBatch::Elsewhere(_) => None,
        }));
        self.draft.append(&mut slices)?;
        self.blocks += 1;
        self.batches += count as u64;
        self.bytes += bytes;
        self.pending.clear();
        self.pending_bytes = 0;
        Ok(())
    }
}

fn place(segment: u32, position: u64, old: &Address, len: usize) -> io::Result<Address> {
    let too_large = |_| io::Error::new(io::ErrorKind::FileTooLarge, "a rewritten segment");
    let position = u32::try_from(position).map_err(too_large)?;
    let len = u32::try_from(len).map_err(too_large)?;
    Ok(Address { segment, position, len, ..*old })
}

fn block_header(magic: [u8; 4], count: u32, stream: u64, bytes: u64, crc: u32) -> Vec<u8> {
    let mut header = Vec::with_capacity(HEADER_BYTES);
    header.extend_from_slice(&magic);
    header.extend_from_slice(&count.to_le_bytes());
    header.extend_from_slice(&stream.to_le_bytes());
    header.extend_from_slice(&bytes.to_le_bytes());
    header.extend_from_slice(&crc.to_le_bytes());
    seal_header(&mut header);
    debug_assert_eq!(header.len(), HEADER_BYTES);
    header
}

fn seal_header(header: &mut Vec<u8>) {
    let crc = crc32c(header);
    header.extend_from_slice(&crc.to_le_bytes());
}

/// Calls `found` with stream and address of each batch. The batches themselves are not read.
pub(super) fn scan(
    file: &dyn DiskFile,
    segment: u32,
    generation: u32,
    found: &mut dyn FnMut(u64, Address),
) -> io::Result<()> {
    let version = file_version(file, segment, generation)?;
    let mut found = |stream, address, _| found(stream, address);
    let mut position = first_block(version);
    while let Some(next) = block(file, segment, version, position, &mut found)? {
        position = next;
    }
    Ok(())
}

/// Verifies the block at `position` (0: the first) and its batches. Returns the position of the
/// next block, or `None` after the last.
pub(crate) fn check_block(
    file: &dyn DiskFile,
    segment: u32,
    generation: u32,
    position: u64,
) -> io::Result<Option<u64>> {
    let version = file_version(file, segment, generation)?;
    let position = position.max(first_block(version));
    let mut batches = Vec::new();
    let mut found = |_, address, crc| batches.push((address, crc));
    let next = block(file, segment, version, position, &mut found)?;
    for (Address { position: at, len, .. }, crc) in batches {
        // A batch shared with earlier streams is in an earlier block.
        if u64::from(at) < position {
            continue;
        }
        let mut batch = vec![0; len as usize];
        if file.read_at(&mut batch, at.into())? < batch.len() || crc32c(&batch) != crc {
            return Err(damaged(at.into(), "a batch with another checksum"));
        }
    }
    Ok(next)
}

fn first_block(version: u32) -> u64 {
    match version {
        1 => FILE_HEADER_V1_BYTES as u64,
        _ => FILE_HEADER_BYTES as u64,
    }
}

/// Calls `found` with stream, address and checksum of each batch of the block at `position`.
fn block(
    file: &dyn DiskFile,
    segment: u32,
    version: u32,
    position: u64,
    found: &mut dyn FnMut(u64, Address, u32),
) -> io::Result<Option<u64>> {
    let descriptor_bytes = if version == 1 { DESCRIPTOR_V1_BYTES } else { DESCRIPTOR_BYTES };
    let len = file.len()?;
    let (block_at, mut position) = (position, position);
    let header = checked_header::<HEADER_BYTES>(file, position)?;
    let mut fields = Fields::new(&header);
    let magic = fields.array::<4>();
    let (Some(count), Some(stream), Some(bytes), Some(crc)) =
        (fields.u32(), fields.u64(), fields.u64(), fields.u32())
    else {
        return Err(damaged(position, "a short block"));
    };
    position += HEADER_BYTES as u64;
    match magic {
        Some(END_MAGIC) => return Ok(None),
        Some(BLOCK_MAGIC) => {}
        _ => return Err(damaged(position, "neither block nor end")),
    }
    let table_bytes = u64::from(count) * descriptor_bytes as u64;
    if table_bytes.saturating_add(bytes) > len - position.min(len) {
        return Err(damaged(position, "a block longer than the file"));
    }
    let mut table = vec![0; table_bytes as usize];
    if file.read_at(&mut table, position)? < table.len() || crc32c(&table) != crc {
        return Err(damaged(position, "descriptors with another checksum"));
    }
    position += table_bytes;
    let end = position + bytes;
    for descriptor in table.chunks_exact(descriptor_bytes) {
        let (address, crc) = address(segment, position, descriptor, block_at)
            .ok_or_else(|| damaged(position, "a descriptor that makes no sense"))?;
        if u64::from(address.position) == position {
            position += u64::from(address.len);
        }
        found(stream, address, crc);
    }
    match position == end {
        true => Ok(Some(end)),
        false => Err(damaged(position, "a block whose batches do not fill it")),
    }
}

fn address(segment: u32, here: u64, descriptor: &[u8], block_at: u64) -> Option<(Address, u32)> {
    let mut fields = Fields::new(descriptor);
    let base_offset = fields.u64()?;
    let max_timestamp = fields.u64()? as i64;
    let (span, len) = (fields.u32()?, fields.u32()?);
    let (shared, len) = (len & SHARED_BIT != 0, len & !SHARED_BIT);
    base_offset.checked_add(u64::from(span))?;
    let crc = fields.u32()?;
    let position = match fields.u32() {
        None | Some(0) => u32::try_from(here).ok()?,
        Some(place) => {
            // Places only refer back to earlier blocks.
            let end = u64::from(place) + u64::from(len);
            let sensible = shared && place as usize >= FILE_HEADER_BYTES && end <= block_at;
            sensible.then_some(place)?
        }
    };
    let address = Address { segment, position, len, span, base_offset, max_timestamp, shared };
    Some((address, crc))
}

fn file_version(file: &dyn DiskFile, segment: u32, generation: u32) -> io::Result<u32> {
    let mut start = [0; 8];
    file.read_at(&mut start, 0)?;
    let mut fields = Fields::new(&start);
    let (magic, version) = (fields.array(), fields.u32());
    if magic != Some(FILE_MAGIC) {
        return Err(damaged(0, "not the header of a rewritten segment"));
    }
    let numbers = |header: &[u8]| {
        let mut fields = Fields::new(header);
        (fields.u64(), fields.u32(), fields.u32())
    };
    let (version, (_, of, generation_of)) = match version {
        Some(1) => (1, numbers(&checked_header::<FILE_HEADER_V1_BYTES>(file, 0)?)),
        Some(VERSION) => (VERSION, numbers(&checked_header::<FILE_HEADER_BYTES>(file, 0)?)),
        _ => return Err(damaged(0, "a version that this program does not know")),
    };
    if (of, generation_of) != (Some(segment), Some(generation)) {
        return Err(damaged(0, "not the header of this segment and generation"));
    }
    Ok(version)
}

/// Log indexes of the first and last entry with a batch in the file.
pub(super) fn indexes(
    file: &dyn DiskFile,
    segment: u32,
    generation: u32,
) -> io::Result<Option<(u64, u64)>> {
    if file_version(file, segment, generation)? == 1 {
        return Ok(None);
    }
    let header = checked_header::<FILE_HEADER_BYTES>(file, 0)?;
    let mut fields = Fields::new(&header[INDEXES_AT..]);
    let indexes = fields.u64().zip(fields.u64());
    Ok(indexes.filter(|(first, _)| *first != NO_INDEX))
}

fn checked_header<const N: usize>(file: &dyn DiskFile, position: u64) -> io::Result<[u8; N]> {
    let mut header = [0; N];
    if file.read_at(&mut header, position)? < N {
        return Err(damaged(position, "the file ends early"));
    }
    let (content, crc) = header.split_at(N - 4);
    if crc32c(content).to_le_bytes() != crc {
        return Err(damaged(position, "a header with another checksum"));
    }
    Ok(header)
}

fn damaged(position: u64, what: &str) -> io::Error {
    let what = format!("rewritten segment damaged at {position}: {what}");
    io::Error::new(io::ErrorKind::InvalidData, what)
}
