//! Credit that sessions split over shards: changing this shard's shares, returning them, and reporting a lack.

use std::collections::BTreeMap;

use base::LeaseGroupId;
use dispatch::{Assignment, ConsumerId, SessionId};
use shard::delivery::borrowed_credit::{BorrowedCredit, BorrowedCreditState};
use shard::delivery::divided_credit::{Change, CreditKind};

use super::Driver;
use crate::groups::group::Group;

impl Driver {
    pub(super) fn share(&mut self, id: SessionId, kind: CreditKind, change: Change) {
        match kind {
            CreditKind::Records(consumer) | CreditKind::Bytes(consumer) => {
                // Once the consumer is gone it has no share here.
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

    /// Continues a share of another driver.
    pub(super) fn lend(&mut self, id: SessionId, kind: CreditKind, loan: BorrowedCreditState) {
        let group = match kind {
            CreditKind::Records(consumer) | CreditKind::Bytes(consumer) => {
                let Some(group) = self.sessions.group_of(id, consumer) else { return };
                Some(group)
            }
            CreditKind::Session => None,
        };
        self.sessions.lend(id, kind, BorrowedCredit::resume(loan));
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
                self.sessions.lend(id, kind, BorrowedCredit::new(share, round));
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
            Change::Return { in_all } => {
                let Some(lent) = self.sessions.lent(id, kind) else { return };
                lent.request_return(in_all);
                let group = self.group_of_share(id, kind);
                let is_next = group.is_some_and(|group| group.queued);
                self.return_share(id, kind, is_next);
            }
        }
    }

    /// Returns unused credit that is owed. `is_next`: before records of the group are delivered.
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
                self.return_share(session, kind, is_next);
            }
        }
    }

    fn return_share(&mut self, id: SessionId, kind: CreditKind, is_next: bool) {
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
                // While the session is held back for unread bytes, its pool does not show the limit.
                let used = u64::from(self.sessions.pools.used(id).unwrap_or(0));
                let given = owed.min(limit.saturating_sub(used));
                self.set_credit_of(id, kind, limit - given);
                (given, limit.saturating_sub(used) - given, true)
            }
        };
        let returned =
            self.sessions.lent(id, kind).and_then(|it| it.return_credit(given, left, returns));
        if let Some(returned) = returned {
            self.sessions.send_returned(id, kind, returned);
        }
        self.sessions.note_debt(id, kind);
    }

    /// Whether nothing of it is returned now ([`BorrowedCredit::keeps`]): a ready record needs it and has the credit of
    /// earlier kinds. The record waits for another kind of credit, or is about to be delivered (`is_next`). A
    /// record that has all of it and was not delivered is blocked otherwise.
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

    /// The group of a consumer's credit.
    fn group_of_share(&self, id: SessionId, kind: CreditKind) -> Option<&Group> {
        match kind {
            CreditKind::Records(consumer) | CreditKind::Bytes(consumer) => {
                self.groups.get(self.sessions.group_of(id, consumer)?)
            }
            CreditKind::Session => None,
        }
    }

    /// After a pass over the group: marks the shares of the delivered records as used, and returns unused
    /// credit that is owed.
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

    /// Takes records or bytes of credit from a consumer. Returns the amount taken, the unused rest, and whether
    /// its leases return their credit.
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

    /// The credit in this shard.
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

    /// After a pass over the group: notifies sessions of shares that are used up.
    pub(super) fn note_starved(&mut self, id: LeaseGroupId) {
        if !self.sessions.any_lent() {
            return;
        }
        let Some(group) = self.groups.get(id) else { return };
        // For each session, whether any of its consumers here lacks pool credit.
        let mut sessions: BTreeMap<SessionId, bool> = BTreeMap::new();
        for (&consumer, joined) in &group.consumers {
            let session = joined.session;
            let lack = group.dispatch.lack(consumer, &self.sessions.pools);
            // Lacks are reported one kind at a time, in the same order in all shards, and a record keeps its
            // credit of earlier kinds meanwhile (`keeps`). With different orders two shards might each wait for
            // the other's credit. If all kinds were requested at once, those needed first would lie unused,
            // move to another shard, and be requested again.
            let bytes = lack.bytes;
            let records = lack.records && !bytes;
            let pool = lack.pool && !bytes && !records;
            self.sessions.note_starved(session, CreditKind::Bytes(consumer), id, bytes);
            self.sessions.note_starved(session, CreditKind::Records(consumer), id, records);
            let gets_none = self.sessions.gets_none(session);
            *sessions.entry(session).or_default() |= pool && !gets_none;
        }
        for (session, lacks) in sessions {
            self.sessions.note_starved(session, CreditKind::Session, id, lacks);
        }
    }
}
