//! Reads of the records that a group's engine wants, and of records whose batch has left memory. They run
//! concurrently with the driver's loop, except for data that is in memory.

pub(crate) mod batches;

use std::sync::Arc;

use crate::limits::{LEASE_READ_UNPACKED_BYTES, LEASE_READS_IN_FLIGHT_MAX};
use base::limits::LEASE_READ_BYTES;
use base::{HashSet, LeaseGroupId, Offset, PartitionId};
use dispatch::ReadRange;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use journal::error::ReadError;
use journal::{Journal, StoredBatches};
use record::{SharedBatch, SharedRecord};
use shard::Shard;
use shard::committed::ReadView;
use shard::cpu::CpuPool;
use shard::journal_batches::batches_in;
use tasks::Task;

use crate::groups::group::Group;
use crate::reading::batches::{Batches, Facts};

/// Minimum of a read whose following records are probably wanted next.
const READ_BYTES_MIN: usize = 64 << 10;
/// Below this number of wanted records, the following ones are probably not wanted.
const FEW_RECORDS: u64 = 16;
/// Least bytes that a read counts in the budget of an iteration.
const LOOK_UP_BYTES_MIN: usize = 2 << 10;
/// Allowance for a record's size above the average.
const READ_OVERHEAD_BYTES: usize = 64;
/// Delay before a failed read is retried.
pub(crate) const READ_RETRY_DELAY_MS: i64 = 1_000;

/// Purpose of a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReadPurpose {
    /// A want of the group's engine, valid while the engine is the same.
    Scan { group: LeaseGroupId, engine: u64, up_to: Offset },
    /// A record whose batch left memory before it was delivered or dead-lettered.
    Record,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Read {
    pub(crate) partition: PartitionId,
    pub(crate) from: Offset,
    pub(crate) bytes_max: usize,
    pub(crate) purpose: ReadPurpose,
}

pub(crate) type ReadDone = (Read, Result<CommittedBatches, ReadError>);

/// Batches of committed records.
#[derive(Debug, Default)]
pub(crate) struct CommittedBatches {
    pub(crate) batches: Vec<Arc<SharedBatch>>,
    /// Offset after the last batch that was read: a batch here, a marker or an aborted batch. `None`: there was none.
    pub(crate) next: Option<Offset>,
}

/// Committed records from the batch with `read.from` on, or from the next one after it; none at the stable end.
/// `view`: the partition's transactions when the read began; `None` if the partition is gone.
async fn read(journal: Journal, cpu: CpuPool, read: Read, view: Option<ReadView>) -> ReadDone {
    let Some(view) = view else { return (read, Ok(CommittedBatches::default())) };
    let found = journal.read(read.partition.stream(), read.from, read.bytes_max).await;
    let pieces = match found {
        Ok(pieces) => pieces,
        Err(error) => return (read, Err(error)),
    };
    let packed = batches_in(&pieces)
        .any(|batch| batch.is_ok_and(|(header, _)| !header.attributes.compression().is_none()));
    let partition = read.partition;
    let batches = if packed {
        // Decompression takes CPU time that the loop must not spend.
        cpu.run_as(Task::DeliveryDecoding, move || decode(partition, &pieces, &view)).await
    } else {
        decode(partition, &pieces, &view)
    };
    (read, Ok(batches))
}

/// Decodes batches up to [`LEASE_READ_UNPACKED_BYTES`] decompressed, at least one: a stored megabyte may be
/// gigabytes.
fn decode(partition: PartitionId, pieces: &[StoredBatches], view: &ReadView) -> CommittedBatches {
    let mut batches: Vec<Arc<SharedBatch>> = Vec::new();
    let (mut unpacked, mut next) = (0, None);
    for batch in batches_in(pieces) {
        if unpacked >= LEASE_READ_UNPACKED_BYTES {
            break;
        }
        if let Ok((header, _)) = &batch {
            if header.next_offset() > view.stable_end() {
                break;
            }
            next = Some(header.next_offset());
            if view.is_skipped(header) {
                continue;
            }
        }
        let decoded = batch
            .and_then(|(header, bytes)| SharedBatch::decode_at(&bytes, Some(header.base_offset)));
        match decoded {
            Ok(batch) => {
                unpacked += batch.bytes();
                batches.push(Arc::new(batch));
            }
            // It was valid when it was appended, and passed the journal's checks now: skip it, so that the
            // group does not stall for ever.
            Err(error) => {
                tracing::error!(%partition, %error, "a stored batch cannot be read; it is passed over");
            }
        }
    }
    CommittedBatches { batches, next }
}

impl Read {
    fn wanted(group: &Group, want: ReadRange) -> Self {
        let ReadRange { partition, from, up_to, known } = want;
        let records = up_to.saturating_sub(from);
        let bytes = (records as usize).saturating_mul(group.record_bytes + READ_OVERHEAD_BYTES);
        // The records behind a known one are not wanted; its whole batch is read even for the smallest limit.
        let bytes_min = if known || records < FEW_RECORDS { 0 } else { READ_BYTES_MIN };
        Self {
            partition: group.partition(partition),
            from,
            bytes_max: bytes.clamp(bytes_min, LEASE_READ_BYTES),
            purpose: ReadPurpose::Scan { group: group.id, engine: group.engine, up_to },
        }
    }
}

/// Place of a record.
#[derive(Debug)]
pub(crate) enum RecordLookup {
    Here(SharedRecord),
    /// Removed by compaction or retention.
    Gone,
    /// Not in memory.
    Unread,
}

/// The batches in memory, and the reads in flight.
pub(crate) struct Reader {
    shard: Arc<Shard>,
    /// Not the pool of producers: a read would queue behind all of them.
    cpu: CpuPool,
    batches: Batches,
    facts: Facts,
    in_flight: FuturesUnordered<BoxFuture<'static, ReadDone>>,
    /// Single records whose read is in flight.
    records: HashSet<(PartitionId, Offset)>,
    /// Records that are gone, kept while deliveries may refer to them.
    gone: HashSet<(PartitionId, Offset)>,
}

impl Reader {
    pub(crate) fn new(shard: Arc<Shard>, cpu: CpuPool, facts: Facts) -> Self {
        Self {
            shard,
            cpu,
            batches: Batches::default(),
            facts,
            in_flight: FuturesUnordered::new(),
            records: HashSet::default(),
            gone: HashSet::default(),
        }
    }

    pub(crate) fn cpu(&self) -> &CpuPool {
        &self.cpu
    }

    pub(crate) fn facts(&self) -> &Facts {
        &self.facts
    }

    pub(crate) fn find(&mut self, partition: PartitionId, offset: Offset) -> RecordLookup {
        match self.batches.record(partition, offset) {
            Some(Ok(record)) => RecordLookup::Here(record),
            Some(Err(_)) => RecordLookup::Gone,
            None if self.gone.contains(&(partition, offset)) => RecordLookup::Gone,
            None => RecordLookup::Unread,
        }
    }

    /// As [`Self::find`]; starts a read if the record is not in memory.
    pub(crate) fn find_or_read(&mut self, partition: PartitionId, offset: Offset) -> RecordLookup {
        let found = self.find(partition, offset);
        if matches!(found, RecordLookup::Unread) {
            self.read_record(partition, offset);
        }
        found
    }

    /// Reads a single record again, unless its read is in flight.
    pub(crate) fn read_record(&mut self, partition: PartitionId, offset: Offset) {
        if self.records.insert((partition, offset)) {
            let (from, bytes_max) = (offset, READ_BYTES_MIN);
            let what = Read { partition, from, bytes_max, purpose: ReadPurpose::Record };
            self.in_flight.push(self.reading(what));
        }
    }

    /// Whether the limit of reads in flight is reached.
    pub(crate) fn is_full(&self) -> bool {
        self.in_flight.len() >= LEASE_READS_IN_FLIGHT_MAX
    }

    /// Reads what a group's engine wants. While `budget` lasts, data in memory is read at once and returned.
    pub(crate) fn read_wanted(
        &mut self,
        group: &Group,
        want: ReadRange,
        budget: &mut usize,
    ) -> Option<ReadDone> {
        let what = Read::wanted(group, want);
        let mut reading = self.reading(what);
        if *budget > 0 {
            *budget = budget.saturating_sub(what.bytes_max.max(LOOK_UP_BYTES_MIN));
            if let Some(done) = (&mut reading).now_or_never() {
                return Some(done);
            }
        }
        self.in_flight.push(reading);
        None
    }

    fn reading(&self, what: Read) -> BoxFuture<'static, ReadDone> {
        let view = self.shard.read(|state| {
            let found = state.rows.known(what.partition)?;
            Some(ReadView::of(state.rows, what.partition, found))
        });
        read(self.shard.journal.clone(), self.cpu.clone(), what, view).boxed()
    }

    /// Whether any read is in flight.
    pub(crate) fn is_reading(&self) -> bool {
        !self.in_flight.is_empty()
    }

    /// Whether a read of a single record is in flight.
    pub(crate) fn is_reading_records(&self) -> bool {
        !self.records.is_empty()
    }

    /// The next finished read; `None` if none is in flight.
    pub(crate) async fn done(&mut self) -> Option<ReadDone> {
        self.in_flight.next().await
    }

    /// A read that is finished already.
    pub(crate) fn try_done(&mut self) -> Option<ReadDone> {
        if self.in_flight.is_empty() {
            return None;
        }
        self.in_flight.next().now_or_never().flatten()
    }

    pub(crate) fn keep(&mut self, partition: PartitionId, batches: &[Arc<SharedBatch>]) {
        for batch in batches {
            self.batches.insert(partition, batch);
        }
    }

    /// The read of a single record has ended; its result was kept before.
    pub(crate) fn on_record_read(&mut self, partition: PartitionId, offset: Offset, failed: bool) {
        self.records.remove(&(partition, offset));
        if !failed && !matches!(self.batches.record(partition, offset), Some(Ok(_))) {
            self.gone.insert((partition, offset));
        }
    }

    /// No session leases at the moment.
    pub(crate) fn forget_batches(&mut self) {
        self.batches.clear();
    }

    /// No delivery refers to the gone records any more, or they are read again.
    pub(crate) fn forget_gone(&mut self) {
        self.gone.clear();
    }
}

#[cfg(test)]
mod tests {
    use base::TopicId;
    use machine::rows::transactions::partition::AbortedRange;
    use record::marker::Marker;
    use record::{BatchBuilder, BatchOptions, Compression};

    use super::*;

    #[test]
    fn read_decompresses_little_more_than_its_limit() {
        let bomb = |base_offset: u64| {
            let options =
                BatchOptions { compression: Compression::Zstd, ..BatchOptions::default() };
            let mut builder = BatchBuilder::new(options);
            builder.push(0, None, Some(&vec![b'x'; 3 << 20]), &[]).expect("it fits");
            let bytes = builder.finish().into();
            StoredBatches { base_offset: Some(base_offset), bytes }
        };
        let pieces: Vec<StoredBatches> = (0..20).map(bomb).collect();
        assert!(pieces.iter().map(|it| it.bytes.len()).sum::<usize>() < LEASE_READ_BYTES);
        let view = ReadView::received(20, Vec::new());
        let read = decode(PartitionId::new(TopicId(1), 0), &pieces, &view);
        assert_eq!(read.batches.len(), 2);
        assert_eq!(read.batches[1].header().base_offset, 1);
        assert_eq!(read.next, Some(2));
    }

    #[test]
    fn read_passes_over_markers_and_aborted_batches_up_to_the_stable_end() {
        let batch = |base_offset: u64, producer_id: i64| {
            let options = BatchOptions {
                producer_id,
                producer_epoch: 0,
                base_sequence: 0,
                transactional: true,
                ..BatchOptions::default()
            };
            let mut builder = BatchBuilder::new(options);
            builder.push(0, None, Some(b"it"), &[]).expect("it fits");
            StoredBatches { base_offset: Some(base_offset), bytes: builder.finish().into() }
        };
        let marker =
            Marker { producer_id: 7, producer_epoch: 0, commit: false, coordinator_epoch: 0 };
        let marker = StoredBatches { base_offset: Some(2), bytes: marker.build(0).1.into() };
        let aborted = AbortedRange { producer: 7, first: 0, last: 2 };
        let view = ReadView::received(4, vec![aborted]);
        let partition = PartitionId::new(TopicId(1), 0);
        let offsets = |read: &CommittedBatches| {
            read.batches.iter().map(|it| it.header().base_offset).collect::<Vec<_>>()
        };
        let pieces = [batch(0, 7), batch(1, 8), marker, batch(3, 9), batch(4, 7)];
        let read = decode(partition, &pieces, &view);
        assert_eq!((offsets(&read), read.next), (vec![1, 3], Some(4)));
        let read = decode(partition, &pieces[2..3], &view);
        assert_eq!((offsets(&read), read.next), (vec![], Some(3)));
        let read = decode(partition, &pieces[4..], &view);
        assert_eq!((offsets(&read), read.next), (vec![], None));
    }
}
