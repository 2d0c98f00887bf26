//! How the process ends when a part of the node is gone: within a second, with a message and exit
//! code 2, whatever else hangs.
//!
//! A thread of its own waits for that and does nothing else, so that neither a full queue nor a
//! busy runtime nor a log that nobody reads can be in its way. Whoever fails starts the countdown
//! first, then says why, and never goes on: it may hold the lock of what it left half changed.
//! Nothing is drained or flushed. What was acknowledged is on disk; for the rest, this is what
//! `kill -9` does, which recovery is made for.

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

use crate::task::{self, End};

/// As a command ends that its server fails.
pub const EXIT_CODE: i32 = 2;

/// For how long the message may take: standard error may be a pipe that nobody reads.
const SAY_WITHIN: Duration = Duration::from_millis(500);
/// If even exiting hangs, the process is aborted.
const EXIT_WITHIN: Duration = Duration::from_secs(2);

const RUNNING: u8 = 0;
const FAILED: u8 = 1;
const SAID: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(RUNNING);
static EXITING: OnceLock<Thread> = OnceLock::new();

/// From now on the process ends when a part of the node does that it cannot do without: when one
/// panics, and when one is reported.
pub fn on_failure() -> io::Result<()> {
    if EXITING.get().is_some() {
        return Ok(());
    }
    let exiting = thread::Builder::new().name("exit".into()).spawn(exit_when_failed)?;
    if EXITING.set(exiting.thread().clone()).is_ok() {
        let unwound = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            let current = task::current();
            if current.is_some_and(|task| task.end() != End::Process) {
                unwound(panic);
                return;
            }
            let name = current.map_or("an unknown task", task::Task::name);
            fail(|| {
                say(&panic_message(name, panic));
                // The place and, if wanted, the stack.
                unwound(panic);
            });
        }));
    }
    Ok(())
}

/// Ends the process for a reason other than a panic; returns only if it is not to end so.
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

/// The first failure is the cause: later ones say nothing, and wait for the end.
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

/// Past the standard library's lock, which a thread that hangs in a write would hold. A message
/// that cannot be written is not worth a second attempt: the exit code stays.
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
