//! Ends of leases.

use super::*;

impl World {
    pub(super) fn leased(&self) -> Vec<(usize, usize, Token, SessionId)> {
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

    pub(super) fn settle(&mut self, a: u16, b: u16, c: u16) {
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
            return self.settle_stale_token(a, settlement);
        };
        // Occasionally another session tries.
        let session = if c.is_multiple_of(9) { 99 } else { holder };
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
                (
                    Selection::Lease { partition: index, token },
                    own.then(|| vec![(partition, offset)]),
                )
            }
        };
        let settled = self.engine.settle(session, selection, settlement, self.now_ms);
        let count = expected.as_ref().map(|all| all.len() as u32);
        assert_eq!(settled.ok(), count, "{selection:?} by {session}");
        for (partition, offset) in expected.into_iter().flatten() {
            self.ended(partition, offset, settlement);
        }
    }

    pub(super) fn settle_stale_token(&mut self, a: u16, settlement: Settlement) {
        if let Some(&token) = self.tokens.get(usize::from(a) % self.tokens.len().max(1)) {
            let stale = Err(SettleRefused::Stale { token });
            let by_token = Selection::Lease { partition: 0, token };
            assert_eq!(self.engine.settle(0, by_token, settlement, self.now_ms), stale);
        }
    }

    pub(super) fn range(
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

    pub(super) fn is_passed(&self, partition: usize, offset: u64) -> bool {
        let peeked = self.engine.peek(partition as u32, offset, 1);
        peeked.first().is_none_or(|first| first.offset != offset)
    }

    pub(super) fn ended(&mut self, partition: usize, offset: usize, settlement: Settlement) {
        let now_ms = self.now_ms;
        let record = &mut self.logs[partition][offset];
        match settlement {
            Settlement::Accept => record.settle(),
            Settlement::Reject => {
                record.attempts += 1;
                self.died(partition, offset);
            }
            Settlement::Release { delay_ms, count: false } => {
                record.wait(now_ms, delay_ms.unwrap_or(0));
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

    pub(super) fn died(&mut self, partition: usize, offset: usize) {
        let record = &mut self.logs[partition][offset];
        if self.policy.dead_letters {
            record.state = State::Dead;
        } else {
            record.settle();
        }
    }

    pub(super) fn came_back(&mut self, partition: usize, offset: usize, delay_ms: Option<i64>) {
        let record = &mut self.logs[partition][offset];
        record.attempts += 1;
        if self.rules.attempts_max.is_some_and(|max| record.attempts >= max) {
            return self.died(partition, offset);
        }
        let mut backoff_ms = self.policy.backoff_first_ms;
        for _ in 1..record.attempts {
            backoff_ms = (backoff_ms * 2).min(BACKOFF_MAX_MS);
        }
        record.wait(self.now_ms, delay_ms.unwrap_or(backoff_ms));
    }

    pub(super) fn all_come_back(
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

    pub(super) fn pass(&mut self, by_ms: i64) {
        self.now_ms += by_ms;
        self.tick();
    }

    pub(super) fn tick(&mut self) {
        let mut ticks = 0;
        while self.engine.next_deadline().is_some_and(|due| due <= self.now_ms) {
            // Without room for more dead letters, an expired head is checked again a second later.
            self.engine.tick(self.now_ms);
            ticks += 1;
            assert!(ticks < 10_000, "the engine ticks without end");
        }
        let now_ms = self.now_ms;
        self.all_come_back(None, |_, _, deadline_ms| deadline_ms <= now_ms);
    }
}
