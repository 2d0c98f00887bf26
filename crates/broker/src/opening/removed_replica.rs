//! Files of a replica that was removed from this node ([`RemovedReplica`]): the next start deletes them.

use std::path::{Path, PathBuf};

use base::ShardId;
use consensus::Floor;
use journal::Journal;
use shard::local_shard::{RemovedReplica, ReplicaFiles};
use tasks::Task;
use world::disk::read_whole;
use world::{Disk, World};

use super::directories;
use crate::error::OpenError;

/// Upper bound of the file that records the removal, which is far shorter.
const LEN_MAX: u64 = 4 << 10;

/// Reads a shard's file in the data directory. Blocking.
pub(crate) fn read(
    disk: &dyn Disk,
    dir: &Path,
    shard: ShardId,
) -> Result<Option<RemovedReplica>, OpenError> {
    let name = RemovedReplica::file_name(shard);
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
    RemovedReplica::decode(&bytes).map(Some).ok_or_else(damaged)
}

/// Removes the files of a removed replica, unless the node is a member again, and returns its floor.
pub(crate) async fn prepare(
    world: &World,
    dir: &Path,
    shard: ShardId,
    files: &Path,
    options: &journal::Options,
) -> Result<Option<RemovedReplica>, OpenError> {
    let disk = &*world.disk;
    let Some(mut found) = read(disk, dir, shard)? else { return Ok(None) };
    let writing = |found: &RemovedReplica| {
        let doing = format!("writing that {shard} is given up");
        found.write(disk, dir, shard).map_err(|source| OpenError::Io { doing, source })
    };
    if found.files == ReplicaFiles::Marked {
        let journal = Journal::open(world, files, options.clone())?.journal;
        let now = Floor::of(&journal);
        // Closing waits for the journal's threads.
        let closing = world.workers.blocking(Task::JournalClosing, move || journal.close());
        let _ = closing.await;
        let path = PathBuf::from(files);
        let now = now.map_err(|error| OpenError::Layout { path, reason: error.to_string() })?;
        found.floor = now.max(found.floor);
        found.files =
            if now.last() == found.ended { ReplicaFiles::Removing } else { ReplicaFiles::Removed };
        writing(&found)?;
    }
    if found.files == ReplicaFiles::Removing {
        tracing::info!(%shard, "this node has the shard no more: its files are removed");
        directories::remove_files(disk, files)?;
        let doing = format!("removing the files of {shard}");
        disk.sync_dir(files).map_err(|source| OpenError::Io { doing, source })?;
        found.files = ReplicaFiles::Removed;
        writing(&found)?;
    }
    Ok(Some(found))
}

/// Removes the file: no other node is left that relies on a promise. Blocking.
pub(crate) fn forget(disk: &dyn Disk, dir: &Path, shard: ShardId) -> Result<(), OpenError> {
    if read(disk, dir, shard)?.is_none() {
        return Ok(());
    }
    let path = dir.join(RemovedReplica::file_name(shard));
    let removed = disk.remove(&path).and_then(|()| disk.sync_dir(dir));
    removed
        .map_err(|source| OpenError::Io { doing: format!("removing {}", path.display()), source })
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;
    use std::sync::Arc;

    use consensus::LogEnd;
    use journal::{Entry, EntryId, EntryKind};
    use world::SimulatedDisk;
    use world::disk::replace;

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
    async fn marked_as_removed(disk: &SimulatedDisk) -> RemovedReplica {
        disk.create_dir(Path::new(DIR)).expect("made");
        let journal = open(disk);
        for index in 0..5 {
            append(&journal, index).await;
        }
        let marked = RemovedReplica::of(Floor::of(&journal).expect("a floor"), None);
        marked.write(disk, Path::new(DIR), SHARD).expect("written");
        journal.close();
        marked
    }

    async fn prepared(disk: &SimulatedDisk) -> RemovedReplica {
        let (world, files) = (world(disk), files());
        let found = prepare(&world, Path::new(DIR), SHARD, &files, &options()).await;
        found.expect("it is read").expect("it was given up")
    }

    #[tokio::test]
    async fn files_are_removed_at_the_next_start_and_the_floor_stays() {
        let disk = SimulatedDisk::new();
        let marked = marked_as_removed(&disk).await;
        let found = prepared(&disk).await;
        assert_eq!((found.files, found.floor), (ReplicaFiles::Removed, marked.floor));
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
        assert_eq!(found.files, ReplicaFiles::Removed);
        assert_eq!(found.floor.last(), Some(LogEnd { term: 2, index: 5 }));
        let journal = open(&disk);
        assert_eq!(journal.last_id().map(|id| id.index), Some(5));
        // The replica is removed again before it has all entries that it had before.
        let less = Floor::of(&Journal::clone(&journal)).expect("a floor");
        let again =
            RemovedReplica::of(less, Some(RemovedReplica { floor: less.beyond(9), ..found }));
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
            assert_eq!(
                (found.files, found.floor),
                (ReplicaFiles::Removed, marked.floor),
                "{writes}"
            );
            assert_eq!(open(&disk).last_id(), None, "{writes}");
        }
    }

    #[test]
    fn damaged_removal_file_is_an_error() {
        let disk = SimulatedDisk::new();
        disk.create_dir(Path::new(DIR)).expect("made");
        replace(
            &disk,
            Path::new(DIR),
            &RemovedReplica::file_name(SHARD),
            &mut [IoSlice::new(b"PRgiveup")],
        )
        .expect("made");
        let error = read(&disk, Path::new(DIR), SHARD).expect_err("it is damaged");
        assert!(error.to_string().contains("given-up-3"), "{error}");
        forget(&disk, Path::new(DIR), ShardId(4)).expect("there is none");
    }
}
