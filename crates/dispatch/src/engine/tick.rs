//! Time: leases expire, delays end, heads expire.

use super::Dispatch;
use crate::record::DeadReason;
use crate::steps::StepKind;
use crate::wheel::{Entry, Kind, WheelSubject};

/// Fewer stale entries do not justify a sweep.
const STALE_ENTRIES_MIN: usize = 4_096;

impl Dispatch {
    /// Expires leases and heads, and ends delays. Bounded work per call: call again while
    /// [`Dispatch::next_deadline`] is not in the future.
    pub fn tick(&mut self, now_ms: i64) {
        self.now_ms = now_ms;
        self.consumers.tick(now_ms);
        let mut work = self.bounds.timers_per_tick;
        while work > 0
            && let Some(slot) = self.leases.overdue(now_ms)
        {
            self.come_back(slot, None, true, now_ms, StepKind::LeaseEnded);
            work -= 1;
        }
        let mut fired = std::mem::take(&mut self.fired);
        self.wheel.advance(now_ms, work, &mut fired);
        for entry in fired.drain(..) {
            self.fire(entry, now_ms);
        }
        fired.shrink_to(STALE_ENTRIES_MIN);
        self.fired = fired;
    }

    /// Time of the next tick; may be slightly early.
    pub fn next_deadline(&self) -> Option<i64> {
        let of_consumers = self.consumers.next_deadline();
        let of_leases = self.leases.next_deadline();
        [of_leases, self.wheel.next_ms(), of_consumers].into_iter().flatten().min()
    }

    fn fire(&mut self, entry: Entry, now_ms: i64) {
        let place = WheelSubject::unpack(entry.place);
        match place.kind {
            Kind::Record { .. } if self.is_live(entry) => {
                self.back_offs.remove(&(place.partition, entry.what()));
                self.with_ready(place.partition, |ready| ready.due.push(entry.what()));
                self.partitions[place.partition].delayed -= 1;
                self.delayed -= 1;
                self.list(place.partition);
            }
            Kind::Record { .. } => {
                // The timer was set before a seek. The record may have been released from a later
                // lease since then, and wait for a later timer: only back-offs due now are over.
                let back_off = (place.partition, entry.what());
                if self.back_offs.get(&back_off).is_some_and(|(_, due_ms)| *due_ms <= now_ms) {
                    self.back_offs.remove(&back_off);
                }
            }
            Kind::Head => {
                let found = &mut self.partitions[place.partition];
                // A timer other than the partition's current one is stale.
                if found.head_timer_ms == entry.due_ms() {
                    found.head_timer_ms = i64::MAX;
                    self.expire_head(place.partition, now_ms);
                }
            }
        }
    }

    /// Expired records at a partition's head die.
    fn expire_head(&mut self, partition: u32, now_ms: i64) {
        while let Some(head) = self.partitions[partition].head {
            let found = &self.partitions[partition];
            let offset = found.head_offset;
            let Some(&meta) = found.ready.get(head.rank, offset) else { break };
            let expired = self.is_expired(&meta, now_ms) && !found.is_prompt(offset, &meta);
            if !expired || self.ending >= self.bounds.dead {
                break;
            }
            let attempts = found.attempts(offset);
            self.take_ready(partition, head.rank, offset);
            self.subtract_waiting(partition, &meta);
            self.die(partition, offset, DeadReason::Expired, attempts, meta);
            self.refresh_head(partition);
        }
        self.refresh_head(partition);
    }

    /// Whether the entry's record still waits: false if it was settled or the partition was reset.
    pub(super) fn is_live(&self, entry: Entry) -> bool {
        let WheelSubject { partition, kind } = WheelSubject::unpack(entry.place);
        let found = &self.partitions[partition];
        match kind {
            Kind::Record { epoch } => epoch == found.epoch && !found.is_settled(entry.what()),
            Kind::Head => found.head_timer_ms == entry.due_ms(),
        }
    }

    /// Drops stale entries once they outnumber the live ones.
    pub(super) fn sweep_wheel(&mut self) {
        let live = self.delayed as usize + self.partitions.len().min(self.wheel.len() / 4);
        if self.wheel.len() > 2 * live + STALE_ENTRIES_MIN {
            let mut wheel = std::mem::take(&mut self.wheel);
            wheel.retain(|entry| self.is_live(entry));
            self.wheel = wheel;
            let partitions = &self.partitions;
            let waits =
                |&(partition, offset): &(u32, u64)| !partitions[partition].is_settled(offset);
            self.back_offs.retain(|place, _| waits(place));
        }
    }
}
