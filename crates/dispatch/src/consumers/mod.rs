//! Consumers and their credit. Selects the next consumer: the highest priority with credit,
//! round-robin among equals.

mod consumer;
mod pools;

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

use base::HashMap;

use crate::{ConsumerId, SessionId};
pub use consumer::{
    Credit, CreditShortage, JoinRefused, Leases, PullRequest, PullScope, PushConsumer,
};
pub use pools::Pools;

#[derive(Debug)]
struct Consumer {
    joined: PushConsumer,
    /// Order of arrival.
    number: u64,
    /// Used credit of a window. Grants are used up in `joined` itself.
    records_used: u32,
    bytes_used: u64,
    /// Live leases that used credit.
    held: u32,
    /// It is in its priority's ring.
    queued: bool,
}

impl Consumer {
    fn has_credit(&self) -> bool {
        self.records_left() > 0 && self.bytes_left() > 0
    }

    fn records_left(&self) -> u32 {
        match self.joined.records {
            u32::MAX => u32::MAX,
            records => records.saturating_sub(self.records_used),
        }
    }

    fn bytes_left(&self) -> u64 {
        match self.joined.bytes {
            u64::MAX => u64::MAX,
            bytes => bytes.saturating_sub(self.bytes_used),
        }
    }

    fn fits(&self, bytes: u32) -> bool {
        u64::from(bytes) <= self.bytes_left() || self.held == 0
    }

    fn spend(&mut self, bytes: u32) {
        match self.joined.credit {
            // Settled on send: its credit returns at once.
            Credit::Window if self.joined.settle_on_send => {}
            Credit::Window => {
                self.records_used += 1;
                self.bytes_used += u64::from(bytes);
            }
            Credit::Grants => {
                if self.joined.records != u32::MAX {
                    self.joined.records -= 1;
                }
                if self.joined.bytes != u64::MAX {
                    self.joined.bytes = self.joined.bytes.saturating_sub(u64::from(bytes));
                }
            }
        }
        if !self.joined.settle_on_send {
            self.held += 1;
        }
    }
}

/// The selected consumer, after its credit was used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SelectedConsumer {
    pub(crate) consumer: ConsumerId,
    pub(crate) session: SessionId,
    pub(crate) settle_on_send: bool,
    pub(crate) lease_ms: Option<i64>,
}

/// Consumers that cannot take the current record; they keep their place in the ring.
pub(crate) type SkippedConsumers = Vec<(Reverse<i32>, ConsumerId)>;

/// How long the next active consumer waits for the records that the former one still holds. A
/// client that closes its channel cancels its consumers first; their records are released a moment
/// later, and are older than the ready ones.
const LEAVES_WITHIN_MS: i64 = 1_000;

#[derive(Clone, Copy, Debug)]
struct LeavingConsumer {
    consumer: ConsumerId,
    held: u32,
    until_ms: i64,
}

#[derive(Debug, Default)]
pub(crate) struct Consumers {
    by_id: HashMap<ConsumerId, Consumer>,
    /// Consumers with credit, by priority. One without credit is removed when its turn comes.
    rings: BTreeMap<Reverse<i32>, VecDeque<ConsumerId>>,
    queued: usize,
    exclusive: Option<ConsumerId>,
    single_active: bool,
    /// A consumer of a higher priority takes over from the active one, once that holds no records.
    priority_takes_over: bool,
    active: Option<ConsumerId>,
    /// A consumer of a higher priority has joined: the active one gets no more records.
    draining: bool,
    /// The former active consumer, which still holds records.
    leaving: Option<LeavingConsumer>,
    arrivals: u64,
    /// Activations and deactivations since the last drain.
    pub(crate) events: Vec<(ConsumerId, bool)>,
}

impl Consumers {
    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether a consumer has credit for a record.
    pub(crate) fn any_queued(&self) -> bool {
        self.queued > 0
    }

    pub(crate) fn join(&mut self, id: ConsumerId, joined: PushConsumer) -> Result<(), JoinRefused> {
        if let Some(by) = self.exclusive {
            return Err(JoinRefused::Exclusive { by });
        }
        if self.by_id.contains_key(&id) {
            return Err(JoinRefused::Known { consumer: id });
        }
        if joined.exclusive && !self.by_id.is_empty() {
            return Err(JoinRefused::InUse { consumers: self.by_id.len() });
        }
        if joined.exclusive {
            self.exclusive = Some(id);
        }
        self.arrivals += 1;
        let consumer = Consumer {
            joined,
            number: self.arrivals,
            records_used: 0,
            bytes_used: 0,
            held: 0,
            queued: false,
        };
        self.by_id.insert(id, consumer);
        self.choose_active();
        self.weigh();
        self.queue(id);
        Ok(())
    }

    /// Continues a consumer with this credit. It keeps its place among the others, and its leases
    /// their credit. Returns false if it has to join again.
    pub(crate) fn rejoin(&mut self, id: ConsumerId, joined: PushConsumer) -> bool {
        let Some(consumer) = self.by_id.get_mut(&id) else { return false };
        let former = consumer.joined;
        let credit = |of: PushConsumer| PushConsumer { records: 0, bytes: 0, lease_ms: None, ..of };
        if credit(former) != credit(joined) {
            return false;
        }
        consumer.joined = joined;
        self.queue(id);
        true
    }

    /// Removes the consumer and returns its session. Its leases return no more credit.
    pub(crate) fn leave(&mut self, id: ConsumerId, now_ms: i64) -> Option<SessionId> {
        let consumer = self.by_id.remove(&id)?;
        if consumer.queued {
            self.unqueue(Reverse(consumer.joined.priority), id);
        }
        if self.exclusive == Some(id) {
            self.exclusive = None;
        }
        if self.active == Some(id) {
            self.active = None;
            self.draining = false;
            if consumer.held > 0 {
                let until_ms = now_ms.saturating_add(LEAVES_WITHIN_MS);
                self.leaving =
                    Some(LeavingConsumer { consumer: id, held: consumer.held, until_ms });
            }
            self.choose_active();
        } else {
            self.weigh();
        }
        Some(consumer.joined.session)
    }

    /// Time at which the next consumer stops waiting for the former active one's records.
    pub(crate) fn next_deadline(&self) -> Option<i64> {
        self.leaving.map(|leaving| leaving.until_ms)
    }

    pub(crate) fn tick(&mut self, now_ms: i64) {
        if self.leaving.is_some_and(|leaving| leaving.until_ms <= now_ms) {
            self.end_leaving();
        }
    }

    fn end_leaving(&mut self) {
        self.leaving = None;
        if let Some(active) = self.active {
            self.queue(active);
        }
    }

    /// The only consumer that may get records, if any; `None`: all may.
    fn only(&self) -> Option<Option<ConsumerId>> {
        let may_take = !self.draining && self.leaving.is_none();
        self.single_active.then_some(self.active.filter(|_| may_take))
    }

    fn may_take(&self, id: ConsumerId) -> bool {
        self.only().is_none_or(|only| only == Some(id))
    }

    pub(crate) fn set_priority_takes_over(&mut self, takes_over: bool) {
        self.priority_takes_over = takes_over;
        self.weigh();
    }

    /// Lets a consumer of a higher priority take over, or first drains the active one.
    fn weigh(&mut self) {
        let active = self.active.and_then(|id| Some((id, self.by_id.get(&id)?)));
        let Some((id, active)) = active else { return };
        let (priority, held) = (active.joined.priority, active.held);
        let above = |other: &Consumer| other.joined.priority > priority;
        let takes_over = self.single_active && self.priority_takes_over;
        let drains = takes_over && self.by_id.values().any(above);
        if drains && held == 0 {
            self.draining = false;
            self.active = None;
            self.events.push((id, false));
            self.choose_active();
        } else if std::mem::replace(&mut self.draining, drains) && !drains {
            self.queue(id);
        }
    }

    /// All consumers with their remaining grants: first the active one, then in the order of arrival.
    pub(crate) fn joined(&self) -> Vec<(ConsumerId, PushConsumer)> {
        let mut all: Vec<_> = self.by_id.iter().collect();
        all.sort_unstable_by_key(|(id, consumer)| (self.active != Some(**id), consumer.number));
        all.into_iter().map(|(id, consumer)| (*id, consumer.joined)).collect()
    }

    /// Restores a held record of the consumer. Its grants were reduced when the record was
    /// delivered.
    pub(crate) fn resume(&mut self, id: ConsumerId, bytes: u32) {
        if let Some(consumer) = self.by_id.get_mut(&id) {
            consumer.held += 1;
            if consumer.joined.credit == Credit::Window {
                consumer.records_used += 1;
                consumer.bytes_used += u64::from(bytes);
            }
        }
    }

    /// Consumers of a session, in the order of arrival.
    pub(crate) fn in_session(&self, session: SessionId) -> Vec<ConsumerId> {
        let all = self.by_id.iter();
        let mut of: Vec<_> = all
            .filter(|(_, consumer)| consumer.joined.session == session)
            .map(|(id, consumer)| (consumer.number, *id))
            .collect();
        of.sort_unstable();
        of.into_iter().map(|(_, id)| id).collect()
    }

    pub(crate) fn set_single_active(&mut self, single_active: bool) {
        if single_active == self.single_active {
            return;
        }
        self.single_active = single_active;
        (self.draining, self.leaving) = (false, None);
        let mut all: Vec<_> = self.by_id.iter().map(|(id, c)| (c.number, *id)).collect();
        all.sort_unstable();
        if single_active {
            self.choose_active();
            self.weigh();
        }
        let active = self.active;
        let all = all.into_iter().map(|(_, id)| id);
        if single_active {
            let others = all.filter(|&id| Some(id) != active);
            self.events.extend(others.map(|id| (id, false)));
        } else {
            self.active = None;
            for id in all {
                if Some(id) != active {
                    self.events.push((id, true));
                }
                // The active consumer is not queued while it waits for records of the former one.
                self.queue(id);
            }
        }
    }

    /// Activates the next consumer: of the highest priority the one that joined first.
    fn choose_active(&mut self) {
        if !self.single_active || self.active.is_some() {
            return;
        }
        let all = self.by_id.iter();
        let next = all.min_by_key(|(_, c)| (Reverse(c.joined.priority), c.number));
        if let Some(id) = next.map(|(id, _)| *id) {
            self.active = Some(id);
            self.events.push((id, true));
            self.queue(id);
        }
    }

    pub(crate) fn grant(&mut self, id: ConsumerId, records: u32, bytes: u64) {
        if let Some(consumer) = self.by_id.get_mut(&id) {
            // Unlimited credit stays unlimited, and no sum becomes unlimited.
            let joined = &mut consumer.joined;
            if joined.records != u32::MAX {
                joined.records = joined.records.saturating_add(records);
            }
            if joined.bytes != u64::MAX {
                joined.bytes = joined.bytes.saturating_add(bytes);
            }
            self.queue(id);
        }
    }

    pub(crate) fn set_credit(&mut self, id: ConsumerId, records: u32, bytes: u64) {
        if let Some(consumer) = self.by_id.get_mut(&id) {
            consumer.joined.records = records;
            consumer.joined.bytes = bytes;
            self.queue(id);
        }
    }

    pub(crate) fn credit(&self, id: ConsumerId) -> Option<(u32, u64)> {
        self.by_id.get(&id).map(|consumer| (consumer.joined.records, consumer.joined.bytes))
    }

    pub(crate) fn left(&self, id: ConsumerId) -> (u32, u64) {
        let consumer = self.by_id.get(&id);
        consumer.map_or((0, 0), |consumer| (consumer.records_left(), consumer.bytes_left()))
    }

    pub(crate) fn take_back(&mut self, id: ConsumerId, records: u32, bytes: u64) -> (u32, u64) {
        let Some(consumer) = self.by_id.get_mut(&id) else { return (0, 0) };
        let (records_left, bytes_left) = (consumer.records_left(), consumer.bytes_left());
        let joined = &mut consumer.joined;
        let records = if joined.records == u32::MAX { 0 } else { records.min(records_left) };
        let bytes = if joined.bytes == u64::MAX { 0 } else { bytes.min(bytes_left) };
        joined.records -= records;
        joined.bytes -= bytes;
        (records, bytes)
    }

    pub(crate) fn is_active(&self, id: ConsumerId) -> bool {
        !self.single_active || self.active == Some(id)
    }

    /// The reasons why a consumer cannot get a record of `bytes`.
    pub(crate) fn lack(&self, id: ConsumerId, bytes: u32, pools: &Pools) -> CreditShortage {
        let Some(consumer) = self.by_id.get(&id).filter(|_| self.may_take(id)) else {
            return CreditShortage::default();
        };
        CreditShortage {
            ready: true,
            records: consumer.records_left() == 0,
            bytes: consumer.bytes_left() == 0 || !consumer.fits(bytes),
            pool: !pools.has_room(consumer.joined.session),
        }
    }

    /// A lease that used credit has ended.
    pub(crate) fn give_back(&mut self, id: ConsumerId, bytes: u32) {
        if let Some(leaving) = self.leaving.as_mut().filter(|leaving| leaving.consumer == id) {
            leaving.held -= 1;
            if leaving.held == 0 {
                self.end_leaving();
            }
        }
        if let Some(consumer) = self.by_id.get_mut(&id) {
            consumer.held = consumer.held.saturating_sub(1);
            if consumer.joined.credit == Credit::Window {
                consumer.records_used = consumer.records_used.saturating_sub(1);
                consumer.bytes_used = consumer.bytes_used.saturating_sub(u64::from(bytes));
                if !consumer.queued {
                    self.queue(id);
                }
            }
            if self.draining {
                self.weigh();
            }
        }
    }

    fn queue(&mut self, id: ConsumerId) {
        let may_take = self.may_take(id);
        let Some(consumer) = self.by_id.get_mut(&id) else { return };
        if may_take && !consumer.queued && consumer.has_credit() {
            consumer.queued = true;
            self.queued += 1;
            let ring = self.rings.entry(Reverse(consumer.joined.priority)).or_default();
            ring.push_back(id);
        }
    }

    fn unqueue(&mut self, priority: Reverse<i32>, id: ConsumerId) {
        if let Some(ring) = self.rings.get_mut(&priority) {
            let before = ring.len();
            ring.retain(|&queued| queued != id);
            self.queued -= before - ring.len();
            if ring.is_empty() {
                self.rings.remove(&priority);
            }
        }
    }

    /// The consumer for a record of `bytes`, after its credit was used. Consumers before it that
    /// cannot take the record go to `skipped`.
    pub(crate) fn choose(
        &mut self,
        bytes: u32,
        pools: &Pools,
        skipped: &mut SkippedConsumers,
    ) -> Option<SelectedConsumer> {
        let only = self.only();
        for (&priority, ring) in &mut self.rings {
            while let Some(id) = ring.pop_front() {
                let Some(consumer) = self.by_id.get_mut(&id) else { continue };
                let may_take = only.is_none_or(|only| only == Some(id));
                if !may_take || !consumer.has_credit() {
                    consumer.queued = false;
                    self.queued -= 1;
                    continue;
                }
                if !consumer.fits(bytes) || !pools.has_room(consumer.joined.session) {
                    skipped.push((priority, id));
                    continue;
                }
                consumer.spend(bytes);
                if consumer.has_credit() {
                    ring.push_back(id);
                } else {
                    consumer.queued = false;
                    self.queued -= 1;
                }
                let PushConsumer { session, settle_on_send, lease_ms, .. } = consumer.joined;
                return Some(SelectedConsumer { consumer: id, session, settle_on_send, lease_ms });
            }
        }
        None
    }

    /// Number of records that the consumers with credit could take, at most `enough`.
    pub(crate) fn spare(&self, pools: &Pools, enough: u64) -> u64 {
        let mut spare = 0_u64;
        for id in self.rings.values().flatten() {
            let Some(consumer) = self.by_id.get(id) else { continue };
            if self.may_take(*id) && consumer.has_credit() {
                let of_session = pools.left(consumer.joined.session);
                spare += u64::from(consumer.records_left().min(of_session));
            }
            if spare >= enough {
                return enough;
            }
        }
        spare
    }

    /// Ends the turn: the consumers in `skipped` are first again.
    pub(crate) fn requeue(&mut self, skipped: &mut SkippedConsumers) {
        for (priority, id) in skipped.drain(..).rev() {
            self.rings.entry(priority).or_default().push_front(id);
        }
        // Frees rings of priorities without consumers.
        if self.queued == 0 && self.rings.len() > 1 {
            self.rings.clear();
        }
    }
}
