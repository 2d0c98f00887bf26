//! Offset up to which each partition is compacted on this disk by housekeeping, where the shard has other members.
//!
//! The machine only records the progress of the group's leaders, each on its own disk. A member without a record of
//! its own progress compacts from the start again, which costs nothing but time. So the file is a hint that may be
//! missing, but it must never claim too much: a snapshot of another member brings batches that are compacted only as
//! far as they were there, so the file is deleted before the first of them is written.
//!
//! ```text
//! 0  magic "PRcompct"   8  version u32   12  count u32, and each partition: topic u32, index u32, offset u64
//!    CRC32C of all before it u32
//! ```

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use base::checksum::crc32c;
use base::{Offset, PartitionId, TopicId};
use parking_lot::Mutex;
use world::Disk;
use world::disk::{read_whole, replace};

const FILE: &str = "compacted";
const MAGIC: &[u8; 8] = b"PRcompct";
const VERSION: u32 = 1;
const ROW_BYTES: usize = 4 + 4 + 8;

#[derive(Debug, Default)]
pub struct CompactionProgress {
    state: Mutex<State>,
    /// Location of the file; none in unit tests.
    place: OnceLock<CompactedFileLocation>,
}

#[derive(Debug)]
struct CompactedFileLocation {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
}

#[derive(Debug, Default)]
struct State {
    offsets: BTreeMap<PartitionId, Offset>,
    /// Counts the snapshots of other members.
    replaced: u64,
    /// A snapshot of another member is about to replace the state.
    is_replaced: bool,
}

/// Identifies the state whose batches a pass examined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamp(u64);

impl CompactionProgress {
    /// Loads the stored offsets, and stores later ones there.
    pub fn keep_in(&self, disk: &Arc<dyn Disk>, dir: &Path) {
        let kept = match read_whole(&**disk, &dir.join(FILE)) {
            Ok(bytes) => decode(&bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Some(BTreeMap::new()),
            Err(_) => None,
        };
        if kept.is_none() {
            tracing::warn!(dir = %dir.display(), "it is not known what is compacted; all is looked at");
        }
        self.state.lock().offsets = kept.unwrap_or_default();
        let _ =
            self.place.set(CompactedFileLocation { disk: Arc::clone(disk), dir: dir.to_owned() });
    }

    pub fn of(&self, partition: PartitionId) -> Offset {
        self.state.lock().offsets.get(&partition).copied().unwrap_or(0)
    }

    /// To be passed to [`Self::record`] after a pass; `None` while another member's snapshot replaces the state.
    pub fn stamp(&self) -> Option<Stamp> {
        let state = self.state.lock();
        (!state.is_replaced).then_some(Stamp(state.replaced))
    }

    /// Records that these partitions are compacted up to these offsets. Blocking.
    pub fn record(&self, stamp: Stamp, done: &[(PartitionId, Offset)]) -> io::Result<()> {
        let mut state = self.state.lock();
        if done.is_empty() || state.is_replaced || Stamp(state.replaced) != stamp {
            return Ok(());
        }
        for &(partition, up_to) in done {
            let known = state.offsets.entry(partition).or_default();
            *known = up_to.max(*known);
        }
        // Under the lock: an outdated file must not be written after its removal.
        let Some(CompactedFileLocation { disk, dir }) = self.place.get() else { return Ok(()) };
        replace(&**disk, dir, FILE, &mut [IoSlice::new(&encode(&state.offsets))])
    }

    pub fn forget(&self, topic: TopicId) {
        let all = PartitionId::new(topic, 0)..=PartitionId::new(topic, u32::MAX);
        self.state.lock().offsets.extract_if(all, |_, _| true).for_each(drop);
    }

    /// The partition's bytes are gone; if they come back, then from another shard.
    pub(crate) fn forget_partition(&self, partition: PartitionId) {
        self.state.lock().offsets.remove(&partition);
    }

    /// Another member's snapshot may replace the state from now on. Durable on return. Blocking.
    pub(crate) fn begin_replacement(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        state.offsets.clear();
        state.replaced += 1;
        state.is_replaced = true;
        let Some(CompactedFileLocation { disk, dir }) = self.place.get() else { return Ok(()) };
        match disk.remove(&dir.join(FILE)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => disk.sync_dir(dir),
        }
    }

    /// The snapshot was installed, or never will be.
    pub fn end_replacement(&self) {
        self.state.lock().is_replaced = false;
    }
}

fn encode(offsets: &BTreeMap<PartitionId, Offset>) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend((offsets.len() as u32).to_le_bytes());
    for (PartitionId { topic, index }, offset) in offsets {
        bytes.extend(topic.0.to_le_bytes());
        bytes.extend(index.to_le_bytes());
        bytes.extend(offset.to_le_bytes());
    }
    bytes.extend(crc32c(&bytes).to_le_bytes());
    bytes
}

/// `None` for a damaged file or a later version.
fn decode(bytes: &[u8]) -> Option<BTreeMap<PartitionId, Offset>> {
    let (content, checksum) = bytes.split_last_chunk::<4>()?;
    let content = content.strip_prefix(MAGIC)?;
    if crc32c(&bytes[..bytes.len() - 4]) != u32::from_le_bytes(*checksum) {
        return None;
    }
    let (version, content) = content.split_first_chunk::<4>()?;
    let (count, rows) = content.split_first_chunk::<4>()?;
    let count = u32::from_le_bytes(*count) as usize;
    if u32::from_le_bytes(*version) != VERSION || rows.len() != count.checked_mul(ROW_BYTES)? {
        return None;
    }
    let row = |row: &[u8]| {
        let (topic, row) = row.split_first_chunk::<4>()?;
        let (index, row) = row.split_first_chunk::<4>()?;
        let offset = u64::from_le_bytes(row.try_into().ok()?);
        let topic = TopicId(u32::from_le_bytes(*topic));
        Some((PartitionId::new(topic, u32::from_le_bytes(*index)), offset))
    };
    rows.chunks_exact(ROW_BYTES).map(row).collect()
}

#[cfg(test)]
mod tests {
    use world::SimulatedDisk;

    use super::*;

    fn opened(disk: &SimulatedDisk) -> CompactionProgress {
        let done = CompactionProgress::default();
        let disk: Arc<dyn Disk> = Arc::new(disk.clone());
        done.keep_in(&disk, Path::new("/shard"));
        done
    }

    fn disk() -> SimulatedDisk {
        let disk = SimulatedDisk::new();
        disk.create_dir(Path::new("/shard")).expect("made");
        disk
    }

    fn partition(topic: u32, index: u32) -> PartitionId {
        PartitionId::new(TopicId(topic), index)
    }

    #[test]
    fn recorded_offsets_survive_a_power_loss_and_a_damaged_file_is_rejected() {
        let disk = disk();
        let done = opened(&disk);
        let stamp = done.stamp().expect("nothing is replaced");
        let all = [(partition(1, 0), 40), (partition(1, 1), 7), (partition(9, 3), 1 << 40)];
        done.record(stamp, &all).expect("written");
        done.record(stamp, &[(partition(1, 0), 30)]).expect("written");
        let disk = disk.power_loss(1);
        let later = opened(&disk);
        for (partition, offset) in all {
            assert_eq!(later.of(partition), offset);
        }
        assert_eq!(later.of(partition(2, 0)), 0);
        let bytes = read_whole(&disk, Path::new("/shard/compacted")).expect("it is there");
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert_eq!(decode(&damaged), None, "byte {at}");
            assert_eq!(decode(&bytes[..at]), None, "cut at {at}");
        }
    }

    #[test]
    fn recorded_offsets_are_forgotten_when_another_members_state_arrives() {
        let disk = disk();
        let done = opened(&disk);
        let stamp = done.stamp().expect("nothing is replaced");
        done.record(stamp, &[(partition(1, 0), 40)]).expect("written");
        done.begin_replacement().expect("removed");
        assert_eq!(done.stamp(), None);
        done.record(stamp, &[(partition(1, 0), 50)]).expect("ignored");
        assert_eq!(done.of(partition(1, 0)), 0);
        assert_eq!(opened(&disk).of(partition(1, 0)), 0, "the file is gone");
        done.end_replacement();
        done.record(stamp, &[(partition(1, 0), 50)]).expect("of before");
        assert_eq!(done.of(partition(1, 0)), 0);
        let stamp = done.stamp().expect("it is replaced");
        done.record(stamp, &[(partition(1, 0), 20)]).expect("written");
        done.forget(TopicId(7));
        assert_eq!(done.of(partition(1, 0)), 20);
        done.forget(TopicId(1));
        assert_eq!(done.of(partition(1, 0)), 0);
    }
}
