//! Arrival of dead letters that were sent to other shards.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, join_all};
use shard::receipts::SentPart;
use tokio::time::{Instant, timeout_at};

/// Time limit for a reject to wait until its dead letter has arrived. After it the other shard counts as
/// unreachable: the letter is in the log, and arrives when it can.
const ARRIVED_WITHIN: Duration = Duration::from_secs(2);

/// Number of messages that one reject waits for: those of the last entries. A shard that has these has all
/// earlier ones.
const AWAITED_MAX: usize = 8;

/// Dead letters of one log entry, on their way to other shards.
#[derive(Clone)]
pub(crate) struct DeadLettersInTransit {
    sent_at: Instant,
    receipts: Shared<BoxFuture<'static, ()>>,
}

impl fmt::Debug for DeadLettersInTransit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeadLettersInTransit")
            .field("has_come", &self.has_arrived())
            .finish_non_exhaustive()
    }
}

impl DeadLettersInTransit {
    fn of(sent: Vec<SentPart>) -> Self {
        // A missing receipt belongs to a node that is stopping.
        let receipts = join_all(sent.into_iter().map(|sent| sent.receipt)).map(drop);
        Self { sent_at: Instant::now(), receipts: receipts.boxed().shared() }
    }

    pub(crate) fn has_arrived(&self) -> bool {
        self.receipts.clone().now_or_never().is_some()
    }

    fn until(&self) -> Instant {
        self.sent_at + ARRIVED_WITHIN
    }

    /// Waits until all have arrived, for [`ARRIVED_WITHIN`] at most.
    pub(crate) async fn all(arrivals: Vec<Self>) {
        let Some(until) = arrivals.iter().map(Self::until).max() else { return };
        let _ = timeout_at(until, join_all(arrivals.into_iter().map(|it| it.receipts))).await;
    }
}

/// A group's dead letters that have not arrived, by log entry.
#[derive(Debug, Default)]
pub(crate) struct TransitQueue(VecDeque<DeadLettersInTransit>);

impl TransitQueue {
    pub(crate) fn add(&mut self, sent: Vec<SentPart>) {
        self.0.retain(|arrival| !arrival.has_arrived());
        if !sent.is_empty() {
            self.0.push_back(DeadLettersInTransit::of(sent));
        }
    }

    /// Arrivals that a reject waits for now. Empty if the other shard has not replied for too long.
    pub(crate) fn awaited(&mut self) -> Vec<DeadLettersInTransit> {
        self.0.retain(|arrival| !arrival.has_arrived());
        match self.0.front() {
            Some(oldest) if oldest.until() > Instant::now() => {
                self.0.iter().rev().take(AWAITED_MAX).cloned().collect()
            }
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;
    use tokio::time::advance;

    use super::*;
    use shard::receipts::Receipt;

    fn sent() -> (oneshot::Sender<Receipt>, Vec<SentPart>) {
        let (sender, receipt) = oneshot::channel();
        (sender, vec![SentPart { places: vec![0], has_commands: false, receipt }])
    }

    #[tokio::test(start_paused = true)]
    async fn reject_waits_for_letters_that_have_not_arrived() {
        let mut travelling = TransitQueue::default();
        let ((first, one), (second, two)) = (sent(), sent());
        travelling.add(one);
        travelling.add(two);
        assert_eq!(travelling.awaited().len(), 2);
        second.send(Receipt::new()).expect("it waits");
        let awaited = travelling.awaited();
        assert_eq!(awaited.len(), 1);
        first.send(Receipt::new()).expect("it waits");
        DeadLettersInTransit::all(awaited).await;
        assert!(travelling.awaited().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn reject_does_not_wait_for_a_shard_that_has_not_replied_for_long() {
        let mut travelling = TransitQueue::default();
        let (_kept, never) = sent();
        travelling.add(never);
        // The wait ends without an arrival.
        DeadLettersInTransit::all(travelling.awaited()).await;
        advance(Duration::from_millis(1)).await;
        let (_kept, next) = sent();
        travelling.add(next);
        assert!(travelling.awaited().is_empty());
    }
}
