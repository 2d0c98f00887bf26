//! Completeness and checksums of a frame's entries.

use base::checksum::crc32c_append;

use super::{BLOCK, EntryLayout, FRAME_HEADER_BYTES, FrameHeader, NotAnEntry};

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

/// Checks each entry of a frame's content. Fails at the first corrupt one. The frame is complete if
/// all entries are sound, and the checksum of checksums is the header's.
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

/// Whether a block of the frame is missing, as after a crash: disks write a block whole or not at
/// all, and the file held zeros before. The header was found, so the first block is present. Zeros
/// within a sound entry are its content.
pub(crate) fn lacks_a_block(header: &FrameHeader, content: &[u8]) -> bool {
    let Some(content) = content.get(..header.content_bytes as usize) else { return true };
    let mut sound_to = 0;
    for _ in 0..header.entries {
        match EntryLayout::read(&content[sound_to..]) {
            Ok(layout) if layout.is_sound(&content[sound_to..]) => sound_to += layout.len,
            _ => break,
        }
    }
    let first = BLOCK - FRAME_HEADER_BYTES;
    let blocks = (first..).step_by(BLOCK).zip(content.get(first..).unwrap_or(&[]).chunks(BLOCK));
    let is_missing = |(at, block): (usize, &[u8])| {
        at + block.len() > sound_to && block.iter().all(|byte| *byte == 0)
    };
    blocks.into_iter().any(is_missing)
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
