//! A session with windows of consumers and a limit of its own, over several shards. A record needs both, and
//! each is moved by itself. Messages are delayed, and those of different shards overtake one another.

use base::LeaseGroupId;
use proptest::prelude::*;
use shard::delivery::borrowed_credit::BorrowedCredit;

use super::*;

/// The limit of the session; windows of consumers follow.
const LIMIT: usize = 0;

#[derive(Debug)]
enum KindCreditMessage {
    Starved(usize, bool),
    Returned(usize, ReturnedCredit),
}

/// A driver's credit of one kind.
#[derive(Debug)]
struct DriverCredit {
    share: u64,
    used: u64,
    lent: BorrowedCredit,
}

impl DriverCredit {
    fn unused(&self) -> u64 {
        self.share.saturating_sub(self.used)
    }
}

/// A model of the driver in `driver/credit.rs` and `driver/serving.rs`.
#[derive(Debug)]
struct Driver {
    held: Vec<DriverCredit>,
    /// By consumer, each of which has a group of its own.
    ready: Vec<u64>,
    inbox: VecDeque<(usize, Change)>,
    outbox: VecDeque<KindCreditMessage>,
}

impl Driver {
    /// `is_next`: before records are delivered.
    fn return_credit(&mut self, kind: usize, is_next: bool) {
        let could_use = kind != LIMIT
            && self.ready[kind - 1] > 0
            && self.held[kind].unused() > 0
            && (is_next || self.held[LIMIT].unused() == 0);
        let held = &mut self.held[kind];
        if held.lent.keeps(could_use) {
            return;
        }
        let given = held.lent.owed().min(held.unused());
        held.share -= given;
        let left = held.unused();
        if let Some(returned) = held.lent.return_credit(given, left, true) {
            self.outbox.push_back(KindCreditMessage::Returned(kind, returned));
        }
    }

    fn handle(&mut self, kind: usize, change: Change) {
        let held = &mut self.held[kind];
        match change {
            Change::Grant(amount) => {
                held.share += amount;
                held.lent.grant(amount);
            }
            Change::Return { in_all } => {
                held.lent.request_return(in_all);
                // It is served after all messages.
                self.return_credit(kind, true);
            }
            Change::Set { .. } | Change::Begin { .. } | Change::Unlimited => unreachable!(),
        }
    }

    fn repay(&mut self, consumer: usize, is_next: bool) {
        for kind in [LIMIT, consumer + 1] {
            if self.held[kind].lent.owed() > 0 {
                self.return_credit(kind, is_next);
            }
        }
    }

    /// Serves one consumer; returns the number of records delivered.
    fn serve(&mut self, consumer: usize) -> u64 {
        let window = consumer + 1;
        self.repay(consumer, true);
        let usable = self.held[LIMIT].unused().min(self.held[window].unused());
        let handed_out = self.ready[consumer].min(usable);
        self.ready[consumer] -= handed_out;
        for kind in [LIMIT, window] {
            self.held[kind].used += handed_out;
        }
        if handed_out > 0 {
            self.held[window].lent.note_used();
        }
        self.repay(consumer, false);
        let ready = self.ready[consumer] > 0;
        let lacks_window = ready && self.held[window].unused() == 0;
        let lacks_limit = ready && !lacks_window && self.held[LIMIT].unused() == 0;
        let group = LeaseGroupId(consumer as u32);
        for (kind, lacks) in [(window, lacks_window), (LIMIT, lacks_limit)] {
            if let Some(starved) = self.held[kind].lent.on_served(group, lacks) {
                self.outbox.push_back(KindCreditMessage::Starved(kind, starved));
            }
        }
        handed_out
    }
}

struct World {
    shares: Vec<Shares>,
    drivers: Vec<Driver>,
    totals: Vec<u64>,
    delivered: u64,
    messages: u64,
}

fn id(place: usize) -> ShardId {
    ShardId(place as u32 + 1)
}

impl World {
    fn new(limit: u64, windows: &[u64], count: usize) -> Self {
        let shards: Vec<ShardId> = (0..count).map(id).collect();
        let totals: Vec<u64> = [&[limit], windows].concat();
        let shares: Vec<Shares> =
            totals.iter().map(|total| Shares::divide(*total, &shards, true)).collect();
        let driver = |shard: &ShardId| {
            let held = |shares: &Shares| {
                let share = shares.share(*shard);
                DriverCredit { share, used: 0, lent: BorrowedCredit::new(share, 0) }
            };
            Driver {
                held: shares.iter().map(held).collect(),
                ready: vec![0; windows.len()],
                inbox: VecDeque::new(),
                outbox: VecDeque::new(),
            }
        };
        let drivers = shards.iter().map(driver).collect();
        Self { shares, drivers, totals, delivered: 0, messages: 0 }
    }

    fn consumers(&self) -> usize {
        self.totals.len() - 1
    }

    /// Serves all consumers, beginning with this one.
    fn serve(&mut self, place: usize, first: usize) {
        for consumer in 0..self.consumers() {
            let consumer = (first + consumer) % self.consumers();
            self.delivered += self.drivers[place].serve(consumer);
        }
    }

    /// The next messages to a driver arrive, and then it serves.
    fn deliver(&mut self, place: usize, messages: usize) -> bool {
        let driver = &mut self.drivers[place];
        let messages = messages.min(driver.inbox.len());
        for (kind, change) in driver.inbox.drain(..messages).collect::<Vec<_>>() {
            driver.handle(kind, change);
        }
        self.serve(place, messages);
        self.messages += messages as u64;
        messages > 0
    }

    /// The next message of a driver arrives.
    fn receive(&mut self, place: usize) -> bool {
        let Some(message) = self.drivers[place].outbox.pop_front() else { return false };
        self.messages += 1;
        let kind = match message {
            KindCreditMessage::Starved(kind, starved) => {
                self.shares[kind].on_starved(id(place), starved);
                kind
            }
            KindCreditMessage::Returned(kind, given) => {
                self.shares[kind].on_returned(id(place), given);
                kind
            }
        };
        for (shard, change) in self.shares[kind].settle_up() {
            self.drivers[shard.0 as usize - 1].inbox.push_back((kind, change));
        }
        true
    }

    fn append(&mut self, place: usize, consumer: usize, records: u64) {
        self.drivers[place].ready[consumer] += records;
        self.serve(place, consumer);
    }

    fn settle(&mut self, place: usize, consumer: usize) -> bool {
        let window = consumer + 1;
        if self.drivers[place].held[window].used == 0 {
            return false;
        }
        for kind in [LIMIT, window] {
            self.drivers[place].held[kind].used -= 1;
        }
        self.serve(place, consumer);
        true
    }

    /// Delivers all messages, in an order given by `choices`, repeated. Without other events they end, after a
    /// number that does not depend on the order.
    fn quiet(&mut self, choices: &[u8]) {
        let count = self.drivers.len();
        let before = self.messages;
        let credit: u64 = self.totals.iter().sum();
        let most = 200 + 60 * credit * (count * self.totals.len()) as u64;
        let mut turn = 0;
        loop {
            let moves = |it: &Driver| !it.inbox.is_empty() || !it.outbox.is_empty();
            if !self.drivers.iter().any(moves) {
                return;
            }
            assert!(
                self.messages - before < most,
                "messages without end: {:?} {:?}",
                self.shares,
                self.drivers
            );
            let choice = usize::from(choices[turn % choices.len()]);
            turn += 1;
            let (place, messages) = (choice / 8 % count, choice / 2 % 4 + 1);
            let moved = match choice % 2 {
                0 => self.deliver(place, messages),
                _ => self.receive(place),
            };
            if !moved {
                // Another driver moves, or the order might only name drivers that cannot.
                let other = (0..count).map(|it| (place + it) % count);
                let _ = other.into_iter().any(|it| self.receive(it) || self.deliver(it, messages));
            }
        }
    }

    fn unused(&self, kind: usize) -> u64 {
        self.drivers.iter().map(|driver| driver.held[kind].unused()).sum()
    }

    fn check(&self) {
        for (kind, total) in self.totals.iter().enumerate() {
            let mut sum = self.shares[kind].free;
            for driver in &self.drivers {
                let granted = driver.inbox.iter().map(|(of, change)| match change {
                    Change::Grant(amount) if *of == kind => *amount,
                    _ => 0,
                });
                let given = driver.outbox.iter().map(|message| match message {
                    KindCreditMessage::Returned(of, given) if *of == kind => given.amount,
                    _ => 0,
                });
                sum += driver.held[kind].share + granted.sum::<u64>() + given.sum::<u64>();
            }
            assert_eq!(sum, *total, "created or lost of kind {kind}");
        }
    }

    /// Once all messages have arrived, no consumer waits while window and limit are unused.
    fn check_quiet(&self) {
        for consumer in 0..self.consumers() {
            let waits = self.drivers.iter().any(|driver| driver.ready[consumer] > 0);
            let unused = self.unused(consumer + 1).min(self.unused(LIMIT));
            assert!(!waits || unused == 0, "{:?} {:?}", self.shares, self.drivers);
        }
    }

    fn waiting(&self) -> u64 {
        self.drivers.iter().flat_map(|driver| &driver.ready).sum()
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Append(u64),
    Settle,
    Deliver(usize),
    Receive,
    Quiet,
}

fn steps() -> impl Strategy<Value = Vec<(usize, usize, Step)>> {
    let step = prop_oneof![
        3 => (1u64..5).prop_map(Step::Append),
        4 => Just(Step::Settle),
        6 => (1usize..4).prop_map(Step::Deliver),
        6 => Just(Step::Receive),
        1 => Just(Step::Quiet),
    ];
    prop::collection::vec((0usize..3, 0usize..2, step), 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_record_is_delivered_and_messages_come_to_an_end(
        limit in 1u64..7,
        windows in prop::collection::vec(1u64..6, 1..3),
        count in 2usize..4,
        steps in steps(),
        choices in prop::collection::vec(any::<u8>(), 1..24),
    ) {
        let mut world = World::new(limit, &windows, count);
        let mut appended = 0;
        for (place, consumer, step) in steps {
            let (place, consumer) = (place % count, consumer % windows.len());
            match step {
                Step::Append(records) => {
                    appended += records;
                    world.append(place, consumer, records);
                }
                Step::Settle => _ = world.settle(place, consumer),
                Step::Deliver(messages) => _ = world.deliver(place, messages),
                Step::Receive => _ = world.receive(place),
                Step::Quiet => world.quiet(&choices),
            }
            world.check();
        }
        world.quiet(&choices);
        world.check_quiet();
        while world.waiting() > 0 {
            let mut ended = false;
            for place in 0..count {
                for consumer in 0..windows.len() {
                    ended |= world.settle(place, consumer);
                    world.check();
                }
            }
            prop_assert!(ended, "{} wait, and nothing is leased", world.waiting());
            world.quiet(&choices);
            world.check();
            world.check_quiet();
        }
        prop_assert_eq!(world.delivered, appended);
    }
}

/// Each of two shards has the kind of credit that the other one lacks.
#[test]
fn window_and_limit_are_not_swapped_between_shards_for_ever() {
    for choices in [&[0_u8, 1, 8, 9][..], &[1, 9, 0, 8], &[9, 9, 1, 0, 8], &[0, 8, 1, 9]] {
        let mut world = World::new(1, &[1], 2);
        for (kind, (first, second)) in [(LIMIT, (1, 0)), (1, (0, 1))] {
            world.shares[kind] = Shares::of(true);
            for (place, share) in [first, second].into_iter().enumerate() {
                world.shares[kind].open(id(place), share);
                let lent = BorrowedCredit::new(share, 0);
                world.drivers[place].held[kind] = DriverCredit { share, used: 0, lent };
            }
        }
        world.append(0, 0, 3);
        world.append(1, 0, 3);
        while world.waiting() > 0 {
            world.quiet(choices);
            world.check_quiet();
            assert!((0..2).any(|place| world.settle(place, 0)));
        }
    }
}

/// A consumer's window is used up elsewhere, and the rest of the limit is less than the number of shards with
/// records.
#[test]
fn rest_of_a_limit_stays_put_while_windows_are_used_up() {
    let mut world = World::new(3, &[2], 3);
    world.append(2, 0, 2);
    world.quiet(&[0, 1, 8, 9, 16, 17]);
    assert_eq!(world.delivered, 2);
    world.append(0, 0, 5);
    world.append(1, 0, 5);
    world.quiet(&[0, 1, 8, 9, 16, 17]);
    world.check_quiet();
}

/// No shard is passed over for ever, even if the others have many records.
#[test]
fn every_shard_is_eventually_served() {
    for (limit, window) in [(1, 1), (1, 4), (4, 1), (2, 5), (3, 3)] {
        let mut world = World::new(limit, &[window], 3);
        (0..3).for_each(|place| world.append(place, 0, 1_000));
        for _ in 0..90 {
            world.quiet(&[1, 9, 17, 0, 8, 16]);
            world.check_quiet();
            (0..3).for_each(|place| _ = world.settle(place, 0));
        }
        let left: Vec<u64> = world.drivers.iter().map(|driver| driver.ready[0]).collect();
        assert!(left.iter().all(|left| *left < 990), "{limit} and {window}: {left:?}");
    }
}
