//! What sessions divide over shards: this shard's shares of it are changed, given back, and reported when they
//! are not enough.

use std::collections::BTreeMap;

use base::LeaseGroupId;
use dispatch::{Assignment, ConsumerId, SessionId};

use super::super::divided_credit::{Change, CreditKind};
use super::super::group::Group;
use super::super::lent::{Lent, Loan};
use super::Driver;

impl Driver {
    pub(super) fn share(&mut self, id: SessionId, kind: CreditKind, change: Change) {
        match kind {
            CreditKind::Records(consumer) | CreditKind::Bytes(consumer) => {
                // Nothing of it is here once the consumer is gone.
                let Some(group) = self.sessions.group_of(id, consumer) else { return };
                self.change_share(id, kind, change);
                self.groups.enqueue(group);
            }
            CreditKind::Session => {
                self.change_share(id, kind, change);
                self.enqueue_groups_of(id);
            }
        }
    }

    /// A share that was another driver's goes on here.
    pub(super) fn lend(&mut self, id: SessionId, kind: CreditKind, loan: Loan) {
        let group = match kind {
            CreditKind::Records(consumer) | CreditKind::Bytes(consumer) => {
                let Some(group) = self.sessions.group_of(id, consumer) else { return };
                Some(group)
            }
            CreditKind::Session => None,
        };
        self.sessions.lend(id, kind, Lent::resume(loan));
        self.sessions.note_debt(id, kind);
        match group {
            Some(group) => self.groups.enqueue(group),
            None => self.enqueue_groups_of(id),
        }
    }

    fn change_share(&mut self, id: SessionId, kind: CreditKind, change: Change) {
        match change {
            Change::Begin { round } => {
                let share = self.credit(id, kind);
                self.sessions.lend(id, kind, Lent::new(share, round));
            }
            Change::Set { amount, round } => {
                let mut lent = self.sessions.lent(id, kind).cloned().unwrap_or_default();
                lent.set(amount, round);
                self.sessions.lend(id, kind, lent);
                self.set_credit_of(id, kind, amount);
                self.sessions.note_debt(id, kind);
            }
            Change::Unlimited => {
                self.sessions.forget_share(id, kind);
                self.set_credit_of(id, kind, u64::MAX);
            }
            Change::Grant(amount) => {
                let share = self.credit(id, kind).saturating_add(amount);
                let Some(lent) = self.sessions.lent(id, kind) else { return };
                lent.grant(amount);
                self.set_credit_of(id, kind, share);
            }
            Change::GiveBack { in_all } => {
                let Some(lent) = self.sessions.lent(id, kind) else { return };
                lent.ask(in_all);
                let group = self.group_of_share(id, kind);
                let is_next = group.is_some_and(|group| group.queued);
                self.give_back_share(id, kind, is_next);
            }
        }
    }

    /// Gives back what is owed and not in use any more. `is_next`: before records of the group are handed out.
    pub(super) fn repay(&mut self, id: LeaseGroupId, is_next: bool) {
        if !self.sessions.any_lent() {
            return;
        }
        if let Some(group) = self.groups.get_mut(id) {
            group.dispatch.return_to(&mut self.sessions.pools);
        }
        for (session, kind) in self.sessions.indebted() {
            let concerns = match kind {
                CreditKind::Records(consumer) | CreditKind::Bytes(consumer) => {
                    self.sessions.group_of(session, consumer) == Some(id)
                }
                CreditKind::Session => true,
            };
            if concerns {
                self.give_back_share(session, kind, is_next);
            }
        }
    }

    fn give_back_share(&mut self, id: SessionId, kind: CreditKind, is_next: bool) {
        if self.keeps(id, kind, is_next) {
            return self.sessions.note_debt(id, kind);
        }
        let Some(owed) = self.sessions.lent(id, kind).map(|lent| lent.owed()) else { return };
        let (given, left, returns) = match kind {
            CreditKind::Records(consumer) => {
                let owed = u32::try_from(owed).unwrap_or(u32::MAX);
                self.take_back(id, consumer, owed, 0, |(records, _)| records.into())
            }
            CreditKind::Bytes(consumer) => {
                self.take_back(id, consumer, 0, owed, |(_, bytes)| bytes)
            }
            CreditKind::Session => {
                let limit = u64::from(self.sessions.limit_of(id).unwrap_or(0));
                // While it is held back for what it has not read, its pool does not tell the limit.
                let used = u64::from(self.sessions.pools.used(id).unwrap_or(0));
                let given = owed.min(limit.saturating_sub(used));
                self.set_credit_of(id, kind, limit - given);
                (given, limit.saturating_sub(used) - given, true)
            }
        };
        let told = self.sessions.lent(id, kind).and_then(|it| it.give_back(given, left, returns));
        if let Some(told) = told {
            self.sessions.send_given_back(id, kind, told);
        }
        self.sessions.note_debt(id, kind);
    }

    /// Whether nothing of it is given back now ([`Lent::keeps`]): a record is ready that needs it and has what it
    /// needs before. It waits for something else that it needs, or is about to be handed out (`is_next`); one that
    /// has all and was not handed out is held up otherwise.
    fn keeps(&mut self, id: SessionId, kind: CreditKind, is_next: bool) -> bool {
        let (CreditKind::Bytes(consumer) | CreditKind::Records(consumer)) = kind else {
            // It is needed last.
            return false;
        };
        let Some(group) = self.group_of_share(id, kind) else { return false };
        let lack = group.dispatch.lack(consumer, &self.sessions.pools);
        let could_use = match kind {
            CreditKind::Bytes(_) => !lack.bytes && (is_next || lack.records || lack.pool),
            _ => !lack.bytes && !lack.records && (is_next || lack.pool),
        };
        let could_use = lack.ready && could_use;
        self.sessions.lent(id, kind).is_some_and(|lent| lent.keeps(could_use))
    }

    /// Of a consumer's credit.
    fn group_of_share(&self, id: SessionId, kind: CreditKind) -> Option<&Group> {
        match kind {
            CreditKind::Records(consumer) | CreditKind::Bytes(consumer) => {
                self.groups.get(self.sessions.group_of(id, consumer)?)
            }
            CreditKind::Session => None,
        }
    }

    /// Records of the group were handed out, or none was: what sessions lent for them is used, and what they want
    /// back and is not needed goes.
    pub(super) fn on_handed_out(&mut self, id: LeaseGroupId, assigned: &[Assignment]) {
        if !self.sessions.any_lent() {
            return;
        }
        for Assignment { session, consumer, .. } in assigned {
            for kind in [CreditKind::Records(*consumer), CreditKind::Bytes(*consumer)] {
                if let Some(lent) = self.sessions.lent(*session, kind) {
                    lent.note_used();
                }
            }
        }
        self.repay(id, false);
    }

    /// Takes records or bytes from a consumer: what it gave, what it has left, and whether its leases give
    /// back what they use.
    fn take_back(
        &mut self,
        id: SessionId,
        consumer: ConsumerId,
        records: u32,
        bytes: u64,
        part: impl Fn((u32, u64)) -> u64,
    ) -> (u64, u64, bool) {
        let group = self.sessions.group_of(id, consumer);
        let Some(group) = group.and_then(|group| self.groups.get_mut(group)) else {
            return (0, 0, true);
        };
        let given = group.dispatch.take_back(consumer, records, bytes);
        let left = group.dispatch.unused_credit(consumer);
        let joined = group.consumers.get(&consumer);
        let returns = joined.is_none_or(|joined| joined.credit == dispatch::Credit::Window);
        (part(given), part(left), returns)
    }

    /// How much of it there is in this shard.
    fn credit(&self, id: SessionId, kind: CreditKind) -> u64 {
        let of = |consumer| {
            let group = self.groups.get(self.sessions.group_of(id, consumer)?)?;
            group.dispatch.credit(consumer)
        };
        match kind {
            CreditKind::Records(consumer) => of(consumer).map_or(0, |(records, _)| records.into()),
            CreditKind::Bytes(consumer) => of(consumer).map_or(0, |(_, bytes)| bytes),
            CreditKind::Session => self.sessions.limit_of(id).unwrap_or(0).into(),
        }
    }

    fn set_credit_of(&mut self, id: SessionId, kind: CreditKind, amount: u64) {
        let records = u32::try_from(amount).unwrap_or(u32::MAX);
        let consumer = match kind {
            CreditKind::Records(consumer) | CreditKind::Bytes(consumer) => consumer,
            CreditKind::Session => return self.sessions.limit(id, Some(records)),
        };
        let Some(group) = self.sessions.group_of(id, consumer) else { return };
        if let Some(group) = self.groups.get_mut(group)
            && let Some((records_before, bytes_before)) = group.dispatch.credit(consumer)
        {
            match kind {
                CreditKind::Bytes(_) => group.dispatch.set_credit(consumer, records_before, amount),
                _ => group.dispatch.set_credit(consumer, records, bytes_before),
            }
        }
    }

    /// After records of the group were handed out: tells sessions of whose shares more is needed.
    pub(super) fn note_starved(&mut self, id: LeaseGroupId) {
        if !self.sessions.any_lent() {
            return;
        }
        let Some(group) = self.groups.get(id) else { return };
        // Of a session, whether any of its consumers here lacks it.
        let mut sessions: BTreeMap<SessionId, bool> = BTreeMap::new();
        for (&consumer, joined) in &group.consumers {
            let session = joined.session;
            let lack = group.dispatch.lack(consumer, &self.sessions.pools);
            // One at a time, and in all shards in this order; what a record needs before the one that it waits
            // for is kept meanwhile (`keeps`). In different orders two shards might each wait for what the
            // other has. Asked for at once, what comes first would lie unused, go where it is lacking, and be
            // asked for again.
            let bytes = lack.bytes;
            let records = lack.records && !bytes;
            let pool = lack.pool && !bytes && !records;
            self.sessions.note_starved(session, CreditKind::Bytes(consumer), id, bytes);
            self.sessions.note_starved(session, CreditKind::Records(consumer), id, records);
            let held_back = self.sessions.is_held_back(session);
            *sessions.entry(session).or_default() |= pool && !held_back;
        }
        for (session, lacks) in sessions {
            self.sessions.note_starved(session, CreditKind::Session, id, lacks);
        }
    }
}
