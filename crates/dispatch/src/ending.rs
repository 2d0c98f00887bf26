//! How a record comes to its end, and what of that is told to be made durable.

use base::Offset;

use crate::DeadReason;
use crate::changes::{Changes, DeadLetter};
use crate::dispatch::Dispatch;
use crate::partition::Dead;
use crate::ready::Meta;

impl Dispatch {
    /// Settles a record and lets through what it held up.
    pub(crate) fn finish(&mut self, partition: u32, offset: Offset, key: u64) {
        self.settle_range(partition, offset, offset + 1);
        self.free(partition, offset, key);
    }

    pub(crate) fn settle_range(&mut self, partition: u32, first: Offset, end: Offset) -> u64 {
        let settled = self.partitions[partition as usize].settle(first, end);
        self.depth -= settled;
        self.note_change(partition);
        settled
    }

    /// A record that waited is handed out, or dies.
    pub(crate) fn waits_no_more(&mut self, partition: u32, meta: &Meta) {
        let waiting = &mut self.partitions[partition as usize].waiting_bytes;
        *waiting = waiting.saturating_sub(meta.value_bytes());
    }

    /// So many of the partition's waiting records are gone, and nobody looked at each of them: they
    /// are taken to be like the others.
    pub(crate) fn waits_less(&mut self, partition: u32, records: u64) {
        let found = &mut self.partitions[partition as usize];
        let busy = u64::from(found.leased) + found.dead.len() as u64;
        let left = found.known().saturating_sub(busy);
        let bytes = u128::from(found.waiting_bytes) * u128::from(left);
        found.waiting_bytes = (bytes / u128::from((left + records).max(1))) as u64;
    }

    pub(crate) fn note_change(&mut self, partition: u32) {
        let found = &mut self.partitions[partition as usize];
        if !found.changed {
            found.changed = true;
            self.changed.push(partition);
        }
    }

    /// The record will not be delivered any more. It goes on to hold up whom it held up until it
    /// is buried: its end must be durable before theirs is.
    pub(crate) fn die(
        &mut self,
        partition: u32,
        offset: Offset,
        reason: DeadReason,
        attempts: u16,
        key: u64,
    ) {
        if !self.policy.dead_letters {
            self.finish(partition, offset, key);
            return;
        }
        let found = &mut self.partitions[partition as usize];
        found.dead.insert(offset, Dead { reason, key });
        self.dead += 1;
        self.dead_letters.push(DeadLetter { partition, offset, reason, attempts });
    }

    /// The dead letter is where it belongs: the record is settled.
    pub fn buried(&mut self, partition: u32, offset: Offset) {
        let Some(found) = self.partitions.get_mut(partition as usize) else { return };
        if let Some(dead) = found.dead.remove(&offset) {
            self.dead -= 1;
            self.finish(partition, offset, dead.key);
        }
    }

    /// There are to be no dead letters any more: those that wait are settled.
    pub(crate) fn bury_all(&mut self) {
        for index in 0..self.partitions.len() as u32 {
            while let Some((&offset, _)) = self.partitions[index as usize].dead.first_key_value() {
                self.buried(index, offset);
            }
        }
        self.dead_letters.clear();
    }

    /// Takes the deltas since the last drain; appends to what `out` holds.
    pub fn drain(&mut self, out: &mut Changes) {
        self.changed.sort_unstable();
        for partition in self.changed.drain(..) {
            let changes = self.partitions[partition as usize].drain(partition);
            if !changes.settled.is_empty() || !changes.attempts.is_empty() {
                out.partitions.push(changes);
            }
        }
        out.dead.append(&mut self.dead_letters);
        out.active.append(&mut self.consumers.events);
    }

    /// Whether a drain would bring anything.
    pub fn has_changes(&self) -> bool {
        !self.changed.is_empty()
            || !self.dead_letters.is_empty()
            || !self.consumers.events.is_empty()
    }
}
