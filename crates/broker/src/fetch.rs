//! Reading by offset and by time. Who waits for what is not there yet makes a
//! [`Watch`](crate::Watch): how much is enough, and of which partitions, is the protocol's to say.

use base::limits::FETCH_BYTES_MAX;
use base::{Offset, PartitionId, TopicId};
use bytes::Bytes;
use journal::Stored;
use machine::config::Durability;

use crate::broker::Broker;
use crate::error::FetchError;

pub use crate::stored::batches_in;

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

impl Broker {
    pub fn bounds(&self, partition: PartitionId) -> Option<Bounds> {
        self.shard_of(partition).shard.rows().partition(partition).map(Bounds::of)
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

    /// Consecutive batches from the one that holds `offset` on (or the next one, if compaction
    /// took it): at most `bytes_max`, but at least one batch.
    pub async fn read_batches(
        &self,
        partition: PartitionId,
        offset: Offset,
        bytes_max: usize,
    ) -> Result<Batches, FetchError> {
        let Bounds { log_start, end } =
            self.bounds(partition).ok_or(FetchError::UnknownPartition(partition))?;
        if offset < log_start || offset > end {
            return Err(FetchError::OffsetOutOfRange { offset, log_start, end });
        }
        let records = if offset == end || bytes_max == 0 {
            Vec::new()
        } else {
            let bytes_max = bytes_max.min(FETCH_BYTES_MAX);
            self.shard_of(partition)
                .journal()
                .read(partition.stream(), offset, bytes_max)
                .await
                .map_err(|error| FetchError::Storage(error.to_string()))?
        };
        Ok(Batches { records, high_watermark: end, log_start })
    }

    /// The first record whose timestamp is at least `timestamp_ms`.
    pub async fn offset_at_time(
        &self,
        partition: PartitionId,
        timestamp_ms: i64,
    ) -> Result<Option<TimedOffset>, FetchError> {
        let bounds = self.bounds(partition).ok_or(FetchError::UnknownPartition(partition))?;
        let journal = self.shard_of(partition).journal();
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

    /// The record with the largest timestamp; the first of them, if several have it.
    pub async fn offset_of_max_timestamp(
        &self,
        partition: PartitionId,
    ) -> Result<Option<TimedOffset>, FetchError> {
        self.bounds(partition).ok_or(FetchError::UnknownPartition(partition))?;
        let journal = self.shard_of(partition).journal();
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
