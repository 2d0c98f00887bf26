//! Replaces this node's state by the received one.
//!
//! | step | state after a crash |
//! |---|---|
//! | the log is truncated after the last applied entry; everything appended is durable | the old state |
//! | an empty segment after the received ones, in which the log will continue | the old state: it is removed |
//! | the snapshot, with a table of the live batches here | the new state, and recovery does the next step |
//! | older snapshots and the marker of the import are removed | the new state |
//! | the table is switched and the log purged, as the machine's state is replaced | the new state |
//!
//! Nothing is appended meanwhile. The log before the gap is obsolete from the third step on. An
//! older snapshot would lead there, so none stays. From then on an unreadable snapshot makes the
//! opening fail.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::limits::{SNAPSHOT_ROOM_LOOKED_FOR_EVERY, SNAPSHOT_ROOM_WAITED_FOR};
use bytes::Bytes;
use tasks::Task;
use tokio::sync::oneshot;
use tokio::time::sleep;

use super::import::{Import, ImportError};
use crate::entry::EntryId;
use crate::error::JournalFailed;
use crate::index::RunTable;
use crate::journal::Journal;
use crate::log::LogPosition;
use crate::queue::Jump;
use crate::received::marker;
use crate::segment::{self, FIRST_FRAME, OpenSegment, is_full};
use crate::shared::Shared;
use crate::snapshot::{self, SnapshotFile};
use world::{Instant, World};

/// The sections of another node's snapshot that the journal stores unchanged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReceivedSections {
    pub id: EntryId,
    pub meta: Bytes,
    pub machine: Bytes,
}

/// State of the receiver.
#[derive(Clone, Default, Debug)]
pub struct ReceiverState {
    /// Everything up to this log index was applied.
    pub applied: Option<u64>,
    /// Streams that were removed and created again before the snapshot: local batches belong to the
    /// removed ones.
    pub renewed: Vec<u64>,
}

impl Import {
    /// Whether the disk has room for the files that [`Journal::install`] writes. Queries the disk
    /// and reads nothing.
    pub fn has_room(&self, received: &ReceivedSections) -> bool {
        let shared = &self.shared;
        let sections = (received.meta.len() + received.machine.len()) as u64;
        // The table is not built yet; the size of the current snapshot stands in for it.
        let table = shared.snapshot_bytes.load(Ordering::Relaxed);
        let needed =
            [sections, table, shared.options.segment_bytes, shared.options.disk_reserve_bytes];
        let free = shared.disk.space(&shared.dir).map_or(0, |space| space.free_bytes);
        free >= needed.into_iter().fold(0, u64::saturating_add)
    }
}

impl Journal {
    /// Replaces this journal's state by the received snapshot. Once the snapshot is durable, a
    /// worker's thread calls `replace`, which calls its argument when readers may see the new
    /// batches. Call this while nothing is applied and nothing appended. A failure ends the
    /// journal, since the state on disk is then unknown.
    ///
    /// On success the log is empty, and continues behind the snapshot.
    pub async fn install(
        &self,
        world: &World,
        import: Import,
        received: ReceivedSections,
        here: ReceiverState,
        replace: impl FnOnce(&mut dyn FnMut()) + Send + 'static,
    ) -> Result<(), ImportError> {
        let installed = self.install_steps(world, import, received, here, replace).await;
        if let Err(error) = &installed {
            let error = io::Error::other(error.to_string());
            let shared = self.shared();
            shared.fail(JournalFailed::io("install a snapshot in", shared.dir.clone(), error));
        }
        installed
    }

    async fn install_steps(
        &self,
        world: &World,
        import: Import,
        received: ReceivedSections,
        here: ReceiverState,
        replace: impl FnOnce(&mut dyn FnMut()) + Send + 'static,
    ) -> Result<(), ImportError> {
        let ReceiverState { applied, renewed } = here;
        let shared = Arc::clone(self.shared());
        let journal = self.clone();
        let cut =
            world.workers.blocking(Task::SnapshotWriting, move || journal.truncate_after(applied));
        cut.await.map_err(io::Error::other)?.map_err(io::Error::other)?;
        let (durable, told) = oneshot::channel();
        let flushed = self.append(Vec::new(), move |result| drop(durable.send(result)));
        flushed.map_err(io::Error::other)?;
        told.await.map_err(io::Error::other)?.map_err(io::Error::other)?;

        let id = import.next_number()?;
        let until = Instant::now() + SNAPSHOT_ROOM_WAITED_FOR;
        let to: OpenSegment = loop {
            let (of, made_in) = (world.clone(), Arc::clone(&shared));
            let make =
                move || segment::create(&of, &made_in.dir, id, made_in.options.segment_bytes);
            let made = world.workers.blocking(Task::SnapshotWriting, make).await;
            match made.map_err(io::Error::other)? {
                Err(error) if is_full(&error) && Instant::now() < until => wait_for_room().await,
                made => break made?,
            }
        };
        let (done, told) = oneshot::channel();
        shared.queue.jump(Jump { to, done });
        told.await.map_err(io::Error::other)?;

        let mut parts = Box::new(InstallInputs { import, received, renewed, replace });
        loop {
            let shared = Arc::clone(&shared);
            let switch = move || take_over(&shared, parts);
            let switched = world.workers.blocking(Task::SnapshotWriting, switch).await;
            match switched.map_err(io::Error::other)? {
                Err(InstallFailure::Full(error, left)) if Instant::now() < until => {
                    tracing::debug!(%error, "a snapshot that was received waits for room");
                    parts = left;
                    wait_for_room().await;
                }
                Err(InstallFailure::Full(error, _)) => return Err(error.into()),
                Err(InstallFailure::Import(error)) => return Err(error),
                Ok(()) => return Ok(()),
            }
        }
    }
}

/// Other writers may have used the room that was checked before.
async fn wait_for_room() {
    sleep(SNAPSHOT_ROOM_LOOKED_FOR_EVERY).await;
}

/// Inputs of the installation.
struct InstallInputs<R> {
    import: Import,
    received: ReceivedSections,
    renewed: Vec<u64>,
    replace: R,
}

enum InstallFailure<R> {
    /// Nothing was changed.
    Full(io::Error, Box<InstallInputs<R>>),
    Import(ImportError),
}

impl<R, E: Into<ImportError>> From<E> for InstallFailure<R> {
    fn from(error: E) -> Self {
        Self::Import(error.into())
    }
}

/// The steps from writing the snapshot on.
fn take_over<R: FnOnce(&mut dyn FnMut())>(
    shared: &Shared,
    parts: Box<InstallInputs<R>>,
) -> Result<(), InstallFailure<R>> {
    let expected = parts.import.complete()?;
    let id = parts.received.id;
    if expected.id != id {
        return Err(
            ImportError::Refused("another snapshot than the one whose segments came").into()
        );
    }
    // Changes by concurrent rewrites and deletions would be lost with the old table.
    let _one = shared.index.reclaiming().lock();
    let mut newest = shared.snapshot.lock();
    if newest.is_some_and(|newest| newest.index >= id.index) {
        return Err(ImportError::Refused("an older snapshot than the one that is here").into());
    }
    let table = shared.index.table().read().clone();
    let table =
        table.advanced_to(id.index, &expected.live, &parts.renewed, parts.import.shipped())?;
    let scan_from = shared.log.read().end();
    debug_assert_eq!(scan_from.position, FIRST_FRAME as u32, "nothing is appended meanwhile");
    let file = file(id, scan_from, &parts.received, &table);
    if let Err(error) = file.write(&*shared.disk, &shared.dir) {
        return match is_full(&error) {
            true => Err(InstallFailure::Full(error, parts)),
            false => Err(error.into()),
        };
    }
    let InstallInputs { replace, .. } = *parts;
    settle(shared, &file)?;
    let bytes = file.bytes();
    shared.snapshot_bytes.store(bytes, Ordering::Relaxed);
    let mut table = Some(table);
    replace(&mut || {
        let Some(table) = table.take() else { return };
        shared.index.replace(table, scan_from.segment);
        shared.log.write().purge_despite_pins(id);
        *shared.applying.lock() = Default::default();
    });
    let written = shared.counters.bytes.load(Ordering::Relaxed);
    shared.bytes_at_snapshot.store(written, Ordering::Relaxed);
    *newest = Some(id);
    match table {
        None => Ok(()),
        // The caller failed: the state on disk is not the state served.
        Some(_) => Err(ImportError::Refused("the state was not replaced").into()),
    }
}

fn file(
    id: EntryId,
    scan_from: LogPosition,
    received: &ReceivedSections,
    table: &RunTable,
) -> SnapshotFile {
    let ReceivedSections { meta, machine, .. } = received.clone();
    SnapshotFile { id, scan_from, meta, machine, table: Bytes::from(table.encode()) }
}

/// Makes the written snapshot the only one.
fn settle(shared: &Shared, file: &SnapshotFile) -> io::Result<()> {
    let (disk, dir) = (&*shared.disk, &shared.dir);
    for older in snapshot::list(disk, dir)?.into_iter().filter(|index| *index < file.id.index) {
        disk.remove(&dir.join(snapshot::file_name(older)))?;
    }
    disk.sync_dir(dir)?;
    marker::remove(disk, dir)?;
    disk.sync_dir(dir)?;
    shared.import.lock().from = None;
    Ok(())
}
