//! A session's links to drivers: the drivers in which it is open, and the routes of its groups.
//!
//! With one shard with rows it is open there from the beginning, and nothing else is kept. With several it
//! opens itself in a driver when it first uses it.

use std::collections::BTreeSet;
use std::sync::Arc;

use base::{HashMap, LeaseGroupId, Level, PartitionId, ShardId};
use dispatch::{ConsumerId, SessionId};
use parking_lot::Mutex;
use shard::delivery::divided_credit::Notice;
use shard::delivery::event::{Event, EventSender, SessionMessage};
use shard::delivery::handle::{Handle, Message};
use shard::delivery::history::SessionUser;
use shard::delivery::options::Settle;
use shard::delivery::unread::UnreadDeliveries;
use tokio::sync::{mpsc, oneshot};

use super::session_credit::{DriverMessages, SessionCredit};
use crate::drivers::{Drivers, Route};

#[derive(Debug)]
pub struct Links {
    pub session: SessionId,
    drivers: Arc<Drivers>,
    /// `None` if there is only one.
    several: Option<Mutex<MultiShardLinks>>,
}

#[derive(Debug)]
struct MultiShardLinks {
    /// Passed to each driver when the session opens itself there; `None` once it is closed.
    events: Option<mpsc::UnboundedSender<SessionMessage>>,
    unread: Arc<UnreadDeliveries>,
    opened: BTreeSet<ShardId>,
    routes: HashMap<LeaseGroupId, Route>,
    /// Takes begin with another shard each time.
    turn: usize,
    divided: SessionCredit,
}

impl Links {
    /// Returns the receiver of the session's events, and the count of unread bytes.
    pub fn open(
        drivers: Arc<Drivers>,
        user: SessionUser,
    ) -> (Arc<Self>, mpsc::UnboundedReceiver<SessionMessage>, Arc<UnreadDeliveries>) {
        let session = drivers.next_session();
        let unread = drivers.unread().unread_of(user.connection);
        drivers.users().begin(session, user);
        let (events, receiver) = mpsc::unbounded_channel();
        let several = match drivers.only() {
            Some(only) => {
                let unread = Arc::clone(&unread);
                only.send(Message::Open { session, events: EventSender::Here(events), unread });
                None
            }
            None => Some(Mutex::new(MultiShardLinks {
                events: Some(events),
                unread: Arc::clone(&unread),
                opened: BTreeSet::new(),
                routes: HashMap::default(),
                turn: 0,
                divided: SessionCredit::new(session),
            })),
        };
        (Arc::new(Self { session, drivers, several }), receiver, unread)
    }

    pub fn next_consumer(&self) -> ConsumerId {
        self.drivers.next_consumer()
    }

    /// The only driver, if there is one.
    pub fn only(&self) -> Option<&Handle> {
        self.drivers.only()
    }

    /// The cluster's level, as this node knows it.
    pub(crate) fn level(&self) -> Level {
        self.drivers.level()
    }

    /// Sends to the driver of a shard; opens the session there first.
    pub fn send(&self, shard: ShardId, message: Message) {
        match &self.several {
            None => self.drivers.of(shard).send(message),
            Some(several) => several.lock().send(self, shard, message),
        }
    }

    /// Sends to all drivers in which the session is open.
    pub(crate) fn send_to_opened(&self, message: impl Fn() -> Message) {
        let Some(several) = &self.several else {
            return self.drivers.all().iter().for_each(|driver| driver.send(message()));
        };
        for shard in &several.lock().opened {
            self.drivers.of(*shard).send(message());
        }
    }

    /// The connection's unread bytes fell below the limit. This also reaches drivers that hold back only other
    /// sessions of the connection.
    pub(crate) fn report_room(&self, connection: u64) {
        let session = self.session;
        let message = || Message::Room { session, connection };
        match connection {
            0 => self.send_to_opened(message),
            _ => self.drivers.all().iter().for_each(|driver| driver.send(message())),
        }
    }

    /// Closes the session in all drivers.
    pub fn close(&self) {
        let session = self.session;
        self.send_to_opened(|| Message::Close { session });
        self.drivers.users().end(session);
        if let Some(several) = &self.several {
            let mut several = several.lock();
            several.events = None;
            several.opened.clear();
        }
    }

    /// Placement of a group's partitions; `None` if the group does not exist.
    pub fn route(&self, group: LeaseGroupId) -> Option<Route> {
        match &self.several {
            None => self.drivers.route(group),
            Some(several) => several.lock().route(&self.drivers, group),
        }
    }

    /// Whether the group still exists, regardless of cached routes.
    pub(crate) fn is_there(&self, group: LeaseGroupId) -> bool {
        let there = self.drivers.route(group).is_some();
        if !there && let Some(several) = &self.several {
            several.lock().routes.remove(&group);
        }
        there
    }

    /// The shard of a settle.
    pub fn shard_of(&self, settle: &Settle) -> ShardId {
        let several = self.several.as_ref();
        several.map_or(ShardId::FIRST, |it| it.lock().shard_of(&self.drivers, settle))
    }

    /// The only shard of these settles; `None` if there are several.
    pub fn one_shard_of(&self, settles: &[Settle]) -> Option<ShardId> {
        let Some(several) = &self.several else { return Some(ShardId::FIRST) };
        let mut several = several.lock();
        let mut shards = settles.iter().map(|settle| several.shard_of(&self.drivers, settle));
        let first = shards.next().unwrap_or(ShardId::FIRST);
        shards.all(|shard| shard == first).then_some(first)
    }

    /// The shards of the partitions that batches are for.
    pub(crate) fn shards_of(&self, partitions: impl Iterator<Item = PartitionId>) -> Vec<ShardId> {
        self.drivers.shards_of(partitions)
    }

    /// Index of the shard, of `count`, to query first this time.
    pub(crate) fn next_turn(&self, count: usize) -> usize {
        let Some(several) = &self.several else { return 0 };
        let mut several = several.lock();
        several.turn = several.turn.wrapping_add(1);
        several.turn % count.max(1)
    }

    /// Changes the split of credit, and sends the messages that result.
    pub fn divide(&self, change: impl FnOnce(&mut SessionCredit) -> DriverMessages) {
        self.with_divided(|divided| (change(divided), ()));
    }

    /// As [`Self::divide`]. All messages are sent before the next change.
    pub fn with_divided<R>(
        &self,
        change: impl FnOnce(&mut SessionCredit) -> (DriverMessages, R),
    ) -> Option<R> {
        let mut several = self.several.as_ref()?.lock();
        let (messages, result) = change(&mut several.divided);
        several.send_all(self, messages);
        Some(result)
    }

    /// Handles a message that is not for the session's user.
    pub(crate) fn on_notice(&self, notice: Notice) {
        match notice {
            Notice::Grown { group } => self.on_grown(group),
            _ => self.divide(|divided| divided.on_notice(notice)),
        }
    }

    /// Whether the session's user gets the event. A consumer in several shards ends once.
    pub(crate) fn on_event(&self, event: &Event) -> bool {
        match *event {
            Event::Deliveries(_) => true,
            Event::Active { consumer, active } => {
                self.divide(|divided| divided.on_active(consumer, active));
                true
            }
            Event::Gone { consumer, .. } => {
                let gone = |divided: &mut SessionCredit| {
                    (DriverMessages::new(), divided.remove(consumer).is_some())
                };
                self.with_divided(gone).unwrap_or(true)
            }
        }
    }

    /// The group's topic has more partitions: its consumers join in the new shards.
    pub fn on_grown(&self, group: LeaseGroupId) {
        let Some(route) = self.route(group) else { return };
        let shards = route.shards();
        self.divide(|divided| {
            let mut messages = DriverMessages::new();
            for consumer in divided.consumers_of(group) {
                messages.extend(self.join_further(divided, consumer, group, &shards));
            }
            messages
        });
    }

    /// Joins a consumer in the shards where it is missing. The replies are not awaited.
    pub fn join_further(
        &self,
        divided: &mut SessionCredit,
        consumer: ConsumerId,
        group: LeaseGroupId,
        shards: &[ShardId],
    ) -> DriverMessages {
        let mut messages = DriverMessages::new();
        for shard in divided.grow(consumer, shards) {
            messages.extend(divided.add_shard(consumer, shard));
            let Some((before, joining)) = divided.join(consumer, shard) else { continue };
            messages.extend(before);
            let (reply, _) = oneshot::channel();
            let session = self.session;
            messages.push((shard, Message::Consume { session, group, joining, reply }));
            messages.extend(divided.rounds(consumer, shard));
        }
        messages
    }
}

impl MultiShardLinks {
    fn send(&mut self, links: &Links, shard: ShardId, message: Message) {
        let Some(events) = &self.events else { return };
        let driver = links.drivers.of(shard);
        if self.opened.insert(shard) {
            let events = EventSender::Here(events.clone());
            let unread = Arc::clone(&self.unread);
            driver.send(Message::Open { session: links.session, events, unread });
        }
        driver.send(message);
    }

    fn send_all(&mut self, links: &Links, messages: DriverMessages) {
        for (shard, message) in messages {
            self.send(links, shard, message);
        }
    }

    fn shard_of(&mut self, drivers: &Drivers, settle: &Settle) -> ShardId {
        // A partition's shard never changes, and a deleted group has leases in no shard.
        let known = self.routes.get(&settle.group).cloned();
        let route = known.or_else(|| self.route(drivers, settle.group));
        route.map_or(ShardId::FIRST, |route| route.shard_of(settle.what.partition()))
    }

    fn route(&mut self, drivers: &Drivers, group: LeaseGroupId) -> Option<Route> {
        if let Some(route) = self.routes.get(&group).filter(|route| !route.may_grow()) {
            return Some(route.clone());
        }
        match drivers.route(group) {
            Some(route) => {
                self.routes.insert(group, route.clone());
                Some(route)
            }
            None => {
                self.routes.remove(&group);
                None
            }
        }
    }
}
