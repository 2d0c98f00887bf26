//! Retention: the start of a partition moves when it holds more, or older, than its topic keeps.
//!
//! What is too large goes at once. What is too old goes once it has been known to be too old for
//! the check interval (Kafka's `log.retention.check.interval.ms`): the timestamp is the
//! producer's, and a record of last year that was appended a moment ago (a backfill, a replay)
//! must be there for the consumers that follow. Because a batch cannot be found to be old before
//! it is stored, each is stored for the interval at least. What was found is remembered per
//! partition, and only while there is something to remember; a restart begins anew, so that it
//! makes the wait longer and never shorter.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use base::{Offset, PartitionId};
use hashbrown::HashMap;
use journal::Journal;

use crate::broker::Broker;

/// How many findings of a partition are remembered: each lasts for the check interval, and they
/// are at least this part of it apart. More of them delete a steady stream in smaller steps.
const FINDINGS_MAX: u32 = 8;

/// Remembers which records were found to be too old, and when.
#[derive(Debug, Default)]
pub(crate) struct Retention {
    findings: HashMap<PartitionId, Findings>,
}

/// Everything below an offset was found to be too old, at these times; both ascend.
#[derive(Debug, Default)]
struct Findings(VecDeque<(Instant, Offset)>);

impl Findings {
    /// Takes in that all below `old_to` is too old now. Returns below which offset that has been
    /// known for `interval`.
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
        // The retention time may have been raised meanwhile, and then less is too old.
        due.map(|due| due.min(old_to))
    }
}

/// What a topic keeps of one partition.
struct Kept {
    partition: PartitionId,
    log_start: Offset,
    bytes: Option<u64>,
    after_ms: Option<i64>,
}

impl Retention {
    /// New starts of the partitions that hold more, or older, than their topic keeps.
    pub(crate) fn starts(&mut self, broker: &Broker, now: Instant) -> Vec<(PartitionId, Offset)> {
        let interval_ms = broker.read(|state| state.node_config().own.retention_check_interval_ms);
        let interval = Duration::from_millis(u64::try_from(interval_ms).unwrap_or(0));
        let mut before = std::mem::take(&mut self.findings);
        let mut starts = Vec::new();
        for kept in kept(broker) {
            let by_bytes = by_bytes(broker.journal(), &kept);
            let by_time = old_to(broker.journal(), &kept).and_then(|old_to| {
                let mut findings = before.remove(&kept.partition).unwrap_or_default();
                let due = findings.due(old_to, now, interval);
                if !findings.0.is_empty() {
                    self.findings.insert(kept.partition, findings);
                }
                due
            });
            let start = by_bytes.max(by_time);
            if let Some(start) = start.filter(|start| *start > kept.log_start) {
                starts.push((kept.partition, start));
            }
        }
        starts
    }
}

fn by_bytes(journal: &Journal, kept: &Kept) -> Option<Offset> {
    let stream = kept.partition.stream();
    kept.bytes
        .filter(|bytes| journal.stream_bytes(stream) > *bytes)
        .and_then(|bytes| journal.retention_by_bytes(stream, bytes))
}

/// The first offset that is not too old, if something before it is.
fn old_to(journal: &Journal, kept: &Kept) -> Option<Offset> {
    let after_ms = kept.after_ms?;
    let young = journal.retention_by_time(kept.partition.stream(), after_ms);
    young.filter(|young| *young > kept.log_start)
}

fn kept(broker: &Broker) -> Vec<Kept> {
    let now_ms = broker.timeline().unstepped_ms();
    broker.read(|state| {
        let mut kept = Vec::new();
        for topic in state.topics().filter(|topic| topic.config.cleanup_policy.delete) {
            let bytes = topic.config.retention_bytes;
            let after_ms = topic.config.retention_ms.map(|keep| now_ms.saturating_sub(keep));
            if bytes.is_none() && after_ms.is_none() {
                continue;
            }
            for (partition, row) in topic.partition_ids().zip(&topic.partitions) {
                if row.next_offset() > row.log_start() {
                    let log_start = row.log_start();
                    kept.push(Kept { partition, log_start, bytes, after_ms });
                }
            }
        }
        kept
    })
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
    fn what_is_too_old_goes_when_that_has_been_known_for_the_interval() {
        let mut checks = Checks::new();
        assert_eq!(checks.at(0, 10), None);
        assert_eq!(checks.at(79, 10), None);
        assert_eq!(checks.at(80, 10), Some(10));
    }

    #[test]
    fn what_became_old_later_waits_for_its_own_interval() {
        let mut checks = Checks::new();
        checks.at(0, 10);
        assert_eq!(checks.at(20, 15), None);
        assert_eq!(checks.at(80, 30), Some(10));
        assert_eq!(checks.at(100, 30), Some(15));
        assert_eq!(checks.at(160, 30), Some(30));
    }

    #[test]
    fn a_steady_stream_is_remembered_in_few_findings_and_deleted_step_by_step() {
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
    fn a_longer_retention_keeps_what_was_found_before() {
        let mut checks = Checks::new();
        checks.at(0, 10);
        assert_eq!(checks.at(80, 3), Some(3));
    }
}
