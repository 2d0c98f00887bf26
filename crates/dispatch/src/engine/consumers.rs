//! Consumers and sessions of an engine. A consumer's credit may be split over several engines: this
//! one returns its missing and unused credit.

use super::Dispatch;
use crate::consumers::{CreditShortage, JoinRefused, Leases, Pools, PushConsumer};
use crate::lease::Slot;
use crate::steps::StepKind;
use crate::{ConsumerId, SessionId, Token};

impl Dispatch {
    /// Adds a consumer that records are pushed to.
    pub fn join(&mut self, consumer: ConsumerId, joined: PushConsumer) -> Result<(), JoinRefused> {
        self.consumers.join(consumer, joined)
    }

    /// Continues a consumer that has joined before, with this credit. Its leases use theirs already.
    /// Returns false if it has to join again.
    pub fn rejoin(&mut self, consumer: ConsumerId, joined: PushConsumer) -> bool {
        self.consumers.rejoin(consumer, joined)
    }

    /// The joined consumers, in the order in which to join them to another engine.
    pub fn joined(&self) -> Vec<(ConsumerId, PushConsumer)> {
        self.consumers.joined()
    }

    /// Adds credit to a consumer. One with a window gets a larger window.
    pub fn grant(&mut self, consumer: ConsumerId, records: u32, bytes: u64) {
        self.consumers.grant(consumer, records, bytes);
    }

    /// Sets the window, or the remaining grants.
    pub fn set_credit(&mut self, consumer: ConsumerId, records: u32, bytes: u64) {
        self.consumers.set_credit(consumer, records, bytes);
    }

    /// Returns to the sessions' pools the credit of leases that ended since the last call. Needed
    /// only if another engine dispatches before this one.
    pub fn return_to(&mut self, pools: &mut Pools) {
        for (session, records) in self.pool_returns.drain(..) {
            pools.give_back(session, records);
        }
    }

    pub fn leave(&mut self, consumer: ConsumerId, now_ms: i64, leases: Leases) {
        self.now_ms = now_ms;
        let Some(session) = self.consumers.leave(consumer, now_ms) else { return };
        if leases == Leases::Keep {
            return;
        }
        let all = self.leases.in_session(session);
        let of: Vec<Slot> = all.filter(|&it| self.leases.get(it).consumer == consumer).collect();
        for slot in of {
            self.come_back(slot, Some(0), true, now_ms, StepKind::Left);
        }
    }

    /// Its consumers leave, and its leases are released at once, each counted as an attempt.
    pub fn end_session(&mut self, session: SessionId, now_ms: i64) {
        self.now_ms = now_ms;
        for consumer in self.consumers.in_session(session) {
            self.consumers.leave(consumer, now_ms);
        }
        while let Some(slot) = self.leases.first_of(session) {
            self.come_back(slot, Some(0), true, now_ms, StepKind::Left);
        }
    }

    /// Releases the session's leases whose token is not among `held`, each counted as an attempt.
    pub fn end_other_leases(
        &mut self,
        session: SessionId,
        now_ms: i64,
        held: impl Fn(Token) -> bool,
    ) {
        self.now_ms = now_ms;
        let all = self.leases.in_session(session);
        let others: Vec<Slot> = all.filter(|&it| !held(self.leases.get(it).token)).collect();
        for slot in others {
            self.come_back(slot, Some(0), true, now_ms, StepKind::Left);
        }
    }

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
