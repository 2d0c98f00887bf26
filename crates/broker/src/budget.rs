//! Bytes in flight, bounded for the whole node: above the bound a session does not read its
//! socket, and so the pressure reaches the client.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Semaphores count in `u32`; a unit of this many bytes keeps large budgets countable.
const UNIT_BYTES: usize = 1024;

#[derive(Clone, Debug)]
pub(crate) struct Budget {
    units: Arc<Semaphore>,
    units_max: u32,
}

/// Room that was granted; given back when dropped.
#[derive(Debug)]
pub struct Permit {
    _units: Option<OwnedSemaphorePermit>,
}

impl Budget {
    pub(crate) fn new(bytes: usize) -> Self {
        let units_max = (bytes / UNIT_BYTES).clamp(1, Semaphore::MAX_PERMITS >> 3) as u32;
        Self { units: Arc::new(Semaphore::new(units_max as usize)), units_max }
    }

    /// Waits for room. Something larger than the whole budget gets all of it, alone.
    pub(crate) async fn admit(&self, bytes: usize) -> Permit {
        let units = u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX);
        let units = units.clamp(1, self.units_max);
        let granted = Arc::clone(&self.units).acquire_many_owned(units).await;
        // The semaphore is never closed; were it, there would be nothing left to protect.
        Permit { _units: granted.ok() }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn what_is_over_the_budget_waits_until_room_is_given_back() {
        let budget = Budget::new(64 << 10);
        let held = budget.admit(40 << 10).await;
        let waiting = budget.admit(40 << 10);
        tokio::pin!(waiting);
        assert!(tokio::time::timeout(Duration::from_millis(10), &mut waiting).await.is_err());
        drop(held);
        tokio::time::timeout(Duration::from_secs(5), waiting).await.expect("room was given back");
    }

    #[tokio::test]
    async fn one_request_larger_than_the_budget_is_served_alone() {
        let budget = Budget::new(1 << 10);
        drop(budget.admit(1 << 30).await);
        drop(budget.admit(1).await);
    }
}
