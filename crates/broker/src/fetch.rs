//! Reading by offset and by time. Who waits for what is not there yet makes a
//! [`Watch`](crate::Watch): how much is enough, and of which partitions, is the protocol's to say.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use base::limits::{BARRIER_WITHIN, FETCH_BYTES_MAX};
use base::{Offset, PartitionId, TopicId};
use bytes::Bytes;
use futures_util::future::try_join_all;
use journal::Stored;
use machine::config::Durability;
use tokio::time::{sleep, timeout};

use crate::broker::Broker;
use crate::error::{FetchError, Unavailable};
use crate::local_shard::LocalShard;

pub use crate::stored::batches_in;

/// Before the leader of a shard is asked again, or looked for.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(10);

/// Consecutive batches, as they lie in the journal.
#[derive(Clone, Debug)]
pub struct Batches {
    /// Whole batches, one or more in each. The first may begin below the offset that was asked
    /// for, since that may lie in the middle of a batch; empty at the end of the partition. Where
    /// other partitions have a batch, too, its bytes begin with an offset that is not this one's:
    /// [`batches_in`] goes by the right one, [`Stored::put_pieces`] puts it in.
    pub records: Vec<Stored>,
    pub high_watermark: Offset,
    pub log_start: Offset,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    pub log_start: Offset,
    /// The offset that the next record will get.
    pub end: Offset,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimedOffset {
    pub offset: Offset,
    /// Milliseconds since the epoch.
    pub timestamp: i64,
}

impl Bounds {
    pub(crate) fn of(partition: &machine::Partition) -> Self {
        Self { log_start: partition.log_start(), end: partition.next_offset() }
    }
}

impl Batches {
    pub fn bytes(&self) -> usize {
        self.records.iter().map(Stored::len).sum()
    }
}

/// Where a partition of a shard that this node leads begins and ends. A new leader that has not applied all yet would
/// call offsets out of range that were acknowledged.
fn bounds_here(shard: &LocalShard, partition: PartitionId) -> Result<Bounds, FetchError> {
    if shard.serves_in().is_none() {
        return Err(Unavailable::NotLeader.into());
    }
    bounds_known(shard, partition)
}

fn bounds_known(shard: &LocalShard, partition: PartitionId) -> Result<Bounds, FetchError> {
    shard.read(|view| {
        let here = view.rows.partition(partition).map(Bounds::of);
        // It moved, and one of the two that know so has not said it here.
        let moves = || {
            let topic = view.catalog.topic(partition.topic);
            let moved = |topic: &machine::Topic| topic.placement.epoch_base(partition.index) > 0;
            view.rows.gone_to(partition).is_some() || topic.is_some_and(moved)
        };
        here.ok_or_else(|| match moves() {
            true => Unavailable::NotLeader.into(),
            false => FetchError::UnknownPartition(partition),
        })
    })
}

async fn read_within(
    shard: &LocalShard,
    Bounds { log_start, end }: Bounds,
    partition: PartitionId,
    offset: Offset,
    bytes_max: usize,
) -> Result<Batches, FetchError> {
    if offset < log_start || offset > end {
        return Err(FetchError::OffsetOutOfRange { offset, log_start, end });
    }
    let records = if offset == end || bytes_max == 0 {
        Vec::new()
    } else {
        let bytes_max = bytes_max.min(FETCH_BYTES_MAX);
        let read = shard.journal().read(partition.stream(), offset, bytes_max).await;
        read.map_err(|error| FetchError::Storage(error.to_string()))?
    };
    // It may have been dropped between the two, having moved: then nothing was found, and nothing is said.
    if records.is_empty() && offset < end && shard.shard.rows().known(partition).is_none() {
        return Err(Unavailable::NotLeader.into());
    }
    Ok(Batches { records, high_watermark: end, log_start })
}

impl Broker {
    /// Where a partition begins and ends, as far as this node knows.
    pub fn bounds(&self, partition: PartitionId) -> Option<Bounds> {
        self.known(partition).ok().map(|(_, bounds)| bounds)
    }

    /// The shard that this node knows a partition in, and where it ends there. One that has moved is where it was for as
    /// long as nothing else is known here.
    fn known(&self, partition: PartitionId) -> Result<(&Arc<LocalShard>, Bounds), FetchError> {
        let shard = self.shard_of(partition);
        let (known, gone_to) = {
            let rows = shard.shard.rows();
            (rows.known(partition).map(Bounds::of), rows.gone_to(partition))
        };
        let next = gone_to.and_then(|to| {
            let next = self.shards_with_rows().iter().find(|shard| shard.id() == to)?;
            let bounds = next.shard.rows().partition(partition).map(Bounds::of);
            Some((next, bounds?))
        });
        match next.or_else(|| Some((shard, known?))) {
            Some(known) => Ok(known),
            None => bounds_known(shard, partition).map(|bounds| (shard, bounds)),
        }
    }

    /// Waits until everything that was acknowledged in this topic can be read. Where its durability is
    /// `replicated`, that may be one sync later than the acknowledgement.
    pub async fn acknowledged_is_readable(&self, topic: TopicId) {
        let durability = self.catalog().topic(topic).map(|topic| topic.config().durability);
        if durability == Some(Durability::Replicated) {
            for shard in self.shards_of(topic) {
                shard.shard.apply_answered().await;
            }
        }
    }

    /// Waits until this node has of these partitions all that was acknowledged before the call, whoever leads them.
    /// Fails where their leaders cannot be asked in time.
    pub async fn copies_are_current(&self, partitions: &[PartitionId]) -> Result<(), Unavailable> {
        let places: BTreeSet<usize> =
            self.places_of(partitions.iter().copied()).into_iter().collect();
        let shards = places.into_iter().map(|place| &*self.shards_with_rows()[place]);
        self.are_current(shards).await
    }

    /// The same of what is stored of a group.
    pub async fn group_is_current(&self, group: &str) -> Result<(), Unavailable> {
        self.are_current(std::iter::once(&**self.home_of(group))).await
    }

    async fn are_current(
        &self,
        shards: impl Iterator<Item = &LocalShard>,
    ) -> Result<(), Unavailable> {
        let current = try_join_all(shards.map(|shard| self.copy_is_current(shard)));
        match timeout(BARRIER_WITHIN, current).await {
            Ok(current) => current.map(drop),
            Err(_) => Err(Unavailable::Unanswered),
        }
    }

    async fn copy_is_current(&self, shard: &LocalShard) -> Result<(), Unavailable> {
        loop {
            if shard.is_led_here() {
                shard.shard.apply_answered().await;
                return Ok(());
            }
            match self.peers().read_index(shard.leader(), shard.id()).await {
                Ok(index) => {
                    shard.shard.applied_to(index).await;
                    return Ok(());
                }
                Err(Unavailable::NotLeader | Unavailable::Unanswered) => {
                    sleep(ASK_AGAIN_AFTER).await;
                }
                Err(ended) => return Err(ended),
            }
        }
    }

    /// Consecutive batches from the one that holds `offset` on (or the next one, if compaction
    /// took it): at most `bytes_max`, but at least one batch.
    pub async fn read_batches(
        &self,
        partition: PartitionId,
        offset: Offset,
        bytes_max: usize,
    ) -> Result<Batches, FetchError> {
        let shard = self.shard_of(partition);
        let bounds = bounds_here(shard, partition)?;
        read_within(shard, bounds, partition, offset, bytes_max).await
    }

    /// The same in what this node has of the partition, which may lack the newest records where another node leads.
    pub async fn read_known_batches(
        &self,
        partition: PartitionId,
        offset: Offset,
        bytes_max: usize,
    ) -> Result<Batches, FetchError> {
        let (shard, bounds) = self.known(partition)?;
        read_within(shard, bounds, partition, offset, bytes_max).await
    }

    /// The first record whose timestamp is at least `timestamp_ms`, in what this node has of the partition: where
    /// another node leads it may lack the newest records.
    pub async fn known_offset_at_time(
        &self,
        partition: PartitionId,
        timestamp_ms: i64,
    ) -> Result<Option<TimedOffset>, FetchError> {
        let (shard, bounds) = self.known(partition)?;
        let journal = shard.journal();
        let found = journal.find_time(partition.stream(), timestamp_ms).await;
        let Some((_, batch)) = found.map_err(|error| FetchError::Storage(error.to_string()))?
        else {
            return Ok(None);
        };
        let search = move |batch: &Bytes| record::offset_at_or_after(batch, timestamp_ms);
        let at = self
            .cpu()
            .read_batch(batch.into_bytes(), search)
            .await
            .map_err(|error| FetchError::Storage(error.to_string()))?;
        Ok(at
            // The batch may begin below the log's start: what is deleted is not named again.
            .map(|(offset, timestamp)| TimedOffset {
                offset: offset.max(bounds.log_start),
                timestamp,
            })
            .filter(|at| at.offset < bounds.end))
    }

    /// The record with the largest timestamp; the first of them, if several have it. As above of what this node has.
    pub async fn known_offset_of_max_timestamp(
        &self,
        partition: PartitionId,
    ) -> Result<Option<TimedOffset>, FetchError> {
        let (shard, _) = self.known(partition)?;
        let journal = shard.journal();
        let found = journal.find_max_time(partition.stream()).await;
        let Some((_, batch)) = found.map_err(|error| FetchError::Storage(error.to_string()))?
        else {
            return Ok(None);
        };
        let search = |batch: &Bytes| record::first_with_max_timestamp(batch);
        let at = self
            .cpu()
            .read_batch(batch.into_bytes(), search)
            .await
            .map_err(|error| FetchError::Storage(error.to_string()))?;
        Ok(at.map(|(offset, timestamp)| TimedOffset { offset, timestamp }))
    }
}
