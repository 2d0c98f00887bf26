//! Settles that take effect by the entry of another shard, as parts of a transfer over several shards.
//!
//! The leases have ended, and no record of them is delivered. The other shard either takes the settles into its
//! entry, whose message then settles the records in this shard's log, or refuses the transfer. If this term ends
//! before that, the fence of the next one has the other shard refuse it, or waits for the message (`fence`).

use base::LeaseGroupId;
use dispatch::{RemoveRefused, SessionId};
use machine::GroupSettle;
use shard::delivery::handle::{SettlesElsewhere, TransferOutcome, WithheldSettles, WithholdResult};
use tokio::sync::oneshot;

use super::Driver;
use crate::commit::Unit;
use crate::transfer::Transfer;

/// Withheld settles of one transfer.
pub(super) struct Withholding {
    number: u64,
    session: SessionId,
    groups: Vec<LeaseGroupId>,
    settles: Vec<GroupSettle>,
    transfer: Transfer,
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
        let elsewhere = SettlesElsewhere { settles: settles.clone(), term: self.term };
        let withheld = WithheldSettles { number, settles: elsewhere, dead_letters };
        let is_received = reply.send(Ok(withheld)).is_ok();
        self.withholdings.push(Withholding { number, session, groups, settles, transfer });
        if !is_received {
            self.restore(session, number);
        }
    }

    /// The other shard refused the transfer.
    pub(super) fn restore(&mut self, session: SessionId, number: u64) {
        let is_it = |it: &mut Withholding| (it.session, it.number) == (session, number);
        for withholding in self.withholdings.extract_if(.., is_it).collect::<Vec<_>>() {
            self.restore_records(withholding);
        }
    }

    /// The session has ended, and may have ended before its transfer was decided.
    pub(super) fn restore_all_of(&mut self, session: SessionId) {
        let is_of_session = |it: &mut Withholding| it.session == session;
        for withholding in self.withholdings.extract_if(.., is_of_session).collect::<Vec<_>>() {
            self.restore_records(withholding);
        }
    }

    fn restore_records(&mut self, withholding: Withholding) {
        let Withholding { number, groups, transfer, .. } = withholding;
        self.on_ended(number, &groups, false);
        self.on_transfer_refused(transfer, Vec::new());
    }

    /// The message of the other shard is in the log.
    pub(super) fn on_settled_elsewhere(&mut self, settles: &[GroupSettle]) {
        // No two transfers settle the same record.
        match self.withholdings.iter().position(|it| it.settles == settles) {
            Some(place) => {
                let withholding = self.withholdings.swap_remove(place);
                let Withholding { number, groups, transfer, .. } = withholding;
                self.on_transferred(transfer, TransferOutcome::nothing());
                self.on_ended(number, &groups, false);
            }
            None => settles.iter().for_each(|settle| self.remove_settled(settle)),
        }
    }

    /// An earlier term withheld the records, or their session has ended: the engine does not know that they are
    /// settled. Other leases of the group go on.
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
