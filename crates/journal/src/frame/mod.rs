//! Format of a segment: frames, each of them one group commit, each holding whole entries.
//!
//! A frame is the unit of loss. One checksum decides whether it is complete. Its header holds its
//! place (segment, position) and the checksum of its predecessor (`previous`, across segments). A
//! frame that was moved, repeated or left over from a former use of the blocks is therefore never
//! read as part of the log.
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
//! A body that goes to several streams is written once. Its first row is an own row; the others are
//! share rows behind it. A share row has its own stream and base offset, and takes everything else
//! from the nearest own row before it. The base offset in the bytes of such a body is valid for
//! none of its rows: a reader replaces it by the row's own offset.
//!
//! Entries of version 1 (its byte is 0) have a header of 40 bytes and own rows only. They are read.
//!
//! The appending thread computes the entry's checksum, which leaves little work for the journal's
//! thread between two syncs. An entry that is read alone needs only this checksum.
//!
//! * [`header`]: the frame's header
//! * [`encode`]: encodes an entry for writing
//! * [`decode`]: decodes an entry from untrusted bytes
//! * [`content`]: completeness and checksums of a frame's entries

mod content;
mod decode;
mod encode;
mod header;
pub(crate) mod reader;
#[cfg(test)]
mod tests;

use base::checksum::{crc32c, crc32c_append};

pub(crate) use content::{EntriesChecksum, check_content, lacks_a_block, layouts};
pub(crate) use decode::EntryLayout;
pub use decode::NotAnEntry;
pub(crate) use encode::EncodedEntry;
pub(crate) use header::{FrameHeader, frame_bytes};

/// Disks write this many bytes whole or not at all; frames begin at multiples of it.
pub(crate) const BLOCK: usize = 512;
pub(crate) const FRAME_HEADER_BYTES: usize = 64;
const ENTRY_HEADER_BYTES: usize = 48;
const ENTRY_HEADER_V1_BYTES: usize = 40;
const OWN_ROW_BYTES: usize = 32;
const SHARE_ROW_BYTES: usize = 16;

const ENTRY_VERSION: u8 = 2;
/// Value of the version byte before there were versions.
const ENTRY_VERSION_1: u8 = 0;
const ENTRY_VERSION_AT: usize = 33;
const ENTRY_CHECKSUM_AT: usize = 36;

// So a torn write never leaves half a header.
const _: () = assert!(FRAME_HEADER_BYTES <= BLOCK);

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
