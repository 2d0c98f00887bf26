//! Exit of the process after the failure of a vital part: within a second, with a message and exit code 2, whatever
//! else hangs.
//!
//! A dedicated thread waits for the failure and does nothing else, so that no full queue, busy runtime or unread log
//! can block it. The failing thread first starts the countdown, then prints the reason, and never continues: it may
//! hold the lock of half-changed state. Nothing is drained or flushed. Acknowledged data is on disk; for the rest the
//! exit equals `kill -9`, which recovery handles.

use std::any::Any;
use std::fmt::Write as _;
use std::io;
use std::panic::{self, PanicHookInfo};
use std::process;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

use tokio::time::Instant;

use crate::task::{self, EndConsequence};

/// Exit code of a command whose server fails.
pub const EXIT_CODE: i32 = 2;

/// Time limit of the message: standard error may be a pipe without a reader.
const SAY_WITHIN: Duration = Duration::from_millis(500);
/// The process is aborted if even exiting hangs.
const EXIT_WITHIN: Duration = Duration::from_secs(2);

const RUNNING: u8 = 0;
const FAILED: u8 = 1;
const SAID: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(RUNNING);
static EXITING: OnceLock<Thread> = OnceLock::new();

/// From now on the process ends when a vital part of the node panics or is reported as failed.
pub fn on_failure() -> io::Result<()> {
    if EXITING.get().is_some() {
        return Ok(());
    }
    let exiting = thread::Builder::new().name("exit".into()).spawn(exit_when_failed)?;
    if EXITING.set(exiting.thread().clone()).is_ok() {
        let unwound = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            let current = task::current();
            if current.is_some_and(|task| task.end() != EndConsequence::Process) {
                unwound(panic);
                return;
            }
            let name = current.map_or("an unknown task", task::Task::name);
            fail(|| {
                say(&panic_message(name, panic));
                // Prints the location and, if enabled, the backtrace.
                unwound(panic);
            });
        }));
    }
    Ok(())
}

/// Ends the process for a reason other than a panic. Returns only if [`on_failure`] was never called.
pub(crate) fn with(reason: &str) {
    if EXITING.get().is_some() {
        fail(|| say(&message(reason)));
    }
}

fn exit_when_failed() {
    while STATE.load(Ordering::Acquire) == RUNNING {
        thread::park();
    }
    let deadline = Instant::now() + SAY_WITHIN;
    while STATE.load(Ordering::Acquire) != SAID {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        thread::park_timeout(left);
    }
    process::exit(EXIT_CODE);
}

/// The first failure is the cause: later ones print nothing, and wait for the exit.
fn fail(say: impl FnOnce()) -> ! {
    let first =
        STATE.compare_exchange(RUNNING, FAILED, Ordering::AcqRel, Ordering::Acquire).is_ok();
    if first {
        wake();
        say();
        STATE.store(SAID, Ordering::Release);
        wake();
    }
    let deadline = Instant::now() + EXIT_WITHIN;
    while Instant::now() < deadline {
        thread::park_timeout(EXIT_WITHIN);
    }
    process::abort();
}

fn wake() {
    if let Some(exiting) = EXITING.get() {
        exiting.unpark();
    }
}

fn message(reason: &str) -> String {
    format!(
        "postroad: {reason}. The process ends now with code {EXIT_CODE}, so that nothing is served \
         from a broken state. Start it again: everything acknowledged is on disk.\n"
    )
}

fn panic_message(name: &str, panic: &PanicHookInfo<'_>) -> String {
    let mut reason = format!("{name} panicked: {}", payload(panic.payload()));
    if let Some(place) = panic.location() {
        let _ = write!(reason, " ({}:{})", place.file(), place.line());
    }
    message(&reason)
}

fn payload(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

/// Bypasses the standard library's lock, which a thread that hangs in a write would hold. A failed write is not
/// retried: the exit code remains.
fn say(text: &str) {
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        match rustix::io::write(rustix::stdio::stderr(), rest) {
            Ok(0) => return,
            Ok(written) => rest = &rest[written..],
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
    }
}
