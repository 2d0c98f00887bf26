use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use driver::{Message, Style, Topology};

/// Position of a message in its queue. A returned message keeps its place.
pub(super) type Place = u64;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct ReceiverId(u64);

impl ReceiverId {
    pub(super) fn unique() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// Assignment of messages to receivers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sharing {
    /// Any receiver gets any message.
    Free,
    /// A receiver owns a lane while it has an unsettled message of it.
    Lanes,
    /// One receiver owns each partition.
    Partitions(u32),
}

#[derive(Clone, Debug)]
struct Entry {
    lane: u32,
    body: Bytes,
    redelivered: bool,
    /// Number of releases.
    released: u32,
}

#[derive(Debug)]
struct InFlight {
    entry: Entry,
    receiver: ReceiverId,
    /// `None`: until the receiver is gone.
    until: Option<Instant>,
}

/// A delivered message.
#[derive(Debug)]
pub(super) struct Delivery {
    pub(super) place: Place,
    pub(super) body: Bytes,
    pub(super) redelivered: bool,
}

/// All messages of one destination for one subscription.
#[derive(Debug)]
pub(super) struct Queue {
    sharing: Sharing,
    lease: Option<Duration>,
    delivery_limit: Option<u32>,
    ready: BTreeMap<Place, Entry>,
    in_flight: BTreeMap<Place, InFlight>,
    /// By lane: the receiver with messages of it in flight, and their number.
    lane_holders: HashMap<u32, (ReceiverId, u32)>,
    /// By lane: messages to be moved behind the lane's next message.
    held: HashMap<u32, Vec<Entry>>,
    /// Messages that a crash loses, the oldest first. They are not delivered before as many others
    /// follow.
    unwritten: VecDeque<Entry>,
    unwritten_max: usize,
    receivers: BTreeSet<ReceiverId>,
    next: Place,
}

impl Queue {
    /// `unwritten_max`: number of messages that a crash loses.
    pub(super) fn of(topology: &Topology, unwritten_max: usize) -> Self {
        let sharing = match topology.style {
            Style::Log => Sharing::Partitions(topology.partitions.max(1)),
            Style::Queue if topology.ordered => Sharing::Lanes,
            Style::Queue => Sharing::Free,
        };
        Self {
            sharing,
            lease: (topology.style == Style::Queue).then_some(topology.lease),
            delivery_limit: topology.delivery_limit,
            ready: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            lane_holders: HashMap::new(),
            held: HashMap::new(),
            unwritten: VecDeque::new(),
            unwritten_max,
            receivers: BTreeSet::new(),
            next: 0,
        }
    }

    /// `twice`: adds an unmarked duplicate. `later`: moves it behind the next message of its lane.
    pub(super) fn put(&mut self, message: &Message, twice: bool, later: bool) {
        let lane = message.lane;
        let entry = Entry { lane, body: message.body.clone(), redelivered: false, released: 0 };
        if twice {
            self.append(entry.clone());
        }
        if later && !twice {
            self.held.entry(lane).or_default().push(entry);
            return;
        }
        self.append(entry);
        for held in self.held.remove(&lane).into_iter().flatten() {
            self.append(held);
        }
    }

    fn append(&mut self, entry: Entry) {
        self.unwritten.push_back(entry);
        self.write_all_but(self.unwritten_max);
    }

    fn write_all_but(&mut self, unwritten_max: usize) {
        while self.unwritten.len() > unwritten_max
            && let Some(entry) = self.unwritten.pop_front()
        {
            self.ready.insert(self.next, entry);
            self.next += 1;
        }
    }

    pub(super) fn release_held(&mut self) {
        for held in std::mem::take(&mut self.held).into_values().flatten() {
            self.append(held);
        }
        self.write_all_but(0);
    }

    /// Simulates a kill of the process: unwritten messages and receivers are gone.
    pub(super) fn crash(&mut self) {
        self.unwritten.clear();
        self.receivers.clear();
        self.take_back(|_| true);
    }

    pub(super) fn join(&mut self, receiver: ReceiverId) {
        self.receivers.insert(receiver);
        self.take_back_moved_partitions();
    }

    pub(super) fn leave(&mut self, receiver: ReceiverId) {
        self.receivers.remove(&receiver);
        self.take_back(|in_flight| in_flight.receiver == receiver);
        self.take_back_moved_partitions();
    }

    pub(super) fn take(&mut self, by: ReceiverId, max: usize, now: Instant) -> Vec<Delivery> {
        self.take_back(|in_flight| in_flight.until.is_some_and(|until| until <= now));
        // If one message of a lane is skipped, the whole lane must wait; lanes of other receivers
        // are skipped anyway.
        let allowed = self.ready.iter().filter(|(_, entry)| self.may_take(by, entry.lane));
        let places: Vec<Place> = allowed.map(|(place, _)| *place).take(max).collect();
        places.into_iter().filter_map(|place| self.give(by, place, now)).collect()
    }

    fn may_take(&self, by: ReceiverId, lane: u32) -> bool {
        match self.sharing {
            Sharing::Free => true,
            Sharing::Lanes => self.lane_holders.get(&lane).is_none_or(|(holder, _)| *holder == by),
            Sharing::Partitions(count) => self.owner(lane % count) == Some(by),
        }
    }

    fn owner(&self, partition: u32) -> Option<ReceiverId> {
        let turn = (partition as usize).checked_rem(self.receivers.len())?;
        self.receivers.iter().nth(turn).copied()
    }

    fn give(&mut self, to: ReceiverId, place: Place, now: Instant) -> Option<Delivery> {
        let entry = self.ready.remove(&place)?;
        let (body, redelivered) = (entry.body.clone(), entry.redelivered);
        self.lane_holders.entry(entry.lane).or_insert((to, 0)).1 += 1;
        let until = self.lease.map(|lease| now + lease);
        self.in_flight.insert(place, InFlight { entry, receiver: to, until });
        Some(Delivery { place, body, redelivered })
    }

    /// A delivery that the receiver no longer holds is ignored, as brokers do.
    pub(super) fn accept(&mut self, by: ReceiverId, place: Place) {
        self.end(by, place);
    }

    /// Returns the message if it was released too often; it is no longer in the queue then.
    #[must_use]
    pub(super) fn release(&mut self, by: ReceiverId, place: Place) -> Option<Message> {
        let mut entry = self.end(by, place)?;
        entry.released += 1;
        if self.delivery_limit.is_some_and(|limit| entry.released >= limit) {
            return Some(Message { lane: entry.lane, body: entry.body });
        }
        self.put_back(place, entry);
        None
    }

    fn end(&mut self, by: ReceiverId, place: Place) -> Option<Entry> {
        self.in_flight.get(&place).filter(|in_flight| in_flight.receiver == by)?;
        let entry = self.in_flight.remove(&place)?.entry;
        if let Some(holder) = self.lane_holders.get_mut(&entry.lane) {
            holder.1 -= 1;
            if holder.1 == 0 {
                self.lane_holders.remove(&entry.lane);
            }
        }
        Some(entry)
    }

    fn put_back(&mut self, place: Place, entry: Entry) {
        self.ready.insert(place, Entry { redelivered: true, ..entry });
    }

    fn take_back(&mut self, which: impl Fn(&InFlight) -> bool) {
        let chosen = self.in_flight.iter().filter(|(_, in_flight)| which(in_flight));
        let chosen: Vec<_> = chosen.map(|(place, found)| (*place, found.receiver)).collect();
        for (place, receiver) in chosen {
            if let Some(entry) = self.end(receiver, place) {
                self.put_back(place, entry);
            }
        }
    }

    fn take_back_moved_partitions(&mut self) {
        if let Sharing::Partitions(count) = self.sharing {
            let owners: Vec<_> = (0..count).map(|partition| self.owner(partition)).collect();
            self.take_back(|in_flight| {
                owners[(in_flight.entry.lane % count) as usize] != Some(in_flight.receiver)
            });
        }
    }

    pub(super) fn next_return(&self) -> Option<Instant> {
        self.in_flight.values().filter_map(|in_flight| in_flight.until).min()
    }
}

#[cfg(test)]
mod tests {
    use driver::Tier;

    use super::*;

    fn queue(style: Style, ordered: bool, partitions: u32) -> Queue {
        let topology = Topology::new("test", style, Tier::T0);
        Queue::of(&Topology { ordered, partitions, ..topology }, 0)
    }

    fn put(queue: &mut Queue, lane: u32, text: &'static str) {
        queue.put(&Message { lane, body: Bytes::from_static(text.as_bytes()) }, false, false);
    }

    fn take(queue: &mut Queue, by: ReceiverId) -> Vec<(Place, Bytes, bool)> {
        let taken = queue.take(by, 10, Instant::now()).into_iter();
        taken.map(|delivery| (delivery.place, delivery.body, delivery.redelivered)).collect()
    }

    #[test]
    fn lane_in_flight_belongs_to_one_receiver() {
        let mut queue = queue(Style::Queue, true, 1);
        let (one, other) = (ReceiverId::unique(), ReceiverId::unique());
        put(&mut queue, 1, "first");
        let taken = take(&mut queue, one);
        put(&mut queue, 1, "second");
        put(&mut queue, 2, "of another lane");
        assert_eq!(take(&mut queue, other)[0].1, "of another lane");
        queue.accept(one, taken[0].0);
        assert_eq!(take(&mut queue, other)[0].1, "second");
    }

    #[test]
    fn messages_of_a_gone_receiver_return_marked_to_their_place() {
        let mut queue = queue(Style::Queue, false, 1);
        let (one, other) = (ReceiverId::unique(), ReceiverId::unique());
        put(&mut queue, 1, "first");
        take(&mut queue, one);
        put(&mut queue, 1, "second");
        assert_eq!(queue.take(other, 0, Instant::now()).len(), 0);
        queue.leave(one);
        let taken = take(&mut queue, other);
        assert_eq!(taken[0], (0, Bytes::from_static(b"first"), true));
        assert_eq!(taken[1], (1, Bytes::from_static(b"second"), false));
    }

    #[test]
    fn expired_lease_redelivers_and_ignores_the_late_settle() {
        let mut queue = queue(Style::Queue, false, 1);
        let (one, other) = (ReceiverId::unique(), ReceiverId::unique());
        put(&mut queue, 1, "only");
        let place = take(&mut queue, one)[0].0;
        let later = queue.next_return().expect("it is in flight");
        assert_eq!(queue.take(other, 1, later).len(), 1);
        queue.accept(one, place);
        assert!(queue.release(other, place).is_none());
        assert_eq!(take(&mut queue, one).len(), 1);
    }

    #[test]
    fn only_releases_count_towards_the_delivery_limit() {
        let topology = Topology::new("test", Style::Queue, Tier::T0);
        let mut queue = Queue::of(&Topology { delivery_limit: Some(2), ..topology }, 0);
        let one = ReceiverId::unique();
        put(&mut queue, 1, "poison");
        for _ in 0..5 {
            assert_eq!(take(&mut queue, one).len(), 1);
            queue.leave(one);
        }
        let place = take(&mut queue, one)[0].0;
        assert!(queue.release(one, place).is_none());
        assert_eq!(take(&mut queue, one).len(), 1);
        assert_eq!(queue.release(one, place).expect("twice is too often").body, "poison");
        assert_eq!(take(&mut queue, one).len(), 0);
    }

    #[test]
    fn partitions_are_divided_among_the_receivers() {
        let mut queue = queue(Style::Log, true, 2);
        let (one, other) = (ReceiverId::unique(), ReceiverId::unique());
        queue.join(one);
        put(&mut queue, 0, "zero");
        put(&mut queue, 1, "one");
        assert_eq!(take(&mut queue, one).len(), 2);
        queue.join(other);
        assert_eq!(take(&mut queue, one).len(), 0);
        assert_eq!(take(&mut queue, other), [(1, Bytes::from_static(b"one"), true)]);
    }

    #[test]
    fn crash_loses_the_last_messages_and_returns_leased_ones() {
        let topology = Topology::new("test", Style::Queue, Tier::T0);
        let mut queue = Queue::of(&topology, 2);
        for text in ["leased", "kept", "forgotten", "forgotten too"] {
            put(&mut queue, 1, text);
        }
        let one = ReceiverId::unique();
        assert_eq!(queue.take(one, 1, Instant::now()).len(), 1);
        queue.crash();
        queue.release_held();
        let taken = take(&mut queue, ReceiverId::unique());
        let left: Vec<_> = taken.iter().map(|(_, body, again)| (&body[..], *again)).collect();
        assert_eq!(left, [(&b"leased"[..], true), (&b"kept"[..], false)]);
    }

    #[test]
    fn unwritten_message_is_delivered_when_no_more_arrive() {
        let topology = Topology::new("test", Style::Queue, Tier::T0);
        let mut queue = Queue::of(&topology, 2);
        put(&mut queue, 1, "only");
        let one = ReceiverId::unique();
        assert_eq!(take(&mut queue, one).len(), 0);
        queue.release_held();
        assert_eq!(take(&mut queue, one).len(), 1);
    }

    #[test]
    fn reordering_puts_a_message_behind_the_next_of_its_lane() {
        let mut queue = queue(Style::Queue, true, 1);
        let first = Message { lane: 1, body: Bytes::from_static(b"first") };
        queue.put(&first, false, true);
        put(&mut queue, 2, "of another lane");
        put(&mut queue, 1, "second");
        let bodies: Vec<_> =
            take(&mut queue, ReceiverId::unique()).into_iter().map(|d| d.1).collect();
        assert_eq!(bodies, ["of another lane", "second", "first"]);
    }
}
