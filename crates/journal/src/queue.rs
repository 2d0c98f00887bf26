//! Appended entries that are not yet durable, for the journal's thread.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tasks::Signal;
use tokio::sync::oneshot;

use crate::error::JournalFailed;
use crate::frame::{self, EncodedEntry};
use crate::segment::OpenSegment;

pub(crate) type DurableCallback = Box<dyn FnOnce(Result<(), JournalFailed>) + Send>;

#[derive(Debug)]
pub(crate) struct Queue {
    state: Mutex<State>,
    /// The journal's thread.
    writer: Signal,
}

#[derive(Default)]
struct State {
    entries: VecDeque<Arc<EncodedEntry>>,
    /// Callbacks, each with the number of entries since the start that must be durable first.
    waiting: VecDeque<(u64, DurableCallback)>,
    /// Total of entries put in, and of entries made durable.
    put: u64,
    durable: u64,
    roll: bool,
    jump: Option<Jump>,
    closing: bool,
    /// The queue accepts nothing any more.
    closed: bool,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("put", &self.put).field("durable", &self.durable).finish()
    }
}

/// The log continues in this segment, whatever its id, once everything queued before is durable.
pub(crate) struct Jump {
    pub(crate) to: OpenSegment,
    /// Notified once nothing more is written to the segment before.
    pub(crate) done: oneshot::Sender<()>,
}

/// Next task of the journal's thread.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// Write the entries that were moved into the batch.
    Write,
    /// Continue in a new segment, with room for a frame of this many bytes.
    Roll {
        frame_bytes: u64,
    },
    /// Continue in another segment: see [`Queue::take_jump`].
    Jump,
    /// Nothing to write, but callbacks wait for entries that are already durable.
    Answer,
    Close,
}

/// Limits of the next frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) frame_bytes_max: usize,
    /// Bytes from the end of the log to the end of its segment.
    pub(crate) room_bytes: u64,
    /// The segment has no frame yet.
    pub(crate) segment_is_empty: bool,
}

impl Queue {
    pub(crate) fn new(writer: Signal) -> Self {
        Self { state: Mutex::default(), writer }
    }

    /// `false` when the queue is closed; then nothing was queued.
    pub(crate) fn put(&self, entries: &[Arc<EncodedEntry>], durable: DurableCallback) -> bool {
        let mut state = self.state.lock();
        if state.closing || state.closed {
            return false;
        }
        state.entries.extend(entries.iter().cloned());
        state.put += entries.len() as u64;
        let put = state.put;
        state.waiting.push_back((put, durable));
        true
    }

    /// Called after `put`, separately, so that the thread finds the caller's locks free.
    pub(crate) fn wake(&self) {
        self.writer.wake();
    }

    pub(crate) fn roll(&self) {
        self.state.lock().roll = true;
        self.writer.wake();
    }

    pub(crate) fn jump(&self, jump: Jump) {
        self.state.lock().jump = Some(jump);
        self.writer.wake();
    }

    /// The target of `Task::Jump`.
    pub(crate) fn take_jump(&self) -> Option<Jump> {
        self.state.lock().jump.take()
    }

    /// The thread still writes the queued entries, then ends.
    pub(crate) fn close(&self) {
        self.state.lock().closing = true;
        self.writer.wake();
    }

    /// The next task. Moves entries into `batch` (empty) for `Task::Write`. `None`: nothing to do
    /// until the writer is woken.
    pub(crate) fn next(&self, limits: Limits, batch: &mut Vec<Arc<EncodedEntry>>) -> Option<Task> {
        let mut state = self.state.lock();
        if std::mem::take(&mut state.roll) && !limits.segment_is_empty {
            return Some(Task::Roll { frame_bytes: 0 });
        }
        if let Some(first) = state.entries.front() {
            let frame_bytes = frame::frame_bytes(first.len.into());
            if frame_bytes > limits.room_bytes {
                return Some(Task::Roll { frame_bytes });
            }
            state.fill(limits, batch);
            return Some(Task::Write);
        }
        if state.jump.is_some() {
            return Some(Task::Jump);
        }
        let durable = state.durable;
        if state.waiting.front().is_some_and(|(needs, _)| *needs <= durable) {
            return Some(Task::Answer);
        }
        state.closing.then_some(Task::Close)
    }

    /// This many more entries are durable: moves the callbacks waiting for them to `answers`.
    pub(crate) fn durable(&self, entries: u64, answers: &mut Vec<DurableCallback>) {
        let mut state = self.state.lock();
        state.durable += entries;
        while state.waiting.front().is_some_and(|(needs, _)| *needs <= state.durable) {
            if let Some((_, durable)) = state.waiting.pop_front() {
                answers.push(durable);
            }
        }
    }

    /// Closes the queue. Returns all waiting callbacks.
    pub(crate) fn fail(&self) -> Vec<DurableCallback> {
        let mut state = self.state.lock();
        state.closed = true;
        state.entries.clear();
        state.jump = None;
        state.waiting.drain(..).map(|(_, durable)| durable).collect()
    }
}

impl State {
    /// Takes as many entries as fit into one frame, at least one.
    fn fill(&mut self, limits: Limits, batch: &mut Vec<Arc<EncodedEntry>>) {
        let bytes_max = limits.room_bytes.min(limits.frame_bytes_max as u64);
        let mut content_bytes = 0;
        while let Some(entry) = self.entries.front() {
            content_bytes += u64::from(entry.len);
            if !batch.is_empty() && frame::frame_bytes(content_bytes) > bytes_max {
                break;
            }
            batch.extend(self.entries.pop_front());
        }
    }
}
