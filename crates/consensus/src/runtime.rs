//! tokio as openraft's runtime, except that a panic in any of its tasks counts as one of consensus,
//! and that it never sleeps for less than tokio's timer can tell.
//!
//! openraft collects completions of the log for one microsecond before it looks at them. tokio's
//! timer counts milliseconds, so that with several appends in flight each such wait would cost a
//! thousand times what it was meant to: it was the 99.9th percentile of a proposal.

use std::future::{Future, Ready, ready};
use std::time::Duration;

use futures_util::future::Either;
use openraft::async_runtime::Instant;
use openraft::{AsyncRuntime, OptionalSend, TokioRuntime};
use tasks::Task;

/// A tenth of tokio's resolution.
const SLEEP_MIN: Duration = Duration::from_micros(100);

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
    type ThreadLocalRng = <TokioRuntime as AsyncRuntime>::ThreadLocalRng;
    type Mpsc = <TokioRuntime as AsyncRuntime>::Mpsc;
    type Watch = <TokioRuntime as AsyncRuntime>::Watch;
    type Oneshot = <TokioRuntime as AsyncRuntime>::Oneshot;
    type Mutex<T: OptionalSend + 'static> = <TokioRuntime as AsyncRuntime>::Mutex<T>;

    fn spawn<T>(future: T) -> Self::JoinHandle<T::Output>
    where
        T: Future + OptionalSend + 'static,
        T::Output: OptionalSend + 'static,
    {
        // All that the engine starts comes by here.
        TokioRuntime::spawn(tasks::named(Task::Consensus, future))
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
        TokioRuntime::thread_rng()
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
