//! An open snapshot file, sent in pieces. An open file can be read even after newer snapshots
//! replaced it.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use base::checksum::{crc32c, crc32c_append};

use super::{CHECKSUM_AT, HEADER_BYTES, file_name, is_known};
use crate::entry::EntryId;
use crate::little_endian::{u32_at, u64_at};
use world::{Disk, DiskFile};

const PIECE_BYTES: usize = 1 << 20;

#[derive(Clone, Debug)]
pub(crate) struct OpenSnapshot {
    pub(crate) id: EntryId,
    file: Arc<dyn DiskFile>,
    pub(crate) meta: SnapshotSection,
    pub(crate) machine: SnapshotSection,
    pub(crate) table: SnapshotSection,
}

/// A section of the file.
#[derive(Clone, Debug)]
pub(crate) struct SnapshotSection {
    place: Range<u64>,
    pub(crate) crc: u32,
}

impl SnapshotSection {
    pub(crate) fn bytes(&self) -> u64 {
        self.place.end - self.place.start
    }
}

impl OpenSnapshot {
    /// Verifies all of it, and keeps none of it in memory. Blocking.
    pub(crate) fn open(disk: &dyn Disk, dir: &Path, index: u64) -> io::Result<Self> {
        Self::read_all(disk.open(&dir.join(file_name(index)), false)?, index)
    }

    /// The same, bypassing the page cache.
    pub(crate) fn open_uncached(disk: &dyn Disk, dir: &Path, index: u64) -> io::Result<Self> {
        Self::read_all(disk.open_uncached(&dir.join(file_name(index)))?, index)
    }

    fn read_all(file: Arc<dyn DiskFile>, index: u64) -> io::Result<Self> {
        let mut header = [0; HEADER_BYTES];
        let read = file.read_at(&mut header, 0)?;
        let id = EntryId {
            index: u64_at(&header, 8),
            term: u64_at(&header, 16),
            leader: u64_at(&header, 24),
        };
        if read < HEADER_BYTES || !is_known(&header) || id.index != index {
            return Err(damaged());
        }
        let len = file.len()?;
        let mut checksum = crc32c(&header[..CHECKSUM_AT]);
        let mut at = HEADER_BYTES as u64;
        let mut part = |length_at: usize| {
            let end = at.checked_add(u64_at(&header, length_at)).filter(|end| *end <= len);
            let place = at..end.ok_or_else(damaged)?;
            at = place.end;
            let mut crc = crc32c(&[]);
            let mut piece = vec![0; PIECE_BYTES.min((place.end - place.start) as usize)];
            let mut from = place.start;
            while from < place.end {
                let want = (place.end - from).min(PIECE_BYTES as u64) as usize;
                let piece = &mut piece[..want];
                if file.read_at(piece, from)? < want {
                    return Err(damaged());
                }
                crc = crc32c_append(crc, piece);
                checksum = crc32c_append(checksum, piece);
                from += want as u64;
            }
            Ok(SnapshotSection { place, crc })
        };
        let (meta, machine, table) = (part(48)?, part(56)?, part(64)?);
        if at != len || checksum != u32_at(&header, CHECKSUM_AT) {
            return Err(damaged());
        }
        Ok(Self { id, file, meta, machine, table })
    }

    pub(crate) fn bytes(&self) -> u64 {
        [&self.meta, &self.machine, &self.table].map(SnapshotSection::bytes).iter().sum()
    }

    /// Up to `bytes_max` bytes of a section, beginning at `from`. Blocking.
    pub(crate) fn read(
        &self,
        part: &SnapshotSection,
        from: u64,
        bytes_max: usize,
    ) -> io::Result<Vec<u8>> {
        let rest = part.bytes().saturating_sub(from).min(bytes_max as u64) as usize;
        let mut bytes = vec![0; rest];
        let read = self.file.read_at(&mut bytes, part.place.start.saturating_add(from))?;
        if read < rest { Err(damaged()) } else { Ok(bytes) }
    }

    pub(crate) fn read_whole(&self, part: &SnapshotSection) -> io::Result<Vec<u8>> {
        self.read(part, 0, usize::MAX)
    }
}

fn damaged() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the snapshot is damaged")
}
