//! One session as a driver knows it, also kept while another node leads the shard.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use base::{HashMap, HashSet, LeaseGroupId};
use dispatch::{Assignment, ConsumerId};

use super::borrowed_credit::BorrowedCredit;
use super::divided_credit::CreditKind;
use super::event::{Delivery, Event, EventSender, GoneReason, SessionMessage};
use super::unread::UnreadDeliveries;

#[derive(Debug)]
pub(super) struct Session {
    pub(super) events: EventSender,
    pub(super) unread: Arc<UnreadDeliveries>,
    pub(super) consumers: HashMap<ConsumerId, LeaseGroupId>,
    /// Groups in which it may hold leases.
    pub(super) groups: HashSet<LeaseGroupId>,
    /// Sent at the end of the iteration.
    pub(super) outgoing: Vec<Delivery>,
    pub(super) outgoing_bytes: usize,
    /// Behind a record that is being read again, in order.
    pub(super) waiting: VecDeque<(LeaseGroupId, Assignment)>,
    pub(super) limit: Option<u32>,
    pub(super) held_back: bool,
    /// Its shares of split credit.
    pub(super) lent: BTreeMap<CreditKind, BorrowedCredit>,
}

impl Session {
    pub(super) fn new(events: EventSender, unread: Arc<UnreadDeliveries>) -> Self {
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

    /// A consumer has ended. A closed receiver ignores the event.
    pub(super) fn send_gone(&mut self, consumer: ConsumerId, reason: GoneReason) {
        self.consumers.remove(&consumer);
        self.events.send(SessionMessage::Event(Event::Gone { consumer, reason }, 0));
    }

    /// Number of records that its consumers may hold together; 0 while it has too much unread.
    pub(super) fn pool(&self) -> Option<u32> {
        if self.held_back { Some(0) } else { self.limit }
    }
}
