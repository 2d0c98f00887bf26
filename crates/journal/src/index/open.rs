//! Opening: compares the files that the table expects with those in the directory.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use base::HashMap;
use parking_lot::{Mutex, RwLock};

use super::cache::SidecarCache;
use super::files::{FileKind, Files};
use super::seal::SealQueue;
use super::table::{RunTable, Segment};
use super::{Index, LogBodies};
use crate::buffers::Buffers;
use crate::damage::{BatchCheck, Damage, DamagedSegments};
use crate::error::OpenError;
use world::Disk;

#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) dir: PathBuf,
    pub(crate) log: Arc<dyn LogBodies>,
    pub(crate) sidecar_cache_bytes: usize,
    pub(crate) check: BatchCheck,
    /// See [`crate::Options`].
    pub(crate) repairable: bool,
}

impl Index {
    /// `table` is the newest snapshot's, empty without one. Recovery begins to read in segment
    /// `claimed_from` and checks the segments from there on. `import` is the first segment of
    /// another node that is not in the table. Every earlier segment with live batches must exist,
    /// in the generation of the table or a later one. Leftovers of a crash during a rewrite or a
    /// deletion are removed.
    pub(crate) fn open(
        setup: Setup,
        table: RunTable,
        claimed_from: u32,
        import: Option<u32>,
    ) -> Result<Self, OpenError> {
        let index = Self {
            table: RwLock::new(table),
            files: Files::new(setup.disk, &setup.dir),
            cache: SidecarCache::new(setup.sidecar_cache_bytes),
            log: setup.log,
            sealing: SealQueue::default(),
            claimed_from: AtomicU32::new(claimed_from),
            buffers: Buffers::default(),
            reclaiming: Mutex::new(()),
            check: setup.check,
            damaged: DamagedSegments::default(),
        };
        let io_error = |operation| {
            let path = setup.dir.clone();
            move |source| OpenError::Io { operation, path, source }
        };
        let found = index.files.list().map_err(io_error("list"))?;
        let mut newest: HashMap<u32, u32> = HashMap::default();
        for &(kind, segment, generation) in &found {
            if kind == FileKind::Segment {
                let known = newest.entry(segment).or_insert(generation);
                *known = generation.max(*known);
            }
        }
        for (segment, known) in index.expected(claimed_from) {
            match index.check(segment, known, newest.get(&segment).copied()) {
                Err(error) if setup.repairable => index.note(segment, known.generation, &error),
                checked => checked?,
            }
        }
        index
            .remove_leftovers(&found, &newest, claimed_from, import)
            .map_err(io_error("remove leftovers in"))?;
        Ok(index)
    }

    /// Records the damage of the segment for a later repair.
    fn note(&self, segment: u32, generation: u32, error: &OpenError) {
        let file = self.files.path(FileKind::Segment, segment, generation);
        let what = error.to_string();
        self.damaged.note(Damage { segment, generation, file, position: 0, what });
    }

    fn expected(&self, claimed_from: u32) -> Vec<(u32, ExpectedFile)> {
        let table = self.table.read();
        let earlier = table.segments.range(..claimed_from).map(|(&id, segment)| {
            let Segment { generation, live_bytes, file_bytes, .. } = *segment;
            (id, ExpectedFile { generation, live_bytes, file_bytes })
        });
        earlier.collect()
    }

    fn check(
        &self,
        segment: u32,
        known: ExpectedFile,
        found: Option<u32>,
    ) -> Result<(), OpenError> {
        let unusable = |generation, what| {
            let file = self.files.path(FileKind::Segment, segment, generation);
            Err(OpenError::Unusable { file, what })
        };
        let live_bytes = known.live_bytes;
        let Some(generation) = found else {
            if live_bytes == 0 {
                // It was deleted before the crash, which came before the next snapshot.
                self.table.write().forget(segment);
                return Ok(());
            }
            let what = format!("it is missing, and {live_bytes} bytes of records are in it");
            return unusable(known.generation, what);
        };
        if generation < known.generation {
            let what = format!(
                "only generation {generation} is there: the rewritten file is missing, and \
                 {live_bytes} bytes of records are in it"
            );
            return unusable(known.generation, what);
        }
        let len = self.files.segment(segment, generation).and_then(|file| file.len());
        let len = match len {
            Ok(len) => len,
            Err(source) => {
                let path = self.files.path(FileKind::Segment, segment, generation);
                return Err(OpenError::Io { operation: "open", path, source });
            }
        };
        if generation > known.generation {
            self.table.write().adopt_generation(segment, generation, len);
        } else if len < known.file_bytes {
            let what = format!("it has {len} bytes and should have {}", known.file_bytes);
            return unusable(generation, what);
        }
        Ok(())
    }

    fn remove_leftovers(
        &self,
        found: &[(FileKind, u32, u32)],
        newest: &HashMap<u32, u32>,
        claimed_from: u32,
        import: Option<u32>,
    ) -> io::Result<()> {
        let mut removed = false;
        for &(kind, segment, generation) in found {
            let superseded = newest.get(&segment) != Some(&generation);
            // Neither recovery nor the table uses it: its deletion was interrupted.
            let unknown = self.table.read().segment(segment).is_none();
            let forgotten = segment < claimed_from && unknown;
            // Remainder of an abandoned import: segments that the log claims are never rewritten.
            let expected = import.is_some_and(|from| segment >= from);
            let given_up = generation > 1 && unknown && !expected;
            if superseded || forgotten || given_up {
                match kind {
                    FileKind::Segment => self.files.remove_segment(segment, generation)?,
                    FileKind::Sidecar => self.files.remove_sidecar(segment, generation)?,
                }
                removed = true;
            }
        }
        if removed { self.files.sync_dir() } else { Ok(()) }
    }
}

/// A segment's file as the table expects it.
#[derive(Clone, Copy, Debug)]
struct ExpectedFile {
    generation: u32,
    live_bytes: u64,
    file_bytes: u64,
}
