//! One amount, divided over shards: who has how much of it, and who gets it next.
//!
//! A session's side decides, and knows no more than drivers tell it: which of them are starved (records are
//! ready there and the share is used up), and what they gave back. It asks the others for credit and grants
//! it on; what it was given back and nobody got yet is `free`. Nothing is created or lost: the shares, what is
//! free and what is on its way are the credit at any time, whatever the order in which messages of different
//! shards come.
//!
//! Of those that are starved the one that has least gets credit first, among equals the one that waits
//! longest; it says so again when that was not enough. The others are asked for half of what they have, at once for what they do not use, and for the rest as it is not used
//! any more. So who is starved has all that others do not use after a few steps, and who has one record now
//! and then keeps something for it. Where all are starved, shares become equal; where the credit is less than
//! the number of shards it goes round, from one lease to the next.

use std::collections::{BTreeMap, VecDeque};

use base::ShardId;

use super::divided_credit::{Change, GivenBack};

#[derive(Debug)]
pub(super) struct Shares {
    accounts: BTreeMap<ShardId, Account>,
    /// Given back, and nobody's yet.
    free: u64,
    /// To be taken out: the credit was made smaller.
    excess: u64,
    /// Those that are starved, in the order of their turns.
    starved: VecDeque<ShardId>,
    /// Whether leases that end give back what they used.
    returns: bool,
    round: u32,
    /// All of it belongs to this shard at the moment.
    confined_to: Option<ShardId>,
}

/// A shard's share as the session knows it: what was granted and not given back.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    share: u64,
    /// Asked of it, and not given back.
    owed: u64,
    /// What of all that was asked of it in this round it is done with.
    given_back: u64,
    /// All that it was given in this round.
    granted: u64,
    /// It was granted what it lacked, and has not said since whether that is enough. It is asked for nothing
    /// until then: what it gave back at once would be granted to it again, without end.
    is_served: bool,
}

/// What shards are to be told, in order.
pub(super) type Orders = Vec<(ShardId, Change)>;

impl Shares {
    /// Divides an amount evenly. `returns`: whether leases that end give back what they used.
    pub(super) fn divide(amount: u64, shards: &[ShardId], returns: bool) -> Self {
        let mut shares = Self::of(returns);
        for (place, &shard) in shards.iter().enumerate() {
            shares.open(shard, part(amount, place, shards.len()));
        }
        shares
    }

    /// One shard has all of it.
    pub(super) fn all_in(amount: u64, shard: ShardId, returns: bool) -> Self {
        Self::divide(amount, &[shard], returns)
    }

    /// Goes on with the rounds of what was divided before among the same.
    pub(super) fn after(mut self, round: u32) -> Self {
        self.round = round;
        self
    }

    fn of(returns: bool) -> Self {
        Self {
            accounts: BTreeMap::new(),
            free: 0,
            excess: 0,
            starved: VecDeque::new(),
            returns,
            round: 0,
            confined_to: None,
        }
    }

    fn open(&mut self, shard: ShardId, share: u64) {
        self.accounts.insert(shard, Account { share, granted: share, ..Account::default() });
    }

    /// One more shard, which has nothing yet.
    pub(super) fn add(&mut self, shard: ShardId) {
        self.accounts.entry(shard).or_default();
    }

    /// What the shard has been given.
    pub(super) fn share(&self, shard: ShardId) -> u64 {
        self.accounts.get(&shard).map_or(0, |account| account.share)
    }

    pub(super) fn round(&self) -> u32 {
        self.round
    }

    /// A shard that was not told of its share yet gives it up.
    pub(super) fn withdraw(&mut self, shard: ShardId) {
        if let Some(account) = self.accounts.get_mut(&shard) {
            self.free += std::mem::take(account).share;
        }
    }

    pub(super) fn on_starved(&mut self, shard: ShardId, starved: bool) {
        if let Some(account) = self.accounts.get_mut(&shard) {
            account.is_served = false;
        }
        let known = self.starved.iter().position(|other| *other == shard);
        match (known, starved) {
            (None, true) if self.accounts.contains_key(&shard) => self.starved.push_back(shard),
            (Some(place), false) => drop(self.starved.remove(place)),
            _ => {}
        }
    }

    pub(super) fn on_given_back(&mut self, shard: ShardId, given: GivenBack) {
        let Some(account) = self.accounts.get_mut(&shard) else { return };
        if given.round != self.round {
            return;
        }
        let asked = account.given_back + account.owed;
        account.given_back = given.in_all;
        account.owed = asked.saturating_sub(given.in_all);
        if self.returns {
            account.share = account.share.saturating_sub(given.amount);
        } else {
            // What is used up is known only now, but for what is on its way there.
            account.share = given.left + account.granted.saturating_sub(given.granted);
        }
        self.free += given.amount;
        // It had its turn.
        if let Some(place) = self.starved.iter().position(|other| *other == shard)
            && given.amount > 0
        {
            self.starved.remove(place);
            self.starved.push_back(shard);
        }
    }

    /// So much more credit.
    pub(super) fn grow(&mut self, amount: u64) {
        let kept = amount.min(self.excess);
        self.excess -= kept;
        self.free = self.free.saturating_add(amount - kept);
    }

    /// So much less: it goes out as it is given back.
    pub(super) fn shrink(&mut self, amount: u64) {
        self.excess += amount;
    }

    /// Divides a new amount, whatever there was. What shards are told says so to each.
    pub(super) fn set(&mut self, amount: u64) -> Orders {
        self.round += 1;
        (self.free, self.excess) = (0, 0);
        let (count, round) = (self.accounts.len(), self.round);
        let mut orders = Orders::new();
        for (place, (&shard, account)) in self.accounts.iter_mut().enumerate() {
            let amount = match self.confined_to {
                None => part(amount, place, count),
                Some(only) if only == shard => amount,
                Some(_) => 0,
            };
            *account = Account { share: amount, granted: amount, ..Account::default() };
            orders.push((shard, Change::Set { amount, round }));
        }
        orders
    }

    /// From now on all of it belongs to this shard; `None`: to all of them.
    pub(super) fn confine(&mut self, to: Option<ShardId>) {
        self.confined_to = to;
    }

    /// What follows from all that came: to be called after it.
    pub(super) fn settle_up(&mut self) -> Orders {
        let mut orders = Orders::new();
        let out = self.free.min(self.excess);
        self.free -= out;
        self.excess -= out;
        self.grant_free(&mut orders);
        self.ask(&mut orders);
        orders
    }

    fn grant_free(&mut self, orders: &mut Orders) {
        if let Some(only) = self.confined_to {
            let amount = std::mem::take(&mut self.free);
            return self.grant(only, amount, orders);
        }
        while self.free > 0
            && let Some((place, shard)) = self.neediest()
        {
            let amount = self.free.div_ceil(self.starved.len() as u64);
            // Whoever needs more says so again.
            self.starved.remove(place);
            self.free -= amount;
            self.grant(shard, amount, orders);
            if let Some(account) = self.accounts.get_mut(&shard) {
                account.is_served = true;
            }
        }
        if self.free == 0 {
            return;
        }
        let amount = std::mem::take(&mut self.free);
        let mut poorest: Vec<(u64, ShardId)> =
            self.accounts.iter().map(|(&shard, account)| (account.share, shard)).collect();
        poorest.sort_unstable();
        let count = poorest.len();
        for (place, (_, shard)) in poorest.into_iter().enumerate() {
            self.grant(shard, part(amount, place, count), orders);
        }
    }

    /// Its place among the starved, too.
    fn neediest(&self) -> Option<(usize, ShardId)> {
        let all = self.starved.iter().copied().enumerate();
        all.min_by_key(|&(place, shard)| (self.share(shard), place))
    }

    fn grant(&mut self, shard: ShardId, amount: u64, orders: &mut Orders) {
        if let Some(account) = self.accounts.get_mut(&shard)
            && amount > 0
        {
            account.share += amount;
            account.granted += amount;
            if std::mem::take(&mut account.owed) > 0 {
                // Before it gets more, or it would give that back.
                orders.push((shard, Change::GiveBack { in_all: account.given_back }));
            }
            orders.push((shard, Change::Grant(amount)));
        }
    }

    /// Asks shards for what others lack, or asks no more.
    fn ask(&mut self, orders: &mut Orders) {
        let neediest = self.neediest().map(|(_, shard)| (shard, self.share(shard)));
        for (&shard, account) in &mut self.accounts {
            let (wanted, exact) = match (self.confined_to, neediest) {
                _ if self.excess > 0 => (account.share.min(self.excess), true),
                (Some(only), _) if only == shard => (0, true),
                (Some(_), _) => (account.share, true),
                (None, None) => (0, true),
                (None, Some(_)) if account.is_served => (0, true),
                (None, Some((needy, _))) if needy == shard => (0, true),
                (None, Some((_, has))) if self.starved.contains(&shard) => match account.share {
                    share if share >= has + 2 => ((share - has) / 2, false),
                    share if has == 0 => (share.min(1), false),
                    _ => (0, true),
                },
                (None, Some(_)) => (account.share.div_ceil(2), false),
            };
            // While something is owed it makes no difference how much.
            let stays =
                if exact { wanted == account.owed } else { account.owed > 0 || wanted == 0 };
            if !stays {
                account.owed = wanted;
                let in_all = account.given_back + wanted;
                orders.push((shard, Change::GiveBack { in_all }));
            }
        }
    }
}

/// What the one at `place` of `count` gets of an amount that is divided evenly.
fn part(amount: u64, place: usize, count: usize) -> u64 {
    let count = count as u64;
    amount / count + u64::from((place as u64) < amount % count)
}

#[cfg(test)]
mod both_kinds;
#[cfg(test)]
mod tests;
