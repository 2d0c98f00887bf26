//! Takes: who waits for records, and what they have so far.

use std::collections::VecDeque;

use base::{LeaseGroupId, Offset};
use dispatch::{Assignment, Dispatch, SessionId, Take, Within};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::error::TakeError;
use super::event::Delivery;
use super::handle::Message;
use super::options::TakeOptions;

/// A take that has something waits for so many reads at most.
const TAKE_ROUNDS_MAX: u32 = 4;

pub(super) type TakeReply = oneshot::Sender<Result<Vec<Delivery>, TakeError>>;

/// Somebody who waits for records to take.
#[derive(Debug)]
pub(super) struct Taker {
    pub(super) session: SessionId,
    pub(super) options: TakeOptions,
    /// What it has so far, while more is being read.
    pub(super) assigned: Vec<Assignment>,
    rounds: u32,
    /// Where records have priorities: what must be known first.
    known_to: Vec<Offset>,
    pub(super) deadline: Instant,
    pub(super) reply: TakeReply,
}

impl Taker {
    pub(super) fn new(
        session: SessionId,
        options: TakeOptions,
        known_to: Vec<Offset>,
        deadline: Instant,
        reply: TakeReply,
    ) -> Self {
        Self { session, options, assigned: Vec::new(), rounds: 0, known_to, deadline, reply }
    }

    /// Takes what is ready now; whether it has all that it asked for. `record_bytes`: of an average record.
    pub(super) fn take_from(
        &mut self,
        dispatch: &mut Dispatch,
        record_bytes: usize,
        now_ms: i64,
    ) -> bool {
        let options = &self.options;
        let has = self.assigned.len() as u32;
        let has_bytes = u64::from(has) * record_bytes as u64;
        if has > 0 && (has >= options.records_max || has_bytes >= options.bytes_max) {
            return true;
        }
        let take = Take {
            session: self.session,
            consumer: 0,
            records_max: options.records_max - has,
            bytes_max: options.bytes_max - has_bytes,
            settle_on_send: options.settle_on_send,
            lease_ms: options.lease_ms,
        };
        let within = Within {
            partitions: &options.partitions,
            leased_max: options.leased_max,
            known_to: &self.known_to,
        };
        dispatch.take_within(take, within, now_ms, &mut self.assigned);
        self.rounds += 1;
        self.assigned.len() as u32 >= options.records_max
    }

    /// Whether it gets what it has, though that is not all. `reading`: more may come of reads under way.
    pub(super) fn is_over(&self, reading: bool, now: Instant) -> bool {
        let has_some = !self.assigned.is_empty();
        match reading {
            true => has_some && self.rounds >= TAKE_ROUNDS_MAX,
            false => has_some || self.deadline <= now,
        }
    }

    /// Whether it is answered at the end of a term. Reads begin anew in the next one: a take whose time is up would
    /// never be answered where terms are shorter than its reads.
    pub(super) fn ends_with_the_term(&self, now: Instant) -> bool {
        !self.assigned.is_empty() || self.deadline <= now
    }

    /// What it asked for, to be asked in the next term.
    pub(super) fn into_message(self, group: LeaseGroupId, now: Instant) -> Message {
        let Taker { session, mut options, deadline, reply, .. } = self;
        options.wait = deadline.saturating_duration_since(now);
        Message::Take { session, group, options, reply }
    }
}

/// Taken, and not yet all in memory.
#[derive(Debug)]
pub(super) struct PendingTake {
    pub(super) session: SessionId,
    pub(super) group: LeaseGroupId,
    pub(super) assigned: VecDeque<Assignment>,
    pub(super) deliveries: Vec<Delivery>,
    pub(super) reply: TakeReply,
}

impl PendingTake {
    pub(super) fn new(group: LeaseGroupId, taker: Taker) -> Self {
        let Taker { session, reply, assigned, .. } = taker;
        let deliveries = Vec::with_capacity(assigned.len());
        Self { session, group, assigned: assigned.into(), deliveries, reply }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const GROUP: LeaseGroupId = LeaseGroupId(1);

    fn taker(deadline: Instant) -> Taker {
        let (reply, _answer) = oneshot::channel();
        Taker::new(1, TakeOptions::default(), Vec::new(), deadline, reply)
    }

    fn assignment() -> Assignment {
        let (session, consumer, token, partition, offset, attempt) = (1, 0, 1, 0, 0, 1);
        Assignment { session, consumer, token, partition, offset, attempt, terms: None }
    }

    #[test]
    fn a_take_without_a_record_waits_until_its_time_is_up_and_for_reads_under_way() {
        let now = Instant::now();
        let taker = taker(now + Duration::from_secs(1));
        assert!(!taker.is_over(false, now));
        assert!(taker.is_over(false, now + Duration::from_secs(1)));
        assert!(!taker.is_over(true, now + Duration::from_secs(1)));
    }

    #[test]
    fn a_take_with_some_waits_for_a_few_reads_and_no_longer() {
        let now = Instant::now();
        let mut taker = taker(now + Duration::from_secs(1));
        taker.assigned.push(assignment());
        assert!(taker.is_over(false, now));
        assert!(!taker.is_over(true, now));
        taker.rounds = TAKE_ROUNDS_MAX;
        assert!(taker.is_over(true, now));
    }

    #[test]
    fn at_the_end_of_a_term_a_take_is_answered_that_has_something_or_no_time_left() {
        let now = Instant::now();
        let mut taker = taker(now + Duration::from_secs(1));
        assert!(!taker.ends_with_the_term(now));
        assert!(taker.ends_with_the_term(now + Duration::from_secs(1)));
        taker.assigned.push(assignment());
        assert!(taker.ends_with_the_term(now));
    }

    #[test]
    fn in_the_next_term_a_take_waits_for_the_rest_of_its_time() {
        let now = Instant::now();
        let taker = taker(now + Duration::from_secs(10));
        let message = taker.into_message(GROUP, now + Duration::from_secs(3));
        let Message::Take { group, options, .. } = message else { panic!("a take") };
        assert_eq!((group, options.wait), (GROUP, Duration::from_secs(7)));
    }
}
