//! One amount, split over shards: the share of each shard, and the rules for moving it.
//!
//! A session's side decides, and knows only the drivers' notices: which of them are starved (records are ready
//! there and the share is used up), and how much they returned. It requests credit from the others and grants
//! it to the starved; returned credit that is not granted yet is `free`. Credit is conserved: the sum of
//! shares, `free` and credit in flight is constant, in any order of messages of different shards.
//!
//! Among starved shards the one with the least credit is served first, among equals the one that waits longest;
//! it reports again if that was not enough. The others are requested to return half of their share: unused
//! credit at once, the rest as it becomes unused. So a starved shard gets all unused credit of the others after
//! a few steps, and a shard with an occasional record keeps some credit for it. If all are starved, shares
//! become equal. If the credit is less than the number of shards it rotates, from one lease to the next.

use std::collections::{BTreeMap, VecDeque};

use base::ShardId;
use shard::delivery::divided_credit::{Change, ReturnedCredit};

#[derive(Debug)]
pub(crate) struct Shares {
    accounts: BTreeMap<ShardId, Account>,
    /// Returned, and not granted yet.
    free: u64,
    /// To be removed: the credit was reduced.
    excess: u64,
    /// The starved shards, in the order in which they are served.
    starved: VecDeque<ShardId>,
    /// Whether leases that end return their credit.
    returns: bool,
    round: u32,
    /// All of it belongs to this shard at the moment.
    confined_to: Option<ShardId>,
}

/// A shard's share as the session knows it: granted and not returned.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    share: u64,
    /// Requested from it, and not returned.
    owed: u64,
    /// Total of the requests in this round that are fulfilled.
    returned: u64,
    /// Total granted in this round.
    granted: u64,
    /// It was granted the credit that it lacked, and has not reported since whether that is enough. Nothing is
    /// requested from it until then: credit that it returned at once would be granted to it again, without end.
    is_served: bool,
}

/// Changes to send to shards, in order.
pub(crate) type CreditOrders = Vec<(ShardId, Change)>;

impl Shares {
    /// Splits an amount evenly. `returns`: whether leases that end return their credit.
    pub(crate) fn divide(amount: u64, shards: &[ShardId], returns: bool) -> Self {
        let mut shares = Self::of(returns);
        for (place, &shard) in shards.iter().enumerate() {
            shares.open(shard, part(amount, place, shards.len()));
        }
        shares
    }

    /// One shard has all of it.
    pub(crate) fn all_in(amount: u64, shard: ShardId, returns: bool) -> Self {
        Self::divide(amount, &[shard], returns)
    }

    /// Continues the rounds of an earlier split over the same shards.
    pub(crate) fn after(mut self, round: u32) -> Self {
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

    /// Adds a shard, without credit.
    pub(crate) fn add(&mut self, shard: ShardId) {
        self.accounts.entry(shard).or_default();
    }

    /// The share granted to the shard.
    pub(crate) fn share(&self, shard: ShardId) -> u64 {
        self.accounts.get(&shard).map_or(0, |account| account.share)
    }

    pub(crate) fn round(&self) -> u32 {
        self.round
    }

    /// Takes back the share of a shard that was not notified of it yet.
    pub(crate) fn withdraw(&mut self, shard: ShardId) {
        if let Some(account) = self.accounts.get_mut(&shard) {
            self.free += std::mem::take(account).share;
        }
    }

    pub(crate) fn on_starved(&mut self, shard: ShardId, starved: bool) {
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

    pub(crate) fn on_returned(&mut self, shard: ShardId, given: ReturnedCredit) {
        let Some(account) = self.accounts.get_mut(&shard) else { return };
        if given.round != self.round {
            return;
        }
        let asked = account.returned + account.owed;
        account.returned = given.in_all;
        account.owed = asked.saturating_sub(given.in_all);
        if self.returns {
            account.share = account.share.saturating_sub(given.amount);
        } else {
            // Used-up credit is known only now, except for grants in flight to the shard.
            account.share = given.left + account.granted.saturating_sub(given.granted);
        }
        self.free += given.amount;
        // It moves to the end of the queue.
        if let Some(place) = self.starved.iter().position(|other| *other == shard)
            && given.amount > 0
        {
            self.starved.remove(place);
            self.starved.push_back(shard);
        }
    }

    /// Adds credit.
    pub(crate) fn grow(&mut self, amount: u64) {
        let kept = amount.min(self.excess);
        self.excess -= kept;
        self.free = self.free.saturating_add(amount - kept);
    }

    /// Reduces the credit: it is removed as it is returned.
    pub(crate) fn shrink(&mut self, amount: u64) {
        self.excess += amount;
    }

    /// Splits a new amount, replacing the old one. The orders notify each shard.
    pub(crate) fn set(&mut self, amount: u64) -> CreditOrders {
        self.round += 1;
        (self.free, self.excess) = (0, 0);
        let (count, round) = (self.accounts.len(), self.round);
        let mut orders = CreditOrders::new();
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

    /// Moves all of it to this shard over time; `None`: splits it over all again.
    pub(crate) fn confine(&mut self, to: Option<ShardId>) {
        self.confined_to = to;
    }

    /// Returns the orders that follow from the notices so far; call it after each.
    pub(crate) fn settle_up(&mut self) -> CreditOrders {
        let mut orders = CreditOrders::new();
        let out = self.free.min(self.excess);
        self.free -= out;
        self.excess -= out;
        self.grant_free(&mut orders);
        self.request_credit(&mut orders);
        orders
    }

    fn grant_free(&mut self, orders: &mut CreditOrders) {
        if let Some(only) = self.confined_to {
            let amount = std::mem::take(&mut self.free);
            return self.grant(only, amount, orders);
        }
        while self.free > 0
            && let Some((place, shard)) = self.neediest()
        {
            let amount = self.free.div_ceil(self.starved.len() as u64);
            // A shard that needs more reports it again.
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

    /// With its index among the starved.
    fn neediest(&self) -> Option<(usize, ShardId)> {
        let all = self.starved.iter().copied().enumerate();
        all.min_by_key(|&(place, shard)| (self.share(shard), place))
    }

    fn grant(&mut self, shard: ShardId, amount: u64, orders: &mut CreditOrders) {
        if let Some(account) = self.accounts.get_mut(&shard)
            && amount > 0
        {
            account.share += amount;
            account.granted += amount;
            if std::mem::take(&mut account.owed) > 0 {
                // The request is cancelled first, or the shard would return the grant.
                orders.push((shard, Change::Return { in_all: account.returned }));
            }
            orders.push((shard, Change::Grant(amount)));
        }
    }

    /// Requests credit from shards for those that lack it, or cancels requests.
    fn request_credit(&mut self, orders: &mut CreditOrders) {
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
            // While a debt remains its exact amount does not matter.
            let stays =
                if exact { wanted == account.owed } else { account.owed > 0 || wanted == 0 };
            if !stays {
                account.owed = wanted;
                let in_all = account.returned + wanted;
                orders.push((shard, Change::Return { in_all }));
            }
        }
    }
}

/// The part with index `place` of `count`, of an amount that is split evenly.
fn part(amount: u64, place: usize, count: usize) -> u64 {
    let count = count as u64;
    amount / count + u64::from((place as u64) < amount % count)
}

#[cfg(test)]
mod both_kinds;
#[cfg(test)]
mod tests;
