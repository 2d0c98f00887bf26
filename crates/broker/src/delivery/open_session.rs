//! One session, as a driver knows it, and as it is kept while another node leads.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use base::{HashMap, HashSet, LeaseGroupId};
use dispatch::{Assignment, ConsumerId};

use super::divided_credit::CreditKind;
use super::event::{Delivery, Event, EventSender, GoneReason, Sent};
use super::lent::Lent;
use super::unread::Unread;

#[derive(Debug)]
pub(super) struct Session {
    pub(super) events: EventSender,
    pub(super) unread: Arc<Unread>,
    pub(super) consumers: HashMap<ConsumerId, LeaseGroupId>,
    /// Where it may hold leases.
    pub(super) groups: HashSet<LeaseGroupId>,
    /// To be sent at the end of the turn.
    pub(super) outgoing: Vec<Delivery>,
    pub(super) outgoing_bytes: usize,
    /// Behind a record that is being read again, in order.
    pub(super) waiting: VecDeque<(LeaseGroupId, Assignment)>,
    pub(super) limit: Option<u32>,
    pub(super) held_back: bool,
    /// Of what it divides over shards.
    pub(super) lent: BTreeMap<CreditKind, Lent>,
}

impl Session {
    pub(super) fn new(events: EventSender, unread: Arc<Unread>) -> Self {
        Self {
            events,
            unread,
            consumers: HashMap::default(),
            groups: HashSet::default(),
            outgoing: Vec::new(),
            outgoing_bytes: 0,
            waiting: VecDeque::new(),
            limit: None,
            held_back: false,
            lent: BTreeMap::new(),
        }
    }

    /// A consumer is no more. A session that does not listen any more need not hear it.
    pub(super) fn tell_gone(&mut self, consumer: ConsumerId, reason: GoneReason) {
        self.consumers.remove(&consumer);
        self.events.send(Sent::Event(Event::Gone { consumer, reason }, 0));
    }

    /// How many records its consumers may hold together; none while it has too much unread.
    pub(super) fn pool(&self) -> Option<u32> {
        if self.held_back { Some(0) } else { self.limit }
    }
}
