//! The entries of a frame: whether all are complete and sound.

use base::checksum::crc32c_append;

use super::{EntryLayout, FrameHeader, NotAnEntry};

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

/// Walks the entries of a frame's content and checks each. Stops, with `Err`, at the first that is
/// not sound. The frame is complete if all entries are, and the checksum of checksums is the header's.
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
