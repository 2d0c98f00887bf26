//! Limits on the state of one engine. At a limit it stops reading, and resumes when the amount
//! falls; nothing is dropped.

use crate::limits;

/// The product's values are in [`base::limits`]; tests have smaller ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Loaded ready records of one partition, at times twice as many; the others are ranges.
    pub loaded_per_partition: usize,
    /// Loaded records over all partitions: beyond it each has a few.
    pub loaded: usize,
    /// Cells of ready records beyond the loaded ones: blocks of 64 offsets with some of them.
    pub cells_per_partition: usize,
    /// With priorities, the most records read before one is delivered.
    pub read_first: u64,
    pub blocked: usize,
    pub delayed: u64,
    pub dead: usize,
    pub leased: usize,
    /// Unsettled records with counted attempts. At the bound no other record is leased: each attempt is stored.
    pub attempts: usize,
    /// Timers processed by one tick.
    pub timers_per_tick: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            loaded_per_partition: limits::LEASE_READY_PER_PARTITION,
            loaded: limits::LEASE_READY_PER_GROUP,
            cells_per_partition: limits::LEASE_READY_CELLS_PER_PARTITION,
            read_first: limits::LEASE_READ_FIRST_PER_PARTITION,
            blocked: limits::LEASE_BLOCKED_PER_GROUP,
            delayed: limits::LEASE_DELAYED_PER_GROUP,
            dead: limits::LEASE_DEAD_PER_GROUP,
            leased: limits::LEASES_PER_GROUP,
            attempts: limits::LEASE_ATTEMPTS_PER_GROUP,
            timers_per_tick: limits::LEASE_TIMERS_PER_TICK,
        }
    }
}

impl Bounds {
    /// Maximum number of loaded records of a partition, given the number loaded in total.
    pub(crate) fn window(&self, loaded: usize) -> usize {
        const FEW: usize = 64;
        if loaded < self.loaded {
            self.loaded_per_partition
        } else {
            self.loaded_per_partition.min(FEW)
        }
    }

    /// Below this many loaded records a partition is read further.
    pub(crate) fn low(&self, loaded: usize) -> usize {
        (self.window(loaded) / 4).max(1)
    }
}
