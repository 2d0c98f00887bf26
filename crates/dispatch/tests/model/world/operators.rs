//! Operations of operators.

use super::*;

impl World {
    pub(super) fn set_paused(&mut self, paused: bool) {
        self.paused = paused;
        self.engine.set_paused(paused);
    }

    pub(super) fn change_policy(&mut self, a: u16, b: u16) {
        // So that records that died by the old policy are known.
        self.drain();
        match a % 6 {
            0 => {
                self.policy.attempts_max = (!b.is_multiple_of(3)).then_some(1 + b % 4);
                self.rules.attempts_max = self.policy.attempts_max;
            }
            1 => {
                self.policy.record_ttl_ms = (b.is_multiple_of(2)).then_some(i64::from(b % 4_000));
                self.rules.record_ttl_ms = self.policy.record_ttl_ms;
            }
            2 => self.policy.backoff_first_ms = i64::from(b % 100),
            3 => {
                let single_active = b.is_multiple_of(2);
                if single_active != self.policy.single_active {
                    self.policy.single_active = single_active;
                    (self.active, self.leaving) = (None, None);
                    self.choose_active();
                }
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

    pub(super) fn grow(&mut self) {
        if self.logs.len() < 5 {
            self.logs.push(Vec::new());
            self.log_starts.push(0);
            self.engine.grow(PartitionStart::default());
        }
    }

    pub(super) fn seek(&mut self, partition: usize, a: u16) {
        let end = self.logs[partition].len() as u64;
        let start = self.log_starts[partition];
        let floor = (u64::from(a) % (end + 1)).max(start);
        for (offset, record) in self.logs[partition].iter_mut().enumerate() {
            record.seek((offset as u64) < floor);
        }
        self.letters.retain(|letter| letter.partition != partition as u32);
        self.held.retain(|held| held.0 != partition as u32);
        let from = PartitionStart { floor, log_start: start, end, ..PartitionStart::default() };
        self.engine.reset_partition(partition as u32, from);
    }

    pub(super) fn trim(&mut self, partition: usize, a: u16) {
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
        self.held.retain(|it| it.0 != partition as u32 || it.1 >= start);
        self.engine.trimmed(partition as u32, start);
    }

    pub(super) fn remove(&mut self, partition: usize, a: u16) {
        let log = &self.logs[partition];
        if log.is_empty() {
            return;
        }
        let offset = usize::from(a) % log.len();
        let passed = self.is_passed(partition, offset as u64);
        let record = &mut self.logs[partition][offset];
        let cancelled = a.is_multiple_of(3);
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
            // A record that died on its own and was not drained yet.
            (State::Idle, Err(RemoveRefused::Busy { .. })) => {}
            (State::Leased { .. } | State::Dead | State::Ending, Err(_)) => {}
            (state, removed) => panic!("{removed:?} of a record that is {state:?}"),
        }
    }

    pub(super) fn purge(&mut self) {
        // So that dead records are known.
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
}
