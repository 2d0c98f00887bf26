//! Received segments of another node's snapshot that are not installed yet: their list, and discarding them.
//!
//! * `marker`: the file that names the first of them, for recovery
//!
//! It depends on `shared` and `index`.

pub(crate) mod marker;

use std::io;

use tracing::info;

use crate::index::{FileKind, Index, SHIPPED_GENERATION};
use crate::shared::Shared;

#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceivedFile {
    pub(crate) segment: u32,
    pub(crate) indexes: (u64, u64),
}

/// The received segments from this id on that are usable after a snapshot at `own`: each continues
/// the one before. Also returns the ids of the useless ones.
pub(crate) fn find(
    index: &Index,
    from: u32,
    own: u64,
) -> io::Result<(Vec<ReceivedFile>, Vec<u32>)> {
    let mut numbers: Vec<u32> = index
        .files()
        .list()?
        .into_iter()
        .filter(|(kind, segment, _)| *kind == FileKind::Segment && *segment >= from)
        .map(|(_, segment, _)| segment)
        .collect();
    numbers.sort_unstable();
    let (mut files, mut have) = (Vec::new(), own);
    for (place, &segment) in numbers.iter().enumerate() {
        let indexes = index.unknown_indexes(segment, SHIPPED_GENERATION).ok().flatten();
        let follows = indexes.filter(|(first, _)| *first <= have.saturating_add(1));
        match follows {
            Some(indexes) if segment == from + place as u32 => {
                have = have.max(indexes.1);
                files.push(ReceivedFile { segment, indexes });
            }
            _ => break,
        }
    }
    // Entries that the journal's own snapshot covers are not needed.
    if have <= own {
        files.clear();
    }
    let useless = numbers.split_off(files.len());
    Ok((files, useless))
}

pub(crate) fn remove(index: &Index, segments: &[u32]) -> io::Result<()> {
    for &segment in segments {
        index.files().remove_sidecar(segment, SHIPPED_GENERATION)?;
        index.files().remove_segment(segment, SHIPPED_GENERATION)?;
    }
    if segments.is_empty() { Ok(()) } else { index.files().sync_dir() }
}

/// Removes the received segments. A crash in between leaves segments that the next opening removes
/// as leftovers.
pub(crate) fn discard(shared: &Shared, from: u32) -> io::Result<()> {
    let (files, useless) = find(&shared.index, from, u64::MAX)?;
    marker::remove(&*shared.disk, &shared.dir)?;
    shared.index.files().sync_dir()?;
    shared.import.lock().from = None;
    let segments: Vec<u32> = files.iter().map(|file| file.segment).chain(useless).collect();
    info!(segments = segments.len(), "gave up what was received of another node's snapshot");
    remove(&shared.index, &segments)
}

/// Discards an import that the journal's own snapshot covers by now, or that was abandoned.
/// Blocking.
pub(crate) fn discard_obsolete(shared: &Shared) -> io::Result<()> {
    let from = {
        let mut state = shared.import.lock();
        let Some(from) = state.from.filter(|_| !state.busy) else { return Ok(()) };
        state.busy = true;
        from
    };
    let own = shared.snapshot.lock().map_or(0, |id| id.index);
    let given_up = find(&shared.index, from, own).and_then(|(files, _)| match files.is_empty() {
        true => discard(shared, from),
        false => Ok(()),
    });
    shared.import.lock().busy = false;
    given_up
}
