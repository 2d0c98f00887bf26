//! Leases that go on in another engine of the same group: the one of a later term.

use base::Offset;

use crate::dispatch::Dispatch;
use crate::lease::Lease;
use crate::{ConsumerId, Joined, Pools, SessionId};

/// A live lease, with all that an engine has to know of its record.
#[derive(Clone, Copy, Debug)]
pub struct Claim(Lease);

/// What became of a record that was taken over with its lease, until it is read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Claimed {
    /// It is leased, dead or settled.
    Held,
    /// It is available again, from then on; `i64::MIN`: it did not have to wait.
    Back { due_ms: i64 },
}

impl Claim {
    pub fn session(&self) -> SessionId {
        self.0.session
    }
}

impl Dispatch {
    /// All live leases, by partition and offset.
    pub fn claims(&self) -> Vec<Claim> {
        let mut claims: Vec<Claim> = self.leases.iter().map(|(_, lease)| Claim(*lease)).collect();
        claims.sort_unstable_by_key(|Claim(lease)| (lease.partition, lease.offset));
        claims
    }

    /// The consumers that joined, to join another engine in this order.
    pub fn joined(&self) -> Vec<(ConsumerId, Joined)> {
        self.consumers.joined()
    }

    /// Takes a lease over, which keeps its token, its attempt and its deadline. To be called before anything
    /// was read, in the order of [`Dispatch::claims`], once the consumers have joined. False where there is
    /// nothing to lease: the record is settled, or gone.
    pub fn claim(&mut self, claim: Claim, pools: &mut Pools) -> bool {
        let Claim(mut lease) = claim;
        let Some(found) = self.partitions.get_mut(lease.partition as usize) else { return false };
        let unread = (found.scan_next..found.end).contains(&lease.offset);
        if !unread
            || found.is_settled(lease.offset)
            || self.leases.find(lease.partition, lease.offset).is_some()
        {
            return false;
        }
        found.leased += 1;
        if lease.credit {
            self.consumers.resume(lease.consumer, lease.meta.bytes);
        }
        lease.pooled = lease.pooled && pools.take(lease.session);
        self.hold(lease.partition, lease.offset, lease.meta.key);
        self.claimed.insert((lease.partition, lease.offset), Claimed::Held);
        self.leases.insert(lease);
        true
    }

    /// Takes a record that comes back before this engine has read it: only what was read can be handed out
    /// or looked up when it is due. False where it was read.
    pub(crate) fn comes_back_unread(
        &mut self,
        partition: u32,
        offset: Offset,
        due_ms: i64,
    ) -> bool {
        if self.claimed.is_empty() || offset < self.partitions[partition as usize].scan_next {
            return false;
        }
        let Some(claimed) = self.claimed.get_mut(&(partition, offset)) else { return false };
        *claimed = Claimed::Back { due_ms };
        self.list(partition);
        true
    }

    /// What became of the records in a range that is being read, which are not in the log any more.
    pub(crate) fn pass_claimed(
        &mut self,
        partition: u32,
        first: Offset,
        end: Offset,
    ) -> Vec<(Offset, Claimed)> {
        if self.claimed.is_empty() || first >= end {
            return Vec::new();
        }
        let mut passed = Vec::new();
        self.claimed.retain(|&(of, offset), claimed| {
            let passes = of == partition && (first..end).contains(&offset);
            if passes {
                passed.push((offset, *claimed));
            }
            !passes
        });
        passed.sort_unstable_by_key(|(offset, _)| *offset);
        passed
    }

    /// The record is being read: what became of it before that.
    pub(crate) fn read_claimed(&mut self, partition: u32, offset: Offset) -> Option<Claimed> {
        if self.claimed.is_empty() { None } else { self.claimed.remove(&(partition, offset)) }
    }
}
