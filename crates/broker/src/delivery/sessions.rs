//! Sessions as the driver sees them: who consumes what, and what is on its way to whom.

use std::collections::VecDeque;
use std::sync::Arc;

use base::limits::{LEASE_CONSUMERS_PER_SESSION_MAX, LEASE_SESSION_UNREAD_BYTES_MAX};
use base::{HashMap, HashSet, LeaseGroupId};
use dispatch::{Assignment, ConsumerId, JoinRefused, Joined, Leases, SessionId};
use tokio::sync::mpsc;

use super::driver::Driver;
use super::error::ConsumeError;
use super::event::{Delivery, Event, GoneReason, Sent, Unread};
use super::options::{ConsumeOptions, Credit, CreditReturns};

#[derive(Debug)]
pub(super) struct Session {
    pub(super) events: mpsc::UnboundedSender<Sent>,
    unread: Arc<Unread>,
    pub(super) consumers: HashMap<ConsumerId, LeaseGroupId>,
    /// Where it may hold leases.
    pub(super) groups: HashSet<LeaseGroupId>,
    /// To be sent at the end of the turn.
    pub(super) outgoing: Vec<Delivery>,
    pub(super) outgoing_bytes: usize,
    /// Behind a record that is being read again, in order.
    pub(super) waiting: VecDeque<(LeaseGroupId, Assignment)>,
    limit: Option<u32>,
    held_back: bool,
}

impl Session {
    /// How many records its consumers may hold together; none while it has too much unread.
    pub(super) fn pool(&self) -> Option<u32> {
        if self.held_back { Some(0) } else { self.limit }
    }
}

impl Driver {
    pub(super) fn open(
        &mut self,
        id: SessionId,
        events: mpsc::UnboundedSender<Sent>,
        unread: Arc<Unread>,
    ) {
        let session = Session {
            events,
            unread,
            consumers: HashMap::default(),
            groups: HashSet::default(),
            outgoing: Vec::new(),
            outgoing_bytes: 0,
            waiting: VecDeque::new(),
            limit: None,
            held_back: false,
        };
        self.sessions.insert(id, session);
    }

    /// Its consumers leave and what it holds is available again.
    pub(super) fn close(&mut self, id: SessionId) {
        let Some(session) = self.sessions.remove(&id) else { return };
        self.waiting.remove(&id);
        let now_ms = self.timeline.now_ms();
        for group in session.groups {
            let Some(found) = self.groups.get_mut(&group) else { continue };
            found.consumers.retain(|_, joined| joined.session != id);
            found.takers.retain(|taker| taker.session != id);
            found.dispatch.end_session(id, now_ms);
            self.enqueue(group);
        }
        self.pools.remove(id);
    }

    pub(super) fn consume(
        &mut self,
        id: SessionId,
        group: LeaseGroupId,
        options: &ConsumeOptions,
    ) -> Result<ConsumerId, ConsumeError> {
        let consumers = self.sessions.get(&id).map_or(0, |session| session.consumers.len());
        if consumers >= LEASE_CONSUMERS_PER_SESSION_MAX {
            let at_most = LEASE_CONSUMERS_PER_SESSION_MAX;
            return Err(ConsumeError::TooManyConsumers { at_most });
        }
        if !self.load(group) {
            return Err(ConsumeError::UnknownGroup(group));
        }
        let consumer = self.next_consumer;
        let joined = Joined {
            session: id,
            records: options.credit.records,
            bytes: options.credit.bytes,
            credit: match options.credit_returns {
                CreditReturns::OnSettle => dispatch::Credit::Window,
                CreditReturns::OnGrant => dispatch::Credit::Grants,
            },
            priority: options.priority,
            exclusive: options.exclusive,
            settle_on_send: options.settle_on_send,
            lease_ms: options.lease_ms,
        };
        let (Some(found), Some(session)) =
            (self.groups.get_mut(&group), self.sessions.get_mut(&id))
        else {
            return Err(ConsumeError::UnknownGroup(group));
        };
        found.dispatch.join(consumer, joined).map_err(|refused| match refused {
            JoinRefused::Exclusive { .. } | JoinRefused::InUse { .. } => ConsumeError::Exclusive,
            JoinRefused::Known { .. } => unreachable!("consumer numbers are given out once"),
        })?;
        self.next_consumer += 1;
        found.consumers.insert(consumer, joined);
        session.consumers.insert(consumer, group);
        session.groups.insert(group);
        self.enqueue(group);
        // Before anybody knows: what it would take at once finds room.
        self.note_standing(group);
        Ok(consumer)
    }

    pub(super) fn grant(&mut self, id: SessionId, consumer: ConsumerId, credit: Credit) {
        let Some(group) = self.group_of(id, consumer) else { return };
        if let Some(found) = self.groups.get_mut(&group) {
            found.dispatch.grant(consumer, credit.records, credit.bytes);
        }
        self.enqueue(group);
    }

    pub(super) fn set_credit(&mut self, id: SessionId, consumer: ConsumerId, credit: Credit) {
        let Some(group) = self.group_of(id, consumer) else { return };
        if let Some(found) = self.groups.get_mut(&group) {
            found.dispatch.set_credit(consumer, credit.records, credit.bytes);
            if let Some(joined) = found.consumers.get_mut(&consumer) {
                (joined.records, joined.bytes) = (credit.records, credit.bytes);
            }
        }
        self.enqueue(group);
    }

    fn group_of(&self, id: SessionId, consumer: ConsumerId) -> Option<LeaseGroupId> {
        self.sessions.get(&id)?.consumers.get(&consumer).copied()
    }

    pub(super) fn limit(&mut self, id: SessionId, records: Option<u32>) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.limit = records;
        if !session.held_back {
            self.pools.set_limit(id, records);
        }
        self.enqueue_groups_of(id);
    }

    pub(super) fn enqueue_groups_of(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get(&id) else { return };
        let groups: Vec<LeaseGroupId> = session.groups.iter().copied().collect();
        for group in groups {
            self.enqueue(group);
        }
    }

    pub(super) fn cancel(&mut self, id: SessionId, consumer: ConsumerId) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let Some(group) = session.consumers.remove(&consumer) else { return };
        let now_ms = self.timeline.now_ms();
        if let Some(found) = self.groups.get_mut(&group) {
            found.consumers.remove(&consumer);
            found.dispatch.leave(consumer, now_ms, Leases::Keep);
        }
        self.enqueue(group);
    }

    /// Tells a session that a consumer of its is no more.
    pub(super) fn gone(&mut self, id: SessionId, consumer: ConsumerId, reason: GoneReason) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.consumers.remove(&consumer);
        // Who does not listen any more need not hear it.
        let _ = session.events.send((Event::Gone { consumer, reason }, 0));
    }

    /// Sends what this turn handed out, to each session at once.
    pub(super) fn send(&mut self) {
        for id in std::mem::take(&mut self.outgoing) {
            let Some(session) = self.sessions.get_mut(&id) else { continue };
            let deliveries = std::mem::take(&mut session.outgoing);
            let bytes = std::mem::take(&mut session.outgoing_bytes);
            session.unread.add(bytes);
            let _ = session.events.send((Event::Deliveries(deliveries), bytes));
            if session.unread.bytes() > LEASE_SESSION_UNREAD_BYTES_MAX && !session.held_back {
                session.held_back = true;
                session.unread.hold_back();
                self.pools.set_limit(id, Some(0));
                // It may have read all of it just now, and then nobody would say so.
                if session.unread.bytes() <= LEASE_SESSION_UNREAD_BYTES_MAX / 2 {
                    self.has_room(id);
                }
            }
        }
    }

    pub(super) fn has_room(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        if std::mem::replace(&mut session.held_back, false) {
            self.pools.set_limit(id, session.limit);
            self.enqueue_groups_of(id);
        }
    }
}
