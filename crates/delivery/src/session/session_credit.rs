//! Splits the credit of a session's consumers over shards: the share of each shard, and the messages that
//! change it.
//!
//! A consumer of a group in one shard has all of its credit there. The session's limit belongs to one shard
//! while all of its consumers are there. In these cases nothing is split, and no credit moves.

use std::collections::BTreeSet;

use crate::limits::LEASE_CONSUMERS_PER_SESSION_MAX;
use base::{HashMap, LeaseGroupId, ShardId};
use dispatch::{ConsumerId, SessionId};
use shard::delivery::divided_credit::{Change, CreditKind, Notice};
use shard::delivery::error::ConsumeError;
use shard::delivery::handle::{ConsumerRegistration, Message};
use shard::delivery::options::{ConsumeOptions, Credit, CreditReturns};

use super::shares::{CreditOrders, Shares};

/// Messages to drivers, in order.
pub type DriverMessages = Vec<(ShardId, Message)>;

#[derive(Debug)]
pub struct SessionCredit {
    session: SessionId,
    consumers: HashMap<ConsumerId, Consumer>,
    /// Shards in which it has consumed.
    consuming: BTreeSet<ShardId>,
    limit: Limit,
    /// The last round in which the limit was split.
    limit_round: u32,
}

#[derive(Debug)]
enum Limit {
    None,
    /// The session consumes in one shard only, which has the whole limit.
    Whole(u32),
    Divided {
        records: u32,
        shares: Shares,
    },
}

#[derive(Debug)]
struct Consumer {
    group: LeaseGroupId,
    options: ConsumeOptions,
    /// The shards that it is in, the group's first shard first.
    shards: Vec<ShardId>,
    records: CreditDimension,
    bytes: CreditDimension,
    /// The first shard's last report; `None`: none yet. The other shards have credit only while it is active.
    active: Option<bool>,
    /// It is in all of these shards: until then no credit moves.
    joined: bool,
}

/// One dimension of a consumer's credit.
#[derive(Debug, Default)]
struct CreditDimension {
    /// `None`: it is all in one shard, or unlimited.
    shares: Option<Shares>,
    last_round: u32,
}

impl CreditDimension {
    fn settle_up(&mut self) -> CreditOrders {
        self.shares.as_mut().map_or_else(CreditOrders::new, Shares::settle_up)
    }
}

impl Consumer {
    fn first(&self) -> ShardId {
        self.shards[0]
    }

    fn returns(&self) -> bool {
        self.options.credit_returns == CreditReturns::OnSettle
    }

    /// The only shard with credit for it, though it is in several.
    fn confined_to(&self) -> Option<ShardId> {
        (self.active == Some(false)).then(|| self.first())
    }

    fn kinds(consumer: ConsumerId) -> [CreditKind; 2] {
        [CreditKind::Records(consumer), CreditKind::Bytes(consumer)]
    }

    fn part(&mut self, kind: CreditKind) -> &mut CreditDimension {
        match kind {
            CreditKind::Bytes(_) => &mut self.bytes,
            CreditKind::Records(_) | CreditKind::Session => &mut self.records,
        }
    }

    /// Its options and credit in a shard that it joins now.
    fn joining(&self, consumer: ConsumerId, shard: ShardId) -> ConsumerRegistration {
        let mut options = self.options;
        // The first shard decides on admission.
        options.exclusive &= shard == self.first();
        let mut divided = Vec::new();
        let is_out = self.confined_to().is_some_and(|only| only != shard);
        let share = |shares: &Shares| shares.share(shard);
        match &self.records.shares {
            Some(shares) => {
                options.credit.records = u32::try_from(share(shares)).unwrap_or(u32::MAX);
                divided.push(CreditKind::Records(consumer));
            }
            None if is_out => options.credit.records = 0,
            None => {}
        }
        if let Some(shares) = &self.bytes.shares {
            options.credit.bytes = share(shares);
            divided.push(CreditKind::Bytes(consumer));
        }
        ConsumerRegistration { consumer, options, divided }
    }
}

/// `None`: unlimited.
fn bound(credit: Credit, kind: CreditKind) -> Option<u64> {
    match kind {
        CreditKind::Bytes(_) => Some(credit.bytes).filter(|bytes| *bytes != u64::MAX),
        CreditKind::Records(_) | CreditKind::Session => {
            Some(credit.records).filter(|records| *records != u32::MAX).map(u64::from)
        }
    }
}

impl SessionCredit {
    pub(crate) fn new(session: SessionId) -> Self {
        let (consumers, consuming) = (HashMap::default(), BTreeSet::new());
        Self { session, consumers, consuming, limit: Limit::None, limit_round: 0 }
    }

    fn share(
        &self,
        kind: CreditKind,
        orders: CreditOrders,
    ) -> impl Iterator<Item = (ShardId, Message)> + use<> {
        let session = self.session;
        let message = move |change| Message::Share { session, kind, change };
        orders.into_iter().map(move |(shard, change)| (shard, message(change)))
    }

    // --------------------------------------------------------------------------------- joining and leaving

    /// A consumer is to join a group in these shards, the first of which decides on admission.
    pub fn register(
        &mut self,
        consumer: ConsumerId,
        group: LeaseGroupId,
        options: ConsumeOptions,
        shards: Vec<ShardId>,
    ) -> Result<(), ConsumeError> {
        let at_most = LEASE_CONSUMERS_PER_SESSION_MAX;
        if self.consumers.len() >= at_most {
            return Err(ConsumeError::TooManyConsumers { at_most });
        }
        let returns = options.credit_returns == CreditReturns::OnSettle;
        let divide = |kind| {
            let amount = bound(options.credit, kind).filter(|_| shards.len() > 1);
            let shares = amount.map(|amount| Shares::divide(amount, &shards, returns));
            CreditDimension { shares, last_round: 0 }
        };
        let [records, bytes] = Consumer::kinds(consumer).map(divide);
        let (active, joined) = (None, false);
        let consumer_of = Consumer { group, options, shards, records, bytes, active, joined };
        self.consumers.insert(consumer, consumer_of);
        Ok(())
    }

    /// It joins one of its shards: returns the data for that shard, and the messages to send before.
    pub fn join(
        &mut self,
        consumer: ConsumerId,
        shard: ShardId,
    ) -> Option<(DriverMessages, ConsumerRegistration)> {
        let messages = self.enter(shard);
        let joining = self.consumers.get(&consumer)?.joining(consumer, shard);
        Some((messages, joining))
    }

    /// The first shard has admitted it. Returns the other shards to join; `None`: it is gone already.
    pub fn on_first_joined(&mut self, consumer: ConsumerId, active: bool) -> Option<Vec<ShardId>> {
        let found = self.consumers.get_mut(&consumer)?;
        // An event is newer, and may have come before this.
        found.active.get_or_insert(active);
        let to = found.confined_to();
        let further = found.shards[1..].to_vec();
        for part in [&mut found.records, &mut found.bytes] {
            let Some(shares) = part.shares.as_mut().filter(|_| to.is_some()) else { continue };
            shares.confine(to);
            further.iter().for_each(|shard| shares.withdraw(*shard));
        }
        Some(further)
    }

    /// All shards were sent the join: from now on credit moves.
    pub fn on_joining_all(&mut self, consumer: ConsumerId) -> DriverMessages {
        match self.consumers.get_mut(&consumer) {
            Some(found) => found.joined = true,
            None => return DriverMessages::new(),
        }
        self.settle_up(consumer)
    }

    /// Its topic has partitions in these shards now: returns those that it has to join.
    pub(crate) fn grow(&mut self, consumer: ConsumerId, shards: &[ShardId]) -> Vec<ShardId> {
        let Some(found) = self.consumers.get(&consumer) else { return Vec::new() };
        shards.iter().copied().filter(|shard| !found.shards.contains(shard)).collect()
    }

    /// Adds a shard, without credit there. Returns the messages to other shards before it joins.
    pub(crate) fn add_shard(&mut self, consumer: ConsumerId, shard: ShardId) -> DriverMessages {
        let mut messages = DriverMessages::new();
        let session = self.session;
        let Some(found) = self.consumers.get_mut(&consumer) else { return messages };
        let (first, returns, to) = (found.first(), found.returns(), found.confined_to());
        let credit = found.options.credit;
        for kind in Consumer::kinds(consumer) {
            let Some(amount) = bound(credit, kind) else { continue };
            let part = found.part(kind);
            let round = part.last_round;
            let shares = part.shares.get_or_insert_with(|| {
                let change = Change::Begin { round };
                messages.push((first, Message::Share { session, kind, change }));
                Shares::all_in(amount, first, returns).after(round)
            });
            shares.confine(to);
            shares.add(shard);
        }
        found.shards.push(shard);
        messages
    }

    /// Messages to a new shard of a consumer after it joined: the rounds of its shares.
    pub(crate) fn rounds(&self, consumer: ConsumerId, shard: ShardId) -> DriverMessages {
        let mut messages = DriverMessages::new();
        let Some(found) = self.consumers.get(&consumer) else { return messages };
        let parts = [
            (CreditKind::Records(consumer), &found.records),
            (CreditKind::Bytes(consumer), &found.bytes),
        ];
        for (kind, part) in parts {
            let Some(shares) = part.shares.as_ref().filter(|it| it.round() > 0) else { continue };
            let change = Change::Set { amount: shares.share(shard), round: shares.round() };
            messages.push((shard, Message::Share { session: self.session, kind, change }));
        }
        messages
    }

    pub(crate) fn consumers_of(&self, group: LeaseGroupId) -> Vec<ConsumerId> {
        let of = self.consumers.iter().filter(|(_, it)| it.group == group && it.joined);
        let mut of: Vec<ConsumerId> = of.map(|(id, _)| *id).collect();
        of.sort_unstable();
        of
    }

    /// Removes it. Returns the shards that it was to be in; `None`: it was gone before.
    pub fn remove(&mut self, consumer: ConsumerId) -> Option<Vec<ShardId>> {
        self.consumers.remove(&consumer).map(|found| found.shards)
    }

    // ------------------------------------------------------------------------------------------- credit

    pub fn grant(&mut self, consumer: ConsumerId, credit: Credit) -> DriverMessages {
        let session = self.session;
        let Some(found) = self.consumers.get_mut(&consumer) else { return DriverMessages::new() };
        let known = &mut found.options.credit;
        if known.records != u32::MAX {
            known.records = known.records.saturating_add(credit.records).min(u32::MAX - 1);
        }
        if known.bytes != u64::MAX {
            known.bytes = known.bytes.saturating_add(credit.bytes).min(u64::MAX - 1);
        }
        if found.shards.len() == 1 {
            return vec![(found.first(), Message::Grant { session, consumer, credit })];
        }
        for (kind, more) in
            Consumer::kinds(consumer).into_iter().zip([u64::from(credit.records), credit.bytes])
        {
            if let Some(shares) = &mut found.part(kind).shares {
                shares.grow(more);
            }
        }
        self.settle_up(consumer)
    }

    pub fn set_credit(&mut self, consumer: ConsumerId, credit: Credit) -> DriverMessages {
        let session = self.session;
        let Some(found) = self.consumers.get_mut(&consumer) else { return DriverMessages::new() };
        let before = std::mem::replace(&mut found.options.credit, credit);
        if found.shards.len() == 1 {
            return vec![(found.first(), Message::SetCredit { session, consumer, credit })];
        }
        let (returns, to, shards) = (found.returns(), found.confined_to(), found.shards.clone());
        let mut messages = DriverMessages::new();
        for kind in Consumer::kinds(consumer) {
            let Some(found) = self.consumers.get_mut(&consumer) else { break };
            let part = found.part(kind);
            let orders = match (bound(before, kind), bound(credit, kind), &mut part.shares) {
                (Some(before), Some(now), Some(shares)) if returns => {
                    shares.grow(now.saturating_sub(before));
                    shares.shrink(before.saturating_sub(now));
                    continue;
                }
                (_, Some(now), Some(shares)) => shares.set(now),
                // The records that a shard holds are unknown here: they count in that shard alone.
                (_, Some(now), none) => {
                    let mut shares = Shares::divide(0, &shards, returns).after(part.last_round);
                    shares.confine(to);
                    let orders = shares.set(now);
                    *none = Some(shares);
                    orders
                }
                (_, None, shares) => {
                    part.last_round = shares.take().map_or(part.last_round, |it| it.round());
                    unbounded(&shards, to, part.last_round)
                }
            };
            messages.extend(self.share(kind, orders));
        }
        messages.extend(self.settle_up(consumer));
        messages
    }

    /// The first shard reports whether the consumer is the active one.
    pub(crate) fn on_active(&mut self, consumer: ConsumerId, active: bool) -> DriverMessages {
        let Some(found) = self.consumers.get_mut(&consumer) else { return DriverMessages::new() };
        found.active = Some(active);
        let to = found.confined_to();
        for part in [&mut found.records, &mut found.bytes] {
            if let Some(shares) = &mut part.shares {
                shares.confine(to);
            }
        }
        let (joined, shards) = (found.joined && found.shards.len() > 1, found.shards.clone());
        let mut messages = DriverMessages::new();
        if joined && found.records.shares.is_none() {
            let orders = unbounded(&shards, to, found.records.last_round);
            messages.extend(self.share(CreditKind::Records(consumer), orders));
        }
        messages.extend(self.settle_up(consumer));
        messages
    }

    fn settle_up(&mut self, consumer: ConsumerId) -> DriverMessages {
        let mut messages = DriverMessages::new();
        for kind in Consumer::kinds(consumer) {
            let found = self.consumers.get_mut(&consumer).filter(|found| found.joined);
            let Some(found) = found else { continue };
            let orders = found.part(kind).settle_up();
            messages.extend(self.share(kind, orders));
        }
        messages
    }

    // -------------------------------------------------------------------------------------------- limit

    /// Limits the unsettled records over all consumers of the session.
    pub fn limit(&mut self, records: Option<u32>) -> DriverMessages {
        let session = self.session;
        let everywhere = |records| {
            let limit = move |shard: &ShardId| (*shard, Message::Limit { session, records });
            self.consuming.iter().map(limit).collect()
        };
        let (limit, orders) = match (records, std::mem::replace(&mut self.limit, Limit::None)) {
            (None, _) => return everywhere(None),
            (Some(now), _) if self.consuming.len() < 2 => {
                self.limit = Limit::Whole(now);
                return everywhere(Some(now));
            }
            (Some(now), Limit::Divided { records: before, mut shares }) => {
                shares.grow(now.saturating_sub(before).into());
                shares.shrink(before.saturating_sub(now).into());
                let orders = shares.settle_up();
                (Limit::Divided { records: now, shares }, orders)
            }
            (Some(now), _) => {
                let shards: Vec<ShardId> = self.consuming.iter().copied().collect();
                let mut shares = Shares::divide(0, &shards, true).after(self.limit_round);
                let orders = shares.set(now.into());
                self.limit_round = shares.round();
                (Limit::Divided { records: now, shares }, orders)
            }
        };
        self.limit = limit;
        self.share(CreditKind::Session, orders).collect()
    }

    /// A consumer joins in this shard: the session's limit applies there, too.
    fn enter(&mut self, shard: ShardId) -> DriverMessages {
        let others = self.consuming.iter().copied().next();
        if !self.consuming.insert(shard) {
            return DriverMessages::new();
        }
        let session = self.session;
        let nothing = |round| (shard, Change::Set { amount: 0, round });
        let orders = match (&mut self.limit, others) {
            (Limit::None, _) => return DriverMessages::new(),
            (Limit::Whole(records), None) => {
                let records = Some(*records);
                return vec![(shard, Message::Limit { session, records })];
            }
            (Limit::Whole(records), Some(other)) => {
                let (records, round) = (*records, self.limit_round);
                let mut shares = Shares::all_in(records.into(), other, true).after(round);
                shares.add(shard);
                self.limit = Limit::Divided { records, shares };
                vec![(other, Change::Begin { round }), nothing(round)]
            }
            (Limit::Divided { shares, .. }, _) => {
                shares.add(shard);
                vec![nothing(shares.round())]
            }
        };
        self.share(CreditKind::Session, orders).collect()
    }

    // ------------------------------------------------------------------------------------------ notices

    /// Handles a driver's notice about a share.
    pub(crate) fn on_notice(&mut self, notice: Notice) -> DriverMessages {
        let kind = match notice {
            Notice::Starved { kind, .. } | Notice::Returned { kind, .. } => kind,
            Notice::Grown { .. } => return DriverMessages::new(),
        };
        let (shares, joined) = match kind {
            CreditKind::Records(consumer) | CreditKind::Bytes(consumer) => {
                let Some(found) = self.consumers.get_mut(&consumer) else {
                    return DriverMessages::new();
                };
                let joined = found.joined;
                (found.part(kind).shares.as_mut(), joined)
            }
            CreditKind::Session => match &mut self.limit {
                Limit::Divided { shares, .. } => (Some(shares), true),
                Limit::None | Limit::Whole(_) => (None, true),
            },
        };
        let Some(shares) = shares else { return DriverMessages::new() };
        match notice {
            Notice::Starved { shard, starved, .. } => shares.on_starved(shard, starved),
            Notice::Returned { shard, given, .. } => shares.on_returned(shard, given),
            Notice::Grown { .. } => {}
        }
        let orders = if joined { shares.settle_up() } else { CreditOrders::new() };
        self.share(kind, orders).collect()
    }
}

/// Unlimited credit is unlimited in every shard, or in the only one that may have any.
fn unbounded(shards: &[ShardId], confined_to: Option<ShardId>, round: u32) -> CreditOrders {
    let change = |shard: ShardId| match confined_to {
        Some(only) if only != shard => Change::Set { amount: 0, round },
        _ => Change::Unlimited,
    };
    shards.iter().map(|&shard| (shard, change(shard))).collect()
}
