//! Panics of any task, which fail a run.

use std::sync::{Mutex, PoisonError};

/// The first panic. A panic is a violation, also if the node continues after it.
static PANIC: Mutex<Option<String>> = Mutex::new(None);

/// Makes a panic of any task fail the run, without output of its own.
pub fn watch_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let mut first = PANIC.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert_with(|| panic.to_string());
    }));
}

/// The first panic since the last call.
pub(crate) fn panicked() -> Option<String> {
    PANIC.lock().unwrap_or_else(PoisonError::into_inner).take()
}
