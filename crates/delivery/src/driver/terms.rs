//! Handover: a driver takes over the state of an earlier term, and leaves its own for the next.

use std::collections::VecDeque;
use std::pin::pin;

use base::{HashSet, LeaseGroupId, Offset};
use consensus::Consensus;
use dispatch::{Assignment, Claim, ConsumerId, DeadLetterClaim, PushConsumer, Settlement};
use shard::delivery::event::{Delivery, GoneReason};
use shard::delivery::handle::Inbox;
use shard::error::Unavailable;
use tokio::time::Instant;

use super::{Driver, Purpose};
use crate::dead_letters::DeadLetters;
use crate::drivers::term_of;
use crate::handover::{DeferredTransfer, Handover, Users};
use crate::takes::{PendingTake, Taker};
use crate::waiter::repeat::UncommittedSettle;

impl Driver {
    /// Takes over the consumers of each group, and pending requests to the log. Leases are taken over only if
    /// no other node led in between; otherwise they are presented.
    pub(super) fn take_over(
        &mut self,
        groups: Vec<Users>,
        transfers: Vec<DeferredTransfer>,
        claims_hold: bool,
    ) {
        self.commits.may_wait(true);
        for transfer in transfers {
            match claims_hold {
                true => self.repeat_transfer(transfer),
                false => transfer.transfer.fail(&Unavailable::NotLeader),
            }
        }
        for Users { group, consumers, claims, back_offs, engine, mut dead, dead_letters } in groups
        {
            let known = self.groups.load(group);
            for (consumer, joined) in consumers {
                match known {
                    true => self.rejoin_consumer(group, consumer, joined),
                    false => {
                        self.sessions.send_gone(joined.session, consumer, GoneReason::Deleted);
                    }
                }
            }
            for claim in claims.into_iter().filter(|_| claims_hold) {
                self.claim(group, claim);
            }
            if claims_hold && let Some(found) = self.groups.get_mut(group) {
                for back_off in back_offs {
                    found.dispatch.back_off(back_off);
                }
            }
            match (known, claims_hold) {
                (true, true) => self.resume_dead_letters(group, engine, dead, dead_letters),
                // Their records are delivered again.
                (true, false) => dead.fail_waiters(&Unavailable::NotLeader),
                // The group was deleted, and nothing of it is left to settle.
                (false, _) => dead.take_waiters().for_each(|waiter| self.answer(waiter)),
            }
            self.groups.enqueue(group);
            self.groups.report_backlog(group, &self.sessions.pools);
        }
    }

    fn rejoin_consumer(&mut self, id: LeaseGroupId, consumer: ConsumerId, joined: PushConsumer) {
        let Some(group) = self.groups.get_mut(id) else { return };
        if !self.sessions.note_use(joined.session, id) {
            return;
        }
        // They were admitted together before.
        let _ = group.dispatch.join(consumer, joined);
        group.consumers.insert(consumer, joined);
    }

    fn claim(&mut self, id: LeaseGroupId, claim: Claim) {
        let session = claim.session();
        let Some(group) = self.groups.get_mut(id) else { return };
        if self.sessions.is_open(session) && group.dispatch.claim(claim, &mut self.sessions.pools) {
            self.sessions.note_use(session, id);
        }
    }

    /// Takes over leases of a term in which another node led, as presented by their holders. If a record was
    /// leased twice the newest lease wins. Leases that are known continue.
    pub(super) fn present(&mut self, mut claims: Vec<(LeaseGroupId, Claim)>) {
        self.suspended.add_leases(&claims);
        let in_all = claims.len();
        let now_ms = self.timeline.now_ms();
        claims.retain(|(_, claim)| {
            term_of(claim.token()) < self.term && claim.deadline_ms() > now_ms
        });
        claims.sort_unstable_by_key(|(group, claim)| {
            (*group, claim.place(), std::cmp::Reverse(claim.token()))
        });
        claims.dedup_by_key(|(group, claim)| (*group, claim.place()));
        let mut taken_over = 0;
        for of_group in claims.chunk_by(|(one, _), (next, _)| one == next) {
            let id = of_group[0].0;
            if !self.groups.load(id) {
                continue;
            }
            for (_, claim) in of_group {
                let session = claim.session();
                let Some(group) = self.groups.get_mut(id) else { break };
                if self.sessions.is_open(session)
                    && group.dispatch.present(*claim, &mut self.sessions.pools)
                {
                    self.sessions.note_use(session, id);
                    taken_over += 1;
                }
            }
            self.groups.enqueue(id);
            self.groups.report_backlog(id, &self.sessions.pools);
        }
        if in_all > 0 {
            tracing::debug!(presented = in_all, taken_over, "leases of an earlier leader");
        }
    }

    /// Dead letters that are not in the log are appended in this term, and their rejects keep waiting.
    fn resume_dead_letters(
        &mut self,
        id: LeaseGroupId,
        engine: u64,
        dead: DeadLetters,
        claims: Vec<DeadLetterClaim>,
    ) {
        let Some(group) = self.groups.resume_engine(id, engine) else { return };
        let claims = claims.into_iter().filter(|claim| group.dispatch.claim_dead_letter(*claim));
        let records = claims.map(|claim| claim.place()).collect();
        group.dead = dead.resume(&records);
        self.dead_letters.add(id);
        self.answer_dead_lettered(id);
    }

    /// Repeats a transfer that had no room in an outbox before its term was over. The engines of this term
    /// count its records as settled, and are rebuilt if it is refused.
    fn repeat_transfer(&mut self, left: DeferredTransfer) {
        let DeferredTransfer { groups, unit, mut transfer } = left;
        transfer.forget_engines();
        for &id in &groups {
            self.groups.load(id);
        }
        let (of, purpose) = (groups.clone(), Purpose::Transfer(transfer));
        self.commits.execute_unit(&mut self.groups, of, unit, purpose);
        groups.into_iter().for_each(|id| self.renew(id));
    }

    /// The term is over: waits for the end of everything in flight, and starts nothing else. If consensus has
    /// ended there is no end to wait for.
    pub(super) async fn wind_up(mut self, consensus: &Consensus) -> (Inbox, Handover) {
        let begun = Instant::now();
        let mut ended = pin!(consensus.ended());
        self.commits.may_wait(false);
        self.end_fences();
        self.complete_takes();
        loop {
            self.commit_all();
            self.start_dead_lettering();
            self.send();
            let nothing_comes = !self.commits.is_in_flight() && !self.reader.is_reading();
            if self.is_wound_up() || nothing_comes {
                let wound_up = begun.elapsed();
                let left = self.leave();
                tracing::debug!(?wound_up, left = ?begun.elapsed(), "delivery of a term has ended");
                return left;
            }
            tokio::select! {
                biased;
                _ = &mut ended => return self.leave(),
                Some(done) = self.commits.done(), if self.commits.is_in_flight() => {
                    self.on_committed(done);
                }
                Some(done) = self.reader.done(), if self.reader.is_reading() => self.on_read(done),
            }
        }
    }

    /// Whether nothing is in flight. Reads for the engines are no longer needed.
    fn is_wound_up(&self) -> bool {
        let nothing_to_commit = !self.commits.is_in_flight() && !self.commits.has_changes();
        nothing_to_commit
            && !self.reader.is_reading_records()
            && self.takes.is_empty()
            && self.transfers.is_empty()
            && !self.sessions.any_is_waiting()
    }

    /// Replies to takes with their records so far, or with none after their deadline.
    fn complete_takes(&mut self) {
        let now = Instant::now();
        let taking = self.groups.iter().filter(|group| !group.takers.is_empty());
        let mut taking: Vec<LeaseGroupId> = taking.map(|group| group.id).collect();
        taking.sort_unstable();
        for id in taking {
            let Some(group) = self.groups.get_mut(id) else { continue };
            let ends = |taker: &Taker| taker.ends_with_term(now);
            let (over, open) = std::mem::take(&mut group.takers).into_iter().partition(ends);
            group.takers = open;
            let over: VecDeque<Taker> = over;
            over.into_iter().for_each(|taker| self.hand_over(id, taker));
        }
    }

    /// Releases taken records that can no longer be read: no client has seen them.
    fn release_unread_takes(&mut self) {
        let now_ms = self.timeline.now_ms();
        let uncounted = Settlement::Release { delay_ms: Some(0), count: false };
        for PendingTake { session, group, assigned, deliveries, .. } in
            std::mem::take(&mut self.takes)
        {
            let Some(group) = self.groups.get_mut(group) else { continue };
            let assigned = assigned.iter().map(Assignment::selection);
            for lease in deliveries.iter().map(Delivery::lease).chain(assigned) {
                let _ = group.dispatch.settle(session, lease, uncounted, now_ms);
            }
        }
    }

    fn leave(mut self) -> (Inbox, Handover) {
        self.release_unread_takes();
        self.note_steps_of_all();
        let sessions = self.sessions.leave();
        let (groups, counts) = self.groups.leave();
        let mut left = Handover {
            term: self.term,
            seen: self.seen,
            sessions,
            groups: Vec::new(),
            transfers: self.given_back,
            counts,
            presented: Vec::new(),
            presented_by: Vec::new(),
            introduced: Vec::new(),
            messages: VecDeque::new(),
        };
        for UncommittedSettle { claims, message } in self.lost {
            left.presented.extend(claims);
            left.messages.push_back(message);
        }
        let lost: HashSet<(LeaseGroupId, (u32, Offset))> =
            left.presented.iter().map(|(group, claim)| (*group, claim.place())).collect();
        let now = Instant::now();
        for mut group in groups {
            if let Some(mut users) = Users::of(&mut group) {
                // Its release is repeated, which makes it back off again.
                users.back_offs.retain(|it| !lost.contains(&(group.id, it.place())));
                left.groups.push(users);
            }
            let takers = group.takers.into_iter();
            left.messages.extend(takers.map(|taker| taker.into_message(group.id, now)));
        }
        (self.inbox, left)
    }
}
