//! How much a member takes of a snapshot in a second.

use std::time::Duration;

use world::Instant;

/// Bytes at a rate. What was not taken in time does not count for later.
#[derive(Debug)]
pub(super) struct Pace {
    bytes_per_second: u64,
    free_at: Instant,
}

impl Pace {
    pub(super) fn new(bytes_per_second: u64) -> Self {
        Self { bytes_per_second, free_at: Instant::now() }
    }

    /// So many bytes were taken: waits until the next may be.
    pub(super) async fn took(&mut self, bytes: usize) {
        let nanos = (bytes as u64).saturating_mul(1_000_000_000) / self.bytes_per_second.max(1);
        self.free_at = self.free_at.max(Instant::now()) + Duration::from_nanos(nanos);
        tokio::time::sleep_until(self.free_at).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_second_has_its_bytes_and_an_idle_one_saves_none_up() {
        let begun = Instant::now();
        let mut pace = Pace::new(1_000);
        for _ in 0..10 {
            pace.took(300).await;
        }
        assert_eq!(begun.elapsed().as_millis(), 3_000);
        tokio::time::sleep(Duration::from_secs(5)).await;
        pace.took(1_000).await;
        assert_eq!(begun.elapsed().as_millis(), 9_000);
    }
}
