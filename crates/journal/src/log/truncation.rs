//! Truncates the end of the log, where another leader's entries replace it.
//!
//! No file is truncated. The entries leave the log in one step, while no frame can be laid out.
//! Bodies that were placed by then are reported to the index as dead by the truncating caller.
//! Bodies placed later are reported by the journal's thread, which finds the entry gone. The
//! replacing entries, whose indexes are not above the truncated ones, are the durable record of the
//! truncation.

use std::sync::Arc;

use super::{Log, LogState, Slot};
use crate::address::Address;
use crate::error::ReadError;
use crate::frame::EncodedEntry;

/// A placed entry that leaves the log.
#[derive(Debug)]
pub(crate) struct TruncatedEntry {
    pub(crate) index: u64,
    slot: Slot,
    /// Always present while the entry is not durable: its segment need not have it yet.
    encoded: Option<Arc<EncodedEntry>>,
}

impl LogState {
    /// The placed entries that a truncation from `index` on removes.
    pub(crate) fn cut(&self, index: u64) -> Vec<TruncatedEntry> {
        let placed = self.placed_from(index).into_iter();
        let cut = placed.map(|(index, slot)| {
            let encoded = self.tail.get(index).cloned();
            TruncatedEntry { index, slot, encoded }
        });
        cut.collect()
    }
}

impl Log {
    /// Stream and address of each body of a truncated entry. Blocking, unless it is in memory.
    pub(crate) fn cut_bodies(
        &self,
        cut: &TruncatedEntry,
    ) -> Result<Vec<(u64, Address)>, ReadError> {
        self.bodies_at(cut.index, &cut.slot, cut.encoded.as_deref())
    }
}
