//! Node-wide bound of the bytes in flight. Above it a session does not read its socket, so the back-pressure reaches
//! the client.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Semaphores count in `u32`; a unit of this many bytes keeps large budgets countable.
const UNIT_BYTES: usize = 1024;

#[derive(Clone, Debug)]
pub struct Budget {
    units: Arc<Semaphore>,
    units_max: u32,
    /// One holder at a time may go over the budget: see [`Budget::grow`].
    overdraft: Arc<Semaphore>,
}

/// Granted room, returned on drop.
#[derive(Debug, Default)]
pub struct Permit {
    units: Option<OwnedSemaphorePermit>,
    overdraft: Option<OwnedSemaphorePermit>,
}

impl Budget {
    pub fn new(bytes: usize) -> Self {
        let units_max = (bytes / UNIT_BYTES).clamp(1, Semaphore::MAX_PERMITS >> 3) as u32;
        Self {
            units: Arc::new(Semaphore::new(units_max as usize)),
            units_max,
            overdraft: Arc::new(Semaphore::new(1)),
        }
    }

    /// Waits for room. A request larger than the whole budget gets all of it, alone.
    pub async fn admit(&self, bytes: usize) -> Permit {
        let granted = Arc::clone(&self.units).acquire_many_owned(self.units(bytes)).await;
        // The semaphore is never closed; were it, there would be nothing left to protect.
        Permit { units: granted.ok(), overdraft: None }
    }

    /// Returns room if there is some now.
    pub fn try_admit(&self, bytes: usize) -> Option<Permit> {
        let granted = Arc::clone(&self.units).try_acquire_many_owned(self.units(bytes)).ok()?;
        Some(Permit { units: Some(granted), overdraft: None })
    }

    /// Waits for room in addition to that of `permit`: for requests that arrive piece by piece, so that bytes
    /// announced but not sent take no room from others.
    ///
    /// Holders that wait for more while they keep their room would deadlock. So one of them at a time continues
    /// without room, until its permit is dropped.
    pub async fn grow(&self, permit: &mut Permit, bytes: usize) {
        if permit.overdraft.is_some() {
            return;
        }
        tokio::select! {
            biased;
            more = self.admit(bytes) => match (&mut permit.units, more.units) {
                (Some(units), Some(more)) => units.merge(more),
                (units, more) => *units = more,
            },
            turn = Arc::clone(&self.overdraft).acquire_owned() => permit.overdraft = turn.ok(),
        }
    }

    /// Returns the bytes granted, and the limit.
    pub fn used_and_max(&self) -> (u64, u64) {
        let used =
            self.units_max as usize - self.units.available_permits().min(self.units_max as usize);
        (used as u64 * UNIT_BYTES as u64, u64::from(self.units_max) * UNIT_BYTES as u64)
    }

    /// Whether a request of more than a little would have to wait.
    pub fn is_used_up(&self) -> bool {
        self.units.available_permits() < (self.units_max as usize / 16).max(1)
    }

    fn units(&self, bytes: usize) -> u32 {
        u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX).clamp(1, self.units_max)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn request_over_the_budget_waits_for_released_room() {
        let budget = Budget::new(64 << 10);
        let held = budget.admit(40 << 10).await;
        let waiting = budget.admit(40 << 10);
        tokio::pin!(waiting);
        assert!(tokio::time::timeout(Duration::from_millis(10), &mut waiting).await.is_err());
        assert!(budget.try_admit(40 << 10).is_none());
        drop(held);
        tokio::time::timeout(Duration::from_secs(5), waiting).await.expect("room was given back");
    }

    #[tokio::test]
    async fn request_larger_than_the_budget_is_served_alone() {
        let budget = Budget::new(1 << 10);
        drop(budget.admit(1 << 30).await);
        drop(budget.admit(1).await);
    }

    #[tokio::test]
    async fn partial_requests_do_not_block_one_another() {
        let budget = Budget::new(64 << 10);
        let (mut one, mut other) = (Permit::default(), Permit::default());
        budget.grow(&mut one, 32 << 10).await;
        budget.grow(&mut other, 32 << 10).await;
        // No room is left for either; the overdraft lets one continue to its end.
        let both = async {
            let first = async {
                budget.grow(&mut one, 32 << 10).await;
                budget.grow(&mut one, 32 << 10).await;
                drop(one);
            };
            tokio::join!(first, async {
                budget.grow(&mut other, 32 << 10).await;
                drop(other);
            })
        };
        tokio::time::timeout(Duration::from_secs(5), both).await.expect("neither waits for ever");
        assert!(budget.try_admit(64 << 10).is_some(), "all room was given back");
    }
}
