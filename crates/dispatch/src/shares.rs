//! Credit of a consumer that is divided over several engines: what this one lacks, and what it can spare.

use crate::ConsumerId;
use crate::dispatch::Dispatch;
use crate::pools::Pools;

/// What keeps a consumer from the record that goes next. Nothing where no record is ready.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Lack {
    /// There is a record that could go to the consumer, if it does not lack anything.
    pub ready: bool,
    pub records: bool,
    pub bytes: bool,
    /// Its session holds as many as it may.
    pub pool: bool,
}

impl Dispatch {
    /// To be asked after [`Dispatch::dispatch`]. A record that turns out to be expired or blocked by its
    /// key counts as ready: whoever goes by the answer gives credit that may not be used.
    pub fn lack(&self, consumer: ConsumerId, pools: &Pools) -> Lack {
        if self.paused || self.leases.len() >= self.bounds.leased {
            return Lack::default();
        }
        let Some(head) = self.heads.first() else { return Lack::default() };
        let found = &self.partitions[head.partition];
        let next = found.ready.get(head.rank, found.head_offset);
        next.map_or_else(Lack::default, |meta| self.consumers.lack(consumer, meta.bytes, pools))
    }

    /// Records and bytes of a consumer's window, or what is left of its grants.
    pub fn credit(&self, consumer: ConsumerId) -> Option<(u32, u64)> {
        self.consumers.credit(consumer)
    }

    /// What of a consumer's credit is not in use: records and bytes.
    pub fn unused_credit(&self, consumer: ConsumerId) -> (u32, u64) {
        self.consumers.left(consumer)
    }

    /// Takes back of a consumer's credit what is not in use, at most so much; how many records and bytes
    /// that was. Of unlimited credit nothing.
    pub fn take_back(&mut self, consumer: ConsumerId, records: u32, bytes: u64) -> (u32, u64) {
        self.consumers.take_back(consumer, records, bytes)
    }

    /// Whether the consumer is one that records may go to, where only one of the group's is.
    pub fn is_active(&self, consumer: ConsumerId) -> bool {
        self.consumers.is_active(consumer)
    }
}
