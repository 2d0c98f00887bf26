//! Transfers whose records are leased in several shards.
//!
//! One entry of one log is all or nothing, and so is a transfer whose settles are in one shard: batches for
//! other shards go there by messages in the same entry. Settles in several shards are one entry per shard, each
//! atomic by itself, like RabbitMQ's transactions for each queue. All leases are checked before the first
//! entry. So a transfer with a lost lease does nothing, unless the lease ends between check and entry.

use base::ShardId;
use dispatch::Settlement;
use shard::append::{AppendBatch, AppendedBatch};
use shard::delivery::error::TransferError;
use shard::delivery::handle::{Message, TransferOutcome};
use shard::delivery::options::Settle;
use shard::error::Unavailable;
use tokio::sync::oneshot;

use super::links::Links;

pub async fn transfer(
    links: &Links,
    settles: Vec<Settle>,
    batches: Vec<AppendBatch>,
) -> Result<Vec<Option<AppendedBatch>>, TransferError> {
    let parts = ShardSettles::divide(links, settles, &batches);
    if parts.len() > 1 {
        for part in &parts {
            part.probe(links).await?;
        }
    }
    let Some((first, others)) = parts.split_first() else { return Ok(Vec::new()) };
    let moved = first.transfer(links, batches).await?;
    for part in others {
        let partly = |error| TransferError::Partly(Box::new(error));
        part.transfer(links, Vec::new()).await.map_err(partly)?;
    }
    // The other parts need not wait for this.
    Ok(moved.arrived().await?)
}

/// The settles of a transfer in one shard.
struct ShardSettles {
    shard: ShardId,
    /// Each with its index among all settles of the transfer.
    settles: Vec<(usize, Settle)>,
}

impl ShardSettles {
    /// The first part appends, and exists also without settles. It is in the shard of the first batch if that
    /// shard has settles or there are none at all: then less has to be sent.
    fn divide(links: &Links, settles: Vec<Settle>, batches: &[AppendBatch]) -> Vec<Self> {
        if links.only().is_some() {
            let settles = settles.into_iter().enumerate().collect();
            return vec![Self { shard: ShardId::FIRST, settles }];
        }
        let mut parts: Vec<Self> = Vec::new();
        for (place, settle) in settles.into_iter().enumerate() {
            let shard = links.shard_of(&settle);
            match parts.iter_mut().find(|part| part.shard == shard) {
                Some(part) => part.settles.push((place, settle)),
                None => parts.push(Self { shard, settles: vec![(place, settle)] }),
            }
        }
        let first_row = batches.iter().flat_map(AppendBatch::partitions).take(1);
        let of_batches = links.shards_of(first_row).pop();
        if parts.is_empty() {
            let shard = of_batches.unwrap_or(ShardId::FIRST);
            parts.push(Self { shard, settles: Vec::new() });
        }
        if let Some(place) = parts.iter().position(|part| Some(part.shard) == of_batches) {
            parts.swap(0, place);
        }
        parts
    }

    /// Checks that the session holds all of its leases, by renewing them.
    async fn probe(&self, links: &Links) -> Result<(), TransferError> {
        let settlement = Settlement::Renew { lease_ms: None };
        let settles = self.settles.iter().map(|(_, settle)| Settle { settlement, ..*settle });
        let (settles, (reply, answer)) = (settles.collect(), oneshot::channel());
        links.send(
            self.shard,
            Message::Settle { session: links.session, settles, again: false, reply: reply.into() },
        );
        let results = answer.await.map_err(|_| Unavailable::Stopping)?;
        for ((item, _), result) in self.settles.iter().zip(results) {
            result.map_err(|source| TransferError::Settle { item: *item, source })?;
        }
        Ok(())
    }

    async fn transfer(
        &self,
        links: &Links,
        batches: Vec<AppendBatch>,
    ) -> Result<TransferOutcome, TransferError> {
        let (session, (reply, answer)) = (links.session, oneshot::channel());
        let settles = self.settles.iter().map(|(_, settle)| *settle).collect();
        links.send(self.shard, Message::Transfer { session, settles, batches, reply });
        let moved = answer.await.unwrap_or(Err(Unavailable::Stopping.into()));
        moved.map_err(|error| match error {
            TransferError::Settle { item, source } => {
                let item = self.settles.get(item).map_or(item, |(item, _)| *item);
                TransferError::Settle { item, source }
            }
            error => error,
        })
    }
}
