//! Reads of single records of a partition for operators, as a fetch does, independent of the driver. They read
//! this node's replica, which catches up before it reports the end. Without a replica here the leader reads
//! them.

use std::collections::VecDeque;
use std::sync::Arc;

use base::limits::LEASE_READ_BYTES;
use base::{Offset, PartitionId};
use bytes::Bytes;
use delivery::limits::LEASE_READ_UNPACKED_BYTES;
use record::{BatchError, SharedBatch, SharedRecord};
use shard::error::FetchError;

use crate::broker::Broker;

/// Batches of committed records from the one with `offset` on; none at the end.
pub(super) async fn read_shared(
    broker: &Broker,
    partition: PartitionId,
    offset: Offset,
) -> Result<Vec<Arc<SharedBatch>>, FetchError> {
    read_up_to(broker, partition, offset, LEASE_READ_BYTES).await
}

/// Up to `bytes_max` of batches, and at least one.
async fn read_up_to(
    broker: &Broker,
    partition: PartitionId,
    offset: Offset,
    bytes_max: usize,
) -> Result<Vec<Arc<SharedBatch>>, FetchError> {
    let known = async || {
        let bounds = broker.bounds_of(partition).await?;
        bounds.ok_or(FetchError::UnknownPartition(partition))
    };
    let mut bounds = known().await?;
    if offset >= bounds.stable {
        broker.copies_are_current(&[partition]).await?;
        bounds = known().await?;
    }
    let mut next = offset.max(bounds.log_start);
    let unreadable = |error: BatchError| FetchError::Storage(error.to_string());
    let (mut batches, mut unpacked) = (Vec::new(), 0);
    // A range without committed records is passed over.
    while batches.is_empty() && next < bounds.stable {
        let found = broker.read_known_batches(partition, next, bytes_max).await?;
        for batch in found.iter() {
            if unpacked >= LEASE_READ_UNPACKED_BYTES {
                break;
            }
            let (header, bytes) = batch.map_err(unreadable)?;
            let base_offset = Some(header.base_offset);
            let decode = move |bytes: &Bytes| SharedBatch::decode_at(bytes, base_offset);
            let batch = broker.cpu().read_batch(bytes, decode).await.map_err(unreadable)?;
            unpacked += batch.bytes();
            batches.push(Arc::new(batch));
        }
        let after = found.next_offset();
        if after <= next {
            break;
        }
        next = after;
    }
    Ok(batches)
}

impl Broker {
    /// The stored ones of `count` records of a partition, from `first` on, in the order of their offsets. Reads
    /// only the batches with these records.
    pub async fn stored_records(
        &self,
        partition: PartitionId,
        first: Offset,
        count: u32,
    ) -> Result<Vec<SharedRecord>, FetchError> {
        let (mut next, end) = (first, first.saturating_add(count.into()));
        let mut records = Vec::new();
        while next < end {
            let batches = read_up_to(self, partition, next, 1).await?;
            let Some(behind) = batches.last().map(|batch| batch.header().last_offset() + 1) else {
                break;
            };
            for batch in batches {
                let from = next.max(batch.header().base_offset);
                let wanted = from..end.min(batch.header().last_offset() + 1);
                records.extend(wanted.filter_map(|offset| batch.record(offset)));
            }
            next = behind.max(next + 1);
        }
        Ok(records)
    }
}

/// Reads single records in ascending order, a batch at a time.
pub(super) struct RecordReader<'a> {
    broker: &'a Broker,
    partition: PartitionId,
    batches: VecDeque<Arc<SharedBatch>>,
}

impl<'a> RecordReader<'a> {
    pub(super) fn new(broker: &'a Broker, partition: PartitionId) -> Self {
        Self { broker, partition, batches: VecDeque::new() }
    }

    /// `None` if it is no longer stored.
    pub(super) async fn record(
        &mut self,
        offset: Offset,
    ) -> Result<Option<SharedRecord>, FetchError> {
        while self.batches.front().is_some_and(|batch| batch.header().last_offset() < offset) {
            self.batches.pop_front();
        }
        if self.batches.is_empty() {
            self.batches = read_shared(self.broker, self.partition, offset).await?.into();
        }
        Ok(self.batches.front().and_then(|batch| batch.record(offset)))
    }
}
