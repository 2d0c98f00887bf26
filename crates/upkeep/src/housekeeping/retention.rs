//! Retention: advances the log start of a partition with more or older records than its topic retains.
//!
//! Records over the size limit are deleted at once. Records that are too old are deleted once they have been found
//! too old for the check interval (Kafka's `log.retention.check.interval.ms`). The timestamp is the producer's, and a
//! record of last year that was appended a moment ago (a backfill, a replay) must stay readable for the consumers
//! that follow. Because a batch cannot be found old before it is stored, each is stored for the interval at least.
//! The findings of a partition are kept only while there are some; a restart loses them, which makes the wait longer
//! and never shorter.
//!
//! A round examines only partitions changed by entries, and those whose time has come. Each partition has at most one
//! date, that of its oldest batch, and one moment while some of its records are found too old. Dates are compared
//! with the log's kind of time, moments with the monotonic clock. So a step of the wall clock makes no date come
//! early, and none is missed: a date is due for as long as it is past.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use base::{HashMap, Offset, PartitionId, TopicId};
use journal::{Journal, ReadError};
use shard::LocalShard;
use shard::state_machine::changes::Change;
use world::Instant;

use crate::housekeeping::due::{Dues, split_topic};

/// Number of findings kept of a partition. Each lasts for the check interval, and they are at least this part of it
/// apart. A larger number deletes a steady stream in smaller steps.
const FINDINGS_MAX: u32 = 8;
/// Partitions that are looked up under one lock: an apply waits for it.
const ROWS_PER_READ: usize = 1_000;
/// Delay before a retry after a failed read.
const RETRY_DELAY: Duration = Duration::from_secs(10);

/// Records found too old, with the time of the finding, and the partitions to examine next.
#[derive(Debug, Default)]
pub(crate) struct Retention {
    findings: BTreeMap<PartitionId, Findings>,
    /// When the oldest batch that is not yet too old will be, ms since the epoch.
    dates: Dues<i64>,
    /// When a finding is due, or the next one is to be made.
    moments: Dues<Instant>,
}

/// Result of a round of retention.
#[derive(Debug, Default)]
pub(crate) struct Round {
    /// New log starts of the partitions with more or older records than their topic retains.
    pub(crate) starts: Vec<(PartitionId, Offset)>,
    /// Number of partitions whose batches were examined.
    pub(crate) looks: usize,
}

/// Offsets below which everything was found too old, with the times of the findings; both ascend.
#[derive(Debug, Default)]
struct Findings(VecDeque<(Instant, Offset)>);

impl Findings {
    /// Notes that everything below `old_to` is too old now. Returns the offset below which this has been known for
    /// `interval`.
    fn due(&mut self, old_to: Offset, now: Instant, interval: Duration) -> Option<Offset> {
        let mut due = None;
        while let Some(&(found_at, offset)) = self.0.front()
            && now.saturating_duration_since(found_at) >= interval
        {
            due = Some(offset);
            self.0.pop_front();
        }
        let is_news = match self.0.back() {
            Some(&(last_at, offset)) => {
                let apart = interval / FINDINGS_MAX;
                offset < old_to && now.saturating_duration_since(last_at) >= apart
            }
            None => due.is_none_or(|due| due < old_to),
        };
        if is_news {
            self.0.push_back((now, old_to));
        }
        // The retention time may have been raised meanwhile, and then fewer records are too old.
        due.map(|due| due.min(old_to))
    }

    /// Returns when to examine the partition again, though nothing else becomes too old.
    fn next(&self, old_to: Offset, interval: Duration) -> Option<Instant> {
        let &(first_at, _) = self.0.front()?;
        let &(last_at, offset) = self.0.back()?;
        let due = first_at + interval;
        let unnoted = old_to > offset;
        Some(if unnoted { due.min(last_at + interval / FINDINGS_MAX) } else { due })
    }
}

/// Retention settings of one partition.
struct PartitionRetention {
    partition: PartitionId,
    log_start: Offset,
    /// Records of open transactions are not deleted.
    stable_end: Offset,
    bytes: Option<u64>,
    keep_ms: Option<i64>,
}

impl Retention {
    /// Whether partitions are due without a change.
    pub(crate) fn is_due(&self, shard: &LocalShard, now: Instant) -> bool {
        self.dates.is_due(shard.timeline().unstepped_ms()) || self.moments.is_due(now)
    }

    /// Marks partitions whose log start could not be advanced as due.
    pub(crate) fn retry(&mut self, partitions: impl Iterator<Item = PartitionId>, now: Instant) {
        partitions.for_each(|partition| self.moments.set(partition, Some(now)));
    }

    /// Examines the changed and the due partitions.
    pub(crate) fn round(
        &mut self,
        shard: &LocalShard,
        changed: &HashMap<PartitionId, Change>,
        now: Instant,
    ) -> Round {
        let now_ms = shard.timeline().unstepped_ms();
        let interval_ms =
            shard.read(|state| state.catalog.node_config().own.retention_check_interval_ms);
        let interval = Duration::from_millis(u64::try_from(interval_ms).unwrap_or(0));
        // Partitions to examine, and whether by age: an append does not make the oldest batch older.
        let mut todo: BTreeMap<PartitionId, bool> = BTreeMap::new();
        for (&partition, change) in changed {
            let known = self.dates.has(partition) || self.moments.has(partition);
            todo.insert(partition, change.anew || !known);
        }
        while let Some(partition) = self.dates.pop(now_ms) {
            todo.insert(partition, true);
        }
        while let Some(partition) = self.moments.pop(now) {
            todo.insert(partition, true);
        }
        let mut round = Round::default();
        let mut todo = todo.into_iter().peekable();
        while todo.peek().is_some() {
            let some: Vec<_> = todo.by_ref().take(ROWS_PER_READ).collect();
            for (kept, by_time) in self.kept(shard, some) {
                round.looks += 1;
                let start = self.start(shard.journal(), &kept, by_time, (now, now_ms), interval);
                let start = start.unwrap_or_else(|error| {
                    let partition = kept.partition;
                    tracing::warn!(%partition, %error, "retention cannot tell what is old");
                    self.moments.set(partition, Some(now + RETRY_DELAY));
                    None
                });
                if start.is_some_and(|start| start > kept.stable_end) {
                    // The rest is deleted once the transaction has ended.
                    self.moments.set(kept.partition, Some(now + RETRY_DELAY));
                }
                let start = start.map(|start| start.min(kept.stable_end));
                if let Some(start) = start.filter(|start| *start > kept.log_start) {
                    round.starts.push((kept.partition, start));
                }
            }
        }
        round
    }

    /// The topic is gone.
    pub(crate) fn forget(&mut self, topic: TopicId) {
        split_topic(&mut self.findings, topic);
        self.dates.forget(topic);
        self.moments.forget(topic);
    }

    /// Returns the partitions from which records may be deleted, and forgets the others.
    fn kept(
        &mut self,
        shard: &LocalShard,
        some: Vec<(PartitionId, bool)>,
    ) -> Vec<(PartitionRetention, bool)> {
        let found = shard.read(|state| {
            let kept = |partition: PartitionId| {
                let config = &state.catalog.topic(partition.topic)?.config;
                let row = state.rows.partition(partition)?;
                let (bytes, keep_ms) = (config.retention_bytes, config.retention_ms);
                let holds = row.next_offset() > row.log_start();
                let keeps = bytes.is_some() || keep_ms.is_some();
                let applies = config.cleanup_policy.delete && keeps && holds;
                applies.then(|| PartitionRetention {
                    partition,
                    log_start: row.log_start(),
                    stable_end: state.rows.transactions().stable_end(partition, row.next_offset()),
                    bytes,
                    keep_ms,
                })
            };
            some.iter().map(|&(partition, _)| kept(partition)).collect::<Vec<_>>()
        });
        let mut kept = Vec::new();
        for ((partition, by_time), found) in some.into_iter().zip(found) {
            match found {
                Some(found) => kept.push((found, by_time)),
                None => self.forget_partition(partition),
            }
        }
        kept
    }

    fn forget_partition(&mut self, partition: PartitionId) {
        self.findings.remove(&partition);
        self.dates.set(partition, None);
        self.moments.set(partition, None);
    }

    fn start(
        &mut self,
        journal: &Journal,
        kept: &PartitionRetention,
        by_time: bool,
        (now, now_ms): (Instant, i64),
        interval: Duration,
    ) -> Result<Option<Offset>, ReadError> {
        let by_bytes = by_bytes(journal, kept)?;
        let Some(keep_ms) = kept.keep_ms else {
            self.forget_partition(kept.partition);
            return Ok(by_bytes);
        };
        if !by_time {
            return Ok(by_bytes);
        }
        let partition = kept.partition;
        let age = journal.age(partition.stream(), now_ms.saturating_sub(keep_ms))?;
        // A batch is too old once more than `keep_ms` have passed.
        let date = age.young_ms.map(|young_ms| young_ms.saturating_add(keep_ms).saturating_add(1));
        self.dates.set(partition, date);
        let mut findings = self.findings.remove(&partition).unwrap_or_default();
        let mut due = None;
        let mut next = None;
        if let Some(old_to) = age.old_to.filter(|old_to| *old_to > kept.log_start) {
            due = findings.due(old_to, now, interval);
            next = findings.next(old_to, interval);
            if !findings.0.is_empty() {
                self.findings.insert(partition, findings);
            }
        }
        self.moments.set(partition, next);
        Ok(by_bytes.max(due))
    }

    #[cfg(test)]
    pub(crate) fn remembered(&self) -> usize {
        self.findings.len() + self.dates.len() + self.moments.len()
    }
}

fn by_bytes(journal: &Journal, kept: &PartitionRetention) -> Result<Option<Offset>, ReadError> {
    let stream = kept.partition.stream();
    match kept.bytes.filter(|bytes| journal.stream_bytes(stream) > *bytes) {
        Some(bytes) => journal.retention_by_bytes(stream, bytes),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(80);

    struct Checks {
        findings: Findings,
        started: Instant,
    }

    impl Checks {
        fn new() -> Self {
            Self { findings: Findings::default(), started: Instant::now() }
        }

        fn at(&mut self, second: u64, old_to: Offset) -> Option<Offset> {
            self.findings.due(old_to, self.started + Duration::from_secs(second), INTERVAL)
        }
    }

    #[test]
    fn old_records_are_deleted_once_found_old_for_the_interval() {
        let mut checks = Checks::new();
        assert_eq!(checks.at(0, 10), None);
        assert_eq!(checks.at(79, 10), None);
        assert_eq!(checks.at(80, 10), Some(10));
    }

    #[test]
    fn records_that_became_old_later_wait_for_their_own_interval() {
        let mut checks = Checks::new();
        checks.at(0, 10);
        assert_eq!(checks.at(20, 15), None);
        assert_eq!(checks.at(80, 30), Some(10));
        assert_eq!(checks.at(100, 30), Some(15));
        assert_eq!(checks.at(160, 30), Some(30));
    }

    #[test]
    fn steady_stream_needs_few_findings_and_is_deleted_in_steps() {
        let mut checks = Checks::new();
        for second in 0..1000 {
            let due = checks.at(second, 100 + second);
            assert!(checks.findings.0.len() <= FINDINGS_MAX as usize + 1);
            if let Some(due) = due {
                assert!(due <= 100 + second - INTERVAL.as_secs(), "stored for the interval");
                assert!(due >= 100 + second - 2 * INTERVAL.as_secs(), "and not for ever");
            }
        }
    }

    #[test]
    fn longer_retention_keeps_records_found_old_before() {
        let mut checks = Checks::new();
        checks.at(0, 10);
        assert_eq!(checks.at(80, 3), Some(3));
    }
}
