//! Reads of a partition in one shard, by offset and by time.

use base::limits::FETCH_BYTES_MAX;
use base::{Offset, PartitionId};
use bytes::Bytes;
use journal::StoredBatches;
use machine::rows::transactions::partition::AbortedRange;
use machine::{Partition, Rows};
use record::{BatchError, BatchHeader};
use shard::LocalShard;
use shard::committed::ReadView;
use shard::error::{FetchError, Unavailable};
use shard_peers::bounds::{Bounds, TimedOffset};

/// Consecutive batches, as stored in the journal: with markers, and with batches of open and aborted transactions.
#[derive(Clone, Debug)]
pub struct RawBatches {
    /// Whole batches, one or more in each. The first may begin below the requested offset, which may be in the middle
    /// of a batch; empty at the end of the partition. The bytes of a batch shared with other partitions begin with an
    /// offset of one of those: [`batches_in`](crate::batches_in) uses the right one, and
    /// [`StoredBatches::put_pieces`] writes it.
    pub records: Vec<StoredBatches>,
    pub high_watermark: Offset,
    pub log_start: Offset,
    offset: Offset,
    view: ReadView,
}

/// Batches of committed records, with the offset at which a reader continues.
#[derive(Clone, Debug)]
pub struct Batches(RawBatches);

impl RawBatches {
    pub(crate) fn new(
        offset: Offset,
        records: Vec<StoredBatches>,
        Bounds { log_start, end, .. }: Bounds,
        view: ReadView,
    ) -> Self {
        Self { records, high_watermark: end, log_start, offset, view }
    }

    pub fn bytes(&self) -> usize {
        self.records.iter().map(StoredBatches::len).sum()
    }

    /// First offset of the earliest open transaction, or else the high watermark.
    pub fn stable_end(&self) -> Offset {
        self.view.stable_end()
    }

    /// Aborted transactions with records in the range that was read, by the offset of their markers.
    pub fn aborted(&self) -> Vec<AbortedRange> {
        let range = base_and_next(&self.records);
        range.map_or_else(Vec::new, |(base, next)| self.view.aborted_between(base, next))
    }

    /// Removes the batches from the stable end on.
    pub fn cut_at_stable_end(&mut self) {
        self.view.cut_at_stable_end(&mut self.records);
    }
}

impl Batches {
    /// The batches, each with its header, which has the base offset in the partition. The first may begin below the
    /// requested offset.
    pub fn iter(&self) -> impl Iterator<Item = Result<(BatchHeader, Bytes), BatchError>> + '_ {
        self.0.view.committed_in(&self.0.records)
    }

    /// Offset at which a reader continues after these batches: behind them, and behind markers and aborted batches. It
    /// is above the requested offset, unless that is the stable end or above it.
    pub fn next_offset(&self) -> Offset {
        self.0.view.next_offset(self.0.offset, &self.0.records)
    }
}

impl From<RawBatches> for Batches {
    fn from(raw: RawBatches) -> Self {
        Self(raw)
    }
}

/// Base offset of the first of these batches, and the offset after the last.
fn base_and_next(records: &[StoredBatches]) -> Option<(Offset, Offset)> {
    let headers = |it: &StoredBatches| {
        let batches = record::split_at(&it.bytes, it.base_offset).map_while(Result::ok);
        batches.map(|(header, _)| header).collect::<Vec<_>>()
    };
    let base = headers(records.first()?).first()?.base_offset;
    Some((base, headers(records.last()?).last()?.next_offset()))
}

/// The bounds of a partition, and its transactions at the same moment.
pub(crate) fn bounds_and_view(
    rows: &Rows,
    id: PartitionId,
    partition: &Partition,
) -> (Bounds, ReadView) {
    (Bounds::of(rows, id, partition), ReadView::of(rows, id, partition))
}

/// Returns the bounds of a partition of a shard that this node leads, and its transactions. A new leader that has not applied all
/// entries yet is rejected: it would report acknowledged offsets as out of range.
pub(crate) fn bounds_here(
    shard: &LocalShard,
    partition: PartitionId,
) -> Result<(Bounds, ReadView), FetchError> {
    if shard.serves_in().is_none() {
        return Err(Unavailable::NotLeader.into());
    }
    bounds_known(shard, partition)
}

pub(crate) fn bounds_known(
    shard: &LocalShard,
    partition: PartitionId,
) -> Result<(Bounds, ReadView), FetchError> {
    shard.read(|view| {
        let here = view.rows.partition(partition);
        let here = here.map(|found| bounds_and_view(view.rows, partition, found));
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
    (bounds, view): (Bounds, ReadView),
    partition: PartitionId,
    offset: Offset,
    bytes_max: usize,
) -> Result<RawBatches, FetchError> {
    let Bounds { log_start, end, .. } = bounds;
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
    Ok(RawBatches::new(offset, records, bounds, view))
}

/// Reads batches of committed records.
pub(crate) async fn read_committed(
    shard: &LocalShard,
    (bounds, view): (Bounds, ReadView),
    partition: PartitionId,
    offset: Offset,
    bytes_max: usize,
) -> Result<Batches, FetchError> {
    // Nothing is read at the stable end or above it. An offset out of range is still refused.
    let bytes_max = if offset >= bounds.stable { 0 } else { bytes_max };
    read_within(shard, (bounds, view), partition, offset, bytes_max).await.map(Batches::from)
}

/// Reads the shard's records of a partition, whether or not this node leads.
pub(crate) async fn read_known(
    shard: &LocalShard,
    partition: PartitionId,
    offset: Offset,
    bytes_max: usize,
) -> Result<(RawBatches, Bounds), FetchError> {
    let (bounds, view) = bounds_known(shard, partition)?;
    let read = read_within(shard, (bounds, view), partition, offset, bytes_max).await?;
    Ok((read, bounds))
}

pub(crate) async fn offset_at_time(
    shard: &LocalShard,
    partition: PartitionId,
    timestamp_ms: i64,
) -> Result<Option<TimedOffset>, FetchError> {
    let (bounds, _) = bounds_known(shard, partition)?;
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
