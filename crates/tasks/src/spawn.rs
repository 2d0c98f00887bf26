//! Starting tasks and threads.
//!
//! Futures of tasks are boxed: the compiler generates the runtime's code for a task once, and not for each future.

use std::future::{Future, poll_fn};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::thread;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Either, select};
use tokio::task::{JoinError, JoinHandle, JoinSet};

use crate::failure::Failure;
use crate::inject;
use crate::task::{Task, TaskGuard};

/// Runs a future under the task's name. [`spawn`] uses it; it is public for a runtime that spawns by itself.
pub async fn named<F: Future>(task: Task, future: F) -> F::Output {
    if !inject::is_armed(task) {
        return within(task, future).await;
    }
    let injected = within(task, inject::panics(task));
    match select(pin!(injected), pin!(within(task, future))).await {
        Either::Left((never, _)) => match never {},
        Either::Right((output, _)) => output,
    }
}

async fn within<F: Future>(task: Task, future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|context| {
        let _entered = TaskGuard::new(task);
        future.as_mut().poll(context)
    })
    .await
}

/// Starts a task. If the task's end ends the process, the caller either uses [`vital`] or detects the return itself.
pub fn spawn<F>(task: Task, future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    tokio::spawn(named(task, future.boxed()))
}

/// Starts a vital task: its end is reported as a failure, unless the node is stopping.
pub fn vital(
    task: Task,
    future: impl Future<Output = ()> + Send + 'static,
    failure: &Failure,
) -> JoinHandle<()> {
    watch_vital(task, future.boxed(), failure.clone())
}

fn watch_vital(task: Task, future: BoxFuture<'static, ()>, failure: Failure) -> JoinHandle<()> {
    tokio::spawn(async move {
        let ended = AssertUnwindSafe(named(task, future)).catch_unwind().await;
        let name = task.name();
        match ended {
            Err(_) => failure.report(format!("{name} panicked")),
            Ok(()) if failure.expects_ends() => {}
            Ok(()) => failure.report(format!("{name} ended by itself")),
        }
    })
}

/// Starts a task that belongs to a session. If it panics, `on_panic` runs in its place.
pub fn watched(
    task: Task,
    future: impl Future<Output = ()> + Send + 'static,
    on_panic: impl Future<Output = ()> + Send + 'static,
) -> JoinHandle<()> {
    watch(task, future.boxed(), on_panic.boxed())
}

fn watch(
    task: Task,
    future: BoxFuture<'static, ()>,
    on_panic: BoxFuture<'static, ()>,
) -> JoinHandle<()> {
    tokio::spawn(async move {
        if AssertUnwindSafe(named(task, future)).catch_unwind().await.is_err() {
            within(task, on_panic).await;
        }
    })
}

/// Starts a thread. `on_panic` runs if the thread panics and the process continues, as in a test with an in-process
/// node.
pub fn thread(
    task: Task,
    name: String,
    work: impl FnOnce() + Send + 'static,
    on_panic: impl FnOnce() + Send + 'static,
) -> io::Result<thread::JoinHandle<()>> {
    thread::Builder::new().name(name).spawn(move || {
        let _entered = TaskGuard::new(task);
        if catch_unwind(AssertUnwindSafe(work)).is_err() {
            on_panic();
        }
    })
}

/// Tasks that end together with their owner, such as a listener's sessions.
#[derive(Debug, Default)]
pub struct Set(JoinSet<()>);

impl Set {
    pub fn spawn(&mut self, task: Task, future: impl Future<Output = ()> + Send + 'static) {
        self.0.spawn(within(task, future.boxed()));
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Waits for the next task to end and returns its outcome; `None` without tasks.
    pub async fn join_next(&mut self) -> Option<Result<(), JoinError>> {
        self.0.join_next().await
    }

    /// Aborts all tasks.
    pub async fn shutdown(&mut self) {
        self.0.shutdown().await;
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    #[tokio::test]
    async fn a_vital_task_that_panics_fails_the_node() {
        let failure = Failure::new();
        vital(Task::Sequencer, async { panic!("no soup") }, &failure).await.expect("caught");
        assert_eq!(failure.reported().await, "sequencer panicked");
    }

    #[tokio::test]
    async fn a_vital_task_that_returns_fails_the_node_unless_that_is_expected() {
        let failure = Failure::new();
        failure.expect_ends();
        vital(Task::Housekeeping, async {}, &failure).await.expect("it ends");
        assert_eq!(failure.reported().now_or_never(), None);

        let failure = Failure::new();
        vital(Task::Housekeeping, async {}, &failure).await.expect("it ends");
        assert_eq!(failure.reported().await, "housekeeping ended by itself");
    }

    #[tokio::test]
    async fn first_failure_is_the_reason_and_a_cancelled_task_is_no_failure() {
        let failure = Failure::new();
        let cancelled = vital(Task::Delivery, pending(), &failure);
        cancelled.abort();
        assert!(cancelled.await.is_err_and(|error| error.is_cancelled()));
        assert_eq!(failure.reported().now_or_never(), None);
        failure.report("first");
        failure.report("second");
        assert_eq!(failure.reported().await, "first");
    }

    #[test]
    fn panicking_thread_calls_on_panic() {
        let (told, hears) = std::sync::mpsc::channel();
        let panics = || panic!("no soup");
        let thread = thread(Task::JournalSealer, "test".into(), panics, move || {
            told.send(()).expect("the test waits");
        });
        thread.expect("starts").join().expect("the panic was caught");
        hears.recv().expect("told");
    }
}
