//! Reading what a group's engine wants to know, and records whose batch has left memory.
//!
//! Reads run beside the driver's loop, but for what is in memory anyway.

use std::sync::Arc;

use base::limits::{LEASE_READ_BYTES, LEASE_READ_UNPACKED_BYTES, LEASE_READS_IN_FLIGHT_MAX};
use base::{LeaseGroupId, Offset, PartitionId};
use dispatch::{Assignment, Selection, Settlement, Want};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use journal::{Journal, Stored};
use record::SharedBatch;
use tasks::Task;

use super::driver::Driver;
use super::group::Group;
use super::hand_out::Found;
use crate::cpu::CpuPool;
use crate::stored::batches_in;

/// Less is not worth a call, where what follows is wanted next.
const READ_BYTES_MIN: usize = 64 << 10;
/// Of so few nothing may follow.
const FEW_RECORDS: u64 = 16;
/// What the smallest read counts as, where reads of one turn are bounded.
const LOOK_UP_BYTES_MIN: usize = 2 << 10;
/// What a record may take more than the average.
const READ_OVERHEAD_BYTES: usize = 64;
/// What cannot be read now is tried again after this.
const READ_AGAIN_AFTER_MS: i64 = 1_000;

/// What a read is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ReadFor {
    /// A want of the group's engine, as long as it is still the same engine.
    Scan { group: LeaseGroupId, engine: u64, up_to: Offset },
    /// A record whose batch left memory before it was handed out, or dead-lettered.
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
pub(super) async fn read(journal: Journal, cpu: CpuPool, read: Read) -> ReadDone {
    let found = journal.read(read.partition.stream(), read.from, read.bytes_max).await;
    let pieces = match found {
        Ok(pieces) => pieces,
        Err(error) => return (read, Err(error)),
    };
    let packed = batches_in(&pieces)
        .any(|batch| batch.is_ok_and(|(header, _)| !header.attributes.compression().is_none()));
    let partition = read.partition;
    let batches = if packed {
        // Unpacking takes its time, which is not the loop's.
        cpu.run_as(Task::DeliveryDecoding, move || decode(partition, &pieces)).await
    } else {
        decode(partition, &pieces)
    };
    (read, Ok(batches))
}

/// As many batches as unfold to [`LEASE_READ_UNPACKED_BYTES`], at least one: what is stored in a
/// megabyte may be gigabytes.
fn decode(partition: PartitionId, pieces: &[Stored]) -> Vec<Arc<SharedBatch>> {
    let mut batches: Vec<Arc<SharedBatch>> = Vec::new();
    let mut unpacked = 0;
    for batch in batches_in(pieces) {
        if unpacked >= LEASE_READ_UNPACKED_BYTES {
            break;
        }
        let decoded = batch
            .and_then(|(header, bytes)| SharedBatch::decode_at(&bytes, Some(header.base_offset)));
        match decoded {
            Ok(batch) => {
                unpacked += batch.bytes();
                batches.push(Arc::new(batch));
            }
            // It was valid when it was taken, and what was read passed the journal's checks: the
            // group must not stand still for ever.
            Err(error) => {
                tracing::error!(%partition, %error, "a stored batch cannot be read; it is passed over");
            }
        }
    }
    batches
}

impl Driver {
    /// Of a partition one thing is wanted at a time. Records that became due are wanted a few at a
    /// time and from anywhere: were each a turn of the loop, the loop would be all that they cost. So
    /// what is in memory is looked up at once, up to some bytes. Whether anything was.
    pub(super) fn read_what_is_wanted(&mut self, id: LeaseGroupId, budget: &mut usize) -> bool {
        let mut found = false;
        while self.reads.len() < LEASE_READS_IN_FLIGHT_MAX {
            let Some(group) = self.groups.get_mut(&id) else { return found };
            let Some(want) = group.dispatch.wants() else { return found };
            group.reads += 1;
            let what = group.read_of(want);
            let mut reading = self.reading(what);
            if *budget > 0 && !self.is_turn_over() {
                *budget = budget.saturating_sub(what.bytes_max.max(LOOK_UP_BYTES_MIN));
                if let Some(done) = (&mut reading).now_or_never() {
                    self.was_read(done);
                    found = true;
                    continue;
                }
            }
            self.reads.push(reading);
        }
        // Its turn comes when one of those has ended.
        self.enqueue(id);
        found
    }

    fn start(&mut self, what: Read) {
        self.reads.push(self.reading(what));
    }

    fn reading(&self, what: Read) -> BoxFuture<'static, ReadDone> {
        read(self.shard.journal.clone(), self.cpu.clone(), what).boxed()
    }

    /// Reads a single record again, unless that is under way.
    pub(super) fn read_record(&mut self, partition: PartitionId, offset: Offset) {
        if self.record_reads.insert((partition, offset)) {
            let (from, bytes_max) = (offset, READ_BYTES_MIN);
            self.start(Read { partition, from, bytes_max, purpose: ReadFor::Record });
        }
    }

    pub(super) fn was_read(&mut self, (read, result): ReadDone) {
        let Read { partition, from, purpose, .. } = read;
        if let Ok(batches) = &result {
            for batch in batches {
                self.batches.insert(partition, batch);
            }
        }
        match purpose {
            ReadFor::Record => {
                self.record_reads.remove(&(partition, from));
                match result {
                    Ok(_) => {
                        if !matches!(self.batches.record(partition, from), Some(Ok(_))) {
                            self.lost.insert((partition, from));
                        }
                    }
                    Err(error) => {
                        tracing::warn!(%partition, offset = from, %error, "a record cannot be read");
                        self.give_up(partition, from);
                        self.postpone_dead_letters(partition, from);
                        self.dead_letter_separately(partition, from);
                    }
                }
                self.go_on_waiting();
            }
            ReadFor::Scan { group: id, engine, up_to } => {
                let now_ms = self.timeline.now_ms();
                let Some(group) = self.groups.get_mut(&id) else { return };
                if group.engine != engine {
                    return;
                }
                group.reads -= 1;
                let index = partition.index;
                match result {
                    Ok(batches) => {
                        let read_to =
                            batches.last().map_or(up_to, |last| last.header().next_offset());
                        if let Some(last) = batches.last() {
                            group.record_bytes = last.bytes() / last.len().max(1);
                        }
                        let keyed = group.keyed();
                        let (facts, shifts) = (&self.facts, self.timeline.shifts());
                        let records = batches
                            .iter()
                            .flat_map(|batch| facts.of(batch, from, keyed, now_ms, &shifts));
                        group.dispatch.scanned(index, from, read_to, records, now_ms);
                        self.enqueue(id);
                    }
                    Err(error) => {
                        tracing::warn!(%partition, offset = from, %error,
                            "records to deliver cannot be read; trying again");
                        group.dispatch.scan_failed(index);
                        // Not at once: a disk that fails would be asked without end.
                        let due_ms = now_ms + READ_AGAIN_AFTER_MS;
                        self.deadlines.insert((due_ms, id));
                    }
                }
            }
        }
    }

    /// What waits for this record waits no longer: its leases come back later.
    fn give_up(&mut self, partition: PartitionId, offset: Offset) {
        let now_ms = self.timeline.now_ms();
        let later = Settlement::Release { delay_ms: Some(READ_AGAIN_AFTER_MS), count: false };
        let mut given_up: Vec<(LeaseGroupId, Assignment)> = Vec::new();
        let groups = &self.groups;
        let same = |id: &LeaseGroupId, assignment: &Assignment| {
            let here = groups.get(id).map(|group| group.partition(assignment.partition));
            here.is_none_or(|here| here == partition) && assignment.offset == offset
        };
        for id in &self.waiting {
            let Some(session) = self.sessions.get_mut(id) else { continue };
            if session.waiting.front().is_some_and(|(id, assignment)| same(id, assignment)) {
                given_up.extend(session.waiting.pop_front());
            }
        }
        for take in &mut self.pending_takes {
            if take.assigned.front().is_some_and(|assignment| same(&take.group, assignment)) {
                given_up.extend(take.assigned.pop_front().map(|given| (take.group, given)));
            }
        }
        for (id, assignment) in given_up {
            if let Some(group) = self.groups.get_mut(&id) {
                let lease = Selection::Token(assignment.token);
                let _ = group.dispatch.settle(assignment.session, lease, later, now_ms);
                self.enqueue(id);
            }
        }
    }

    /// Goes on with deliveries that waited for a read.
    fn go_on_waiting(&mut self) {
        for id in std::mem::take(&mut self.waiting) {
            let Some(session) = self.sessions.get_mut(&id) else { continue };
            let mut queue = std::mem::take(&mut session.waiting);
            while let Some((group, assignment)) = queue.front().copied() {
                match self.delivery(group, assignment) {
                    Found::Here(delivery) => self.put_out(id, delivery),
                    Found::Gone => self.settle_gone(group, assignment),
                    Found::Reading => {
                        self.waiting.insert(id);
                        break;
                    }
                }
                queue.pop_front();
            }
            if let Some(session) = self.sessions.get_mut(&id) {
                session.waiting = queue;
            }
        }
        for take in std::mem::take(&mut self.pending_takes) {
            if let Some(take) = self.complete(take) {
                self.pending_takes.push(take);
            }
        }
        self.go_on_transferring();
    }
}

impl Group {
    fn read_of(&self, want: Want) -> Read {
        let Want { partition, from, up_to, known } = want;
        let records = up_to.saturating_sub(from);
        let bytes = (records as usize).saturating_mul(self.record_bytes + READ_OVERHEAD_BYTES);
        // What lies behind a known record is none of what is looked for; its batch comes however
        // little is asked for.
        let bytes_min = if known || records < FEW_RECORDS { 0 } else { READ_BYTES_MIN };
        Read {
            partition: self.partition(partition),
            from,
            bytes_max: bytes.clamp(bytes_min, LEASE_READ_BYTES),
            purpose: ReadFor::Scan { group: self.id, engine: self.engine, up_to },
        }
    }
}

#[cfg(test)]
mod tests {
    use base::TopicId;
    use record::{BatchBuilder, BatchOptions, Compression};

    use super::*;

    #[test]
    fn a_read_unfolds_to_little_more_than_its_bound() {
        let bomb = |base_offset: u64| {
            let options =
                BatchOptions { compression: Compression::Zstd, ..BatchOptions::default() };
            let mut builder = BatchBuilder::new(options);
            builder.push(0, None, Some(&vec![b'x'; 3 << 20]), &[]).expect("it fits");
            let bytes = builder.finish().into();
            Stored { base_offset: Some(base_offset), bytes }
        };
        let pieces: Vec<Stored> = (0..20).map(bomb).collect();
        assert!(pieces.iter().map(|it| it.bytes.len()).sum::<usize>() < LEASE_READ_BYTES);
        let batches = decode(PartitionId::new(TopicId(1), 0), &pieces);
        assert_eq!(batches.len(), 2);
        assert_eq!(batches[1].header().base_offset, 1);
    }
}
