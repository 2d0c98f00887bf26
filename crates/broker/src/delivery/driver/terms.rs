//! A driver takes over what the one of an earlier term left, and leaves it to the next.

use std::collections::VecDeque;
use std::pin::pin;

use base::LeaseGroupId;
use consensus::Consensus;
use dispatch::{Claim, ConsumerId, Joined};
use tokio::time::Instant;

use super::super::event::GoneReason;
use super::super::handle::Inbox;
use super::super::handover::{Handover, Users};
use super::super::takes::Taker;
use super::Driver;
use crate::error::Unavailable;

impl Driver {
    /// Takes over who uses which group. Their leases only where nobody else led in between.
    pub(super) fn take_over(&mut self, groups: Vec<Users>, claims_hold: bool) {
        for Users { group, consumers, claims, back_offs } in groups {
            let known = self.groups.load(group);
            for (consumer, joined) in consumers {
                match known {
                    true => self.join_again(group, consumer, joined),
                    false => {
                        self.sessions.tell_gone(joined.session, consumer, GoneReason::Deleted);
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
            self.groups.enqueue(group);
            self.groups.note_standing(group, &self.sessions.pools);
        }
    }

    fn join_again(&mut self, id: LeaseGroupId, consumer: ConsumerId, joined: Joined) {
        let Some(group) = self.groups.get_mut(id) else { return };
        if !self.sessions.note_use(joined.session, id) {
            return;
        }
        // They were there together before.
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

    /// The term is over. Comes to an end with all that is under way, and with nothing else; where
    /// consensus has ended there is no end to wait for.
    pub(super) async fn wind_up(mut self, consensus: &Consensus) -> (Inbox, Handover) {
        let begun = Instant::now();
        let mut ended = pin!(consensus.ended());
        self.complete_takes();
        loop {
            self.commit_all();
            self.start_dead_lettering();
            self.send();
            let nothing_comes = !self.commits.is_under_way() && !self.reader.is_reading();
            if self.is_wound_up() || nothing_comes {
                let wound_up = begun.elapsed();
                let left = self.leave();
                tracing::debug!(?wound_up, left = ?begun.elapsed(), "delivery of a term has ended");
                return left;
            }
            tokio::select! {
                biased;
                _ = &mut ended => return self.leave(),
                Some(done) = self.commits.done(), if self.commits.is_under_way() => {
                    self.on_committed(done);
                }
                Some(done) = self.reader.done(), if self.reader.is_reading() => self.on_read(done),
            }
        }
    }

    /// Whether nothing is under way. What the engines asked to read is of no use any more.
    fn is_wound_up(&self) -> bool {
        let nothing_to_commit = !self.commits.is_under_way() && !self.commits.has_changes();
        nothing_to_commit
            && !self.reader.is_reading_records()
            && self.takes.is_empty()
            && self.transfers.is_empty()
            && !self.sessions.any_is_waiting()
    }

    /// Those who take get what was leased to them already.
    fn complete_takes(&mut self) {
        let taking = self.groups.iter().filter(|group| !group.takers.is_empty());
        let mut taking: Vec<LeaseGroupId> = taking.map(|group| group.id).collect();
        taking.sort_unstable();
        for id in taking {
            let Some(group) = self.groups.get_mut(id) else { continue };
            let has_some = |taker: &Taker| !taker.assigned.is_empty();
            let (some, none) = std::mem::take(&mut group.takers).into_iter().partition(has_some);
            group.takers = none;
            let some: VecDeque<Taker> = some;
            some.into_iter().for_each(|taker| self.hand_over(id, taker));
        }
    }

    fn leave(self) -> (Inbox, Handover) {
        let sessions = self.sessions.leave();
        let (groups, counts) = self.groups.leave();
        let mut left = Handover {
            term: self.term,
            sessions,
            groups: Vec::new(),
            counts,
            messages: VecDeque::new(),
        };
        let now = Instant::now();
        for mut group in groups {
            // Their dead letters could not be appended: the records are delivered again.
            group.dead.fail_waiters(&Unavailable::NotLeader);
            left.groups.extend(Users::of(&group));
            let takers = group.takers.into_iter();
            left.messages.extend(takers.map(|taker| taker.into_message(group.id, now)));
        }
        (self.inbox, left)
    }
}
