//! Records from other shards whose topic was deleted before they arrived: dead letters, mostly. They are dropped,
//! since they have no target; operators see their number, and the log reports it now and then.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base::{PartitionId, ShardId};
use parking_lot::Mutex;
use tokio::time::Instant;

/// Limits the log while a group dead-letters to a deleted topic.
const LOGGED_EVERY: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub struct UndeliverableRecords {
    records: AtomicU64,
    log: Mutex<Log>,
}

#[derive(Debug, Default)]
struct Log {
    last: Option<Instant>,
    /// Records since then.
    since: u64,
}

impl Log {
    /// Returns the number of records for the next line, if one is due.
    fn note(&mut self, records: u64, now: Instant) -> Option<u64> {
        self.since += records;
        if self.last.is_some_and(|last| now - last < LOGGED_EVERY) {
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.since))
    }
}

impl UndeliverableRecords {
    pub(crate) fn note(&self, partition: PartitionId, from: ShardId, records: u64) {
        self.records.fetch_add(records, Ordering::Relaxed);
        let logged = self.log.lock().note(records, Instant::now());
        if let Some(records) = logged {
            tracing::warn!(%partition, %from, records,
                "what another shard sent found its topic deleted, and is dropped");
        }
    }

    /// Number of records since the node was started.
    pub fn records(&self) -> u64 {
        self.records.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_log_line_per_interval_counts_all_records_since_the_last() {
        let begun = Instant::now();
        let mut log = Log::default();
        let mut note = |records, after: u64| log.note(records, begun + Duration::from_secs(after));
        assert_eq!(note(3, 0), Some(3));
        assert_eq!((note(1, 1), note(5, 59)), (None, None));
        assert_eq!(note(1, 60), Some(7));
        assert_eq!(note(2, 61), None);
        assert_eq!(note(2, 130), Some(4));
    }
}
