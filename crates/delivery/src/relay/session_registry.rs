//! The sessions of this node and their consumers while another node leads: the state that they need to rejoin
//! at any node that leads next, this one included.
//!
//! A consumer's credit is that of its session's requests, updated as the driver updates it: deliveries here use
//! up grants, and credit that the driver returned reduces shares. A window is full again when its consumer
//! rejoins; its leases at that time are presented and count again.

use std::collections::BTreeMap;

use base::{HashMap, LeaseGroupId};
use dispatch::{Claim, ConsumerId, PushConsumer, SessionId};
use shard::delivery::borrowed_credit::BorrowedCredit;
use shard::delivery::divided_credit::{Change, CreditKind, Notice};
use shard::delivery::error::ConsumeError;
use shard::delivery::event::{Delivery, Event, GoneReason, SessionMessage};
use shard::delivery::handle::{ConsumerRegistration, Message};
use shard::delivery::options::{ConsumeOptions, Credit, CreditReturns};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::open_session::Session;
use crate::sessions::joined;

pub(super) type ConsumeReply = oneshot::Sender<Result<bool, ConsumeError>>;

#[derive(Debug, Default)]
pub(super) struct SessionRegistry {
    pub(super) sessions: HashMap<SessionId, Session>,
    members: BTreeMap<ConsumerId, Member>,
}

/// A consumer.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) session: SessionId,
    pub(super) group: LeaseGroupId,
    pub(super) joined: PushConsumer,
    /// Last report to its session, in a group with a single active consumer; `None`: not known here.
    active: Option<bool>,
    /// The caller that waits for its first join, and the deadline.
    reply: Option<(ConsumeReply, Instant)>,
}

impl Member {
    pub(super) fn options(&self) -> ConsumeOptions {
        let joined = self.joined;
        ConsumeOptions {
            credit: Credit { records: joined.records, bytes: joined.bytes },
            credit_returns: match joined.credit {
                dispatch::Credit::Window => CreditReturns::OnSettle,
                dispatch::Credit::Grants => CreditReturns::OnGrant,
            },
            priority: joined.priority,
            exclusive: joined.exclusive,
            settle_on_send: joined.settle_on_send,
            lease_ms: joined.lease_ms,
        }
    }
}

impl SessionRegistry {
    pub(super) fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Adds a consumer that a driver of this node had until it lost the shard.
    pub(super) fn add(&mut self, group: LeaseGroupId, consumer: ConsumerId, joined: PushConsumer) {
        let Some(session) = self.sessions.get_mut(&joined.session) else { return };
        session.consumers.insert(consumer, group);
        let member = Member { session: joined.session, group, joined, active: None, reply: None };
        self.members.insert(consumer, member);
    }

    /// Removes the session and its consumers.
    pub(super) fn close(&mut self, id: SessionId) -> bool {
        let Some(session) = self.sessions.remove(&id) else { return false };
        for consumer in session.consumers.keys() {
            self.members.remove(consumer);
        }
        true
    }

    /// The consumer is to join for the first time.
    pub(super) fn join(
        &mut self,
        id: SessionId,
        group: LeaseGroupId,
        joining: ConsumerRegistration,
        reply: (ConsumeReply, Instant),
    ) -> Result<(), ConsumeError> {
        let ConsumerRegistration { consumer, options, divided } = joining;
        let joined = joined(id, &options);
        let Some(session) = self.sessions.get_mut(&id) else {
            let _ = reply.0.send(Err(ConsumeError::UnknownGroup(group)));
            return Err(ConsumeError::UnknownGroup(group));
        };
        session.consumers.insert(consumer, group);
        for kind in divided {
            let share = match kind {
                CreditKind::Records(_) | CreditKind::Session => u64::from(joined.records),
                CreditKind::Bytes(_) => joined.bytes,
            };
            session.lent.insert(kind, BorrowedCredit::new(share, 0));
        }
        let reply = Some(reply);
        let member = Member { session: id, group, joined, active: None, reply };
        self.members.insert(consumer, member);
        Ok(())
    }

    pub(super) fn member(&self, consumer: ConsumerId) -> Option<&Member> {
        self.members.get(&consumer)
    }

    /// All consumers, in the order of rejoining: in a group with a single active consumer that one first.
    pub(super) fn in_order(&self) -> Vec<ConsumerId> {
        let mut all: Vec<(bool, ConsumerId)> = self
            .members
            .iter()
            .map(|(consumer, member)| (member.active == Some(false), *consumer))
            .collect();
        all.sort_unstable();
        all.into_iter().map(|(_, consumer)| consumer).collect()
    }

    pub(super) fn remove(&mut self, consumer: ConsumerId) -> Option<Member> {
        let member = self.members.remove(&consumer)?;
        if let Some(session) = self.sessions.get_mut(&member.session) {
            session.consumers.remove(&consumer);
            session.lent.remove(&CreditKind::Records(consumer));
            session.lent.remove(&CreditKind::Bytes(consumer));
        }
        Some(member)
    }

    /// The consumer has ended: notifies its session, or fails the caller that waits for its join.
    pub(super) fn gone(&mut self, consumer: ConsumerId, reason: GoneReason) {
        let Some(member) = self.remove(consumer) else { return };
        if let Some((reply, _)) = member.reply {
            let _ = reply.send(Err(match reason {
                GoneReason::Deleted => ConsumeError::UnknownGroup(member.group),
                GoneReason::LedElsewhere => ConsumeError::Exclusive,
            }));
        } else if let Some(session) = self.sessions.get_mut(&member.session) {
            session.send_gone(consumer, reason);
        }
    }

    /// It has joined.
    pub(super) fn on_joined(&mut self, consumer: ConsumerId, active: bool) {
        let Some(member) = self.members.get_mut(&consumer) else { return };
        if let Some((reply, _)) = member.reply.take() {
            member.active = Some(active);
            let _ = reply.send(Ok(active));
        } else {
            self.on_active(consumer, active);
        }
    }

    /// Its join was refused.
    pub(super) fn on_refused(&mut self, consumer: ConsumerId, error: ConsumeError) {
        let Some(member) = self.members.get_mut(&consumer) else { return };
        match member.reply.take() {
            Some((reply, _)) => {
                self.remove(consumer);
                let _ = reply.send(Err(error));
            }
            None => self.gone(
                consumer,
                match error {
                    ConsumeError::UnknownGroup(_) => GoneReason::Deleted,
                    _ => GoneReason::LedElsewhere,
                },
            ),
        }
    }

    /// Removes consumers that waited too long for their first join, and returns their reply channels.
    pub(super) fn expired(&mut self, now: Instant) -> Vec<ConsumeReply> {
        let is_late = |member: &Member| member.reply.as_ref().is_some_and(|(_, at)| *at <= now);
        let late: Vec<ConsumerId> =
            self.members.iter().filter(|(_, it)| is_late(it)).map(|(id, _)| *id).collect();
        let removed = late.into_iter().filter_map(|consumer| self.remove(consumer));
        removed.filter_map(|member| member.reply).map(|(reply, _)| reply).collect()
    }

    /// Notifies the session which of its consumers is active, if that changed.
    pub(super) fn on_active(&mut self, consumer: ConsumerId, active: bool) {
        let Some(member) = self.members.get_mut(&consumer) else { return };
        if member.active.replace(active) != Some(active)
            && let Some(session) = self.sessions.get(&member.session)
        {
            session.events.send(SessionMessage::Event(Event::Active { consumer, active }, 0));
        }
    }

    // ---------------------------------------------------------------------------------------- credit

    pub(super) fn grant(&mut self, consumer: ConsumerId, credit: Credit) {
        let Some(member) = self.members.get_mut(&consumer) else { return };
        let joined = &mut member.joined;
        if joined.records != u32::MAX {
            joined.records = joined.records.saturating_add(credit.records).min(u32::MAX - 1);
        }
        if joined.bytes != u64::MAX {
            joined.bytes = joined.bytes.saturating_add(credit.bytes).min(u64::MAX - 1);
        }
    }

    pub(super) fn set_credit(&mut self, consumer: ConsumerId, credit: Credit) {
        if let Some(member) = self.members.get_mut(&consumer) {
            (member.joined.records, member.joined.bytes) = (credit.records, credit.bytes);
        }
    }

    pub(super) fn limit(&mut self, id: SessionId, records: Option<u32>) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.lent.remove(&CreditKind::Session);
            session.limit = records;
        }
    }

    /// Changes a share as a driver does.
    pub(super) fn share(&mut self, id: SessionId, kind: CreditKind, change: Change) {
        let Some(credit) = self.credit(id, kind) else { return };
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let credit = match change {
            Change::Begin { round } => {
                session.lent.insert(kind, BorrowedCredit::new(credit, round));
                return;
            }
            Change::Set { amount, round } => {
                session.lent.entry(kind).or_default().set(amount, round);
                amount
            }
            Change::Unlimited => {
                session.lent.remove(&kind);
                u64::MAX
            }
            Change::Grant(amount) => {
                let Some(lent) = session.lent.get_mut(&kind) else { return };
                lent.grant(amount);
                credit.saturating_add(amount)
            }
            Change::Return { in_all } => {
                if let Some(lent) = session.lent.get_mut(&kind) {
                    lent.request_return(in_all);
                }
                return;
            }
        };
        self.set_credit_of(id, kind, credit);
    }

    /// Applies a driver's notice about a share.
    pub(super) fn note(&mut self, id: SessionId, notice: &Notice) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        match notice {
            Notice::Starved { kind, starved, .. } => {
                if let Some(lent) = session.lent.get_mut(kind) {
                    lent.note_starved_notice(*starved);
                }
            }
            Notice::Returned { kind, given, .. } => {
                let lent = session.lent.get_mut(kind);
                if lent.is_some_and(|lent| lent.note_returned(given)) {
                    let credit = self.credit(id, *kind).unwrap_or(0);
                    self.set_credit_of(id, *kind, credit.saturating_sub(given.amount));
                }
            }
            Notice::Grown { .. } => {}
        }
    }

    /// Deliveries use up grants.
    pub(super) fn on_deliveries(&mut self, deliveries: &[Delivery]) {
        for delivery in deliveries {
            let Some(member) = self.members.get_mut(&delivery.consumer) else { continue };
            let joined = &mut member.joined;
            if joined.credit == dispatch::Credit::Window {
                continue;
            }
            if joined.records != u32::MAX {
                joined.records = joined.records.saturating_sub(1);
            }
            if joined.bytes != u64::MAX {
                joined.bytes = joined.bytes.saturating_sub(delivery.record.encoded_len() as u64);
            }
        }
    }

    /// `None`: the session or consumer does not exist.
    fn credit(&self, id: SessionId, kind: CreditKind) -> Option<u64> {
        Some(match kind {
            CreditKind::Records(consumer) => self.members.get(&consumer)?.joined.records.into(),
            CreditKind::Bytes(consumer) => self.members.get(&consumer)?.joined.bytes,
            CreditKind::Session => self.sessions.get(&id)?.limit.unwrap_or(0).into(),
        })
    }

    fn set_credit_of(&mut self, id: SessionId, kind: CreditKind, amount: u64) {
        let records = u32::try_from(amount).unwrap_or(u32::MAX);
        match kind {
            CreditKind::Records(consumer) => {
                if let Some(member) = self.members.get_mut(&consumer) {
                    member.joined.records = records;
                }
            }
            CreditKind::Bytes(consumer) => {
                if let Some(member) = self.members.get_mut(&consumer) {
                    member.joined.bytes = amount;
                }
            }
            CreditKind::Session => {
                if let Some(session) = self.sessions.get_mut(&id) {
                    session.limit = Some(records);
                }
            }
        }
    }

    // ------------------------------------------------------------------------ handover to the local driver

    /// This node leads: its driver gets all sessions, and the consumers that have joined, by group. Consumers
    /// that wait for their first join do so by a message.
    pub(super) fn hand_over(mut self, leased: Vec<(LeaseGroupId, Claim)>) -> DriverHandover {
        let mut groups: BTreeMap<LeaseGroupId, Vec<(ConsumerId, PushConsumer)>> = BTreeMap::new();
        let mut messages = Vec::new();
        for consumer in self.in_order() {
            let Some(mut member) = self.members.remove(&consumer) else { continue };
            let (id, group) = (member.session, member.group);
            let Some((reply, _)) = member.reply.take() else {
                groups.entry(group).or_default().push((consumer, member.joined));
                continue;
            };
            let Some(session) = self.sessions.get_mut(&id) else { continue };
            session.consumers.remove(&consumer);
            let of_consumer = [CreditKind::Records(consumer), CreditKind::Bytes(consumer)];
            let lent = of_consumer
                .into_iter()
                .filter_map(|kind| Some((kind, session.lent.remove(&kind)?)));
            let lent: Vec<(CreditKind, BorrowedCredit)> = lent.collect();
            let joining =
                ConsumerRegistration { consumer, options: member.options(), divided: Vec::new() };
            messages.push(Message::Consume { session: id, group, joining, reply });
            messages.extend(lent.into_iter().map(|(kind, lent)| Message::Lend {
                session: id,
                kind,
                loan: lent.loan(),
            }));
        }
        DriverHandover { sessions: self.sessions, groups, leased, messages }
    }
}

/// Initial state for a driver of this node.
pub(crate) struct DriverHandover {
    pub(crate) sessions: HashMap<SessionId, Session>,
    pub(crate) groups: BTreeMap<LeaseGroupId, Vec<(ConsumerId, PushConsumer)>>,
    pub(crate) leased: Vec<(LeaseGroupId, Claim)>,
    pub(crate) messages: Vec<Message>,
}
