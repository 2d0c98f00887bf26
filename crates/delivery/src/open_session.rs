//! One session as a driver knows it, also kept while another node leads the shard.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use base::{HashMap, HashSet, LeaseGroupId};
use dispatch::{Assignment, ConsumerId};
use shard::delivery::borrowed_credit::BorrowedCredit;
use shard::delivery::divided_credit::CreditKind;
use shard::delivery::event::{Delivery, Event, EventSender, GoneReason, SessionMessage};
use shard::delivery::unread::UnreadDeliveries;

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) events: EventSender,
    pub(crate) unread: Arc<UnreadDeliveries>,
    pub(crate) consumers: HashMap<ConsumerId, LeaseGroupId>,
    /// Groups in which it may hold leases.
    pub(crate) groups: HashSet<LeaseGroupId>,
    /// Sent at the end of the iteration.
    pub(crate) outgoing: Vec<Delivery>,
    pub(crate) outgoing_bytes: usize,
    /// Behind a record that is being read again, in order.
    pub(crate) waiting: VecDeque<(LeaseGroupId, Assignment)>,
    pub(crate) limit: Option<u32>,
    pub(crate) held_back: bool,
    /// Its node's relay has ended, and the next one has not presented its leases: it gets no deliveries.
    pub(crate) suspended: bool,
    /// Its shares of split credit.
    pub(crate) lent: BTreeMap<CreditKind, BorrowedCredit>,
}

impl Session {
    pub(crate) fn new(events: EventSender, unread: Arc<UnreadDeliveries>) -> Self {
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
            suspended: false,
            lent: BTreeMap::new(),
        }
    }

    /// A consumer has ended. A closed receiver ignores the event.
    pub(crate) fn send_gone(&mut self, consumer: ConsumerId, reason: GoneReason) {
        self.consumers.remove(&consumer);
        self.events.send(SessionMessage::Event(Event::Gone { consumer, reason }, 0));
    }

    /// Number of records that its consumers may hold together; 0 while it gets no deliveries.
    pub(crate) fn pool(&self) -> Option<u32> {
        if self.gets_none() { Some(0) } else { self.limit }
    }

    /// Whether it gets no deliveries whatever its credit.
    pub(crate) fn gets_none(&self) -> bool {
        self.held_back || self.suspended
    }
}
