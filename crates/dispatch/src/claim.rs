//! Leases, back-offs and dead letters that go on in another engine of the same group: the one of a later term.

use std::collections::BTreeMap;

use base::{HashMap, Offset};
use serde::{Deserialize, Serialize};

use crate::dispatch::Dispatch;
use crate::lease::{Lease, Slot};
use crate::meta::Meta;
use crate::partition::Ending;
use crate::record::Assignment;
use crate::{ConsumerId, Joined, Pools, SessionId, Token};

/// A live lease, with all that an engine has to know of its record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Claim(Lease);

/// What a lease is like, beside what names it: with both, whoever holds the lease can claim it at another engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Terms {
    /// `i64::MAX`: as long as the session.
    pub(crate) deadline_ms: i64,
    pub(crate) meta: Meta,
    /// It uses credit of its consumer.
    pub(crate) credit: bool,
    /// It uses its session's pool.
    pub(crate) pooled: bool,
}

/// A record that came back from a lease and is to wait before it is delivered again.
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
    ending: Ending,
}

/// The state of a record that was taken over with its lease and is not read yet.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Claimed {
    /// It is leased, dead or settled.
    Held,
    /// It is available again from `due_ms` on; `i64::MIN`: at once.
    Back { due_ms: i64 },
}

/// The records that were taken over with their leases and that this engine has not read.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    records: BTreeMap<(u32, Offset), Claimed>,
    /// How many of a partition are back.
    back: HashMap<u32, usize>,
}

impl Claims {
    /// Whether unread records of the partition are available again: they must be read to be handed out.
    pub(crate) fn has_back(&self, partition: u32) -> bool {
        self.back.contains_key(&partition)
    }

    fn insert(&mut self, partition: u32, offset: Offset) {
        self.records.insert((partition, offset), Claimed::Held);
    }

    fn contains(&self, partition: u32, offset: Offset) -> bool {
        self.records.contains_key(&(partition, offset))
    }

    /// False if the record was not taken over.
    fn comes_back(&mut self, partition: u32, offset: Offset, due_ms: i64) -> bool {
        let Some(claimed) = self.records.get_mut(&(partition, offset)) else { return false };
        if matches!(std::mem::replace(claimed, Claimed::Back { due_ms }), Claimed::Held) {
            *self.back.entry(partition).or_default() += 1;
        }
        true
    }

    fn remove(&mut self, partition: u32, offset: Offset) -> Option<Claimed> {
        let claimed = self.records.remove(&(partition, offset))?;
        if let Claimed::Back { .. } = claimed
            && let Some(back) = self.back.get_mut(&partition)
        {
            *back -= 1;
            if *back == 0 {
                self.back.remove(&partition);
            }
        }
        Some(claimed)
    }

    /// Takes those in the range out, by offset.
    pub(crate) fn remove_range(
        &mut self,
        partition: u32,
        first: Offset,
        end: Offset,
    ) -> Vec<(Offset, Claimed)> {
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

impl Terms {
    /// On a clock that is so much ahead of the one that they were made by.
    pub fn shifted(self, by_ms: i64) -> Self {
        Self { deadline_ms: shifted(self.deadline_ms, by_ms), ..self }
    }
}

fn shifted(deadline_ms: i64, by_ms: i64) -> i64 {
    match deadline_ms {
        i64::MAX => i64::MAX,
        deadline_ms => deadline_ms.saturating_add(by_ms).min(i64::MAX - 1),
    }
}

impl Assignment {
    /// `None` where the record was settled on send.
    pub(crate) fn lease(&self) -> Option<Lease> {
        let Self { consumer, session, token, partition, offset, attempt, terms } = *self;
        let Terms { deadline_ms, meta, credit, pooled } = terms?;
        Some(Lease {
            token,
            offset,
            meta,
            deadline_ms,
            session,
            consumer,
            partition,
            attempt,
            credit,
            pooled,
        })
    }
}

impl Claim {
    /// Of a record that was handed out; `None` where it was settled on send.
    pub fn of(assignment: &Assignment) -> Option<Self> {
        assignment.lease().map(Self)
    }

    pub fn session(&self) -> SessionId {
        self.0.session
    }

    /// 0: the record was taken, not consumed.
    pub fn consumer(&self) -> ConsumerId {
        self.0.consumer
    }

    pub fn token(&self) -> Token {
        self.0.token
    }

    pub fn place(&self) -> (u32, Offset) {
        (self.0.partition, self.0.offset)
    }

    /// When the lease runs out; `i64::MAX`: when its session ends.
    pub fn deadline_ms(&self) -> i64 {
        self.0.deadline_ms
    }

    /// As [`Terms::shifted`].
    pub fn shifted(self, by_ms: i64) -> Self {
        self.until(shifted(self.0.deadline_ms, by_ms))
    }

    /// With another deadline: it was renewed.
    pub fn until(self, deadline_ms: i64) -> Self {
        Self(Lease { deadline_ms, ..self.0 })
    }
}

impl Dispatch {
    /// All live leases, by partition and offset.
    pub fn claims(&self) -> Vec<Claim> {
        let mut claims: Vec<Claim> = self.leases.iter().map(|(_, lease)| Claim(*lease)).collect();
        claims.sort_unstable_by_key(|Claim(lease)| (lease.partition, lease.offset));
        claims
    }

    pub(crate) fn claim_of(&self, slot: Slot) -> Claim {
        Claim(*self.leases.get(slot))
    }

    /// The consumers that joined, to join another engine in this order.
    pub fn joined(&self) -> Vec<(ConsumerId, Joined)> {
        self.consumers.joined()
    }

    /// Takes a lease over, which keeps its token, its attempt and its deadline. To be called before anything
    /// was read, in the order of [`Dispatch::claims`], once the consumers have joined. False where there is
    /// no record to lease: it is settled, or gone.
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

    /// As [`Dispatch::claim`], of a lease that its holder presents after another node led. Its record may have been
    /// leased again there: the first of its leases that is presented is taken over.
    ///
    /// Several leases of one lane are all taken over. The engine before handed the later record out because the lease of
    /// the earlier one had ended, and the holder of that repeats its end. A record that has no lease waits for all of them.
    pub fn present(&mut self, claim: Claim, pools: &mut Pools) -> bool {
        let Claim(lease) = claim;
        let Some(found) = self.partitions.get(lease.partition) else { return false };
        let is_known = lease.token == 0 || self.leases.find_token(lease.token).is_some();
        // It has come to its end already, which its holder has not heard.
        let is_over = found.attempts(lease.offset) >= lease.attempt;
        !is_known && !is_over && self.claim(claim, pools)
    }

    /// The records that back off after a lease, by partition and offset. Scheduled records are not among
    /// them: each engine reads their times in the log.
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

    /// Lets a record back off as it did in another engine. To be called before anything was read. False
    /// if the record is settled, or gone.
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

    /// Goes on waiting until a record's dead letter is in the log, which is told by [`Dispatch::ended`]. To be
    /// called before anything was read. False if there is no dead letter to make: the record is settled, or
    /// gone, or the policy has changed.
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
        self.set_aside(partition, offset, ending);
        true
    }

    /// Notes that a record backs off until `due_ms`.
    pub(crate) fn wait_after_lease(
        &mut self,
        partition: u32,
        offset: Offset,
        key: u64,
        due_ms: i64,
    ) {
        self.back_offs.insert((partition, offset), (key, due_ms));
    }

    /// Notes a record that comes back before this engine has read it: it can be handed out, or looked up
    /// when it is due, only after that. False if it was read.
    pub(crate) fn comes_back_unread(
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
    pub(crate) fn read_claimed(&mut self, partition: u32, offset: Offset) -> Option<Claimed> {
        self.claims.remove(partition, offset)
    }
}
