//! The journal's thread: it syncs one frame while the next collects.
//!
//! All waiting entries become one frame. The frame is written, synced and acknowledged; by then the
//! next one has collected. There is no timer and no knob: the batch adapts to the disk. Recovery
//! rests on one rule kept here: frame N+1 is written only after the sync of frame N has returned,
//! so at most the last frame of a journal can be torn.
//!
//! Between two syncs the thread does as little as it can: the appending threads computed the
//! checksums, bodies go from their own memory to the kernel (`pwritev`), and only parts for which an
//! I/O vector costs more than a copy are copied.

use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use world::Instant;

use crate::address::Address;
use crate::error::JournalFailed;
use crate::frame::{self, BLOCK, EncodedEntry, EntriesChecksum, FrameHeader};
use crate::index::files::{FileKind, file_name};
use crate::log::LogPosition;
use crate::queue::{DurableCallback, Jump, Limits, Task};
use crate::segment::{
    FIRST_FRAME, FullSegment, NoSpare, OpenSegment, RETRY_AFTER, WriteEnd, is_full,
};
use crate::shared::Shared;

use tasks::{Step, Worker};

/// Smaller parts are copied into the frame's buffer, together with their neighbours.
const COPIED_BYTES_MAX: usize = 512;

static ZEROS: [u8; BLOCK] = [0; BLOCK];

pub(crate) struct Writer {
    shared: Arc<Shared>,
    segment: OpenSegment,
    position: u64,
    /// Checksum of the last frame.
    previous: u32,
    /// Index of the last entry written, by this process or (found by recovery) by an earlier one.
    last_index: u64,
    /// The previous segment. The index learns that it is full once the next segment has a durable
    /// frame: until then the log may end in the previous one after a crash.
    left: Option<FullSegment>,
    batch: Vec<Arc<EncodedEntry>>,
    answers: Vec<DurableCallback>,
    buffer: Vec<u8>,
    parts: Vec<FramePart>,
    phase: Phase,
}

/// Progress of the frame. Between two phases a simulation runs other tasks, or ends the process.
#[derive(Debug)]
enum Phase {
    Idle,
    /// Its entries have addresses.
    Placed(FrameHeader),
    Written(FrameHeader),
    Synced(FrameHeader),
    /// The log continues in another segment before the next frame, which has this many bytes.
    Rolling {
        frame_bytes: u64,
    },
    /// The segment must grow to fit that frame.
    Growing {
        frame_bytes: u64,
    },
}

type StepResult = Result<Step, JournalFailed>;

/// A piece of a frame, in order.
#[derive(Debug)]
enum FramePart {
    /// A range of the writer's buffer.
    Copied(Range<usize>),
    Head {
        entry: usize,
    },
    Body {
        entry: usize,
        body: usize,
    },
}

impl Drop for Writer {
    /// Fails all waiting appends, so that no caller waits forever.
    fn drop(&mut self) {
        self.shared.fail(match std::thread::panicking() {
            true => JournalFailed::Panicked { thread: tasks::Task::JournalWriter.name() },
            false => JournalFailed::Closed,
        });
    }
}

impl Worker for Writer {
    fn step(&mut self) -> Step {
        let stepped = match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Idle => Ok(self.begin()),
            Phase::Placed(header) => self.write(header),
            Phase::Written(header) => self.sync(header),
            Phase::Synced(header) => self.finish(&header),
            Phase::Rolling { frame_bytes } => self.roll(frame_bytes),
            Phase::Growing { frame_bytes } => self.grow(frame_bytes, true),
        };
        stepped.unwrap_or_else(|failed| {
            self.shared.fail(failed);
            Step::Done
        })
    }
}

impl Writer {
    pub(crate) fn new(shared: Arc<Shared>, end: WriteEnd) -> Self {
        let WriteEnd { segment, position, previous, last_index } = end;
        Self {
            shared,
            segment,
            position,
            previous,
            last_index,
            left: None,
            batch: Vec::new(),
            answers: Vec::new(),
            buffer: Vec::new(),
            parts: Vec::new(),
            phase: Phase::Idle,
        }
    }

    /// Takes the next task from the queue. If it is a frame, lays it out and places its entries.
    fn begin(&mut self) -> Step {
        let shared = self.shared.clone();
        let limits = Limits {
            frame_bytes_max: shared.options.frame_bytes_max,
            room_bytes: self.segment.file_bytes - self.position,
            segment_is_empty: self.position == FIRST_FRAME,
        };
        match shared.queue.next(limits, &mut self.batch) {
            Some(Task::Write) => {
                shared.spares.note_busy();
                let header = self.lay_out();
                self.place(&header);
                self.phase = Phase::Placed(header);
            }
            Some(Task::Roll { frame_bytes }) => self.phase = Phase::Rolling { frame_bytes },
            Some(Task::Jump) => self.jump(),
            Some(Task::Answer) => self.answer(0),
            Some(Task::Close) => return Step::Done,
            None => return Step::Wait,
        }
        Step::Again
    }

    fn write(&mut self, header: FrameHeader) -> StepResult {
        self.shared.counters.begin_io();
        self.write_parts(&header)?;
        let last_index = self.batch.last().map_or(self.last_index, |last| last.entry.id.index);
        self.shared.hooks.written.read().iter().for_each(|hook| hook(last_index));
        self.phase = Phase::Written(header);
        Ok(Step::Again)
    }

    fn sync(&mut self, header: FrameHeader) -> StepResult {
        let begun = Instant::now();
        self.segment.file.sync().map_err(|error| self.io_error("sync", error))?;
        self.shared.counters.end_io();
        self.shared.counters.synced(begun.elapsed());
        self.phase = Phase::Synced(header);
        Ok(Step::Again)
    }

    /// The frame is durable: updates the counters and acknowledges its entries.
    fn finish(&mut self, header: &FrameHeader) -> StepResult {
        let shared = self.shared.clone();
        if let Some(FullSegment { segment, last_index, file_bytes }) = self.left.take() {
            shared.index.full(segment, last_index, file_bytes);
        }
        self.position = header.end();
        shared.durable_end.set(header.segment, header.end());
        self.previous = header.checksum();
        if let Some(last) = self.batch.last() {
            self.last_index = last.entry.id.index;
            shared.log.write().durable(&self.batch);
        }
        shared.counters.frames.fetch_add(1, Ordering::Relaxed);
        shared.counters.entries.fetch_add(self.batch.len() as u64, Ordering::Relaxed);
        shared.counters.bytes.fetch_add(header.bytes.into(), Ordering::Relaxed);
        let queued: u64 = self.batch.iter().map(|entry| u64::from(entry.len)).sum();
        shared.counters.queued_bytes.fetch_sub(queued, Ordering::Relaxed);
        // After the counters, so that an acknowledged caller sees the frame in them.
        self.answer(self.batch.len() as u64);
        shared.drained.notify_waiters();
        self.batch.clear();
        if u64::from(header.position) == FIRST_FRAME {
            shared.spares.wake_up();
        }
        self.write_file_length()?;
        Ok(Step::Again)
    }

    /// Writes the file's length into its header if the file grew. The new length is durable by now.
    /// Recovery compares the two to find a truncated file.
    fn write_file_length(&mut self) -> Result<(), JournalFailed> {
        let OpenSegment { header, file, file_bytes } = &mut self.segment;
        if header.bytes >= *file_bytes {
            return Ok(());
        }
        match header.write_bytes(&**file, *file_bytes) {
            // Some file systems need new blocks even to overwrite. The next frame retries it.
            Err(error) if is_full(&error) => Ok(()),
            written => written.map_err(|error| self.io_error("write the header of", error)),
        }
    }

    /// Decides which parts of the batch are copied into the buffer, orders the parts and computes
    /// the header. The buffer starts with room for the header.
    fn lay_out(&mut self) -> FrameHeader {
        self.buffer.clear();
        self.parts.clear();
        self.buffer.resize(frame::FRAME_HEADER_BYTES, 0);
        let (mut copied_from, mut content_bytes) = (0, 0);
        let mut checksum = EntriesChecksum::default();
        for (place, encoded) in self.batch.iter().enumerate() {
            content_bytes += encoded.len;
            checksum.add(encoded.checksum);
            self.buffer.extend_from_slice(&encoded.descriptor);
            let head = (&encoded.entry.head, FramePart::Head { entry: place });
            let bodies = encoded.written_bodies();
            let bodies =
                bodies.map(|(body, bytes)| (bytes, FramePart::Body { entry: place, body }));
            for (bytes, part) in std::iter::once(head).chain(bodies) {
                if bytes.len() <= COPIED_BYTES_MAX {
                    self.buffer.extend_from_slice(bytes);
                } else {
                    self.parts.push(FramePart::Copied(copied_from..self.buffer.len()));
                    copied_from = self.buffer.len();
                    self.parts.push(part);
                }
            }
        }
        self.parts.push(FramePart::Copied(copied_from..self.buffer.len()));
        let header = FrameHeader {
            bytes: frame::frame_bytes(content_bytes.into()) as u32,
            segment: self.segment.header.id,
            position: self.position as u32,
            previous: self.previous,
            salt: self.segment.header.salt,
            entries: self.batch.len() as u32,
            content_bytes,
            entries_checksum: checksum.get(),
            first_index: self.batch.first().map_or(0, |first| first.entry.id.index),
        };
        self.buffer[..frame::FRAME_HEADER_BYTES].copy_from_slice(&header.encode());
        header
    }

    /// Reports the batch's position to the log. Bodies of entries truncated in the meantime are refused.
    fn place(&self, header: &FrameHeader) {
        let FrameHeader { segment, position, previous, .. } = *header;
        let frame = LogPosition { segment, position, previous };
        let end =
            LogPosition { segment, position: header.end() as u32, previous: header.checksum() };
        let mut orphans: Vec<(u64, Address)> = Vec::new();
        let _refusing = self.shared.refusing.lock();
        self.shared.log.write().place(&self.batch, frame, end, &mut orphans);
        self.shared.placed.notify_waiters();
        for (stream, address) in orphans {
            self.shared.index.refuse(0, stream, address);
        }
    }

    fn write_parts(&self, header: &FrameHeader) -> Result<(), JournalFailed> {
        let mut slices: Vec<IoSlice<'_>> = Vec::with_capacity(self.parts.len() + 1);
        for part in &self.parts {
            slices.push(IoSlice::new(match part {
                FramePart::Copied(range) => &self.buffer[range.clone()],
                FramePart::Head { entry } => &self.batch[*entry].entry.head,
                FramePart::Body { entry, body } => &self.batch[*entry].entry.bodies[*body].bytes,
            }));
        }
        let used = frame::FRAME_HEADER_BYTES + header.content_bytes as usize;
        slices.push(IoSlice::new(&ZEROS[..header.bytes as usize - used]));
        let written = self.segment.file.write_at(&mut slices, header.position.into());
        written.map_err(|error| self.io_error("write", error))
    }

    /// Acknowledges this many more durable entries: runs their callbacks in order.
    fn answer(&mut self, entries: u64) {
        self.shared.queue.durable(entries, &mut self.answers);
        for durable in self.answers.drain(..) {
            durable(Ok(()));
        }
    }

    /// Continues in a segment that follows another node's batches. All appended entries are
    /// durable.
    fn jump(&mut self) {
        let Some(Jump { to, done }) = self.shared.queue.take_jump() else { return };
        let left = std::mem::replace(&mut self.segment, to);
        self.position = FIRST_FRAME;
        let (segment, file_bytes) = (left.header.id, left.file_bytes);
        let last_index = self.last_index;
        // The left segments receive no more frames, even if no frame follows. A crash before the
        // snapshot that names the new segment is durable restores the log's old end.
        let left = FullSegment { segment, last_index, file_bytes };
        for FullSegment { segment, last_index, file_bytes } in
            self.left.take().into_iter().chain([left])
        {
            self.shared.index.full(segment, last_index, file_bytes);
        }
        self.shared.spares.jump(self.segment.header.id + 1);
        let position = FIRST_FRAME as u32;
        let end =
            LogPosition { segment: self.segment.header.id, position, previous: self.previous };
        self.shared.log.write().set_end(end);
        self.shared.durable_end.set(end.segment, position.into());
        // The requester may have dropped its receiver.
        let _ = done.send(());
    }

    /// Continues in the preallocated segment. Waits while the disk is full; closing ends the wait.
    fn roll(&mut self, frame_bytes: u64) -> StepResult {
        if self.position > FIRST_FRAME {
            let next = self.shared.spares.take().map_err(|error| match error {
                NoSpare::Closing => JournalFailed::Closed,
                NoSpare::Broken(source) => {
                    let file = self.shared.dir.clone();
                    JournalFailed::Io { operation: "make the next segment", file, source }
                }
            })?;
            let Some(next) = next else {
                self.phase = Phase::Rolling { frame_bytes };
                return Ok(Step::Wait);
            };
            let full = std::mem::replace(&mut self.segment, next);
            self.position = FIRST_FRAME;
            let (segment, file_bytes) = (full.header.id, full.file_bytes);
            self.left = Some(FullSegment { segment, last_index: self.last_index, file_bytes });
        }
        self.grow(frame_bytes, false)
    }

    /// Grows the segment to fit the next frame. Waits while the disk is full; `waited` after the
    /// first wait.
    fn grow(&mut self, frame_bytes: u64, waited: bool) -> StepResult {
        let needed = FIRST_FRAME + frame_bytes;
        if self.segment.file_bytes >= needed {
            return Ok(Step::Again);
        }
        let bytes = match self.segment.is_bare() {
            true => needed.max(self.shared.options.segment_bytes),
            false => needed,
        };
        match self.segment.file.allocate(bytes) {
            Ok(()) => {
                self.segment.file_bytes = bytes;
                Ok(Step::Again)
            }
            Err(error) if is_full(&error) => {
                // Frees the blocks that were allocated before the disk was full: no frame is in
                // them.
                let _ = self.segment.file.truncate(self.segment.file_bytes);
                if self.shared.spares.is_ending() {
                    return Err(JournalFailed::Closed);
                }
                if !waited {
                    let (dir, segment) = (self.shared.dir.display(), self.segment.header.id);
                    tracing::warn!(%dir, segment, bytes, %error, "no room for a journal segment: entries wait");
                }
                self.phase = Phase::Growing { frame_bytes };
                Ok(Step::WaitFor(RETRY_AFTER))
            }
            Err(error) => Err(self.io_error("allocate", error)),
        }
    }

    fn io_error(&self, operation: &'static str, error: std::io::Error) -> JournalFailed {
        let name = file_name(FileKind::Segment, self.segment.header.id, 1);
        JournalFailed::io(operation, self.shared.dir.join(name), error)
    }
}
