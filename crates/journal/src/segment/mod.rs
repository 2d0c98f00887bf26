//! A segment's file: a header block, then frames up to its end.
//!
//! ```text
//! 0 magic "PRsg"  4 version u8  5 zero  8 id u32  12 salt u32  16 bytes of the file u64
//! 24 checksum of bytes 0..24 u32   28 zero ... 512
//! ```
//!
//! The header is durable before the file is renamed to its final name, so a segment without one is
//! damage.
//!
//! The first segment of a journal is created *bare*: only a header, marked as such. A journal
//! without entries takes no more disk space. The first frame allocates its blocks; once these are
//! durable, the header records the length. A crash in between leaves a file that is longer than the
//! length in its header, as is a segment with one large entry.
//!
//! Version 2 marks that entries of version 2 may follow. A program that knows only version 1 would
//! mistake them for a torn end and cut them, so it must refuse the whole segment. Version 1 can
//! still be read.
//!
//! The salt differs from segment to segment, so that client bytes at a possible frame position
//! never pass for a frame.
//!
//! * `spares`: preallocates the next segment

mod spares;

use base::{Format, Levels};
use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;

use base::checksum::crc32c;

use crate::frame::BLOCK;
use crate::index::files::{FileKind, file_name};
use world::{DiskFile, World};

pub(crate) use spares::{NoSpare, PreallocationState, Preparer, RETRY_AFTER, Signals, Spares};

const MAGIC: [u8; 4] = *b"PRsg";
const VERSION: u8 = 2;
const _: () = assert!(VERSION as u32 == Format::Segment.newest(Levels::OURS.max));
const CHECKSUM_AT: usize = 24;

/// Start of a segment's first frame.
pub(crate) const FIRST_FRAME: u64 = BLOCK as u64;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SegmentHeader {
    pub(crate) id: u32,
    pub(crate) salt: u32,
    /// Minimum length of the file.
    pub(crate) bytes: u64,
    version: u8,
}

impl SegmentHeader {
    pub(crate) fn new(id: u32, salt: u32, bytes: u64) -> Self {
        Self { id, salt, bytes, version: VERSION }
    }

    /// Whether entries of the current version may be written to it.
    pub(crate) fn takes_entries(&self) -> bool {
        self.version == VERSION
    }

    /// Rewrites the header of an empty segment of an older version in this version. One block: it
    /// is written whole or not at all.
    pub(crate) fn upgrade(&mut self, file: &dyn DiskFile) -> io::Result<()> {
        self.version = VERSION;
        file.write_at(&mut [IoSlice::new(&self.encode())], 0)?;
        file.sync()
    }

    /// Records the file's new length, which is durable. One block: it is written whole or not at
    /// all, and both contents are valid. Durable with the next sync.
    pub(crate) fn write_bytes(&mut self, file: &dyn DiskFile, bytes: u64) -> io::Result<()> {
        let longer = Self { bytes, ..*self };
        file.write_at(&mut [IoSlice::new(&longer.encode())], 0)?;
        *self = longer;
        Ok(())
    }

    fn encode(&self) -> [u8; BLOCK] {
        let mut out = [0; BLOCK];
        out[0..4].copy_from_slice(&MAGIC);
        out[4] = self.version;
        out[8..12].copy_from_slice(&self.id.to_le_bytes());
        out[12..16].copy_from_slice(&self.salt.to_le_bytes());
        out[16..24].copy_from_slice(&self.bytes.to_le_bytes());
        let checksum = crc32c(&out[..CHECKSUM_AT]);
        out[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&checksum.to_le_bytes());
        out
    }

    fn decode(block: &[u8; BLOCK]) -> Option<Self> {
        let checksum = u32::from_le_bytes(*block[CHECKSUM_AT..].first_chunk()?);
        let version = block[4];
        let known = block[..4] == MAGIC && (1..=VERSION).contains(&version);
        if !known || crc32c(&block[..CHECKSUM_AT]) != checksum {
            return None;
        }
        Some(Self {
            id: u32::from_le_bytes(*block[8..].first_chunk()?),
            salt: u32::from_le_bytes(*block[12..].first_chunk()?),
            bytes: u64::from_le_bytes(*block[16..].first_chunk()?),
            version,
        })
    }

    /// `None` when the file does not begin with a segment's header.
    pub(crate) fn read(file: &dyn DiskFile) -> io::Result<Option<Self>> {
        let mut block = [0; BLOCK];
        file.read_at(&mut block, 0)?;
        Ok(Self::decode(&block))
    }
}

/// A segment that frames can be written to.
#[derive(Clone, Debug)]
pub(crate) struct OpenSegment {
    pub(crate) header: SegmentHeader,
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) file_bytes: u64,
}

impl OpenSegment {
    /// Whether it has no room for a frame, and never had.
    pub(crate) fn is_bare(&self) -> bool {
        self.file_bytes == FIRST_FRAME
    }
}

/// Creates a segment without room for a frame, durably.
pub(crate) fn create_bare(world: &World, dir: &Path, id: u32) -> io::Result<OpenSegment> {
    create(world, dir, id, FIRST_FRAME)
}

/// Creates a segment, durably. An error leaves nothing that makes a later call fail.
pub(crate) fn create(world: &World, dir: &Path, id: u32, bytes: u64) -> io::Result<OpenSegment> {
    let disk = &*world.disk;
    let name = file_name(FileKind::Segment, id, 1);
    let draft = dir.join(format!("{name}.tmp"));
    match disk.remove(&draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = disk.open(&draft, true)?;
    let header = SegmentHeader::new(id, world.entropy.u32(), bytes);
    let filled = fill(&*file, &header).and_then(|()| disk.rename(&draft, &dir.join(&name)));
    match filled {
        Ok(()) => {
            disk.sync_dir(dir)?;
            Ok(OpenSegment { header, file, file_bytes: bytes })
        }
        Err(error) => {
            // The disk may be full: free the blocks.
            let _ = disk.remove(&draft);
            Err(error)
        }
    }
}

fn fill(file: &dyn DiskFile, header: &SegmentHeader) -> io::Result<()> {
    file.allocate(header.bytes)?;
    file.write_at(&mut [IoSlice::new(&header.encode())], 0)?;
    file.sync()
}

/// A segment that the log no longer writes to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FullSegment {
    pub(crate) segment: u32,
    pub(crate) last_index: u64,
    pub(crate) file_bytes: u64,
}

/// End of the log at which the journal's thread starts to write.
#[derive(Debug)]
pub(crate) struct WriteEnd {
    pub(crate) segment: OpenSegment,
    pub(crate) position: u64,
    pub(crate) previous: u32,
    pub(crate) last_index: u64,
}

/// Whether a file cannot grow for lack of space, which is temporary.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use world::{Disk, SimulatedDisk};

    fn world(disk: &SimulatedDisk) -> World {
        World::on(Arc::new(disk.clone()))
    }

    #[test]
    fn header_is_read_back_and_any_flipped_bit_is_refused() {
        let header = SegmentHeader::new(7, 0x5a17, 1 << 20);
        let block = header.encode();
        assert_eq!(SegmentHeader::decode(&block), Some(header));
        for bit in 0..28 * 8 {
            let mut block = block;
            block[bit / 8] ^= 1 << (bit % 8);
            let decoded = SegmentHeader::decode(&block);
            assert!(decoded.is_none() || (5..8).contains(&(bit / 8)), "bit {bit}");
        }
    }

    #[test]
    fn header_of_version_1_takes_entries_only_after_its_upgrade() {
        let disk = SimulatedDisk::new();
        let dir = Path::new("/j");
        disk.create_dir(dir).unwrap();
        let OpenSegment { header, file, .. } = create(&world(&disk), dir, 1, 1 << 20).unwrap();
        assert!(header.takes_entries());
        let old = SegmentHeader { version: 1, ..header };
        file.write_at(&mut [IoSlice::new(&old.encode())], 0).unwrap();
        let mut read = SegmentHeader::read(&*file).unwrap().unwrap();
        assert!(read == old && !read.takes_entries());
        read.upgrade(&*file).unwrap();
        assert_eq!(SegmentHeader::read(&*file).unwrap(), Some(header));
        let newer = SegmentHeader { version: 3, ..header };
        assert_eq!(SegmentHeader::decode(&newer.encode()), None);
    }

    #[test]
    fn a_full_disk_leaves_nothing_behind() {
        let disk = SimulatedDisk::new();
        let dir = Path::new("/j");
        disk.create_dir(dir).unwrap();
        disk.set_capacity(Some(1 << 20));
        assert!(create(&world(&disk), dir, 1, 2 << 20).is_err());
        assert_eq!(disk.list(dir).unwrap(), Vec::<String>::new());
        create(&world(&disk), dir, 1, 1 << 19).unwrap();
        assert_eq!(disk.list(dir).unwrap(), ["00000001.seg"]);
    }
}
