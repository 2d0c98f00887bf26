//! Scrubbing: reads all stored data of the node, a little at a time, so that corruption at rest is found while other
//! nodes still have the data. The journal notes damage, and consensus repairs it.
//!
//! Scrubbing must not disturb other work. It reads past the page cache, in pieces of a quarter of a megabyte. The
//! rate is such that a pass takes half of the time between two passes. It pauses while a write or sync takes long.

use std::sync::{Arc, Weak};
use std::time::Duration;

use journal::Scrub;
use parking_lot::Mutex;
use shard::LocalShard;
use shard_peers::stored_status::StoredStatus;
use tasks::Task;
use tokio::sync::Notify;
use tokio::time::{sleep, sleep_until};
use world::{Clock, Instant};

use crate::limits::{
    SCRUB_BYTES_PER_SECOND_MAX, SCRUB_BYTES_PER_SECOND_MIN, SCRUB_BYTES_PER_SECOND_REQUESTED,
};

/// Delay of the first pass after a start, which has enough to read.
const FIRST_AFTER: Duration = Duration::from_secs(3_600);
/// Duration from which a write or sync counts as slow: scrubbing pauses meanwhile.
const SLOW_WRITE: Duration = Duration::from_millis(20);
const SLOW_WRITE_PAUSE: Duration = Duration::from_millis(100);

/// State shared by the task and its callers.
#[derive(Debug, Default)]
pub struct Scrubbing {
    requested: Notify,
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    under_way: Option<(u64, u64)>,
    ended_ms: Option<i64>,
}

impl Scrubbing {
    /// Starts a pass; `false` if one is running already.
    pub fn begin(&self) -> bool {
        let is_idle = self.state.lock().under_way.is_none();
        if is_idle {
            self.requested.notify_one();
        }
        is_idle
    }

    pub fn stored(&self, shards: impl Iterator<Item = Arc<LocalShard>>) -> StoredStatus {
        let State { under_way, ended_ms } = *self.state.lock();
        let damaged = shards.flat_map(|shard| shard.journal().damaged());
        let damaged = damaged.map(|damage| damage.to_string()).collect();
        StoredStatus { under_way, ended_ms, damaged }
    }
}

/// Runs a pass every `interval`, if there is one, and on request.
pub async fn run(
    shards: Vec<Weak<LocalShard>>,
    interval: Option<Duration>,
    scrubbing: Arc<Scrubbing>,
    clock: Arc<dyn Clock>,
) {
    let mut next = Instant::now() + interval.map_or(FIRST_AFTER, |it| it.min(FIRST_AFTER));
    loop {
        let rate = tokio::select! {
            biased;
            () = scrubbing.requested.notified() => None,
            () = sleep_until(next), if interval.is_some() => interval,
        };
        next = Instant::now() + interval.unwrap_or(FIRST_AFTER);
        scrubbing.state.lock().under_way = Some((0, 0));
        if pass(&shards, rate, &scrubbing).await.is_none() {
            return;
        }
        let ended_ms = Some(clock.now_ms());
        *scrubbing.state.lock() = State { under_way: None, ended_ms };
    }
}

/// Returns the bytes read per second for this total: in half of the interval, or soon on request.
fn rate_of(bytes: u64, interval: Option<Duration>) -> u64 {
    let Some(interval) = interval else { return SCRUB_BYTES_PER_SECOND_REQUESTED };
    let rate = bytes / (interval.as_secs() / 2).max(1);
    rate.clamp(SCRUB_BYTES_PER_SECOND_MIN, SCRUB_BYTES_PER_SECOND_MAX)
}

/// Scrubs all shards, one after the other. `None` if the node is gone.
async fn pass(
    shards: &[Weak<LocalShard>],
    interval: Option<Duration>,
    scrubbing: &Scrubbing,
) -> Option<()> {
    let (mut before, mut of_bytes) = (0, 0);
    let mut scrubs = Vec::new();
    for shard in shards {
        let (journal, workers) = {
            let shard = shard.upgrade()?;
            (shard.journal().clone(), shard.workers().clone())
        };
        let begun = workers.blocking(Task::HousekeepingDisk, move || journal.scrub()).await;
        match begun.ok()? {
            Ok(scrub) => {
                of_bytes += scrub.progress().1;
                scrubs.push((shard, scrub));
            }
            Err(error) => tracing::warn!(%error, "a shard's files cannot be looked through"),
        }
    }
    let rate = rate_of(of_bytes, interval);
    tracing::info!(bytes = of_bytes, bytes_per_second = rate, "looks through what is stored");
    for (shard, mut scrub) in scrubs {
        loop {
            let shard = shard.upgrade()?;
            while shard.journal().stats().busy_for.is_some_and(|busy| busy >= SLOW_WRITE) {
                sleep(SLOW_WRITE_PAUSE).await;
            }
            let begun = Instant::now();
            let step = move || {
                let stepped = scrub.step();
                (scrub, stepped)
            };
            let stepped;
            (scrub, stepped) = shard.workers().blocking(Task::HousekeepingDisk, step).await.ok()?;
            drop(shard);
            let Some(stepped) = stepped else { break };
            scrubbing.state.lock().under_way = Some((before + scrub.progress().0, of_bytes));
            let nanos = stepped.bytes.saturating_mul(1_000_000_000) / rate;
            sleep_until(begun + Duration::from_nanos(nanos)).await;
        }
        before += scrub.progress().0;
        let shard = shard.upgrade()?;
        replace_damaged_snapshot(&shard, &scrub).await;
    }
    let damaged: usize =
        shards.iter().filter_map(Weak::upgrade).map(|it| it.journal().damaged().len()).sum();
    tracing::info!(bytes = before, damaged, "looked through all that is stored");
    Some(())
}

/// Saves a damaged snapshot again: the state is in memory.
async fn replace_damaged_snapshot(shard: &LocalShard, scrub: &Scrub) {
    if scrub.bad_snapshots() == 0 {
        return;
    }
    match shard.consensus.force_snapshot().await {
        Ok(()) => tracing::info!(shard = shard.id().0, "a damaged snapshot is rewritten"),
        Err(error) => tracing::warn!(%error, "a damaged snapshot cannot be rewritten"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scrub_rate_fills_half_of_the_interval_within_bounds() {
        let week = Some(Duration::from_secs(7 * 86_400));
        assert_eq!(rate_of(1 << 30, week), SCRUB_BYTES_PER_SECOND_MIN);
        assert_eq!(rate_of(2 << 40, week), (2 << 40) / (7 * 43_200));
        assert_eq!(rate_of(1 << 50, week), SCRUB_BYTES_PER_SECOND_MAX);
        assert_eq!(rate_of(1 << 20, None), SCRUB_BYTES_PER_SECOND_REQUESTED);
        assert_eq!(rate_of(1 << 50, Some(Duration::ZERO)), SCRUB_BYTES_PER_SECOND_MAX);
    }
}
