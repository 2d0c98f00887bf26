//! Serving a group: what is ready goes to who wants it, what is wanted next is read, and what was
//! handed out becomes a delivery once its batch is in memory.

use base::limits::{LEASE_READ_BYTES, LEASE_READS_IN_FLIGHT_MAX};
use base::{LeaseGroupId, Offset, PartitionId};
use dispatch::{Assignment, Selection, SessionId, Settlement, Take, Want, Within};
use futures_util::FutureExt;
use record::SharedRecord;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::batches::{Read, ReadDone, ReadFor, read};
use super::driver::Driver;
use super::error::TakeError;
use super::event::Delivery;
use super::group::{Group, Taker, refuses};
use super::session::TakeOptions;
use super::waiting::Standing;

/// Less is not worth a call, where what follows is wanted next.
const READ_BYTES_MIN: usize = 64 << 10;
/// Of so few nothing may follow.
const FEW_RECORDS: u64 = 16;
/// What the smallest read counts as, where reads of one turn are bounded.
const LOOK_UP_BYTES_MIN: usize = 2 << 10;
/// A take that has something waits for so many reads at most.
const TAKE_ROUNDS_MAX: u32 = 4;
/// What cannot be read now is tried again after this.
const READ_AGAIN_AFTER_MS: i64 = 1_000;

/// Taken, and not yet all in memory.
#[derive(Debug)]
pub(super) struct PendingTake {
    session: SessionId,
    group: LeaseGroupId,
    assigned: std::collections::VecDeque<Assignment>,
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
        let now_ms = self.clock.now_ms();
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
        let ranked = |group: &Group| group.topic_config.priorities_max > 0;
        if !self.groups.get(&id).is_some_and(ranked) {
            return Vec::new();
        }
        self.refresh_ends(id);
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
        let standing = Standing {
            waiting: counters.ready + counters.blocked,
            delayed: counters.delayed,
            credit: group.dispatch.spare_credit(&self.pools, u64::from(u32::MAX)),
            ends: group.dispatch.ends().sum(),
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
                self.refresh_ends(id);
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

    fn hand_over(&mut self, id: LeaseGroupId, taker: Taker) {
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
    fn complete(&mut self, mut take: PendingTake) -> Option<PendingTake> {
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
            let now_ms = self.clock.now_ms();
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

    fn put_out(&mut self, id: SessionId, delivery: Delivery) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        if session.outgoing.is_empty() {
            self.outgoing.push(id);
        }
        session.outgoing_bytes += delivery.record.encoded_len() + size_of::<Delivery>();
        session.outgoing.push(delivery);
    }

    /// The delivery of a lease, if its batch is in memory; otherwise it is read.
    fn delivery(&mut self, id: LeaseGroupId, assignment: Assignment) -> Found {
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
    fn settle_gone(&mut self, id: LeaseGroupId, assignment: Assignment) {
        let now_ms = self.clock.now_ms();
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

enum Found {
    Here(Delivery),
    Gone,
    Reading,
}

fn delivery(group: LeaseGroupId, assignment: Assignment, record: SharedRecord) -> Delivery {
    let Assignment { consumer, token, partition, offset, attempt, session: _ } = assignment;
    Delivery { group, consumer, token, partition, offset, attempt, record }
}

// --------------------------------------------------------------------------------------- reading

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
            let mut reading = read(self.shard.journal.clone(), what).boxed();
            if *budget > 0 {
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
        let journal = self.shard.journal.clone();
        self.reads.push(read(journal, what).boxed());
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
                        self.put_off_burials(partition, from);
                        self.put_letters_apart(partition, from);
                    }
                }
                self.go_on_waiting();
            }
            ReadFor::Scan { group: id, engine, up_to } => {
                let now_ms = self.clock.now_ms();
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
                        let facts = &self.facts;
                        let records =
                            batches.iter().flat_map(|batch| facts.of(batch, from, keyed, now_ms));
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
        let now_ms = self.clock.now_ms();
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

/// What a record may take more than the average.
const READ_OVERHEAD_BYTES: usize = 64;
