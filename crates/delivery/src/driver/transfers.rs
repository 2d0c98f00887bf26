//! Execution of transfers: they take effect as a whole or not at all.

use base::{HashSet, LeaseGroupId, Offset};
use dispatch::{Selection, SessionId, Settlement};
use shard::append::{AppendBatch, AppendedBatch};
use shard::delivery::error::{SettleError, TransferError};
use shard::delivery::handle::{TransferOutcome, TransferResult};
use shard::delivery::options::Settle;
use shard::error::AppendError;
use tokio::sync::oneshot;

use super::{Driver, Purpose};
use crate::commit::Unit;
use crate::commit::settles::{attempts_of, settles_of};
use crate::dead_letter_batches::DeadLetterBatches;
use crate::dead_lettering::cause;
use crate::dead_letters::PendingLetter;
use crate::transfer::{
    Decision, GroupDeadLetters, PendingTransfer, RejectedRecords, Transfer, WithheldRecords,
};
use crate::waiter::{Reject, Reply, Waiter};

impl Driver {
    pub(super) fn transfer(
        &mut self,
        session: SessionId,
        settles: Vec<Settle>,
        batches: Vec<AppendBatch>,
        decision: Decision,
    ) {
        self.resume_transfer(PendingTransfer::new(session, settles, batches, decision));
    }

    /// Executes transfers whose records have been read meanwhile.
    pub(super) fn resume_transfers(&mut self) {
        for transfer in self.transfers.take() {
            self.resume_transfer(transfer);
        }
    }

    fn resume_transfer(&mut self, mut transfer: PendingTransfer) {
        if transfer.gather(&self.groups, &mut self.reader) {
            self.commit_transfer(transfer);
        } else {
            self.transfers.wait(transfer);
        }
    }

    fn commit_transfer(&mut self, transfer: PendingTransfer) {
        let PendingTransfer { session, settles, batches, decision, rejected, .. } = transfer;
        // Earlier settles are committed first, and acknowledged separately.
        self.commit_all();
        let withheld = match self.settle_all(session, &settles, &batches) {
            Ok(withheld) => withheld,
            Err(error) => return decision.refuse(error),
        };
        let mut groups: Vec<LeaseGroupId> = settles.iter().map(|settle| settle.group).collect();
        groups.sort_unstable();
        groups.dedup();
        let (unit, transfer) = self.transfer_of(&groups, rejected, withheld, batches);
        match decision {
            Decision::Here { elsewhere, reply } => {
                let unit = Unit { elsewhere, ..unit };
                let purpose = Purpose::Transfer(Transfer { reply: Some(reply), ..transfer });
                self.commits.execute_unit(&mut self.groups, groups, unit, purpose);
            }
            Decision::Elsewhere { reply } => {
                self.withhold(session, groups, unit, transfer, reply);
            }
        }
    }

    /// Puts the changes of a group and the batches into one log entry.
    pub(super) fn transfer_group(
        &mut self,
        group: LeaseGroupId,
        batches: Vec<AppendBatch>,
        reply: oneshot::Sender<TransferResult>,
    ) {
        let (groups, rejected) = (vec![group], RejectedRecords::default());
        let (unit, transfer) = self.transfer_of(&groups, rejected, Vec::new(), batches);
        let transfer = Transfer { removed_from: Some(group), reply: Some(reply), ..transfer };
        self.commits.execute_unit(&mut self.groups, groups, unit, Purpose::Transfer(transfer));
    }

    /// Returns the unit with the changes of these groups and the batches, and the transfer that it executes.
    fn transfer_of(
        &mut self,
        groups: &[LeaseGroupId],
        rejected: RejectedRecords,
        withheld: Vec<WithheldRecords>,
        mut batches: Vec<AppendBatch>,
    ) -> (Unit, Transfer) {
        let mut changes = Vec::new();
        for WithheldRecords { group, records, .. } in &withheld {
            changes.extend(settles_of(*group, records.clone()));
        }
        let mut letters = DeadLetterBatches::default();
        let (mut dead_lettered, mut to_dead_letter) = (Vec::new(), Vec::new());
        for &id in groups {
            self.commits.forget_changes(id);
            let dead = self.take_changes(id, &mut changes);
            let Some(group) = self.groups.get(id).filter(|_| !dead.is_empty()) else { continue };
            let (included, rest) = match self.dead_letters.target(&group.config) {
                Some(target) => {
                    let time_ms = self.clock.now_ms();
                    rejected.include(group, dead, &target, time_ms, &mut letters, &mut changes)
                }
                None => (Vec::new(), dead),
            };
            let engine = group.engine;
            let letters = |pending: Vec<PendingLetter>| {
                (!pending.is_empty()).then_some(GroupDeadLetters { group: id, engine, pending })
            };
            dead_lettered.extend(letters(included));
            to_dead_letter.extend(letters(rest));
        }
        let own_rows = batches.iter().map(AppendBatch::rows).sum();
        batches.extend(letters.batches());
        let attempts = attempts_of(&changes);
        let transfer = Transfer {
            own_rows,
            withheld,
            dead_lettered,
            to_dead_letter,
            attempts,
            removed_from: None,
            reply: None,
        };
        (Unit { settles: changes, batches, ..Unit::default() }, transfer)
    }

    /// It took effect.
    pub(super) fn on_transferred(&mut self, transfer: Transfer, mut moved: TransferOutcome) {
        let Transfer { own_rows, withheld, dead_lettered, to_dead_letter, reply, .. } = transfer;
        moved.rows.truncate(own_rows);
        for WithheldRecords { group: id, engine, records } in withheld {
            if let Some(group) = self.groups.with_engine(id, engine) {
                group.on_withheld_settled(&records);
                self.groups.enqueue(id);
            }
        }
        for GroupDeadLetters { group: id, engine, pending } in dead_lettered {
            if let Some(group) = self.groups.with_engine(id, engine) {
                group.on_letters_appended(&pending);
                self.groups.enqueue(id);
            }
        }
        let (mut rejects, mut groups) = (Vec::new(), Vec::new());
        for GroupDeadLetters { group: id, engine, pending } in to_dead_letter {
            if self.groups.with_engine(id, engine).is_some() {
                self.add_dead(id, pending);
            }
            let Some(group) = self.groups.get(id) else { continue };
            rejects.push(Reject { group: id, engine, dead_lettered: group.dead.added() });
            groups.push(id);
        }
        if let Some(reply) = reply {
            self.answer(Waiter::new(Reply::Transfer(moved, reply), groups, rejects));
        }
    }

    /// It was refused as a whole: its records are available again. Other leases of their groups are not
    /// affected.
    pub(super) fn on_transfer_refused(
        &mut self,
        mut transfer: Transfer,
        rows: Vec<Result<Option<AppendedBatch>, AppendError>>,
    ) {
        for WithheldRecords { group: id, engine, records } in transfer.take_withheld() {
            match self.groups.with_engine(id, engine) {
                Some(_) => self.release_withheld(id, &records),
                // The new engine counted them as settled, since their entry was in flight.
                None => self.renew(id),
            }
        }
        let Transfer { attempts, removed_from, reply, .. } = transfer;
        if let Some(id) = removed_from {
            self.renew(id);
        }
        if !attempts.is_empty() {
            let groups = attempts.iter().map(|settle| settle.group).collect();
            let no_waiters = Purpose::Settles(Vec::new());
            self.commits.settle(&mut self.groups, groups, attempts, no_waiters);
        }
        let batch = rows.iter().position(Result::is_err).unwrap_or(0);
        let source = cause(rows).unwrap_or(AppendError::UnitRefused);
        if let Some(reply) = reply {
            let _ = reply.send(Err(TransferError::Append { batch, source }));
        }
    }

    fn release_withheld(&mut self, id: LeaseGroupId, records: &[(u32, Offset)]) {
        let Some(group) = self.groups.get_mut(id) else { return };
        group.release_withheld(records);
        self.groups.enqueue(id);
    }

    /// Settles all items, or none.
    fn settle_all(
        &mut self,
        session: SessionId,
        settles: &[Settle],
        batches: &[AppendBatch],
    ) -> Result<Vec<WithheldRecords>, TransferError> {
        let unknown = self.shard.read(|state| {
            let rows = batches.iter().flat_map(AppendBatch::partitions).enumerate();
            let is_there = |partition| {
                state.rows.partition(partition).is_some() || state.elsewhere(partition).is_some()
            };
            rows.into_iter().find(|(_, partition)| !is_there(*partition))
        });
        if let Some((batch, partition)) = unknown {
            let source = AppendError::UnknownPartition(partition);
            return Err(TransferError::Append { batch, source });
        }
        // The session must hold all of them, each named once: the second settle of a lease would fail after
        // others took effect.
        let mut named: HashSet<(LeaseGroupId, u32, Offset)> = HashSet::default();
        for (item, settle) in settles.iter().enumerate() {
            let refused = |source| TransferError::Settle { item, source };
            let group = self.groups.get(settle.group);
            let group = group.ok_or(refused(SettleError::NotLeased))?;
            let leased = group.dispatch.leased(session, settle.what);
            let leased = leased.map_err(|_| refused(SettleError::NotLeased))?;
            let ends = !matches!(settle.settlement, Settlement::Renew { .. });
            let (in_all, mut left) = (leased.len(), 0);
            for (partition, offset) in leased {
                let place = (settle.group, partition, offset);
                let is_left = if ends { named.insert(place) } else { !named.contains(&place) };
                left += usize::from(is_left);
            }
            let is_held = match settle.what {
                // The selection covers the remaining leases.
                Selection::UpTo { .. } => left > 0,
                _ => left == in_all,
            };
            if !is_held {
                return Err(refused(SettleError::NotLeased));
            }
        }
        let mut withheld: Vec<WithheldRecords> = Vec::new();
        for (item, settle) in settles.iter().enumerate() {
            let Some(group) = self.groups.get(settle.group) else { continue };
            let (id, engine) = (settle.group, group.engine);
            let ends = match settle.settlement {
                Settlement::Accept => true,
                Settlement::Reject => !group.dispatch.policy().dead_letters,
                Settlement::Release { .. } | Settlement::Renew { .. } => false,
            };
            let done = match ends {
                true => self.withhold_one(session, settle),
                false => self.settle_one(session, settle).map(|_| Vec::new()),
            };
            let mut records = match done {
                Ok(records) => records,
                Err(source) => {
                    for WithheldRecords { group, records, .. } in withheld {
                        self.release_withheld(group, &records);
                    }
                    return Err(TransferError::Settle { item, source });
                }
            };
            match withheld.iter_mut().find(|known| known.group == id) {
                Some(known) => known.records.append(&mut records),
                None => withheld.push(WithheldRecords { group: id, engine, records }),
            }
        }
        Ok(withheld)
    }
}
