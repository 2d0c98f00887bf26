//! Queue for the steps of records of topics with `trace`, from the driver to the broker's task that writes them.
//!
//! Drivers never wait for it: steps that do not fit into the queue are not written, but counted. The share of a
//! topic's records that is traced is the same on every node and at every time, so that either all steps of a
//! record are written or none.
//!
//! Topics that only nodes write are never traced: their traces would be written without end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::limits::TRACED_STEPS_QUEUED_MAX;
use base::topics::is_written_by_nodes;
use base::{LeaseGroupId, Offset, PartitionId, TopicId};
use dispatch::Step;
use machine::TopicConfig;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

const MILLION: u64 = 1_000_000;

/// A step of records of a traced topic.
#[derive(Debug)]
pub struct TracedStep {
    pub at_ms: i64,
    pub topic: TopicId,
    pub topic_name: Arc<str>,
    pub group: LeaseGroupId,
    pub group_name: Arc<str>,
    pub per_million: u32,
    pub step: Step,
}

#[derive(Debug)]
pub enum TraceQueueItem {
    Step(Box<TracedStep>),
    /// Signals once all steps before it are written.
    Flush(oneshot::Sender<()>),
}

/// The drivers' end of the queue. Clones share the queue.
#[derive(Clone, Debug)]
pub struct TraceFeed {
    queue: mpsc::Sender<TraceQueueItem>,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    written: AtomicU64,
    dropped: AtomicU64,
}

impl TraceFeed {
    pub fn new() -> (Self, mpsc::Receiver<TraceQueueItem>) {
        let (queue, queued) = mpsc::channel(TRACED_STEPS_QUEUED_MAX);
        (Self { queue, counts: Arc::default() }, queued)
    }

    pub fn send(&self, step: TracedStep) {
        if self.queue.try_send(TraceQueueItem::Step(Box::new(step))).is_err() {
            self.drop_steps(1);
        }
    }

    pub fn drop_steps(&self, count: u64) {
        self.counts.dropped.fetch_add(count, Ordering::Relaxed);
    }

    pub fn note_written(&self, count: u64) {
        self.counts.written.fetch_add(count, Ordering::Relaxed);
    }

    /// Number of records written for steps, and of steps dropped because the queue was full or the write
    /// failed.
    pub fn counted(&self) -> (u64, u64) {
        let seen = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (seen(&self.counts.written), seen(&self.counts.dropped))
    }

    /// Waits until all queued steps are written, or the timeout.
    pub async fn flush(&self, within: Duration) -> bool {
        let (told, written) = oneshot::channel();
        let flushed = async {
            self.queue.send(TraceQueueItem::Flush(told)).await.is_ok() && written.await.is_ok()
        };
        timeout(within, flushed).await.unwrap_or(false)
    }
}

/// Traced records per million records of a topic. `None`: none.
#[inline]
pub fn share(topic: &str, config: &TopicConfig) -> Option<u32> {
    let share = Some(config.traced_per_million).filter(|share| *share > 0)?;
    (!is_written_by_nodes(topic)).then_some(share)
}

/// Whether a record is in the share: the same on all nodes, at any time.
#[inline]
pub fn is_in_share(per_million: u32, partition: PartitionId, offset: Offset) -> bool {
    if u64::from(per_million) >= MILLION {
        return true;
    }
    let place = u64::from(partition.topic.0) << 32 | u64::from(partition.index);
    mixed(mixed(place) ^ offset) % MILLION < u64::from(per_million)
}

/// Mixes the bits, so that neighbours differ widely (the end of SplitMix64).
#[inline]
fn mixed(mut bits: u64) -> u64 {
    bits = bits.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use dispatch::StepKind;

    use super::*;

    fn step(first: Offset) -> TracedStep {
        let (topic_name, group_name) = ("t".into(), "g".into());
        let step =
            Step { what: StepKind::Leased, partition: 0, first, count: 1, session: 1, attempt: 1 };
        let (topic, group) = (TopicId(1), LeaseGroupId(1));
        TracedStep { at_ms: 7, topic, topic_name, group, group_name, per_million: 1_000_000, step }
    }

    #[tokio::test(start_paused = true)]
    async fn full_trace_queue_drops_and_counts_steps() {
        let (feed, mut queued) = TraceFeed::new();
        for first in 0..TRACED_STEPS_QUEUED_MAX as u64 + 5 {
            feed.send(step(first));
        }
        assert_eq!(feed.counted(), (0, 5));
        assert!(!feed.flush(Duration::from_secs(1)).await, "nobody writes");
        assert!(
            matches!(queued.recv().await, Some(TraceQueueItem::Step(it)) if it.step.first == 0)
        );
        feed.send(step(0));
        assert_eq!(feed.counted(), (0, 5));
    }

    #[test]
    fn share_selects_the_same_fraction_of_each_partition_every_time() {
        for partition in [PartitionId::new(TopicId(1), 0), PartitionId::new(TopicId(7), 3)] {
            for (share, expected) in
                [(1_000_000, 100_000), (500_000, 50_000), (10_000, 1_000), (0, 0)]
            {
                let kept = || (0..100_000).filter(|offset| is_in_share(share, partition, *offset));
                assert!(kept().eq(kept()));
                let (least, most) = (expected * 9 / 10, expected * 11 / 10);
                assert!((least..=most).contains(&kept().count()), "{share}: {}", kept().count());
            }
        }
    }

    #[test]
    fn topics_written_by_nodes_are_never_traced() {
        let on = TopicConfig { traced_per_million: 1_000_000, ..TopicConfig::default() };
        assert_eq!(share("t", &on), Some(1_000_000));
        assert_eq!(share(base::topics::TRACE, &on), None);
        assert_eq!(share(base::topics::AUDIT, &on), None);
        assert_eq!(share("t", &TopicConfig::default()), None);
    }
}
