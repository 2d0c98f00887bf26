//! Marker file: segments from an id on came from another node and do not belong to the log.
//!
//! ```text
//! 0 magic "PRim"   4 version u32   8 the first such segment u32   12 crc32c of bytes 0..12 u32
//! ```
//! It is written before the first of them, and removed once a snapshot has them, or before they are
//! discarded. The log's own ids stay below: without the marker recovery would report the ids in
//! between as missing.

use std::io::{self, IoSlice};
use std::path::Path;

use base::checksum::crc32c;

use crate::index::files::{FileKind, parse_name};
use crate::little_endian::u32_at;
use crate::snapshot::{self, SnapshotFile};
use world::disk::{self, Disk};

pub(crate) const NAME: &str = "import";
const MAGIC: [u8; 4] = *b"PRim";
const VERSION: u32 = 1;
const BYTES: usize = 16;

pub(crate) fn write(disk: &dyn Disk, dir: &Path, from: u32) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(BYTES);
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&from.to_le_bytes());
    let crc = crc32c(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    disk::replace(disk, dir, NAME, &mut [IoSlice::new(&bytes)])
}

/// Durable once the directory is synced.
pub(crate) fn remove(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
    match disk.remove(&dir.join(NAME)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn decode(bytes: &[u8]) -> Option<u32> {
    let whole = bytes.len() == BYTES && bytes[..4] == MAGIC && u32_at(bytes, 4) == VERSION;
    (whole && u32_at(bytes, 12) == crc32c(&bytes[..12])).then(|| u32_at(bytes, 8))
}

/// Evaluates the marker during recovery, given the snapshot to start from. Returns the first
/// segment of another node that is still to be installed. Removes the remains of an unfinished
/// attempt.
pub(crate) fn recover(
    disk: &dyn Disk,
    dir: &Path,
    names: &mut Vec<String>,
    snapshot: Option<&SnapshotFile>,
) -> io::Result<Option<u32>> {
    if !names.iter().any(|name| name == NAME) {
        return Ok(None);
    }
    let Some(from) = decode(&disk::read_whole(disk, &dir.join(NAME))?) else {
        tracing::error!("which segments came from another node cannot be read: they are given up");
        return remove_named(disk, dir, names, |name| name == NAME).map(|()| None);
    };
    match snapshot {
        // The snapshot has them. There is no log from an older one up to it.
        Some(newest) if newest.scan_from.segment >= from => {
            let newest = newest.id.index;
            let older = |name: &str| snapshot::parse_name(name).is_some_and(|index| index < newest);
            remove_named(disk, dir, names, older)?;
            remove_named(disk, dir, names, |name| name == NAME)?;
            Ok(None)
        }
        // The log was about to continue behind them, and nothing was written there.
        _ => {
            let next = |name: &str| {
                parse_name(name).is_some_and(|(kind, id, generation)| {
                    kind == FileKind::Segment && id >= from && generation == 1
                })
            };
            remove_named(disk, dir, names, next)?;
            Ok(Some(from))
        }
    }
}

fn remove_named(
    disk: &dyn Disk,
    dir: &Path,
    names: &mut Vec<String>,
    remove: impl Fn(&str) -> bool,
) -> io::Result<()> {
    for name in names.extract_if(.., |name| remove(name)) {
        disk.remove(&dir.join(name))?;
    }
    disk.sync_dir(dir)
}

#[cfg(test)]
mod tests {
    use super::*;
    use world::SimulatedDisk;

    #[test]
    fn marker_is_read_back_and_a_damaged_one_is_ignored() {
        let disk = SimulatedDisk::new();
        let dir = Path::new("/j");
        disk.create_dir(dir).unwrap();
        write(&disk, dir, 70_000).unwrap();
        let bytes = disk.content(&dir.join(NAME)).unwrap();
        assert_eq!(decode(&bytes), Some(70_000));
        for place in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[place] ^= 1;
            assert_eq!(decode(&bad), None, "byte {place}");
            assert_eq!(decode(&bytes[..place]), None, "cut to {place}");
        }
        let mut names = vec![NAME.to_owned(), "00070000.seg".to_owned()];
        disk.open(&dir.join("00070000.seg"), true).unwrap();
        assert_eq!(recover(&disk, dir, &mut names, None).unwrap(), Some(70_000));
        assert_eq!(names, [NAME]);
        remove(&disk, dir).unwrap();
        remove(&disk, dir).unwrap();
        assert_eq!(disk.list(dir).unwrap(), Vec::<String>::new());
    }
}
