//! The reply to a settle, whose items may be in several shards.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::sync::oneshot;

use crate::error::Unavailable;

use super::error::SettleError;

/// The results of a settle's items, in their order.
pub type SettleResults = Vec<Result<(), SettleError>>;

/// Sends the results of a settle to its caller. A repeated settle names each lease by its token, so one item of
/// the caller may have become several or none: the results are folded back into the caller's items.
#[derive(Debug)]
pub struct SettleSender {
    to: oneshot::Sender<SettleResults>,
    /// The folds of each repetition; the last one applies first.
    folds: Vec<Vec<Fold>>,
}

/// The result of an item that may have become several.
#[derive(Clone, PartialEq, Debug)]
pub enum Fold {
    Known(Result<(), SettleError>),
    /// The first error of the next `n` results.
    Next(u32),
}

impl SettleSender {
    /// Results that are sent from now on are those of the repetition.
    pub fn folded(mut self, folds: Vec<Fold>) -> Self {
        self.folds.push(folds);
        self
    }

    /// The caller may be gone.
    pub fn send(self, mut results: SettleResults) {
        for folds in self.folds.into_iter().rev() {
            let mut of_repetition = results.into_iter();
            let fold = |fold: Fold| match fold {
                Fold::Known(result) => result,
                Fold::Next(count) => {
                    // All of them are consumed, also after an error.
                    let of_item: SettleResults =
                        of_repetition.by_ref().take(count as usize).collect();
                    of_item.into_iter().find(Result::is_err).unwrap_or(Ok(()))
                }
            };
            results = folds.into_iter().map(fold).collect();
        }
        let _ = self.to.send(results);
    }

    #[inline]
    pub fn is_closed(&self) -> bool {
        self.to.is_closed()
    }
}

impl From<oneshot::Sender<SettleResults>> for SettleSender {
    fn from(to: oneshot::Sender<SettleResults>) -> Self {
        Self { to, folds: Vec::new() }
    }
}

/// Resolves, with results in the order of the items, once the settles are durable. Dropping it does not cancel
/// them.
#[derive(Debug)]
pub struct SettleReply(SettleReplies);

#[derive(Debug)]
enum SettleReplies {
    /// All items are in one shard.
    One(ShardSettleReply),
    Several {
        parts: Vec<ShardSettleReply>,
        /// Index of the part of each item.
        places: Vec<usize>,
    },
}

/// The reply of one shard.
#[derive(Debug)]
pub struct ShardSettleReply {
    items: usize,
    reply: oneshot::Receiver<SettleResults>,
    answered: Option<SettleResults>,
}

impl ShardSettleReply {
    pub fn new(items: usize, reply: oneshot::Receiver<SettleResults>) -> Self {
        Self { items, reply, answered: None }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<SettleResults> {
        let items = self.items;
        Pin::new(&mut self.reply)
            .poll(context)
            .map(|reply| reply.unwrap_or_else(|_| vec![Err(Unavailable::Stopping.into()); items]))
    }
}

impl SettleReply {
    #[inline]
    pub fn one(items: usize, reply: oneshot::Receiver<SettleResults>) -> Self {
        Self(SettleReplies::One(ShardSettleReply::new(items, reply)))
    }

    /// `places`: index of the part of each item; a part has its items in their order.
    pub fn several(parts: Vec<ShardSettleReply>, places: Vec<usize>) -> Self {
        Self(SettleReplies::Several { parts, places })
    }
}

impl Future for SettleReply {
    type Output = Vec<Result<(), SettleError>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            SettleReplies::One(part) => part.poll(context),
            SettleReplies::Several { parts, places } => {
                for part in parts.iter_mut() {
                    if part.answered.is_none() {
                        part.answered = Some(ready!(part.poll(context)));
                    }
                }
                let answers = parts.iter_mut().map(|part| part.answered.take().unwrap_or_default());
                let mut answers: Vec<_> = answers.map(Vec::into_iter).collect();
                let stopping = || Err(Unavailable::Stopping.into());
                let next = |place: &usize| answers[*place].next().unwrap_or_else(stopping);
                Poll::Ready(places.iter().map(next).collect())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_a_repeated_settle_are_folded_into_the_items_of_its_caller() {
        let (to, mut answer) = oneshot::channel();
        let known = Fold::Known(Err(SettleError::NotLeased));
        let sender = SettleSender::from(to).folded(vec![Fold::Next(2), known, Fold::Next(1)]);
        // Repeated once more, after its second lease had ended.
        let sender = sender.folded(vec![Fold::Next(1), Fold::Known(Ok(())), Fold::Next(1)]);
        let stopping = || Err(SettleError::Unavailable(Unavailable::Stopping));
        sender.send(vec![stopping(), Ok(())]);
        assert_eq!(answer.try_recv(), Ok(vec![stopping(), Err(SettleError::NotLeased), Ok(())]));
    }

    #[tokio::test]
    async fn replies_of_several_shards_are_merged_in_the_order_of_the_items() {
        let (first, one) = oneshot::channel();
        let (second, other) = oneshot::channel::<SettleResults>();
        let parts = vec![ShardSettleReply::new(2, one), ShardSettleReply::new(2, other)];
        let reply = SettleReply::several(parts, vec![1, 0, 1, 0]);
        first.send(vec![Ok(()), Err(SettleError::NotLeased)]).expect("it waits");
        drop(second);
        let stopping = || Err(SettleError::Unavailable(Unavailable::Stopping));
        let expected = [stopping(), Ok(()), stopping(), Err(SettleError::NotLeased)];
        assert_eq!(reply.await, expected);
    }
}
