//! A frame's header: its place, its predecessor and its content.

use base::checksum::crc32c;

use super::{BLOCK, FRAME_HEADER_BYTES};
use crate::little_endian::{u32_at, u64_at};

const MAGIC: [u8; 4] = *b"PRfr";
const VERSION: u8 = 1;
const CHECKSUM_AT: usize = 48;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FrameHeader {
    /// Length of the frame with header and padding; a multiple of [`BLOCK`].
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

/// Bytes of a frame with this much content.
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

    /// The checksum that the next frame stores as `previous`.
    pub(crate) fn checksum(&self) -> u32 {
        crc32c(&self.encode()[..CHECKSUM_AT])
    }

    pub(crate) fn end(&self) -> u64 {
        u64::from(self.position) + u64::from(self.bytes)
    }
}
