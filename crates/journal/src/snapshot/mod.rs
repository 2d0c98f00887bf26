//! Snapshots: the machine, consensus' metadata and the run table as of one log index, and the
//! position in the log at which recovery continues. A restart costs only the writes since then.
//!
//! ```text
//!  0 magic "PRsn"   4 version u8  5 zero   8 index u64   16 term u64   24 leader u64
//! 32 scan from: segment u32, position u32, previous checksum u32   44 zero
//! 48 bytes of meta u64, of machine u64, of run table u64
//! 72 checksum of bytes 0..72 and of the sections u32   76 zero   80 meta, machine, run table
//! ```
//!
//! Two are kept: the newest, and a fallback in case the newest turns out unreadable.

mod opened;

use base::{Format, Levels};
use std::io::{self, IoSlice};
use std::path::Path;

use base::checksum::{crc32c, crc32c_append};
use bytes::Bytes;

use crate::entry::EntryId;
use crate::log::LogPosition;
use world::disk::{self, Disk};

pub(crate) use opened::{OpenSnapshot, SnapshotSection};

const MAGIC: [u8; 4] = *b"PRsn";
const VERSION: u8 = 1;
const _: () = assert!(VERSION as u32 == Format::SnapshotFile.newest(Levels::OURS.max));
const HEADER_BYTES: usize = 80;
const CHECKSUM_AT: usize = 72;
const KEPT: usize = 2;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SnapshotFile {
    pub(crate) id: EntryId,
    pub(crate) scan_from: LogPosition,
    pub(crate) meta: Bytes,
    pub(crate) machine: Bytes,
    pub(crate) table: Bytes,
}

/// `snapshot-` and the index, so that names sort by index.
pub(crate) fn file_name(index: u64) -> String {
    format!("snapshot-{index:020}")
}

pub(crate) fn parse_name(name: &str) -> Option<u64> {
    let index = name.strip_prefix("snapshot-")?.parse().ok()?;
    (file_name(index) == name).then_some(index)
}

impl SnapshotFile {
    /// Size of the file.
    pub(crate) fn bytes(&self) -> u64 {
        (HEADER_BYTES + self.meta.len() + self.machine.len() + self.table.len()) as u64
    }

    fn header(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[..4].copy_from_slice(&MAGIC);
        out[4] = VERSION;
        let EntryId { index, term, leader } = self.id;
        for (place, number) in [index, term, leader].into_iter().enumerate() {
            out[8 + place * 8..][..8].copy_from_slice(&number.to_le_bytes());
        }
        let LogPosition { segment, position, previous } = self.scan_from;
        for (place, number) in [segment, position, previous].into_iter().enumerate() {
            out[32 + place * 4..][..4].copy_from_slice(&number.to_le_bytes());
        }
        for (place, section) in [&self.meta, &self.machine, &self.table].into_iter().enumerate() {
            out[48 + place * 8..][..8].copy_from_slice(&(section.len() as u64).to_le_bytes());
        }
        let mut checksum = crc32c(&out[..CHECKSUM_AT]);
        for section in [&self.meta, &self.machine, &self.table] {
            checksum = crc32c_append(checksum, section);
        }
        out[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&checksum.to_le_bytes());
        out
    }

    /// Writes it durably, then removes all but the last two. Blocking.
    pub(crate) fn write(&self, disk: &dyn Disk, dir: &Path) -> io::Result<()> {
        let header = self.header();
        let mut slices = [
            IoSlice::new(&header),
            IoSlice::new(&self.meta),
            IoSlice::new(&self.machine),
            IoSlice::new(&self.table),
        ];
        disk::replace(disk, dir, &file_name(self.id.index), &mut slices)?;
        for old in list(disk, dir)?.into_iter().skip(KEPT) {
            disk.remove(&dir.join(file_name(old)))?;
        }
        disk.sync_dir(dir)
    }

    pub(crate) fn decode(bytes: &Bytes) -> Option<Self> {
        let header = bytes.first_chunk::<HEADER_BYTES>()?;
        if !is_known(header) {
            return None;
        }
        let number = |at: usize| Some(u64::from_le_bytes(*header.get(at..)?.first_chunk()?));
        let half = |at: usize| Some(u32::from_le_bytes(*header.get(at..)?.first_chunk()?));
        let checksum = crc32c(&header[..CHECKSUM_AT]);
        if crc32c_append(checksum, &bytes[HEADER_BYTES..]) != half(CHECKSUM_AT)? {
            return None;
        }
        let mut rest = bytes.slice(HEADER_BYTES..);
        let mut section = |at: usize| {
            let len = usize::try_from(number(at)?).ok()?;
            (len <= rest.len()).then(|| rest.split_to(len))
        };
        let (meta, machine, table) = (section(48)?, section(56)?, section(64)?);
        let id = EntryId { index: number(8)?, term: number(16)?, leader: number(24)? };
        let scan_from =
            LogPosition { segment: half(32)?, position: half(36)?, previous: half(40)? };
        rest.is_empty().then_some(Self { id, scan_from, meta, machine, table })
    }
}

/// Whether magic, version and padding are right. The checksum does not cover the padding.
fn is_known(header: &[u8; HEADER_BYTES]) -> bool {
    header[..4] == MAGIC && header[4] == VERSION && header[CHECKSUM_AT + 4..] == [0; 4]
}

/// Indexes of the snapshots in `dir`, newest first.
pub(crate) fn list(disk: &dyn Disk, dir: &Path) -> io::Result<Vec<u64>> {
    let names = disk.list(dir)?;
    let mut indexes: Vec<u64> = names.iter().filter_map(|name| parse_name(name)).collect();
    indexes.sort_unstable_by_key(|index| std::cmp::Reverse(*index));
    Ok(indexes)
}

/// `None` if the file exists but is not a complete snapshot.
pub(crate) fn read(disk: &dyn Disk, dir: &Path, index: u64) -> io::Result<Option<SnapshotFile>> {
    let bytes = Bytes::from(disk::read_whole(disk, &dir.join(file_name(index)))?);
    Ok(SnapshotFile::decode(&bytes).filter(|snapshot| snapshot.id.index == index))
}

#[cfg(test)]
mod tests {
    use super::*;
    use world::SimulatedDisk;

    fn snapshot(index: u64) -> SnapshotFile {
        SnapshotFile {
            id: EntryId { term: 2, leader: 1, index },
            scan_from: LogPosition { segment: 4, position: 512, previous: 99 },
            meta: Bytes::from_static(b"members"),
            machine: Bytes::from(vec![index as u8; 5000]),
            table: Bytes::from_static(b"runs"),
        }
    }

    fn disk() -> SimulatedDisk {
        let disk = SimulatedDisk::new();
        disk.create_dir(Path::new("/j")).unwrap();
        disk
    }

    #[test]
    fn the_two_newest_are_kept_and_read_back() {
        let disk = disk();
        for index in [3, 9, 100] {
            snapshot(index).write(&disk, Path::new("/j")).unwrap();
        }
        assert_eq!(list(&disk, Path::new("/j")).unwrap(), [100, 9]);
        let back = read(&disk, Path::new("/j"), 100).unwrap().unwrap();
        assert_eq!(back, snapshot(100));
    }

    #[test]
    fn a_snapshot_cut_short_by_power_loss_leaves_the_one_before() {
        for seed in 0..300 {
            let disk = disk();
            snapshot(1).write(&disk, Path::new("/j")).unwrap();
            disk.cut_power_after(seed % 7);
            let written = snapshot(2).write(&disk, Path::new("/j"));
            let after = disk.power_loss(seed);
            let one = read(&after, Path::new("/j"), 1).unwrap();
            assert_eq!(one, Some(snapshot(1)), "seed {seed}");
            if list(&after, Path::new("/j")).unwrap()[0] == 2 {
                let two = read(&after, Path::new("/j"), 2).unwrap();
                assert_eq!(two, Some(snapshot(2)), "seed {seed}");
            } else {
                assert!(written.is_err(), "seed {seed}");
            }
        }
    }

    #[test]
    fn a_damaged_snapshot_is_none() {
        let disk = disk();
        snapshot(1).write(&disk, Path::new("/j")).unwrap();
        let path = Path::new("/j").join(file_name(1));
        let len = disk.content(&path).unwrap().len() as u64;
        for position in (0..HEADER_BYTES as u64).chain([80, 90, 3000, len - 1]) {
            disk.flip_bit(&path, position, 3);
            assert_eq!(read(&disk, Path::new("/j"), 1).unwrap(), None, "byte {position}");
            let opened = OpenSnapshot::open(&disk, Path::new("/j"), 1);
            assert!(opened.is_err(), "byte {position}");
            disk.flip_bit(&path, position, 3);
        }
        disk.cut_file(&path, len - 1);
        assert_eq!(read(&disk, Path::new("/j"), 1).unwrap(), None);
    }
}
