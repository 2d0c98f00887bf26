//! A rewritten segment: what is live of a segment, sorted by stream and offset.
//!
//! A block holds batches of one stream, their descriptors first and then their bytes without
//! anything between: neighbours in a stream are neighbours on disk, and one read serves many.
//! The file gets its name after its content is durable, so it is complete or absent; the end mark
//! is there to tell a file that was cut by somebody else.
//!
//! ```text
//! file    header | block... | end
//! header  magic "PRRW" | version u32 | segment u32 | generation u32 | 12 zeros | crc32c u32
//! block   magic "PRBK" | count u32 | stream u64 | bytes u64 | crc32c of the descriptors u32
//!         | crc32c of this header u32
//!         | count x { base_offset u64, max_timestamp i64, span u32, len u32, crc32c u32 }
//!         | the batches
//! end     magic "PREN" | blocks u32 | batches u64 | bytes u64 | 4 zeros | crc32c u32
//! ```

use std::io::{self, IoSlice};

use base::checksum::crc32c;
use bytes::Bytes;

use super::fields::Fields;
use super::files::Draft;
use super::table::Addresses;
use crate::address::Address;
use crate::disk::DiskFile;

const FILE_MAGIC: [u8; 4] = *b"PRRW";
const BLOCK_MAGIC: [u8; 4] = *b"PRBK";
const END_MAGIC: [u8; 4] = *b"PREN";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 32;
const DESCRIPTOR_BYTES: usize = 28;
/// A block is gathered in memory and written with one call.
const BLOCK_BYTES_MAX: usize = 1 << 20;
const BLOCK_BATCHES_MAX: usize = 512;

#[derive(Debug)]
pub(crate) struct BlockWriter {
    segment: u32,
    draft: Draft,
    addresses: Addresses,
    pending: Vec<(Address, Bytes)>,
    stream: u64,
    pending_bytes: usize,
    blocks: u32,
    batches: u64,
    bytes: u64,
}

impl BlockWriter {
    pub(crate) fn new(mut draft: Draft, segment: u32, generation: u32) -> io::Result<Self> {
        let mut header = Vec::with_capacity(HEADER_BYTES);
        header.extend_from_slice(&FILE_MAGIC);
        for number in [VERSION, segment, generation, 0, 0, 0] {
            header.extend_from_slice(&number.to_le_bytes());
        }
        seal_header(&mut header);
        draft.append(&mut [IoSlice::new(&header)])?;
        Ok(Self {
            segment,
            draft,
            addresses: Addresses::new(),
            pending: Vec::new(),
            stream: 0,
            pending_bytes: 0,
            blocks: 0,
            batches: 0,
            bytes: 0,
        })
    }

    /// Streams ascend, and the batches of a stream. `old` tells everything but place and length.
    pub(crate) fn push(&mut self, stream: u64, old: Address, bytes: Bytes) -> io::Result<()> {
        let full = self.pending_bytes >= BLOCK_BYTES_MAX || self.pending.len() >= BLOCK_BATCHES_MAX;
        if full || stream != self.stream {
            self.flush()?;
        }
        self.stream = stream;
        self.pending_bytes += bytes.len();
        self.pending.push((old, bytes));
        Ok(())
    }

    /// Everything is durable on return, under the passing name. The addresses in it, too.
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
        let addresses = self.addresses.entry(self.stream).or_default();
        for (old, bytes) in &self.pending {
            let address = place(self.segment, position, old, bytes.len())?;
            descriptors.extend_from_slice(&address.base_offset.to_le_bytes());
            descriptors.extend_from_slice(&address.max_timestamp.to_le_bytes());
            descriptors.extend_from_slice(&address.span.to_le_bytes());
            descriptors.extend_from_slice(&address.len.to_le_bytes());
            descriptors.extend_from_slice(&crc32c(bytes).to_le_bytes());
            addresses.push(address);
            position += bytes.len() as u64;
        }
        let (bytes, crc) = (self.pending_bytes as u64, crc32c(&descriptors));
        let header = block_header(BLOCK_MAGIC, count as u32, self.stream, bytes, crc);
        let mut slices = Vec::with_capacity(2 + count);
        slices.push(IoSlice::new(&header));
        slices.push(IoSlice::new(&descriptors));
        slices.extend(self.pending.iter().map(|(_, bytes)| IoSlice::new(bytes)));
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
    header
}

fn seal_header(header: &mut Vec<u8>) {
    let crc = crc32c(header);
    header.extend_from_slice(&crc.to_le_bytes());
    debug_assert_eq!(header.len(), HEADER_BYTES);
}

/// Calls `found` with stream and address of each batch. The batches themselves are not read.
pub(super) fn scan(
    file: &dyn DiskFile,
    segment: u32,
    generation: u32,
    found: &mut dyn FnMut(u64, Address),
) -> io::Result<()> {
    let header = checked_header(file, 0)?;
    let mut fields = Fields::new(&header);
    let (magic, numbers) = (fields.array(), [fields.u32(), fields.u32(), fields.u32()]);
    let expected = [VERSION, segment, generation].map(Some);
    if magic != Some(FILE_MAGIC) || numbers != expected {
        return Err(damaged(0, "not the header of this segment and generation"));
    }
    let len = file.len()?;
    let mut position = HEADER_BYTES as u64;
    loop {
        let header = checked_header(file, position)?;
        let mut fields = Fields::new(&header);
        let magic = fields.array::<4>();
        let (Some(count), Some(stream), Some(bytes), Some(crc)) =
            (fields.u32(), fields.u64(), fields.u64(), fields.u32())
        else {
            return Err(damaged(position, "a short block"));
        };
        position += HEADER_BYTES as u64;
        match magic {
            Some(END_MAGIC) => return Ok(()),
            Some(BLOCK_MAGIC) => {}
            _ => return Err(damaged(position, "neither block nor end")),
        }
        let table_bytes = u64::from(count) * DESCRIPTOR_BYTES as u64;
        if table_bytes.saturating_add(bytes) > len - position.min(len) {
            return Err(damaged(position, "a block longer than the file"));
        }
        let mut table = vec![0; table_bytes as usize];
        if file.read_at(&mut table, position)? < table.len() || crc32c(&table) != crc {
            return Err(damaged(position, "descriptors with another checksum"));
        }
        position += table_bytes;
        let end = position + bytes;
        for descriptor in table.chunks_exact(DESCRIPTOR_BYTES) {
            let address = address(segment, position, descriptor)
                .ok_or_else(|| damaged(position, "a descriptor that makes no sense"))?;
            position += u64::from(address.len);
            found(stream, address);
        }
        if position != end {
            return Err(damaged(position, "a block whose batches do not fill it"));
        }
    }
}

fn address(segment: u32, position: u64, descriptor: &[u8]) -> Option<Address> {
    let mut fields = Fields::new(descriptor);
    let base_offset = fields.u64()?;
    let max_timestamp = fields.u64()? as i64;
    let (span, len) = (fields.u32()?, fields.u32()?);
    base_offset.checked_add(u64::from(span))?;
    let position = u32::try_from(position).ok()?;
    Some(Address { segment, position, len, span, base_offset, max_timestamp })
}

fn checked_header(file: &dyn DiskFile, position: u64) -> io::Result<[u8; HEADER_BYTES]> {
    let mut header = [0; HEADER_BYTES];
    if file.read_at(&mut header, position)? < HEADER_BYTES {
        return Err(damaged(position, "the file ends early"));
    }
    let (content, crc) = header.split_at(HEADER_BYTES - 4);
    if crc32c(content).to_le_bytes() != crc {
        return Err(damaged(position, "a header with another checksum"));
    }
    Ok(header)
}

fn damaged(position: u64, what: &str) -> io::Error {
    let what = format!("rewritten segment damaged at {position}: {what}");
    io::Error::new(io::ErrorKind::InvalidData, what)
}
