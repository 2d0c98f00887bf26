//! The naive model: every record with its state, and rules that inspect all of them.

use dispatch::{Assignment, ConsumerId, DeadReason, ScannedRecord, SessionId, Token};

#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum State {
    Idle,
    Leased {
        token: Token,
        session: SessionId,
        consumer: ConsumerId,
        deadline_ms: i64,
        pushed: bool,
    },
    Dead,
    /// Withheld for an entry that settles it with other changes.
    Ending,
    Settled,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    /// `None` = a hole from the start.
    pub(crate) stored: Option<ScannedRecord>,
    /// Removed by compaction or retention.
    pub(crate) gone: bool,
    pub(crate) state: State,
    pub(crate) attempts: u16,
    pub(crate) not_before_ms: i64,
    /// It was released, and counts as due since it was written.
    pub(crate) came_back: bool,
    /// It arrived while there were consumers: a waiting consumer may get it even if it expired
    /// since.
    pub(crate) awaited: bool,
    /// It was delivered and not settled since: its key waits for it.
    pub(crate) holds: bool,
    pub(crate) durably_settled: bool,
    pub(crate) durable_attempts: u16,
}

impl Record {
    pub(crate) fn new(stored: Option<ScannedRecord>) -> Self {
        Self {
            stored,
            gone: false,
            state: State::Idle,
            attempts: 0,
            not_before_ms: stored.map_or(i64::MIN, |it| it.due_ms),
            came_back: false,
            awaited: false,
            holds: false,
            durably_settled: false,
            durable_attempts: 0,
        }
    }

    pub(crate) fn settle(&mut self) {
        self.state = State::Settled;
        self.holds = false;
        self.attempts = 0;
    }

    /// State after a crash.
    pub(crate) fn crash(&mut self) {
        let state = if self.durably_settled { State::Settled } else { State::Idle };
        self.state = state;
        self.attempts = self.durable_attempts;
        self.awaited = false;
        self.holds = false;
        self.came_back = false;
        self.not_before_ms = self.stored.map_or(i64::MIN, |it| it.due_ms);
    }

    /// State after a seek.
    pub(crate) fn seek(&mut self, settled: bool) {
        self.durably_settled = settled;
        self.durable_attempts = 0;
        self.crash();
    }

    pub(crate) fn is_stored(&self) -> bool {
        self.stored.is_some() && !self.gone
    }

    /// It waits again, for at least this long.
    pub(crate) fn wait(&mut self, now_ms: i64, delay_ms: i64) {
        self.state = State::Idle;
        self.not_before_ms = now_ms + delay_ms;
        self.came_back = delay_ms == 0;
    }

    /// Whether it was released and waits.
    pub(crate) fn waits_after_lease(&self, now_ms: i64) -> bool {
        self.state == State::Idle
            && self.holds
            && self.not_before_ms > now_ms
            && !self.durably_settled
    }

    /// Sort key: its place, or, if scheduled, the second of its due time; and its age.
    fn order(&self, offset: usize) -> (i64, usize, i64) {
        let Some(stored) = self.stored else { return (0, offset, 0) };
        if stored.due_ms == i64::MIN {
            return (0, offset, stored.timestamp);
        }
        let since_ms = if self.came_back { stored.timestamp } else { stored.due_ms };
        let second = since_ms.div_euclid(1_000);
        (second, offset, second * 1_000)
    }

    pub(crate) fn is_expired(&self, ttl_ms: Option<i64>, now_ms: i64) -> bool {
        let Some(stored) = self.stored else { return false };
        let by_policy = ttl_ms.is_some_and(|ttl_ms| stored.timestamp + ttl_ms <= now_ms);
        by_policy || stored.expires_ms <= now_ms
    }
}

/// The rules of a decision.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// 0 free, 1 key, 2 partition.
    pub(crate) ordering: u8,
    pub(crate) attempts_max: Option<u16>,
    pub(crate) record_ttl_ms: Option<i64>,
    pub(crate) priorities: u8,
    pub(crate) dead_letters: bool,
}

impl Rules {
    fn may_go(&self, record: &Record, now_ms: i64) -> bool {
        self.may_go_in_time(record, now_ms) && !record.is_expired(self.record_ttl_ms, now_ms)
    }

    /// Whether it would be deliverable if it had not expired.
    fn may_go_in_time(&self, record: &Record, now_ms: i64) -> bool {
        record.state == State::Idle
            && record.stored.is_some()
            && record.not_before_ms <= now_ms
            && self.attempts_max.is_none_or(|max| record.attempts < max)
    }

    fn rank(&self, record: &Record) -> u8 {
        let priority = record.stored.map_or(0, |it| it.priority);
        255 - priority.min(self.priorities)
    }

    /// Checks that it may be delivered.
    pub(crate) fn check(
        &self,
        log: &[Record],
        assignment: &Assignment,
        now_ms: i64,
        check_order: bool,
    ) {
        let record = &log[assignment.offset as usize];
        let prompt = record.awaited && record.attempts == 0;
        let may_go = if prompt { Self::may_go_in_time } else { Self::may_go };
        assert!(may_go(self, record, now_ms), "{assignment:?} at {now_ms}: {record:?}");
        assert_eq!(assignment.attempt, record.attempts + 1, "{assignment:?}: {record:?}");
        if !check_order || self.ordering == 0 {
            return;
        }
        let key = |record: &Record| record.stored.and_then(|it| it.key);
        if self.ordering == 1 && key(record).is_none() {
            return;
        }
        let together = |other: &Record| self.ordering == 2 || key(other) == key(record);
        for (offset, other) in log.iter().enumerate() {
            if offset as u64 == assignment.offset || !together(other) {
                continue;
            }
            // A record that died without a dead letter is reported by the next drain.
            let died = !self.dead_letters && self.may_die(other, None, now_ms);
            let ended = died || other.gone && other.state == State::Idle;
            assert!(
                !other.holds || ended,
                "{assignment:?} went while {offset} is under way: {other:?}"
            );
            let earlier = (offset as u64) < assignment.offset;
            let scheduled = other.stored.is_some_and(|it| it.due_ms > i64::MIN);
            let ready = self.may_go(other, now_ms) && !other.gone;
            assert!(!(earlier && ready && !scheduled), "{assignment:?} overtook {offset}");
        }
    }

    /// The expected next record if nothing is blocked and everything is known. An undeliverable
    /// record is discovered when its turn comes, and precedes the others until then. `prompt` is
    /// delivered even if it expired.
    pub(crate) fn next(
        &self,
        logs: &[Vec<Record>],
        now_ms: i64,
        prompt: Option<(u32, u64)>,
    ) -> Option<(u32, u64)> {
        let mut ended = Vec::new();
        loop {
            let (partition, offset) = self.best(logs, now_ms, &ended)?;
            let place = (partition as u32, offset as u64);
            if prompt == Some(place) || self.may_go(&logs[partition][offset], now_ms) {
                return Some(place);
            }
            ended.push((partition, offset));
        }
    }

    fn best(
        &self,
        logs: &[Vec<Record>],
        now_ms: i64,
        ended: &[(usize, usize)],
    ) -> Option<(usize, usize)> {
        let best_of = |(partition, log): (usize, &Vec<Record>)| {
            let waits = |(offset, it): &(usize, &Record)| {
                it.state == State::Idle
                    && it.is_stored()
                    && it.not_before_ms <= now_ms
                    && !ended.contains(&(partition, *offset))
            };
            let first = |scheduled: bool| {
                let of_kind = |(_, it): &(usize, &Record)| {
                    it.stored.is_some_and(|it| (it.due_ms > i64::MIN) == scheduled)
                };
                let waiting = log.iter().enumerate().filter(waits).filter(of_kind);
                let place = |(offset, it): &(usize, &Record)| (self.rank(it), it.order(*offset));
                let (offset, it) = waiting.min_by_key(place)?;
                Some(((self.rank(it), it.order(offset).2, partition), (partition, offset)))
            };
            // Unscheduled records precede scheduled ones of equal age.
            first(false).into_iter().chain(first(true)).min_by_key(|(order, _)| *order)
        };
        logs.iter().enumerate().filter_map(best_of).min().map(|(_, place)| place)
    }

    /// Whether the record's death is justified without a consumer's reject.
    pub(crate) fn may_die(&self, record: &Record, reason: Option<DeadReason>, now_ms: i64) -> bool {
        let expired = record.is_expired(self.record_ttl_ms, now_ms);
        let exhausted = self.attempts_max.is_some_and(|max| record.attempts >= max);
        record.state == State::Idle
            && match reason {
                Some(DeadReason::Expired) => expired,
                Some(DeadReason::Attempts) => exhausted,
                Some(DeadReason::Rejected) => false,
                None => expired || exhausted,
            }
    }
}
