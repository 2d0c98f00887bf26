use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use driver::{Message, Style, Topology};

/// Where a message is in its queue. What is put back keeps its place.
pub(super) type Place = u64;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct ReceiverId(u64);

impl ReceiverId {
    pub(super) fn unique() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// Who may have which message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sharing {
    /// Anyone has any.
    Free,
    /// A lane belongs to whoever has a message of it that is not settled.
    Lanes,
    /// A partition belongs to one of the receivers.
    Partitions(u32),
}

#[derive(Clone, Debug)]
struct Entry {
    lane: u32,
    body: Bytes,
    redelivered: bool,
    /// How often a receiver gave it back.
    released: u32,
}

#[derive(Debug)]
struct InFlight {
    entry: Entry,
    receiver: ReceiverId,
    /// `None`: until the receiver is gone.
    until: Option<Instant>,
}

/// A message as it is given out.
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
    /// By lane: who has messages of it in flight, and how many.
    lane_holders: HashMap<u32, (ReceiverId, u32)>,
    /// By lane: what waits to go behind the lane's next message.
    held: HashMap<u32, Vec<Entry>>,
    /// What a crash forgets, the oldest first; nobody gets it before as much has come after it.
    unwritten: VecDeque<Entry>,
    unwritten_max: usize,
    receivers: BTreeSet<ReceiverId>,
    next: Place,
}

impl Queue {
    /// `unwritten_max`: how many messages a crash forgets.
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

    /// `twice`: once more, unmarked. `later`: behind the next message of its lane.
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

    pub(super) fn let_held_go(&mut self) {
        for held in std::mem::take(&mut self.held).into_values().flatten() {
            self.append(held);
        }
        self.write_all_but(0);
    }

    /// Its process is killed: what was not written is gone, and so are the receivers.
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
        // A lane of which one message was passed over must wait as a whole; lanes that another
        // receiver has are passed over anyhow.
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

    /// What the receiver does not have any more is ignored, as brokers do.
    pub(super) fn accept(&mut self, by: ReceiverId, place: Place) {
        self.end(by, place);
    }

    /// A message that was given back too often: it is not here any more.
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
    fn a_lane_in_flight_is_its_holders_alone() {
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
    fn what_a_receiver_leaves_comes_back_marked_and_in_its_place() {
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
    fn a_lease_that_ended_gives_the_message_to_another_and_ignores_the_late_settle() {
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
    fn what_is_given_back_too_often_leaves_and_what_comes_back_by_itself_does_not() {
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
    fn a_crash_forgets_the_last_messages_and_gives_back_what_was_leased() {
        let topology = Topology::new("test", Style::Queue, Tier::T0);
        let mut queue = Queue::of(&topology, 2);
        for text in ["leased", "kept", "forgotten", "forgotten too"] {
            put(&mut queue, 1, text);
        }
        let one = ReceiverId::unique();
        assert_eq!(queue.take(one, 1, Instant::now()).len(), 1);
        queue.crash();
        queue.let_held_go();
        let taken = take(&mut queue, ReceiverId::unique());
        let left: Vec<_> = taken.iter().map(|(_, body, again)| (&body[..], *again)).collect();
        assert_eq!(left, [(&b"leased"[..], true), (&b"kept"[..], false)]);
    }

    #[test]
    fn what_is_not_written_is_when_nothing_more_comes() {
        let topology = Topology::new("test", Style::Queue, Tier::T0);
        let mut queue = Queue::of(&topology, 2);
        put(&mut queue, 1, "only");
        let one = ReceiverId::unique();
        assert_eq!(take(&mut queue, one).len(), 0);
        queue.let_held_go();
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
