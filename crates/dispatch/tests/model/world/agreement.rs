//! Compares engine and model for every record.

use super::*;

impl World {
    pub(super) fn look(&mut self, partition: usize, a: u16) {
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
                (RecordState::Settling, State::Ending) => true,
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

    pub(super) fn agree(&mut self) {
        let leased = self.leased();
        let listed = self.engine.leases(None, usize::MAX);
        let places =
            |it: &LeaseView| (it.partition as usize, it.offset as usize, it.token, it.session);
        assert_eq!(listed.iter().map(places).collect::<Vec<_>>(), leased);
        let counters = self.engine.counters();
        assert_eq!(counters.leased, leased.len() as u64);
        assert_eq!(counters.leased_bytes, self.held(|_, _, _| true).1);
        assert_eq!(counters.consumers as usize, self.consumers.len());
        // The engine's state is bounded.
        let bounds = self.bounds;
        let partitions = self.logs.len();
        assert!(leased.len() <= bounds.leased);
        assert!(counters.loaded as usize <= 2 * bounds.loaded_per_partition * partitions);
        let overshoot = 2 * bounds.loaded_per_partition * partitions + bounds.leased;
        assert!(counters.blocked as usize <= bounds.blocked + overshoot);
        assert!(counters.dead as usize <= bounds.dead + overshoot);
        assert!(counters.delayed <= bounds.delayed + overshoot as u64);
    }

    /// Consumers settle and time passes until every record has ended.
    pub(crate) fn run_to_completion(&mut self) {
        self.set_paused(false);
        for session in 0..3 {
            self.end_session(session);
        }
        for id in self.consumers.keys().copied().collect::<Vec<_>>() {
            self.engine.leave(id, self.now_ms, Leases::Release);
            self.gone(id);
        }
        let id = self.next_consumer;
        let joined = PushConsumer {
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
                let by_token = Selection::Lease { partition: partition as u32, token };
                let settled =
                    self.engine.settle(session, by_token, Settlement::Accept, self.now_ms);
                assert_eq!(settled, Ok(1));
                self.ended(partition, offset, Settlement::Accept);
            }
            self.dead_letter(3);
            self.conclude(4);
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
