//! Shares with model drivers: messages are delayed, and those of different shards overtake one another.

use proptest::prelude::*;

use super::*;

/// A driver's share, and its ready records.
#[derive(Debug, Default)]
struct Driver {
    share: u64,
    used: u64,
    asked: u64,
    returned: u64,
    granted: u64,
    round: u32,
    ready: u64,
    starved_reported: bool,
    /// Its share was changed since the last notice.
    report_again: bool,
    /// Messages in flight, in order.
    inbox: VecDeque<Change>,
    outbox: VecDeque<CreditMessage>,
}

#[derive(Debug)]
enum CreditMessage {
    Starved(bool),
    Returned(ReturnedCredit),
}

impl Driver {
    fn unused(&self) -> u64 {
        self.share.saturating_sub(self.used)
    }

    fn owed(&self) -> u64 {
        self.asked.saturating_sub(self.returned)
    }

    fn repay(&mut self, returns: bool) {
        let amount = self.owed().min(self.unused());
        self.share -= amount;
        self.returned += amount;
        if !returns {
            self.returned = self.returned.max(self.asked);
        }
        if amount > 0 || !returns {
            let (round, left, granted) = (self.round, self.unused(), self.granted);
            let given = ReturnedCredit { round, amount, in_all: self.returned, left, granted };
            self.outbox.push_back(CreditMessage::Returned(given));
        }
    }

    fn handle(&mut self, change: Change, returns: bool) {
        match change {
            Change::Grant(amount) => {
                self.share += amount;
                self.granted += amount;
                self.report_again = true;
            }
            Change::Return { in_all } => {
                self.asked = in_all;
                self.repay(returns);
            }
            Change::Set { amount, round } => {
                (self.share, self.granted, self.round) = (amount, amount, round);
                (self.asked, self.returned) = (0, 0);
                (self.used, self.report_again) = (0, true);
            }
            Change::Begin { .. } | Change::Unlimited => {}
        }
    }

    /// Delivers as much as it can; returns the number of records.
    fn serve(&mut self, returns: bool) -> u64 {
        if self.owed() > 0 {
            self.repay(returns);
        }
        let handed_out = self.ready.min(self.unused());
        self.ready -= handed_out;
        if returns {
            self.used += handed_out;
        } else {
            self.share -= handed_out;
        }
        let starved = self.ready > 0 && self.unused() == 0;
        let again = std::mem::take(&mut self.report_again) && starved;
        if starved != self.starved_reported || again {
            self.starved_reported = starved;
            self.outbox.push_back(CreditMessage::Starved(starved));
        }
        handed_out
    }
}

struct World {
    shares: Shares,
    drivers: Vec<Driver>,
    returns: bool,
    total: u64,
    handed_out: u64,
}

fn id(place: usize) -> ShardId {
    ShardId(place as u32 + 1)
}

impl World {
    fn new(total: u64, count: usize, returns: bool) -> Self {
        let shards: Vec<ShardId> = (0..count).map(id).collect();
        let shares = Shares::divide(total, &shards, returns);
        let driver = |shard: &ShardId| {
            let share = shares.share(*shard);
            Driver { share, granted: share, ..Driver::default() }
        };
        let drivers = shards.iter().map(driver).collect();
        Self { shares, drivers, returns, total, handed_out: 0 }
    }

    fn send(&mut self, orders: CreditOrders) {
        for (shard, change) in orders {
            self.drivers[shard.0 as usize - 1].inbox.push_back(change);
        }
    }

    /// The next messages to a driver arrive. It handles all of them before it delivers anything.
    fn deliver(&mut self, place: usize, messages: usize) -> bool {
        let returns = self.returns;
        let driver = &mut self.drivers[place];
        let messages = messages.min(driver.inbox.len());
        for change in driver.inbox.drain(..messages).collect::<Vec<_>>() {
            driver.handle(change, returns);
        }
        self.serve(place);
        messages > 0
    }

    /// The next message of a driver arrives.
    fn receive(&mut self, place: usize) -> bool {
        let Some(message) = self.drivers[place].outbox.pop_front() else { return false };
        match message {
            CreditMessage::Starved(starved) => self.shares.on_starved(id(place), starved),
            CreditMessage::Returned(given) => self.shares.on_returned(id(place), given),
        }
        let orders = self.shares.settle_up();
        self.send(orders);
        true
    }

    fn serve(&mut self, place: usize) {
        self.handed_out += self.drivers[place].serve(self.returns);
    }

    fn append(&mut self, place: usize, records: u64) {
        self.drivers[place].ready += records;
        self.serve(place);
    }

    /// A lease ends.
    fn settle(&mut self, place: usize) -> bool {
        if self.drivers[place].used == 0 {
            return false;
        }
        self.drivers[place].used -= 1;
        self.serve(place);
        true
    }

    /// Delivers all messages, one by one or together, until none is left.
    fn quiet(&mut self) {
        for step in 0..10_000 {
            let (count, messages) = (self.drivers.len(), if step % 2 == 0 { 1 } else { 100 });
            let moved =
                (0..count).any(|place| self.deliver(place, messages) || self.receive(place));
            if !moved {
                return;
            }
        }
        panic!("messages without end: {:?} {:?}", self.shares, self.drivers);
    }

    fn check(&self) {
        let is_current = |given: &&ReturnedCredit| given.round == self.shares.round;
        let mut sum = self.shares.free;
        for driver in &self.drivers {
            let on_its_way = driver.inbox.iter().map(|change| match change {
                Change::Grant(amount) => *amount,
                _ => 0,
            });
            sum += driver.share + on_its_way.sum::<u64>();
            let given = driver.outbox.iter().filter_map(|message| match message {
                CreditMessage::Returned(given) => Some(given),
                CreditMessage::Starved(_) => None,
            });
            sum += given.filter(is_current).map(|given| given.amount).sum::<u64>();
        }
        let used_up = if self.returns { 0 } else { self.handed_out };
        assert_eq!(sum + used_up, self.total + self.shares.excess, "created or lost");
    }

    /// Once all messages have arrived, no shard is starved while others have unused credit.
    fn check_quiet(&self) {
        let starved = self.drivers.iter().any(|driver| driver.ready > 0 && driver.unused() == 0);
        let unused: u64 = self.drivers.iter().map(Driver::unused).sum();
        assert!(!starved || unused == 0, "{:?} {:?}", self.shares, self.drivers);
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Append(u64),
    Settle,
    Deliver(usize),
    Receive,
    Quiet,
    Grow(u64),
    Shrink(u64),
    Confine(bool),
}

fn steps() -> impl Strategy<Value = Vec<(usize, Step)>> {
    let step = prop_oneof![
        3 => (1u64..6).prop_map(Step::Append),
        6 => Just(Step::Settle),
        6 => (1usize..4).prop_map(Step::Deliver),
        6 => Just(Step::Receive),
        1 => Just(Step::Quiet),
        1 => (1u64..5).prop_map(Step::Grow),
        1 => (1u64..5).prop_map(Step::Shrink),
        1 => any::<bool>().prop_map(Step::Confine),
    ];
    prop::collection::vec((0usize..4, step), 1..150)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn credit_is_conserved_and_no_shard_starves_while_credit_is_unused(
        total in 1u64..12,
        count in 1usize..5,
        returns: bool,
        steps in steps(),
    ) {
        let mut world = World::new(total, count, returns);
        for (place, step) in steps {
            let place = place % count;
            match step {
                Step::Append(records) => world.append(place, records),
                Step::Settle => _ = world.settle(place),
                Step::Deliver(messages) => _ = world.deliver(place, messages),
                Step::Receive => _ = world.receive(place),
                Step::Quiet => world.quiet(),
                Step::Grow(amount) => {
                    world.total += amount;
                    world.shares.grow(amount);
                }
                // Used-up credit is not returned, and so cannot be removed.
                Step::Shrink(amount) if returns && amount < world.total => {
                    world.total -= amount;
                    world.shares.shrink(amount);
                }
                Step::Shrink(_) => {}
                Step::Confine(confine) => world.shares.confine(confine.then(|| id(0))),
            }
            let orders = world.shares.settle_up();
            world.send(orders);
            world.check();
        }
        world.shares.confine(None);
        let orders = world.shares.settle_up();
        world.send(orders);
        world.quiet();
        world.check();
        world.check_quiet();
        // Consumers get all of it, a lease at a time.
        while returns && world.drivers.iter().any(|driver| driver.ready > 0) {
            let left: u64 = world.drivers.iter().map(|driver| driver.ready).sum();
            let ended = (0..count).map(|place| world.settle(place)).fold(false, |any, it| any | it);
            prop_assert!(ended, "{left} wait, and nothing is leased");
            world.quiet();
            world.check();
            world.check_quiet();
            let held: u64 = world.drivers.iter().map(|driver| driver.used).sum();
            prop_assert!(world.shares.excess > 0 || held <= world.total);
        }
    }

    #[test]
    fn leases_never_exceed_the_credit_in_any_message_order(
        total in 1u64..6,
        count in 2usize..5,
        steps in steps(),
    ) {
        let mut world = World::new(total, count, true);
        for (place, step) in steps {
            let place = place % count;
            match step {
                Step::Append(records) => world.append(place, records),
                Step::Settle => _ = world.settle(place),
                Step::Deliver(messages) => _ = world.deliver(place, messages),
                Step::Confine(confine) => {
                    world.shares.confine(confine.then(|| id(1)));
                    let orders = world.shares.settle_up();
                    world.send(orders);
                }
                _ => _ = world.receive(place),
            }
            let held: u64 = world.drivers.iter().map(|driver| driver.used).sum();
            prop_assert!(held <= total);
        }
    }
}

#[test]
fn single_credit_rotates_over_the_shards() {
    let mut world = World::new(1, 3, true);
    for place in 0..3 {
        world.append(place, 10);
    }
    world.quiet();
    let mut turns = Vec::new();
    for _ in 0..12 {
        let holder = (0..3).find(|&place| world.drivers[place].used > 0).expect("one is held");
        turns.push(holder);
        world.settle(holder);
        world.quiet();
    }
    for three in turns.windows(3) {
        let mut three = three.to_vec();
        three.sort_unstable();
        assert_eq!(three, [0, 1, 2], "{turns:?}");
    }
}

#[test]
fn starved_shard_gets_all_credit_that_others_do_not_use() {
    let mut world = World::new(10, 3, true);
    world.append(2, 100);
    world.quiet();
    assert_eq!(world.drivers[2].used, 10);
    // Another one has records, too: as leases end, shares become equal.
    world.append(0, 100);
    for _ in 0..30 {
        for place in 0..3 {
            world.settle(place);
        }
        world.quiet();
    }
    let used: Vec<u64> = world.drivers.iter().map(|driver| driver.used).collect();
    assert_eq!(used, [5, 0, 5]);
}

#[test]
fn credit_confined_to_a_shard_returns_to_it_as_leases_end() {
    let mut world = World::new(6, 3, true);
    (0..3).for_each(|place| world.append(place, 50));
    world.quiet();
    world.shares.confine(Some(id(0)));
    let orders = world.shares.settle_up();
    world.send(orders);
    for _ in 0..3 {
        for place in 0..3 {
            world.settle(place);
        }
        world.quiet();
    }
    let used: Vec<u64> = world.drivers.iter().map(|driver| driver.used).collect();
    assert_eq!((used, world.shares.share(id(0))), (vec![6, 0, 0], 6));
}

#[test]
fn setting_credit_replaces_used_up_credit() {
    let mut world = World::new(3, 3, false);
    world.append(0, 9);
    world.quiet();
    assert_eq!((world.handed_out, world.drivers[0].ready), (3, 6));
    let orders = world.shares.set(4);
    world.send(orders);
    world.quiet();
    assert_eq!((world.handed_out, world.drivers[0].ready), (7, 2));
}
