//! Accepting, refusing and removing bodies, for the broker: called from apply, in log order.

use std::io;
use std::ops::Range;

use super::Journal;
use crate::address::Address;
use crate::error::JournalFailed;
use crate::index::Index;
use crate::shared::ApplyingEntry;

impl Journal {
    /// Waits until entry `index`, and so every one before it, has its position in a segment: then
    /// `accept` and `refuse` do not wait for the disk. Await it before taking the lock under which
    /// entries are applied. In a group of one, committed entries always have their position.
    pub async fn placed(&self, index: u64) -> Result<(), JournalFailed> {
        let shared = &self.inner.shared;
        loop {
            // Created before the check, so that a notification in between is not missed.
            let placed = shared.placed.notified();
            if !shared.log.read().awaits_placement(index) {
                return Ok(());
            }
            shared.check()?;
            placed.await;
        }
    }

    /// The machine accepted this body: it is served from now on.
    pub fn accept(&self, log_index: u64, body: usize) {
        self.with_address(log_index, body, |index, stream, address| {
            index.accept(log_index, stream, address);
        });
    }

    /// The machine refused this body: its bytes are dead.
    pub fn refuse(&self, log_index: u64, body: usize) {
        self.with_address(log_index, body, |index, stream, address| {
            index.refuse(log_index, stream, address);
        });
    }

    /// Finds the address of a body of the entry that is being applied, and reports it to the index.
    fn with_address(&self, log_index: u64, body: usize, report: impl FnOnce(&Index, u64, Address)) {
        let shared = &self.inner.shared;
        let mut applying = shared.applying.lock();
        if applying.index != Some(log_index) {
            match shared.log.bodies(log_index) {
                Ok(bodies) => *applying = ApplyingEntry { index: Some(log_index), bodies },
                Err(error) => {
                    // A committed body could never be served: the machine must stop.
                    let error = io::Error::other(error);
                    shared.fail(JournalFailed::io("read", shared.dir.clone(), error));
                    return;
                }
            }
        }
        let (stream, address) = applying.bodies[body];
        report(&shared.index, stream, address);
    }

    /// Everything of `stream` below `start_offset` is dead.
    pub fn trim(&self, stream: u64, start_offset: u64) {
        self.inner.shared.index.trim(stream, start_offset);
    }

    /// The offsets `from..to` of `stream` are dead. A batch is dead once all its offsets are, by
    /// any number of calls of this and `trim`. Idempotent.
    pub fn punch(&self, stream: u64, from: u64, to: u64) {
        self.inner.shared.index.punch(stream, from, to);
    }

    /// Everything in these streams is dead: their topic was deleted.
    pub fn remove(&self, streams: Range<u64>) {
        self.inner.shared.index.remove(streams);
    }
}
