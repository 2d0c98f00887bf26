//! Shards whose replica was removed from this node: it was a member of their groups, and is none any more.
//!
//! A file beside the shard's directory records this, and the node's promises in the group ([`consensus::Floor`]). It
//! is written once the group's leader has confirmed by committed entries that the node is no member. The shard's own
//! files are in use, so they stay until the node restarts; the floor then covers the promises made meanwhile.
//!
//! States of the file, and the action of the next start:
//!
//! * marked, with the log end as it was when the file was written: the floor is taken from the shard's files, `going`
//! * marked, with another log end: the node is a member again, the files stay, `gone`
//! * going: the files are removed, `gone`
//! * gone: none, and the floor holds for any later replica of the shard on this node
//!
//! The log of a node that rejoins changes its end before its replica counts: the entry that makes the node a member
//! comes after all entries that it had.
//!
//! ```text
//!  0  magic "PRgiveup"   8  version u32   12  state u8
//! 13  where the log ended: 1 if it had entries u8, term u64, index u64
//! 30  length u32, and the floor
//!     CRC32C of all before it u32
//! ```
//!
//! Numbers are little-endian.

use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};

use base::checksum::crc32c;
use base::{Format, Levels, ShardId};
use bytes::{Buf, BufMut};
use consensus::{Floor, LogEnd};
use journal::Journal;
use tasks::Task;
use world::disk::{read_whole, replace};
use world::{Disk, World};

use crate::directories;
use crate::error::OpenError;

const MAGIC: &[u8; 8] = b"PRgiveup";
const VERSION: u32 = 1;
const _: () = assert!(VERSION == Format::GivenUp.newest(Levels::OURS.max));
/// Upper bound; the file is far shorter.
const LEN_MAX: u64 = 4 << 10;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Files {
    /// To be removed at the next start, unless the log has changed by then.
    Marked,
    Going,
    /// The files were removed; any that exist are newer.
    Gone,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct GivenUp {
    pub(crate) files: Files,
    /// End of the log when the replica was removed.
    pub(crate) ended: Option<LogEnd>,
    pub(crate) floor: Floor,
}

impl GivenUp {
    /// Marks the replica as removed. The floor includes that of an earlier removal.
    pub(crate) fn of(floor: Floor, before: Option<Self>) -> Self {
        let promised = before.map_or(floor, |before| floor.max(before.floor));
        Self { files: Files::Marked, ended: floor.last(), floor: promised }
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        out.put_slice(MAGIC);
        out.put_u32_le(VERSION);
        out.put_u8(match self.files {
            Files::Marked => 1,
            Files::Going => 2,
            Files::Gone => 3,
        });
        let LogEnd { term, index } = self.ended.unwrap_or_default();
        out.put_u8(self.ended.is_some().into());
        out.put_u64_le(term);
        out.put_u64_le(index);
        let floor = self.floor.encode();
        out.put_u32_le(floor.len() as u32);
        out.put_slice(&floor);
        out.put_u32_le(crc32c(&out));
        out
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (content, checksum) = bytes.split_last_chunk::<4>()?;
        if crc32c(content).to_le_bytes() != *checksum {
            return None;
        }
        let mut content = content.strip_prefix(MAGIC)?;
        if content.try_get_u32_le().ok()? != VERSION {
            return None;
        }
        let files = match content.try_get_u8().ok()? {
            1 => Files::Marked,
            2 => Files::Going,
            3 => Files::Gone,
            _ => return None,
        };
        let had_entries = content.try_get_u8().ok()? == 1;
        let (term, index) = (content.try_get_u64_le().ok()?, content.try_get_u64_le().ok()?);
        let ended = had_entries.then_some(LogEnd { term, index });
        let length = content.try_get_u32_le().ok()? as usize;
        let floor = content.get(..length).filter(|_| content.len() == length)?;
        Some(Self { files, ended, floor: Floor::decode(floor).ok()? })
    }

    /// Durable on return. Blocking.
    pub(crate) fn write(&self, disk: &dyn Disk, dir: &Path, shard: ShardId) -> io::Result<()> {
        replace(disk, dir, &name(shard), &mut [IoSlice::new(&self.encode())])
    }
}

fn name(shard: ShardId) -> String {
    format!("given-up-{}", shard.0)
}

/// Reads a shard's file in the data directory. Blocking.
pub(crate) fn read(
    disk: &dyn Disk,
    dir: &Path,
    shard: ShardId,
) -> Result<Option<GivenUp>, OpenError> {
    let name = name(shard);
    let path = dir.join(&name);
    let doing = |source| OpenError::Io { doing: format!("reading {}", path.display()), source };
    if !disk.list(dir).map_err(doing)?.contains(&name) {
        return Ok(None);
    }
    let length = disk.open(&path, false).and_then(|file| file.len()).map_err(doing)?;
    let bytes =
        if length <= LEN_MAX { read_whole(disk, &path).map_err(doing)? } else { Vec::new() };
    let damaged = || {
        OpenError::Layout {
        path: path.clone(),
        reason: "it says what this node had promised when it gave the shard up, and is damaged: restore it as it \
                 was, or have a new node with an empty data directory take this one's place"
            .to_owned(),
    }
    };
    GivenUp::decode(&bytes).map(Some).ok_or_else(damaged)
}

/// Removes the files of a removed replica, unless the node is a member again, and returns its floor.
pub(crate) async fn prepare(
    world: &World,
    dir: &Path,
    shard: ShardId,
    files: &Path,
    options: &journal::Options,
) -> Result<Option<GivenUp>, OpenError> {
    let disk = &*world.disk;
    let Some(mut found) = read(disk, dir, shard)? else { return Ok(None) };
    let writing = |found: &GivenUp| {
        let doing = format!("writing that {shard} is given up");
        found.write(disk, dir, shard).map_err(|source| OpenError::Io { doing, source })
    };
    if found.files == Files::Marked {
        let journal = Journal::open(world, files, options.clone())?.journal;
        let now = Floor::of(&journal);
        // Closing waits for the journal's threads.
        let closing = world.workers.blocking(Task::JournalClosing, move || journal.close());
        let _ = closing.await;
        let path = PathBuf::from(files);
        let now = now.map_err(|error| OpenError::Layout { path, reason: error.to_string() })?;
        found.floor = now.max(found.floor);
        found.files = if now.last() == found.ended { Files::Going } else { Files::Gone };
        writing(&found)?;
    }
    if found.files == Files::Going {
        tracing::info!(%shard, "this node has the shard no more: its files are removed");
        directories::remove_files(disk, files)?;
        let doing = format!("removing the files of {shard}");
        disk.sync_dir(files).map_err(|source| OpenError::Io { doing, source })?;
        found.files = Files::Gone;
        writing(&found)?;
    }
    Ok(Some(found))
}

/// Removes the file: no other node is left that relies on a promise. Blocking.
pub(crate) fn forget(disk: &dyn Disk, dir: &Path, shard: ShardId) -> Result<(), OpenError> {
    if read(disk, dir, shard)?.is_none() {
        return Ok(());
    }
    let path = dir.join(name(shard));
    let removed = disk.remove(&path).and_then(|()| disk.sync_dir(dir));
    removed
        .map_err(|source| OpenError::Io { doing: format!("removing {}", path.display()), source })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use journal::{Entry, EntryId, EntryKind};
    use proptest::prelude::*;
    use world::SimulatedDisk;

    use super::*;

    const SHARD: ShardId = ShardId(3);
    const DIR: &str = "/data";

    fn options() -> journal::Options {
        journal::Options {
            segment_bytes: 1 << 20,
            disk_reserve_bytes: 0,
            keep_log: true,
            ..journal::Options::default()
        }
    }

    fn files() -> PathBuf {
        Path::new(DIR).join("shard-3")
    }

    fn world(disk: &SimulatedDisk) -> World {
        World::on(Arc::new(disk.clone()))
    }

    fn open(disk: &SimulatedDisk) -> Journal {
        Journal::open(&world(disk), &files(), options()).expect("it opens").journal
    }

    async fn append(journal: &Journal, index: u64) {
        let id = EntryId { term: 2, leader: 1, index };
        let (head, bodies) = (Default::default(), Vec::new());
        let (done, durable) = tokio::sync::oneshot::channel();
        let entry = Entry { id, kind: EntryKind::Blank, head, bodies };
        journal.append(vec![entry], move |result| drop(done.send(result))).expect("it takes it");
        durable.await.expect("it says so").expect("it is durable");
    }

    /// A shard with entries 0 to 4, whose replica is marked as removed.
    async fn marked_as_removed(disk: &SimulatedDisk) -> GivenUp {
        disk.create_dir(Path::new(DIR)).expect("made");
        let journal = open(disk);
        for index in 0..5 {
            append(&journal, index).await;
        }
        let marked = GivenUp::of(Floor::of(&journal).expect("a floor"), None);
        marked.write(disk, Path::new(DIR), SHARD).expect("written");
        journal.close();
        marked
    }

    async fn prepared(disk: &SimulatedDisk) -> GivenUp {
        let (world, files) = (world(disk), files());
        let found = prepare(&world, Path::new(DIR), SHARD, &files, &options()).await;
        found.expect("it is read").expect("it was given up")
    }

    #[tokio::test]
    async fn files_are_removed_at_the_next_start_and_the_floor_stays() {
        let disk = SimulatedDisk::new();
        let marked = marked_as_removed(&disk).await;
        let found = prepared(&disk).await;
        assert_eq!((found.files, found.floor), (Files::Gone, marked.floor));
        assert_eq!(found.floor.last(), Some(LogEnd { term: 2, index: 4 }));
        let journal = open(&disk);
        assert_eq!(journal.last_id(), None, "its log is empty");
        append(&journal, 0).await;
        journal.close();
        // Newer files are not removed.
        assert_eq!(prepared(&disk).await, found);
        assert!(open(&disk).last_id().is_some());
    }

    #[tokio::test]
    async fn files_and_floor_of_a_rejoined_shard_stay() {
        let disk = SimulatedDisk::new();
        marked_as_removed(&disk).await;
        let journal = open(&disk);
        append(&journal, 5).await;
        journal.close();
        let found = prepared(&disk).await;
        assert_eq!(found.files, Files::Gone);
        assert_eq!(found.floor.last(), Some(LogEnd { term: 2, index: 5 }));
        let journal = open(&disk);
        assert_eq!(journal.last_id().map(|id| id.index), Some(5));
        // The replica is removed again before it has all entries that it had before.
        let less = Floor::of(&Journal::clone(&journal)).expect("a floor");
        let again = GivenUp::of(less, Some(GivenUp { floor: less.beyond(9), ..found }));
        assert_eq!(again.ended, less.last());
        assert_eq!(again.floor.last(), less.beyond(9).last());
        journal.close();
    }

    #[tokio::test]
    async fn power_loss_at_any_moment_keeps_the_floor() {
        for writes in 0..60 {
            let disk = SimulatedDisk::new();
            let marked = marked_as_removed(&disk).await;
            let mut disk = disk.power_loss(writes);
            // The power fails while the files are removed, and again.
            for turn in 0..2 {
                disk.cut_power_after(writes / 2 + turn);
                let (world, files) = (world(&disk), files());
                let _ = prepare(&world, Path::new(DIR), SHARD, &files, &options()).await;
                disk = disk.power_loss(writes + turn);
            }
            let found = prepared(&disk).await;
            assert_eq!((found.files, found.floor), (Files::Gone, marked.floor), "{writes}");
            assert_eq!(open(&disk).last_id(), None, "{writes}");
        }
    }

    #[test]
    fn damaged_removal_file_is_an_error() {
        let disk = SimulatedDisk::new();
        disk.create_dir(Path::new(DIR)).expect("made");
        replace(&disk, Path::new(DIR), &name(SHARD), &mut [IoSlice::new(b"PRgiveup")])
            .expect("made");
        let error = read(&disk, Path::new(DIR), SHARD).expect_err("it is damaged");
        assert!(error.to_string().contains("given-up-3"), "{error}");
        forget(&disk, Path::new(DIR), ShardId(4)).expect("there is none");
    }

    proptest! {
        #[test]
        fn changed_or_cut_removal_file_is_rejected(
            position in any::<prop::sample::Index>(),
            bit in 0..8_u8,
            length in any::<prop::sample::Index>(),
        ) {
            let floor = Floor::decode(&[1, 0, 0]).expect("an empty floor");
            let found = GivenUp { files: Files::Going, ended: Some(LogEnd { term: 7, index: 9 }), floor };
            let bytes = found.encode();
            prop_assert_eq!(GivenUp::decode(&bytes), Some(found));
            let mut changed = bytes.clone();
            changed[position.index(bytes.len())] ^= 1 << bit;
            prop_assert_eq!(GivenUp::decode(&changed), None);
            prop_assert_eq!(GivenUp::decode(&bytes[..length.index(bytes.len())]), None);
        }
    }
}
