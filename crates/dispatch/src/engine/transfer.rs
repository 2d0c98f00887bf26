//! Transfers leases, back-offs and dead letters to another engine of the same group: the one of a
//! later term.

use std::collections::BTreeMap;

use base::{HashMap, Offset};

use super::Dispatch;
use crate::consumers::Pools;
use crate::lease::{Claim, Slot};
use crate::partition::EndingRecord;

/// A released record that waits before it is delivered again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BackOff {
    partition: u32,
    offset: Offset,
    key: u64,
    due_ms: i64,
}

/// A record whose dead letter is not in the log yet.
#[derive(Clone, Copy, Debug)]
pub struct DeadLetterClaim {
    partition: u32,
    offset: Offset,
    ending: EndingRecord,
}

/// State of an unread record whose lease was transferred.
#[derive(Clone, Copy, Debug)]
pub(super) enum ClaimedState {
    /// It is leased, dead or settled.
    Held,
    /// It is available again at `due_ms`; `i64::MIN`: at once.
    Back { due_ms: i64 },
}

/// Unread records whose leases were transferred to this engine.
#[derive(Debug, Default)]
pub(super) struct ClaimedRecords {
    records: BTreeMap<(u32, Offset), ClaimedState>,
    /// Number of released records per partition.
    back: HashMap<u32, usize>,
}

impl ClaimedRecords {
    /// Whether unread records of the partition are available again: they must be read to be
    /// delivered.
    pub(super) fn has_back(&self, partition: u32) -> bool {
        self.back.contains_key(&partition)
    }

    fn insert(&mut self, partition: u32, offset: Offset) {
        self.records.insert((partition, offset), ClaimedState::Held);
    }

    fn contains(&self, partition: u32, offset: Offset) -> bool {
        self.records.contains_key(&(partition, offset))
    }

    /// Returns false if the record's lease was not transferred.
    fn comes_back(&mut self, partition: u32, offset: Offset, due_ms: i64) -> bool {
        let Some(claimed) = self.records.get_mut(&(partition, offset)) else { return false };
        if matches!(std::mem::replace(claimed, ClaimedState::Back { due_ms }), ClaimedState::Held) {
            *self.back.entry(partition).or_default() += 1;
        }
        true
    }

    fn remove(&mut self, partition: u32, offset: Offset) -> Option<ClaimedState> {
        let claimed = self.records.remove(&(partition, offset))?;
        if let ClaimedState::Back { .. } = claimed
            && let Some(back) = self.back.get_mut(&partition)
        {
            *back -= 1;
            if *back == 0 {
                self.back.remove(&partition);
            }
        }
        Some(claimed)
    }

    /// Removes and returns the claims in the range, by offset.
    pub(super) fn remove_range(
        &mut self,
        partition: u32,
        first: Offset,
        end: Offset,
    ) -> Vec<(Offset, ClaimedState)> {
        if first >= end {
            return Vec::new();
        }
        let in_range = self.records.range((partition, first)..(partition, end));
        let offsets: Vec<Offset> = in_range.map(|(&(_, offset), _)| offset).collect();
        let removed = offsets.into_iter();
        removed.filter_map(|offset| Some((offset, self.remove(partition, offset)?))).collect()
    }
}

impl BackOff {
    pub fn place(&self) -> (u32, Offset) {
        (self.partition, self.offset)
    }
}

impl DeadLetterClaim {
    pub fn place(&self) -> (u32, Offset) {
        (self.partition, self.offset)
    }
}

impl Dispatch {
    /// All live leases, by partition and offset.
    pub fn claims(&self) -> Vec<Claim> {
        let mut claims: Vec<Claim> = self.leases.iter().map(|(_, lease)| Claim(*lease)).collect();
        claims.sort_unstable_by_key(|Claim(lease)| (lease.partition, lease.offset));
        claims
    }

    pub(super) fn claim_of(&self, slot: Slot) -> Claim {
        Claim(*self.leases.get(slot))
    }

    /// Transfers a lease, which keeps its token, attempt and deadline. Call it before any read, in
    /// the order of [`Dispatch::claims`], after the consumers have joined. Returns false if there
    /// is no record to lease: it is settled, or deleted.
    pub fn claim(&mut self, claim: Claim, pools: &mut Pools) -> bool {
        let Claim(mut lease) = claim;
        let Some(found) = self.partitions.get_mut(lease.partition) else { return false };
        let unread = (found.scan_next..found.end).contains(&lease.offset);
        if !unread
            || found.is_settled(lease.offset)
            || self.leases.find(lease.partition, lease.offset).is_some()
            || self.claims.contains(lease.partition, lease.offset)
        {
            return false;
        }
        found.leased += 1;
        if lease.credit {
            self.consumers.resume(lease.consumer, lease.meta.bytes);
        }
        lease.pooled = lease.pooled && pools.take(lease.session);
        self.hold(lease.partition, lease.offset, lease.meta.key);
        self.claims.insert(lease.partition, lease.offset);
        self.leases.insert(lease);
        true
    }

    /// As [`Dispatch::claim`], for a lease that its holder presents after another node was the
    /// leader. The record may have been leased again there: the first of its leases to be presented
    /// is transferred.
    ///
    /// Several leases of one lane are all transferred. The previous engine delivered the later
    /// record because the lease of the earlier one had ended, and its holder repeats that end. A
    /// record without a lease waits for all of them.
    pub fn present(&mut self, claim: Claim, pools: &mut Pools) -> bool {
        let Claim(lease) = claim;
        let Some(found) = self.partitions.get(lease.partition) else { return false };
        let is_known = lease.token == 0 || self.leases.find_token(lease.token).is_some();
        // It has already ended, which its holder has not learned.
        let is_over = found.attempts(lease.offset) >= lease.attempt;
        !is_known && !is_over && self.claim(claim, pools)
    }

    /// Records that back off after a lease, by partition and offset. Scheduled records are not
    /// included: each engine reads their times in the log.
    pub fn back_offs(&self) -> Vec<BackOff> {
        let waits = |&(&(partition, offset), _): &(&(u32, Offset), &(u64, i64))| {
            let found = &self.partitions[partition];
            offset < found.end && !found.is_settled(offset)
        };
        let back_off = |(&(partition, offset), &(key, due_ms)): (&(u32, Offset), &(u64, i64))| {
            BackOff { partition, offset, key, due_ms }
        };
        self.back_offs.iter().filter(waits).map(back_off).collect()
    }

    /// Continues a record's back-off from another engine. Call it before any read. Returns false if
    /// the record is settled, or deleted.
    pub fn back_off(&mut self, back_off: BackOff) -> bool {
        let BackOff { partition, offset, key, due_ms } = back_off;
        let Some(found) = self.partitions.get(partition) else { return false };
        let unread = (found.scan_next..found.end).contains(&offset);
        if !unread || found.is_settled(offset) || self.claims.contains(partition, offset) {
            return false;
        }
        self.hold(partition, offset, key);
        self.claims.insert(partition, offset);
        self.wait_after_lease(partition, offset, key, due_ms);
        self.comes_back_unread(partition, offset, due_ms)
    }

    /// The records whose dead letters are not in the log yet, by partition and offset.
    pub fn dead_letter_claims(&self) -> Vec<DeadLetterClaim> {
        let mut claims = Vec::with_capacity(self.ending);
        for partition in self.partitions.numbers() {
            let Some(found) = self.partitions.get(partition).filter(|_| self.ending > 0) else {
                break;
            };
            let dead = found.ending.iter().filter(|(_, ending)| ending.reason.is_some());
            claims.extend(dead.map(|(&offset, &ending)| DeadLetterClaim {
                partition,
                offset,
                ending,
            }));
        }
        claims
    }

    /// Continues to wait for a record's dead letter, whose append is reported by
    /// [`Dispatch::ended`]. Call it before any read. Returns false if no dead letter is needed: the
    /// record is settled or deleted, or the policy has changed.
    pub fn claim_dead_letter(&mut self, claim: DeadLetterClaim) -> bool {
        let DeadLetterClaim { partition, offset, ending } = claim;
        let Some(found) = self.partitions.get(partition) else { return false };
        let unread = (found.scan_next..found.end).contains(&offset);
        if !unread || found.is_settled(offset) || self.claims.contains(partition, offset) {
            return false;
        }
        self.hold(partition, offset, ending.meta.key);
        self.claims.insert(partition, offset);
        if !self.policy.dead_letters {
            self.finish(partition, offset, ending.meta.key);
            return false;
        }
        self.insert_ending(partition, offset, ending);
        true
    }

    /// Records that a record backs off until `due_ms`.
    pub(super) fn wait_after_lease(
        &mut self,
        partition: u32,
        offset: Offset,
        key: u64,
        due_ms: i64,
    ) {
        self.back_offs.insert((partition, offset), (key, due_ms));
    }

    /// Records that a record was released before this engine has read it: it can be delivered, or
    /// looked up when it is due, only after that. Returns false if it was read.
    pub(super) fn comes_back_unread(
        &mut self,
        partition: u32,
        offset: Offset,
        due_ms: i64,
    ) -> bool {
        let read = offset < self.partitions[partition].scan_next;
        if read || !self.claims.comes_back(partition, offset, due_ms) {
            return false;
        }
        self.list(partition);
        true
    }

    /// The record is being read: returns its state as a claim.
    pub(super) fn read_claimed(&mut self, partition: u32, offset: Offset) -> Option<ClaimedState> {
        self.claims.remove(partition, offset)
    }
}
