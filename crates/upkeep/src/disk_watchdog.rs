//! Reports a hanging disk. A sync that does not return stops every acknowledgement without an error, and operators
//! should not have to learn of it from clients.

use std::sync::Weak;
use std::time::Duration;

use journal::Stats;
use shard::LocalShard;
use tokio::time::MissedTickBehavior;

use crate::limits::SYNC_HUNG_AFTER;

const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Separate from housekeeping, which itself waits for the log.
pub async fn run(shards: Vec<Weak<LocalShard>>) {
    let mut ticks = tokio::time::interval(CHECK_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut hung: Vec<HungSync> = Vec::new();
    loop {
        ticks.tick().await;
        hung.resize_with(shards.len(), HungSync::default);
        for (hung, shard) in hung.iter_mut().zip(&shards) {
            let Some(shard) = shard.upgrade() else { return };
            let number = shard.id().0;
            match hung.check(&shard.journal().stats()) {
                Some(Change::Hangs(since)) => tracing::error!(
                    shard = number,
                    seconds = since.as_secs(),
                    "the disk hangs: a sync has not returned, and nothing is acknowledged until it does"
                ),
                Some(Change::Returned) => tracing::info!(shard = number, "the disk answers again"),
                None => {}
            }
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Change {
    Hangs(Duration),
    Returned,
}

/// Whether a hung sync was reported.
#[derive(Debug, Default)]
struct HungSync(bool);

impl HungSync {
    fn check(&mut self, stats: &Stats) -> Option<Change> {
        let hung_for = stats.busy_for.filter(|busy| *busy >= SYNC_HUNG_AFTER);
        let change = match (self.0, hung_for) {
            (false, Some(since)) => Change::Hangs(since),
            (true, None) => Change::Returned,
            _ => return None,
        };
        self.0 = hung_for.is_some();
        Some(change)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(busy_for: Option<Duration>) -> Stats {
        Stats { busy_for, ..Stats::default() }
    }

    #[test]
    fn hang_and_its_end_are_each_reported_once() {
        let mut hung = HungSync::default();
        let ten = Duration::from_secs(10);
        assert_eq!(hung.check(&stats(None)), None);
        assert_eq!(hung.check(&stats(Some(ten / 2))), None);
        assert_eq!(hung.check(&stats(Some(ten))), Some(Change::Hangs(ten)));
        assert_eq!(hung.check(&stats(Some(ten * 2))), None);
        assert_eq!(hung.check(&stats(None)), Some(Change::Returned));
        assert_eq!(hung.check(&stats(None)), None);
    }
}
