//! Serving a group: what is ready goes to who wants it, what is wanted next is read, and what was
//! handed out becomes a delivery once its batch is in memory.

use base::limits::LEASE_READ_BYTES;
use base::{LeaseGroupId, Offset};
use dispatch::{Assignment, Selection, SessionId, Settlement, Take, Within};
use machine::config::PrioritiesOrder;
use record::SharedRecord;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::driver::Driver;
use super::error::TakeError;
use super::event::Delivery;
use super::group::{Group, Taker};
use super::options::TakeOptions;
use super::policy::refuses;
use super::standings::Standing;

/// A take that has something waits for so many reads at most.
const TAKE_ROUNDS_MAX: u32 = 4;

/// Taken, and not yet all in memory.
#[derive(Debug)]
pub(super) struct PendingTake {
    session: SessionId,
    pub(super) group: LeaseGroupId,
    pub(super) assigned: std::collections::VecDeque<Assignment>,
    deliveries: Vec<Delivery>,
    reply: oneshot::Sender<Result<Vec<Delivery>, TakeError>>,
}

impl Driver {
    pub(super) fn take(
        &mut self,
        session: SessionId,
        group: LeaseGroupId,
        options: TakeOptions,
        reply: oneshot::Sender<Result<Vec<Delivery>, TakeError>>,
    ) {
        if !self.load(group) {
            let _ = reply.send(Err(TakeError::UnknownGroup(group)));
            return;
        }
        let Some(found) = self.sessions.get_mut(&session) else { return };
        found.groups.insert(group);
        let deadline = Instant::now() + options.wait;
        if !options.wait.is_zero() {
            self.take_deadlines.insert((deadline, group));
        }
        let known_to = self.ends_to_know(group);
        if let Some(found) = self.groups.get_mut(&group) {
            let (assigned, rounds) = (Vec::new(), 0);
            let taker = Taker { session, options, assigned, rounds, known_to, deadline, reply };
            found.takers.push_back(taker);
        }
        self.enqueue(group);
    }

    /// Hands out what is ready in a group and asks for what it wants to know.
    pub(super) fn serve(&mut self, id: LeaseGroupId) {
        let now_ms = self.timeline.now_ms();
        let Some(group) = self.groups.get_mut(&id) else { return };
        group.queued = false;
        if group.dispatch.next_deadline().is_some_and(|due| due <= now_ms) {
            group.dispatch.tick(now_ms);
        }
        let mut assigned = std::mem::take(&mut self.assigned);
        if self.is_best_known(id)
            && let Some(group) = self.groups.get_mut(&id)
        {
            group.dispatch.dispatch(now_ms, &mut self.pools, &mut assigned);
        }
        for assignment in assigned.drain(..) {
            self.hand_out(id, assignment);
        }
        self.assigned = assigned;
        self.serve_takers(id, now_ms);
        self.drop_overflow(id, now_ms);
        self.read_what_is_wanted(id, &mut { LEASE_READ_BYTES });
        self.note_deadline(id, now_ms);
        self.note_standing(id);
        if let Some(group) = self.groups.get_mut(&id) {
            group.meters.note(group.counts, now_ms);
        }
        if self.groups.get(&id).is_some_and(|group| group.dispatch.has_changes()) {
            self.mark_changed(id);
        }
    }

    /// Where records have priorities, the best may be the last that came: nothing is pushed before
    /// what is there now was looked at. What comes meanwhile waits for the next time, so that this
    /// comes to an end.
    fn is_best_known(&mut self, id: LeaseGroupId) -> bool {
        let Some(group) = self.groups.get_mut(&id) else { return false };
        if group.topic_config.priorities_max == 0 || group.consumers.is_empty() {
            return true;
        }
        let look_to = match group.look_to.take() {
            Some(look_to) => look_to,
            None => self.ends_to_know(id),
        };
        let Some(group) = self.groups.get_mut(&id) else { return false };
        let known = group.dispatch.knows(&look_to);
        group.look_to = (!known).then_some(look_to);
        known
    }

    /// What must be known before the best record can be told. Empty where that is the first.
    fn ends_to_know(&mut self, id: LeaseGroupId) -> Vec<Offset> {
        let ranked = |group: &Group| {
            let config = &group.topic_config;
            config.priorities_max > 0 || config.priorities_order == PrioritiesOrder::TwoToOne
        };
        if !self.groups.get(&id).is_some_and(ranked) {
            return Vec::new();
        }
        self.appended(Some(id));
        self.groups.get(&id).map_or_else(Vec::new, |group| group.dispatch.ends().collect())
    }

    /// Tells the sequencer how much waits here, where it refuses what is too much.
    pub(super) fn note_standing(&mut self, id: LeaseGroupId) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        if !refuses(&group.topic_config) {
            if group.standing.take().is_some() {
                self.standings.forget(id);
            }
            return;
        }
        let counters = group.dispatch.counters();
        let (bytes, known) = group.dispatch.waiting_bytes();
        let standing = Standing {
            bytes,
            known,
            waiting: counters.ready + counters.blocked,
            delayed: counters.delayed,
            credit: group.dispatch.spare_credit(&self.pools, u64::from(u32::MAX)),
            ends: group.dispatch.ends_sum(),
        };
        if group.standing != Some(standing) {
            group.standing = Some(standing);
            self.standings.note(id, standing);
        }
    }

    /// Takers are served in the order in which they came.
    fn serve_takers(&mut self, id: LeaseGroupId, now_ms: i64) {
        let Some(group) = self.groups.get_mut(&id).filter(|group| !group.takers.is_empty()) else {
            return;
        };
        let mut waiting = std::mem::take(&mut group.takers);
        let now = Instant::now();
        let mut still = std::collections::VecDeque::new();
        while let Some(mut taker) = waiting.pop_front() {
            let Some(group) = self.groups.get_mut(&id) else { return };
            let mut enough = taker.reply.is_closed() || group.take_more(&mut taker, now_ms);
            if !enough {
                // It may be that little is known yet: what this take wants is read first.
                self.appended(Some(id));
                let mut budget = LEASE_READ_BYTES;
                // The engine wants no more than makes something ready; this wants all it asked for.
                while !enough && self.read_what_is_wanted(id, &mut budget) {
                    let Some(group) = self.groups.get_mut(&id) else { return };
                    enough = group.take_more(&mut taker, now_ms);
                }
            }
            let reading = self.groups.get(&id).is_some_and(|group| group.reads > 0);
            let has_some = !taker.assigned.is_empty();
            let over = match reading && !enough {
                true => has_some && taker.rounds >= TAKE_ROUNDS_MAX,
                false => has_some || taker.deadline <= now,
            };
            if enough || over {
                self.hand_over(id, taker);
            } else {
                still.push_back(taker);
            }
        }
        if let Some(group) = self.groups.get_mut(&id) {
            group.takers = still;
        }
    }

    pub(super) fn hand_over(&mut self, id: LeaseGroupId, taker: Taker) {
        // Before the taker knows: what it publishes next finds the room that it made.
        self.note_standing(id);
        let Taker { session, reply, assigned, .. } = taker;
        let deliveries = Vec::with_capacity(assigned.len());
        let assigned = assigned.into();
        let take = PendingTake { session, group: id, assigned, deliveries, reply };
        if let Some(take) = self.complete(take) {
            self.pending_takes.push(take);
        }
    }

    /// Answers a take if all of it is in memory; otherwise gives it back, and reads.
    pub(super) fn complete(&mut self, mut take: PendingTake) -> Option<PendingTake> {
        while let Some(assignment) = take.assigned.front().copied() {
            match self.delivery(take.group, assignment) {
                Found::Here(delivery) => take.deliveries.push(delivery),
                Found::Gone => self.settle_gone(take.group, assignment),
                Found::Reading => return Some(take),
            }
            take.assigned.pop_front();
        }
        let sent = take.reply.send(Ok(take.deliveries));
        if let Err(Ok(deliveries)) = sent {
            // Nobody waits any more: they were never seen, and are available again.
            let now_ms = self.timeline.now_ms();
            let uncounted = Settlement::Release { delay_ms: Some(0), count: false };
            if let Some(group) = self.groups.get_mut(&take.group) {
                for delivery in deliveries {
                    let lease = Selection::Token(delivery.token);
                    let _ = group.dispatch.settle(take.session, lease, uncounted, now_ms);
                }
            }
            self.enqueue(take.group);
        }
        None
    }

    /// Sends a record to its consumer's session, behind what waits there already.
    fn hand_out(&mut self, id: LeaseGroupId, assignment: Assignment) {
        let Some(session) = self.sessions.get_mut(&assignment.session) else { return };
        if !session.waiting.is_empty() {
            session.waiting.push_back((id, assignment));
            return;
        }
        match self.delivery(id, assignment) {
            Found::Here(delivery) => self.put_out(assignment.session, delivery),
            Found::Gone => self.settle_gone(id, assignment),
            Found::Reading => {
                if let Some(session) = self.sessions.get_mut(&assignment.session) {
                    session.waiting.push_back((id, assignment));
                    self.waiting.insert(assignment.session);
                }
            }
        }
    }

    pub(super) fn put_out(&mut self, id: SessionId, delivery: Delivery) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        if session.outgoing.is_empty() {
            self.outgoing.push(id);
        }
        session.outgoing_bytes += delivery.record.encoded_len() + size_of::<Delivery>();
        session.outgoing.push(delivery);
    }

    /// The delivery of a lease, if its batch is in memory; otherwise it is read.
    pub(super) fn delivery(&mut self, id: LeaseGroupId, assignment: Assignment) -> Found {
        let Some(group) = self.groups.get_mut(&id) else { return Found::Gone };
        let partition = group.partition(assignment.partition);
        match self.batches.record(partition, assignment.offset) {
            Some(Ok(record)) => {
                group.counts.delivered += 1;
                group.counts.redelivered += u64::from(assignment.attempt > 1);
                Found::Here(delivery(id, assignment, record))
            }
            Some(Err(_)) => Found::Gone,
            None if self.lost.contains(&(partition, assignment.offset)) => Found::Gone,
            None => {
                self.read_record(partition, assignment.offset);
                Found::Reading
            }
        }
    }

    /// There is nothing left to deliver: compaction or retention took it meanwhile.
    pub(super) fn settle_gone(&mut self, id: LeaseGroupId, assignment: Assignment) {
        let now_ms = self.timeline.now_ms();
        if let Some(group) = self.groups.get_mut(&id) {
            let lease = Selection::Token(assignment.token);
            let _ = group.dispatch.settle(assignment.session, lease, Settlement::Accept, now_ms);
            self.mark_changed(id);
        }
    }

    pub(super) fn note_deadline(&mut self, id: LeaseGroupId, now_ms: i64) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        let due = group.dispatch.next_deadline();
        if due != group.deadline {
            if let Some(former) = group.deadline {
                self.deadlines.remove(&(former, id));
            }
            if let Some(due) = due {
                self.deadlines.insert((due, id));
            }
            group.deadline = due;
        }
        // A tick does a bounded amount of work.
        if due.is_some_and(|due| due <= now_ms) {
            self.enqueue(id);
        }
    }
}

impl Group {
    /// Takes what is ready now; whether the taker has all that it asked for.
    fn take_more(&mut self, taker: &mut Taker, now_ms: i64) -> bool {
        let options = &taker.options;
        let has = taker.assigned.len() as u32;
        let has_bytes = u64::from(has) * self.record_bytes as u64;
        if has > 0 && (has >= options.records_max || has_bytes >= options.bytes_max) {
            return true;
        }
        let take = Take {
            session: taker.session,
            consumer: 0,
            records_max: options.records_max - has,
            bytes_max: options.bytes_max - has_bytes,
            settle_on_send: options.settle_on_send,
            lease_ms: options.lease_ms,
        };
        let within = Within {
            partitions: &options.partitions,
            leased_max: options.leased_max,
            known_to: &taker.known_to,
        };
        self.dispatch.take_within(take, within, now_ms, &mut taker.assigned);
        taker.rounds += 1;
        taker.assigned.len() as u32 >= options.records_max
    }
}

pub(super) enum Found {
    Here(Delivery),
    Gone,
    Reading,
}

fn delivery(group: LeaseGroupId, assignment: Assignment, record: SharedRecord) -> Delivery {
    let Assignment { consumer, token, partition, offset, attempt, session: _ } = assignment;
    Delivery { group, consumer, token, partition, offset, attempt, record }
}
