//! How a lease ends. There is ONE way back for a record, [`Dispatch::come_back`], whoever brings it
//! there: a release, a deadline, the end of a session. A lease is taken off before anything is
//! counted, so what comes second finds none, and counts nothing.

use base::Offset;

use crate::dispatch::Dispatch;
use crate::lease::{Lease, Slot};
use crate::settlement::{Selection, SettleRefused, Settlement};
use crate::{DeadReason, SessionId};

impl Dispatch {
    /// Ends leases; the number of records it was about.
    pub fn settle(
        &mut self,
        session: SessionId,
        selection: Selection,
        settlement: Settlement,
        now_ms: i64,
    ) -> Result<u32, SettleRefused> {
        self.now_ms = now_ms;
        match selection {
            Selection::Token(token) => {
                let slot = self.leases.find_token(token).ok_or(SettleRefused::Stale { token })?;
                if self.leases.get(slot).session != session {
                    return Err(SettleRefused::NotHolder { token, session });
                }
                self.end(slot, settlement, now_ms);
                Ok(1)
            }
            Selection::Range { partition, first, last } => {
                let slots = self.in_range(session, partition, first, last)?;
                Ok(self.end_each(&slots, settlement, now_ms))
            }
            Selection::UpTo { partition, last } => {
                let slots = self.up_to(session, partition, last)?;
                Ok(self.end_each(&slots, settlement, now_ms))
            }
        }
    }

    fn end_each(&mut self, slots: &[Slot], settlement: Settlement, now_ms: i64) -> u32 {
        for &slot in slots {
            self.end(slot, settlement, now_ms);
        }
        slots.len() as u32
    }

    fn in_range(
        &self,
        session: SessionId,
        partition: u32,
        first: Offset,
        last: Offset,
    ) -> Result<Vec<Slot>, SettleRefused> {
        let refused = |offset| SettleRefused::NotLeased { partition, offset };
        let found = self
            .partitions
            .get(partition as usize)
            .ok_or(SettleRefused::NoSuchPartition { partition })?;
        let mut slots = Vec::new();
        // Every step finds a lease of the session or passes over a range: a hostile `last` costs
        // no more than the leases there are.
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
        if partition as usize >= self.partitions.len() {
            return Err(SettleRefused::NoSuchPartition { partition });
        }
        let place = |slot: Slot| (self.leases.get(slot).partition, self.leases.get(slot).offset);
        let all = self.leases.of_session(session);
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
                let lease = self.end_lease(slot);
                self.finish(lease.partition, lease.offset, lease.meta.key);
            }
            Settlement::Reject => {
                let Lease { partition, offset, attempt, meta, .. } = self.end_lease(slot);
                self.die(partition, offset, DeadReason::Rejected, attempt, meta.key);
            }
            Settlement::Release { delay_ms, count } => {
                // What was not looked at is no failure to back off from.
                let delay_ms = if count { delay_ms } else { delay_ms.or(Some(0)) };
                self.come_back(slot, delay_ms, count, now_ms);
            }
            Settlement::Renew { lease_ms } => {
                self.leases.renew(slot, self.deadline(lease_ms, now_ms));
            }
        }
    }

    /// The lease is over and the record is not settled. `delay_ms`: `None` = as the policy backs
    /// off.
    pub(crate) fn come_back(
        &mut self,
        slot: Slot,
        delay_ms: Option<i64>,
        count: bool,
        now_ms: i64,
    ) {
        let Lease { partition, offset, attempt, meta, .. } = self.end_lease(slot);
        if count {
            self.partitions[partition as usize].came_back(offset, attempt);
            self.note_change(partition);
            if self.policy.attempts_max.is_some_and(|max| attempt >= max) {
                self.die(partition, offset, DeadReason::Attempts, attempt, meta.key);
                return;
            }
        }
        let delay_ms = delay_ms.unwrap_or_else(|| self.policy.backoff_ms(attempt));
        // What expires before it is due may as well wait for its end at the head.
        if delay_ms > 0 {
            self.delay(partition, offset, now_ms.saturating_add(delay_ms), now_ms);
        } else {
            self.make_ready(partition, offset, meta);
        }
    }
}
