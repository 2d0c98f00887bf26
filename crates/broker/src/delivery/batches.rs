//! Batches in memory: what deliveries point into, and how it gets there.
//!
//! Reads run beside the driver's loop. What was read is unpacked once and kept for a while: whoever
//! scans it hands it out soon after. The bound counts bytes and the oldest goes first; what is
//! leased later than that is read again.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use base::limits::LEASE_BATCH_CACHE_BYTES;
use base::{LeaseGroupId, Offset, PartitionId};
use bytes::Bytes;
use dispatch::Scanned;
use hashbrown::{DefaultHashBuilder, HashMap};
use journal::Journal;
use record::{Reserved, SharedBatch, SharedRecord};
use std::hash::BuildHasher;

#[derive(Debug, Default)]
pub(super) struct Batches {
    by_partition: HashMap<PartitionId, BTreeMap<Offset, Arc<SharedBatch>>>,
    oldest_first: VecDeque<(PartitionId, Offset)>,
    bytes: usize,
    /// The batch that the last record was found in: the next one is in it too, mostly.
    last: Option<(PartitionId, Arc<SharedBatch>)>,
}

impl Batches {
    pub(super) fn insert(&mut self, partition: PartitionId, batch: &Arc<SharedBatch>) {
        let base = batch.header().base_offset;
        let known = self.by_partition.entry(partition).or_default();
        // Compaction may have left less of it since: the newer reading holds.
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

    /// The record, if its batch is in memory. `Err` when the batch is and the record is not in it.
    pub(super) fn record(
        &mut self,
        partition: PartitionId,
        offset: Offset,
    ) -> Option<Result<SharedRecord, Gone>> {
        let holds = |batch: &SharedBatch| {
            let header = batch.header();
            (header.base_offset..=header.last_offset()).contains(&offset)
        };
        if let Some((of, batch)) = &self.last
            && *of == partition
            && holds(batch)
        {
            return Some(batch.record(offset).ok_or(Gone));
        }
        let known = self.by_partition.get(&partition)?;
        let (_, batch) = known.range(..=offset).next_back()?;
        if !holds(batch) {
            return None;
        }
        self.last = Some((partition, Arc::clone(batch)));
        Some(batch.record(offset).ok_or(Gone))
    }

    /// Forgets everything: nobody leases at the moment.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// Compaction or retention took the record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Gone;

/// What a read is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ReadFor {
    /// A want of the group's engine, as long as it is still the same engine.
    Scan { group: LeaseGroupId, engine: u64, up_to: Offset },
    /// A record whose batch left memory before it was handed out, or buried.
    Record,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Read {
    pub(super) partition: PartitionId,
    pub(super) from: Offset,
    pub(super) bytes_max: usize,
    pub(super) purpose: ReadFor,
}

pub(super) type ReadDone = (Read, Result<Vec<Arc<SharedBatch>>, journal::error::ReadError>);

/// Batches from the one that holds `read.from` on, or the next after it; none at the end.
pub(super) async fn read(journal: Journal, read: Read) -> ReadDone {
    let found = journal.read(read.partition.stream(), read.from, read.bytes_max).await;
    let pieces = match found {
        Ok(pieces) => pieces,
        Err(error) => return (read, Err(error)),
    };
    let packed = pieces.iter().any(|piece| {
        record::split(piece)
            .any(|batch| batch.is_ok_and(|(header, _)| !header.attributes.compression().is_none()))
    });
    let partition = read.partition;
    let batches = if packed {
        // Unpacking takes its time, which is not the loop's.
        tokio::task::spawn_blocking(move || decode(partition, &pieces)).await.unwrap_or_default()
    } else {
        decode(partition, &pieces)
    };
    (read, Ok(batches))
}

fn decode(partition: PartitionId, pieces: &[Bytes]) -> Vec<Arc<SharedBatch>> {
    let mut batches = Vec::new();
    for piece in pieces {
        for batch in record::split(piece) {
            let decoded = batch.and_then(|(_, range)| SharedBatch::decode(&piece.slice(range)));
            match decoded {
                Ok(batch) => batches.push(Arc::new(batch)),
                // It was valid when it was taken, and what was read passed the journal's checks:
                // the group must not stand still for ever.
                Err(error) => {
                    tracing::error!(%partition, %error, "a stored batch cannot be read; it is passed over");
                }
            }
        }
    }
    batches
}

/// What `dispatch` wants to know of the records of a batch, from an offset on.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    /// Keys of one node only meet each other.
    hasher: DefaultHashBuilder,
}

impl Facts {
    pub(super) fn of<'a>(
        &'a self,
        batch: &'a SharedBatch,
        from: Offset,
        keyed: bool,
        now_ms: i64,
    ) -> impl Iterator<Item = Scanned> + 'a {
        let control = batch.header().attributes.is_control();
        let records = batch.records_from(from).take(if control { 0 } else { usize::MAX });
        // Every record was read when the batch was decoded.
        records.map_while(Result::ok).map(move |record| {
            let reserved = Reserved::read(&record.headers);
            Scanned {
                offset: record.offset,
                bytes: record.encoded_len() as u32,
                // One without a time is as old as our knowledge of it.
                timestamp: if record.timestamp >= 0 { record.timestamp } else { now_ms },
                key: record.key.filter(|_| keyed).map(|key| self.hasher.hash_one(key).max(1)),
                priority: reserved.priority.unwrap_or(0),
                due_ms: reserved.deliver_at_ms.unwrap_or(i64::MIN),
                expires_ms: reserved.expires_at_ms.unwrap_or(i64::MAX),
            }
        })
    }
}
