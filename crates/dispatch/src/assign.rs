//! Handing out: the best record to the consumer whose turn it is.

use base::Offset;

use crate::consumer::Take;
use crate::consumers::{Aside, Chosen};
use crate::dispatch::Dispatch;
use crate::lease::Lease;
use crate::policy::Ordering;
use crate::pools::Pools;
use crate::ready::Meta;
use crate::record::Assignment;
use crate::{DeadReason, Token};

/// The record that goes next.
#[derive(Clone, Copy, Debug)]
struct Next {
    partition: u32,
    rank: u8,
    offset: Offset,
    bytes: u32,
}

impl Dispatch {
    /// Hands out what is ready to consumers with credit. Gives back to `pools` first what ended
    /// since (see [`Dispatch::return_to`]).
    pub fn dispatch(&mut self, now_ms: i64, pools: &mut Pools, out: &mut Vec<Assignment>) {
        self.now_ms = now_ms;
        self.return_to(pools);
        if self.paused {
            return;
        }
        let mut aside = Aside::new();
        while self.consumers.any_queued() && self.leases.len() < self.bounds.leased {
            let Some(next) = self.next_ready(now_ms) else { break };
            let Some(chosen) = self.consumers.choose(next.bytes, pools, &mut aside) else { break };
            let pooled = !chosen.settle_on_send && pools.take(chosen.session);
            out.extend(self.hand_out(next, chosen, pooled, true, now_ms));
        }
        self.consumers.step_back(&mut aside);
    }

    /// Takes what is ready, whoever consumes beside. A take that got less than it asked for makes
    /// the engine want more, once: scan, then take again.
    pub fn take(&mut self, take: Take, now_ms: i64, out: &mut Vec<Assignment>) {
        self.now_ms = now_ms;
        if self.paused {
            return;
        }
        let Take { session, consumer, settle_on_send, lease_ms, .. } = take;
        let chosen = Chosen { consumer, session, settle_on_send, lease_ms };
        let (mut records, mut bytes) = (0, 0_u64);
        while records < take.records_max && self.leases.len() < self.bounds.leased {
            let Some(next) = self.next_ready(now_ms) else {
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

    /// The record that goes next; what is at the head and may not go is put where it belongs.
    fn next_ready(&mut self, now_ms: i64) -> Option<Next> {
        loop {
            let head = *self.heads.first()?;
            let found = &self.partitions[head.partition as usize];
            let (rank, offset) = (head.rank, found.head_offset);
            let meta = *found.ready.get(rank, offset)?;
            let attempts = found.attempts(offset);
            let next = Next { partition: head.partition, rank, offset, bytes: meta.bytes };
            let exhausted = self.policy.attempts_max.is_some_and(|max| attempts >= max);
            let reason = if self.is_expired(&meta, now_ms) {
                Some(DeadReason::Expired)
            } else {
                exhausted.then_some(DeadReason::Attempts)
            };
            if let Some(reason) = reason {
                // It must not go, and for the moment it cannot die either.
                if self.policy.dead_letters && self.dead >= self.bounds.dead {
                    return None;
                }
                self.take_ready(next.partition, rank, offset);
                self.die(next.partition, offset, reason, attempts, meta.key);
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

    fn is_blocked(&self, partition: u32, offset: Offset, meta: &Meta) -> bool {
        self.policy.ordering == Ordering::Key
            && meta.key != 0
            && self.lanes.blocks(partition, meta.key, offset)
    }

    fn hand_out(
        &mut self,
        next: Next,
        chosen: Chosen,
        pooled: bool,
        credit: bool,
        now_ms: i64,
    ) -> Option<Assignment> {
        let Next { partition, rank, offset, .. } = next;
        let Chosen { consumer, session, settle_on_send, lease_ms } = chosen;
        let attempt = self.partitions[partition as usize].attempts(offset).saturating_add(1);
        let meta = self.take_ready(partition, rank, offset)?;
        let token = self.new_token();
        if settle_on_send {
            self.finish(partition, offset, meta.key);
        } else {
            self.hold(partition, offset, meta.key);
            let deadline_ms = self.deadline(lease_ms, now_ms);
            self.leases.insert(Lease {
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
            });
        }
        self.refresh_head(partition);
        Some(Assignment { consumer, session, token, partition, offset, attempt })
    }

    fn new_token(&mut self) -> Token {
        let token = self.next_token;
        self.next_token += 1;
        token
    }

    /// When a lease runs out that begins now.
    pub(crate) fn deadline(&self, lease_ms: Option<i64>, now_ms: i64) -> i64 {
        match lease_ms.or(self.policy.lease_ms) {
            Some(lease_ms) if lease_ms > 0 => now_ms.saturating_add(lease_ms),
            _ => i64::MAX,
        }
    }
}
