//! Batches in memory: deliveries point into them, and the engine learns facts of records from them. A batch is
//! decompressed once and kept for a while, since its records are delivered soon after the scan. The cache is
//! bounded in bytes and drops the oldest batch first; a record leased later is read again.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::limits::LEASE_BATCH_CACHE_BYTES;
use base::collections::HashState;
use base::{HashMap, Offset, PartitionId};
use dispatch::ScannedRecord;
use record::{ReservedHeaders, SharedBatch, SharedRecord};
use shard::timeline::Shifts;
use std::hash::BuildHasher;

#[derive(Debug, Default)]
pub(crate) struct Batches {
    by_partition: HashMap<PartitionId, BTreeMap<Offset, Arc<SharedBatch>>>,
    oldest_first: VecDeque<(PartitionId, Offset)>,
    bytes: usize,
    /// The batch of the last record: the next record is usually in it, too.
    last: Option<(PartitionId, Arc<SharedBatch>)>,
}

impl Batches {
    pub(crate) fn insert(&mut self, partition: PartitionId, batch: &Arc<SharedBatch>) {
        let base = batch.header().base_offset;
        let known = self.by_partition.entry(partition).or_default();
        // Compaction may have removed records since: the newer read replaces it.
        if let Some(former) = known.insert(base, Arc::clone(batch)) {
            self.bytes -= former.bytes();
        } else {
            self.oldest_first.push_back((partition, base));
        }
        self.bytes += batch.bytes();
        while self.bytes > LEASE_BATCH_CACHE_BYTES && self.oldest_first.len() > 1 {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        let Some((partition, base)) = self.oldest_first.pop_front() else { return };
        let Some(known) = self.by_partition.get_mut(&partition) else { return };
        if let Some(gone) = known.remove(&base) {
            self.bytes -= gone.bytes();
        }
        if known.is_empty() {
            self.by_partition.remove(&partition);
        }
    }

    /// The record, if its batch is in memory. `Err` if the batch is but lacks the record.
    pub(crate) fn record(
        &mut self,
        partition: PartitionId,
        offset: Offset,
    ) -> Option<Result<SharedRecord, RecordRemoved>> {
        let holds = |batch: &SharedBatch| {
            let header = batch.header();
            (header.base_offset..=header.last_offset()).contains(&offset)
        };
        if let Some((of, batch)) = &self.last
            && *of == partition
            && holds(batch)
        {
            return Some(batch.record(offset).ok_or(RecordRemoved));
        }
        let known = self.by_partition.get(&partition)?;
        let (_, batch) = known.range(..=offset).next_back()?;
        if !holds(batch) {
            return None;
        }
        self.last = Some((partition, Arc::clone(batch)));
        Some(batch.record(offset).ok_or(RecordRemoved))
    }

    /// Drops all batches: no session leases at the moment.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// The record was removed by compaction or retention.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RecordRemoved;

/// Facts for `dispatch` of the records of a batch, from an offset on. `dispatch` has one timeline; the dates in
/// records are mapped onto it here.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// Hashes of keys are compared only within one node.
    hasher: HashState,
}

impl Facts {
    pub(crate) fn of<'a>(
        &'a self,
        batch: &'a SharedBatch,
        from: Offset,
        keyed: bool,
        now_ms: i64,
        shifts: &'a Shifts,
    ) -> impl Iterator<Item = ScannedRecord> + 'a {
        let control = batch.header().attributes.is_control();
        let records = batch.records_from(from).take(if control { 0 } else { usize::MAX });
        // All records were read when the batch was decoded.
        records.map_while(Result::ok).map(move |record| {
            let reserved = ReservedHeaders::read(&record.headers);
            let stamp_ms = record.timestamp;
            let place = |date_ms: i64| shifts.place(date_ms, stamp_ms);
            // A record whose expiry date is not after its timestamp has expired, though the timeline may be
            // some milliseconds behind the wall clock.
            let place_expiry =
                |date_ms: i64| if date_ms <= stamp_ms { i64::MIN } else { place(date_ms) };
            ScannedRecord {
                offset: record.offset,
                bytes: record.encoded_len() as u32,
                value_bytes: record.value.map_or(0, |value| value.len() as u32),
                // A record without a timestamp counts as created now.
                timestamp: if stamp_ms >= 0 { place(stamp_ms) } else { now_ms },
                key: record.key.filter(|_| keyed).map(|key| self.hasher.hash_one(key).max(1)),
                priority: reserved.priority.unwrap_or(0),
                due_ms: reserved.deliver_at_ms.map_or(i64::MIN, place),
                expires_ms: reserved.expires_at_ms.map_or(i64::MAX, place_expiry),
            }
        })
    }
}
