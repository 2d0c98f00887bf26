//! Reader threads, which wait for the disk.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use tasks::{Task, Workers};
use tokio::sync::oneshot;

use crate::error::ReadError;

type Job = Box<dyn FnOnce() + Send>;

/// Runs reads. The requests in flight bound the number of waiting reads.
#[derive(Debug)]
pub(super) enum Pool {
    /// A few threads of the journal.
    Threads { queue: Arc<Queue>, threads: usize },
    /// A task for each read, in a simulation.
    Tasks(Workers),
}

#[derive(Default)]
pub(super) struct Queue {
    jobs: Mutex<Jobs>,
    changed: Condvar,
}

#[derive(Default)]
struct Jobs {
    waiting: VecDeque<Job>,
    stop: bool,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").field("waiting", &self.jobs.lock().waiting.len()).finish()
    }
}

impl Pool {
    pub(super) fn start(
        threads: usize,
        on_panic: impl Fn() + Clone + Send + 'static,
    ) -> io::Result<Self> {
        let queue = Arc::<Queue>::default();
        // Ends the started threads when it is dropped.
        let pool = Self::Threads { queue: queue.clone(), threads };
        for number in 0..threads {
            let queue = queue.clone();
            let name = format!("journal-read-{number}");
            tasks::thread(Task::JournalReader, name, move || queue.serve(), on_panic.clone())?;
        }
        Ok(pool)
    }

    pub(super) async fn run<R: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<R, ReadError> + Send + 'static,
    ) -> Result<R, ReadError> {
        let queue = match self {
            Self::Threads { threads: 0, .. } => return work(),
            Self::Threads { queue, .. } => queue,
            Self::Tasks(workers) => {
                let read = workers.blocking(Task::JournalReader, work).await;
                return read.unwrap_or(Err(ReadError::Closed));
            }
        };
        let (answer, answered) = oneshot::channel();
        let job: Job = Box::new(move || {
            // The caller may have dropped the request.
            if !answer.is_closed() {
                let _ = answer.send(work());
            }
        });
        {
            let mut jobs = queue.jobs.lock();
            if jobs.stop {
                return Err(ReadError::Closed);
            }
            jobs.waiting.push_back(job);
        }
        queue.changed.notify_one();
        answered.await.unwrap_or(Err(ReadError::Closed))
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let Self::Threads { queue, .. } = self else { return };
        let mut jobs = queue.jobs.lock();
        jobs.stop = true;
        jobs.waiting.clear();
        drop(jobs);
        queue.changed.notify_all();
    }
}

impl Queue {
    fn serve(&self) {
        loop {
            let mut jobs = self.jobs.lock();
            while jobs.waiting.is_empty() && !jobs.stop {
                self.changed.wait(&mut jobs);
            }
            let Some(job) = jobs.waiting.pop_front() else { return };
            drop(jobs);
            tasks::inject::point(Task::JournalReader);
            job();
        }
    }
}
