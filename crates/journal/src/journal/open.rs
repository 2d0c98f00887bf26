//! Opens a journal: recovers it, builds its parts from the result, then starts the threads.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tasks::Task;
use tokio::sync::Notify;
use world::{Disk, Instant, World};

use super::threads::Threads;
use super::{Inner, Journal, OpenedJournal, Snapshot};
use crate::entry::EntryId;
use crate::error::{OpenError, ReadError};
use crate::index::files::{FileKind, file_name};
use crate::index::{Index, Setup};
use crate::log::Log;
use crate::options::Options;
use crate::queue::Queue;
use crate::read::Reader;
use crate::recover::{RecoveredJournal, Sizes, recover};
use crate::segment::{FullSegment, PreallocationState, Signals, Spares};
use crate::shared::{Counters, DurableEnd, Hooks, ImportState, Shared};
use crate::snapshot::SnapshotFile;
use crate::stats::SegmentInfo;
use crate::vote::Vote;

impl Journal {
    /// Opens the journal in `dir` after recovery, or creates it.
    pub fn open(world: &World, dir: &Path, options: Options) -> Result<OpenedJournal, OpenError> {
        let disk = &world.disk;
        let begun = Instant::now();
        options.check()?;
        let io_error = |operation| {
            let path = dir.to_owned();
            move |source| OpenError::Io { operation, path, source }
        };
        disk.create_dir(dir).map_err(io_error("make"))?;
        let claim = disk.lock(dir).map_err(|source| match source.kind() {
            io::ErrorKind::WouldBlock => OpenError::InUse { dir: dir.to_owned() },
            _ => io_error("lock")(source),
        })?;
        let vote = Vote::load(disk, dir)?;
        let sizes =
            Sizes { tail_cache_bytes: options.tail_cache_bytes, keep_log: options.keep_log };
        let mut recovered = recover(world, dir, sizes)?;
        vote.make_room(&**disk, dir).map_err(io_error("make the vote in"))?;
        let covered = recovered.snapshot.as_ref().map(|file| file.id);
        let snapshot_bytes = recovered.snapshot.as_ref().map_or(0, SnapshotFile::bytes);
        let snapshot = recovered.snapshot.take().map(|file| Snapshot {
            bytes: file.bytes(),
            id: file.id,
            meta: file.meta,
            machine: file.machine,
        });
        let mut report = std::mem::take(&mut recovered.report);
        let journal = Self::start(world, dir, options, vote, recovered, covered, claim)?;
        journal.inner.shared.snapshot_bytes.store(snapshot_bytes, Ordering::Relaxed);
        report.took = begun.elapsed();
        tracing::info!("{report}");
        Ok(OpenedJournal { journal, snapshot, report })
    }

    fn start(
        world: &World,
        dir: &Path,
        options: Options,
        vote: Vote,
        recovered: RecoveredJournal,
        snapshot: Option<EntryId>,
        claim: Box<dyn Send + Sync>,
    ) -> Result<Self, OpenError> {
        let disk = &world.disk;
        let RecoveredJournal {
            log,
            end,
            spare,
            table,
            scan_from,
            import,
            full,
            replaced,
            bytes,
            ..
        } = recovered;
        let older = !end.segment.header.takes_entries();
        let next_id = end.segment.header.id + 1 + u32::from(spare.is_some());
        let asleep = end.segment.is_bare() && spare.is_none();
        let found = PreallocationState { ready: spare, next_id, asleep };
        let log = Arc::new(Log::new(disk.clone(), dir, log));
        let setup = Setup {
            disk: disk.clone(),
            dir: dir.to_owned(),
            log: log.clone(),
            sidecar_cache_bytes: options.sidecar_cache_bytes,
            check: options.check,
            repairable: options.repairable,
        };
        let index = Arc::new(Index::open(setup, table, scan_from.segment, import)?);
        left_before(disk, dir, &options, &index, scan_from.segment, snapshot)
            .map_err(|source| OpenError::Io { operation: "measure", path: dir.into(), source })?;
        for FullSegment { segment, last_index, file_bytes } in full {
            index.full(segment, last_index, file_bytes);
        }
        let unreadable = |error: ReadError| OpenError::Unusable {
            file: dir.to_owned(),
            what: format!("an entry that was replaced cannot be read: {error}"),
        };
        for (entry, slot) in replaced {
            for (stream, address) in log.stored_bodies(entry, &slot).map_err(unreadable)? {
                index.refuse(0, stream, address);
            }
        }
        let signals = Signals::default();
        let spares = Spares::new(
            world.clone(),
            dir.to_owned(),
            options.segment_bytes,
            options.disk_reserve_bytes,
            found,
            signals.clone(),
        );
        let threads_error =
            |source| OpenError::Io { operation: "start threads for", path: dir.to_owned(), source };
        let readers = options.readers;
        let shared = Arc::new(Shared {
            disk: disk.clone(),
            dir: dir.to_owned(),
            options,
            log,
            index,
            queue: Queue::new(signals.writer.clone()),
            spares,
            vote,
            counters: Counters::new(),
            durable_end: DurableEnd::new(end.segment.header.id, end.position),
            hooks: Hooks::default(),
            failed: OnceLock::new(),
            drained: Notify::new(),
            placed: Notify::new(),
            refusing: Mutex::default(),
            applying: Mutex::default(),
            snapshot: Mutex::new(snapshot),
            snapshot_bytes: AtomicU64::new(0),
            // Wraps: the byte counter starts at 0 with each opening.
            bytes_at_snapshot: AtomicU64::new(0_u64.wrapping_sub(bytes)),
            import: Mutex::new(ImportState { from: import, busy: false }),
        });
        let on_panic = shared.clone().panicked(Task::JournalReader);
        let reader = Reader::new(shared.index.clone(), &world.workers, readers, on_panic)
            .map_err(threads_error)?;
        if older {
            shared.queue.roll();
        }
        let threads =
            Threads::start(&world.workers, &shared, &signals, end, claim).map_err(threads_error)?;
        Ok(Self { inner: Arc::new(Inner { shared, reader, threads: Mutex::new(Some(threads)) }) })
    }
}

/// Reports segments that the log left before the snapshot as full, in case the snapshot was taken
/// before the index knew that.
fn left_before(
    disk: &Arc<dyn Disk>,
    dir: &Path,
    options: &Options,
    index: &Index,
    scan_segment: u32,
    snapshot: Option<EntryId>,
) -> io::Result<()> {
    let Some(snapshot) = snapshot else { return Ok(()) };
    let left = |info: &SegmentInfo| info.id < scan_segment && !info.sealed;
    for SegmentInfo { id, generation, .. } in index.segments().into_iter().filter(left) {
        let path = dir.join(file_name(FileKind::Segment, id, generation));
        let file_bytes = match disk.open(&path, false).and_then(|file| file.len()) {
            Ok(bytes) => bytes,
            // Its damage is already recorded.
            Err(_) if options.repairable => options.segment_bytes,
            Err(error) => return Err(error),
        };
        index.full(id, snapshot.index, file_bytes);
    }
    Ok(())
}
