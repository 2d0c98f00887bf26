//! A take from the shards of a group. Several shards are queried one after the other for ready records,
//! beginning with another one each time, until there are enough. If there are none the take waits at all
//! shards, and the first reply with records wins; records that other shards deliver at the same moment are
//! released.

use std::time::Duration;

use base::{LeaseGroupId, ShardId};
use dispatch::Settlement;
use futures_util::stream::{FuturesUnordered, StreamExt};
use shard::delivery::error::TakeError;
use shard::delivery::event::Delivery;
use shard::delivery::handle::Message;
use shard::delivery::options::{Settle, TakeOptions};
use shard::error::Unavailable;
use tokio::sync::oneshot;

use super::links::Links;

type TakeResult = Result<Vec<Delivery>, TakeError>;

pub async fn take(links: &Links, group: LeaseGroupId, options: TakeOptions) -> TakeResult {
    if links.only().is_some() {
        return TakeGuard::begin(links, ShardId::FIRST, group, options).answer().await;
    }
    let Some(route) = links.route(group) else { return Err(TakeError::UnknownGroup(group)) };
    let mut shards = match &options.partitions[..] {
        [] => route.shards(),
        some => {
            let mut shards: Vec<ShardId> = some.iter().map(|it| route.shard_of(*it)).collect();
            shards.sort_unstable();
            shards.dedup();
            shards
        }
    };
    if let [only] = shards[..] {
        return TakeGuard::begin(links, only, group, options).answer().await;
    }
    let first = links.next_turn(shards.len());
    shards.rotate_left(first);
    let mut of_shards: Vec<(ShardId, TakeOptions)> = Vec::with_capacity(shards.len());
    for shard in shards {
        let mut of_shard = options.clone();
        of_shard.partitions.retain(|partition| route.shard_of(*partition) == shard);
        of_shards.push((shard, of_shard));
    }
    let mut taken = TakenRecords { links, records: Vec::new(), bytes: 0 };
    for (shard, of_shard) in &of_shards {
        let mut of_shard = of_shard.clone();
        of_shard.wait = Duration::ZERO;
        of_shard.records_max = options.records_max - taken.records.len() as u32;
        of_shard.bytes_max = options.bytes_max - taken.bytes;
        let answer = TakeGuard::begin(links, *shard, group, of_shard).answer().await;
        taken.add(known(links, group, answer)?, options.bytes_max);
        if taken.records.len() as u32 >= options.records_max || taken.bytes >= options.bytes_max {
            break;
        }
    }
    if !taken.records.is_empty() || options.wait.is_zero() {
        return Ok(taken.into_records());
    }
    let begin = |(shard, options)| TakeGuard::begin(links, shard, group, options).answer();
    let mut waiting: FuturesUnordered<_> = of_shards.into_iter().map(begin).collect();
    while let Some(answer) = waiting.next().await {
        let records = known(links, group, answer)?;
        if !records.is_empty() {
            return Ok(records);
        }
    }
    Ok(Vec::new())
}

/// A shard that has not yet applied its partitions of the topic has no records to give.
fn known(links: &Links, group: LeaseGroupId, answer: TakeResult) -> TakeResult {
    match answer {
        Err(TakeError::UnknownGroup(_)) if links.is_there(group) => Ok(Vec::new()),
        answer => answer,
    }
}

/// A take whose reply may have been sent but never read: its future is dropped when the caller's timeout ends
/// at the same moment. The records in it would stay leased without a consumer.
struct TakeGuard<'a> {
    links: &'a Links,
    shard: ShardId,
    answer: oneshot::Receiver<TakeResult>,
}

impl<'a> TakeGuard<'a> {
    fn begin(links: &'a Links, shard: ShardId, group: LeaseGroupId, options: TakeOptions) -> Self {
        let (reply, answer) = oneshot::channel();
        links.send(shard, Message::Take { session: links.session, group, options, reply });
        Self { links, shard, answer }
    }

    async fn answer(mut self) -> TakeResult {
        let answer = (&mut self.answer).await;
        answer.unwrap_or(Err(TakeError::Unavailable(Unavailable::Stopping)))
    }
}

impl Drop for TakeGuard<'_> {
    fn drop(&mut self) {
        // From here on the driver cannot send any more, and releases the records that it meant to send.
        self.answer.close();
        if let Ok(Ok(unseen)) = self.answer.try_recv() {
            release(self.links, self.shard, unseen.iter());
        }
    }
}

/// Records taken from shards so far; released on drop unless they are returned.
struct TakenRecords<'a> {
    links: &'a Links,
    records: Vec<Delivery>,
    bytes: u64,
}

impl TakenRecords<'_> {
    /// Releases the records over the byte limit. The first record is taken whatever its size.
    fn add(&mut self, records: Vec<Delivery>, bytes_max: u64) {
        let mut records = records.into_iter();
        for record in records.by_ref() {
            let bytes = self.bytes.saturating_add(record.record.encoded_len() as u64);
            if bytes > bytes_max && !self.records.is_empty() {
                self.release(&[record]);
                break;
            }
            self.bytes = bytes.min(bytes_max);
            self.records.push(record);
        }
        self.release(records.as_slice());
    }

    fn into_records(mut self) -> Vec<Delivery> {
        std::mem::take(&mut self.records)
    }

    fn release(&self, records: &[Delivery]) {
        for record in records {
            let settle = release_of(record);
            release(self.links, self.links.shard_of(&settle), std::iter::once(record));
        }
    }
}

impl Drop for TakenRecords<'_> {
    fn drop(&mut self) {
        self.release(&self.records);
    }
}

fn release<'a>(links: &Links, shard: ShardId, records: impl Iterator<Item = &'a Delivery>) {
    let settles: Vec<Settle> = records.map(release_of).collect();
    if settles.is_empty() {
        return;
    }
    // The reply is not awaited.
    let (reply, _) = oneshot::channel();
    links.send(
        shard,
        Message::Settle { session: links.session, settles, again: false, reply: reply.into() },
    );
}

fn release_of(delivery: &Delivery) -> Settle {
    Settle {
        group: delivery.group,
        what: delivery.lease(),
        settlement: Settlement::Release { delay_ms: Some(0), count: false },
    }
}
