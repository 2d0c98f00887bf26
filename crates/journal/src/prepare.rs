//! The next segment, made ahead: allocated, its header durable, and its blocks written while the
//! journal has nothing better to do.
//!
//! `fdatasync` after a write into written blocks has no metadata to flush. Zeros are written in
//! small pieces, each synced, and only while the journal idles: under load a segment is merely
//! allocated. When the disk is full, the segment made ahead is what small commands still go to,
//! while [`Room::Full`] keeps records away; making the next is tried again each second.

use std::io::{self, IoSlice};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tasks::Task;

use crate::segment::{self, FIRST_FRAME, OpenSegment};
use crate::stats::Room;
use world::World;

/// How often the free space is looked at, and a failed attempt repeated.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// For how long nothing must have been written before zeros are.
const IDLE: Duration = Duration::from_millis(20);
/// Zeros per write: about what a disk does in a third of a millisecond.
const ZEROS: usize = 512 << 10;

#[derive(Debug)]
pub(crate) struct Spares {
    world: World,
    dir: PathBuf,
    segment_bytes: u64,
    reserve_bytes: u64,
    state: Mutex<State>,
    /// Told of each change of the state.
    changed: Condvar,
    /// The journal wrote since this was last cleared.
    busy: AtomicBool,
}

#[derive(Debug)]
struct State {
    ready: Option<Spare>,
    next_id: u32,
    failed: Option<Failed>,
    room: Room,
    /// The journal is being closed: a full disk is no longer waited for.
    draining: bool,
    closing: bool,
}

/// Why the next segment could not be made.
#[derive(Clone, Debug)]
enum Failed {
    /// The disk is full, or this process has too many files open: that passes.
    Full,
    Broken(Arc<io::Error>),
}

impl From<io::Error> for Failed {
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
struct Spare {
    segment: OpenSegment,
    /// Blocks below this are written.
    zeroed_to: u64,
}

impl Spares {
    /// `found`: a segment that was made ahead in a former life. `next_id`: for the one after.
    pub(crate) fn new(
        world: World,
        dir: PathBuf,
        segment_bytes: u64,
        reserve_bytes: u64,
        found: Option<OpenSegment>,
        next_id: u32,
    ) -> Self {
        let ready = found.map(|segment| Spare { segment, zeroed_to: FIRST_FRAME });
        let state =
            State { ready, next_id, failed: None, room: Room::Ok, draining: false, closing: false };
        Self {
            world,
            dir,
            segment_bytes,
            reserve_bytes,
            state: Mutex::new(state),
            changed: Condvar::new(),
            busy: AtomicBool::new(true),
        }
    }

    pub(crate) fn room(&self) -> Room {
        self.state.lock().room
    }

    /// The journal is writing.
    pub(crate) fn note_busy(&self) {
        self.busy.store(true, Ordering::Relaxed);
    }

    /// The next segment. Waits while there is none because the disk is full.
    pub(crate) fn take(&self) -> Result<OpenSegment, NoSpare> {
        let mut state = self.state.lock();
        loop {
            if let Some(spare) = state.ready.take() {
                self.changed.notify_all();
                return Ok(spare.segment);
            }
            match &state.failed {
                Some(Failed::Broken(error)) => return Err(NoSpare::Broken(error.clone())),
                Some(Failed::Full) if state.draining => return Err(NoSpare::Closing),
                _ if state.closing => return Err(NoSpare::Closing),
                _ => {}
            }
            self.changed.wait(&mut state);
        }
    }

    /// Waits, for something that failed to be worth another attempt; `false` when closing.
    pub(crate) fn wait_for_retry(&self) -> bool {
        let mut state = self.state.lock();
        if !state.closing && !state.draining {
            self.changed.wait_for(&mut state, LOOK_EVERY);
        }
        !state.closing && !state.draining
    }

    /// The journal only finishes what is queued; what a full disk keeps it from fails.
    pub(crate) fn drain(&self) {
        self.state.lock().draining = true;
        self.changed.notify_all();
    }

    pub(crate) fn close(&self) {
        self.state.lock().closing = true;
        self.changed.notify_all();
    }

    /// The helper thread.
    pub(crate) fn run(&self) {
        let zeros = vec![0; ZEROS];
        let mut looked: Option<Instant> = None;
        loop {
            tasks::inject::point(Task::JournalPreparer);
            if looked.is_none_or(|at| at.elapsed() >= LOOK_EVERY) {
                looked = Some(Instant::now());
                self.state.lock().failed = None;
                self.look_at_space();
            }
            let mut state = self.state.lock();
            if state.closing {
                return;
            }
            match &state.ready {
                None if state.failed.is_none() => {
                    let id = state.next_id;
                    drop(state);
                    self.make(id);
                }
                Some(spare) if spare.zeroed_to < spare.segment.file_bytes => {
                    self.busy.store(false, Ordering::Relaxed);
                    self.changed.wait_for(&mut state, IDLE);
                    if !self.busy.load(Ordering::Relaxed) {
                        drop(state);
                        self.write_zeros(&zeros);
                    }
                }
                _ => {
                    self.changed.wait_for(&mut state, LOOK_EVERY);
                }
            }
        }
    }

    fn make(&self, id: u32) {
        let made = segment::create(&self.world, &self.dir, id, self.segment_bytes);
        let mut state = self.state.lock();
        match made {
            Ok(segment) => {
                state.ready = Some(Spare { segment, zeroed_to: FIRST_FRAME });
                state.next_id += 1;
            }
            Err(error) => {
                if state.room == Room::Ok {
                    tracing::warn!(segment = id, %error, "cannot make the next journal segment");
                }
                state.failed = Some(error.into());
            }
        }
        drop(state);
        self.look_at_space();
        self.changed.notify_all();
    }

    /// Writes zeros for as long as nobody wants the disk.
    fn write_zeros(&self, zeros: &[u8]) {
        loop {
            let mut state = self.state.lock();
            // While it is away, whoever wants it waits for this one piece.
            let Some(mut spare) = state.ready.take() else { return };
            drop(state);
            let written = spare.write_zeros(zeros);
            let mut state = self.state.lock();
            let done = spare.zeroed_to >= spare.segment.file_bytes;
            if let Err(error) = &written {
                // Nothing relies on it; should the disk be broken, the journal's own sync will say.
                tracing::warn!(%error, "cannot write the blocks of the next journal segment");
                spare.zeroed_to = spare.segment.file_bytes;
            }
            state.ready = Some(spare);
            let closing = state.closing;
            drop(state);
            self.changed.notify_all();
            if done || closing || written.is_err() || self.busy.load(Ordering::Relaxed) {
                return;
            }
        }
    }

    fn look_at_space(&self) {
        let space = self.world.disk.space(&self.dir);
        let mut state = self.state.lock();
        let free_bytes = space.map_or(0, |space| space.free_bytes);
        let full = state.failed.is_some() || free_bytes < self.reserve_bytes;
        let room = match full {
            true => Room::Full { free_bytes, reserve_bytes: self.reserve_bytes },
            false => Room::Ok,
        };
        let changed = std::mem::discriminant(&room) != std::mem::discriminant(&state.room);
        state.room = room;
        drop(state);
        match room {
            Room::Full { free_bytes, reserve_bytes } if changed => {
                tracing::warn!(free_bytes, reserve_bytes, "disk full: records are refused");
            }
            Room::Ok if changed => tracing::info!(free_bytes, "disk has room again"),
            _ => {}
        }
    }
}

impl Spare {
    fn write_zeros(&mut self, zeros: &[u8]) -> io::Result<()> {
        let len = (zeros.len() as u64).min(self.segment.file_bytes - self.zeroed_to);
        let piece = IoSlice::new(&zeros[..len as usize]);
        self.segment.file.write_at(&mut [piece], self.zeroed_to)?;
        self.segment.file.sync()?;
        self.zeroed_to += len;
        Ok(())
    }
}
