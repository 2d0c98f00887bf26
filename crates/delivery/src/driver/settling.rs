//! Settles become durable, and are acknowledged then.

use base::{LeaseGroupId, Offset};
use dispatch::{Claim, SessionId, SettleRefused, Settlement};
use machine::GroupSettle;
use shard::delivery::error::SettleError;
use shard::delivery::options::Settle;
use shard::delivery::settle_reply::SettleSender;
use shard::error::{AppendError, Unavailable};
use shard::receipts::UnitResult;
use tokio::time::Instant;

use super::{Driver, Purpose};
use crate::commit::{CommittedAs, FinishedCommit, Unit};
use crate::dead_lettering::DeadLettering;
use crate::dead_letters::PendingLetter;
use crate::drivers::is_of_node;
use crate::handover::DeferredTransfer;
use crate::waiter::repeat::Repeat;
use crate::waiter::{Reject, Reply, Waiter, note_reject};

impl Driver {
    pub(super) fn settle(
        &mut self,
        session: SessionId,
        settles: &[Settle],
        again: bool,
        reply: SettleSender,
    ) {
        // The node of another session repeats its settles.
        let is_here = self.here.is_none_or(|here| is_of_node(session, here));
        let mut repeat = is_here.then(|| Repeat::new(session, settles.len()));
        let mut ended = Vec::new();
        let mut rejects: Vec<Reject> = Vec::new();
        let mut groups: Vec<LeaseGroupId> = Vec::new();
        let mut results = Vec::with_capacity(settles.len());
        for settle in settles {
            let result = match self.settle_noting(session, settle, |claim| ended.push(claim)) {
                Err(SettleError::NotLeased) if again => Err(Unavailable::Unanswered.into()),
                result => result,
            };
            if result.is_ok() && !matches!(settle.settlement, Settlement::Renew { .. }) {
                if groups.last() != Some(&settle.group) {
                    groups.push(settle.group);
                }
                note_reject(&mut rejects, settle);
            }
            results.push(result);
            match &mut repeat {
                Some(repeat) => repeat.add(settle, ended.drain(..)),
                None => ended.clear(),
            }
        }
        if groups.is_empty() {
            reply.send(results);
        } else {
            let mut waiter = Waiter::new(Reply::Settles(results, reply), groups, rejects);
            waiter.repeat = repeat.filter(|repeat| !repeat.is_empty());
            self.commits.wait(waiter);
        }
    }

    pub(super) fn settle_one(
        &mut self,
        session: SessionId,
        settle: &Settle,
    ) -> Result<(), SettleError> {
        self.settle_noting(session, settle, |_| {})
    }

    /// `ended` gets each lease that ends.
    fn settle_noting(
        &mut self,
        session: SessionId,
        settle: &Settle,
        ended: impl FnMut(Claim),
    ) -> Result<(), SettleError> {
        let now_ms = self.timeline.now_ms();
        // A group that is not loaded has no leases.
        let group = self.groups.get_mut(settle.group).ok_or(SettleError::NotLeased)?;
        group
            .dispatch
            .settle_claimed(session, settle.what, settle.settlement, now_ms, ended)
            .map_err(not_leased)?;
        self.commits.note_changed(group);
        self.on_leases_ended(session, settle.group);
        Ok(())
    }

    /// As [`Self::settle_one`] for an accept which takes effect only with its log entry. Returns partition and
    /// offset of each record.
    pub(super) fn withhold_one(
        &mut self,
        session: SessionId,
        settle: &Settle,
    ) -> Result<Vec<(u32, Offset)>, SettleError> {
        let now_ms = self.timeline.now_ms();
        let group = self.groups.get_mut(settle.group).ok_or(SettleError::NotLeased)?;
        let withheld = group.dispatch.withhold(session, settle.what, now_ms).map_err(not_leased)?;
        self.on_leases_ended(session, settle.group);
        Ok(withheld)
    }

    fn on_leases_ended(&mut self, session: SessionId, id: LeaseGroupId) {
        if self.sessions.pools.used(session).is_some()
            && let Some(group) = self.groups.get_mut(id)
        {
            // Room in the session's pool is also room for its consumers of other groups.
            group.dispatch.return_to(&mut self.sessions.pools);
            self.enqueue_groups_of(session);
        }
        self.groups.enqueue(id);
    }

    /// Commits all changes in one command, if it is due.
    pub(super) fn commit(&mut self) {
        if self.commits.is_due() {
            self.commit_all();
        }
    }

    /// As [`Self::commit`], regardless of the limit in flight.
    pub(super) fn commit_all(&mut self) {
        let Some((changed, mut waiters)) = self.commits.take() else { return };
        let mut settles = Vec::new();
        let mut groups = Vec::new();
        for id in changed {
            let before = settles.len();
            let dead = self.take_changes(id, &mut settles);
            self.add_dead(id, dead);
            if settles.len() > before {
                groups.push(id);
            }
        }
        for reject in waiters.iter_mut().flat_map(|waiter| &mut waiter.rejects) {
            // The number of dead letters that must be appended: at this point all changes of these groups are
            // drained.
            if let Some(group) = self.groups.get(reject.group) {
                (reject.engine, reject.dead_lettered) = (group.engine, group.dead.added());
            }
        }
        if settles.is_empty() {
            // Their changes are not durable state.
            waiters.into_iter().for_each(|waiter| self.answer(waiter));
            return;
        }
        self.commits.settle(&mut self.groups, groups, settles, Purpose::Settles(waiters));
    }

    /// Takes a group's changes: settles, changes of active consumers, and dead letters.
    pub(super) fn take_changes(
        &mut self,
        id: LeaseGroupId,
        settles: &mut Vec<GroupSettle>,
    ) -> Vec<PendingLetter> {
        // Before the reply, so that a query after it finds the step.
        self.note_steps(id);
        let Some(group) = self.groups.get_mut(id) else { return Vec::new() };
        let dead = group.take_changes(&mut self.changes, settles);
        for (consumer, active) in self.changes.active.drain(..) {
            if let Some(joined) = group.consumers.get(&consumer) {
                self.sessions.send_active(joined.session, consumer, active);
            }
        }
        dead
    }

    pub(super) fn on_committed(&mut self, committed: FinishedCommit<Purpose>) {
        let FinishedCommit { number, groups, purpose, result } = committed;
        let result = match result {
            Ok(CommittedAs::GivenBack(unit)) => {
                self.on_ended(number, &groups, false);
                return self.on_given_back(groups, unit, purpose);
            }
            Ok(CommittedAs::Entered(entered)) => Ok(entered),
            Err(why) => Err(why),
        };
        // The next term repeats a request that the end of this one refused, as a whole or batch by batch. Until
        // then no record of the groups is delivered.
        let is_refused = match &result {
            Ok(entered) => entered.rows.iter().any(is_unavailable),
            Err(_) => true,
        };
        let is_over = is_refused && self.is_term_over();
        match purpose {
            Purpose::Settles(waiters) => {
                self.commits.on_settled();
                for waiter in waiters {
                    match &result {
                        Ok(_) => self.answer(waiter),
                        Err(why) if is_over => self.lost.extend(waiter.lost(why)),
                        Err(why) => waiter.fail(why),
                    }
                }
                self.on_ended(number, &groups, result.is_err() && !is_over);
            }
            // Rejects keep waiting, for the next term.
            Purpose::DeadLettering(DeadLettering { group, engine, .. }) if is_over => {
                if let Some(group) = self.groups.with_engine(group, engine) {
                    group.dead.on_given_back(Instant::now());
                }
                self.on_ended(number, &groups, false);
            }
            Purpose::DeadLettering(letters) => {
                let lost = self.on_dead_lettered(letters, result);
                // A refused append is retried, and its records are not settled until then.
                self.on_ended(number, &groups, false);
                if lost {
                    self.renew(letters.group);
                }
            }
            Purpose::Transfer(transfer) => match result {
                Ok(UnitResult { rows, sent }) if rows.iter().all(Result::is_ok) => {
                    let rows = rows.into_iter().map_while(Result::ok).collect();
                    self.on_transferred(transfer, UnitResult { rows, sent });
                    self.on_ended(number, &groups, false);
                }
                Ok(UnitResult { rows, .. }) => {
                    self.on_ended(number, &groups, false);
                    self.on_transfer_refused(transfer, rows);
                }
                Err(why) => {
                    // The outcome is unknown: the groups' engines are rebuilt.
                    self.on_ended(number, &groups, !is_over);
                    transfer.fail(&why);
                }
            },
            Purpose::Fence => self.on_fenced(),
            Purpose::Resolution { below } => self.on_resolved(below),
            // The dead letters may have been refused as well: their producer only learns that its records were.
            Purpose::Overflow(overflowed) => self.dead_letter_refused(overflowed),
        }
    }

    /// The term is over. Requests that waited for room in an outbox are repeated in the next one: dead letters
    /// with all other pending ones, and a transfer unchanged, because the leases that it settles have ended.
    fn on_given_back(&mut self, groups: Vec<LeaseGroupId>, unit: Unit, purpose: Purpose) {
        match purpose {
            Purpose::DeadLettering(DeadLettering { group, engine, .. }) => {
                if let Some(group) = self.groups.with_engine(group, engine) {
                    group.dead.on_given_back(Instant::now());
                }
            }
            Purpose::Transfer(transfer) => {
                self.given_back.push(DeferredTransfer { groups, unit, transfer });
            }
            // They need no outbox.
            Purpose::Settles(_)
            | Purpose::Overflow(_)
            | Purpose::Fence
            | Purpose::Resolution { .. } => {}
        }
    }

    /// The request of these groups has ended; `failed` if it is unknown whether it took effect.
    pub(super) fn on_ended(&mut self, number: u64, groups: &[LeaseGroupId], failed: bool) {
        for &id in groups {
            let Some(group) = self.groups.get_mut(id) else { continue };
            group.in_flight.retain(|(other, _)| *other != number);
            if failed {
                // Records that the engine counts as settled may not be.
                self.renew(id);
            } else if group.in_flight.is_empty() && !group.sought.is_empty() {
                self.seek(id);
            }
        }
    }

    /// Replies to a settle, or holds it until its dead letters are appended.
    pub(super) fn answer(&mut self, mut waiter: Waiter) {
        while let Some(Reject { group, engine, dead_lettered }) = waiter.rejects.pop() {
            // The group is gone, so the record is not delivered any more either.
            let Some(group) = self.groups.get_mut(group) else { continue };
            if group.engine != engine {
                return match self.is_term_over() {
                    true => self.lost.extend(waiter.lost(&Unavailable::NotLeader)),
                    false => waiter.fail(&Unavailable::NotLeader),
                };
            }
            match group.dead.hold(dead_lettered, waiter) {
                Some(ready) => waiter = ready,
                None => return,
            }
        }
        waiter.answer();
    }
}

fn is_unavailable<T>(row: &Result<T, AppendError>) -> bool {
    matches!(row, Err(AppendError::Unavailable(_)))
}

fn not_leased(refused: SettleRefused) -> SettleError {
    match refused {
        SettleRefused::Stale { .. }
        | SettleRefused::NotHolder { .. }
        | SettleRefused::NotLeased { .. }
        | SettleRefused::NoSuchPartition { .. } => SettleError::NotLeased,
    }
}
