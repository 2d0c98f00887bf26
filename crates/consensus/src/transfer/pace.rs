//! The bytes that a node receives in a second for snapshots and repairs.

use std::sync::Arc;
use std::time::Duration;

use crate::limits::SNAPSHOT_BYTES_PER_SECOND;
use parking_lot::Mutex;
use world::Instant;

/// A byte rate shared by all groups of a node: the node's disk has other things to do. Clones share it. Unused
/// bytes are not saved up.
#[derive(Clone, Debug)]
pub struct CatchUpPace(Arc<RateLimiter>);

#[derive(Debug)]
struct RateLimiter {
    bytes_per_second: u64,
    /// When all bytes received so far are paid for.
    free_at: Mutex<Option<Instant>>,
}

impl Default for CatchUpPace {
    fn default() -> Self {
        Self::new(SNAPSHOT_BYTES_PER_SECOND)
    }
}

impl CatchUpPace {
    fn new(bytes_per_second: u64) -> Self {
        Self(Arc::new(RateLimiter { bytes_per_second, free_at: Mutex::new(None) }))
    }

    /// Records received bytes, and waits until the next ones may be received.
    pub(crate) async fn took(&self, bytes: usize) {
        let RateLimiter { bytes_per_second, free_at } = &*self.0;
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
    async fn pace_limits_bytes_per_second_and_saves_up_none() {
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
    async fn two_groups_share_the_pace() {
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
