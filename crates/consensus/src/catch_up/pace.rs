//! How much a node takes of snapshots and for repairs in a second.

use std::sync::Arc;
use std::time::Duration;

use base::limits::SNAPSHOT_BYTES_PER_SECOND;
use parking_lot::Mutex;
use world::Instant;

/// Bytes at a rate, which all groups of a node share: it is the node's disk that has other things to do. Clones
/// are the same. What was not taken in time does not count for later.
#[derive(Clone, Debug)]
pub struct CatchUpPace(Arc<Pace>);

#[derive(Debug)]
struct Pace {
    bytes_per_second: u64,
    /// When nothing of what was taken so far counts any more.
    free_at: Mutex<Option<Instant>>,
}

impl Default for CatchUpPace {
    fn default() -> Self {
        Self::new(SNAPSHOT_BYTES_PER_SECOND)
    }
}

impl CatchUpPace {
    fn new(bytes_per_second: u64) -> Self {
        Self(Arc::new(Pace { bytes_per_second, free_at: Mutex::new(None) }))
    }

    /// So many bytes were taken: waits until the next may be.
    pub(super) async fn took(&self, bytes: usize) {
        let Pace { bytes_per_second, free_at } = &*self.0;
        let nanos = (bytes as u64).saturating_mul(1_000_000_000) / (*bytes_per_second).max(1);
        let now = Instant::now();
        let until = {
            let mut free_at = free_at.lock();
            let begins = free_at.map_or(now, |at| at.max(now));
            *free_at.insert(begins + Duration::from_nanos(nanos))
        };
        tokio::time::sleep_until(until).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_second_has_its_bytes_and_an_idle_one_saves_none_up() {
        let begun = Instant::now();
        let pace = CatchUpPace::new(1_000);
        for _ in 0..10 {
            pace.took(300).await;
        }
        assert_eq!(begun.elapsed().as_millis(), 3_000);
        tokio::time::sleep(Duration::from_secs(5)).await;
        pace.took(1_000).await;
        assert_eq!(begun.elapsed().as_millis(), 9_000);
    }

    #[tokio::test(start_paused = true)]
    async fn two_groups_share_what_a_second_has() {
        let begun = Instant::now();
        let pace = CatchUpPace::new(1_000);
        let other = pace.clone();
        tokio::join!(
            async {
                for _ in 0..4 {
                    pace.took(500).await;
                }
            },
            async {
                for _ in 0..4 {
                    other.took(500).await;
                }
            }
        );
        assert_eq!(begun.elapsed().as_millis(), 4_000);
    }
}
