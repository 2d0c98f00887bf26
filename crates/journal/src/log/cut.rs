//! Forgetting the end of the log, where another leader's entries take its place.
//!
//! No file is cut. The entries leave the log in one step, while no frame can be laid out: what had its
//! place by then is told to the index as dead by whoever cuts, what gets it later by the journal's
//! thread, which finds the entry gone. The entries that take their place, with indexes that are not above
//! theirs, are the durable record of the cut.

use std::sync::Arc;

use super::{Log, LogState, Slot};
use crate::address::Address;
use crate::error::ReadError;
use crate::frame::EncodedEntry;

/// An entry that leaves the log after it had its place.
#[derive(Debug)]
pub(crate) struct Cut {
    pub(crate) index: u64,
    slot: Slot,
    /// Always there while the entry is not durable: then its segment need not have it yet.
    encoded: Option<Arc<EncodedEntry>>,
}

impl LogState {
    /// What a cut from `index` on would take.
    pub(crate) fn cut(&self, index: u64) -> Vec<Cut> {
        let placed = self.placed_from(index).into_iter();
        let cut = placed.map(|(index, slot)| {
            let encoded = self.tail.get(index).cloned();
            Cut { index, slot, encoded }
        });
        cut.collect()
    }
}

impl Log {
    /// Stream and address of each body of an entry that was cut off. Blocking, unless memory has it.
    pub(crate) fn cut_bodies(&self, cut: &Cut) -> Result<Vec<(u64, Address)>, ReadError> {
        self.bodies_at(cut.index, &cut.slot, cut.encoded.as_deref())
    }
}
