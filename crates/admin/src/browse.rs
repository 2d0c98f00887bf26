//! Reads records for operators: of a queue, or of a topic without one; and finds a queue's oldest unsettled
//! record.

use std::sync::Arc;

use base::limits::{LEASE_READ_BYTES, OPERATION_PAGE_BYTES_MAX};
use base::{LeaseGroupId, Offset, PartitionId, TopicId};
use broker::delivery::{BrowseError, PeekOptions, PeekedRecord, RecordState};
use broker::{Batches, Broker};
use bytes::Bytes;
use operations::document::{RecordPosition, StoredHeader, StoredRecord};
use operations::payload::Payload;
use record::{RecordView, SharedBatch, SharedRecord};

use crate::AdminError;

/// Records per read: they hold their batches until they were visited.
const CHUNK_RECORDS: usize = 64;

/// A topic's records that a lease group has not settled; without a group, all records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    pub(crate) topic: TopicId,
    pub(crate) partitions: u32,
    pub(crate) group: Option<LeaseGroupId>,
}

/// A visitor's decision after a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum VisitDecision {
    More,
    /// Stops before this record: the next page begins with it.
    Stop,
}

impl Source {
    /// Calls `visit` with each record from a place on, until it stops or `records_max` were read. Returns
    /// where to continue; `None` at the end.
    pub(crate) async fn visit(
        &self,
        broker: &Broker,
        partition: Option<u32>,
        from: Option<RecordPosition>,
        records_max: usize,
        mut visit: impl FnMut(PeekedRecord) -> VisitDecision,
    ) -> Result<Option<RecordPosition>, AdminError> {
        let from = from.unwrap_or(RecordPosition { partition: partition.unwrap_or(0), offset: 0 });
        let last = partition.map_or(self.partitions, |only| only.saturating_add(1));
        let mut left = records_max;
        for index in from.partition..last.min(self.partitions) {
            let mut offset = if index == from.partition { from.offset } else { 0 };
            loop {
                if left == 0 {
                    return Ok(Some(RecordPosition { partition: index, offset }));
                }
                let chunk = self.read(broker, index, offset, left.min(CHUNK_RECORDS)).await?;
                let Some(last) = chunk.last() else { break };
                left = left.saturating_sub(chunk.len());
                let next = last.offset + 1;
                for record in chunk {
                    let place = RecordPosition { partition: index, offset: record.offset };
                    if visit(record) == VisitDecision::Stop {
                        return Ok(Some(place));
                    }
                }
                offset = next;
            }
        }
        Ok(None)
    }

    async fn read(
        &self,
        broker: &Broker,
        partition: u32,
        from: Offset,
        records_max: usize,
    ) -> Result<Vec<PeekedRecord>, AdminError> {
        match self.group {
            Some(group) => {
                let options = PeekOptions { partition: Some(partition), from, records_max };
                broker.peek(group, options).await.map_err(unreadable)
            }
            None => {
                let id = PartitionId::new(self.topic, partition);
                Ok(read_log(broker, id, from, records_max).await?)
            }
        }
    }
}

/// Reads records of a partition without a lease group.
pub(crate) async fn read_log(
    broker: &Broker,
    partition: PartitionId,
    from: Offset,
    records_max: usize,
) -> Result<Vec<PeekedRecord>, AdminError> {
    let mut found: Vec<PeekedRecord> = Vec::new();
    broker.copies_are_current(&[partition]).await?;
    let bounds = broker.bounds_of(partition).await?.ok_or_else(AdminError::unknown_partition)?;
    let mut next = from.max(bounds.log_start);
    // A whole range may have no committed records, or none since compaction: then the records after it are read.
    while found.is_empty() && next < bounds.stable {
        let read = broker.read_known_batches(partition, next, LEASE_READ_BYTES).await?;
        let batches = shared_batches(broker, &read).await?;
        let after = read.next_offset();
        if after <= next {
            break;
        }
        for batch in &batches {
            let offsets = batch.records().map_while(Result::ok).map(|record| record.offset);
            for offset in offsets.filter(|offset| *offset >= next) {
                if found.len() == records_max {
                    return Ok(found);
                }
                let Some(record) = batch.record(offset) else { continue };
                let (partition, state) = (partition.index, RecordState::Ready);
                found.push(PeekedRecord { partition, offset, state, attempts: 0, record });
            }
        }
        next = after;
    }
    Ok(found)
}

async fn shared_batches(
    broker: &Broker,
    read: &Batches,
) -> Result<Vec<Arc<SharedBatch>>, AdminError> {
    let damaged =
        |error: record::BatchError| AdminError::Damaged(format!("a batch cannot be read: {error}"));
    let mut batches = Vec::new();
    for batch in read.iter() {
        let (header, bytes) = batch.map_err(damaged)?;
        let at = Some(header.base_offset);
        let decode = move |bytes: &Bytes| SharedBatch::decode_at(bytes, at);
        let batch = broker.cpu().read_batch(bytes, decode).await.map_err(damaged)?;
        batches.push(Arc::new(batch));
    }
    Ok(batches)
}

/// Returns the first stored record of a partition at or after an offset.
pub(crate) async fn first_record(
    broker: &Broker,
    partition: PartitionId,
    offset: Offset,
) -> Result<Option<SharedRecord>, AdminError> {
    let found = read_log(broker, partition, offset, 1).await?;
    Ok(found.into_iter().next().map(|peeked| peeked.record))
}

/// Counts a page's records and bytes, to bound it.
#[derive(Debug, Default)]
pub(crate) struct PageBudget {
    records: usize,
    bytes: usize,
}

impl PageBudget {
    /// Adds a record to the page if it fits; the first one always does.
    pub(crate) fn takes(&mut self, record: &SharedRecord, records_max: usize) -> bool {
        self.has(record.encoded_len(), records_max)
    }

    /// Like [`Self::takes`], by the record's size.
    pub(crate) fn has(&mut self, bytes: usize, records_max: usize) -> bool {
        let fits = self.bytes + bytes <= OPERATION_PAGE_BYTES_MAX && self.records < records_max;
        if fits || self.records == 0 {
            self.records += 1;
            self.bytes += bytes;
            return true;
        }
        false
    }
}

pub(crate) fn stored(partition: u32, record: &RecordView<'_>) -> StoredRecord {
    let header = |header: record::Header<'_>| StoredHeader {
        name: String::from_utf8_lossy(header.key).into_owned(),
        value: header.value.map(Payload::copied),
    };
    StoredRecord {
        partition,
        offset: record.offset,
        timestamp_ms: record.timestamp,
        key: record.key.map(Payload::copied),
        value: record.value.map(Payload::copied),
        headers: record.headers.iter().map(header).collect(),
    }
}

pub(crate) fn unreadable(error: BrowseError) -> AdminError {
    match error {
        BrowseError::UnknownGroup(_) => {
            AdminError::UnknownGroup("the queue was deleted meanwhile".to_owned())
        }
        BrowseError::Read(error) => error.into(),
        BrowseError::Unavailable(why) => why.into(),
    }
}
