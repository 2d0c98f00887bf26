//! Hands on what happens to records, as it happens, to one who wants to know: for traces that go elsewhere.
//!
//! Nobody waits for whoever takes it. What does not fit into the room between the two is missed, and counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::{LeaseGroupId, Offset, PartitionId};
use dispatch::Step;
use machine::Append;
use tokio::sync::mpsc;

/// Something that happened to records where this node leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Happened {
    /// By the clock of the node; of what was appended: when it was put into the log.
    pub at_ms: i64,
    pub what: Happening,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Happening {
    /// They are on a majority of disks, and may be read.
    Appended { partition: PartitionId, first: Offset, count: u32 },
    /// To a lease group.
    Stepped { group: LeaseGroupId, step: Step },
}

/// Where a node says what happens. Clones are the same.
#[derive(Clone, Debug)]
pub struct HistoryFeed {
    sender: mpsc::Sender<Happened>,
    missed: Arc<AtomicU64>,
}

/// Where it is heard.
#[derive(Debug)]
pub struct HistoryEvents {
    receiver: mpsc::Receiver<Happened>,
    missed: Arc<AtomicU64>,
}

impl HistoryFeed {
    /// With room for so many events that are not taken yet.
    pub fn new(room: usize) -> (Self, HistoryEvents) {
        let (sender, receiver) = mpsc::channel(room);
        let missed = Arc::<AtomicU64>::default();
        (Self { sender, missed: Arc::clone(&missed) }, HistoryEvents { receiver, missed })
    }

    /// Of an entry that was put into the log at `at_ms`.
    pub(crate) fn tell_of_appends(&self, at_ms: i64, appends: &[Append]) {
        for append in appends.iter().filter(|append| append.partition.as_channel().is_none()) {
            let Append { partition, base_offset: first, span: count, .. } = *append;
            self.tell(Happened { at_ms, what: Happening::Appended { partition, first, count } });
        }
    }

    pub(crate) fn tell(&self, happened: Happened) {
        if self.sender.try_send(happened).is_err() {
            self.missed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl HistoryEvents {
    /// Waits for what happens next; `None` once the broker is gone.
    pub async fn next(&mut self) -> Option<Happened> {
        self.receiver.recv().await
    }

    /// How many events there was no room for.
    pub fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn nobody_waits_for_whoever_takes_it_and_what_is_missed_is_counted() {
        let (feed, mut events) = HistoryFeed::new(2);
        let appended = |first| {
            let partition = PartitionId::new(base::TopicId(1), 0);
            Happened { at_ms: 7, what: Happening::Appended { partition, first, count: 1 } }
        };
        for first in 0..5 {
            feed.tell(appended(first));
        }
        assert_eq!(events.missed(), 3);
        assert_eq!(events.next().await, Some(appended(0)));
        assert_eq!(events.next().await, Some(appended(1)));
        drop(feed);
        assert_eq!(events.next().await, None);
    }
}
