//! Recovery: restores the log from the files on disk, or refuses to open the journal.
//!
//! Recovery relies on one rule of the writer: frame N+1 is written only after the sync of frame N
//! returned. So after a crash at most the last frame is torn. It was not acknowledged, and is cut.
//! A gap before a complete frame is damage instead, because the missing entries were acknowledged.
//! It is never cut; recovery fails with file and position.
//!
//! Frames are read from the position in the newest readable snapshot. At each possible frame
//! position:
//!
//! | row | header here | follows the frame before | content | next segment's first frame follows | complete frame later | decision |
//! |-----|-------------|-----|----------|-----|-----|--------|
//! | use       | own     | yes | complete | -   | -   | use it, continue behind it |
//! | stranger  | own     | no  | complete | -   | -   | **refuse**: a frame before it is missing |
//! | next      | any other case ||       | yes | -   | continue in the next segment |
//! | torn      | own     | -   | not complete | no | no | cut: the crash came while it was written |
//! | headless  | garbage, or none but garbage behind || | no | no | cut: the same, its first block was lost |
//! | end       | none    | -   | -        | no  | no  | the end of the log |
//! | stale     | of another segment or place ||     | no | no | the end: the blocks had a former use |
//! | damage    | any of the last four ||            | no | yes | **refuse**: acknowledged entries would be lost |
//!
//! "Own" means: sound, with this segment, this position and this segment's salt. The files:
//!
//! | row | condition | decision |
//! |-----|------|----------|
//! | fresh     | no segment, no snapshot, no vote | create segment 1, a header without room for a frame |
//! | bare      | segment 1 is a bare header | the log is empty: the first frame makes it longer |
//! | beginless | no snapshot to start from, and segment 1 is missing | **refuse** |
//! | missing   | a segment from the starting position on is missing | **refuse** |
//! | short     | a segment is shorter than the length in its header | **refuse** |
//! | nameless  | a segment's own header is damaged | **refuse** |
//! | ahead     | an empty segment behind the end of the log | kept as the next one; a second one is removed |
//! | emptied   | no segment, but a vote | **refuse**: the log was lost, an empty one must not vote |
//! | unread    | a snapshot cannot be read | the one before, if the log still reaches back to it; else **refuse** |
//! | draft     | `*.tmp` | removed |
//! | import    | `import`, and its segments are in no snapshot | kept, see [`crate::transfer`] |
//! | older     | the last segment has a header of version 1 | continue in the next; an empty one gets version 2 |
//! | below     | a segment before the starting position | not read; the index checks that it exists |
//!
//! An entry whose index is not above that of the last one replaces it and all later ones: another
//! leader truncated them. A snapshot may have been taken between the truncation and the
//! replacement. The first frames can then begin with truncated entries, which do not follow any
//! entry read. They are ignored.
//!
//! After a kill, recovery may read bytes that are only in the page cache. So names are synced
//! before anything is read, and the last segment before its entries count.

mod candidate;
mod end;
mod walk;

use std::io;
use std::path::{Path, PathBuf};

use crate::error::OpenError;
use crate::index::RunTable;
use crate::index::files::{FileKind, parse_name};
use crate::log::{LogPosition, LogState, Slot};
use crate::received::marker;
use crate::segment::{FullSegment, OpenSegment, WriteEnd};
use crate::snapshot::{self, SnapshotFile};
use crate::stats::RecoveryReport;
use world::{Disk, Instant, World};

use walk::SegmentWalk;

/// Result of recovery.
#[derive(Debug)]
pub(crate) struct RecoveredJournal {
    pub(crate) log: LogState,
    pub(crate) end: WriteEnd,
    /// The preallocated segment.
    pub(crate) spare: Option<OpenSegment>,
    pub(crate) snapshot: Option<SnapshotFile>,
    pub(crate) table: RunTable,
    pub(crate) scan_from: LogPosition,
    /// Segments from this one on came from another node and are not in the table.
    pub(crate) import: Option<u32>,
    /// Segments that the walk read to their end.
    pub(crate) full: Vec<FullSegment>,
    /// Entries replaced by later ones.
    pub(crate) replaced: Vec<(u64, Slot)>,
    /// Bytes of the frames read.
    pub(crate) bytes: u64,
    pub(crate) report: RecoveryReport,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) tail_cache_bytes: usize,
    pub(crate) keep_log: bool,
}

/// The directory must be locked.
pub(crate) fn recover(
    world: &World,
    dir: &Path,
    sizes: Sizes,
) -> Result<RecoveredJournal, OpenError> {
    let disk = &*world.disk;
    let dir_error = |operation| move |source| io_error(operation, dir.to_owned(), source);
    let mut names = disk.list(dir).map_err(dir_error("list"))?;
    for draft in names.iter().filter(|name| name.ends_with(".tmp")) {
        disk.remove(&dir.join(draft)).map_err(dir_error("remove drafts in"))?;
    }
    // A killed process may have left the names of a vote, a snapshot or a segment in the page cache
    // only. Recovery relies on them from here on.
    disk.sync_dir(dir).map_err(dir_error("sync"))?;
    let begun = Instant::now();
    let (snapshot, table) = newest_snapshot(disk, dir)?;
    let import = marker::recover(disk, dir, &mut names, snapshot.as_ref())
        .map_err(dir_error("look for another node's batches in"))?;
    let snapshot_took = begun.elapsed();
    let mut walk = SegmentWalk::new(world, dir, sizes, snapshot.as_ref(), &names)?;
    walk.run()?;
    walk.report.snapshot_took = snapshot_took;
    walk.report.log_took = begun.elapsed() - snapshot_took;
    let spare = walk.settle()?;
    let end = walk.write_end()?;
    walk.report.stored_bytes = stored_bytes(disk, dir, &names).map_err(dir_error("measure"))?;
    let SegmentWalk { log, full, replaced, bytes, report, scan_from, .. } = walk;
    Ok(RecoveredJournal {
        log,
        end,
        spare,
        snapshot,
        table,
        scan_from,
        import,
        full,
        replaced,
        bytes,
        report,
    })
}

/// The newest snapshot that can be read, and its run table.
fn newest_snapshot(
    disk: &dyn Disk,
    dir: &Path,
) -> Result<(Option<SnapshotFile>, RunTable), OpenError> {
    let indexes =
        snapshot::list(disk, dir).map_err(|source| io_error("list", dir.to_owned(), source))?;
    for index in indexes {
        let path = dir.join(snapshot::file_name(index));
        let found = snapshot::read(disk, dir, index)
            .map_err(|source| io_error("read", path.clone(), source))?;
        let Some(found) = found else {
            tracing::error!(file = %path.display(), "a snapshot is damaged, trying the one before");
            continue;
        };
        match RunTable::decode(&found.table) {
            Ok(table) => return Ok((Some(found), table)),
            Err(error) => {
                tracing::error!(file = %path.display(), %error, "a snapshot makes no sense");
            }
        }
    }
    Ok((None, RunTable::default()))
}

fn stored_bytes(disk: &dyn Disk, dir: &Path, names: &[String]) -> io::Result<u64> {
    let mut bytes = 0;
    for name in names {
        if matches!(parse_name(name), Some((FileKind::Segment, _, _))) {
            // The walk may have removed it.
            bytes += disk.open(&dir.join(name), false).map_or(Ok(0), |file| file.len())?;
        }
    }
    Ok(bytes)
}

fn io_error(operation: &'static str, path: PathBuf, source: io::Error) -> OpenError {
    OpenError::Io { operation, path, source }
}
