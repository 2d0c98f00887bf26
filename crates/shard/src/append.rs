//! Append requests of producers and their replies.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use base::{Offset, PartitionId};
use bytes::BytesMut;
use record::BatchHeader;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::error::{AppendError, Unavailable};
use crate::record_ids::RecordIds;

/// One batch for one partition or several. The gateway has validated it against its header, verified its checksum and
/// applied the topic's policy (size, timestamps, compression).
#[derive(Debug)]
pub struct AppendBatch {
    pub partition: PartitionId,
    /// Further partitions that get the same records. The batch is written once, with a row for each of its
    /// partitions; each row is accepted or rejected on its own.
    pub also: Vec<PartitionId>,
    pub header: BatchHeader,
    /// The whole batch. Its base offset and leader epoch are written in place, so the bytes must not be shared with
    /// another batch.
    pub bytes: BytesMut,
    /// Append only if the first record gets this offset: a client that has read up to there knows that no record came
    /// in between (optimistic concurrency).
    pub expect: Option<Offset>,
    /// Record ids, if they were read already. A gateway reads them of batches that take long to unpack, because the
    /// sequencer must not wait for that. Only topics with `dedup.window.ms` need them.
    pub ids: Option<RecordIds>,
}

impl AppendBatch {
    /// Returns a batch for one partition, with any first offset.
    #[inline]
    pub fn new(partition: PartitionId, header: BatchHeader, bytes: BytesMut) -> Self {
        Self { partition, also: Vec::new(), header, bytes, expect: None, ids: None }
    }

    /// Returns the records and bytes of all batches. Each batch counts once, regardless of its number of partitions.
    pub fn amount(batches: &[Self]) -> (u64, u64) {
        batches.iter().fold((0, 0), |(records, bytes), batch| {
            let count = u64::try_from(batch.header.record_count).unwrap_or(0);
            (records + count, bytes + batch.bytes.len() as u64)
        })
    }

    /// Number of results in the reply.
    #[inline]
    pub fn rows(&self) -> usize {
        1 + self.also.len()
    }

    /// Cuts the batch after this many rows, at least one, and returns a batch of the remaining rows.
    fn split_off(&mut self, rows: usize) -> Option<Self> {
        let mut others = self.also.split_off(rows.saturating_sub(1).min(self.also.len()));
        if others.is_empty() {
            return None;
        }
        let (partition, header, expect) = (others.remove(0), self.header, self.expect);
        let (bytes, ids) = (self.bytes.clone(), self.ids.clone());
        Some(Self { partition, also: others, header, bytes, expect, ids })
    }

    /// Returns the batch's partitions, in the order of its results.
    #[inline]
    pub fn partitions(&self) -> impl Iterator<Item = PartitionId> + '_ {
        std::iter::once(self.partition).chain(self.also.iter().copied())
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AppendedBatch {
    pub base_offset: Offset,
    pub log_start: Offset,
    /// The batch was appended before: a retry, answered with the offsets of the first try.
    pub duplicate: bool,
}

/// One result for each row of each batch, in order.
pub type Appends = Vec<Result<AppendedBatch, AppendError>>;

/// Splits batches by shard, given the place of the shard of each row. A batch with rows in several shards is copied
/// for each.
pub fn divide(batches: Vec<AppendBatch>, places: &[usize]) -> BTreeMap<usize, Vec<AppendBatch>> {
    let mut parts: BTreeMap<usize, Vec<AppendBatch>> = BTreeMap::new();
    let mut rest = places;
    for batch in batches {
        let (of_batch, more) = rest.split_at(batch.rows());
        rest = more;
        if of_batch.iter().all(|place| *place == of_batch[0]) {
            parts.entry(of_batch[0]).or_default().push(batch);
            continue;
        }
        let mut of_shards: BTreeMap<usize, Vec<PartitionId>> = BTreeMap::new();
        for (&place, partition) in of_batch.iter().zip(batch.partitions()) {
            of_shards.entry(place).or_default().push(partition);
        }
        for (place, mut partitions) in of_shards {
            let partition = partitions.remove(0);
            let part = AppendBatch {
                partition,
                also: partitions,
                header: batch.header,
                bytes: batch.bytes.clone(),
                expect: batch.expect,
                ids: batch.ids.clone(),
            };
            parts.entry(place).or_default().push(part);
        }
    }
    parts
}

/// Splits the batches into groups of at most this many rows, in order. A batch that crosses the end of a group is
/// copied into the next one.
pub fn in_groups(batches: Vec<AppendBatch>, rows_max: usize) -> Vec<Vec<AppendBatch>> {
    let (mut groups, mut group, mut room) = (Vec::new(), Vec::new(), rows_max);
    for batch in batches {
        let mut next = Some(batch);
        while let Some(mut batch) = next.take() {
            if room == 0 {
                groups.push(std::mem::take(&mut group));
                room = rows_max;
            }
            next = batch.split_off(room);
            room = room.saturating_sub(batch.rows());
            group.push(batch);
        }
    }
    groups.push(group);
    groups
}

/// Resolves once the whole request is durable or rejected, with one result for each row in the order of the batches.
///
/// The request gets its place in the order when the reply is created, not when it is awaited.
#[derive(Debug)]
pub struct AppendReply(AppendReplies);

#[derive(Debug)]
enum AppendReplies {
    /// All rows are in one shard.
    One { rows: usize, reply: oneshot::Receiver<Appends> },
    Several {
        /// The shard of each row.
        places: Vec<usize>,
        replies: BTreeMap<usize, ShardAppendReply>,
    },
}

#[derive(Debug)]
enum ShardAppendReply {
    Awaited(oneshot::Receiver<Appends>),
    Answered(Appends),
}

impl AppendReply {
    #[inline]
    pub fn new(rows: usize, reply: oneshot::Receiver<Appends>) -> Self {
        Self(AppendReplies::One { rows, reply })
    }

    /// `places` has the shard of each row, in the order of the results of each shard.
    pub fn from_parts(
        places: Vec<usize>,
        replies: impl Iterator<Item = (usize, oneshot::Receiver<Appends>)>,
    ) -> Self {
        let replies =
            replies.map(|(shard, reply)| (shard, ShardAppendReply::Awaited(reply))).collect();
        Self(AppendReplies::Several { places, replies })
    }
}

/// Replies of appends whose client no longer waits.
#[derive(Debug)]
pub struct LateAnswers(Vec<oneshot::Receiver<Appends>>);

impl LateAnswers {
    /// Waits until all outcomes are known: until then the batches stay in memory.
    pub async fn known(self) {
        for late in self.0 {
            let _ = late.await;
        }
    }
}

impl AppendReply {
    /// Takes the results that are known by now, row by row; `None` where the outcome is still open.
    pub fn known_so_far(
        &mut self,
    ) -> (Vec<Option<Result<AppendedBatch, AppendError>>>, LateAnswers) {
        let mut late = Vec::new();
        let mut look = |mut reply: oneshot::Receiver<Appends>| match reply.try_recv() {
            Ok(answers) => Some(answers),
            Err(oneshot::error::TryRecvError::Closed) => Some(Vec::new()),
            Err(oneshot::error::TryRecvError::Empty) => {
                late.push(reply);
                None
            }
        };
        let nothing = AppendReplies::Several { places: Vec::new(), replies: BTreeMap::new() };
        let answers = match std::mem::replace(&mut self.0, nothing) {
            AppendReplies::One { rows, reply } => match look(reply) {
                Some(answers) => {
                    let mut answers = answers.into_iter();
                    (0..rows).map(|_| Some(answers.next().unwrap_or_else(stopping))).collect()
                }
                None => vec![None; rows],
            },
            AppendReplies::Several { places, replies } => {
                let mut known: BTreeMap<usize, Option<_>> = BTreeMap::new();
                for (shard, part) in replies {
                    let answers = match part {
                        ShardAppendReply::Answered(answers) => Some(answers),
                        ShardAppendReply::Awaited(reply) => look(reply),
                    };
                    known.insert(shard, answers.map(Vec::into_iter));
                }
                let row = |shard: &usize| {
                    let answers = known.get_mut(shard)?.as_mut()?;
                    Some(answers.next().unwrap_or_else(stopping))
                };
                places.iter().map(row).collect()
            }
        };
        (answers, LateAnswers(late))
    }
}

/// The shard dropped the request without a reply: it is shutting down.
fn stopping() -> Result<AppendedBatch, AppendError> {
    Err(Unavailable::Stopping.into())
}

impl Future for AppendReply {
    type Output = Appends;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Appends> {
        match &mut self.0 {
            AppendReplies::One { rows, reply } => {
                let rows = *rows;
                let answered = Pin::new(reply).poll(context);
                answered.map(|reply| reply.unwrap_or_else(|_| vec![stopping(); rows]))
            }
            AppendReplies::Several { places, replies } => {
                for part in replies.values_mut() {
                    if let ShardAppendReply::Awaited(reply) = part {
                        let answers = ready!(Pin::new(reply).poll(context));
                        *part = ShardAppendReply::Answered(answers.unwrap_or_default());
                    }
                }
                let answered =
                    std::mem::take(replies).into_iter().map(|(shard, part)| match part {
                        ShardAppendReply::Answered(answers) => (shard, answers.into_iter()),
                        ShardAppendReply::Awaited(_) => (shard, Vec::new().into_iter()),
                    });
                let mut answers: BTreeMap<_, _> = answered.collect();
                let next = |shard: &usize| answers.get_mut(shard)?.next();
                Poll::Ready(places.iter().map(next).map(|it| it.unwrap_or_else(stopping)).collect())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use base::TopicId;
    use record::{BatchBuilder, BatchOptions};

    use super::*;

    fn batch(partitions: std::ops::Range<u32>) -> AppendBatch {
        let mut builder = BatchBuilder::new(BatchOptions::default());
        builder.push(0, None, Some(b"v"), &[]).expect("it fits");
        let bytes = BytesMut::from(&builder.finish()[..]);
        let header = BatchHeader::parse(&bytes).expect("a batch");
        let mut partitions = partitions.map(|index| PartitionId::new(TopicId(1), index));
        let first = partitions.next().expect("one at least");
        AppendBatch { also: partitions.collect(), ..AppendBatch::new(first, header, bytes) }
    }

    #[test]
    fn groups_stay_within_the_row_limit_and_keep_the_order() {
        for rows_max in 1..12 {
            let batches = vec![batch(0..1), batch(1..8), batch(8..9), batch(9..11)];
            let groups = in_groups(batches, rows_max);
            let mut rows = Vec::new();
            for group in &groups {
                let count: usize = group.iter().map(AppendBatch::rows).sum();
                assert!((1..=rows_max).contains(&count), "{count} of {rows_max}");
                rows.extend(group.iter().flat_map(AppendBatch::partitions).map(|it| it.index));
            }
            assert_eq!(rows, (0..11).collect::<Vec<u32>>());
            assert_eq!(groups.len(), 11_usize.div_ceil(rows_max));
        }
    }
}
