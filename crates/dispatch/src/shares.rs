//! A consumer's credit split over several engines: missing and unused credit of this one.

use crate::ConsumerId;
use crate::dispatch::Dispatch;
use crate::pools::Pools;

/// Reasons why a consumer cannot get the next record. None of them if no record is ready.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CreditShortage {
    /// There is a record for the consumer, unless something else is missing.
    pub ready: bool,
    pub records: bool,
    pub bytes: bool,
    /// Its session's pool is exhausted.
    pub pool: bool,
}

impl Dispatch {
    /// To be called after [`Dispatch::dispatch`]. A record that turns out to be expired or blocked
    /// by its key counts as ready, so that credit given for it may stay unused.
    pub fn lack(&self, consumer: ConsumerId, pools: &Pools) -> CreditShortage {
        if self.paused || self.leases.len() >= self.bounds.leased {
            return CreditShortage::default();
        }
        let Some(head) = self.heads.first() else { return CreditShortage::default() };
        let found = &self.partitions[head.partition];
        let next = found.ready.get(head.rank, found.head_offset);
        next.map_or_else(CreditShortage::default, |meta| {
            self.consumers.lack(consumer, meta.bytes, pools)
        })
    }

    /// Records and bytes of a consumer's window, or its remaining grants.
    pub fn credit(&self, consumer: ConsumerId) -> Option<(u32, u64)> {
        self.consumers.credit(consumer)
    }

    /// Unused credit of a consumer: records and bytes.
    pub fn unused_credit(&self, consumer: ConsumerId) -> (u32, u64) {
        self.consumers.left(consumer)
    }

    /// Reclaims unused credit of a consumer, up to these limits. Returns the number of records and
    /// bytes. Unlimited credit stays.
    pub fn take_back(&mut self, consumer: ConsumerId, records: u32, bytes: u64) -> (u32, u64) {
        self.consumers.take_back(consumer, records, bytes)
    }

    /// Whether the consumer may get records: with `single_active` only the active one may.
    pub fn is_active(&self, consumer: ConsumerId) -> bool {
        self.consumers.is_active(consumer)
    }
}
