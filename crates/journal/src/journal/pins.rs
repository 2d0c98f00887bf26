//! Retains the log for a reader while it grows.
//!
//! Purged entries stay as long as a pin needs them, and are dropped with the last such pin.
//! Snapshots continue to be taken; they let recovery begin at the first retained entry.

use std::sync::Arc;

use super::Journal;
use crate::shared::Shared;

/// Retains the log from an entry on. Ends when another node's snapshot is installed.
#[derive(Debug)]
pub struct LogPin {
    shared: Arc<Shared>,
    number: u64,
}

impl Journal {
    /// Retains the current entries of the log, and those appended later.
    pub fn pin_log(&self) -> LogPin {
        let shared = Arc::clone(self.shared());
        let number = shared.log.write().pin();
        LogPin { shared, number }
    }
}

impl LogPin {
    /// Releases the entries before this index.
    pub fn advance(&self, index: u64) {
        self.shared.log.write().advance_pin(self.number, index);
    }
}

impl Drop for LogPin {
    fn drop(&mut self) {
        self.shared.log.write().unpin(self.number);
    }
}
