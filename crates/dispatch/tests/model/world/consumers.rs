//! Consumers join, leave, and get credit.

use super::*;

impl World {
    pub(super) fn join(&mut self, a: u16, b: u16, c: u16) {
        let id = self.next_consumer;
        self.next_consumer += 1;
        let joined = PushConsumer {
            session: u64::from(a % 3),
            records: if b.is_multiple_of(5) { u32::MAX } else { u32::from(b % 7) },
            bytes: if !c.is_multiple_of(3) { u64::MAX } else { u64::from(c % 200) },
            credit: if a.is_multiple_of(5) { Credit::Grants } else { Credit::Window },
            priority: i32::from(c % 3) - 1,
            exclusive: a.is_multiple_of(23),
            settle_on_send: a.is_multiple_of(13),
            lease_ms: (b.is_multiple_of(3)).then_some(i64::from(b % 1_000)),
        };
        let exclusive = self.consumers.iter().find(|(_, it)| it.joined.exclusive);
        let expected = match exclusive {
            Some((&by, _)) => Err(JoinRefused::Exclusive { by }),
            None if joined.exclusive && !self.consumers.is_empty() => {
                Err(JoinRefused::InUse { consumers: self.consumers.len() })
            }
            None => Ok(()),
        };
        assert_eq!(self.engine.join(id, joined), expected);
        if expected.is_ok() {
            let endless =
                |records: u32| if records == u32::MAX { u64::MAX } else { records.into() };
            let granted = (endless(joined.records), joined.bytes);
            self.consumers.insert(id, Consumer { joined, granted });
        }
        self.choose_active();
    }

    pub(super) fn choose_active(&mut self) {
        if self.policy.single_active && self.active.is_none() {
            let next = self.consumers.iter().min_by_key(|(id, it)| (-it.joined.priority, **id));
            self.active = next.map(|(id, _)| *id);
        }
    }

    /// Whether the active consumer waits for the former one's records.
    pub(super) fn active_waits(&self) -> bool {
        let holds = |id| self.held(|_, consumer, pushed| consumer == id && pushed).0 > 0;
        self.leaving.is_some_and(|(id, until_ms)| self.now_ms < until_ms && holds(id))
    }

    pub(super) fn active_now(&self) -> Option<ConsumerId> {
        self.active
    }

    pub(super) fn pick_consumer(&self, a: u16) -> Option<ConsumerId> {
        self.consumers.keys().nth(usize::from(a) % self.consumers.len().max(1)).copied()
    }

    pub(super) fn gone(&mut self, id: ConsumerId) {
        self.consumers.remove(&id);
        if self.active == Some(id) {
            self.active = None;
        }
    }

    pub(super) fn leave(&mut self, a: u16, b: u16) {
        let Some(id) = self.pick_consumer(a) else { return };
        let leases = if b.is_multiple_of(2) { Leases::Keep } else { Leases::Release };
        self.engine.leave(id, self.now_ms, leases);
        let holds = self.held(|_, consumer, pushed| consumer == id && pushed).0 > 0;
        if self.active == Some(id) && leases == Leases::Keep && holds {
            self.leaving = Some((id, self.now_ms + 1_000));
        }
        self.gone(id);
        self.choose_active();
        if leases == Leases::Release {
            self.all_come_back(Some(0), |_, consumer, _| consumer == id);
        }
    }

    pub(super) fn end_session(&mut self, session: SessionId) {
        self.engine.end_session(session, self.now_ms);
        self.pools.remove(session);
        self.limits.remove(&session);
        let all = self.consumers.iter();
        let of = all.filter(|(_, it)| it.joined.session == session).map(|(id, _)| *id);
        for id in of.collect::<Vec<_>>() {
            self.gone(id);
        }
        self.choose_active();
        self.all_come_back(Some(0), |of, _, _| of == session);
    }

    pub(super) fn credit(&mut self, a: u16, b: u16, c: u16) {
        let Some(id) = self.pick_consumer(a) else { return };
        let Some(consumer) = self.consumers.get_mut(&id) else { return };
        let (records, bytes) = (u32::from(b % 5), u64::from(c % 100));
        let joined = &mut consumer.joined;
        if b.is_multiple_of(2) {
            self.engine.grant(id, records, bytes);
            joined.records = joined.records.saturating_add(records);
            joined.bytes = joined.bytes.saturating_add(bytes);
            let granted = &mut consumer.granted;
            let sum = granted.0.saturating_add(records.into());
            *granted = (sum, granted.1.saturating_add(bytes));
        } else {
            self.engine.set_credit(id, records, bytes);
            (joined.records, joined.bytes) = (records, bytes);
            consumer.granted = (records.into(), bytes);
        }
    }

    /// A pool is set while its session holds nothing, so that engine and model count the same.
    pub(super) fn limit(&mut self, a: u16, b: u16) {
        let session = u64::from(a % 3);
        if self.held(|of, _, pushed| of == session && pushed).0 > 0 {
            return;
        }
        // Ended leases still have to return their credit.
        self.engine.return_to(&mut self.pools);
        let records = (!b.is_multiple_of(3)).then_some(u32::from(b % 6));
        self.pools.set_limit(session, records);
        match records {
            Some(records) => self.limits.insert(session, records),
            None => self.limits.remove(&session),
        };
    }
}
