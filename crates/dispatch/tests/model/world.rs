//! A driver, its consumers and its crashes, in random order.

use std::collections::{BTreeMap, VecDeque};

use dispatch::*;

use crate::model::{Record, Rules, State};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) ordering: u8,
    pub(crate) single_active: bool,
    pub(crate) attempts_max: Option<u16>,
    pub(crate) backoff_first_ms: i64,
    pub(crate) record_ttl_ms: Option<i64>,
    pub(crate) priorities: u8,
    pub(crate) dead_letters: bool,
    pub(crate) unattended: bool,
    /// Bounds so small that they are reached.
    pub(crate) tight: bool,
    pub(crate) partitions: usize,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) kind: u8,
    pub(crate) a: u16,
    pub(crate) b: u16,
    pub(crate) c: u16,
}

#[derive(Clone, Copy, Debug)]
struct Consumer {
    joined: Joined,
    /// What is left of its grants.
    granted: (u64, u64),
}

const LEASE_MS: i64 = 500;
const BACKOFF_MAX_MS: i64 = 1_000;

pub(crate) struct World {
    policy: Policy,
    rules: Rules,
    bounds: Bounds,
    engine: Dispatch,
    pools: Pools,
    limits: BTreeMap<SessionId, u32>,
    logs: Vec<Vec<Record>>,
    log_starts: Vec<u64>,
    now_ms: i64,
    consumers: BTreeMap<ConsumerId, Consumer>,
    active: Option<ConsumerId>,
    next_consumer: ConsumerId,
    tokens: Vec<Token>,
    reads: VecDeque<Want>,
    letters: Vec<DeadLetter>,
    paused: bool,
    /// The order within keys was not changed while something was under way.
    check_order: bool,
    /// Compaction took records that the engine may know.
    compacted: bool,
    pub(crate) trace: Vec<Assignment>,
}

impl World {
    pub(crate) fn new(setup: Setup) -> Self {
        let ordering = [Ordering::Free, Ordering::Key, Ordering::Partition];
        let policy = Policy {
            ordering: ordering[usize::from(setup.ordering)],
            single_active: setup.single_active,
            lease_ms: Some(LEASE_MS),
            attempts_max: setup.attempts_max,
            backoff_first_ms: setup.backoff_first_ms,
            backoff_max_ms: BACKOFF_MAX_MS,
            record_ttl_ms: setup.record_ttl_ms,
            priorities: setup.priorities,
            dead_letters: setup.dead_letters,
            expire_unattended: setup.unattended,
        };
        let rules = Rules {
            ordering: setup.ordering,
            attempts_max: setup.attempts_max,
            record_ttl_ms: setup.record_ttl_ms,
            priorities: if setup.ordering == 0 { setup.priorities } else { 0 },
            dead_letters: setup.dead_letters,
        };
        let bounds = match setup.tight {
            false => Bounds::default(),
            true => Bounds {
                loaded_per_partition: 5,
                loaded: 12,
                ranges_per_partition: 4,
                blocked: 3,
                delayed: 6,
                dead: 2,
                leased: 9,
                timers_per_tick: 2,
            },
        };
        let starts = vec![PartitionStart::default(); setup.partitions];
        Self {
            engine: Dispatch::with_bounds(policy.clone(), starts, 1, bounds),
            policy,
            rules,
            bounds,
            pools: Pools::new(),
            limits: BTreeMap::new(),
            logs: vec![Vec::new(); setup.partitions],
            log_starts: vec![0; setup.partitions],
            now_ms: 10_000,
            consumers: BTreeMap::new(),
            active: None,
            next_consumer: 1,
            tokens: Vec::new(),
            reads: VecDeque::new(),
            letters: Vec::new(),
            paused: false,
            check_order: true,
            compacted: false,
            trace: Vec::new(),
        }
    }

    pub(crate) fn step(&mut self, step: Step) {
        let Step { kind, a, b, c } = step;
        let partition = usize::from(c) % self.logs.len();
        match kind {
            0..=17 => self.append(partition, a, b),
            18..=27 => self.read(usize::from(a % 5), b),
            28..=43 => self.dispatch(),
            44..=49 => self.take(a, b),
            50..=67 => self.settle(a, b, c),
            68..=72 => self.pass(i64::from(a % 700)),
            73..=76 => self.join(a, b, c),
            77 => self.leave(a, b),
            78..=79 => self.end_session(u64::from(a % 3)),
            80..=83 => self.drain(),
            84..=85 => self.bury(a),
            86..=87 => self.credit(a, b, c),
            88 => self.seek(partition, a),
            89 => self.trim(partition, a),
            90 => self.crash(a % 2 == 0),
            91 => self.compact(partition, a),
            92 => self.remove(partition, a),
            93 => self.purge(),
            94 => self.set_paused(a % 3 == 0),
            95 => self.change_policy(a, b),
            96 => self.grow(),
            97 => self.limit(a, b),
            98 => self.fail_read(),
            _ => self.look(partition, a),
        }
        self.agree();
    }

    // ------------------------------------------------------------------------------------ log

    fn append(&mut self, partition: usize, a: u16, b: u16) {
        for number in 0..u64::from(a % 7) {
            let log = &mut self.logs[partition];
            let bits = (u64::from(a) << 16 | u64::from(b)).wrapping_mul(0x9E37_79B9 + number) >> 7;
            let pick = |shift: u32, of: u64| (bits >> shift) % of;
            let record = Scanned {
                offset: log.len() as u64,
                bytes: 1 + pick(0, 50) as u32,
                timestamp: self.now_ms - pick(3, 40) as i64,
                key: (pick(6, 5) > 0).then(|| 1 + pick(9, 4)),
                priority: pick(12, 5) as u8,
                due_ms: match pick(15, 6) {
                    0 => self.now_ms + pick(18, 2_000) as i64,
                    _ => i64::MIN,
                },
                expires_ms: match pick(21, 8) {
                    0 => self.now_ms + pick(23, 3_000) as i64,
                    _ => i64::MAX,
                },
            };
            log.push(Record::new((pick(26, 9) > 0).then_some(record)));
        }
        self.engine.extended(partition as u32, self.logs[partition].len() as u64);
    }

    /// Asks for reads; answers those that are under way but for the last few.
    fn read(&mut self, leave: usize, b: u16) {
        while let Some(want) = self.engine.wants() {
            let end = self.logs[want.partition as usize].len() as u64;
            assert!(want.from < want.up_to && want.up_to <= end, "{want:?} of {end}");
            self.reads.push_back(want);
            if self.reads.len() > 8 {
                break;
            }
        }
        while self.reads.len() > leave {
            let Some(want) = self.reads.pop_front() else { break };
            self.answer(want, b);
        }
    }

    fn answer(&mut self, want: Want, b: u16) {
        let log = &self.logs[want.partition as usize];
        // A reader stops where it likes, and may go beyond.
        let up_to = match b % 3 {
            0 => want.up_to,
            1 => (want.from + 1 + u64::from(b / 3 % 9)).min(log.len() as u64),
            _ => (want.up_to + u64::from(b / 3 % 9)).min(log.len() as u64),
        };
        let start = self.log_starts[want.partition as usize];
        let stored = log.iter().filter(|it| it.is_stored()).filter_map(|it| it.stored);
        let within = |it: &Scanned| (want.from.max(start)..up_to).contains(&it.offset);
        let records: Vec<Scanned> = stored.filter(within).collect();
        self.engine.scanned(want.partition, want.from, up_to, records, self.now_ms);
    }

    fn read_all(&mut self) {
        for _ in 0..10_000 {
            self.read(0, 0);
            match self.engine.wants() {
                Some(want) => self.reads.push_back(want),
                None => return,
            }
        }
        panic!("the engine wants without end");
    }

    fn fail_read(&mut self) {
        if let Some(want) = self.reads.pop_front() {
            self.engine.scan_failed(want.partition);
        }
    }

    fn compact(&mut self, partition: usize, a: u16) {
        let log = &mut self.logs[partition];
        for record in log.iter_mut().skip(usize::from(a % 5)).step_by(4) {
            record.gone |= record.state == State::Idle;
        }
        self.compacted = true;
    }

    // --------------------------------------------------------------------------------- handing out

    fn dispatch(&mut self) {
        let exact = self.is_exact();
        if exact {
            self.tick();
            self.read_all();
            // So that we know who died as it was read.
            self.drain();
        }
        let mut out = Vec::new();
        self.engine.dispatch(self.now_ms, &mut self.pools, &mut out);
        assert!(!self.paused || out.is_empty());
        for assignment in out {
            if exact {
                let next = self.rules.next(&self.logs, self.now_ms);
                assert_eq!(next, Some((assignment.partition, assignment.offset)));
            }
            self.pushed(assignment);
        }
        if exact && !self.paused && self.someone_could_take() {
            assert_eq!(self.rules.next(&self.logs, self.now_ms), None, "left lying");
        }
    }

    /// Whether the next record can be told by looking at all of them.
    fn is_exact(&self) -> bool {
        self.rules.ordering == 0
            && self.bounds == Bounds::default()
            && !self.compacted
            && self.check_order
    }

    fn pushed(&mut self, assignment: Assignment) {
        let consumer = self.consumers[&assignment.consumer];
        let Joined { session, settle_on_send, credit, .. } = consumer.joined;
        assert_eq!(assignment.session, session);
        if self.policy.single_active {
            assert_eq!(self.active_now(), Some(assignment.consumer));
        }
        assert!(self.has_credit(assignment.consumer, self.bytes_of(&assignment)), "{assignment:?}");
        let endless = |joined: &Joined| joined.bytes == u64::MAX;
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

    fn bytes_of(&self, assignment: &Assignment) -> u32 {
        let log = &self.logs[assignment.partition as usize];
        log[assignment.offset as usize].stored.map_or(0, |it| it.bytes)
    }

    fn held(&self, of: impl Fn(SessionId, ConsumerId, bool) -> bool) -> (u64, u64) {
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

    fn has_credit(&self, id: ConsumerId, bytes: u32) -> bool {
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

    fn someone_could_take(&self) -> bool {
        let leased = self.held(|_, _, _| true).0;
        leased < self.bounds.leased as u64
            && self.consumers.keys().any(|&id| {
                let may = !self.policy.single_active || self.active_now() == Some(id);
                may && self.has_credit(id, 50)
            })
    }

    fn take(&mut self, a: u16, b: u16) {
        let take = Take {
            session: u64::from(a % 3),
            consumer: 0,
            records_max: u32::from(b % 6),
            bytes_max: u64::from(b / 6 % 120),
            settle_on_send: a % 11 == 0,
            lease_ms: (a % 4 == 0).then_some(i64::from(b % 900)),
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

    fn assigned(&mut self, it: Assignment, settled: bool, lease_ms: Option<i64>, pushed: bool) {
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

    // ------------------------------------------------------------------------------------ ending

    fn leased(&self) -> Vec<(usize, usize, Token, SessionId)> {
        let mut all = Vec::new();
        for (partition, log) in self.logs.iter().enumerate() {
            for (offset, record) in log.iter().enumerate() {
                if let State::Leased { token, session, .. } = record.state {
                    all.push((partition, offset, token, session));
                }
            }
        }
        all
    }

    fn settle(&mut self, a: u16, b: u16, c: u16) {
        let leased = self.leased();
        let settlement = match b % 10 {
            0..=4 => Settlement::Accept,
            5 => Settlement::Reject,
            6 => Settlement::Release { delay_ms: Some(i64::from(b / 10 % 300)), count: true },
            7 => Settlement::Release { delay_ms: None, count: true },
            8 => Settlement::Release { delay_ms: None, count: false },
            _ => Settlement::Renew { lease_ms: Some(i64::from(b / 10 % 800)) },
        };
        let Some(&(partition, offset, token, holder)) =
            leased.get(usize::from(a) % leased.len().max(1))
        else {
            return self.settle_nothing(a, settlement);
        };
        // Now and then somebody else tries.
        let session = if c % 9 == 0 { 99 } else { holder };
        let (last, width) = (offset as u64, u64::from(c % 4));
        let first = last.saturating_sub(width);
        let index = partition as u32;
        let (selection, expected) = match c % 5 {
            0 => {
                let expected = self.range(partition, first, last, session);
                (Selection::Range { partition: index, first, last }, expected)
            }
            1 => {
                let of = leased.iter().filter(|it| it.0 == partition && it.1 <= offset);
                let own: Vec<_> = of.filter(|it| it.3 == session).map(|it| (it.0, it.1)).collect();
                let selection = Selection::UpTo { partition: index, last };
                (selection, (!own.is_empty()).then_some(own))
            }
            _ => {
                let own = session == holder;
                (Selection::Token(token), own.then(|| vec![(partition, offset)]))
            }
        };
        let settled = self.engine.settle(session, selection, settlement, self.now_ms);
        let count = expected.as_ref().map(|all| all.len() as u32);
        assert_eq!(settled.ok(), count, "{selection:?} by {session}");
        for (partition, offset) in expected.into_iter().flatten() {
            self.ended(partition, offset, settlement);
        }
    }

    fn settle_nothing(&mut self, a: u16, settlement: Settlement) {
        if let Some(&token) = self.tokens.get(usize::from(a) % self.tokens.len().max(1)) {
            let stale = Err(SettleRefused::Stale { token });
            let by_token = Selection::Token(token);
            assert_eq!(self.engine.settle(0, by_token, settlement, self.now_ms), stale);
        }
    }

    fn range(
        &self,
        partition: usize,
        first: u64,
        last: u64,
        by: SessionId,
    ) -> Option<Vec<(usize, usize)>> {
        let mut own = Vec::new();
        for offset in first..=last {
            let record = &self.logs[partition][offset as usize];
            match record.state {
                State::Leased { session, .. } if session == by => {
                    own.push((partition, offset as usize));
                }
                State::Settled => {}
                // A hole is settled once it was read.
                State::Idle if self.is_passed(partition, offset) => {}
                _ => return None,
            }
        }
        (!own.is_empty()).then_some(own)
    }

    fn is_passed(&self, partition: usize, offset: u64) -> bool {
        let peeked = self.engine.peek(partition as u32, offset, 1);
        peeked.first().is_none_or(|first| first.offset != offset)
    }

    fn ended(&mut self, partition: usize, offset: usize, settlement: Settlement) {
        let now_ms = self.now_ms;
        let record = &mut self.logs[partition][offset];
        match settlement {
            Settlement::Accept => record.settle(),
            Settlement::Reject => {
                record.attempts += 1;
                self.died(partition, offset);
            }
            Settlement::Release { delay_ms, count: false } => {
                record.state = State::Idle;
                record.not_before_ms = now_ms + delay_ms.unwrap_or(0);
            }
            Settlement::Release { delay_ms, count: true } => {
                self.came_back(partition, offset, delay_ms);
            }
            Settlement::Renew { lease_ms } => {
                if let State::Leased { deadline_ms, .. } = &mut record.state {
                    *deadline_ms = match lease_ms {
                        Some(0) => i64::MAX,
                        lease_ms => now_ms + lease_ms.unwrap_or(LEASE_MS),
                    };
                }
            }
        }
    }

    fn died(&mut self, partition: usize, offset: usize) {
        let record = &mut self.logs[partition][offset];
        if self.policy.dead_letters {
            record.state = State::Dead;
        } else {
            record.settle();
        }
    }

    fn came_back(&mut self, partition: usize, offset: usize, delay_ms: Option<i64>) {
        let record = &mut self.logs[partition][offset];
        record.attempts += 1;
        if self.rules.attempts_max.is_some_and(|max| record.attempts >= max) {
            return self.died(partition, offset);
        }
        let mut backoff_ms = self.policy.backoff_first_ms;
        for _ in 1..record.attempts {
            backoff_ms = (backoff_ms * 2).min(BACKOFF_MAX_MS);
        }
        record.state = State::Idle;
        record.not_before_ms = self.now_ms + delay_ms.unwrap_or(backoff_ms);
    }

    fn all_come_back(
        &mut self,
        delay_ms: Option<i64>,
        which: impl Fn(SessionId, ConsumerId, i64) -> bool,
    ) {
        for partition in 0..self.logs.len() {
            for offset in 0..self.logs[partition].len() {
                let state = self.logs[partition][offset].state;
                if let State::Leased { session, consumer, deadline_ms, .. } = state
                    && which(session, consumer, deadline_ms)
                {
                    self.came_back(partition, offset, delay_ms);
                }
            }
        }
    }

    fn pass(&mut self, by_ms: i64) {
        self.now_ms += by_ms;
        self.tick();
    }

    fn tick(&mut self) {
        let mut ticks = 0;
        while self.engine.next_deadline().is_some_and(|due| due <= self.now_ms) {
            // While no more may die an expired head asks again, a second later.
            self.engine.tick(self.now_ms);
            ticks += 1;
            assert!(ticks < 10_000, "the engine ticks without end");
        }
        let now_ms = self.now_ms;
        self.all_come_back(None, |_, _, deadline_ms| deadline_ms <= now_ms);
    }

    // --------------------------------------------------------------------------------- consumers

    fn join(&mut self, a: u16, b: u16, c: u16) {
        let id = self.next_consumer;
        self.next_consumer += 1;
        let joined = Joined {
            session: u64::from(a % 3),
            records: if b % 5 == 0 { u32::MAX } else { u32::from(b % 7) },
            bytes: if c % 3 > 0 { u64::MAX } else { u64::from(c % 200) },
            credit: if a % 5 == 0 { Credit::Grants } else { Credit::Window },
            priority: i32::from(c % 3) - 1,
            exclusive: a % 23 == 0,
            settle_on_send: a % 13 == 0,
            lease_ms: (b % 3 == 0).then_some(i64::from(b % 1_000)),
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

    fn choose_active(&mut self) {
        if self.policy.single_active && self.active.is_none() {
            let next = self.consumers.iter().min_by_key(|(id, it)| (-it.joined.priority, **id));
            self.active = next.map(|(id, _)| *id);
        }
    }

    fn active_now(&self) -> Option<ConsumerId> {
        self.active
    }

    fn pick_consumer(&self, a: u16) -> Option<ConsumerId> {
        self.consumers.keys().nth(usize::from(a) % self.consumers.len().max(1)).copied()
    }

    fn gone(&mut self, id: ConsumerId) {
        self.consumers.remove(&id);
        if self.active == Some(id) {
            self.active = None;
        }
    }

    fn leave(&mut self, a: u16, b: u16) {
        let Some(id) = self.pick_consumer(a) else { return };
        let leases = if b % 2 == 0 { Leases::Keep } else { Leases::Release };
        self.engine.leave(id, self.now_ms, leases);
        self.gone(id);
        self.choose_active();
        if leases == Leases::Release {
            self.all_come_back(Some(0), |_, consumer, _| consumer == id);
        }
    }

    fn end_session(&mut self, session: SessionId) {
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

    fn credit(&mut self, a: u16, b: u16, c: u16) {
        let Some(id) = self.pick_consumer(a) else { return };
        let Some(consumer) = self.consumers.get_mut(&id) else { return };
        let (records, bytes) = (u32::from(b % 5), u64::from(c % 100));
        let joined = &mut consumer.joined;
        if b % 2 == 0 {
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

    /// A pool is set while nothing of its session is under way, so that both count the same.
    fn limit(&mut self, a: u16, b: u16) {
        let session = u64::from(a % 3);
        if self.held(|of, _, pushed| of == session && pushed).0 > 0 {
            return;
        }
        // What ended since is still to be given back.
        self.engine.return_to(&mut self.pools);
        let records = (b % 3 > 0).then_some(u32::from(b % 6));
        self.pools.set_limit(session, records);
        match records {
            Some(records) => self.limits.insert(session, records),
            None => self.limits.remove(&session),
        };
    }

    // --------------------------------------------------------------------------------- operators

    fn set_paused(&mut self, paused: bool) {
        self.paused = paused;
        self.engine.set_paused(paused);
    }

    fn change_policy(&mut self, a: u16, b: u16) {
        // So that we know who died by the old one.
        self.drain();
        match a % 6 {
            0 => {
                self.policy.attempts_max = (b % 3 > 0).then_some(1 + b % 4);
                self.rules.attempts_max = self.policy.attempts_max;
            }
            1 => {
                self.policy.record_ttl_ms = (b % 2 == 0).then_some(i64::from(b % 4_000));
                self.rules.record_ttl_ms = self.policy.record_ttl_ms;
            }
            2 => self.policy.backoff_first_ms = i64::from(b % 100),
            3 => {
                self.policy.single_active = b % 2 == 0;
                if !self.policy.single_active {
                    self.active = None;
                }
                self.choose_active();
            }
            4 => {
                self.policy.priorities = [0, 2, 255][usize::from(b % 3)];
                self.rules.priorities =
                    if self.rules.ordering == 0 { self.policy.priorities } else { 0 };
            }
            _ => {
                let ordering = b % 3;
                self.check_order &= ordering == u16::from(self.rules.ordering);
                self.rules.ordering = ordering as u8;
                let all = [Ordering::Free, Ordering::Key, Ordering::Partition];
                self.policy.ordering = all[usize::from(ordering)];
                self.rules.priorities = if ordering == 0 { self.policy.priorities } else { 0 };
            }
        }
        self.engine.set_policy(self.policy.clone());
    }

    fn grow(&mut self) {
        if self.logs.len() < 5 {
            self.logs.push(Vec::new());
            self.log_starts.push(0);
            self.engine.grow(PartitionStart::default());
        }
    }

    fn seek(&mut self, partition: usize, a: u16) {
        let end = self.logs[partition].len() as u64;
        let start = self.log_starts[partition];
        let floor = (u64::from(a) % (end + 1)).max(start);
        for (offset, record) in self.logs[partition].iter_mut().enumerate() {
            record.seek((offset as u64) < floor);
        }
        self.letters.retain(|letter| letter.partition != partition as u32);
        let from = PartitionStart { floor, log_start: start, end, ..PartitionStart::default() };
        self.engine.reset_partition(partition as u32, from);
    }

    fn trim(&mut self, partition: usize, a: u16) {
        let log = &mut self.logs[partition];
        let start = u64::from(a) % (log.len() as u64 / 2 + 1);
        if start <= self.log_starts[partition] {
            return;
        }
        self.log_starts[partition] = start;
        for record in &mut log[..start as usize] {
            record.settle();
            record.gone = true;
            record.durably_settled = true;
        }
        self.letters.retain(|it| it.partition != partition as u32 || it.offset >= start);
        self.engine.trimmed(partition as u32, start);
    }

    fn remove(&mut self, partition: usize, a: u16) {
        let log = &self.logs[partition];
        if log.is_empty() {
            return;
        }
        let offset = usize::from(a) % log.len();
        let passed = self.is_passed(partition, offset as u64);
        let record = &mut self.logs[partition][offset];
        let cancelled = a % 3 == 0;
        let index = partition as u32;
        let removed = match cancelled {
            true => self.engine.cancel_delayed(index, offset as u64),
            false => self.engine.remove(index, offset as u64),
        };
        match (record.state, removed) {
            (_, Err(RemoveRefused::Absent { .. })) => assert!(passed),
            (State::Idle, Ok(())) => {
                assert!(!passed && (!cancelled || record.not_before_ms > i64::MIN));
                record.settle();
            }
            (State::Idle, Err(RemoveRefused::NotDelayed { .. })) => {}
            // One that died on its own, of which we were not told yet.
            (State::Idle, Err(RemoveRefused::Busy { .. })) => {}
            (State::Leased { .. } | State::Dead, Err(_)) => {}
            (state, removed) => panic!("{removed:?} of a record that is {state:?}"),
        }
    }

    fn purge(&mut self) {
        // So that we know who died.
        self.drain();
        self.engine.purge();
        for record in self.logs.iter_mut().flatten() {
            if record.state == State::Idle {
                record.settle();
            }
        }
        let left = self.logs.iter().flatten().filter(|it| it.state != State::Settled).count();
        assert_eq!(self.engine.counters().depth, left as u64);
    }

    // ------------------------------------------------------------------------------- durability

    /// Makes durable what came of it, as the machine would.
    fn drain(&mut self) {
        let mut changes = Changes::default();
        self.engine.drain(&mut changes);
        assert!(!self.engine.has_changes());
        for letter in changes.dead {
            let record = &mut self.logs[letter.partition as usize][letter.offset as usize];
            if record.state != State::Dead {
                let may = self.rules.may_die(record, Some(letter.reason), self.now_ms);
                // The rules may have changed since it died.
                assert!(may || record.state == State::Idle, "{letter:?}: {record:?}");
                record.state = State::Dead;
            }
            assert_eq!(letter.attempts, record.attempts, "{letter:?}: {record:?}");
            self.letters.push(letter);
        }
        for changes in changes.partitions {
            self.apply(&changes);
        }
        for (partition, log) in self.logs.iter().enumerate() {
            for (offset, record) in log.iter().enumerate() {
                let settled = record.state == State::Settled;
                assert_eq!(record.durably_settled, settled, "{partition}/{offset}: {record:?}");
                let attempts =
                    if record.state == State::Dead { None } else { Some(record.attempts) };
                if let Some(attempts) = attempts.filter(|_| !settled) {
                    assert_eq!(record.durable_attempts, attempts, "{partition}/{offset}");
                }
            }
        }
        let left = self.logs.iter().flatten().filter(|it| it.state != State::Settled).count();
        assert_eq!(self.engine.counters().depth, left as u64);
    }

    fn apply(&mut self, changes: &PartitionChanges) {
        let now_ms = self.now_ms;
        let log = &mut self.logs[changes.partition as usize];
        let mut before = None;
        for &(first, length) in &changes.settled {
            assert!(length > 0 && before.is_none_or(|end| end < first), "{changes:?}");
            before = Some(first + u64::from(length));
            for record in &mut log[first as usize..first as usize + length as usize] {
                if record.state != State::Settled {
                    // A hole, or one that ended on its own.
                    let may = self.rules.may_die(record, None, now_ms);
                    let hole = !record.is_stored() && record.state == State::Idle;
                    assert!(hole || may && !self.policy.dead_letters, "{record:?}");
                    record.settle();
                }
                record.durably_settled = true;
                record.durable_attempts = 0;
            }
        }
        for &(offset, attempts) in &changes.attempts {
            let record = &mut log[offset as usize];
            assert!(!record.durably_settled);
            record.durable_attempts = attempts;
        }
    }

    fn bury(&mut self, a: u16) {
        self.drain();
        let count = usize::from(a % 4).min(self.letters.len());
        for letter in self.letters.drain(..count).collect::<Vec<_>>() {
            let record = &mut self.logs[letter.partition as usize][letter.offset as usize];
            assert_eq!(record.state, State::Dead, "{letter:?}");
            record.settle();
            self.engine.buried(letter.partition, letter.offset);
        }
    }

    /// A new engine out of what is durable. What was not drained is lost.
    fn crash(&mut self, drained: bool) {
        if drained {
            self.drain();
        }
        let mut starts = Vec::new();
        for (log, &log_start) in self.logs.iter_mut().zip(&self.log_starts) {
            let mut start =
                PartitionStart { log_start, end: log.len() as u64, ..PartitionStart::default() };
            let unsettled = |record: &Record| !record.durably_settled;
            start.floor = log.iter().position(unsettled).unwrap_or(log.len()) as u64;
            for (offset, record) in (0_u64..).zip(log.iter_mut()) {
                record.crash();
                if offset >= start.floor && record.durably_settled {
                    match start.settled.last_mut() {
                        Some(last) if last.1 == offset => last.1 += 1,
                        _ => start.settled.push((offset, offset + 1)),
                    }
                }
                if record.durable_attempts > 0 && !record.durably_settled {
                    start.attempts.push((offset, record.durable_attempts));
                }
            }
            starts.push(start);
        }
        let next = self.engine.next_token();
        self.engine = Dispatch::with_bounds(self.policy.clone(), starts, next, self.bounds);
        self.engine.set_paused(self.paused);
        self.pools = Pools::new();
        self.limits.clear();
        self.consumers.clear();
        self.active = None;
        self.reads.clear();
        self.letters.clear();
        // All that was under way is not: order may be looked at again.
        self.check_order = true;
        self.compacted = false;
    }

    // ------------------------------------------------------------------------------- agreement

    fn look(&mut self, partition: usize, a: u16) {
        self.drain();
        let from = u64::from(a % 8);
        for peeked in self.engine.peek(partition as u32, from, 20) {
            let record = &self.logs[partition][peeked.offset as usize];
            assert_eq!(
                peeked.attempts,
                record.attempts * u16::from(record.state != State::Dead)
                    + peeked.attempts * u16::from(record.state == State::Dead)
            );
            let agrees = match (peeked.state, record.state) {
                (
                    RecordState::Leased { token, expires_ms, .. },
                    State::Leased { token: of, deadline_ms, .. },
                ) => token == of && expires_ms == deadline_ms,
                (RecordState::Dead { .. }, State::Dead) => true,
                (RecordState::Delayed { due_ms }, State::Idle) => due_ms == record.not_before_ms,
                (RecordState::Blocked, State::Idle) => self.rules.ordering == 1,
                (RecordState::Ready, State::Idle) => true,
                _ => false,
            };
            assert!(agrees, "{peeked:?}: {record:?}");
        }
        let delayed = self.engine.delayed(None, 1_000);
        assert!(delayed.is_sorted());
        assert_eq!(delayed.len() as u64, self.engine.counters().delayed);
        if let Some(middle) = delayed.get(delayed.len() / 2) {
            let rest = self.engine.delayed(Some(*middle), 3);
            assert_eq!(
                rest,
                delayed[delayed.len() / 2 + 1..].iter().copied().take(3).collect::<Vec<_>>()
            );
        }
        for it in delayed {
            let record = &self.logs[it.partition as usize][it.offset as usize];
            assert_eq!((record.state, record.not_before_ms), (State::Idle, it.due_ms));
        }
    }

    fn agree(&mut self) {
        let leased = self.leased();
        let listed = self.engine.leases(None, usize::MAX);
        let places =
            |it: &LeaseView| (it.partition as usize, it.offset as usize, it.token, it.session);
        assert_eq!(listed.iter().map(places).collect::<Vec<_>>(), leased);
        let counters = self.engine.counters();
        assert_eq!(counters.leased, leased.len() as u64);
        assert_eq!(counters.leased_bytes, self.held(|_, _, _| true).1);
        assert_eq!(counters.consumers as usize, self.consumers.len());
        // What it may know is bounded.
        let bounds = self.bounds;
        let partitions = self.logs.len();
        assert!(leased.len() <= bounds.leased);
        assert!(counters.loaded as usize <= 2 * bounds.loaded_per_partition * partitions);
        let overshoot = 2 * bounds.loaded_per_partition * partitions + bounds.leased;
        assert!(counters.blocked as usize <= bounds.blocked + overshoot);
        assert!(counters.dead as usize <= bounds.dead + overshoot);
        assert!(counters.delayed <= bounds.delayed + overshoot as u64);
    }

    /// Consumers that work, time that passes: everything must come to its end.
    pub(crate) fn let_all_end(&mut self) {
        self.set_paused(false);
        for session in 0..3 {
            self.end_session(session);
        }
        for id in self.consumers.keys().copied().collect::<Vec<_>>() {
            self.engine.leave(id, self.now_ms, Leases::Release);
            self.gone(id);
        }
        let id = self.next_consumer;
        let joined = Joined {
            session: 7,
            records: 3,
            bytes: u64::MAX,
            credit: Credit::Window,
            priority: 0,
            exclusive: false,
            settle_on_send: false,
            lease_ms: None,
        };
        assert_eq!(self.engine.join(id, joined), Ok(()));
        self.consumers.insert(id, Consumer { joined, granted: (3, u64::MAX) });
        self.choose_active();
        let records = self.logs.iter().map(Vec::len).sum::<usize>();
        for _ in 0..200 + 6 * records {
            self.pass(60);
            self.read_all();
            self.dispatch();
            for (partition, offset, token, session) in self.leased() {
                let by_token = Selection::Token(token);
                let settled =
                    self.engine.settle(session, by_token, Settlement::Accept, self.now_ms);
                assert_eq!(settled, Ok(1));
                self.ended(partition, offset, Settlement::Accept);
            }
            self.bury(3);
            self.agree();
            if self.logs.iter().flatten().all(|record| record.state == State::Settled) {
                break;
            }
        }
        let counters = self.engine.counters();
        let left = self.logs.iter().flatten().find(|record| record.state != State::Settled);
        assert_eq!(left.map(|record| record.state), None, "{counters:?}");
        assert_eq!((counters.depth, counters.ready, counters.blocked), (0, 0, 0));
        assert_eq!((counters.leased, counters.delayed, counters.dead), (0, 0, 0));
        for (partition, log) in self.logs.iter().enumerate() {
            assert_eq!(self.engine.floor(partition as u32), Some(log.len() as u64));
        }
    }
}
