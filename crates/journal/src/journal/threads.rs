//! The threads of a journal.

use std::fmt;
use std::io;
use std::sync::Arc;

use tasks::{Step, Task, Worker, WorkerHandle, Workers};

use crate::commit::Writer;
use crate::segment::{Preparer, Signals, WriteEnd};
use crate::shared::Shared;

pub(super) struct Threads {
    writer: WorkerHandle,
    preparer: WorkerHandle,
    sealer: WorkerHandle,
    /// Dropped last: the directory stays claimed until no thread uses it.
    _claim: Box<dyn Send + Sync>,
}

/// The thread that preallocates segments.
struct PreparerThread {
    shared: Arc<Shared>,
    preparer: Preparer,
}

impl Worker for PreparerThread {
    fn step(&mut self) -> Step {
        self.preparer.step(&self.shared.spares)
    }
}

impl fmt::Debug for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Threads")
    }
}

impl Threads {
    pub(super) fn start(
        workers: &Workers,
        shared: &Arc<Shared>,
        signals: &Signals,
        end: WriteEnd,
        claim: Box<dyn Send + Sync>,
    ) -> io::Result<Self> {
        let on_panic = |task| shared.clone().panicked(task);
        let preparer = workers.start(
            Task::JournalPreparer,
            "journal-prepare",
            &signals.preparer,
            PreparerThread { shared: shared.clone(), preparer: Preparer::new() },
            on_panic(Task::JournalPreparer),
        )?;
        let sealer = shared.index.seal_in_background(workers, on_panic(Task::JournalSealer))?;
        let writer = workers.start(
            Task::JournalWriter,
            "journal",
            &signals.writer,
            Writer::new(shared.clone(), end),
            on_panic(Task::JournalWriter),
        )?;
        Ok(Self { writer, preparer, sealer, _claim: claim })
    }

    pub(super) fn join(self) {
        if self.writer.is_here() {
            // A callback dropped the last handle: this is the writer's own thread, which cannot join
            // itself.
            let join = move || self.join();
            // If the thread cannot be started, the others end without being joined.
            drop(tasks::thread(Task::JournalClosing, "journal-close".into(), join, || {}));
            return;
        }
        WorkerHandle::join([self.writer, self.preparer, self.sealer]);
    }
}
