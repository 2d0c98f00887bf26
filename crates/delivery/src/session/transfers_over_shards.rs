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
use machine::Preparation;
use shard::append::{AppendBatch, AppendedBatch};
use shard::delivery::error::{SettleError, TransferError};
use shard::delivery::handle::{Message, SettlesElsewhere, TransferOutcome, WithheldSettles};
use shard::delivery::options::Settle;
use shard::error::{AppendError, Unavailable};
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
    let with_settles = parts.iter().filter(|part| !part.settles.is_empty());
    try_join_all(with_settles.map(|part| part.probe(links))).await?;
    if links.level() < Level::MESSAGE_COMMANDS {
        return transfer_apart(links, first, others, batches).await;
    }
    let own_rows = batches.iter().map(AppendBatch::rows).sum();
    let mut withheld = Withheld { links, settles: Vec::new(), is_sent: false };
    let (mut batches, mut elsewhere) = (batches, BTreeMap::new());
    for part in others {
        let WithheldSettles { settles, dead_letters } = part.withhold(links).await?;
        withheld.settles.push((part.shard, settles.preparation));
        batches.extend(dead_letters);
        elsewhere.insert(part.shard, settles);
    }
    withheld.is_sent = true;
    let moved = first.transfer(links, batches, elsewhere).await;
    match &moved {
        // The message of the deciding shard ends it.
        Ok(_) => withheld.settles.clear(),
        Err(error) => withheld.is_sent = !is_refusal(error),
    }
    let mut rows = moved?.arrived().await?;
    rows.truncate(own_rows);
    Ok(rows)
}

/// Whether the transfer certainly has no effect.
fn is_refusal(error: &TransferError) -> bool {
    match error {
        TransferError::Append { source, .. } => !matches!(source, AppendError::Unavailable(_)),
        TransferError::Settle { source, .. } => !matches!(source, SettleError::Unavailable(_)),
        TransferError::Unavailable(_) | TransferError::Partly(_) => false,
    }
}

/// Settles that drivers withhold for a transfer. Dropping it gives them up.
struct Withheld<'a> {
    links: &'a Links,
    settles: Vec<(ShardId, Preparation)>,
    /// The deciding shard may have the transfer, and may decide on it.
    is_sent: bool,
}

impl Drop for Withheld<'_> {
    fn drop(&mut self) {
        let (session, is_refused) = (self.links.session, !self.is_sent);
        for (shard, preparation) in self.settles.drain(..) {
            self.links.send(shard, Message::Restore { session, preparation, is_refused });
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
    /// The first part decides, and exists also without settles. It is in the shard of a batch with an expected offset,
    /// which only that shard can check; or else in the shard of the first batch if that shard has settles or there are
    /// none at all: then less has to be sent.
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
        let expecting = batches.iter().find(|batch| batch.expect.is_some());
        let first_row = expecting.or(batches.first()).map(|batch| batch.partition);
        let of_batches = links.shards_of(first_row.into_iter()).pop();
        let is_needed = expecting.is_some() || parts.is_empty();
        match parts.iter().position(|part| Some(part.shard) == of_batches) {
            Some(place) => parts.swap(0, place),
            None if is_needed => {
                let shard = of_batches.unwrap_or(ShardId::FIRST);
                parts.insert(0, Self { shard, settles: Vec::new() });
            }
            None => {}
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
