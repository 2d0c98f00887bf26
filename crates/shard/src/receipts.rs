//! Messages to other shards, as seen by the requests that wait for them. The messages themselves are in the shard's
//! log.
//!
//! This state does not outlive the process, and delivery does not depend on it: when the node ends, waiting requests
//! fail, and the message arrives all the same.

use std::collections::BTreeMap;
use std::pin::pin;

use base::{Offset, ShardId};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use crate::append::AppendedBatch;
use crate::error::Unavailable;

/// Offsets of a message's rows, in order. `None`: the topic is gone, or the message was a duplicate whose offsets are
/// no longer known. It may be shorter than the number of rows.
pub type Receipt = Vec<Option<AppendedBatch>>;

/// A part of a unit that was sent to another shard.
#[derive(Debug)]
pub struct SentPart {
    /// Positions of its rows among all of the unit.
    pub places: Vec<usize>,
    /// The message has commands.
    pub has_commands: bool,
    /// Resolves once that shard has the message.
    pub receipt: oneshot::Receiver<Receipt>,
}

/// Result of a unit.
#[derive(Debug)]
pub struct UnitResult<R> {
    pub rows: Vec<R>,
    pub sent: Vec<SentPart>,
}

impl<R> UnitResult<R> {
    pub fn nothing() -> Self {
        Self { rows: Vec::new(), sent: Vec::new() }
    }
}

impl UnitResult<Option<AppendedBatch>> {
    /// Waits until other shards have their parts.
    pub async fn arrived(self) -> Result<Vec<Option<AppendedBatch>>, Unavailable> {
        let Self { mut rows, sent } = self;
        for SentPart { places, has_commands, receipt } in sent {
            // Dead letters come after the caller's rows, and are not waited for.
            if !has_commands && places.iter().all(|place| *place >= rows.len()) {
                continue;
            }
            let receipt = receipt.await.map_err(|_| Unavailable::Stopping)?;
            for (place, appended) in places.into_iter().zip(receipt) {
                if let Some(row) = rows.get_mut(place) {
                    *row = appended;
                }
            }
        }
        Ok(rows)
    }
}

#[derive(Debug, Default)]
pub struct PendingReceipts {
    waiting: Mutex<ReceiptTable>,
    sent: Notify,
    /// Wakes those that wait for [`Self::arrived`].
    arrived: Notify,
}

#[derive(Debug, Default)]
struct ReceiptTable {
    /// By shard and number of the message.
    receipts: BTreeMap<(ShardId, Offset), ReceiptChannel>,
    /// The other shard has all messages below.
    received: BTreeMap<ShardId, Offset>,
    closed: bool,
}

/// Both ends of a receipt's channel. Removed once the receipt was both received and requested.
#[derive(Debug)]
struct ReceiptChannel {
    /// `None` once the receipt was received.
    sender: Option<oneshot::Sender<Receipt>>,
    /// `None` once the receipt was requested.
    receipt: Option<oneshot::Receiver<Receipt>>,
}

impl ReceiptChannel {
    fn send(&mut self, receipt: Receipt) {
        if let Some(sender) = self.sender.take() {
            // The request that waits for it may be gone.
            let _ = sender.send(receipt);
        }
    }
}

impl PendingReceipts {
    /// Registers a message of this node in the log. To be called before the pusher can see it.
    pub(crate) fn announce(&self, to: ShardId, number: Offset) {
        let (sender, receipt) = oneshot::channel();
        let awaited = ReceiptChannel { sender: Some(sender), receipt: Some(receipt) };
        let mut waiting = self.waiting.lock();
        if !waiting.closed {
            waiting.receipts.insert((to, number), awaited);
        }
    }

    /// Returns the receipt of an announced message; to be called once.
    pub(crate) fn receipt(&self, to: ShardId, number: Offset) -> oneshot::Receiver<Receipt> {
        let mut waiting = self.waiting.lock();
        let awaited = waiting.receipts.get_mut(&(to, number));
        let receipt = awaited.and_then(|awaited| awaited.receipt.take());
        waiting.forget_if_done(to, number);
        // The node is about to end: the receipt never comes.
        receipt.unwrap_or_else(|| oneshot::channel().1)
    }

    /// The other shard has the message.
    pub fn received(&self, to: ShardId, number: Offset, receipt: Receipt) {
        let mut waiting = self.waiting.lock();
        if let Some(awaited) = waiting.receipts.get_mut(&(to, number)) {
            awaited.send(receipt);
        }
        waiting.forget_if_done(to, number);
        let below = waiting.received.entry(to).or_default();
        *below = (*below).max(number + 1);
        drop(waiting);
        self.arrived.notify_waiters();
    }

    /// Waits until the other shard has this message, which needs no receipt.
    pub async fn arrived(&self, to: ShardId, number: Offset) {
        loop {
            let mut more = pin!(self.arrived.notified());
            more.as_mut().enable();
            let below = self.waiting.lock().received.get(&to).copied();
            if below.is_some_and(|below| number < below) {
                return;
            }
            more.await;
        }
    }

    /// The other shard has all messages below: receipts still missing will never come.
    pub fn received_below(&self, to: ShardId, below: Offset) {
        let mut waiting = self.waiting.lock();
        let of_shard = waiting.receipts.range_mut((to, 0)..(to, below));
        of_shard.for_each(|(_, awaited)| awaited.send(Receipt::new()));
        waiting.receipts.retain(|_, it| it.sender.is_some() || it.receipt.is_some());
        let known = waiting.received.entry(to).or_default();
        *known = (*known).max(below);
        drop(waiting);
        self.arrived.notify_waiters();
    }

    /// Wakes the pusher after a message was sent.
    pub(crate) fn note_sent(&self) {
        self.sent.notify_one();
    }

    pub async fn sent(&self) {
        self.sent.notified().await;
    }

    /// The node is about to end: drops all pending receipts.
    pub fn close(&self) {
        let mut waiting = self.waiting.lock();
        waiting.closed = true;
        waiting.receipts.clear();
    }
}

impl ReceiptTable {
    fn forget_if_done(&mut self, to: ShardId, number: Offset) {
        let awaited = self.receipts.get(&(to, number));
        if awaited.is_some_and(|it| it.sender.is_none() && it.receipt.is_none()) {
            self.receipts.remove(&(to, number));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TO: ShardId = ShardId(2);

    fn announced(
        outgoing: &PendingReceipts,
        to: ShardId,
        number: Offset,
    ) -> oneshot::Receiver<Receipt> {
        outgoing.announce(to, number);
        outgoing.receipt(to, number)
    }

    #[test]
    fn only_receipts_below_the_number_are_sent() {
        let outgoing = PendingReceipts::default();
        let mut all: Vec<_> = [(ShardId(1), 5), (TO, 3), (TO, 7), (ShardId(3), 1)]
            .map(|(to, number)| announced(&outgoing, to, number))
            .into();
        outgoing.received_below(TO, 7);
        assert_eq!(all[1].try_recv(), Ok(Receipt::new()));
        for place in [0, 2, 3] {
            assert!(all[place].try_recv().is_err());
        }
        outgoing.received(TO, 7, vec![None]);
        assert_eq!(all[2].try_recv(), Ok(vec![None]));
        assert_eq!(outgoing.waiting.lock().receipts.len(), 2);
        outgoing.close();
        let closed = Err(oneshot::error::TryRecvError::Closed);
        assert_eq!(announced(&outgoing, TO, 9).try_recv(), closed);
    }

    #[test]
    fn receipt_received_before_its_request_is_kept() {
        let outgoing = PendingReceipts::default();
        outgoing.announce(TO, 3);
        outgoing.received(TO, 3, vec![None]);
        assert_eq!(outgoing.receipt(TO, 3).try_recv(), Ok(vec![None]));
        assert!(outgoing.waiting.lock().receipts.is_empty());
    }

    #[tokio::test]
    async fn rows_of_other_shards_get_their_offsets_once_they_arrive() {
        let outgoing = PendingReceipts::default();
        let at = |base_offset| Some(AppendedBatch { base_offset, log_start: 0, duplicate: false });
        let sent = |number, places| {
            let (has_commands, receipt) = (false, announced(&outgoing, TO, number));
            SentPart { places, has_commands, receipt }
        };
        let sent = vec![sent(0, vec![2, 1, 3]), sent(5, vec![4])];
        let entered = UnitResult { rows: vec![at(1), None, None], sent };
        outgoing.received(TO, 0, vec![at(7), None, at(9)]);
        assert_eq!(entered.arrived().await, Ok(vec![at(1), None, at(7)]));
    }
}
