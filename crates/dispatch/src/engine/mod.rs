//! The engine: its parts, and its creation, policy and partitions. [`scan`] reads records, [`order`]
//! selects the next one, [`assign`] delivers, [`settle`] ends leases, [`ending`] ends records,
//! [`tick`] handles time, [`consumers`] has sessions and credit, [`transfer`] moves leases to another
//! engine, [`inspect`] serves operators.
//!
//! Depends on all other modules of the crate; none of them depends on it.

mod assign;
mod consumers;
mod ending;
mod inspect;
mod order;
mod scan;
mod settle;
mod tick;
mod transfer;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use base::{Offset, Stripe};

use crate::bounds::Bounds;
use crate::changes::DeadLetter;
use crate::consumers::Consumers;
use crate::lanes::Lanes;
use crate::lease::{Lease, LeaseTable, Slot};
use crate::partition::{Head, Partition, Table};
use crate::policy::Policy;
use crate::record::PartitionStart;
use crate::steps::{StepKind, Steps};
use crate::wheel::{Entry, Wheel, WheelSubject};
use crate::{SessionId, Token};
pub use inspect::{Counters, RemoveRefused};
use transfer::ClaimedRecords;
pub use transfer::{BackOff, DeadLetterClaim};

/// The engine of one lease group in use, for its topic's partitions in a shard.
#[derive(Debug)]
pub struct Dispatch {
    policy: Policy,
    bounds: Bounds,
    paused: bool,
    partitions: Table,
    /// Partitions with deliverable records, best first.
    heads: BTreeSet<Head>,
    leases: LeaseTable,
    lanes: Lanes,
    wheel: Wheel,
    consumers: Consumers,
    next_token: Token,
    /// Records that were leased when this engine was created and are not read yet.
    claims: ClaimedRecords,
    /// Records that back off after a lease, with their keys and due times. A record settled in the
    /// meantime stays here until then.
    back_offs: BTreeMap<(u32, Offset), (u64, i64)>,
    /// Partitions that may have to be read; `need` decides.
    wanting: VecDeque<u32>,
    /// A take got fewer records than requested.
    pulled: bool,
    /// Unsettled records with counted attempts.
    attempts: usize,
    /// Sums over the partitions.
    depth: u64,
    /// Sum of the offsets at which the partitions end.
    ends: u64,
    loaded: usize,
    delayed: u64,
    due: usize,
    /// Records whose end must become durable first.
    ending: usize,
    /// Partitions with records that arrived while a consumer waited and were not offered yet.
    prompted: Vec<u32>,
    /// Partitions with deltas since the last drain.
    changed: Vec<u32>,
    dead_letters: Vec<DeadLetter>,
    /// Steps since the last `take_steps`.
    steps: Steps,
    /// Leases that ended since the last call with the pools.
    pool_returns: Vec<(SessionId, u32)>,
    /// The time of the last call.
    now_ms: i64,
    /// Scratch of a tick.
    fired: Vec<Entry>,
}

impl Dispatch {
    /// `partitions`: initial state of the partitions in `stripe`, in their order. `first_token`: the
    /// first fencing token of this engine. A later engine of the group must start at
    /// [`Dispatch::next_token`] or above, so that no token is used twice.
    pub fn new(
        policy: Policy,
        stripe: Stripe,
        partitions: impl IntoIterator<Item = PartitionStart>,
        first_token: Token,
    ) -> Self {
        Self::with_bounds(policy, stripe, partitions, first_token, Bounds::default())
    }

    pub fn with_bounds(
        policy: Policy,
        stripe: Stripe,
        partitions: impl IntoIterator<Item = PartitionStart>,
        first_token: Token,
        bounds: Bounds,
    ) -> Self {
        let mut dispatch = Self {
            policy: Policy::default(),
            bounds,
            paused: false,
            partitions: Table::new(stripe),
            heads: BTreeSet::new(),
            leases: LeaseTable::default(),
            lanes: Lanes::default(),
            wheel: Wheel::default(),
            consumers: Consumers::default(),
            // 0 marks the absence of a lease.
            next_token: first_token.max(1),
            claims: ClaimedRecords::default(),
            back_offs: BTreeMap::new(),
            wanting: VecDeque::new(),
            pulled: false,
            attempts: 0,
            depth: 0,
            ends: 0,
            loaded: 0,
            delayed: 0,
            due: 0,
            ending: 0,
            prompted: Vec::new(),
            changed: Vec::new(),
            dead_letters: Vec::new(),
            steps: Steps::default(),
            pool_returns: Vec::new(),
            now_ms: 0,
            fired: Vec::new(),
        };
        dispatch.set_policy(policy);
        for start in partitions {
            dispatch.grow(start);
        }
        dispatch
    }

    pub fn next_token(&self) -> Token {
        self.next_token
    }

    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Takes effect with the next decision. If the ordering changes, several records of a key may
    /// still be leased.
    pub fn set_policy(&mut self, policy: Policy) {
        let before = std::mem::replace(&mut self.policy, policy);
        self.consumers.set_single_active(self.policy.single_active);
        self.consumers.set_priority_takes_over(self.policy.priority_takes_over);
        if before.ordering != self.policy.ordering {
            self.rebuild_order();
        }
        let arranged = |policy: &Policy| (policy.priorities, policy.two_to_one, policy.ordering);
        if arranged(&before) != arranged(&self.policy) {
            self.rearrange();
        }
        if !self.policy.dead_letters {
            self.settle_dead();
        }
        for index in self.partitions.numbers() {
            self.refresh_head(index);
            if self.partitions[index].depth() > 0 {
                self.list(index);
            }
        }
    }

    /// A paused engine delivers and reads nothing; leases continue.
    pub fn set_paused(&mut self, paused: bool) {
        self.paused = paused;
        self.end_prompts();
    }

    /// Adds one partition of its stripe, after the last.
    pub fn grow(&mut self, start: PartitionStart) {
        let partition = Partition::new(start, 0);
        self.depth += partition.depth();
        self.ends += partition.end;
        let has_some = partition.depth() > 0 || !partition.is_empty();
        let number = self.partitions.push(partition);
        self.count_attempts(number);
        if has_some {
            self.list(number);
        }
    }

    /// The log grew. O(1).
    pub fn extended(&mut self, partition: u32, end: Offset) {
        // Records at the heads are delivered first and may use up the credit: `end_prompts` checks
        // that.
        let awaited = !self.paused && self.consumers.any_queued();
        if let Some(found) = self.partitions.get_mut(partition)
            && end > found.end
        {
            self.depth += end - found.end;
            self.ends += end - found.end;
            if awaited && found.prompt.1 == found.end && found.prompt.0 < found.prompt.1 {
                found.prompt.1 = end;
            } else if awaited {
                found.prompt = (found.end, end);
                self.prompted.push(partition);
            }
            found.end = end;
            self.list(partition);
        }
    }

    /// Whether a record that arrives now would be delivered at once.
    fn is_awaited(&self) -> bool {
        !self.paused
            && self.consumers.any_queued()
            && self.heads.is_empty()
            && self.leases.len() < self.bounds.leased
    }

    /// Records that arrived while a consumer waited have been offered, as far as they were read. If
    /// no consumer waits any more, none of them remains prompt.
    fn end_prompts(&mut self) {
        if self.prompted.is_empty() {
            return;
        }
        let awaited = self.is_awaited();
        let mut prompted = std::mem::take(&mut self.prompted);
        prompted.retain(|&index| {
            let found = &mut self.partitions[index];
            if awaited && found.scan_next < found.prompt.1 {
                return true;
            }
            found.prompt = (0, 0);
            // Its head may expire now.
            self.refresh_head(index);
            false
        });
        self.prompted = prompted;
    }

    /// The group was moved (seek): the state of the partition is dropped, its leases are void, and
    /// deltas that were not drained are lost.
    pub fn reset_partition(&mut self, partition: u32, start: PartitionStart) {
        if !self.partitions.has(partition) {
            return;
        }
        self.void_leases(partition, Offset::MAX);
        self.lanes.clear(partition);
        self.dead_letters.retain(|letter| letter.partition != partition);
        let before = &self.partitions[partition];
        let (head, epoch) = (before.head, WheelSubject::next_epoch(before.epoch));
        self.depth -= before.depth();
        self.ends -= before.end;
        self.loaded -= before.ready.loaded();
        self.due -= before.ready.due.len();
        self.delayed -= before.delayed;
        self.ending -= before.ending.len();
        self.attempts -= before.attempts_counted();
        if let Some(head) = head {
            self.heads.remove(&head);
        }
        if epoch == 0 {
            // Epochs wrap around: an old entry must not be mistaken for a new one.
            self.wheel.retain(|entry| WheelSubject::unpack(entry.place).partition != partition);
        }
        let (listed, changed) = (before.listed, before.changed);
        // The result of a read in flight stays valid, but its offsets may differ from those needed
        // now.
        let mut fresh = Partition::new(start, epoch);
        (fresh.listed, fresh.changed) = (listed, changed);
        self.prompted.retain(|&prompted| prompted != partition);
        self.claims.remove_range(partition, 0, Offset::MAX);
        self.back_offs.retain(|&(of, _), _| of != partition);
        self.depth += fresh.depth();
        self.ends += fresh.end;
        self.partitions[partition] = fresh;
        self.count_attempts(partition);
        self.list(partition);
    }

    /// The log now begins at `log_start` (retention, delete records): records below are deleted,
    /// and their leases too. The machine raises its floor by itself, so this makes no delta.
    pub fn trimmed(&mut self, partition: u32, log_start: Offset) {
        let Some(found) = self.partitions.get_mut(partition) else { return };
        if log_start <= found.floor {
            return;
        }
        self.extended(partition, log_start);
        // A released record of an earlier term may hold its key.
        let claimed = self.claims.remove_range(partition, 0, log_start);
        let found = &mut self.partitions[partition];
        if found.is_empty() && found.leased == 0 && claimed.is_empty() {
            found.scan_next = found.scan_next.max(log_start);
            self.depth -= found.lift_floor(log_start);
            self.count_attempts(partition);
            self.list(partition);
            return;
        }
        self.void_leases(partition, log_start);
        let found = &mut self.partitions[partition];
        let above = found.ending.split_off(&log_start);
        let below = std::mem::replace(&mut found.ending, above);
        self.ending -= below.len();
        self.dead_letters.retain(|it| it.partition != partition || it.offset >= log_start);
        // Delayed records below are skipped when their time comes.
        self.delayed -= self.uncount_delayed(partition, 0, log_start);
        self.with_ready(partition, |ready| ready.drop_below(log_start));
        let found = &mut self.partitions[partition];
        let known = found.known();
        found.scan_next = found.scan_next.max(log_start);
        self.depth -= found.lift_floor(log_start);
        self.count_attempts(partition);
        let found = &self.partitions[partition];
        let gone = known.saturating_sub(found.known());
        self.subtract_waiting_estimate(partition, gone);
        self.lanes.drop_blocked_below(partition, log_start);
        self.free_range(partition, 0, log_start);
        self.refresh_head(partition);
        self.list(partition);
    }

    /// Removes the partition's delayed records in `[first, end)` from its count. Returns their
    /// number.
    fn uncount_delayed(&mut self, partition: u32, first: Offset, end: Offset) -> u64 {
        let found = &self.partitions[partition];
        if found.delayed == 0 {
            return 0;
        }
        let waits = |entry: &Entry| {
            let place = WheelSubject::unpack(entry.place);
            place == WheelSubject::record(partition, found.epoch)
                && (first..end).contains(&entry.what())
                && !found.is_settled(entry.what())
        };
        let count = self.wheel.entries().filter(waits).count() as u64;
        self.partitions[partition].delayed -= count;
        count
    }

    fn void_leases(&mut self, partition: u32, below: Offset) {
        let of_partition = |lease: &Lease| lease.partition == partition && lease.offset < below;
        let all = self.leases.iter();
        let void: Vec<Slot> =
            all.filter(|(_, lease)| of_partition(lease)).map(|(slot, _)| slot).collect();
        for slot in void {
            self.end_lease(slot, StepKind::Voided);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::changes::Changes;
    use crate::consumers::PullRequest;
    use crate::lease::{Selection, Settlement};
    use crate::partition::UnsettledRecords;
    use crate::policy::Ordering;
    use crate::record::ScannedRecord;

    const PARTITIONS: u32 = 1_000_000;

    fn with_records(dispatch: &Dispatch) -> usize {
        dispatch.partitions.iter().filter(|partition| !partition.is_empty()).count()
    }

    /// Appends a record to the partition, takes it and settles it.
    fn append_and_settle_one(dispatch: &mut Dispatch, partition: u32) {
        let end = dispatch.partitions[partition].end;
        dispatch.extended(partition, end + 1);
        let take = PullRequest {
            session: 1,
            consumer: 0,
            records_max: 1,
            bytes_max: u64::MAX,
            settle_on_send: false,
            lease_ms: None,
        };
        let mut taken = Vec::new();
        dispatch.take(take, 0, &mut taken);
        let want = dispatch.wants().expect("it is not read yet");
        assert_eq!((want.partition, want.from, want.up_to), (partition, end, end + 1));
        let record = ScannedRecord {
            offset: end,
            bytes: 1,
            value_bytes: 1,
            timestamp: 0,
            key: None,
            priority: 0,
            due_ms: i64::MIN,
            expires_ms: i64::MAX,
        };
        dispatch.scanned(partition, end, end + 1, [record], 0);
        dispatch.take(take, 0, &mut taken);
        assert_eq!(taken.len(), 1);
        let lease = Selection::Lease { partition, token: taken[0].token };
        assert_eq!(dispatch.settle(1, lease, Settlement::Accept, 0), Ok(1));
    }

    #[test]
    fn partitions_without_records_are_small_and_not_visited() {
        assert!(size_of::<Partition>() <= 48 && size_of::<UnsettledRecords>() <= 392);
        let start = |end| PartitionStart { floor: end, end, ..PartitionStart::default() };
        let starts = (0..PARTITIONS).map(|index| start(u64::from(index)));
        let mut dispatch = Dispatch::new(Policy::default(), Stripe::ALL, starts, 1);
        assert_eq!((with_records(&dispatch), dispatch.wanting.len()), (0, 0));
        assert_eq!(dispatch.ends_sum(), dispatch.ends().sum());

        let mut changes = Changes::default();
        for partition in [7, 500_000, PARTITIONS - 1] {
            append_and_settle_one(&mut dispatch, partition);
            assert_eq!(with_records(&dispatch), 1, "{partition}");
            dispatch.drain(&mut changes);
            assert_eq!(with_records(&dispatch), 0, "all of {partition} is settled");
        }
        assert_eq!(changes.partitions.len(), 3);

        let policy = Policy { ordering: Ordering::Partition, priorities: 9, ..Policy::default() };
        dispatch.set_policy(policy);
        dispatch.trimmed(9, 20);
        // The last partition that had a record, and the one whose end has moved.
        assert_eq!((with_records(&dispatch), dispatch.wanting.len()), (0, 2));
        assert_eq!(dispatch.wants(), None);
        assert_eq!(dispatch.ends_sum(), dispatch.ends().sum());
    }
}
