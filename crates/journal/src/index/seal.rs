//! Sealing moves a full segment's addresses from memory to its sidecar. Also rebuilds a missing or
//! damaged sidecar.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::Duration;

use base::{HashMap, OffsetRanges};
use parking_lot::Mutex;
use tasks::{Signal, Step, Task, Worker, WorkerHandle, Workers};
use tracing::{info, warn};

use super::addresses::Addresses;
use super::blocks;
use super::files::FileKind;
use super::runs::Run;
use super::sidecar::Sidecar;
use super::table::RefusedBody;
use super::{Batches, Index};
use crate::address::Address;
use crate::error::ReadError;

/// Delay before retrying a sidecar that could not be written (a full disk).
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Requests to the thread that writes sidecars.
#[derive(Debug, Default)]
pub(crate) struct SealQueue {
    request: Mutex<SealRequest>,
    sealer: Signal,
}

#[derive(Debug, Default)]
struct SealRequest {
    due: bool,
    stop: bool,
}

impl SealQueue {
    pub(super) fn wake_if(&self, due: bool) {
        if due {
            self.request.lock().due = true;
            self.sealer.wake();
        }
    }
}

/// Thread that writes sidecars.
struct Sealer {
    index: Arc<Index>,
    failed: bool,
}

impl Worker for Sealer {
    fn step(&mut self) -> Step {
        let (due, stop) = {
            let mut request = self.index.sealing.request.lock();
            (std::mem::take(&mut request.due), request.stop)
        };
        if stop {
            return Step::Done;
        }
        if !due && !self.failed {
            return Step::Wait;
        }
        let result = self.index.seal_due();
        if let Err(error) = &result
            && !self.failed
        {
            warn!(%error, "cannot write a sidecar, its addresses stay in memory");
        }
        self.failed = result.is_err();
        if self.failed { Step::WaitFor(RETRY_AFTER) } else { Step::Again }
    }
}

/// Why a sidecar could not be loaded.
#[derive(Debug)]
pub(crate) enum LoadError {
    /// The segment was rewritten or deleted in the meantime: try again.
    Gone,
    Read(ReadError),
}

/// A rewritten file that is in no table.
#[derive(Clone, Debug)]
pub(crate) struct UnknownFile {
    pub(crate) file_bytes: u64,
    pub(crate) sidecar: Arc<Sidecar>,
}

impl Index {
    /// Starts the sealing thread; it ends after [`Index::stop_sealing`].
    pub(crate) fn seal_in_background(
        self: &Arc<Self>,
        workers: &Workers,
        on_panic: impl FnOnce() + Send + 'static,
    ) -> io::Result<WorkerHandle> {
        // A restart may have found full segments.
        self.sealing.wake_if(true);
        let sealer = Sealer { index: self.clone(), failed: false };
        workers.start(Task::JournalSealer, "journal-seal", &self.sealing.sealer, sealer, on_panic)
    }

    pub(crate) fn stop_sealing(&self) {
        self.sealing.request.lock().stop = true;
        self.sealing.sealer.wake();
    }

    /// Writes the sidecars that are due. Blocking.
    pub(crate) fn seal_due(&self) -> io::Result<()> {
        // Bound before the loop, whose head would otherwise hold the guard throughout.
        let due = self.table.read().due();
        for (segment, addresses) in due {
            let sidecar = sidecar_of(segment, 1, self.indexes(segment), &addresses);
            // A replay after a crash seals segments again that were sealed before the crash.
            let there = self.files.read_sidecar(segment, 1);
            if !there.is_ok_and(|bytes| bytes == sidecar.as_bytes()) {
                self.write_sidecar(segment, 1, &sidecar)?;
            }
            self.cache.insert(segment, 1, Arc::new(sidecar));
            self.table.write().seal(segment);
        }
        Ok(())
    }

    /// The sidecar of a sealed segment, from the cache, from its file, or rebuilt. Blocking.
    pub(crate) fn sidecar(&self, segment: u32, generation: u32) -> Result<Arc<Sidecar>, LoadError> {
        if let Some(sidecar) = self.cache.get(segment, generation) {
            return Ok(sidecar);
        }
        let read = self.files.read_sidecar(segment, generation).map_err(|error| error.to_string());
        let parsed = read.and_then(|bytes| {
            Sidecar::parse(bytes, segment, generation).map_err(|error| error.to_string())
        });
        let sidecar = match parsed {
            Ok(sidecar) => sidecar,
            Err(_) if !self.is_current(segment, generation) => return Err(LoadError::Gone),
            Err(why) => {
                info!(segment, generation, why, "rebuilding the sidecar of a segment");
                self.rebuild(segment, generation)?
            }
        };
        let sidecar = Arc::new(sidecar);
        self.cache.insert(segment, generation, sidecar.clone());
        Ok(sidecar)
    }

    /// Whether the segment's file must exist. A dead segment's file may be gone: it is removed
    /// before the table forgets the segment, and a reader that planned to read it plans again.
    pub(crate) fn is_current(&self, segment: u32, generation: u32) -> bool {
        let table = self.table.read();
        table
            .segment(segment)
            .is_some_and(|found| found.generation == generation && !found.droppable())
    }

    /// Range of log indexes with batches in a rewritten file that is in no table. Blocking.
    pub(crate) fn unknown_indexes(
        &self,
        segment: u32,
        generation: u32,
    ) -> io::Result<Option<(u64, u64)>> {
        blocks::indexes(&*self.files.segment(segment, generation)?, segment, generation)
    }

    /// Loads or rebuilds the sidecar of such a file. Blocking.
    pub(crate) fn unknown(&self, segment: u32, generation: u32) -> io::Result<UnknownFile> {
        let file = self.files.segment(segment, generation)?;
        let read = self.files.read_sidecar(segment, generation);
        let parsed = read.ok().and_then(|it| Sidecar::parse(it, segment, generation).ok());
        let sidecar = match parsed {
            Some(sidecar) => sidecar,
            None => {
                let mut addresses = Addresses::new();
                blocks::scan(&*file, segment, generation, &mut |stream, address| {
                    addresses.push(stream, address);
                })?;
                let indexes = blocks::indexes(&*file, segment, generation)?;
                let sidecar = sidecar_of(segment, generation, indexes, &addresses);
                self.write_sidecar(segment, generation, &sidecar)?;
                sidecar
            }
        };
        Ok(UnknownFile { file_bytes: file.len()?, sidecar: Arc::new(sidecar) })
    }

    fn write_sidecar(&self, segment: u32, generation: u32, sidecar: &Sidecar) -> io::Result<()> {
        let mut draft = self.files.begin(FileKind::Sidecar, segment, generation)?;
        draft.append(&mut [IoSlice::new(sidecar.as_bytes())])?;
        draft.sync()?;
        draft.publish()?;
        self.files.sync_dir()
    }

    /// Verifies the sidecar's file, bypassing caches, and rebuilds it if it is damaged. Returns the
    /// number of bytes read. Blocking.
    pub(crate) fn verify_sidecar(&self, segment: u32, generation: u32) -> u64 {
        let read = self.files.read_sidecar_uncached(segment, generation);
        let bytes = read.as_ref().map_or(0, |bytes| bytes.len() as u64);
        let sound = read.is_ok_and(|bytes| Sidecar::parse(bytes, segment, generation).is_ok());
        if !sound && self.is_current(segment, generation) {
            warn!(segment, generation, "a sidecar is damaged: it is rebuilt");
            // If the rebuild fails, the segment is damaged as well, and that was recorded.
            if let Ok(sidecar) = self.rebuild(segment, generation) {
                self.cache.insert(segment, generation, Arc::new(sidecar));
            }
        }
        bytes
    }

    /// End of the last live batch in a sealed segment, if its sidecar can be loaded. Blocking.
    pub(crate) fn last_live_end(&self, segment: u32, generation: u32) -> Option<u64> {
        let sidecar = self.sidecar(segment, generation).ok()?;
        let live = sidecar.streams().flat_map(|(stream, all)| self.live(segment, stream, all));
        live.map(|batch| u64::from(batch.position) + u64::from(batch.len)).max()
    }

    fn rebuild(&self, segment: u32, generation: u32) -> Result<Sidecar, LoadError> {
        let io_error = |error| self.is_unreadable(segment, generation, 0, error);
        let file = self.files.segment(segment, generation).map_err(io_error)?;
        let mut addresses = Addresses::new();
        if generation > 1 {
            blocks::scan(&*file, segment, generation, &mut |stream, address| {
                addresses.push(stream, address);
            })
            .map_err(io_error)?;
        } else {
            let expected = self.expected_bodies(segment);
            self.log
                .scan(segment, &*file, &mut |stream, address| {
                    if expected.holds(stream, &address) {
                        addresses.push(stream, address);
                    }
                })
                .map_err(io_error)?;
            expected
                .check(&addresses)
                .map_err(|what| self.is_damaged(segment, generation, 0, what))?;
        }
        let sidecar = sidecar_of(segment, generation, self.indexes(segment), &addresses);
        if let Err(error) = self.write_sidecar(segment, generation, &sidecar) {
            warn!(segment, generation, %error, "a rebuilt sidecar could not be written");
        }
        Ok(sidecar)
    }

    /// Log indexes of the first and last entry with a batch in the segment.
    pub(crate) fn indexes(&self, segment: u32) -> Option<(u64, u64)> {
        self.table.read().segment(segment)?.indexes
    }

    fn expected_bodies(&self, segment: u32) -> ExpectedBodies {
        let table = self.table.read();
        let runs = table.runs_in(segment);
        let counted = |(stream, run): (u64, Run)| {
            let holes = table.holes(stream);
            let holes = holes.map(|holes| holes.touching(run.first_offset, run.next_offset));
            (stream, ExpectedRun { run, holes, ragged: table.is_ragged(segment, stream) })
        };
        let refused = table.segment(segment).map(|found| found.refused.clone());
        ExpectedBodies {
            runs: runs.into_iter().map(counted).collect(),
            refused: refused.unwrap_or_default(),
        }
    }
}

/// Bodies in a segment of the log that belong to the index.
struct ExpectedBodies {
    runs: HashMap<u64, ExpectedRun>,
    refused: Arc<Vec<RefusedBody>>,
}

/// A stream's run, and the holes in it.
struct ExpectedRun {
    run: Run,
    holes: Option<OffsetRanges>,
    ragged: bool,
}

impl ExpectedBodies {
    /// Whether the body is neither refused nor dead as a whole.
    fn holds(&self, stream: u64, address: &Address) -> bool {
        let is_refused =
            |by: Option<u64>| self.refused.binary_search(&(address.position, by)).is_ok();
        self.runs.get(&stream).is_some_and(|ExpectedRun { run, .. }| {
            address.next_offset() > run.first_offset && address.base_offset < run.next_offset
        }) && !is_refused(None)
            && !is_refused(Some(stream))
    }

    /// The batches found must match the recorded runs: others would be wrong records.
    fn check(&self, found: &Addresses) -> Result<(), &'static str> {
        for (stream, ExpectedRun { run, holes, ragged }) in &self.runs {
            let addresses = found.of(*stream);
            let mut pairs = addresses.iter().zip(addresses.iter().skip(1));
            if pairs.any(|(one, next)| one.next_offset() > next.base_offset) {
                return Err("batches overlap: some of them were never accepted");
            }
            let live = Batches::from_list(addresses).live(run, holes.as_ref());
            let bytes: u64 = live.iter().map(|batch| u64::from(batch.len)).sum();
            let counted = u64::from(run.bytes);
            if bytes > counted || (bytes < counted && !ragged) {
                return Err("its batches are not those that the index counted");
            }
        }
        Ok(())
    }
}

pub(crate) fn sidecar_of(
    segment: u32,
    generation: u32,
    indexes: Option<(u64, u64)>,
    addresses: &Addresses,
) -> Sidecar {
    Sidecar::build(segment, generation, indexes, addresses.iter())
}
