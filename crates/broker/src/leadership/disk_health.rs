//! Health of this node's disk, and of the disks that other nodes report.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::limits::DISK_WELL_AFTER;

/// Whether this node's disk is fit to lead on.
#[derive(Debug, Default)]
pub(crate) struct DiskHealth {
    /// End of the unwell period, which further slow operations extend.
    unwell_until: Mutex<Option<Instant>>,
    /// Other nodes that report a full disk.
    full_elsewhere: Mutex<BTreeSet<u64>>,
}

impl DiskHealth {
    pub(crate) fn is_well(&self, now: Instant) -> bool {
        self.unwell_until.lock().is_none_or(|until| until <= now)
    }

    /// Notes the report of another node whether its disk is full.
    pub(crate) fn set_full(&self, node: u64, is_full: bool) {
        let mut full = self.full_elsewhere.lock();
        match is_full {
            true => full.insert(node),
            false => full.remove(&node),
        };
    }

    pub(crate) fn is_full_elsewhere(&self, node: u64) -> bool {
        self.full_elsewhere.lock().contains(&node)
    }

    /// The disk hangs, or is full.
    pub(crate) fn note_stuck(&self, now: Instant) {
        *self.unwell_until.lock() = Some(now + DISK_WELL_AFTER);
    }

    /// The disk is slow: an unwell disk stays unwell for longer.
    pub(crate) fn note_slow(&self, now: Instant) {
        if let Some(until) = self.unwell_until.lock().as_mut().filter(|until| **until > now) {
            *until = now + DISK_WELL_AFTER;
        }
    }
}
