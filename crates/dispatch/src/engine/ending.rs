//! Ends records, and collects the deltas that must become durable.

use base::Offset;

use super::Dispatch;
use crate::SessionId;
use crate::changes::{Changes, DeadLetter};
use crate::lease::{Selection, SettleRefused};
use crate::partition::EndingRecord;
use crate::record::{DeadReason, Meta};
use crate::steps::{Step, StepKind};

/// Above this number of partitions, those without unsettled records free their memory. In a smaller
/// group it would soon be allocated again.
const PARTITIONS_KEPT: usize = 64;

impl Dispatch {
    /// Settles a record and frees its key or partition.
    pub(super) fn finish(&mut self, partition: u32, offset: Offset, key: u64) {
        self.settle_range(partition, offset, offset + 1);
        self.free(partition, offset, key);
    }

    pub(super) fn settle_range(&mut self, partition: u32, first: Offset, end: Offset) -> u64 {
        let settled = self.partitions[partition].settle(first, end);
        self.depth -= settled;
        self.note_change(partition);
        settled
    }

    /// A waiting record is delivered, or dies: subtracts its bytes.
    pub(super) fn subtract_waiting(&mut self, partition: u32, meta: &Meta) {
        let waiting = &mut self.partitions[partition].waiting_bytes;
        *waiting = waiting.saturating_sub(meta.value_bytes());
    }

    /// This many waiting records of the partition were removed without being read one by one. Their
    /// bytes are estimated by the mean of the others.
    pub(super) fn subtract_waiting_estimate(&mut self, partition: u32, records: u64) {
        let found = &mut self.partitions[partition];
        let busy = u64::from(found.leased) + found.ending.len() as u64;
        let left = found.known().saturating_sub(busy);
        let bytes = u128::from(found.waiting_bytes) * u128::from(left);
        found.waiting_bytes = (bytes / u128::from((left + records).max(1))) as u64;
    }

    pub(super) fn note_change(&mut self, partition: u32) {
        let found = &mut self.partitions[partition];
        if !found.changed {
            found.changed = true;
            self.changed.push(partition);
        }
        self.count_attempts(partition);
    }

    pub(super) fn count_attempts(&mut self, partition: u32) {
        let (before, now) = self.partitions[partition].count_attempts();
        self.attempts = self.attempts + now - before;
    }

    /// The record becomes a dead letter. It holds its key or partition until that is durable,
    /// because its end must be in the log before the ends of the records behind it.
    pub(super) fn die(
        &mut self,
        partition: u32,
        offset: Offset,
        reason: DeadReason,
        attempts: u16,
        meta: Meta,
    ) {
        let died = Step::of(StepKind::Died(reason), partition, offset);
        self.steps.add(Step { attempt: attempts, ..died });
        if !self.policy.dead_letters {
            self.finish(partition, offset, meta.key);
            return;
        }
        self.insert_ending(partition, offset, EndingRecord { reason: Some(reason), meta });
        self.dead_letters.push(DeadLetter { partition, offset, reason, attempts });
    }

    pub(super) fn insert_ending(&mut self, partition: u32, offset: Offset, ending: EndingRecord) {
        self.partitions[partition].ending.insert(offset, ending);
        self.ending += 1;
    }

    fn remove_ending(&mut self, partition: u32, offset: Offset) -> Option<EndingRecord> {
        let found = self.partitions.get_mut(partition)?;
        let ending = found.ending.remove(&offset)?;
        self.ending -= 1;
        Some(ending)
    }

    /// Ends the leases of records that a log entry will settle atomically with other changes. Until
    /// [`Dispatch::ended`] or [`Dispatch::give_back`] they are not delivered, and hold their keys.
    /// Returns partition and offset of each.
    pub fn withhold(
        &mut self,
        session: SessionId,
        selection: Selection,
        now_ms: i64,
    ) -> Result<Vec<(u32, Offset)>, SettleRefused> {
        self.now_ms = now_ms;
        let slots = self.selected(session, selection)?;
        let mut held = Vec::with_capacity(slots.len());
        for &slot in slots.iter() {
            let lease = self.end_lease(slot, StepKind::Withheld);
            let (partition, offset) = (lease.partition, lease.offset);
            self.insert_ending(partition, offset, EndingRecord { reason: None, meta: lease.meta });
            held.push((partition, offset));
        }
        Ok(held)
    }

    /// The record's end is in the log: its dead letter was appended, or the settling entry took
    /// effect. This makes no delta.
    pub fn ended(&mut self, partition: u32, offset: Offset) {
        let Some(ending) = self.remove_ending(partition, offset) else { return };
        self.steps.add(Step::of(StepKind::Ended, partition, offset));
        let found = &mut self.partitions[partition];
        self.depth -= found.settle_durably(offset);
        self.count_attempts(partition);
        self.free(partition, offset, ending.meta.key);
    }

    /// The entry that would have ended the record had no effect: the record is available again, as
    /// before its lease.
    pub fn give_back(&mut self, partition: u32, offset: Offset) {
        let Some(ending) = self.remove_ending(partition, offset) else { return };
        self.steps.add(Step::of(StepKind::GivenBack, partition, offset));
        self.dead_letters.retain(|it| (it.partition, it.offset) != (partition, offset));
        if self.comes_back_unread(partition, offset, i64::MIN) {
            return;
        }
        self.partitions[partition].waiting_bytes += ending.meta.value_bytes();
        self.make_ready(partition, offset, ending.meta);
    }

    /// The policy no longer keeps dead letters: settles the waiting ones.
    pub(super) fn settle_dead(&mut self) {
        for index in self.partitions.numbers() {
            let ending = &self.partitions[index].ending;
            let dead = ending.iter().filter(|(_, ending)| ending.reason.is_some());
            let dead: Vec<Offset> = dead.map(|(&offset, _)| offset).collect();
            for offset in dead {
                if let Some(ending) = self.remove_ending(index, offset) {
                    self.finish(index, offset, ending.meta.key);
                }
            }
        }
        self.dead_letters.clear();
    }

    /// Takes the deltas since the last drain and appends them to `out`.
    pub fn drain(&mut self, out: &mut Changes) {
        let shrinks = self.partitions.len() > PARTITIONS_KEPT;
        self.changed.sort_unstable();
        for partition in self.changed.drain(..) {
            let found = &mut self.partitions[partition];
            let changes = found.drain(partition);
            if shrinks {
                found.shrink();
            }
            if !changes.settled.is_empty() || !changes.attempts.is_empty() {
                out.partitions.push(changes);
            }
        }
        out.dead.append(&mut self.dead_letters);
        out.active.append(&mut self.consumers.events);
    }

    /// Takes the steps of records since the last call, in order.
    pub fn take_steps(&mut self, with: impl FnMut(Step)) {
        self.steps.take(with);
    }

    /// Stops recording steps.
    pub fn disable_steps(&mut self) {
        self.steps.turn_off();
    }

    /// Resumes recording steps.
    pub fn enable_steps(&mut self) {
        self.steps.turn_on();
    }

    pub fn has_steps(&self) -> bool {
        !self.steps.is_empty()
    }

    /// Whether a drain would return anything.
    pub fn has_changes(&self) -> bool {
        !self.changed.is_empty()
            || !self.dead_letters.is_empty()
            || !self.consumers.events.is_empty()
    }
}
