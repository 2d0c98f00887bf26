//! Blocking work: on threads in a server, as tasks in a simulation.
//!
//! A [`Worker`] does one piece of blocking work a step and returns when to take the next. It never waits inside a step:
//! code that changes its input wakes its [`Signal`]. So the same code runs on a thread that sleeps in between, and in a
//! simulation that decides the order and the duration of steps. [`Workers::blocking`] is for work that is done once,
//! for a waiting caller.

use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinHandle as TaskHandle};
use tokio::time::Instant;

use crate::inject;
use crate::spawn;
use crate::task::{Task, TaskGuard};

/// When a worker takes its next step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// At once.
    Again,
    /// After a wake of its signal, also if that happened during this step.
    Wait,
    /// As [`Step::Wait`], with a timeout.
    WaitFor(Duration),
    /// Never: the worker is done.
    Done,
}

pub trait Worker: Send + 'static {
    fn step(&mut self) -> Step;
}

/// Wakes a worker. Clones wake the same worker.
#[derive(Clone, Debug, Default)]
pub struct Signal(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// Set since the worker's last wait.
    woken: AtomicBool,
    sleeper: OnceLock<Sleeper>,
}

#[derive(Debug)]
enum Sleeper {
    Thread(Thread),
    Task(Notify),
}

impl Signal {
    pub fn wake(&self) {
        if self.0.woken.swap(true, Ordering::AcqRel) {
            return;
        }
        match self.0.sleeper.get() {
            Some(Sleeper::Thread(thread)) => thread.unpark(),
            Some(Sleeper::Task(notify)) => notify.notify_one(),
            // The worker checks `woken` before its first wait.
            None => {}
        }
    }

    /// Clears a wake and returns whether there was one.
    fn take(&self) -> bool {
        self.0.woken.swap(false, Ordering::AcqRel)
    }

    fn wait(&self, at_most: Option<Duration>) {
        let begun = Instant::now();
        while !self.take() {
            match at_most.map(|at_most| at_most.saturating_sub(begun.elapsed())) {
                None => thread::park(),
                Some(Duration::ZERO) => return,
                Some(left) => thread::park_timeout(left),
            }
        }
    }

    async fn waited(&self, at_most: Option<Duration>) {
        let Some(Sleeper::Task(notify)) = self.0.sleeper.get() else { return };
        let woken = async {
            while !self.take() {
                notify.notified().await;
            }
        };
        match at_most {
            None => woken.await,
            Some(at_most) => drop(tokio::time::timeout(at_most, woken).await),
        }
    }
}

/// Execution mode of workers.
#[derive(Clone, Default)]
pub enum Workers {
    /// Each on its own thread.
    #[default]
    Threads,
    /// Each as a task of the runtime that starts it, for simulations. The returned time passes after each step, and
    /// before work that is done once.
    Tasks(Arc<dyn Fn(Task) -> Duration + Send + Sync>),
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Threads => "Threads",
            Self::Tasks(_) => "Tasks",
        })
    }
}

impl Workers {
    /// Runs blocking work away from the threads that serve sockets. It completes even if the caller stops waiting.
    pub fn blocking<R: Send + 'static>(
        &self,
        task: Task,
        work: impl FnOnce() -> R + Send + 'static,
    ) -> TaskHandle<R> {
        self.start_blocking(task, Box::new(work))
    }

    /// Apart from [`Self::blocking`], so that it is compiled once for each type of result.
    fn start_blocking<R: Send + 'static>(
        &self,
        task: Task,
        work: Box<dyn FnOnce() -> R + Send>,
    ) -> TaskHandle<R> {
        let work = move || {
            let _entered = TaskGuard::new(task);
            inject::point(task);
            work()
        };
        match self {
            Self::Threads => tokio::task::spawn_blocking(work),
            Self::Tasks(took) => {
                let took = took(task);
                tokio::spawn(async move {
                    pass(took).await;
                    work()
                })
            }
        }
    }

    /// Starts a worker with a `signal` of its own. `on_panic` runs if the worker panics and the process continues, as
    /// in a test with an in-process node.
    pub fn start(
        &self,
        task: Task,
        name: &str,
        signal: &Signal,
        worker: impl Worker,
        on_panic: impl FnOnce() + Send + 'static,
    ) -> io::Result<WorkerHandle> {
        let signal = signal.clone();
        match self {
            Self::Threads => {
                let work = move || on_thread(task, &signal, worker);
                spawn::thread(task, name.to_owned(), work, on_panic).map(WorkerHandle::Thread)
            }
            Self::Tasks(took) => {
                let _ = signal.0.sleeper.set(Sleeper::Task(Notify::new()));
                let worker = Arc::new(Mutex::new(SteppedWorker {
                    worker: Some(Box::new(worker)),
                    on_panic: Some(Box::new(on_panic)),
                    task,
                }));
                let (stepped, took) = (Arc::clone(&worker), Arc::clone(took));
                let steps = async move {
                    loop {
                        let step = SteppedWorker::step(&stepped);
                        pass(took(task)).await;
                        match step {
                            Step::Again => {}
                            Step::Wait => signal.waited(None).await,
                            Step::WaitFor(at_most) => signal.waited(Some(at_most)).await,
                            Step::Done => return,
                        }
                    }
                };
                let task = tokio::spawn(steps).abort_handle();
                Ok(WorkerHandle::Task { worker, task })
            }
        }
    }
}

/// Lets simulated time pass. Yields to other tasks even if the time is zero.
async fn pass(time: Duration) {
    match time.is_zero() {
        true => tokio::task::yield_now().await,
        false => tokio::time::sleep(time).await,
    }
}

fn on_thread(task: Task, signal: &Signal, mut worker: impl Worker) {
    let _ = signal.0.sleeper.set(Sleeper::Thread(thread::current()));
    loop {
        inject::point(task);
        match worker.step() {
            Step::Again => {}
            Step::Wait => signal.wait(None),
            Step::WaitFor(at_most) => signal.wait(Some(at_most)),
            Step::Done => return,
        }
    }
}

/// A started worker.
#[derive(Debug)]
pub enum WorkerHandle {
    Thread(JoinHandle<()>),
    Task { worker: Arc<Mutex<SteppedWorker>>, task: AbortHandle },
}

impl WorkerHandle {
    /// Whether the caller is the worker itself.
    pub fn is_here(&self) -> bool {
        matches!(self, Self::Thread(handle) if handle.thread().id() == thread::current().id())
    }

    /// Waits until all workers are done. They must have been requested to stop; a panicked worker is done.
    pub fn join(all: impl IntoIterator<Item = Self>) {
        let mut stepped = Vec::new();
        for running in all {
            match running {
                // `on_panic` has reported a panic.
                Self::Thread(handle) => drop(handle.join()),
                Self::Task { worker, task } => {
                    task.abort();
                    stepped.push(worker);
                }
            }
        }
        // No time passes: a worker may wait for another worker's step.
        while !stepped.is_empty() {
            stepped.retain(|worker| SteppedWorker::step(worker) != Step::Done);
        }
    }
}

/// A worker whose steps a task runs.
pub struct SteppedWorker {
    /// `None` once the worker is done.
    worker: Option<Box<dyn Worker>>,
    on_panic: Option<Box<dyn FnOnce() + Send>>,
    task: Task,
}

impl fmt::Debug for SteppedWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SteppedWorker").field("task", &self.task).finish_non_exhaustive()
    }
}

impl SteppedWorker {
    fn step(stepped: &Mutex<Self>) -> Step {
        let mut stepped = stepped.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(mut worker) = stepped.worker.take() else { return Step::Done };
        let _entered = TaskGuard::new(stepped.task);
        let stepping = AssertUnwindSafe(|| {
            let step = worker.step();
            (step != Step::Done).then_some((worker, step))
        });
        match catch_unwind(stepping) {
            Ok(Some((worker, step))) => {
                stepped.worker = Some(worker);
                step
            }
            Ok(None) => Step::Done,
            Err(_) => {
                if let Some(on_panic) = stepped.on_panic.take() {
                    on_panic();
                }
                Step::Done
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    /// Counts `todo` down, by one a step.
    struct Counter {
        todo: Arc<AtomicU32>,
        done: Arc<AtomicU32>,
        stop: Arc<AtomicBool>,
    }

    impl Worker for Counter {
        fn step(&mut self) -> Step {
            if self.todo.load(Ordering::SeqCst) > 0 {
                self.todo.fetch_sub(1, Ordering::SeqCst);
                self.done.fetch_add(1, Ordering::SeqCst);
                return Step::Again;
            }
            match self.stop.load(Ordering::SeqCst) {
                true => Step::Done,
                false => Step::Wait,
            }
        }
    }

    struct StartedWorker {
        todo: Arc<AtomicU32>,
        done: Arc<AtomicU32>,
        stop: Arc<AtomicBool>,
        signal: Signal,
        running: WorkerHandle,
    }

    fn start(workers: &Workers) -> StartedWorker {
        let (todo, done, stop) = (Arc::default(), Arc::default(), Arc::default());
        let counter =
            Counter { todo: Arc::clone(&todo), done: Arc::clone(&done), stop: Arc::clone(&stop) };
        let signal = Signal::default();
        let running = workers
            .start(Task::JournalSealer, "counter", &signal, counter, || {})
            .expect("a thread to spare");
        StartedWorker { todo, done, stop, signal, running }
    }

    #[test]
    fn no_wake_is_lost_on_a_thread() {
        let StartedWorker { todo, done, stop, signal, running } = start(&Workers::Threads);
        for count in 1..=20_000 {
            todo.fetch_add(1, Ordering::SeqCst);
            signal.wake();
            if count % 3 == 0 {
                while done.load(Ordering::SeqCst) < count {
                    std::hint::spin_loop();
                }
            }
        }
        assert!(!running.is_here());
        stop.store(true, Ordering::SeqCst);
        signal.wake();
        WorkerHandle::join([running]);
        assert_eq!(done.load(Ordering::SeqCst), 20_000);
    }

    #[tokio::test(start_paused = true)]
    async fn simulated_steps_take_the_given_time_and_join_runs_the_remaining_steps() {
        let workers = Workers::Tasks(Arc::new(|_| Duration::from_millis(3)));
        let StartedWorker { todo, done, stop, signal, running } = start(&workers);
        todo.store(10, Ordering::SeqCst);
        signal.wake();
        tokio::time::sleep(Duration::from_millis(14)).await;
        assert_eq!(done.load(Ordering::SeqCst), 5);
        stop.store(true, Ordering::SeqCst);
        signal.wake();
        WorkerHandle::join([running]);
        assert_eq!(done.load(Ordering::SeqCst), 10);
    }

    #[tokio::test(start_paused = true)]
    async fn simulated_blocking_work_runs_on_the_callers_thread_after_the_given_time() {
        let workers = Workers::Tasks(Arc::new(|_| Duration::from_millis(3)));
        let (here, begun) = (thread::current().id(), Instant::now());
        let work = || (thread::current().id(), Instant::now());
        let (thread, done) = workers.blocking(Task::Unpacking, work).await.expect("it ends");
        assert_eq!((thread, done - begun), (here, Duration::from_millis(3)));
        let panics = workers.blocking(Task::Unpacking, || panic!("no soup"));
        assert!(panics.await.is_err_and(|error| error.is_panic()));
    }

    #[tokio::test]
    async fn blocking_work_runs_on_another_thread() {
        let work = || thread::current().id();
        let thread = Workers::Threads.blocking(Task::Unpacking, work).await.expect("it ends");
        assert_ne!(thread, thread::current().id());
    }

    #[test]
    fn wait_ends_at_its_timeout() {
        let signal = Signal::default();
        let begun = Instant::now();
        signal.wait(Some(Duration::from_millis(20)));
        assert!(begun.elapsed() >= Duration::from_millis(20));
        signal.wake();
        signal.wait(None);
    }

    #[tokio::test]
    async fn panic_is_reported_and_ends_the_worker() {
        struct Panics;
        impl Worker for Panics {
            fn step(&mut self) -> Step {
                panic!("no soup")
            }
        }
        for workers in [Workers::Threads, Workers::Tasks(Arc::new(|_| Duration::ZERO))] {
            let told = Arc::new(AtomicBool::new(false));
            let telling = Arc::clone(&told);
            let on_panic = move || telling.store(true, Ordering::SeqCst);
            let signal = Signal::default();
            let running = workers.start(Task::JournalSealer, "panics", &signal, Panics, on_panic);
            WorkerHandle::join([running.expect("a thread to spare")]);
            assert!(told.load(Ordering::SeqCst), "{workers:?}");
        }
    }
}
