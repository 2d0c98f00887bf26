//! Consensus' vote: a few opaque bytes that must never be lost nor half written.
//!
//! Two slots, written alternately: one write and one sync save a vote, and the previous one stays
//! intact meanwhile. A slot holds two copies, in a block each, so that damage to one block of the
//! last vote is not mistaken for a write torn by a power loss, for which the older slot exists.
//!
//! ```text
//! file    slot, slot      a slot: 512 bytes, and a second copy
//! 0 magic "PRvt"   4 version u8   5 zero   6 bytes of the vote u16   8 checksum of the rest u32
//! 12 number u64, one more than that of the other slot   20 the vote, zeros up to 512
//! ```
//!
//! The file is created with the journal and holds an empty vote of number 0: saving the first vote
//! on a full disk would otherwise stop the node.
//!
//! The checksum covers bytes 0..8 and those from 12 to the end of the block. Version 1 can still be
//! read: magic, version and checksum, then the vote up to the end of the file, which was replaced
//! as a whole. The first vote saved replaces it by a file of version 2.

use base::{Format, Levels};
use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;

use base::checksum::{crc32c, crc32c_append};
use bytes::Bytes;
use parking_lot::Mutex;

use crate::error::OpenError;
use crate::frame::BLOCK;
use world::disk::{self, Disk, DiskFile};

pub(crate) const NAME: &str = "vote";
const MAGIC: [u8; 4] = *b"PRvt";
const VERSION: u8 = 2;
const _: () = assert!(VERSION as u32 == Format::Vote.newest(Levels::OURS.max));
const CHECKSUM_AT: usize = 8;
const NUMBER_AT: usize = 12;
const VOTE_AT: usize = 20;
const VOTE_BYTES_MAX: usize = BLOCK - VOTE_AT;
const SLOT_BYTES: usize = 2 * BLOCK;
const FILE_BYTES: usize = 2 * SLOT_BYTES;
const HEADER_V1_BYTES: usize = 12;

/// The last vote saved. The lock is held during the write, so that the last caller wins on disk
/// too.
#[derive(Debug)]
pub(crate) struct Vote(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    vote: Option<Bytes>,
    /// Number of the slot written last.
    number: u64,
    /// `None` while there is no file of this version, and after a failed write, when the page cache
    /// may differ from the disk.
    file: Option<Arc<dyn DiskFile>>,
}

impl Vote {
    /// A vote that cannot be read is an error: without it a node could vote twice in one term.
    pub(crate) fn load(disk: &Arc<dyn Disk>, dir: &Path) -> Result<Self, OpenError> {
        let path = dir.join(NAME);
        let io_error = |operation| {
            let path = path.clone();
            move |source| OpenError::Io { operation, path, source }
        };
        let file = match disk.open(&path, false) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Self(Mutex::default()));
            }
            Err(source) => return Err(io_error("read")(source)),
        };
        let bytes = disk::read_whole(&**disk, &path).map_err(io_error("read"))?;
        let state = if let Some(vote) = decode_v1(&bytes) {
            State { vote: Some(vote), number: 0, file: None }
        } else if let Some((number, vote)) = newest(&bytes) {
            // A killed process may have left it in the page cache only.
            file.sync().map_err(io_error("sync"))?;
            State { vote: Some(vote).filter(|vote| !vote.is_empty()), number, file: Some(file) }
        } else {
            let what = "the vote in it is damaged; this node must not vote without it. \
                        Restore the file from a copy";
            return Err(OpenError::Unusable { file: path, what: what.to_owned() });
        };
        Ok(Self(Mutex::new(state)))
    }

    /// Creates the file, if missing. Call it once the first segment exists: a vote without one is
    /// refused.
    pub(crate) fn make_room(&self, disk: &dyn Disk, dir: &Path) -> io::Result<()> {
        let mut state = self.0.lock();
        if state.vote.is_none() && state.file.is_none() {
            state.file = Some(make(disk, dir, 0, &encode(0, &[]))?);
        }
        Ok(())
    }

    pub(crate) fn get(&self) -> Option<Bytes> {
        self.0.lock().vote.clone()
    }

    pub(crate) fn save(&self, disk: &dyn Disk, dir: &Path, vote: &[u8]) -> io::Result<()> {
        if vote.len() > VOTE_BYTES_MAX {
            let what = format!("a vote of {} bytes, {VOTE_BYTES_MAX} at most", vote.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let mut state = self.0.lock();
        let number = state.number + 1;
        let block = encode(number, vote);
        match state.file.take() {
            Some(file) => {
                let position = number % 2 * SLOT_BYTES as u64;
                file.write_at(&mut [IoSlice::new(&block), IoSlice::new(&block)], position)?;
                file.sync()?;
                state.file = Some(file);
            }
            None => state.file = Some(make(disk, dir, number, &block)?),
        }
        state.vote = Some(Bytes::copy_from_slice(vote));
        state.number = number;
        Ok(())
    }
}

/// Creates a file with this block in one of its slots.
fn make(
    disk: &dyn Disk,
    dir: &Path,
    number: u64,
    block: &[u8; BLOCK],
) -> io::Result<Arc<dyn DiskFile>> {
    let mut slots = vec![0; FILE_BYTES];
    let slot = (number % 2) as usize * SLOT_BYTES;
    for copy in slots[slot..slot + SLOT_BYTES].chunks_exact_mut(BLOCK) {
        copy.copy_from_slice(block);
    }
    disk::replace(disk, dir, NAME, &mut [IoSlice::new(&slots)])?;
    disk.open(&dir.join(NAME), false)
}

fn encode(number: u64, vote: &[u8]) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    block[..4].copy_from_slice(&MAGIC);
    block[4] = VERSION;
    block[6..8].copy_from_slice(&(vote.len() as u16).to_le_bytes());
    block[NUMBER_AT..VOTE_AT].copy_from_slice(&number.to_le_bytes());
    block[VOTE_AT..VOTE_AT + vote.len()].copy_from_slice(vote);
    let checksum = checksum(&block);
    block[CHECKSUM_AT..NUMBER_AT].copy_from_slice(&checksum.to_le_bytes());
    block
}

fn checksum(block: &[u8; BLOCK]) -> u32 {
    crc32c_append(crc32c(&block[..CHECKSUM_AT]), &block[NUMBER_AT..])
}

/// Number and vote of an intact block.
fn decode_block(block: &[u8]) -> Option<(u64, Bytes)> {
    let block = block.first_chunk::<BLOCK>()?;
    let known = block[..4] == MAGIC && block[4] == VERSION;
    let stored = u32::from_le_bytes(*block[CHECKSUM_AT..].first_chunk()?);
    if !known || checksum(block) != stored {
        return None;
    }
    let len = usize::from(u16::from_le_bytes(*block[6..].first_chunk()?));
    let vote = block[VOTE_AT..].get(..len)?;
    Some((u64::from_le_bytes(*block[NUMBER_AT..].first_chunk()?), Bytes::copy_from_slice(vote)))
}

/// The newest readable vote.
fn newest(bytes: &[u8]) -> Option<(u64, Bytes)> {
    if bytes.len() != FILE_BYTES {
        return None;
    }
    bytes.chunks_exact(BLOCK).filter_map(decode_block).max_by_key(|(number, _)| *number)
}

fn decode_v1(bytes: &[u8]) -> Option<Bytes> {
    let (header, vote) = bytes.split_first_chunk::<HEADER_V1_BYTES>()?;
    let known = header[..4] == MAGIC && header[4] == 1 && header[5..8] == [0; 3];
    let checksum = crc32c(vote).to_le_bytes();
    (known && header[8..] == checksum).then(|| Bytes::copy_from_slice(vote))
}

/// The vote in a file of any version; `None` when it is damaged.
pub(crate) fn decode(bytes: &[u8]) -> Option<Bytes> {
    decode_v1(bytes).or_else(|| newest(bytes).map(|(_, vote)| vote))
}

#[cfg(test)]
mod tests {
    use super::*;
    use world::SimulatedDisk;

    const DIR: &str = "/j";

    fn saved(votes: &[&[u8]]) -> SimulatedDisk {
        let disk = SimulatedDisk::new();
        disk.create_dir(Path::new(DIR)).unwrap();
        save(&disk, votes).unwrap();
        disk
    }

    /// Opens the vote as a starting node does, and saves these.
    fn save(disk: &SimulatedDisk, votes: &[&[u8]]) -> io::Result<()> {
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let vote = Vote::load(&shared, Path::new(DIR)).map_err(io::Error::other)?;
        votes.iter().try_for_each(|bytes| vote.save(disk, Path::new(DIR), bytes))
    }

    fn load(disk: &SimulatedDisk) -> Result<Option<Bytes>, OpenError> {
        let disk: Arc<dyn Disk> = Arc::new(disk.clone());
        Vote::load(&disk, Path::new(DIR)).map(|vote| vote.get())
    }

    /// A vote file of version 1.
    fn version_1(vote: &[u8]) -> SimulatedDisk {
        let disk = saved(&[]);
        let mut header = [0; HEADER_V1_BYTES];
        header[..4].copy_from_slice(&MAGIC);
        header[4] = 1;
        header[8..].copy_from_slice(&crc32c(vote).to_le_bytes());
        let mut slices = [IoSlice::new(&header), IoSlice::new(vote)];
        disk::replace(&disk, Path::new(DIR), NAME, &mut slices).unwrap();
        disk
    }

    #[test]
    fn the_last_saved_vote_survives_any_power_loss() {
        for count in 1..5 {
            let votes: [&[u8]; 4] = [b"one", b"two", b"three", b"four"];
            for seed in 0..50 {
                let disk = saved(&votes[..count]);
                let found = load(&disk.power_loss(seed)).unwrap().unwrap();
                assert_eq!(found, votes[count - 1], "seed {seed}");
            }
        }
    }

    #[test]
    fn interrupted_save_leaves_the_old_or_the_new_vote() {
        let before: [&[&[u8]]; 3] = [&[b"one"], &[b"zero", b"one"], &[b"minus", b"zero", b"one"]];
        for votes in before {
            for step in 0..6 {
                for seed in 0..40 {
                    let disk = saved(votes);
                    disk.cut_power_after(step);
                    let result = save(&disk, &[b"two"]);
                    let after = disk.power_loss(seed);
                    let found = load(&after).unwrap().unwrap();
                    assert!(found == "two" || (found == "one" && result.is_err()), "seed {seed}");
                    // A recovered vote is durable: another power loss at once keeps it.
                    let again = load(&after.power_loss(seed + 1)).unwrap().unwrap();
                    assert_eq!(again, found, "step {step}, seed {seed}");
                }
            }
        }
    }

    #[test]
    fn a_vote_is_one_write_and_one_sync() {
        let disk = saved(&[b"one"]);
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let vote = Vote::load(&shared, Path::new(DIR)).unwrap();
        for _ in 0..3 {
            let before = disk.operations();
            vote.save(&disk, Path::new(DIR), b"next").unwrap();
            assert_eq!(disk.operations() - before, 2);
        }
    }

    #[test]
    fn first_vote_is_saved_on_a_full_disk() {
        let disk = saved(&[]);
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        Vote::load(&shared, Path::new(DIR)).unwrap().make_room(&disk, Path::new(DIR)).unwrap();
        assert_eq!(load(&disk).unwrap(), None);
        disk.set_capacity(Some(FILE_BYTES as u64));
        save(&disk, &[b"one"]).unwrap();
        let found = load(&disk.power_loss(7)).unwrap().unwrap();
        assert_eq!(found, "one");
    }

    #[test]
    fn a_torn_slot_leaves_the_one_before() {
        let disk = saved(&[b"zero", b"one", b"two"]);
        let path = Path::new("/j/vote");
        // Both blocks of the third vote, the second slot in the file, are damaged.
        let slot = SLOT_BYTES as u64;
        for copy in 0..2 {
            disk.flip_bit(path, slot + copy * BLOCK as u64 + VOTE_AT as u64, 1);
        }
        assert_eq!(load(&disk).unwrap().unwrap(), "one");
        // The damaged slot is written next.
        save(&disk, &[b"again"]).unwrap();
        assert_eq!(load(&disk).unwrap().unwrap(), "again");
    }

    #[test]
    fn one_flipped_bit_anywhere_neither_loses_the_vote_nor_brings_back_an_older_one() {
        for votes in [&[&b"one"[..]][..], &[b"one", b"two"], &[b"one", b"two", b"three"]] {
            let disk = saved(votes);
            for position in 0..FILE_BYTES as u64 {
                disk.flip_bit(Path::new("/j/vote"), position, position as u8 % 8);
                let found = load(&disk).unwrap().unwrap();
                assert_eq!(found, *votes.last().unwrap(), "byte {position}");
                disk.flip_bit(Path::new("/j/vote"), position, position as u8 % 8);
            }
        }
    }

    #[test]
    fn damaged_vote_is_an_error_and_never_reads_as_no_vote() {
        let disk = saved(&[b"vote"]);
        let path = Path::new("/j/vote");
        for copy in 0..4 {
            disk.damage(path, copy * BLOCK as u64, &[0xff; 8]);
        }
        assert!(load(&disk).is_err());
        let disk = saved(&[b"vote"]);
        disk.cut_file(path, 700);
        assert!(load(&disk).is_err());
        let disk = version_1(b"vote");
        for bit in 0..(HEADER_V1_BYTES + 4) * 8 {
            disk.flip_bit(path, bit as u64 / 8, bit as u8 % 8);
            assert!(load(&disk).is_err(), "bit {bit}");
            disk.flip_bit(path, bit as u64 / 8, bit as u8 % 8);
        }
        assert_eq!(load(&disk).unwrap().unwrap(), "vote");
    }

    #[test]
    fn vote_of_version_1_survives_power_loss_during_its_upgrade() {
        for step in 0..8 {
            for seed in 0..40 {
                let disk = version_1(b"one");
                disk.cut_power_after(step);
                let result = save(&disk, &[b"two"]);
                let found = load(&disk.power_loss(seed)).unwrap().unwrap();
                assert!(found == "two" || (found == "one" && result.is_err()), "seed {seed}");
            }
        }
    }

    #[test]
    fn slot_has_golden_bytes() {
        let block = encode(3, b"vote");
        let golden =
            [&b"PRvt\x02\x00\x04\x00"[..], &block[8..12], &[3, 0, 0, 0, 0, 0, 0, 0], b"vote"];
        assert_eq!(block[..24], golden.concat());
        assert!(block[24..].iter().all(|byte| *byte == 0));
        assert_eq!(decode_block(&block), Some((3, Bytes::from_static(b"vote"))));
        let disk = saved(&[]);
        let too_long = save(&disk, &[&[0; VOTE_BYTES_MAX + 1]]);
        assert_eq!(too_long.unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
