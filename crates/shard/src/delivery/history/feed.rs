//! Feed of what happens to records, as it happens, for exporters of traces. It never waits for its reader:
//! events that do not fit into the channel are dropped and counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::{LeaseGroupId, Offset, PartitionId};
use dispatch::Step;
use machine::Append;
use tokio::sync::mpsc;

/// An event of records of which this node is the leader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FeedEvent {
    /// By the clock of the node. For appends: the time when they were put into the log.
    pub at_ms: i64,
    pub what: FeedEventKind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FeedEventKind {
    /// Records that are on a majority of disks and may be read.
    Appended { partition: PartitionId, first: Offset, count: u32 },
    /// A step of a lease group.
    Stepped { group: LeaseGroupId, step: Step },
}

/// Sending end of the feed. Clones send to the same reader.
#[derive(Clone, Debug)]
pub struct HistoryFeed {
    sender: mpsc::Sender<FeedEvent>,
    missed: Arc<AtomicU64>,
}

/// Receiving end of the feed.
#[derive(Debug)]
pub struct HistoryEvents {
    receiver: mpsc::Receiver<FeedEvent>,
    missed: Arc<AtomicU64>,
}

impl HistoryFeed {
    /// `room`: capacity for events that are not yet received.
    pub fn new(room: usize) -> (Self, HistoryEvents) {
        let (sender, receiver) = mpsc::channel(room);
        let missed = Arc::<AtomicU64>::default();
        (Self { sender, missed: Arc::clone(&missed) }, HistoryEvents { receiver, missed })
    }

    /// Sends the appends of an entry that was put into the log at `at_ms`.
    pub(crate) fn send_appends(&self, at_ms: i64, appends: &[Append]) {
        for append in appends.iter().filter(|append| append.partition.as_channel().is_none()) {
            let Append { partition, base_offset: first, span: count, .. } = *append;
            self.send(FeedEvent {
                at_ms,
                what: FeedEventKind::Appended { partition, first, count },
            });
        }
    }

    #[inline]
    pub fn send(&self, event: FeedEvent) {
        if self.sender.try_send(event).is_err() {
            self.missed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl HistoryEvents {
    /// Waits for the next event; `None` once the broker is gone.
    pub async fn next(&mut self) -> Option<FeedEvent> {
        self.receiver.recv().await
    }

    /// Number of events that were dropped because the channel was full.
    pub fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn full_feed_drops_and_counts_events() {
        let (feed, mut events) = HistoryFeed::new(2);
        let appended = |first| {
            let partition = PartitionId::new(base::TopicId(1), 0);
            FeedEvent { at_ms: 7, what: FeedEventKind::Appended { partition, first, count: 1 } }
        };
        for first in 0..5 {
            feed.send(appended(first));
        }
        assert_eq!(events.missed(), 3);
        assert_eq!(events.next().await, Some(appended(0)));
        assert_eq!(events.next().await, Some(appended(1)));
        drop(feed);
        assert_eq!(events.next().await, None);
    }
}
