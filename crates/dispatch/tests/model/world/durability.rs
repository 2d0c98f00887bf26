//! Durable changes, and the state after a crash.

use super::*;

impl World {
    /// Makes the changes durable, as the machine would.
    pub(super) fn drain(&mut self) {
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

    pub(super) fn apply(&mut self, changes: &PartitionChanges) {
        let now_ms = self.now_ms;
        let log = &mut self.logs[changes.partition as usize];
        let mut before = None;
        for &(first, length) in &changes.settled {
            assert!(length > 0 && before.is_none_or(|end| end < first), "{changes:?}");
            before = Some(first + u64::from(length));
            for record in &mut log[first as usize..first as usize + length as usize] {
                if record.state != State::Settled {
                    // A hole, or a record that died without a dead letter.
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

    pub(super) fn dead_letter(&mut self, a: u16) {
        self.drain();
        let count = usize::from(a % 4).min(self.letters.len());
        for letter in self.letters.drain(..count).collect::<Vec<_>>() {
            let record = &self.logs[letter.partition as usize][letter.offset as usize];
            assert_eq!(record.state, State::Dead, "{letter:?}");
            self.is_in_the_log(letter.partition, letter.offset);
        }
    }

    /// The entry that settles the record with other changes is in the log.
    fn is_in_the_log(&mut self, partition: u32, offset: u64) {
        let record = &mut self.logs[partition as usize][offset as usize];
        record.settle();
        record.durably_settled = true;
        record.durable_attempts = 0;
        self.engine.ended(partition, offset);
    }

    /// Withholds a record for an entry that settles it with other changes.
    pub(super) fn hold(&mut self, a: u16) {
        let leased = self.leased();
        let Some(&(partition, offset, token, session)) =
            leased.get(usize::from(a) % leased.len().max(1))
        else {
            return;
        };
        let by_token = Selection::Lease { partition: partition as u32, token };
        let held = self.engine.withhold(session, by_token, self.now_ms).expect("it is leased");
        assert_eq!(held, [(partition as u32, offset as u64)]);
        self.logs[partition][offset].state = State::Ending;
        self.held.extend(held);
    }

    /// Entries complete, with or without effect.
    pub(super) fn conclude(&mut self, a: u16) {
        self.drain();
        let count = usize::from(a / 2 % 3).min(self.held.len());
        for (partition, offset) in self.held.drain(..count).collect::<Vec<_>>() {
            let record = &mut self.logs[partition as usize][offset as usize];
            assert_eq!(record.state, State::Ending);
            if a.is_multiple_of(2) {
                self.is_in_the_log(partition, offset);
            } else {
                record.wait(self.now_ms, 0);
                self.engine.give_back(partition, offset);
            }
        }
    }

    /// A new engine from the durable state. Changes that were not drained are lost.
    pub(super) fn crash(&mut self, drained: bool) {
        if drained {
            self.drain();
        }
        for record in self.logs.iter_mut().flatten() {
            record.crash();
        }
        self.rebuild_engine();
        self.pools = Pools::new();
        self.limits.clear();
        self.consumers.clear();
        (self.active, self.leaving) = (None, None);
    }

    /// The engine of the next term: the durable state, and the consumers with their leases. Some of
    /// the dead letters are in the log by then, and the others continue.
    pub(super) fn hand_over(&mut self, a: u16) {
        self.leaving = None;
        self.drain();
        self.dead_letter(a);
        while !self.held.is_empty() {
            self.conclude(4);
        }
        self.drain();
        let now_ms = self.now_ms;
        let mut waiting = 0;
        for record in self.logs.iter_mut().flatten() {
            let waits = record.waits_after_lease(now_ms).then_some(record.not_before_ms);
            if !matches!(record.state, State::Leased { .. } | State::Dead) {
                record.crash();
            }
            // Its back-off is transferred.
            if let Some(not_before_ms) = waits {
                (record.not_before_ms, record.holds) = (not_before_ms, true);
                waiting += usize::from(record.is_stored());
            }
        }
        let back_offs = self.engine.back_offs();
        assert!(back_offs.len() >= waiting, "{} of {waiting}", back_offs.len());
        let (joined, claims) = (self.engine.joined(), self.engine.claims());
        let (dead_letters, letters) =
            (self.engine.dead_letter_claims(), std::mem::take(&mut self.letters));
        let in_order = self.check_order;
        self.rebuild_engine();
        self.letters = letters;
        self.check_order = in_order;
        let mut records = self.logs.iter().flatten();
        self.compacted =
            records.any(|it| it.gone && matches!(it.state, State::Leased { .. } | State::Dead));
        self.pools = Pools::new();
        for (&session, &records) in &self.limits {
            self.pools.set_limit(session, Some(records));
        }
        for (consumer, joined) in joined {
            assert_eq!(self.engine.join(consumer, joined), Ok(()));
        }
        for claim in claims {
            assert!(self.engine.claim(claim, &mut self.pools));
            assert!(!self.engine.claim(claim, &mut self.pools), "it is leased");
        }
        assert_eq!(dead_letters.len(), self.letters.len());
        for claim in dead_letters {
            assert!(self.engine.claim_dead_letter(claim));
            assert!(!self.engine.claim_dead_letter(claim), "it is claimed already");
        }
        for back_off in back_offs {
            self.engine.back_off(back_off);
            assert!(!self.engine.back_off(back_off), "it waits");
        }
    }

    /// A new engine from the durable state.
    fn rebuild_engine(&mut self) {
        let mut starts = Vec::new();
        for (log, &log_start) in self.logs.iter().zip(&self.log_starts) {
            let mut start =
                PartitionStart { log_start, end: log.len() as u64, ..PartitionStart::default() };
            let unsettled = |record: &Record| !record.durably_settled;
            start.floor = log.iter().position(unsettled).unwrap_or(log.len()) as u64;
            for (offset, record) in (0_u64..).zip(log.iter()) {
                if offset >= start.floor && record.durably_settled {
                    start.settled.insert(offset, offset + 1);
                }
                if record.durable_attempts > 0 && !record.durably_settled {
                    start.attempts.push((offset, record.durable_attempts));
                }
            }
            starts.push(start);
        }
        let next = self.engine.next_token();
        self.engine =
            Dispatch::with_bounds(self.policy.clone(), Stripe::ALL, starts, next, self.bounds);
        self.engine.set_paused(self.paused);
        self.reads.clear();
        self.letters.clear();
        self.held.clear();
        // Nothing is in flight any more: order can be checked again.
        self.check_order = true;
        self.compacted = false;
    }
}
