//! Preallocates the next segment: allocates it, makes its header durable, and writes its blocks
//! while the journal idles.
//!
//! `fdatasync` after a write into written blocks has no metadata to flush. Zeros are written in
//! small pieces, each synced, and only while the journal idles: under load a segment is merely
//! allocated. When the disk is full, small commands still fit into the preallocated segment, while
//! [`DiskRoom::Full`] keeps records away; allocating the next is retried each second.
//!
//! A journal without entries gets none: a node has one journal for each shard, and most are empty.

use std::io::{self, IoSlice};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tasks::{Signal, Step};

use super::{FIRST_FRAME, OpenSegment};
use crate::index::files::{FileKind, file_name};
use crate::stats::DiskRoom;
use world::{Instant, World};

/// Interval of checking the free space.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Delay before a failed attempt is repeated.
pub(crate) const RETRY_AFTER: Duration = LOOK_EVERY;
/// Zeros are written after the journal has written nothing for this long.
const IDLE: Duration = Duration::from_millis(20);
/// Zeros per write: about a third of a millisecond of disk time.
const ZEROS: usize = 512 << 10;

#[derive(Debug)]
pub(crate) struct Spares {
    world: World,
    dir: PathBuf,
    segment_bytes: u64,
    reserve_bytes: u64,
    state: Mutex<State>,
    signals: Signals,
    /// The journal wrote since this was last cleared.
    busy: AtomicBool,
}

/// Threads that are woken when the state changes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Signals {
    /// The journal's thread, which takes segments.
    pub(crate) writer: Signal,
    pub(crate) preparer: Signal,
}

#[derive(Debug)]
struct State {
    ready: Option<SpareSegment>,
    next_id: u32,
    /// Number of jumps of the log: a segment allocated before a jump is useless after it.
    jumps: u64,
    /// Nothing was ever written: no segment is needed.
    asleep: bool,
    failed: Option<PrepareError>,
    room: DiskRoom,
    /// The journal is being closed: a full disk is no longer waited for.
    draining: bool,
    closing: bool,
}

/// Why the next segment could not be allocated.
#[derive(Clone, Debug)]
enum PrepareError {
    /// Temporary: the disk is full, or this process has too many files open.
    Full,
    Broken(Arc<io::Error>),
}

impl From<io::Error> for PrepareError {
    fn from(error: io::Error) -> Self {
        use io::ErrorKind::{OutOfMemory, QuotaExceeded, StorageFull};
        let passing = [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE];
        let passing = passing.map(|errno| Some(errno.raw_os_error()));
        match error.kind() {
            StorageFull | QuotaExceeded | OutOfMemory => Self::Full,
            _ if passing.contains(&error.raw_os_error()) => Self::Full,
            _ => Self::Broken(Arc::new(error)),
        }
    }
}

/// Why there is no next segment for the journal.
#[derive(Debug)]
pub(crate) enum NoSpare {
    Closing,
    Broken(Arc<io::Error>),
}

#[derive(Debug)]
struct SpareSegment {
    segment: OpenSegment,
    /// Blocks below this are written.
    zeroed_to: u64,
}

/// State found by recovery.
#[derive(Debug)]
pub(crate) struct PreallocationState {
    /// Preallocated by an earlier process.
    pub(crate) ready: Option<OpenSegment>,
    /// Id of the segment after that.
    pub(crate) next_id: u32,
    /// Nothing was ever written: no segment is preallocated before the first frame.
    pub(crate) asleep: bool,
}

impl Spares {
    pub(crate) fn new(
        world: World,
        dir: PathBuf,
        segment_bytes: u64,
        reserve_bytes: u64,
        found: PreallocationState,
        signals: Signals,
    ) -> Self {
        let PreallocationState { ready, next_id, asleep } = found;
        let ready = ready.map(|segment| SpareSegment { segment, zeroed_to: FIRST_FRAME });
        let state = State {
            ready,
            next_id,
            jumps: 0,
            asleep,
            failed: None,
            room: DiskRoom::Ok,
            draining: false,
            closing: false,
        };
        Self {
            world,
            dir,
            segment_bytes,
            reserve_bytes,
            state: Mutex::new(state),
            signals,
            busy: AtomicBool::new(true),
        }
    }

    pub(crate) fn room(&self) -> DiskRoom {
        self.state.lock().room
    }

    /// The journal is writing.
    pub(crate) fn note_busy(&self) {
        self.busy.store(true, Ordering::Relaxed);
    }

    /// The log has begun a segment: another one will be needed.
    pub(crate) fn wake_up(&self) {
        let was_asleep = std::mem::take(&mut self.state.lock().asleep);
        if was_asleep {
            self.signals.preparer.wake();
        }
    }

    /// The next segment; `None` while the disk is full. The writer is woken when to try again.
    pub(crate) fn take(&self) -> Result<Option<OpenSegment>, NoSpare> {
        let mut state = self.state.lock();
        if let Some(spare) = state.ready.take() {
            drop(state);
            self.signals.preparer.wake();
            return Ok(Some(spare.segment));
        }
        match &state.failed {
            Some(PrepareError::Broken(error)) => Err(NoSpare::Broken(error.clone())),
            Some(PrepareError::Full) if state.draining => Err(NoSpare::Closing),
            _ if state.closing => Err(NoSpare::Closing),
            _ => Ok(None),
        }
    }

    /// The id of the next segment.
    pub(crate) fn next_id(&self) -> u32 {
        self.state.lock().next_id
    }

    /// The log continues in a segment that was not preallocated, and the next one is `next_id`.
    pub(crate) fn jump(&self, next_id: u32) {
        let mut state = self.state.lock();
        state.jumps += 1;
        state.asleep = false;
        state.next_id = next_id;
        let useless = state.ready.take();
        drop(state);
        if let Some(spare) = useless {
            self.discard(&spare.segment);
        }
        self.signals.preparer.wake();
    }

    /// Removes a preallocated segment that is not needed. If that fails, the next opening removes
    /// it.
    fn discard(&self, segment: &OpenSegment) {
        let name = file_name(FileKind::Segment, segment.header.id, 1);
        if let Err(error) = self.world.disk.remove(&self.dir.join(name)) {
            tracing::debug!(segment = segment.header.id, %error, "a spare segment stays");
        }
    }

    /// Whether the journal is closing: it no longer waits for a full disk.
    pub(crate) fn is_ending(&self) -> bool {
        let state = self.state.lock();
        state.closing || state.draining
    }

    fn wake(&self) {
        self.signals.writer.wake();
        self.signals.preparer.wake();
    }

    /// The journal only writes the queued entries; entries that do not fit on a full disk fail.
    pub(crate) fn drain(&self) {
        self.state.lock().draining = true;
        self.wake();
    }

    pub(crate) fn close(&self) {
        self.state.lock().closing = true;
        self.wake();
    }

    fn make(&self, id: u32, jumps: u64) {
        let made = super::create(&self.world, &self.dir, id, self.segment_bytes);
        let mut state = self.state.lock();
        if state.jumps != jumps {
            drop(state);
            if let Ok(segment) = &made {
                self.discard(segment);
            }
            return;
        }
        match made {
            Ok(segment) => {
                state.ready = Some(SpareSegment { segment, zeroed_to: FIRST_FRAME });
                state.next_id += 1;
            }
            Err(error) => {
                if state.room == DiskRoom::Ok {
                    tracing::warn!(segment = id, %error, "cannot make the next journal segment");
                }
                state.failed = Some(error.into());
            }
        }
        drop(state);
        self.check_space();
        self.signals.writer.wake();
    }

    /// Writes some zeros. Returns whether more remain.
    fn write_zeros(&self, zeros: &[u8]) -> bool {
        // The writer, if it needs the segment now, waits until this piece is written.
        let (jumps, spare) = {
            let mut state = self.state.lock();
            (state.jumps, state.ready.take())
        };
        let Some(mut spare) = spare else { return false };
        let written = spare.write_zeros(zeros);
        if let Err(error) = &written {
            // Nothing relies on the zeros. If the disk is broken, the journal's own sync will fail.
            tracing::warn!(%error, "cannot write the blocks of the next journal segment");
            spare.zeroed_to = spare.segment.file_bytes;
        }
        let more = spare.has_blank_blocks();
        let mut state = self.state.lock();
        if state.jumps != jumps {
            drop(state);
            self.discard(&spare.segment);
            return false;
        }
        state.ready = Some(spare);
        drop(state);
        self.signals.writer.wake();
        more
    }

    fn check_space(&self) {
        let space = self.world.disk.space(&self.dir);
        let mut state = self.state.lock();
        let free_bytes = space.map_or(0, |space| space.free_bytes);
        let full = state.failed.is_some() || free_bytes < self.reserve_bytes;
        let room = match full {
            true => DiskRoom::Full { free_bytes, reserve_bytes: self.reserve_bytes },
            false => DiskRoom::Ok,
        };
        let changed = std::mem::discriminant(&room) != std::mem::discriminant(&state.room);
        state.room = room;
        drop(state);
        match room {
            DiskRoom::Full { free_bytes, reserve_bytes } if changed => {
                tracing::warn!(free_bytes, reserve_bytes, "disk full: records are refused");
            }
            DiskRoom::Ok if changed => tracing::info!(free_bytes, "disk has room again"),
            _ => {}
        }
    }
}

/// Preallocates segments.
pub(crate) struct Preparer {
    zeros: Vec<u8>,
    looked: Option<Instant>,
    idleness: Idleness,
}

/// Whether the journal idles, so that zeros may be written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Idleness {
    Unknown,
    /// It does if nothing is written for [`IDLE`].
    Watched,
    Confirmed,
}

impl Preparer {
    pub(crate) fn new() -> Self {
        Self { zeros: vec![0; ZEROS], looked: None, idleness: Idleness::Unknown }
    }

    pub(crate) fn step(&mut self, spares: &Spares) -> Step {
        if self.looked.is_none_or(|at| at.elapsed() >= LOOK_EVERY) {
            self.looked = Some(Instant::now());
            spares.state.lock().failed = None;
            spares.check_space();
        }
        let state = spares.state.lock();
        if state.closing {
            return Step::Done;
        }
        if state.asleep {
            return Step::WaitFor(LOOK_EVERY);
        }
        match &state.ready {
            None if state.failed.is_none() => {
                let (id, jumps) = (state.next_id, state.jumps);
                drop(state);
                self.idleness = Idleness::Unknown;
                spares.make(id, jumps);
                Step::Again
            }
            Some(spare) if spare.has_blank_blocks() => {
                drop(state);
                if self.idleness == Idleness::Unknown {
                    spares.busy.store(false, Ordering::Relaxed);
                    self.idleness = Idleness::Watched;
                    return Step::WaitFor(IDLE);
                }
                let free = !spares.busy.load(Ordering::Relaxed);
                let goes_on = free && spares.write_zeros(&self.zeros);
                self.idleness = if goes_on { Idleness::Confirmed } else { Idleness::Unknown };
                Step::Again
            }
            _ => {
                self.idleness = Idleness::Unknown;
                Step::WaitFor(LOOK_EVERY)
            }
        }
    }
}

impl SpareSegment {
    fn has_blank_blocks(&self) -> bool {
        self.zeroed_to < self.segment.file_bytes
    }

    fn write_zeros(&mut self, zeros: &[u8]) -> io::Result<()> {
        let len = (zeros.len() as u64).min(self.segment.file_bytes - self.zeroed_to);
        let piece = IoSlice::new(&zeros[..len as usize]);
        self.segment.file.write_at(&mut [piece], self.zeroed_to)?;
        self.segment.file.sync()?;
        self.zeroed_to += len;
        Ok(())
    }
}
