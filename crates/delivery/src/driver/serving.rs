//! Serving a group: ready records are leased to consumers and takes, wanted data is read, and a lease becomes a
//! delivery once its batch is in memory.

use std::collections::VecDeque;

use base::limits::LEASE_READ_BYTES;
use base::{LeaseGroupId, Offset};
use dispatch::{Assignment, SessionId, Settlement};
use record::SharedRecord;
use shard::delivery::error::TakeError;
use shard::delivery::event::Delivery;
use shard::delivery::options::TakeOptions;
use shard::delivery::topic_limit::drops_oldest;
use tokio::time::Instant;

use super::Driver;
use crate::groups::group::Group;
use crate::overflow::drop_oldest;
use crate::reading::RecordLookup;
use crate::takes::{PendingTake, TakeReply, Taker};

/// Outcome of handing out a lease.
pub(super) enum DeliveryOutcome {
    Delivery(Delivery),
    /// The record is gone, and its lease is settled.
    Gone,
    /// Its record is being read.
    Reading,
}

impl Driver {
    pub(super) fn take(
        &mut self,
        session: SessionId,
        group: LeaseGroupId,
        options: TakeOptions,
        reply: TakeReply,
    ) {
        if !self.groups.load(group) {
            let _ = reply.send(Err(TakeError::UnknownGroup(group)));
            return;
        }
        if !self.sessions.note_use(session, group) {
            return;
        }
        let deadline = Instant::now() + options.wait;
        if !options.wait.is_zero() {
            self.groups.note_take(group, deadline);
        }
        let known_to = self.ends_to_know(group);
        if let Some(found) = self.groups.get_mut(group) {
            found.takers.push_back(Taker::new(session, options, known_to, deadline, reply));
        }
        self.groups.enqueue(group);
    }

    /// Delivers a group's ready records and starts the reads that it wants.
    pub(super) fn serve(&mut self, id: LeaseGroupId) {
        let now_ms = self.timeline.now_ms();
        let Some(group) = self.groups.get_mut(id) else { return };
        group.queued = false;
        if group.dispatch.next_deadline().is_some_and(|due| due <= now_ms) {
            group.dispatch.tick(now_ms);
        }
        self.repay(id, true);
        let mut assigned = std::mem::take(&mut self.assigned);
        if self.is_best_known(id)
            && let Some(group) = self.groups.get_mut(id)
        {
            group.dispatch.dispatch(now_ms, &mut self.sessions.pools, &mut assigned);
        }
        self.on_handed_out(id, &assigned);
        for assignment in assigned.drain(..) {
            self.hand_out(id, assignment);
        }
        self.assigned = assigned;
        self.note_starved(id);
        if self.drop_oldest_before_takes(id, now_ms) {
            self.serve_takers(id, now_ms);
        }
        if let Some(group) = self.groups.get_mut(id)
            && drops_oldest(&group.topic_config)
        {
            drop_oldest(group, now_ms);
        }
        self.read_wanted(id, &mut { LEASE_READ_BYTES });
        self.note_steps(id);
        self.groups.note_deadline(id, now_ms);
        self.groups.report_backlog(id, &self.sessions.pools);
        if let Some(group) = self.groups.get_mut(id) {
            group.meters.note(group.counts, now_ms, &self.totals);
            if group.dispatch.has_changes() {
                self.commits.note_changed(group);
            }
        }
    }

    /// In topics with priorities the best record may be the last one: nothing is pushed before all records up
    /// to now were scanned. Later records wait for the next pass, so that this one ends.
    fn is_best_known(&mut self, id: LeaseGroupId) -> bool {
        let Some(group) = self.groups.get_mut(id) else { return false };
        if group.topic_config.priorities_max == 0 || group.consumers.is_empty() {
            return true;
        }
        let look_to = match group.look_to.take() {
            Some(look_to) => look_to,
            None => self.ends_to_know(id),
        };
        let Some(group) = self.groups.get_mut(id) else { return false };
        let known = group.dispatch.knows(&look_to);
        group.look_to = (!known).then_some(look_to);
        known
    }

    /// Drops records over the limit before a take is served: after the reply to a publish over the limit, a
    /// take finds only the newest records. False while a record to drop is being read.
    fn drop_oldest_before_takes(&mut self, id: LeaseGroupId, now_ms: i64) -> bool {
        let is_due =
            |group: &&mut Group| !group.takers.is_empty() && drops_oldest(&group.topic_config);
        if self.groups.get_mut(id).filter(is_due).is_none() {
            return true;
        }
        // The driver may not have seen the latest appends.
        self.groups.on_appended(Some(id));
        let mut budget = LEASE_READ_BYTES;
        loop {
            let Some(group) = self.groups.get_mut(id) else { return true };
            if drop_oldest(group, now_ms) {
                return true;
            }
            if !self.read_wanted(id, &mut budget) {
                return self.groups.get(id).is_none_or(|group| group.reads == 0);
            }
        }
    }

    /// Offsets up to which records must be scanned before the best one is known. Empty if the first is the
    /// best.
    fn ends_to_know(&mut self, id: LeaseGroupId) -> Vec<Offset> {
        if !self.groups.get(id).is_some_and(|group| group.is_ranked()) {
            return Vec::new();
        }
        self.groups.on_appended(Some(id));
        self.groups.get(id).map_or_else(Vec::new, |group| group.dispatch.ends().collect())
    }

    /// Serves takes in the order of their arrival.
    fn serve_takers(&mut self, id: LeaseGroupId, now_ms: i64) {
        let Some(group) = self.groups.get_mut(id).filter(|group| !group.takers.is_empty()) else {
            return;
        };
        let mut waiting = std::mem::take(&mut group.takers);
        let now = Instant::now();
        let mut still = VecDeque::new();
        while let Some(mut taker) = waiting.pop_front() {
            let Some(group) = self.groups.get_mut(id) else { return };
            let mut enough = taker.reply.is_closed()
                || taker.take_from(&mut group.dispatch, group.record_bytes, now_ms);
            if !enough {
                // Little may be scanned yet: the reads for this take come first.
                self.groups.on_appended(Some(id));
                let mut budget = LEASE_READ_BYTES;
                // The engine only wants reads until something is ready; the take wants all that it requested.
                while !enough && self.read_wanted(id, &mut budget) {
                    let Some(group) = self.groups.get_mut(id) else { return };
                    enough = taker.take_from(&mut group.dispatch, group.record_bytes, now_ms);
                }
            }
            let reading = self.groups.get(id).is_some_and(|group| group.reads > 0);
            if enough || taker.is_over(reading, now) {
                self.hand_over(id, taker);
            } else {
                still.push_back(taker);
            }
        }
        if let Some(group) = self.groups.get_mut(id) {
            group.takers = still;
        }
    }

    pub(super) fn hand_over(&mut self, id: LeaseGroupId, taker: Taker) {
        // Before the reply: a publish after the take finds the room that it made.
        self.groups.report_backlog(id, &self.sessions.pools);
        if let Some(take) = self.complete(PendingTake::new(id, taker)) {
            self.takes.push(take);
        }
    }

    /// Completes a take if all of its records are in memory; otherwise returns it, and reads.
    fn complete(&mut self, mut take: PendingTake) -> Option<PendingTake> {
        while let Some(assignment) = take.assigned.front().copied() {
            match self.delivery(take.group, assignment) {
                DeliveryOutcome::Delivery(delivery) => take.deliveries.push(delivery),
                DeliveryOutcome::Gone => {}
                DeliveryOutcome::Reading => return Some(take),
            }
            take.assigned.pop_front();
        }
        let sent = take.reply.send(Ok(take.deliveries));
        if let Err(Ok(deliveries)) = sent {
            // The caller is gone: the records were never seen, and are available again.
            let now_ms = self.timeline.now_ms();
            let uncounted = Settlement::Release { delay_ms: Some(0), count: false };
            if let Some(group) = self.groups.get_mut(take.group) {
                for delivery in deliveries {
                    let lease = delivery.lease();
                    let _ = group.dispatch.settle(take.session, lease, uncounted, now_ms);
                }
            }
            self.groups.enqueue(take.group);
        }
        None
    }

    /// Delivers a record to its consumer's session, behind waiting deliveries.
    fn hand_out(&mut self, id: LeaseGroupId, assignment: Assignment) {
        let session = assignment.session;
        let Some(waiting) = self.sessions.is_waiting(session) else { return };
        if waiting {
            return self.sessions.wait(id, assignment);
        }
        match self.delivery(id, assignment) {
            DeliveryOutcome::Delivery(delivery) => self.sessions.queue_delivery(session, delivery),
            DeliveryOutcome::Gone => {}
            DeliveryOutcome::Reading => self.sessions.wait(id, assignment),
        }
    }

    /// The delivery of a lease, if its batch is in memory; otherwise starts a read.
    fn delivery(&mut self, id: LeaseGroupId, assignment: Assignment) -> DeliveryOutcome {
        let Some(group) = self.groups.get_mut(id) else { return DeliveryOutcome::Gone };
        let partition = group.partition(assignment.partition);
        match self.reader.find_or_read(partition, assignment.offset) {
            RecordLookup::Here(record) => {
                group.counts.delivered += 1;
                group.counts.redelivered += u64::from(assignment.attempt > 1);
                DeliveryOutcome::Delivery(delivery(id, assignment, record))
            }
            // Compaction or retention removed the record meanwhile.
            RecordLookup::Gone => {
                let now_ms = self.timeline.now_ms();
                let lease = assignment.selection();
                let (session, accept) = (assignment.session, Settlement::Accept);
                let _ = group.dispatch.settle(session, lease, accept, now_ms);
                self.commits.note_changed(group);
                DeliveryOutcome::Gone
            }
            RecordLookup::Unread => DeliveryOutcome::Reading,
        }
    }

    /// Resumes deliveries, takes and transfers that waited for a read.
    pub(super) fn resume_waiting(&mut self) {
        for id in self.sessions.take_waiting() {
            let mut queue = self.sessions.take_deliveries(id);
            while let Some((group, assignment)) = queue.front().copied() {
                match self.delivery(group, assignment) {
                    DeliveryOutcome::Delivery(delivery) => {
                        self.sessions.queue_delivery(id, delivery)
                    }
                    DeliveryOutcome::Gone => {}
                    DeliveryOutcome::Reading => break,
                }
                queue.pop_front();
            }
            self.sessions.wait_on(id, queue);
        }
        for take in std::mem::take(&mut self.takes) {
            if let Some(take) = self.complete(take) {
                self.takes.push(take);
            }
        }
        self.resume_transfers();
    }
}

fn delivery(group: LeaseGroupId, assignment: Assignment, record: SharedRecord) -> Delivery {
    let Assignment { consumer, token, partition, offset, attempt, terms, session: _ } = assignment;
    Delivery { group, consumer, token, partition, offset, attempt, terms, record }
}
