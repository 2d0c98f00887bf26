//! Transfers whose records are leased in several shards.
//!
//! One entry of one log is all or nothing, and so is a transfer whose settles are in one shard: batches for
//! other shards go there by messages in the same entry. Of settles in several shards one shard decides. The others
//! withhold their records first, so that nothing can refuse the settles any more; then the entry of the deciding
//! shard has all settles, and sends each other shard its part by a message.

use std::collections::BTreeMap;

use base::{Level, ShardId};
use dispatch::Settlement;
use futures_util::future::try_join_all;
use shard::append::{AppendBatch, AppendedBatch};
use shard::delivery::error::TransferError;
use shard::delivery::handle::{Message, SettlesElsewhere, TransferOutcome, WithheldSettles};
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
    let Some((first, others)) = parts.split_first() else { return Ok(Vec::new()) };
    if others.is_empty() {
        let moved = first.transfer(links, batches, BTreeMap::new()).await?;
        return Ok(moved.arrived().await?);
    }
    // A transfer with a lost lease does nothing: the session keeps its other leases.
    try_join_all(parts.iter().map(|part| part.probe(links))).await?;
    if links.level() < Level::MESSAGE_COMMANDS {
        return transfer_apart(links, first, others, batches).await;
    }
    let own_rows = batches.iter().map(AppendBatch::rows).sum();
    let mut withheld = Withheld { links, settles: Vec::new() };
    let (mut batches, mut elsewhere) = (batches, BTreeMap::new());
    for part in others {
        let WithheldSettles { number, settles, dead_letters } = part.withhold(links).await?;
        withheld.settles.push((part.shard, number));
        batches.extend(dead_letters);
        elsewhere.insert(part.shard, settles);
    }
    // From here on only a refusal restores them. Else the message ends it, or the session's end.
    let sent = std::mem::take(&mut withheld.settles);
    let moved = first.transfer(links, batches, elsewhere).await;
    if matches!(moved, Err(TransferError::Settle { .. } | TransferError::Append { .. })) {
        withheld.settles = sent;
    }
    let mut rows = moved?.arrived().await?;
    rows.truncate(own_rows);
    Ok(rows)
}

/// Settles that drivers withhold for a transfer. Dropping it restores them.
struct Withheld<'a> {
    links: &'a Links,
    /// Their numbers, by shard.
    settles: Vec<(ShardId, u64)>,
}

impl Drop for Withheld<'_> {
    fn drop(&mut self) {
        let session = self.links.session;
        for (shard, number) in self.settles.drain(..) {
            self.links.send(shard, Message::Restore { session, number });
        }
    }
}

/// Below the level of commands in messages: one entry for each shard, each atomic by itself. A lease that ends after
/// the check leaves a part of the transfer.
async fn transfer_apart(
    links: &Links,
    first: &ShardSettles,
    others: &[ShardSettles],
    batches: Vec<AppendBatch>,
) -> Result<Vec<Option<AppendedBatch>>, TransferError> {
    let moved = first.transfer(links, batches, BTreeMap::new()).await?;
    for part in others {
        let partly = |error| TransferError::Partly(Box::new(error));
        part.transfer(links, Vec::new(), BTreeMap::new()).await.map_err(partly)?;
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

    fn settles(&self) -> Vec<Settle> {
        self.settles.iter().map(|(_, settle)| *settle).collect()
    }

    /// Checks that the session holds all of its leases, by renewing them.
    async fn probe(&self, links: &Links) -> Result<(), TransferError> {
        let settlement = Settlement::Renew { lease_ms: None };
        let settles = self.settles().into_iter().map(|settle| Settle { settlement, ..settle });
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

    async fn withhold(&self, links: &Links) -> Result<WithheldSettles, TransferError> {
        let (session, (reply, answer)) = (links.session, oneshot::channel());
        links.send(self.shard, Message::Withhold { session, settles: self.settles(), reply });
        let withheld = answer.await.unwrap_or(Err(Unavailable::Stopping.into()));
        withheld.map_err(|error| self.error_of_all(error))
    }

    async fn transfer(
        &self,
        links: &Links,
        batches: Vec<AppendBatch>,
        elsewhere: BTreeMap<ShardId, SettlesElsewhere>,
    ) -> Result<TransferOutcome, TransferError> {
        let (session, settles) = (links.session, self.settles());
        let (reply, answer) = oneshot::channel();
        links.send(self.shard, Message::Transfer { session, settles, batches, elsewhere, reply });
        let moved = answer.await.unwrap_or(Err(Unavailable::Stopping.into()));
        moved.map_err(|error| self.error_of_all(error))
    }

    /// The error with the item's index among all settles.
    fn error_of_all(&self, error: TransferError) -> TransferError {
        match error {
            TransferError::Settle { item, source } => {
                let item = self.settles.get(item).map_or(item, |(item, _)| *item);
                TransferError::Settle { item, source }
            }
            error => error,
        }
    }
}
