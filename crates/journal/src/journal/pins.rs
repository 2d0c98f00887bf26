//! Keeping the log for somebody who reads it while it grows.
//!
//! What consensus lets go of stays as long as a pin wants it, and goes with the last one that does. Snapshots are taken
//! meanwhile; they say that recovery begins at the first entry that is left.

use std::sync::Arc;

use super::Journal;
use crate::shared::Shared;

/// Keeps the log from an entry on. Of no effect any more once another node's snapshot was installed.
#[derive(Debug)]
pub struct LogPin {
    shared: Arc<Shared>,
    number: u64,
}

impl Journal {
    /// Keeps all that is in the log now, and what comes.
    pub fn pin_log(&self) -> LogPin {
        let shared = Arc::clone(self.shared());
        let number = shared.log.write().pin();
        LogPin { shared, number }
    }
}

impl LogPin {
    /// What comes before the entry of this index may go.
    pub fn advance(&self, index: u64) {
        self.shared.log.write().advance_pin(self.number, index);
    }
}

impl Drop for LogPin {
    fn drop(&mut self) {
        self.shared.log.write().unpin(self.number);
    }
}
