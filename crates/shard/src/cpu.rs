//! Pool for long work on records: compressing, decompressing, and decoding data whose size a client chose.
//!
//! The threads that serve sockets also carry every append on its way to the disk. They hand over any work that takes
//! longer than the hop to another thread. Each session runs one job at a time and waits for it, which keeps the
//! session's order.

use std::sync::Arc;
use std::thread::available_parallelism;

use base::limits::CPU_JOBS_MAX;
use bytes::Bytes;
use record::BatchHeader;
use tasks::{Task, Workers};
use tokio::sync::Semaphore;
use tokio::task::JoinError;

#[derive(Clone, Debug)]
pub struct CpuPool {
    workers: Workers,
    /// First come, first served: each session has one job at a time, so none can crowd out others.
    slots: Arc<Semaphore>,
}

impl CpuPool {
    /// Uses half of the cores: the others are for sockets and for the disk.
    pub fn new(workers: Workers) -> Self {
        // In a simulation the number of cores must depend on the seed only.
        let cores = match workers {
            Workers::Threads => available_parallelism().map_or(1, usize::from),
            Workers::Tasks(_) => 2,
        };
        Self::with_slots(workers, (cores / 2).clamp(1, CPU_JOBS_MAX))
    }

    fn with_slots(workers: Workers, slots: usize) -> Self {
        Self { workers, slots: Arc::new(Semaphore::new(slots)) }
    }

    /// A pool with its own slots, so that its jobs and those of this pool do not wait for each other.
    pub fn separate(&self, slots: usize) -> Self {
        Self::with_slots(self.workers.clone(), slots)
    }

    /// Runs a session's work on another thread. If the caller is dropped meanwhile the job still finishes, and
    /// occupies its slot until then. A panic in it propagates to the caller.
    pub async fn run<R: Send + 'static>(&self, job: impl FnOnce() -> R + Send + 'static) -> R {
        self.run_as(Task::Unpacking, job).await
    }

    /// [`run`](Self::run) for work outside sessions.
    pub async fn run_as<R: Send + 'static>(
        &self,
        task: Task,
        job: impl FnOnce() -> R + Send + 'static,
    ) -> R {
        // The semaphore is never closed.
        let slot = Arc::clone(&self.slots).acquire_owned().await.ok();
        let running = self.workers.blocking(task, move || {
            let _slot = slot;
            job()
        });
        match running.await.map_err(JoinError::try_into_panic) {
            Ok(done) => done,
            Err(Ok(panic)) => std::panic::resume_unwind(panic),
            // The runtime shuts down, and takes the caller with it.
            Err(Err(_)) => std::future::pending().await,
        }
    }
}

/// An uncompressed stored batch of up to this size is read at once: walking 10,000 records takes as long as the hop
/// to another thread and back.
const INLINE_BYTES_MAX: usize = 1 << 20;
const INLINE_RECORDS_MAX: i32 = 10_000;

/// Whether reading a batch of this size takes about as long as the hop to another thread.
#[inline]
pub fn is_quick(header: &BatchHeader, bytes: usize) -> bool {
    header.attributes.compression().is_none()
        && bytes <= INLINE_BYTES_MAX
        && header.record_count <= INLINE_RECORDS_MAX
}

impl CpuPool {
    /// Reads a stored batch: here if that is quick, else on another thread.
    pub async fn read_batch<R: Send + 'static>(
        &self,
        batch: Bytes,
        read: impl FnOnce(&Bytes) -> R + Send + 'static,
    ) -> R {
        // A batch with a damaged header takes no time.
        let header = BatchHeader::parse(&batch);
        if header.map_or(true, |header| is_quick(&header, batch.len())) {
            read(&batch)
        } else {
            self.run(move || read(&batch)).await
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use record::{BatchBuilder, BatchOptions, Compression};

    use super::*;

    #[tokio::test]
    async fn concurrent_jobs_never_exceed_the_slots() {
        let pool = CpuPool::with_slots(Workers::default(), 2);
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let jobs = (0..20).map(|n| {
            let (running, most) = (Arc::clone(&running), Arc::clone(&most));
            pool.run(move || {
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                std::thread::yield_now();
                running.fetch_sub(1, Ordering::SeqCst);
                n
            })
        });
        let done = futures_util::future::join_all(jobs).await;
        assert_eq!(done, (0..20).collect::<Vec<_>>());
        assert!(most.load(Ordering::SeqCst) <= 2);
    }

    #[tokio::test]
    async fn only_small_uncompressed_batches_are_read_on_the_callers_thread() {
        let pool = CpuPool::with_slots(Workers::default(), 1);
        let here = std::thread::current().id();
        let options = |compression| BatchOptions { compression, ..BatchOptions::default() };
        let batch = |compression, len: usize| {
            let mut builder = BatchBuilder::new(options(compression));
            builder.push(0, None, Some(&vec![b'x'; len]), &[]).expect("it fits");
            Bytes::from(builder.finish())
        };
        let thread = |_: &Bytes| std::thread::current().id();
        assert_eq!(pool.read_batch(batch(Compression::None, 100), thread).await, here);
        assert_ne!(pool.read_batch(batch(Compression::Lz4, 100), thread).await, here);
        assert_ne!(pool.read_batch(batch(Compression::None, 2 << 20), thread).await, here);
        assert_eq!(pool.read_batch(Bytes::from_static(b"no batch"), thread).await, here);
    }

    #[tokio::test]
    async fn panic_reaches_the_caller_and_frees_the_slot() {
        let pool = CpuPool::with_slots(Workers::default(), 1);
        let other = pool.clone();
        let asking = tokio::spawn(async move { other.run(|| panic!("no soup")).await });
        assert!(asking.await.expect_err("it panicked").is_panic());
        assert_eq!(pool.run(|| 1).await, 1);
    }
}
