//! Sessions: their consumers, limits and pending deliveries.
//!
//! This module knows the groups that a session uses, and nothing of their contents.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use crate::limits::LEASE_CONSUMERS_PER_SESSION_MAX;
use base::{HashMap, HashSet, LeaseGroupId, ShardId};
use dispatch::{Assignment, ConsumerId, Pools, PushConsumer, SessionId};
use shard::delivery::borrowed_credit::BorrowedCredit;
use shard::delivery::divided_credit::{CreditKind, Notice, ReturnedCredit};
use shard::delivery::error::ConsumeError;
use shard::delivery::event::{Delivery, Event, EventSender, GoneReason, SessionMessage};
use shard::delivery::options::{ConsumeOptions, CreditReturns};
use shard::delivery::unread::UnreadDeliveries;

use crate::open_session::Session;

pub(crate) struct Sessions {
    by_id: HashMap<SessionId, Session>,
    /// Limit of each session over all groups.
    pub(crate) pools: Pools,
    shard: ShardId,
    /// Number of shares of split credit: usually none.
    lent: usize,
    /// Shares with a debt.
    indebted: BTreeSet<(SessionId, CreditKind)>,
    /// Sessions with deliveries to send at the end of the iteration.
    outgoing: Vec<SessionId>,
    /// Sessions whose next delivery is being read.
    waiting: BTreeSet<SessionId>,
    of_connections: BTreeSet<(u64, SessionId)>,
    /// Sessions that get no deliveries because too much is unread.
    held_back: BTreeSet<SessionId>,
}

/// Deliveries of a suspended session that were not sent to it.
pub(crate) struct UnsentDeliveries {
    pub(crate) outgoing: Vec<Delivery>,
    pub(crate) waiting: VecDeque<(LeaseGroupId, Assignment)>,
}

impl Sessions {
    /// Takes over the sessions that the driver of an earlier term left.
    pub(crate) fn resume(by_id: HashMap<SessionId, Session>, shard: ShardId) -> Self {
        let mut pools = Pools::new();
        let (mut lent, mut indebted) = (0, BTreeSet::new());
        for (&id, session) in &by_id {
            pools.set_limit(id, session.pool());
            lent += session.lent.len();
            let owing = session.lent.iter().filter(|(_, lent)| lent.owed() > 0);
            indebted.extend(owing.map(|(kind, _)| (id, *kind)));
        }
        let numbered = by_id.iter().map(|(&id, session)| (session.unread.connection(), id));
        let of_connections = numbered.filter(|(number, _)| *number != 0).collect();
        let held = by_id.iter().filter(|(_, session)| session.held_back);
        let held_back = held.map(|(id, _)| *id).collect();
        let (outgoing, waiting) = (Vec::new(), BTreeSet::new());
        Self { by_id, pools, shard, lent, indebted, outgoing, waiting, of_connections, held_back }
    }

    /// The sessions for the driver of the next term, which collects their groups again.
    pub(crate) fn leave(mut self) -> HashMap<SessionId, Session> {
        for session in self.by_id.values_mut() {
            session.groups.clear();
        }
        self.by_id
    }

    pub(crate) fn open(
        &mut self,
        id: SessionId,
        events: EventSender,
        unread: Arc<UnreadDeliveries>,
    ) {
        if unread.connection() != 0 {
            self.of_connections.insert((unread.connection(), id));
        }
        let former = self.by_id.insert(id, Session::new(events, unread));
        if let Some(former) = former.filter(|former| former.suspended)
            && let Some(session) = self.by_id.get_mut(&id)
        {
            (session.consumers, session.groups) = (former.consumers, former.groups);
            session.suspended = true;
            self.lent -= former.lent.len();
            self.indebted.retain(|(of, _)| *of != id);
        }
        self.hold_back(id);
    }

    /// Stops deliveries to the session, whose relay has ended. Returns the deliveries that were not sent. `None`: it
    /// is not open.
    pub(crate) fn suspend(&mut self, id: SessionId) -> Option<UnsentDeliveries> {
        let session = self.by_id.get_mut(&id)?;
        session.suspended = true;
        session.outgoing_bytes = 0;
        self.waiting.remove(&id);
        self.pools.set_limit(id, session.pool());
        Some(UnsentDeliveries {
            outgoing: std::mem::take(&mut session.outgoing),
            waiting: std::mem::take(&mut session.waiting),
        })
    }

    /// The session's node has presented its leases.
    pub(crate) fn resume_deliveries(&mut self, id: SessionId) {
        if let Some(session) = self.by_id.get_mut(&id) {
            session.suspended = false;
            self.pools.set_limit(id, session.pool());
        }
    }

    /// Closes the session. Returns the groups in which it may hold leases.
    pub(crate) fn close(&mut self, id: SessionId) -> Option<HashSet<LeaseGroupId>> {
        let session = self.by_id.remove(&id)?;
        self.waiting.remove(&id);
        self.held_back.remove(&id);
        self.of_connections.remove(&(session.unread.connection(), id));
        self.pools.remove(id);
        self.lent -= session.lent.len();
        self.indebted.retain(|(of, _)| *of != id);
        Some(session.groups)
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = SessionId> + '_ {
        self.by_id.keys().copied()
    }

    pub(crate) fn consumers_of(&self, id: SessionId) -> Vec<ConsumerId> {
        self.by_id.get(&id).map_or_else(Vec::new, |it| it.consumers.keys().copied().collect())
    }

    pub(crate) fn is_open(&self, id: SessionId) -> bool {
        self.by_id.contains_key(&id)
    }

    /// Checks that the session may have one more consumer.
    pub(crate) fn admits_consumer(&self, id: SessionId) -> Result<(), ConsumeError> {
        let consumers = self.by_id.get(&id).map_or(0, |session| session.consumers.len());
        let at_most = LEASE_CONSUMERS_PER_SESSION_MAX;
        if consumers >= at_most {
            return Err(ConsumeError::TooManyConsumers { at_most });
        }
        Ok(())
    }

    pub(crate) fn on_joined(&mut self, id: SessionId, consumer: ConsumerId, group: LeaseGroupId) {
        if let Some(session) = self.by_id.get_mut(&id) {
            session.consumers.insert(consumer, group);
            session.groups.insert(group);
        }
    }

    /// The session may hold leases of the group from now on. False if the session is gone.
    pub(crate) fn note_use(&mut self, id: SessionId, group: LeaseGroupId) -> bool {
        let session = self.by_id.get_mut(&id);
        session.map(|session| session.groups.insert(group)).is_some()
    }

    pub(crate) fn group_of(&self, id: SessionId, consumer: ConsumerId) -> Option<LeaseGroupId> {
        self.by_id.get(&id)?.consumers.get(&consumer).copied()
    }

    pub(crate) fn groups_of(&self, id: SessionId) -> impl Iterator<Item = LeaseGroupId> + '_ {
        self.by_id.get(&id).into_iter().flat_map(|session| session.groups.iter().copied())
    }

    /// Sessions that may hold leases of the group.
    pub(crate) fn users_of(&self, group: LeaseGroupId) -> impl Iterator<Item = SessionId> + '_ {
        let users = self.by_id.iter().filter(move |(_, session)| session.groups.contains(&group));
        users.map(|(id, _)| *id)
    }

    /// The consumer gets no more records. Returns its group.
    pub(crate) fn cancel(&mut self, id: SessionId, consumer: ConsumerId) -> Option<LeaseGroupId> {
        self.forget_shares(id, consumer);
        self.by_id.get_mut(&id)?.consumers.remove(&consumer)
    }

    /// The group is gone.
    pub(crate) fn forget_group(&mut self, group: LeaseGroupId) {
        for session in self.by_id.values_mut() {
            session.groups.remove(&group);
        }
        let sharing: Vec<SessionId> = match self.lent {
            0 => Vec::new(),
            _ => self.by_id.keys().copied().collect(),
        };
        for id in sharing {
            self.note_starved(id, CreditKind::Session, group, false);
        }
    }

    pub(crate) fn limit(&mut self, id: SessionId, records: Option<u32>) {
        let Some(session) = self.by_id.get_mut(&id) else { return };
        session.limit = records;
        if !session.gets_none() {
            self.pools.set_limit(id, records);
        }
    }

    pub(crate) fn limit_of(&self, id: SessionId) -> Option<u32> {
        self.by_id.get(&id)?.limit
    }

    /// Whether the session gets no deliveries whatever its credit.
    pub(crate) fn gets_none(&self, id: SessionId) -> bool {
        self.by_id.get(&id).is_some_and(Session::gets_none)
    }

    // ------------------------------------------------------------------------------------------- shares

    pub(crate) fn any_lent(&self) -> bool {
        self.lent > 0
    }

    /// The session splits this credit over shards.
    pub(crate) fn lend(&mut self, id: SessionId, kind: CreditKind, lent: BorrowedCredit) {
        if let Some(session) = self.by_id.get_mut(&id)
            && session.lent.insert(kind, lent).is_none()
        {
            self.lent += 1;
        }
    }

    pub(crate) fn lent(&mut self, id: SessionId, kind: CreditKind) -> Option<&mut BorrowedCredit> {
        self.by_id.get_mut(&id)?.lent.get_mut(&kind)
    }

    /// The credit is no longer split.
    pub(crate) fn forget_share(&mut self, id: SessionId, kind: CreditKind) {
        if let Some(session) = self.by_id.get_mut(&id)
            && session.lent.remove(&kind).is_some()
        {
            self.lent -= 1;
            self.indebted.remove(&(id, kind));
        }
    }

    fn forget_shares(&mut self, id: SessionId, consumer: ConsumerId) {
        self.forget_share(id, CreditKind::Records(consumer));
        self.forget_share(id, CreditKind::Bytes(consumer));
    }

    /// Records whether the share has a debt.
    pub(crate) fn note_debt(&mut self, id: SessionId, kind: CreditKind) {
        let owed = self.lent(id, kind).map_or(0, |lent| lent.owed());
        match owed {
            0 => self.indebted.remove(&(id, kind)),
            _ => self.indebted.insert((id, kind)),
        };
    }

    /// Shares with a debt.
    pub(crate) fn indebted(&self) -> Vec<(SessionId, CreditKind)> {
        self.indebted.iter().copied().collect()
    }

    /// Records whether records of the group wait for more of a share; notifies the session of a change.
    pub(crate) fn note_starved(
        &mut self,
        id: SessionId,
        kind: CreditKind,
        group: LeaseGroupId,
        starved: bool,
    ) {
        let shard = self.shard;
        let change = self.lent(id, kind).and_then(|lent| lent.on_served(group, starved));
        if let Some(starved) = change {
            self.notify(id, Notice::Starved { shard, kind, starved });
        }
    }

    pub(crate) fn send_returned(&self, id: SessionId, kind: CreditKind, given: ReturnedCredit) {
        self.notify(id, Notice::Returned { shard: self.shard, kind, given });
    }

    pub(crate) fn notify(&self, id: SessionId, notice: Notice) {
        if let Some(session) = self.by_id.get(&id) {
            session.events.send(SessionMessage::Notice(notice));
        }
    }

    // ------------------------------------------------------------------------------------------- events

    /// Notifies a session that one of its consumers has ended.
    pub(crate) fn send_gone(&mut self, id: SessionId, consumer: ConsumerId, reason: GoneReason) {
        self.forget_shares(id, consumer);
        if let Some(session) = self.by_id.get_mut(&id) {
            session.send_gone(consumer, reason);
        }
    }

    /// Notifies a session whether its consumer is the active one.
    pub(crate) fn send_active(&self, id: SessionId, consumer: ConsumerId, active: bool) {
        if let Some(session) = self.by_id.get(&id) {
            session.events.send(SessionMessage::Event(Event::Active { consumer, active }, 0));
        }
    }

    /// The delivery is sent at the end of the iteration.
    pub(crate) fn queue_delivery(&mut self, id: SessionId, delivery: Delivery) {
        let Some(session) = self.by_id.get_mut(&id) else { return };
        if session.outgoing.is_empty() {
            self.outgoing.push(id);
        }
        session.outgoing_bytes += delivery.weight();
        session.outgoing.push(delivery);
    }

    /// Whether deliveries of the session wait for one that is being read: later ones queue behind them. `None`
    /// if the session is gone.
    pub(crate) fn is_waiting(&self, id: SessionId) -> Option<bool> {
        Some(!self.by_id.get(&id)?.waiting.is_empty())
    }

    /// The delivery waits until its record, or that of one before it, is read.
    pub(crate) fn wait(&mut self, group: LeaseGroupId, assignment: Assignment) {
        let Some(session) = self.by_id.get_mut(&assignment.session) else { return };
        if session.waiting.is_empty() {
            self.waiting.insert(assignment.session);
        }
        session.waiting.push_back((group, assignment));
    }

    /// Whether any delivery waits.
    pub(crate) fn any_is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Takes the sessions with waiting deliveries; those that must wait longer are put back.
    pub(crate) fn take_waiting(&mut self) -> BTreeSet<SessionId> {
        std::mem::take(&mut self.waiting)
    }

    /// The waiting deliveries of a session, in order.
    pub(crate) fn take_deliveries(
        &mut self,
        id: SessionId,
    ) -> VecDeque<(LeaseGroupId, Assignment)> {
        self.by_id.get_mut(&id).map_or_else(VecDeque::new, |it| std::mem::take(&mut it.waiting))
    }

    /// Puts back the deliveries that still wait.
    pub(crate) fn wait_on(&mut self, id: SessionId, rest: VecDeque<(LeaseGroupId, Assignment)>) {
        let Some(session) = self.by_id.get_mut(&id) else { return };
        if !rest.is_empty() {
            self.waiting.insert(id);
        }
        session.waiting = rest;
    }

    /// Takes out the first delivery of each session that matches: its record cannot be read.
    pub(crate) fn give_up(
        &mut self,
        is_it: impl Fn(LeaseGroupId, &Assignment) -> bool,
        given_up: &mut Vec<(LeaseGroupId, Assignment)>,
    ) {
        for id in &self.waiting {
            let Some(session) = self.by_id.get_mut(id) else { continue };
            let first =
                session.waiting.pop_front_if(|(group, assignment)| is_it(*group, assignment));
            given_up.extend(first);
        }
    }

    /// Sends the deliveries of this iteration, one event for each session. Calls `has_room` for sessions that
    /// were held back for too much unread but were read at the same moment.
    pub(crate) fn send(&mut self, mut has_room: impl FnMut(&Self, SessionId)) {
        for id in std::mem::take(&mut self.outgoing) {
            let Some(session) = self.by_id.get_mut(&id) else { continue };
            let deliveries = std::mem::take(&mut session.outgoing);
            let bytes = std::mem::take(&mut session.outgoing_bytes);
            if deliveries.is_empty() {
                // It was suspended or opened again meanwhile.
                continue;
            }
            session.unread.add(bytes);
            session.events.send(SessionMessage::Event(Event::Deliveries(deliveries), bytes));
            for id in self.hold_back(id) {
                has_room(self, id);
            }
        }
    }

    /// The session and those on the same connection.
    fn sharing(&self, id: SessionId, connection: u64) -> Vec<SessionId> {
        match connection {
            0 => vec![id],
            number => {
                let all = self.of_connections.range((number, 0)..=(number, SessionId::MAX));
                all.map(|(_, id)| *id).collect()
            }
        }
    }

    /// Holds back a session and all on the same connection, if too much is unread. Returns those that can
    /// resume already, because the client read at the same moment.
    fn hold_back(&mut self, id: SessionId) -> Vec<SessionId> {
        let Some(unread) = self.by_id.get(&id).map(|session| Arc::clone(&session.unread)) else {
            return Vec::new();
        };
        if !unread.is_too_much() {
            return Vec::new();
        }
        for id in self.sharing(id, unread.connection()) {
            let Some(session) = self.by_id.get_mut(&id) else { continue };
            if !std::mem::replace(&mut session.held_back, true) {
                self.held_back.insert(id);
                self.pools.set_limit(id, Some(0));
            }
        }
        unread.hold_back();
        // A read between the two steps would be reported by no reader.
        match unread.has_room() {
            true => self.on_room(id, unread.connection()),
            false => Vec::new(),
        }
    }

    /// The connection's unread bytes fell below the limit. Returns its sessions that were held back until now.
    pub(crate) fn on_room(&mut self, id: SessionId, connection: u64) -> Vec<SessionId> {
        let mut ids = self.sharing(id, connection);
        ids.retain(|id| self.held_back.remove(id));
        for id in &ids {
            let Some(session) = self.by_id.get_mut(id) else { continue };
            session.held_back = false;
            self.pools.set_limit(*id, session.pool());
        }
        ids
    }

    /// Held-back sessions for which there is room: another session of their connection ended unread, or the
    /// node's unread bytes decreased.
    pub(crate) fn with_room(&self) -> Vec<(SessionId, u64)> {
        let held_back = self.held_back.iter().filter_map(|id| Some((*id, self.by_id.get(id)?)));
        let with_room = held_back.filter(|(_, session)| session.unread.has_room());
        with_room.map(|(id, session)| (id, session.unread.connection())).collect()
    }
}

/// A consumer in the terms of its group's engine.
pub(crate) fn joined(session: SessionId, options: &ConsumeOptions) -> PushConsumer {
    PushConsumer {
        session,
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
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use record::{BatchBuilder, BatchOptions, SharedBatch};
    use shard::limits::LEASE_CONNECTION_UNREAD_BYTES_MAX;
    use tokio::sync::mpsc;

    use super::*;
    use shard::delivery::unread::NodeUnread;

    const GROUP: LeaseGroupId = LeaseGroupId(1);

    fn with_session() -> (Sessions, mpsc::UnboundedReceiver<SessionMessage>, Arc<UnreadDeliveries>)
    {
        let mut sessions = Sessions::resume(HashMap::default(), ShardId::FIRST);
        let (events, received) = mpsc::unbounded_channel();
        let unread = Arc::<NodeUnread>::default().unread_of(7);
        sessions.open(1, EventSender::Here(events), Arc::clone(&unread));
        sessions.on_joined(1, 1, GROUP);
        (sessions, received, unread)
    }

    fn delivery(bytes: usize) -> Delivery {
        let mut builder = BatchBuilder::new(BatchOptions::default());
        builder.push(0, None, Some(&vec![b'x'; bytes]), &[]).expect("it fits");
        let batch = Arc::new(SharedBatch::decode(&Bytes::from(builder.finish())).expect("a batch"));
        let record = batch.record(0).expect("its record");
        let (group, consumer, partition, offset, terms) = (GROUP, 1, 0, 0, None);
        Delivery { group, consumer, token: 1, partition, offset, attempt: 1, terms, record }
    }

    #[test]
    fn deliveries_of_one_iteration_are_one_event() {
        let (mut sessions, mut events, _) = with_session();
        sessions.queue_delivery(1, delivery(10));
        sessions.queue_delivery(1, delivery(10));
        sessions.send(|_, _| panic!("it was not held back"));
        let sent = events.try_recv().expect("an event");
        let SessionMessage::Event(Event::Deliveries(deliveries), bytes) = sent else {
            panic!("{sent:?}")
        };
        assert_eq!(deliveries.len(), 2);
        assert!(bytes > 20 && events.try_recv().is_err());
    }

    #[test]
    fn unread_connection_gets_no_deliveries_until_it_was_read() {
        let (mut sessions, _events, unread) = with_session();
        let (events, _others) = mpsc::unbounded_channel();
        let node = NodeUnread::of(&unread);
        sessions.open(2, EventSender::Here(events.clone()), node.unread_of(7));
        sessions.open(3, EventSender::Here(events.clone()), node.unread_of(8));
        sessions.limit(1, Some(5));
        unread.add(LEASE_CONNECTION_UNREAD_BYTES_MAX);
        sessions.queue_delivery(1, delivery(10));
        sessions.send(|_, _| panic!("it has read nothing"));
        // A session that opens now gets nothing either.
        sessions.open(4, EventSender::Here(events), node.unread_of(7));
        let pool = |sessions: &Sessions, id| sessions.by_id[&id].pool();
        assert_eq!([1, 2, 3, 4].map(|id| pool(&sessions, id)), [Some(0), Some(0), None, Some(0)]);
        sessions.limit(1, Some(7));
        assert_eq!(pool(&sessions, 1), Some(0));
        assert_eq!(sessions.with_room(), []);
        assert!(unread.read(LEASE_CONNECTION_UNREAD_BYTES_MAX));
        assert_eq!(sessions.with_room(), [(1, 7), (2, 7), (4, 7)]);
        assert_eq!(sessions.on_room(2, 7), [1, 2, 4]);
        assert_eq!([1, 2].map(|id| pool(&sessions, id)), [Some(7), None]);
        assert_eq!(sessions.on_room(1, 7), [0; 0], "it was reported before");
    }

    #[test]
    fn consumers_of_a_session_are_bounded() {
        let (mut sessions, _events, _) = with_session();
        for consumer in 2..=LEASE_CONSUMERS_PER_SESSION_MAX as u64 {
            assert!(sessions.admits_consumer(1).is_ok());
            sessions.on_joined(1, consumer, GROUP);
        }
        assert!(sessions.admits_consumer(1).is_err());
        assert_eq!(sessions.cancel(1, 2), Some(GROUP));
        assert!(sessions.admits_consumer(1).is_ok());
        assert_eq!(sessions.close(1).map(|groups| groups.len()), Some(1));
    }
}
