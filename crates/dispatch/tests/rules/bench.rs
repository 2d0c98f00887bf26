//! A driver of one engine over a log that is a vector, to keep tests short.

use base::Stripe;
use dispatch::*;

pub(crate) struct Bench {
    pub(crate) engine: Dispatch,
    pub(crate) pools: Pools,
    pub(crate) logs: Vec<Vec<ScannedRecord>>,
    pub(crate) now_ms: i64,
    pub(crate) dead_lettered: Vec<DeadLetter>,
}

/// A typical record: no key, due at once, without expiry.
pub(crate) fn record() -> ScannedRecord {
    ScannedRecord {
        offset: 0,
        bytes: 10,
        value_bytes: 10,
        timestamp: 0,
        key: None,
        priority: 0,
        due_ms: i64::MIN,
        expires_ms: i64::MAX,
    }
}

pub(crate) fn keyed(key: u64) -> ScannedRecord {
    ScannedRecord { key: Some(key), ..record() }
}

/// A consumer with unlimited credit.
pub(crate) fn anything(session: SessionId) -> PushConsumer {
    PushConsumer {
        session,
        records: u32::MAX,
        bytes: u64::MAX,
        credit: Credit::Window,
        priority: 0,
        exclusive: false,
        settle_on_send: false,
        lease_ms: None,
    }
}

pub(crate) fn window(session: SessionId, records: u32) -> PushConsumer {
    PushConsumer { records, ..anything(session) }
}

impl Bench {
    /// One partition with these records.
    pub(crate) fn new(policy: Policy, records: impl IntoIterator<Item = ScannedRecord>) -> Self {
        Self::with_bounds(policy, Bounds::default(), vec![records.into_iter().collect()])
    }

    pub(crate) fn with_bounds(
        policy: Policy,
        bounds: Bounds,
        logs: Vec<Vec<ScannedRecord>>,
    ) -> Self {
        let starts = vec![PartitionStart::default(); logs.len()];
        let mut bench = Self {
            engine: Dispatch::with_bounds(policy, Stripe::ALL, starts, 1, bounds),
            pools: Pools::new(),
            logs: vec![Vec::new(); logs.len()],
            now_ms: 1_000,
            dead_lettered: Vec::new(),
        };
        for (partition, records) in logs.into_iter().enumerate() {
            bench.append(partition as u32, records);
        }
        bench
    }

    pub(crate) fn append(
        &mut self,
        partition: u32,
        records: impl IntoIterator<Item = ScannedRecord>,
    ) {
        let log = &mut self.logs[partition as usize];
        for record in records {
            log.push(ScannedRecord { offset: log.len() as u64, ..record });
        }
        self.engine.extended(partition, log.len() as u64);
    }

    pub(crate) fn join(&mut self, consumer: ConsumerId, joined: PushConsumer) {
        assert_eq!(self.engine.join(consumer, joined), Ok(()));
    }

    /// Performs all wanted reads; returns their number.
    pub(crate) fn read(&mut self) -> usize {
        let mut reads = 0;
        while let Some(ReadRange { partition, from, up_to, .. }) = self.engine.wants() {
            let log = &self.logs[partition as usize];
            let records = log[from as usize..up_to as usize].iter().copied();
            self.engine.scanned(partition, from, up_to, records, self.now_ms);
            reads += 1;
            assert!(reads < 100_000, "it wants without end");
        }
        reads
    }

    pub(crate) fn assign(&mut self) -> Vec<Assignment> {
        self.read();
        let mut out = Vec::new();
        self.engine.dispatch(self.now_ms, &mut self.pools, &mut out);
        out
    }

    /// Offsets delivered now.
    pub(crate) fn offsets(&mut self) -> Vec<u64> {
        self.assign().iter().map(|it| it.offset).collect()
    }

    /// Assignments of a pull by one session.
    pub(crate) fn take(&mut self, session: SessionId, records_max: u32) -> Vec<Assignment> {
        let take = PullRequest {
            session,
            consumer: 0,
            records_max,
            bytes_max: u64::MAX,
            settle_on_send: false,
            lease_ms: None,
        };
        let mut out = Vec::new();
        for _ in 0..2 {
            let left = records_max - out.len() as u32;
            self.engine.take(PullRequest { records_max: left, ..take }, self.now_ms, &mut out);
            self.read();
        }
        out
    }

    pub(crate) fn settle(&mut self, lease: &Assignment, settlement: Settlement) {
        let by_token = lease.selection();
        let settled = self.engine.settle(lease.session, by_token, settlement, self.now_ms);
        assert_eq!(settled, Ok(1));
    }

    pub(crate) fn accept(&mut self, lease: &Assignment) {
        self.settle(lease, Settlement::Accept);
    }

    pub(crate) fn release(&mut self, lease: &Assignment) {
        self.settle(lease, Settlement::Release { delay_ms: None, count: true });
    }

    pub(crate) fn pass(&mut self, by_ms: i64) {
        self.now_ms += by_ms;
        let mut ticks = 0;
        while self.engine.next_deadline().is_some_and(|due| due <= self.now_ms) {
            self.engine.tick(self.now_ms);
            ticks += 1;
            assert!(ticks < 100_000, "it ticks without end");
        }
    }

    pub(crate) fn drain(&mut self) -> Changes {
        let mut changes = Changes::default();
        self.engine.drain(&mut changes);
        changes
    }

    /// Completes dead letters; returns offset and reason of each.
    pub(crate) fn dead_letter(&mut self) -> Vec<(u64, DeadReason)> {
        let dead = self.drain().dead;
        for letter in &dead {
            self.engine.ended(letter.partition, letter.offset);
        }
        self.dead_lettered.extend(&dead);
        dead.iter().map(|it| (it.offset, it.reason)).collect()
    }
}
