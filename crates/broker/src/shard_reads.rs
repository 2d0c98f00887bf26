//! Reads of a partition in one shard, by offset and by time.

use base::limits::FETCH_BYTES_MAX;
use base::{Offset, PartitionId};
use bytes::Bytes;
use journal::StoredBatches;
use shard::LocalShard;
use shard::error::{FetchError, Unavailable};
use shard_peers::bounds::{Bounds, TimedOffset};

/// Consecutive batches, as stored in the journal.
#[derive(Clone, Debug)]
pub struct Batches {
    /// Whole batches, one or more in each. The first may begin below the requested offset, which may be in the middle
    /// of a batch; empty at the end of the partition. The bytes of a batch shared with other partitions begin with an
    /// offset of one of those: [`batches_in`](crate::batches_in) uses the right one, and
    /// [`StoredBatches::put_pieces`] writes it.
    pub records: Vec<StoredBatches>,
    pub high_watermark: Offset,
    pub log_start: Offset,
}

impl Batches {
    pub fn bytes(&self) -> usize {
        self.records.iter().map(StoredBatches::len).sum()
    }
}

/// Returns the start and end of a partition of a shard that this node leads. A new leader that has not applied all
/// entries yet is rejected: it would report acknowledged offsets as out of range.
pub(crate) fn bounds_here(
    shard: &LocalShard,
    partition: PartitionId,
) -> Result<Bounds, FetchError> {
    if shard.serves_in().is_none() {
        return Err(Unavailable::NotLeader.into());
    }
    bounds_known(shard, partition)
}

pub(crate) fn bounds_known(
    shard: &LocalShard,
    partition: PartitionId,
) -> Result<Bounds, FetchError> {
    shard.read(|view| {
        let here = view.rows.partition(partition).map(Bounds::of);
        // The partition has moved, and the shard or the catalog here does not know it yet.
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

pub(crate) async fn read_within(
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
    // A moved partition may have been dropped in between: the empty result would be wrong.
    if records.is_empty() && offset < end && shard.shard.rows().known(partition).is_none() {
        return Err(Unavailable::NotLeader.into());
    }
    Ok(Batches { records, high_watermark: end, log_start })
}

/// Reads the shard's records of a partition, whether or not this node leads.
pub(crate) async fn read_known(
    shard: &LocalShard,
    partition: PartitionId,
    offset: Offset,
    bytes_max: usize,
) -> Result<Batches, FetchError> {
    let bounds = bounds_known(shard, partition)?;
    read_within(shard, bounds, partition, offset, bytes_max).await
}

pub(crate) async fn offset_at_time(
    shard: &LocalShard,
    partition: PartitionId,
    timestamp_ms: i64,
) -> Result<Option<TimedOffset>, FetchError> {
    let bounds = bounds_known(shard, partition)?;
    offset_at_time_within(shard, partition, bounds, timestamp_ms).await
}

pub(crate) async fn offset_at_time_within(
    shard: &LocalShard,
    partition: PartitionId,
    bounds: Bounds,
    timestamp_ms: i64,
) -> Result<Option<TimedOffset>, FetchError> {
    let found = shard.journal().find_time(partition.stream(), timestamp_ms).await;
    let Some((_, batch)) = found.map_err(|error| FetchError::Storage(error.to_string()))? else {
        return Ok(None);
    };
    let search = move |batch: &Bytes| record::offset_at_or_after(batch, timestamp_ms);
    let at = shard
        .cpu()
        .read_batch(batch.into_bytes(), search)
        .await
        .map_err(|error| FetchError::Storage(error.to_string()))?;
    Ok(at
        // The batch may begin below the log start: deleted offsets are not returned.
        .map(|(offset, timestamp)| TimedOffset { offset: offset.max(bounds.log_start), timestamp })
        .filter(|at| at.offset < bounds.end))
}

pub(crate) async fn offset_of_max_timestamp(
    shard: &LocalShard,
    partition: PartitionId,
) -> Result<Option<TimedOffset>, FetchError> {
    let found = shard.journal().find_max_time(partition.stream()).await;
    let Some((_, batch)) = found.map_err(|error| FetchError::Storage(error.to_string()))? else {
        return Ok(None);
    };
    let search = |batch: &Bytes| record::first_with_max_timestamp(batch);
    let at = shard
        .cpu()
        .read_batch(batch.into_bytes(), search)
        .await
        .map_err(|error| FetchError::Storage(error.to_string()))?;
    Ok(at.map(|(offset, timestamp)| TimedOffset { offset, timestamp }))
}
