//! Settles that take effect by the entry of another shard, as parts of a transfer over several shards.
//!
//! The leases have ended, and no record of them is delivered. The other shard either takes the settles into its
//! entry, whose message then settles the records in this shard's log, or refuses the transfer. If this term ends
//! before that, the fence of the next one has the other shard refuse it, or waits for the message (`fence`). The driver
//! fences in the same way once the session has ended, which then reports no refusal.

use base::LeaseGroupId;
use dispatch::{RemoveRefused, SessionId};
use futures_util::FutureExt;
use machine::{GroupSettle, Preparation};
use shard::delivery::handle::{SettlesElsewhere, TransferOutcome, WithheldSettles, WithholdResult};
use tokio::sync::oneshot;
use tokio::time::sleep;

use super::{Driver, Purpose};
use crate::commit::{FinishedCommit, Unit};
use crate::limits::DECIDED_WITHIN;
use crate::transfer::Transfer;

/// Withheld settles of one transfer.
pub(super) struct Withholding {
    preparation: Preparation,
    session: SessionId,
    groups: Vec<LeaseGroupId>,
    settles: Vec<GroupSettle>,
    transfer: Transfer,
    /// The session has ended, its node is not connected, or it does not wait for the decision.
    is_abandoned: bool,
}

impl Driver {
    pub(super) fn withhold(
        &mut self,
        session: SessionId,
        groups: Vec<LeaseGroupId>,
        unit: Unit,
        transfer: Transfer,
        reply: oneshot::Sender<WithholdResult>,
    ) {
        let Unit { settles, batches: dead_letters, .. } = unit;
        // Until it ends, new engines of the groups count the records as settled.
        let number = self.commits.begin(&mut self.groups, &groups, &settles);
        let preparation = Preparation { term: self.term, number };
        let elsewhere = SettlesElsewhere { settles: settles.clone(), preparation };
        let withheld = WithheldSettles { settles: elsewhere, dead_letters };
        let is_received = reply.send(Ok(withheld)).is_ok();
        let is_abandoned = false;
        let withholding =
            Withholding { preparation, session, groups, settles, transfer, is_abandoned };
        self.withholdings.push(withholding);
        if !is_received {
            self.restore(preparation, true);
        }
    }

    /// The other shard refused the transfer, or the session does not wait for its decision.
    pub(super) fn restore(&mut self, preparation: Preparation, is_refused: bool) {
        let is_it = |it: &Withholding| it.preparation == preparation;
        match is_refused {
            true => self.restore_records(is_it),
            false => self.abandon(is_it),
        }
    }

    /// The session has ended, or its node is not connected: it reports no refusal any more.
    pub(super) fn abandon_all_of(&mut self, session: SessionId) {
        self.abandon(|it| it.session == session);
    }

    fn abandon(&mut self, are_abandoned: impl Fn(&Withholding) -> bool) {
        for withholding in self.withholdings.iter_mut().filter(|it| are_abandoned(it)) {
            withholding.is_abandoned = true;
        }
        self.resolve();
    }

    /// Resolves the withholdings that were abandoned: their transfers are decided soon, or not at all.
    fn resolve(&mut self) {
        let left =
            self.withholdings.iter().filter(|it| it.is_abandoned).map(|it| it.preparation.number);
        let Some(last) = left.max().filter(|_| self.resolution.is_none()) else { return };
        let (cancel, cancelled) = oneshot::channel::<()>();
        self.resolution = Some(cancel);
        let below = last + 1;
        let fenced = self.fence_others(Preparation { term: self.term, number: below });
        let resolution = async move {
            let fenced = sleep(DECIDED_WITHIN).then(|()| fenced);
            let below = tokio::select! {
                biased;
                is_fenced = fenced => if is_fenced { below } else { 0 },
                _ = cancelled => 0,
            };
            FinishedCommit::without_request(Purpose::Resolution { below })
        };
        self.commits.push(resolution.boxed());
    }

    pub(super) fn on_resolved(&mut self, below: u64) {
        self.resolution = None;
        if below > 0 {
            self.restore_records(|it| it.is_abandoned && it.preparation.number < below);
            self.resolve();
        }
    }

    fn restore_records(&mut self, are_restored: impl Fn(&Withholding) -> bool) {
        let are_restored = |it: &mut Withholding| are_restored(it);
        for withholding in self.withholdings.extract_if(.., are_restored).collect::<Vec<_>>() {
            let Withholding { preparation, groups, transfer, .. } = withholding;
            self.on_ended(preparation.number, &groups, false);
            self.on_transfer_refused(transfer, Vec::new());
        }
    }

    /// The message of the other shard is in the log.
    pub(super) fn on_settled_elsewhere(&mut self, settles: &[GroupSettle]) {
        // No two transfers settle the same record.
        match self.withholdings.iter().position(|it| it.settles == settles) {
            Some(place) => {
                let withholding = self.withholdings.swap_remove(place);
                let Withholding { preparation, groups, transfer, .. } = withholding;
                self.on_transferred(transfer, TransferOutcome::nothing());
                self.on_ended(preparation.number, &groups, false);
            }
            None => settles.iter().for_each(|settle| self.remove_settled(settle)),
        }
    }

    /// An earlier term withheld the records: the engine does not know that they are settled. Other leases of the group
    /// go on.
    fn remove_settled(&mut self, settle: &GroupSettle) {
        let Some(group) = self.groups.get_mut(settle.group) else { return };
        let mut is_leased = false;
        for &(first, count) in &settle.settled {
            for offset in first..first.saturating_add(count.into()) {
                let removed = group.dispatch.remove(settle.partition, offset);
                is_leased |= matches!(removed, Err(RemoveRefused::Busy { .. }));
            }
        }
        self.commits.note_changed(group);
        self.groups.enqueue(settle.group);
        if is_leased {
            self.renew(settle.group);
        }
    }
}
