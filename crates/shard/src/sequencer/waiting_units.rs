//! Units that wait for room in an outbox.
//!
//! They wait in order, so that small units do not pass a large one for ever. After a while they are rejected. Waiting
//! units are in memory, so their size is bounded: beyond the bound a unit is rejected at once.
//!
//! A driver whose term is over waits for the results of all its requests, and delivers nothing meanwhile. So it gets
//! the waiting units back, and leaves them to the driver of the next term.

use std::collections::{BTreeMap, VecDeque};

use crate::limits::{OUTBOX_HELD_BYTES_MAX, OUTBOX_HOLD};
use base::ShardId;
use tokio::time::Instant;

use super::proposal::Context;
use super::units::{full_outbox, shards_there};
use crate::error::AppendError;
use crate::request::{Request, UnitAnswer, refuse_unit};

pub(super) struct WaitingUnits {
    units: VecDeque<WaitingUnit>,
    /// Number and bytes of the units waiting for each outbox.
    awaited: BTreeMap<ShardId, (usize, usize)>,
    /// Whether units may wait: not while a driver is ending.
    open: bool,
    /// The node is about to end: no unit may wait any more.
    closed: bool,
}

struct WaitingUnit {
    unit: Request,
    bytes: usize,
    since: Instant,
    /// The first full outbox that the unit needs.
    full: ShardId,
}

impl Default for WaitingUnits {
    fn default() -> Self {
        Self { units: VecDeque::new(), awaited: BTreeMap::new(), open: true, closed: false }
    }
}

impl WaitingUnits {
    pub(super) fn is_empty(&self) -> bool {
        self.units.is_empty()
    }

    /// Returns when the first unit expires.
    pub(super) fn expires_at(&self) -> Option<Instant> {
        self.units.front().map(|held| held.since + OUTBOX_HOLD)
    }

    pub(super) fn refuse_expired(&mut self, now: Instant) {
        while let Some(held) = self.units.pop_front_if(|held| held.since + OUTBOX_HOLD <= now) {
            self.note_gone(&held);
            held.refuse();
        }
    }

    /// Rejects all units; none may wait from now on.
    pub(super) fn close(&mut self) {
        self.closed = true;
        self.awaited.clear();
        self.units.drain(..).for_each(WaitingUnit::refuse);
    }

    /// Sets whether units may wait.
    pub(super) fn may_wait(&mut self, may: bool) {
        self.open = may;
        if !may {
            self.give_all_back();
        }
    }

    /// Gives all units back: without leadership their driver ends, or has ended.
    pub(super) fn give_all_back(&mut self) {
        self.awaited.clear();
        self.units.drain(..).for_each(WaitingUnit::give_back);
    }

    /// Removes the units that have room now, in order, and passes each to `take` before it checks the next.
    pub(super) fn release(
        &mut self,
        context: &mut Context<'_>,
        mut take: impl FnMut(Request, &mut Context<'_>),
    ) {
        // Most often nothing has changed: then the other units are not checked.
        if !self.any_has_room(context) {
            return;
        }
        self.awaited.clear();
        for held in std::mem::take(&mut self.units) {
            // An earlier unit still waits for the same outbox.
            let full = match self.awaited.contains_key(&held.full) {
                true => Some(held.full),
                false => self.full(&held.unit, context),
            };
            match full {
                Some(full) => self.keep(WaitingUnit { full, ..held }),
                None => take(held.unit, context),
            }
        }
    }

    /// Keeps a unit without room. Returns any other request.
    pub(super) fn admit(&mut self, request: Request, context: &Context<'_>) -> Option<Request> {
        if let Request::MayWait(may) = request {
            self.may_wait(may);
            return None;
        }
        let Some(full) = self.full(&request, context) else { return Some(request) };
        let bytes = request.bytes();
        let held = WaitingUnit { unit: request, bytes, since: Instant::now(), full };
        let waiting = self.awaited.get(&full).map_or(0, |(_, waiting)| *waiting);
        let has_room = waiting == 0 || waiting + bytes <= OUTBOX_HELD_BYTES_MAX;
        match (self.closed || !has_room, self.open) {
            (true, _) => held.refuse(),
            (false, true) => self.keep(held),
            (false, false) => held.give_back(),
        }
        None
    }

    fn keep(&mut self, held: WaitingUnit) {
        let (units, bytes) = self.awaited.entry(held.full).or_default();
        (*units, *bytes) = (*units + 1, *bytes + held.bytes);
        self.units.push_back(held);
    }

    fn note_gone(&mut self, held: &WaitingUnit) {
        if let Some((units, bytes)) = self.awaited.get_mut(&held.full) {
            (*units, *bytes) = (*units - 1, *bytes - held.bytes);
            if *units == 0 {
                self.awaited.remove(&held.full);
            }
        }
    }

    /// Whether the first unit waiting for one of the outboxes has room there now.
    fn any_has_room(&self, context: &Context<'_>) -> bool {
        let mut firsts = Vec::with_capacity(self.awaited.len());
        for held in &self.units {
            if firsts.len() == self.awaited.len() {
                break;
            }
            if firsts.contains(&held.full) {
                continue;
            }
            let Request::Unit { content, .. } = &held.unit else { return true };
            if full_outbox(content, &[held.full], context).is_none() {
                return true;
            }
            firsts.push(held.full);
        }
        false
    }

    /// Returns the outbox that a request has to wait for: one that is full, or that another unit waits for.
    fn full(&self, request: &Request, context: &Context<'_>) -> Option<ShardId> {
        let Request::Unit { content, .. } = request else { return None };
        let shards = shards_there(content, context);
        if shards.is_empty() {
            return None;
        }
        let awaited = shards.iter().copied().find(|to| self.awaited.contains_key(to));
        awaited.or_else(|| full_outbox(content, &shards, context))
    }
}

impl WaitingUnit {
    fn give_back(self) {
        if let Request::Unit { content, reply } = self.unit {
            let _ = reply.send(UnitAnswer::GivenBack(content));
        }
    }

    fn refuse(self) {
        if let Request::Unit { content, reply } = self.unit {
            refuse_unit(&content, reply, &AppendError::OutboxFull { to: self.full });
        }
    }
}
