//! Assigns the best ready record to the next consumer.

use base::Offset;

use super::Dispatch;
use crate::Token;
use crate::consumers::{Pools, PullRequest, PullScope, SelectedConsumer, SkippedConsumers};
use crate::lease::{Assignment, LeaseAttributes};
use crate::partition::Head;
use crate::policy::{HIGH_TO_NORMAL, Ordering};
use crate::record::{DeadReason, Meta};
use crate::steps::{Step, StepKind};

/// The next record to deliver.
#[derive(Clone, Copy, Debug)]
struct NextRecord {
    partition: u32,
    rank: u8,
    offset: Offset,
    bytes: u32,
}

impl Dispatch {
    /// Hands out ready records to consumers with credit. First calls [`Dispatch::return_to`].
    pub fn dispatch(&mut self, now_ms: i64, pools: &mut Pools, out: &mut Vec<Assignment>) {
        self.now_ms = now_ms;
        self.return_to(pools);
        if self.paused {
            return;
        }
        let mut skipped = SkippedConsumers::new();
        while self.consumers.any_queued() && self.leases.len() < self.bounds.leased {
            let Some(next) = self.next_ready(now_ms, PullScope::default()) else { break };
            let Some(chosen) = self.consumers.choose(next.bytes, pools, &mut skipped) else {
                break;
            };
            let pooled = !chosen.settle_on_send && pools.take(chosen.session);
            out.extend(self.hand_out(next, chosen, pooled, true, now_ms));
        }
        self.consumers.requeue(&mut skipped);
        self.end_prompts();
    }

    /// Takes ready records, even if consumers have joined. A take that got fewer than requested
    /// makes the engine read more, once: scan, then take again.
    pub fn take(&mut self, take: PullRequest, now_ms: i64, out: &mut Vec<Assignment>) {
        self.take_within(take, PullScope::default(), now_ms, out);
    }

    /// As [`Dispatch::take`], restricted to a part of the group.
    pub fn take_within(
        &mut self,
        take: PullRequest,
        within: PullScope<'_>,
        now_ms: i64,
        out: &mut Vec<Assignment>,
    ) {
        self.now_ms = now_ms;
        if self.paused {
            return;
        }
        if !self.knows(within.known_to) {
            self.pulled = true;
            return;
        }
        let PullRequest { session, consumer, settle_on_send, lease_ms, .. } = take;
        let chosen = SelectedConsumer { consumer, session, settle_on_send, lease_ms };
        let (mut records, mut bytes) = (0, 0_u64);
        while records < take.records_max && self.leases.len() < self.bounds.leased {
            let Some(next) = self.next_ready(now_ms, within) else {
                self.pulled = true;
                return;
            };
            bytes += u64::from(next.bytes);
            if records > 0 && bytes > take.bytes_max {
                return;
            }
            records += 1;
            out.extend(self.hand_out(next, chosen, false, false, now_ms));
        }
    }

    /// The next record to deliver. Undeliverable records at the head are blocked or die.
    fn next_ready(&mut self, now_ms: i64, within: PullScope<'_>) -> Option<NextRecord> {
        loop {
            let head = self.first_head(within)?;
            let found = &self.partitions[head.partition];
            let (rank, offset) = (head.rank, found.head_offset);
            let meta = *found.ready.get(rank, offset)?;
            let attempts = found.attempts(offset);
            let next = NextRecord { partition: head.partition, rank, offset, bytes: meta.bytes };
            let exhausted = self.policy.attempts_max.is_some_and(|max| attempts >= max);
            let expired = self.is_expired(&meta, now_ms) && !found.is_prompt(offset, &meta);
            let reason = if expired {
                Some(DeadReason::Expired)
            } else {
                exhausted.then_some(DeadReason::Attempts)
            };
            if let Some(reason) = reason {
                // It is undeliverable, and there is no room for another dead letter.
                if self.policy.dead_letters && self.ending >= self.bounds.dead {
                    return None;
                }
                self.take_ready(next.partition, rank, offset);
                self.subtract_waiting(next.partition, &meta);
                self.die(next.partition, offset, reason, attempts, meta);
                self.refresh_head(next.partition);
            } else if self.is_blocked(next.partition, offset, &meta) {
                self.take_ready(next.partition, rank, offset);
                self.lanes.block(next.partition, offset, meta);
                self.refresh_head(next.partition);
            } else {
                return Some(next);
            }
        }
    }

    /// The best head among the eligible partitions.
    fn first_head(&self, within: PullScope<'_>) -> Option<Head> {
        /// With at most this many partitions, checking each is cheaper than walking the heads in
        /// order.
        const FEW: usize = 16;
        let PullScope { partitions: wanted, leased_max, .. } = within;
        let is_full = self.attempts >= self.bounds.attempts;
        let has_room = |head: &Head| {
            let found = &self.partitions[head.partition];
            // A record with attempts may be delivered again. Behind a new head record it waits for
            // that one.
            let may_go =
                !is_full || self.leases.len() == 0 || found.attempts(found.head_offset) > 0;
            may_go && leased_max.is_none_or(|max| found.leased < max)
        };
        if !wanted.is_empty() && wanted.len() <= FEW {
            let found = wanted.iter().filter_map(|&index| self.partitions.get(index));
            return found.filter_map(|partition| partition.head).filter(has_room).min();
        }
        let is_wanted =
            |head: &Head| wanted.is_empty() || wanted.binary_search(&head.partition).is_ok();
        self.heads.iter().find(|head| is_wanted(head) && has_room(head)).copied()
    }

    fn is_blocked(&self, partition: u32, offset: Offset, meta: &Meta) -> bool {
        self.policy.ordering == Ordering::Key
            && meta.key != 0
            && self.lanes.blocks(partition, meta.key, offset)
    }

    fn hand_out(
        &mut self,
        next: NextRecord,
        chosen: SelectedConsumer,
        pooled: bool,
        credit: bool,
        now_ms: i64,
    ) -> Option<Assignment> {
        let NextRecord { partition, rank, offset, .. } = next;
        let SelectedConsumer { consumer, session, settle_on_send, lease_ms } = chosen;
        let attempt = self.partitions[partition].deliveries(offset).saturating_add(1);
        let meta = self.take_ready(partition, rank, offset)?;
        self.subtract_waiting(partition, &meta);
        let found = &mut self.partitions[partition];
        found.handed_out = (found.handed_out + 1) % HIGH_TO_NORMAL;
        let token = self.new_token();
        let mut terms = None;
        let what = if settle_on_send { StepKind::HandedOut } else { StepKind::Leased };
        self.steps.add(Step { session, attempt, ..Step::of(what, partition, offset) });
        if settle_on_send {
            self.finish(partition, offset, meta.key);
        } else {
            self.hold(partition, offset, meta.key);
            let deadline_ms = self.deadline(lease_ms, now_ms);
            terms = Some(LeaseAttributes { deadline_ms, meta, credit, pooled });
            self.partitions[partition].leased += 1;
        }
        let assignment = Assignment { consumer, session, token, partition, offset, attempt, terms };
        if let Some(lease) = assignment.lease() {
            self.leases.insert(lease);
        }
        self.refresh_head(partition);
        Some(assignment)
    }

    fn new_token(&mut self) -> Token {
        let token = self.next_token;
        self.next_token += 1;
        token
    }

    /// Deadline of a lease that begins now.
    pub(super) fn deadline(&self, lease_ms: Option<i64>, now_ms: i64) -> i64 {
        match lease_ms.or(self.policy.lease_ms) {
            Some(lease_ms) if lease_ms > 0 => now_ms.saturating_add(lease_ms),
            _ => i64::MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use base::Stripe;

    use super::*;
    use crate::{PartitionStart, Policy, ScannedRecord, Selection, Settlement};

    /// Three partitions of four records each, all known, the oldest in the last.
    fn engine() -> Dispatch {
        let starts = vec![PartitionStart { end: 4, ..PartitionStart::default() }; 3];
        let mut engine = Dispatch::new(Policy::default(), Stripe::ALL, starts, 1);
        // A take that gets fewer records than requested makes the engine read once.
        let no_partition = PullScope { partitions: &[9], ..PullScope::default() };
        loop {
            assert_eq!(take(&mut engine, 1, no_partition), []);
            let Some(want) = engine.wants() else { break };
            let record = |offset| ScannedRecord {
                offset,
                bytes: 1,
                value_bytes: 1,
                timestamp: 100 - i64::from(want.partition),
                key: None,
                priority: 0,
                due_ms: i64::MIN,
                expires_ms: i64::MAX,
            };
            engine.scanned(want.partition, 0, 4, (0..4).map(record), 0);
        }
        engine
    }

    fn take(engine: &mut Dispatch, records_max: u32, within: PullScope<'_>) -> Vec<(u32, Offset)> {
        let take = PullRequest {
            session: 1,
            consumer: 0,
            records_max,
            bytes_max: u64::MAX,
            settle_on_send: false,
            lease_ms: None,
        };
        let mut out = Vec::new();
        engine.take_within(take, within, 0, &mut out);
        out.iter().map(|assignment| (assignment.partition, assignment.offset)).collect()
    }

    #[test]
    fn take_returns_records_of_the_requested_partitions_only() {
        let mut engine = engine();
        let of = |partitions| PullScope { partitions, ..PullScope::default() };
        assert_eq!(take(&mut engine, 2, of(&[0])), [(0, 0), (0, 1)]);
        assert_eq!(take(&mut engine, 9, of(&[0, 1])).len(), 6);
        assert_eq!(take(&mut engine, 9, of(&[0, 1, 7])), []);
        let many: Vec<u32> = (2..100).collect();
        assert_eq!(take(&mut engine, 1, of(&many)), [(2, 0)]);
        assert_eq!(take(&mut engine, 9, PullScope::default()).len(), 3);
    }

    #[test]
    fn partition_at_its_lease_limit_delivers_no_more_until_a_lease_ends() {
        let mut engine = engine();
        let two = PullScope { leased_max: Some(2), ..PullScope::default() };
        let taken = take(&mut engine, 99, two);
        assert_eq!(taken, [(2, 0), (2, 1), (1, 0), (1, 1), (0, 0), (0, 1)]);
        let one = Selection::Range { partition: 1, first: 0, last: 0 };
        engine.settle(1, one, Settlement::Accept, 0).expect("is leased");
        assert_eq!(take(&mut engine, 99, two), [(1, 2)]);
        engine.end_session(1, 0);
        assert_eq!(take(&mut engine, 99, two).len(), 6);
    }
}
