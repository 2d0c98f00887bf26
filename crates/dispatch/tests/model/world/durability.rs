//! What must become durable, and what a crash leaves of the rest.

use super::*;

impl World {
    /// Makes durable what came of it, as the machine would.
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

    pub(super) fn bury(&mut self, a: u16) {
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
    pub(super) fn crash(&mut self, drained: bool) {
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
                    start.settled.insert(offset, offset + 1);
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
}
