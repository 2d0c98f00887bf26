//! Messages of sessions and others to the driver.

use base::LeaseGroupId;
use dispatch::{ConsumerId, JoinRefused, Leases, SessionId};
use shard::delivery::borrowed_credit::BorrowedCredit;
use shard::delivery::divided_credit::CreditKind;
use shard::delivery::error::ConsumeError;
use shard::delivery::handle::{ConsumerRegistration, Message};
use shard::delivery::options::Credit;

use super::Driver;
use crate::overflow::Overflowed;
use crate::sessions::joined;
use crate::transfer::Decision;

impl Driver {
    pub(super) fn handle(&mut self, message: Message) {
        match message {
            Message::Open { session, events, unread } => {
                self.suspended.open(session);
                self.sessions.open(session, events, unread);
            }
            Message::Close { session } => self.close(session),
            Message::Suspend { session } => self.suspend(session),
            Message::Consume { session, group, joining, reply } => {
                let _ = reply.send(self.consume(session, group, &joining));
            }
            Message::Grant { session, consumer, credit } => self.grant(session, consumer, credit),
            Message::SetCredit { session, consumer, credit } => {
                self.set_credit(session, consumer, credit);
            }
            Message::Limit { session, records } => {
                self.sessions.forget_share(session, CreditKind::Session);
                self.sessions.limit(session, records);
                self.enqueue_groups_of(session);
            }
            Message::Share { session, kind, change } => self.share(session, kind, change),
            Message::Lend { session, kind, loan } => self.lend(session, kind, loan),
            Message::Cancel { session, consumer, reply } => {
                self.cancel(session, consumer);
                // Earlier deliveries are in its channel before the reply.
                self.send();
                let _ = reply.send(());
            }
            Message::Take { session, group, options, reply } => {
                self.take(session, group, options, reply);
            }
            Message::Settle { session, settles, again, reply } => {
                self.settle(session, &settles, again, reply);
            }
            Message::Present { claims, .. } => self.present(claims),
            Message::Presented { node } => self.on_presented(node),
            Message::Transfer { session, settles, batches, elsewhere, reply } => {
                self.transfer(session, settles, batches, Decision::Here { elsewhere, reply });
            }
            Message::Withhold { session, settles, reply } => {
                self.transfer(session, settles, Vec::new(), Decision::Elsewhere { reply });
            }
            Message::Restore { preparation, is_refused, .. } => {
                self.restore(preparation, is_refused);
            }
            Message::SettledElsewhere { settles } => self.on_settled_elsewhere(&settles),
            Message::Room { session, connection } => self.on_room(session, connection),
            Message::Moved { group, partition, sought } => self.on_moved(group, partition, sought),
            Message::Overflowed { batches, answers, reply } => {
                self.dead_letter_refused(Overflowed::new(batches, answers, reply));
            }
            Message::Query(query) => self.answer_query(query),
            Message::RecordHistory { query, reply } => {
                drop(reply.send(self.record_states(&query)));
            }
            Message::Stop => {}
        }
    }

    /// The connection's unread bytes fell below the limit.
    pub(super) fn on_room(&mut self, session: SessionId, connection: u64) {
        for session in self.sessions.on_room(session, connection) {
            self.enqueue_groups_of(session);
        }
    }

    /// Its consumers leave and its leases are released.
    pub(super) fn close(&mut self, id: SessionId) {
        self.suspended.remove(id);
        let Some(groups) = self.sessions.close(id) else { return };
        self.abandon_all_of(id);
        let now_ms = self.timeline.now_ms();
        for group in groups {
            let Some(found) = self.groups.get_mut(group) else { continue };
            found.consumers.retain(|_, joined| joined.session != id);
            found.takers.retain(|taker| taker.session != id);
            found.dispatch.end_session(id, now_ms);
            self.groups.enqueue(group);
        }
    }

    fn consume(
        &mut self,
        id: SessionId,
        group: LeaseGroupId,
        joining: &ConsumerRegistration,
    ) -> Result<bool, ConsumeError> {
        self.sessions.admits_consumer(id)?;
        let known = self.groups.load(group) && self.sessions.is_open(id);
        let ConsumerRegistration { consumer, options, divided } = joining;
        let (consumer, joined) = (*consumer, joined(id, options));
        let is_member = known && self.rejoins(group, consumer, joined);
        let Some(found) = self.groups.get_mut(group).filter(|_| known) else {
            return Err(ConsumeError::UnknownGroup(group));
        };
        if !is_member {
            found.dispatch.join(consumer, joined).map_err(|refused| match refused {
                JoinRefused::Exclusive { .. } | JoinRefused::InUse { .. } => {
                    ConsumeError::Exclusive
                }
                // Consumer ids are unique; but those of another node are not verified.
                JoinRefused::Known { .. } => ConsumeError::Exclusive,
            })?;
        }
        let active = found.dispatch.is_active(consumer);
        found.consumers.insert(consumer, joined);
        self.sessions.on_joined(id, consumer, group);
        for kind in divided {
            let share = match kind {
                CreditKind::Records(_) | CreditKind::Session => u64::from(joined.records),
                CreditKind::Bytes(_) => joined.bytes,
            };
            self.sessions.lend(id, *kind, BorrowedCredit::new(share, 0));
        }
        self.groups.enqueue(group);
        // Before the reply: records that the consumer would take at once are admitted.
        self.groups.report_backlog(group, &self.sessions.pools);
        Ok(active)
    }

    fn grant(&mut self, id: SessionId, consumer: ConsumerId, credit: Credit) {
        let Some(group) = self.sessions.group_of(id, consumer) else { return };
        if let Some(found) = self.groups.get_mut(group) {
            found.dispatch.grant(consumer, credit.records, credit.bytes);
        }
        self.groups.enqueue(group);
    }

    fn set_credit(&mut self, id: SessionId, consumer: ConsumerId, credit: Credit) {
        let Some(group) = self.sessions.group_of(id, consumer) else { return };
        if let Some(found) = self.groups.get_mut(group) {
            found.dispatch.set_credit(consumer, credit.records, credit.bytes);
            if let Some(joined) = found.consumers.get_mut(&consumer) {
                (joined.records, joined.bytes) = (credit.records, credit.bytes);
            }
        }
        self.groups.enqueue(group);
    }

    pub(super) fn cancel(&mut self, id: SessionId, consumer: ConsumerId) {
        let Some(group) = self.sessions.cancel(id, consumer) else { return };
        let now_ms = self.timeline.now_ms();
        if let Some(found) = self.groups.get_mut(group) {
            found.consumers.remove(&consumer);
            found.dispatch.leave(consumer, now_ms, Leases::Keep);
        }
        self.sessions.note_starved(id, CreditKind::Session, group, false);
        self.groups.enqueue(group);
    }

    pub(super) fn enqueue_groups_of(&mut self, id: SessionId) {
        for group in self.sessions.groups_of(id) {
            self.groups.enqueue(group);
        }
    }

    /// Sends the deliveries of this iteration.
    pub(super) fn send(&mut self) {
        let groups = &mut self.groups;
        self.sessions.send(|sessions, id| {
            for group in sessions.groups_of(id) {
                groups.enqueue(group);
            }
        });
    }
}
