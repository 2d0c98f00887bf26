//! From the driver of one term to that of the next: who is there and what it holds.
//!
//! Nothing that a driver decided outlives its term, but for leases, whose records are with consumers, and for
//! how long records wait that came back from leases. A
//! driver whose term is over hands nothing out any more, waits until all that it asked of the log has come
//! to its end, in the next term where it has to, and leaves its sessions with their leases. The next one
//! begins with what is durable by then, and takes them over where nobody else led in between.

use std::collections::VecDeque;
use std::pin::pin;

use base::{HashMap, LeaseGroupId};
use consensus::{Consensus, Leadership};
use dispatch::{BackOff, Claim, ConsumerId, Joined, SessionId};
use futures_util::stream::StreamExt;
use tokio::time::Instant;

use crate::error::Unavailable;

use super::driver::Driver;
use super::event::GoneReason;
use super::group::Taker;
use super::handle::{Inbox, Message};
use super::rates::Counts;
use super::sessions::Session;

#[derive(Default)]
pub(super) struct Handover {
    /// In which it was made; 0: there was no driver yet.
    term: u64,
    sessions: HashMap<SessionId, Session>,
    groups: Vec<Users>,
    counts: HashMap<LeaseGroupId, Counts>,
    last_consumer: ConsumerId,
    /// To be handled by the next driver before all others.
    messages: VecDeque<Message>,
}

/// Who uses a group, and what became of their leases.
struct Users {
    group: LeaseGroupId,
    consumers: Vec<(ConsumerId, Joined)>,
    claims: Vec<Claim>,
    back_offs: Vec<BackOff>,
}

impl Handover {
    /// `None` when there will be no more.
    pub(super) async fn wait_for_leadership(
        &mut self,
        consensus: &Consensus,
        inbox: &mut Inbox,
    ) -> Option<Leadership> {
        let mut leadership = pin!(consensus.leadership());
        loop {
            tokio::select! {
                biased;
                leadership = &mut leadership => match leadership {
                    Ok(leadership) => return Some(leadership),
                    Err(_) => break,
                },
                message = inbox.recv() => match message {
                    None | Some(Message::Stop) => return None,
                    Some(message) => self.messages.push_back(message),
                },
            }
        }
        // Consensus is gone. Whoever waits for an answer hears that there is no driver.
        self.messages.clear();
        while !matches!(inbox.recv().await, None | Some(Message::Stop)) {}
        None
    }
}

impl Driver {
    /// Takes over what the driver of an earlier term left.
    pub(super) fn resume(&mut self, left: Handover, leadership: &Leadership) {
        let Handover { term, sessions, groups, counts, last_consumer, messages } = left;
        // Otherwise another node may have leased the same records to others.
        let claims_hold = term >= leadership.since();
        self.next_consumer = last_consumer + 1;
        let first_token = self.first_token;
        self.retired = counts.into_iter().map(|(id, counts)| (id, (counts, first_token))).collect();
        for (&id, session) in &sessions {
            self.pools.set_limit(id, session.pool());
        }
        self.sessions = sessions;
        for Users { group, consumers, claims, back_offs } in groups {
            let known = self.load(group);
            for (consumer, joined) in consumers {
                match known {
                    true => self.join_again(group, consumer, joined),
                    false => self.gone(joined.session, consumer, GoneReason::Deleted),
                }
            }
            for claim in claims.into_iter().filter(|_| claims_hold) {
                self.claim(group, claim);
            }
            if claims_hold && let Some(found) = self.groups.get_mut(&group) {
                for back_off in back_offs {
                    found.dispatch.back_off(back_off);
                }
            }
            self.enqueue(group);
            self.note_standing(group);
        }
        for message in messages {
            self.handle(message);
        }
    }

    fn join_again(&mut self, id: LeaseGroupId, consumer: ConsumerId, joined: Joined) {
        let session = self.sessions.get_mut(&joined.session);
        let (Some(group), Some(session)) = (self.groups.get_mut(&id), session) else { return };
        // They were there together before.
        let _ = group.dispatch.join(consumer, joined);
        group.consumers.insert(consumer, joined);
        session.groups.insert(id);
    }

    fn claim(&mut self, id: LeaseGroupId, claim: Claim) {
        let session = self.sessions.get_mut(&claim.session());
        let (Some(group), Some(session)) = (self.groups.get_mut(&id), session) else { return };
        if group.dispatch.claim(claim, &mut self.pools) {
            session.groups.insert(id);
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
            let nothing_comes = self.commits.is_empty() && self.reads.is_empty();
            if self.is_wound_up() || nothing_comes {
                let wound_up = begun.elapsed();
                let left = self.leave();
                tracing::debug!(?wound_up, left = ?begun.elapsed(), "delivery of a term has ended");
                return left;
            }
            tokio::select! {
                biased;
                _ = &mut ended => return self.leave(),
                Some(done) = self.commits.next(), if !self.commits.is_empty() => {
                    self.committed(done);
                }
                Some(done) = self.reads.next(), if !self.reads.is_empty() => self.was_read(done),
            }
        }
    }

    /// Whether nothing is under way. What the engines asked to read is of no use any more.
    fn is_wound_up(&self) -> bool {
        let nothing_to_commit =
            self.commits.is_empty() && self.changed.is_empty() && self.waiters.is_empty();
        nothing_to_commit
            && self.record_reads.is_empty()
            && self.pending_takes.is_empty()
            && self.pending_transfers.is_empty()
            && self.waiting.is_empty()
    }

    /// Those who take get what was leased to them already.
    fn complete_takes(&mut self) {
        let taking = self.groups.iter().filter(|(_, group)| !group.takers.is_empty());
        let mut taking: Vec<LeaseGroupId> = taking.map(|(id, _)| *id).collect();
        taking.sort_unstable();
        for id in taking {
            let Some(group) = self.groups.get_mut(&id) else { continue };
            let has_some = |taker: &Taker| !taker.assigned.is_empty();
            let (some, none) = std::mem::take(&mut group.takers).into_iter().partition(has_some);
            group.takers = none;
            let some: VecDeque<Taker> = some;
            some.into_iter().for_each(|taker| self.hand_over(id, taker));
        }
    }

    fn leave(self) -> (Inbox, Handover) {
        let retired = self.retired.into_iter().map(|(id, (counts, _))| (id, counts));
        let mut left = Handover {
            term: self.first_token >> super::driver::TOKENS_PER_TERM_BITS,
            sessions: self.sessions,
            groups: Vec::new(),
            counts: retired.collect(),
            last_consumer: self.next_consumer - 1,
            messages: VecDeque::new(),
        };
        for session in left.sessions.values_mut() {
            session.groups.clear();
        }
        let mut groups: Vec<_> = self.groups.into_iter().collect();
        groups.sort_unstable_by_key(|(id, _)| *id);
        for (id, group) in groups {
            left.counts.insert(id, group.counts);
            if group.standing.is_some() {
                self.standings.forget(id);
            }
            // Their dead letters could not be appended: the records are delivered again.
            for (_, waiter) in group.reject_waiters {
                waiter.fail(&Unavailable::NotLeader);
            }
            let now = Instant::now();
            left.messages.extend(group.takers.into_iter().map(|taker| taker.again(id, now)));
            let dispatch = &group.dispatch;
            let (consumers, claims) = (dispatch.joined(), dispatch.claims());
            let back_offs = dispatch.back_offs();
            if !consumers.is_empty() || !claims.is_empty() || !back_offs.is_empty() {
                left.groups.push(Users { group: id, consumers, claims, back_offs });
            }
        }
        (self.inbox, left)
    }
}

impl Taker {
    fn again(self, group: LeaseGroupId, now: Instant) -> Message {
        let Taker { session, mut options, deadline, reply, .. } = self;
        options.wait = deadline.saturating_duration_since(now);
        Message::Take { session, group, options, reply }
    }
}
