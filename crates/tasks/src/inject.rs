//! Injected panics, for tests of the real binary.
//!
//! `POSTROAD_PANIC_IN=TASK:FILE` makes the task of that name panic as soon as FILE exists. The task deletes the file
//! first, so that only one of several tasks of that name panics, once, and so that the test sees when. Without the
//! variable a task costs nothing more, and a thread one relaxed load for each round of its loop.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::task::Task;

pub const VARIABLE: &str = "POSTROAD_PANIC_IN";

/// Poll interval of the file.
const LOOK_EVERY: Duration = Duration::from_millis(10);

static ARMED: AtomicBool = AtomicBool::new(false);
static INJECTION: OnceLock<Injection> = OnceLock::new();

#[derive(Debug)]
struct Injection {
    task: Task,
    file: PathBuf,
}

/// Reads the variable. Call it before any task starts.
pub fn arm() -> Result<(), String> {
    let Some(value) = std::env::var_os(VARIABLE) else { return Ok(()) };
    let value = value.to_string_lossy();
    let refused = || format!("{VARIABLE}={value}: not TASK:FILE with a task of the table");
    let (name, file) = value.split_once(':').ok_or_else(refused)?;
    let task = Task::from_name(name).ok_or_else(refused)?;
    if INJECTION.set(Injection { task, file: file.into() }).is_ok() {
        ARMED.store(true, Ordering::Release);
    }
    Ok(())
}

/// A point at which a thread, or code within a task, may be made to panic.
#[inline]
pub fn point(task: Task) {
    if ARMED.load(Ordering::Relaxed) && is_armed(task) && is_due() {
        panic!("injected into {}", task.name());
    }
}

pub(crate) fn is_armed(task: Task) -> bool {
    ARMED.load(Ordering::Acquire) && INJECTION.get().is_some_and(|injection| injection.task == task)
}

/// Waits until the task is to panic, then panics.
pub(crate) async fn panics(task: Task) -> Infallible {
    loop {
        point(task);
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn is_due() -> bool {
    INJECTION.get().is_some_and(|injection| std::fs::remove_file(&injection.file).is_ok())
}
