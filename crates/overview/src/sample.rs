//! Counts of one look, with the rates since the previous look.

use std::sync::Arc;
use std::time::Duration;

use base::collections::HashMap;
use base::{LeaseGroupId, Offset, TopicId};
use world::Instant;

/// All counts of a node at one time.
#[derive(Debug)]
pub(crate) struct Sample {
    pub(crate) at: Instant,
    /// Time since the previous look. `None`: there was no recent one, and there are no rates.
    pub(crate) over: Option<Duration>,
    /// Processor time.
    pub(crate) took: Duration,
    pub(crate) topics: HashMap<TopicId, TopicSeen>,
    pub(crate) queues: HashMap<LeaseGroupId, QueueSeen>,
    pub(crate) groups: HashMap<GroupKey, GroupSeen>,
    /// Not all committed offsets were counted.
    pub(crate) cut: bool,
    pub(crate) counters: Counters,
    /// Growth of the counters since the previous look.
    pub(crate) grown: Option<Counters>,
    pub(crate) records_in: Option<f64>,
}

#[derive(Debug)]
pub(crate) struct TopicSeen {
    pub(crate) name: Arc<str>,
    pub(crate) partitions: u32,
    pub(crate) records: u64,
    pub(crate) appended: u64,
    pub(crate) records_in: Option<f64>,
    /// Largest backlog among its queues and groups.
    pub(crate) backlog: u64,
    pub(crate) groups: u32,
}

#[derive(Debug)]
pub(crate) struct QueueSeen {
    pub(crate) topic: TopicId,
    pub(crate) name: Arc<str>,
    pub(crate) paused: bool,
    pub(crate) backlog: u64,
    /// Settled records, of all that the topic ever had.
    pub(crate) settled: u64,
    pub(crate) settled_a_second: Option<f64>,
    /// First unsettled record of the partition with most of them.
    pub(crate) worst: Option<LargestLag>,
}

/// A group that commits offsets, in one of its topics.
pub(crate) type GroupKey = (Arc<str>, TopicId);

#[derive(Debug, Default)]
pub(crate) struct GroupSeen {
    pub(crate) partitions: u32,
    pub(crate) backlog: u64,
    pub(crate) committed: u64,
    pub(crate) committed_a_second: Option<f64>,
    pub(crate) worst: Option<LargestLag>,
}

/// First place in a partition that a group has not passed, and the number of records that it has not passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LargestLag {
    pub(crate) partition: u32,
    pub(crate) offset: Offset,
    pub(crate) records: u64,
}

impl LargestLag {
    /// Returns the worse of both.
    pub(crate) fn or(before: Option<Self>, other: Self) -> Option<Self> {
        match before {
            Some(before) if before.records >= other.records => Some(before),
            _ if other.records == 0 => before,
            _ => Some(other),
        }
    }
}

/// Counters of the node since its start.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Counters {
    pub(crate) cpu_seconds: f64,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    pub(crate) delivered: u64,
    pub(crate) redelivered: u64,
    pub(crate) settled: u64,
    pub(crate) dead_letters: u64,
    pub(crate) syncs: u64,
    pub(crate) sync_micros: u64,
}

impl Counters {
    pub(crate) fn since(&self, before: &Self) -> Self {
        Self {
            cpu_seconds: (self.cpu_seconds - before.cpu_seconds).max(0.0),
            bytes_in: self.bytes_in.saturating_sub(before.bytes_in),
            bytes_out: self.bytes_out.saturating_sub(before.bytes_out),
            delivered: self.delivered.saturating_sub(before.delivered),
            redelivered: self.redelivered.saturating_sub(before.redelivered),
            settled: self.settled.saturating_sub(before.settled),
            dead_letters: self.dead_letters.saturating_sub(before.dead_letters),
            syncs: self.syncs.saturating_sub(before.syncs),
            sync_micros: self.sync_micros.saturating_sub(before.sync_micros),
        }
    }
}

/// Increase a second; a decrease, as after a seek back, counts as 0.
pub(crate) fn a_second(now: u64, before: u64, over: Duration) -> f64 {
    now.saturating_sub(before) as f64 / over.as_secs_f64().max(1e-3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_place_has_the_most_records_after_it() {
        let place = |partition, records| LargestLag { partition, offset: 7, records };
        let mut worst = None;
        for next in [place(0, 0), place(1, 3), place(2, 9), place(3, 9), place(4, 1)] {
            worst = LargestLag::or(worst, next);
        }
        assert_eq!(worst, Some(place(2, 9)));
        assert_eq!(LargestLag::or(None, place(0, 0)), None, "nothing is missing there");
    }

    #[test]
    fn decreased_counters_have_no_growth() {
        let over = Duration::from_secs(2);
        assert_eq!(a_second(30, 10, over), 10.0);
        assert_eq!(a_second(10, 30, over), 0.0);
        let (before, now) = (Counters { settled: 5, ..Counters::default() }, Counters::default());
        assert_eq!(now.since(&before).settled, 0);
    }
}
