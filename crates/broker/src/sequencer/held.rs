//! Units that wait for room in an outbox.
//!
//! They wait in their order: a large one is not passed by small ones for ever. After a while they are refused,
//! and so they are when the term ends, since their driver waits for them then.

use std::collections::{BTreeSet, VecDeque};

use base::ShardId;
use base::limits::OUTBOX_HOLD;
use tokio::time::Instant;

use super::proposal::Context;
use super::units::{full_outbox, shards_there};
use crate::error::AppendError;
use crate::request::{Request, refuse_unit};

#[derive(Default)]
pub(super) struct Held {
    units: VecDeque<HeldUnit>,
    /// The node is about to end: nothing waits any more.
    closed: bool,
}

struct HeldUnit {
    unit: Request,
    since: Instant,
    /// The first of the outboxes that it needs which has no room.
    full: ShardId,
}

impl Held {
    pub(super) fn is_empty(&self) -> bool {
        self.units.is_empty()
    }

    /// When the first of them has waited long enough.
    pub(super) fn expires_at(&self) -> Option<Instant> {
        self.units.front().map(|held| held.since + OUTBOX_HOLD)
    }

    pub(super) fn refuse_expired(&mut self, now: Instant) {
        while let Some(held) = self.units.pop_front_if(|held| held.since + OUTBOX_HOLD <= now) {
            held.refuse();
        }
    }

    pub(super) fn refuse_all(&mut self) {
        self.units.drain(..).for_each(HeldUnit::refuse);
    }

    /// From now on nothing waits.
    pub(super) fn close(&mut self) {
        self.closed = true;
        self.refuse_all();
    }

    /// Takes out those that have room now, in their order, each once the one before it has its place.
    pub(super) fn release(
        &mut self,
        context: &mut Context<'_>,
        mut take: impl FnMut(Request, &mut Context<'_>),
    ) {
        for HeldUnit { unit, since, .. } in std::mem::take(&mut self.units) {
            match self.full(&unit, context) {
                Some(full) => self.units.push_back(HeldUnit { unit, since, full }),
                None => take(unit, context),
            }
        }
    }

    /// Keeps a unit that has no room. Gives back everything else.
    pub(super) fn admit(&mut self, request: Request, context: &Context<'_>) -> Option<Request> {
        let Some(full) = self.full(&request, context) else { return Some(request) };
        let held = HeldUnit { unit: request, since: Instant::now(), full };
        match self.closed {
            true => held.refuse(),
            false => self.units.push_back(held),
        }
        None
    }

    /// What a request has to wait for: an outbox that is full, or that another unit waits for.
    fn full(&self, request: &Request, context: &Context<'_>) -> Option<ShardId> {
        let Request::Unit { batches, .. } = request else { return None };
        let shards = shards_there(batches, context);
        if shards.is_empty() {
            return None;
        }
        let awaited: BTreeSet<ShardId> = self.units.iter().map(|held| held.full).collect();
        let awaited = shards.iter().copied().find(|to| awaited.contains(to));
        awaited.or_else(|| full_outbox(batches, &shards, context))
    }
}

impl HeldUnit {
    fn refuse(self) {
        if let Request::Unit { batches, reply, .. } = self.unit {
            refuse_unit(&batches, reply, &AppendError::OutboxFull { to: self.full });
        }
    }
}
