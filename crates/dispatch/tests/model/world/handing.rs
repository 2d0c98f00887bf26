//! Delivery: the engine may deliver only eligible records.

use super::*;

impl World {
    pub(super) fn dispatch(&mut self) {
        let exact = self.is_exact();
        if exact {
            self.tick();
            self.read_all();
            // So that records that died while they were read are known.
            self.drain();
        }
        let mut out = Vec::new();
        self.engine.dispatch(self.now_ms, &mut self.pools, &mut out);
        assert!(!self.paused || out.is_empty());
        for assignment in out {
            if exact {
                // Eligibility is checked below.
                let place = Some((assignment.partition, assignment.offset));
                assert_eq!(self.rules.next(&self.logs, self.now_ms, place), place);
            }
            self.pushed(assignment);
        }
        if exact && !self.paused && self.any_consumer_could_take() {
            assert_eq!(self.rules.next(&self.logs, self.now_ms, None), None, "left lying");
        }
    }

    /// Whether the model can determine the next record by inspecting all of them.
    pub(super) fn is_exact(&self) -> bool {
        self.rules.ordering == 0
            && self.bounds == Bounds::default()
            && !self.compacted
            && self.check_order
    }

    pub(super) fn pushed(&mut self, assignment: Assignment) {
        let consumer = self.consumers[&assignment.consumer];
        let PushConsumer { session, settle_on_send, credit, .. } = consumer.joined;
        assert_eq!(assignment.session, session);
        if self.policy.single_active {
            assert_eq!(self.active_now(), Some(assignment.consumer));
        }
        assert!(self.has_credit(assignment.consumer, self.bytes_of(&assignment)), "{assignment:?}");
        let endless = |joined: &PushConsumer| joined.bytes == u64::MAX;
        if self.consumers.values().all(|other| endless(&other.joined)) {
            for (id, other) in &self.consumers {
                let higher = other.joined.priority > consumer.joined.priority;
                let may = !self.policy.single_active || self.active_now() == Some(*id);
                assert!(!(higher && may && self.has_credit(*id, 1)), "{id} was passed over");
            }
        }
        if credit == Credit::Grants {
            let bytes = u64::from(self.bytes_of(&assignment));
            if let Some(consumer) = self.consumers.get_mut(&assignment.consumer) {
                let granted = &mut consumer.granted;
                *granted = (granted.0.saturating_sub(1), granted.1.saturating_sub(bytes));
            }
        }
        self.assigned(assignment, settle_on_send, consumer.joined.lease_ms, true);
    }

    pub(super) fn bytes_of(&self, assignment: &Assignment) -> u32 {
        let log = &self.logs[assignment.partition as usize];
        log[assignment.offset as usize].stored.map_or(0, |it| it.bytes)
    }

    pub(super) fn held(&self, of: impl Fn(SessionId, ConsumerId, bool) -> bool) -> (u64, u64) {
        let mut sum = (0, 0);
        for record in self.logs.iter().flatten() {
            if let State::Leased { session, consumer, pushed, .. } = record.state
                && of(session, consumer, pushed)
            {
                sum = (sum.0 + 1, sum.1 + record.stored.map_or(0, |it| u64::from(it.bytes)));
            }
        }
        sum
    }

    pub(super) fn has_credit(&self, id: ConsumerId, bytes: u32) -> bool {
        let Consumer { joined, granted } = self.consumers[&id];
        let held = self.held(|_, consumer, pushed| consumer == id && pushed);
        let fits = |left: u64| left > 0 && (u64::from(bytes) <= left || held.0 == 0);
        let own = match joined.credit {
            Credit::Grants => granted.0 > 0 && fits(granted.1),
            Credit::Window => {
                (joined.records == u32::MAX || held.0 < u64::from(joined.records))
                    && fits(joined.bytes.saturating_sub(held.1))
            }
        };
        let pooled = self.held(|session, _, pushed| session == joined.session && pushed);
        let limit = self.limits.get(&joined.session);
        own && limit.is_none_or(|limit| pooled.0 < u64::from(*limit))
    }

    pub(super) fn any_consumer_could_take(&self) -> bool {
        let leased = self.held(|_, _, _| true).0;
        leased < self.bounds.leased as u64
            && !(self.policy.single_active && self.active_waits())
            && self.consumers.keys().any(|&id| {
                let may = !self.policy.single_active || self.active_now() == Some(id);
                may && self.has_credit(id, 50)
            })
    }

    pub(super) fn take(&mut self, a: u16, b: u16) {
        let take = PullRequest {
            session: u64::from(a % 3),
            consumer: 0,
            records_max: u32::from(b % 6),
            bytes_max: u64::from(b / 6 % 120),
            settle_on_send: a.is_multiple_of(11),
            lease_ms: (a.is_multiple_of(4)).then_some(i64::from(b % 900)),
        };
        let mut out = Vec::new();
        self.engine.take(take, self.now_ms, &mut out);
        assert!(out.len() <= take.records_max as usize && (!self.paused || out.is_empty()));
        let bytes: u64 = out.iter().map(|it| u64::from(self.bytes_of(it))).sum();
        assert!(out.len() <= 1 || bytes <= take.bytes_max);
        for assignment in out {
            assert_eq!((assignment.session, assignment.consumer), (take.session, 0));
            self.assigned(assignment, take.settle_on_send, take.lease_ms, false);
        }
    }

    pub(super) fn assigned(
        &mut self,
        it: Assignment,
        settled: bool,
        lease_ms: Option<i64>,
        pushed: bool,
    ) {
        assert!(self.tokens.last().is_none_or(|last| *last < it.token), "a token came back");
        self.tokens.push(it.token);
        self.trace.push(it);
        let log = &mut self.logs[it.partition as usize];
        self.rules.check(log, &it, self.now_ms, self.check_order);
        let record = &mut log[it.offset as usize];
        if settled {
            record.settle();
            return;
        }
        let deadline_ms = match lease_ms.unwrap_or(LEASE_MS) {
            0 => i64::MAX,
            lease_ms => self.now_ms + lease_ms,
        };
        let Assignment { token, session, consumer, .. } = it;
        record.state = State::Leased { token, session, consumer, deadline_ms, pushed };
        record.holds = true;
    }
}
