//! tokio as openraft's runtime, with three differences: a panic in any of its tasks counts as one of consensus,
//! its random numbers follow from a seed, and it never sleeps for less than the resolution of tokio's timer.
//!
//! openraft collects completions of the log for one microsecond before it processes them. tokio's timer counts
//! milliseconds, so that with several appends in flight each such wait would take a thousand times as long as
//! intended: it was the 99.9th percentile of a proposal.

use std::cell::Cell;
use std::future::{Future, Ready, ready};
use std::time::Duration;

use futures_util::future::Either;
use openraft::async_runtime::Instant;
use openraft::{AsyncRuntime, OptionalSend, TokioRuntime};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tasks::Task;
use tokio::task::futures::TaskLocalFuture;

/// A tenth of tokio's resolution.
const SLEEP_MIN: Duration = Duration::from_micros(100);

tokio::task_local! {
    /// Seed of the next random numbers, or of the next task, of an engine's task.
    static SEED: Cell<u64>;
}

/// Makes the random numbers of the engine that `future` starts follow from `seed`.
pub(crate) fn with_seed<F: Future>(seed: u64, future: F) -> TaskLocalFuture<Cell<u64>, F> {
    SEED.scope(Cell::new(seed), future)
}

/// A new seed for the calling task. In a task that no engine started it is 0: the engine uses random numbers only
/// in tasks of its own.
fn next_seed() -> u64 {
    let next = |seed: &Cell<u64>| SmallRng::seed_from_u64(seed.replace(seed.get() + 1)).next_u64();
    SEED.try_with(next).unwrap_or_default()
}

#[derive(Debug)]
pub(crate) struct Runtime(TokioRuntime);

type TokioInstant = <TokioRuntime as AsyncRuntime>::Instant;

impl AsyncRuntime for Runtime {
    type JoinError = <TokioRuntime as AsyncRuntime>::JoinError;
    type JoinHandle<T: OptionalSend + 'static> = <TokioRuntime as AsyncRuntime>::JoinHandle<T>;
    type Sleep = Either<Ready<()>, <TokioRuntime as AsyncRuntime>::Sleep>;
    type Instant = TokioInstant;
    type TimeoutError = <TokioRuntime as AsyncRuntime>::TimeoutError;
    type Timeout<R, T: Future<Output = R> + OptionalSend> =
        <TokioRuntime as AsyncRuntime>::Timeout<R, T>;
    type ThreadLocalRng = SmallRng;
    type Mpsc = <TokioRuntime as AsyncRuntime>::Mpsc;
    type Watch = <TokioRuntime as AsyncRuntime>::Watch;
    type Oneshot = <TokioRuntime as AsyncRuntime>::Oneshot;
    type Mutex<T: OptionalSend + 'static> = <TokioRuntime as AsyncRuntime>::Mutex<T>;

    fn spawn<T>(future: T) -> Self::JoinHandle<T::Output>
    where
        T: Future + OptionalSend + 'static,
        T::Output: OptionalSend + 'static,
    {
        // All tasks of the engine are started here.
        TokioRuntime::spawn(with_seed(next_seed(), tasks::named(Task::Consensus, future)))
    }

    fn sleep(duration: Duration) -> Self::Sleep {
        match duration < SLEEP_MIN {
            true => Either::Left(ready(())),
            false => Either::Right(TokioRuntime::sleep(duration)),
        }
    }

    fn sleep_until(deadline: TokioInstant) -> Self::Sleep {
        match deadline < TokioInstant::now() + SLEEP_MIN {
            true => Either::Left(ready(())),
            false => Either::Right(TokioRuntime::sleep_until(deadline)),
        }
    }

    fn timeout<R, F>(duration: Duration, future: F) -> Self::Timeout<R, F>
    where
        F: Future<Output = R> + OptionalSend,
    {
        TokioRuntime::timeout(duration, future)
    }

    fn timeout_at<R, F>(deadline: TokioInstant, future: F) -> Self::Timeout<R, F>
    where
        F: Future<Output = R> + OptionalSend,
    {
        TokioRuntime::timeout_at(deadline, future)
    }

    fn is_panic(error: &Self::JoinError) -> bool {
        TokioRuntime::is_panic(error)
    }

    fn thread_rng() -> Self::ThreadLocalRng {
        SmallRng::seed_from_u64(next_seed())
    }

    fn new(threads: usize) -> Self {
        Self(TokioRuntime::new(threads))
    }

    fn block_on<F, T>(&mut self, future: F) -> T
    where
        F: Future<Output = T>,
    {
        self.0.block_on(future)
    }
}
