//! Reads that a group's engine wants, and distribution of their results.

use base::{LeaseGroupId, Offset, PartitionId};
use dispatch::{Assignment, Settlement};

use super::Driver;
use crate::reading::{CommittedBatches, READ_RETRY_DELAY_MS, Read, ReadDone, ReadPurpose};

impl Driver {
    /// Starts reads for the engine's wants, one per partition. Records that became due are wanted a few at a
    /// time and from anywhere; one loop iteration for each would dominate the loop's cost. So data in memory is
    /// looked up at once, up to `budget` bytes. Returns whether any was found.
    pub(super) fn read_wanted(&mut self, id: LeaseGroupId, budget: &mut usize) -> bool {
        let mut found = false;
        while !self.reader.is_full() {
            if *budget > 0 && self.is_turn_over() {
                *budget = 0;
            }
            let Some(group) = self.groups.get_mut(id) else { return found };
            let Some(want) = group.dispatch.wants() else { return found };
            group.reads += 1;
            if let Some(done) = self.reader.read_wanted(group, want, budget) {
                self.on_read(done);
                found = true;
            }
        }
        // Serve it again when one of these reads has ended.
        self.groups.enqueue(id);
        found
    }

    pub(super) fn on_read(&mut self, (read, result): ReadDone) {
        let Read { partition, from, purpose, .. } = read;
        if let Ok(read) = &result {
            self.reader.keep(partition, &read.batches);
        }
        let ReadPurpose::Scan { group: id, engine, up_to } = purpose else {
            self.reader.on_record_read(partition, from, result.is_err());
            if let Err(error) = result {
                tracing::warn!(%partition, offset = from, %error, "a record cannot be read");
                self.give_up(partition, from);
                self.dead_letters.postpone(&mut self.groups, partition, from);
                self.transfers.on_unreadable(partition, from);
            }
            return self.resume_waiting();
        };
        let now_ms = self.timeline.now_ms();
        let Some(group) = self.groups.with_engine(id, engine) else { return };
        group.reads -= 1;
        let index = partition.index;
        match result {
            Ok(CommittedBatches { batches, next }) => {
                let read_to = next.unwrap_or(up_to);
                if let Some(last) = batches.last() {
                    group.record_bytes = last.bytes() / last.len().max(1);
                }
                let keyed = group.keyed();
                let (facts, shifts) = (self.reader.facts(), self.timeline.shifts());
                let records =
                    batches.iter().flat_map(|batch| facts.of(batch, from, keyed, now_ms, &shifts));
                group.dispatch.scanned(index, from, read_to, records, now_ms);
                self.groups.enqueue(id);
            }
            Err(error) => {
                tracing::warn!(%partition, offset = from, %error,
                    "records to deliver cannot be read; trying again");
                group.dispatch.scan_failed(index);
                // With a delay: a failing disk would be read without end.
                self.groups.enqueue_at(id, now_ms + READ_RETRY_DELAY_MS);
            }
        }
    }

    /// The record cannot be read: the leases that wait for it are released with a delay.
    fn give_up(&mut self, partition: PartitionId, offset: Offset) {
        let now_ms = self.timeline.now_ms();
        let later = Settlement::Release { delay_ms: Some(READ_RETRY_DELAY_MS), count: false };
        let mut given_up: Vec<(LeaseGroupId, Assignment)> = Vec::new();
        let groups = &self.groups;
        let is_it = |id: LeaseGroupId, assignment: &Assignment| {
            let here = groups.get(id).map(|group| group.partition(assignment.partition));
            here.is_none_or(|here| here == partition) && assignment.offset == offset
        };
        self.sessions.give_up(is_it, &mut given_up);
        for take in &mut self.takes {
            let first = take.assigned.pop_front_if(|assignment| is_it(take.group, assignment));
            given_up.extend(first.map(|given| (take.group, given)));
        }
        for (id, assignment) in given_up {
            if let Some(group) = self.groups.get_mut(id) {
                let lease = assignment.selection();
                let _ = group.dispatch.settle(assignment.session, lease, later, now_ms);
                self.groups.enqueue(id);
            }
        }
    }
}
