//! Ends leases. There is ONE way back for a record, [`Dispatch::come_back`]: for a release, a
//! deadline and the end of a session. The lease is removed before the attempt is counted, so that a
//! second cause finds no lease and counts nothing.

use base::Offset;

use super::Dispatch;
use crate::SessionId;
use crate::lease::{Claim, Lease, Selection, SettleRefused, Settlement, Slot};
use crate::record::DeadReason;
use crate::steps::{Step, StepKind};

/// Nearly always one slot, without an allocation.
pub(super) enum Slots {
    One([Slot; 1]),
    Many(Vec<Slot>),
}

impl Default for Slots {
    fn default() -> Self {
        Self::Many(Vec::new())
    }
}

impl std::ops::Deref for Slots {
    type Target = [Slot];

    fn deref(&self) -> &[Slot] {
        match self {
            Self::One(slot) => slot,
            Self::Many(slots) => slots,
        }
    }
}

impl Dispatch {
    /// Ends leases. Returns the number of records.
    pub fn settle(
        &mut self,
        session: SessionId,
        selection: Selection,
        settlement: Settlement,
        now_ms: i64,
    ) -> Result<u32, SettleRefused> {
        self.settle_claimed(session, selection, settlement, now_ms, |_| {})
    }

    /// As [`Dispatch::settle`]. `ended` gets each ended lease in its former state: until its end is
    /// durable, another engine may have to claim it to end it again.
    pub fn settle_claimed(
        &mut self,
        session: SessionId,
        selection: Selection,
        settlement: Settlement,
        now_ms: i64,
        mut ended: impl FnMut(Claim),
    ) -> Result<u32, SettleRefused> {
        self.now_ms = now_ms;
        let slots = self.selected(session, selection)?;
        for &slot in slots.iter() {
            if !matches!(settlement, Settlement::Renew { .. }) {
                ended(self.claim_of(slot));
            }
            self.end(slot, settlement, now_ms);
        }
        Ok(slots.len() as u32)
    }

    /// Partition and offset of the leased records that a settle selects.
    pub fn leased(
        &self,
        session: SessionId,
        selection: Selection,
    ) -> Result<Vec<(u32, Offset)>, SettleRefused> {
        let slots = self.selected(session, selection)?;
        let leases = slots.iter().map(|&slot| self.leases.get(slot));
        Ok(leases.map(|lease| (lease.partition, lease.offset)).collect())
    }

    /// Partition and offset of the records that this settle would make dead letters. Empty if it
    /// would be refused.
    pub fn dead_letters_of_settle(
        &self,
        session: SessionId,
        selection: Selection,
        settlement: Settlement,
    ) -> Vec<(u32, Offset)> {
        let kills = |lease: &Lease| match settlement {
            Settlement::Reject => true,
            Settlement::Release { count: true, .. } => self.is_last(lease.attempt),
            Settlement::Release { .. } | Settlement::Accept | Settlement::Renew { .. } => false,
        };
        let slots = match self.policy.dead_letters {
            true => self.selected(session, selection).unwrap_or_default(),
            false => return Vec::new(),
        };
        let leases = slots.iter().map(|&slot| self.leases.get(slot)).filter(|lease| kills(lease));
        leases.map(|lease| (lease.partition, lease.offset)).collect()
    }

    fn is_last(&self, attempt: u16) -> bool {
        self.policy.attempts_max.is_some_and(|max| attempt >= max)
    }

    /// The leases that a settle selects.
    pub(super) fn selected(
        &self,
        session: SessionId,
        selection: Selection,
    ) -> Result<Slots, SettleRefused> {
        match selection {
            Selection::Held { partition, token, session } => {
                self.selected(session, Selection::Lease { partition, token })
            }
            Selection::Lease { partition, token } => {
                let slot = self.leases.find_token(token).ok_or(SettleRefused::Stale { token })?;
                let lease = self.leases.get(slot);
                if lease.session != session {
                    return Err(SettleRefused::NotHolder { token, session });
                }
                // Another shard's engine may have assigned the same token.
                if lease.partition != partition {
                    return Err(SettleRefused::Stale { token });
                }
                Ok(Slots::One([slot]))
            }
            Selection::Range { partition, first, last } => {
                self.in_range(session, partition, first, last).map(Slots::Many)
            }
            Selection::UpTo { partition, last } => {
                self.up_to(session, partition, last).map(Slots::Many)
            }
        }
    }

    fn in_range(
        &self,
        session: SessionId,
        partition: u32,
        first: Offset,
        last: Offset,
    ) -> Result<Vec<Slot>, SettleRefused> {
        let refused = |offset| SettleRefused::NotLeased { partition, offset };
        let found =
            self.partitions.get(partition).ok_or(SettleRefused::NoSuchPartition { partition })?;
        let mut slots = Vec::new();
        // Every iteration finds a lease of the session or skips a range: a hostile `last` costs no
        // more than the existing leases.
        let mut offset = first.max(found.floor);
        while offset <= last {
            if let Some(end) = found.settled.end_of(offset) {
                offset = end;
                continue;
            }
            let slot = self.leases.find(partition, offset);
            let slot = slot.filter(|&slot| self.leases.get(slot).session == session);
            slots.push(slot.ok_or(refused(offset))?);
            offset += 1;
        }
        if slots.is_empty() { Err(refused(first)) } else { Ok(slots) }
    }

    fn up_to(
        &self,
        session: SessionId,
        partition: u32,
        last: Offset,
    ) -> Result<Vec<Slot>, SettleRefused> {
        if !self.partitions.has(partition) {
            return Err(SettleRefused::NoSuchPartition { partition });
        }
        let place = |slot: Slot| (self.leases.get(slot).partition, self.leases.get(slot).offset);
        let all = self.leases.in_session(session);
        let mut slots: Vec<Slot> =
            all.filter(|&slot| place(slot).0 == partition && place(slot).1 <= last).collect();
        slots.sort_unstable_by_key(|&slot| place(slot).1);
        match slots.is_empty() {
            true => Err(SettleRefused::NotLeased { partition, offset: last }),
            false => Ok(slots),
        }
    }

    fn end(&mut self, slot: Slot, settlement: Settlement, now_ms: i64) {
        match settlement {
            Settlement::Accept => {
                let lease = self.end_lease(slot, StepKind::Accepted);
                self.finish(lease.partition, lease.offset, lease.meta.key);
            }
            Settlement::Reject => {
                let lease = self.end_lease(slot, StepKind::Rejected);
                let Lease { partition, offset, attempt, meta, .. } = lease;
                self.die(partition, offset, DeadReason::Rejected, attempt, meta);
            }
            Settlement::Release { delay_ms, count } => {
                // An uncounted release is no failure: no back-off.
                let delay_ms = if count { delay_ms } else { delay_ms.or(Some(0)) };
                self.come_back(slot, delay_ms, count, now_ms, StepKind::Released);
            }
            Settlement::Renew { lease_ms } => {
                self.leases.renew(slot, self.deadline(lease_ms, now_ms));
            }
        }
    }

    /// Removes a lease and returns its credit. `what` ended it.
    pub(super) fn end_lease(&mut self, slot: Slot, what: StepKind) -> Lease {
        let lease = self.leases.remove(slot);
        let Lease { partition, offset, session, attempt, .. } = lease;
        self.steps.add(Step { session, attempt, ..Step::of(what, partition, offset) });
        self.partitions[lease.partition].leased -= 1;
        if lease.credit {
            self.consumers.give_back(lease.consumer, lease.meta.bytes);
        }
        if lease.pooled {
            match self.pool_returns.last_mut() {
                Some((session, records)) if *session == lease.session => *records += 1,
                _ => self.pool_returns.push((lease.session, 1)),
            }
        }
        lease
    }

    /// Returns an unsettled record after its lease. `delay_ms`: `None` = the policy's back-off.
    pub(super) fn come_back(
        &mut self,
        slot: Slot,
        delay_ms: Option<i64>,
        count: bool,
        now_ms: i64,
        what: StepKind,
    ) {
        let Lease { partition, offset, attempt, meta, .. } = self.end_lease(slot, what);
        if count {
            self.partitions[partition].came_back(offset, attempt);
            self.note_change(partition);
            if self.is_last(attempt) {
                self.die(partition, offset, DeadReason::Attempts, attempt, meta);
                return;
            }
        }
        let delay_ms = delay_ms.unwrap_or_else(|| self.policy.backoff_ms(attempt));
        let due_ms = if delay_ms > 0 { now_ms.saturating_add(delay_ms) } else { i64::MIN };
        if delay_ms > 0 {
            self.wait_after_lease(partition, offset, meta.key, due_ms);
        }
        if self.comes_back_unread(partition, offset, due_ms) {
            return;
        }
        self.partitions[partition].waiting_bytes += meta.value_bytes();
        // A record that expires before it is due is not treated specially: it expires at the head.
        if delay_ms > 0 {
            self.delay(partition, offset, due_ms, now_ms);
        } else {
            self.make_ready(partition, offset, meta);
        }
    }
}
