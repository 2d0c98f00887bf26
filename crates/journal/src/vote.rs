//! Consensus' vote: a few opaque bytes that must never be forgotten nor half written.
//!
//! ```text
//! 0 magic "PRvt"   4 version u8   5 zero   8 checksum of the rest u32   12 the bytes
//! ```

use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;

use base::checksum::crc32c;
use bytes::Bytes;
use parking_lot::Mutex;

use crate::disk::{self, Disk};
use crate::error::OpenError;

pub(crate) const NAME: &str = "vote";
const MAGIC: [u8; 4] = *b"PRvt";
const VERSION: u8 = 1;
const HEADER_BYTES: usize = 12;

/// The vote as last saved. The lock is held while it is written, so that the last caller wins on
/// disk too.
#[derive(Debug)]
pub(crate) struct Vote(Mutex<Option<Bytes>>);

impl Vote {
    /// A vote that cannot be read is an error: without it a node could vote twice in one term.
    pub(crate) fn load(disk: &Arc<dyn Disk>, dir: &Path) -> Result<Self, OpenError> {
        let path = dir.join(NAME);
        let bytes = match disk::read_whole(&**disk, &path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Self(Mutex::new(None)));
            }
            Err(source) => return Err(OpenError::Io { operation: "read", path, source }),
        };
        match decode(&bytes) {
            Some(vote) => Ok(Self(Mutex::new(Some(vote)))),
            None => {
                let what = "the vote in it is damaged; this node must not vote without it. \
                            Restore the file from a copy";
                Err(OpenError::Unusable { file: path, what: what.to_owned() })
            }
        }
    }

    pub(crate) fn get(&self) -> Option<Bytes> {
        self.0.lock().clone()
    }

    pub(crate) fn save(&self, disk: &dyn Disk, dir: &Path, vote: &[u8]) -> io::Result<()> {
        let mut saved = self.0.lock();
        let mut header = [0; HEADER_BYTES];
        header[..4].copy_from_slice(&MAGIC);
        header[4] = VERSION;
        header[8..].copy_from_slice(&crc32c(vote).to_le_bytes());
        let mut slices = [IoSlice::new(&header), IoSlice::new(vote)];
        disk::replace(disk, dir, NAME, &mut slices)?;
        *saved = Some(Bytes::copy_from_slice(vote));
        Ok(())
    }
}

pub(crate) fn decode(bytes: &[u8]) -> Option<Bytes> {
    let (header, vote) = bytes.split_first_chunk::<HEADER_BYTES>()?;
    let known = header[..4] == MAGIC && header[4] == VERSION && header[5..8] == [0; 3];
    let checksum = crc32c(vote).to_le_bytes();
    (known && header[8..] == checksum).then(|| Bytes::copy_from_slice(vote))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::SimulatedDisk;

    fn saved(votes: &[&[u8]]) -> SimulatedDisk {
        let disk = SimulatedDisk::new();
        disk.create_dir(Path::new("/j")).unwrap();
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let vote = Vote::load(&shared, Path::new("/j")).unwrap();
        for bytes in votes {
            vote.save(&disk, Path::new("/j"), bytes).unwrap();
        }
        disk
    }

    fn load(disk: &SimulatedDisk) -> Result<Option<Bytes>, OpenError> {
        let disk: Arc<dyn Disk> = Arc::new(disk.clone());
        Vote::load(&disk, Path::new("/j")).map(|vote| vote.get())
    }

    #[test]
    fn the_last_saved_vote_survives_any_power_loss() {
        for seed in 0..50 {
            let disk = saved(&[b"one", b"two"]);
            assert_eq!(load(&disk.power_loss(seed)).unwrap().unwrap(), "two");
        }
    }

    #[test]
    fn a_vote_that_was_being_saved_is_the_old_or_the_new() {
        for seed in 0..300 {
            let disk = saved(&[b"one"]);
            disk.cut_power_after(seed % 6);
            let shared: Arc<dyn Disk> = Arc::new(disk.clone());
            let vote = Vote::load(&shared, Path::new("/j")).unwrap();
            let result = vote.save(&disk, Path::new("/j"), b"two");
            let found = load(&disk.power_loss(seed)).unwrap().unwrap();
            assert!(found == "two" || (found == "one" && result.is_err()), "seed {seed}");
        }
    }

    #[test]
    fn a_damaged_vote_is_an_error_and_never_no_vote() {
        let disk = saved(&[b"vote"]);
        for bit in 0..(HEADER_BYTES + 4) * 8 {
            disk.flip_bit(Path::new("/j/vote"), bit as u64 / 8, bit as u8);
            assert!(load(&disk).is_err(), "bit {bit}");
            disk.flip_bit(Path::new("/j/vote"), bit as u64 / 8, bit as u8);
        }
        assert_eq!(load(&disk).unwrap().unwrap(), "vote");
    }
}
