//! Sessions of other nodes whose relay has ended.
//!
//! The node may be alive: its connection broke, or the term ended and this node leads the next one as well. Its
//! consumers keep their leases, and acknowledgements are on their way. So a suspended session keeps its leases
//! and consumers and gets no deliveries, until its node's next relay has presented its leases, or its relay's task
//! closes it ([`crate::relay::leader_side`]).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use base::{HashSet, LeaseGroupId};
use dispatch::{Assignment, Claim, ConsumerId, PushConsumer, SessionId, Settlement, Token};
use shard::delivery::event::Delivery;

use super::Driver;
use crate::drivers::is_of_node;
use crate::takes::Taker;

#[derive(Debug, Default)]
pub(super) struct SuspendedSessions {
    by_id: BTreeMap<SessionId, SuspendedSession>,
}

#[derive(Debug, Default)]
struct SuspendedSession {
    /// The next relay has opened it.
    is_open: bool,
    /// Consumers and leases that the next relay has announced. The others have ended.
    consumers: BTreeSet<ConsumerId>,
    leases: HashSet<(LeaseGroupId, Token)>,
}

impl SuspendedSessions {
    /// The session's next relay opens it.
    pub(super) fn open(&mut self, id: SessionId) {
        if let Some(session) = self.by_id.get_mut(&id) {
            session.is_open = true;
        }
    }

    /// The session's next relay presents leases.
    pub(super) fn add_leases(&mut self, claims: &[(LeaseGroupId, Claim)]) {
        if self.by_id.is_empty() {
            return;
        }
        for (group, claim) in claims {
            if let Some(session) = self.by_id.get_mut(&claim.session()) {
                session.leases.insert((*group, claim.token()));
            }
        }
    }

    pub(super) fn remove(&mut self, id: SessionId) {
        self.by_id.remove(&id);
    }

    fn take_of_node(&mut self, node: u64) -> BTreeMap<SessionId, SuspendedSession> {
        let (taken, left) =
            std::mem::take(&mut self.by_id).into_iter().partition(|(id, _)| is_of_node(*id, node));
        self.by_id = left;
        taken
    }
}

impl Driver {
    /// Suspends a session. Deliveries that were not sent to it are released.
    pub(super) fn suspend(&mut self, id: SessionId) {
        let Some(unsent) = self.sessions.suspend(id) else { return };
        self.suspended.by_id.insert(id, SuspendedSession::default());
        self.abandon_all_of(id);
        let of_waiting = |(group, assigned): &(_, Assignment)| (*group, assigned.selection());
        let of_outgoing = |delivery: &Delivery| (delivery.group, delivery.lease());
        let mut leases: Vec<_> = unsent.waiting.iter().map(of_waiting).collect();
        leases.extend(unsent.outgoing.iter().map(of_outgoing));
        let groups: Vec<LeaseGroupId> = self.sessions.groups_of(id).collect();
        for group in &groups {
            let Some(found) = self.groups.get_mut(*group) else { continue };
            // The next relay repeats its takes.
            let takers = std::mem::take(&mut found.takers).into_iter();
            let (ended, others): (VecDeque<Taker>, VecDeque<Taker>) =
                takers.partition(|taker| taker.session == id);
            found.takers = others;
            let assigned = ended.iter().flat_map(|taker| &taker.assigned);
            leases.extend(assigned.map(|it| (*group, it.selection())));
        }
        let now_ms = self.timeline.now_ms();
        let uncounted = Settlement::Release { delay_ms: Some(0), count: false };
        for (group, lease) in leases {
            let Some(found) = self.groups.get_mut(group) else { continue };
            let _ = found.dispatch.settle(id, lease, uncounted, now_ms);
        }
        groups.into_iter().for_each(|group| self.groups.enqueue(group));
    }

    /// Suspends the sessions of other nodes that the driver of the last term left: their relays are of that term.
    pub(super) fn suspend_relayed(&mut self) {
        let Some(here) = self.here else { return };
        let relayed: Vec<SessionId> =
            self.sessions.ids().filter(|id| !is_of_node(*id, here)).collect();
        relayed.into_iter().for_each(|id| self.suspend(id));
    }

    /// Whether the consumer was there before its session was suspended, and continues with this credit.
    pub(super) fn rejoins(
        &mut self,
        group: LeaseGroupId,
        consumer: ConsumerId,
        joined: PushConsumer,
    ) -> bool {
        let id = joined.session;
        let Some(session) = self.suspended.by_id.get_mut(&id) else { return false };
        session.consumers.insert(consumer);
        let Some(former) = self.sessions.group_of(id, consumer) else { return false };
        let found = self.groups.get_mut(former);
        if former == group && found.is_some_and(|it| it.dispatch.rejoin(consumer, joined)) {
            return true;
        }
        // A restarted node assigns the numbers of its former process.
        self.cancel(id, consumer);
        false
    }

    /// The node has announced all its sessions, consumers and leases: the others have ended.
    pub(super) fn on_presented(&mut self, node: u64) {
        for (id, announced) in self.suspended.take_of_node(node) {
            if !announced.is_open {
                self.close(id);
                continue;
            }
            let consumers = self.sessions.consumers_of(id);
            for consumer in consumers.into_iter().filter(|it| !announced.consumers.contains(it)) {
                self.cancel(id, consumer);
            }
            let now_ms = self.timeline.now_ms();
            let groups: Vec<LeaseGroupId> = self.sessions.groups_of(id).collect();
            for group in groups {
                let Some(found) = self.groups.get_mut(group) else { continue };
                let is_held = |token| announced.leases.contains(&(group, token));
                found.dispatch.end_other_leases(id, now_ms, is_held);
                self.groups.enqueue(group);
            }
            self.sessions.resume_deliveries(id);
        }
    }
}
