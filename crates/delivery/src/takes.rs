//! Takes that wait for records, with the records that they have so far.

use std::collections::VecDeque;

use base::{LeaseGroupId, Offset};
use dispatch::{Assignment, Dispatch, PullRequest, PullScope, SessionId};
use shard::delivery::error::TakeError;
use shard::delivery::event::Delivery;
use shard::delivery::handle::Message;
use shard::delivery::options::TakeOptions;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Limit of the rounds that a take with some records waits for further reads.
const TAKE_ROUNDS_MAX: u32 = 4;

pub(crate) type TakeReply = oneshot::Sender<Result<Vec<Delivery>, TakeError>>;

/// A take that waits for records.
#[derive(Debug)]
pub(crate) struct Taker {
    pub(crate) session: SessionId,
    pub(crate) options: TakeOptions,
    /// Its records so far, while more are being read.
    pub(crate) assigned: Vec<Assignment>,
    rounds: u32,
    /// For topics with priorities: the facts up to these offsets must be known first.
    known_to: Vec<Offset>,
    pub(crate) deadline: Instant,
    pub(crate) reply: TakeReply,
}

impl Taker {
    pub(crate) fn new(
        session: SessionId,
        options: TakeOptions,
        known_to: Vec<Offset>,
        deadline: Instant,
        reply: TakeReply,
    ) -> Self {
        Self { session, options, assigned: Vec::new(), rounds: 0, known_to, deadline, reply }
    }

    /// Takes the ready records; returns whether the take is complete. `record_bytes`: size of an average
    /// record.
    pub(crate) fn take_from(
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
        let take = PullRequest {
            session: self.session,
            consumer: 0,
            records_max: options.records_max - has,
            bytes_max: options.bytes_max - has_bytes,
            settle_on_send: options.settle_on_send,
            lease_ms: options.lease_ms,
        };
        let within = PullScope {
            partitions: &options.partitions,
            leased_max: options.leased_max,
            known_to: &self.known_to,
        };
        dispatch.take_within(take, within, now_ms, &mut self.assigned);
        self.rounds += 1;
        self.assigned.len() as u32 >= options.records_max
    }

    /// Whether the take ends although it is not complete. `reading`: reads in flight may find more records.
    pub(crate) fn is_over(&self, reading: bool, now: Instant) -> bool {
        let has_some = !self.assigned.is_empty();
        match reading {
            true => has_some && self.rounds >= TAKE_ROUNDS_MAX,
            false => has_some || self.deadline <= now,
        }
    }

    /// Whether it ends with the term. Reads restart in the next one: a take after its deadline would never get
    /// a reply if terms are shorter than its reads.
    pub(crate) fn ends_with_term(&self, now: Instant) -> bool {
        !self.assigned.is_empty() || self.deadline <= now
    }

    /// The message that repeats the take in the next term.
    pub(crate) fn into_message(self, group: LeaseGroupId, now: Instant) -> Message {
        let Taker { session, mut options, deadline, reply, .. } = self;
        options.wait = deadline.saturating_duration_since(now);
        Message::Take { session, group, options, reply }
    }
}

/// Taken records that are not yet all in memory.
#[derive(Debug)]
pub(crate) struct PendingTake {
    pub(crate) session: SessionId,
    pub(crate) group: LeaseGroupId,
    pub(crate) assigned: VecDeque<Assignment>,
    pub(crate) deliveries: Vec<Delivery>,
    pub(crate) reply: TakeReply,
}

impl PendingTake {
    pub(crate) fn new(group: LeaseGroupId, taker: Taker) -> Self {
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
    fn take_without_a_record_waits_for_its_deadline_and_reads_in_flight() {
        let now = Instant::now();
        let taker = taker(now + Duration::from_secs(1));
        assert!(!taker.is_over(false, now));
        assert!(taker.is_over(false, now + Duration::from_secs(1)));
        assert!(!taker.is_over(true, now + Duration::from_secs(1)));
    }

    #[test]
    fn take_with_a_record_waits_for_a_few_reads_only() {
        let now = Instant::now();
        let mut taker = taker(now + Duration::from_secs(1));
        taker.assigned.push(assignment());
        assert!(taker.is_over(false, now));
        assert!(!taker.is_over(true, now));
        taker.rounds = TAKE_ROUNDS_MAX;
        assert!(taker.is_over(true, now));
    }

    #[test]
    fn end_of_term_ends_takes_that_have_records_or_no_time_left() {
        let now = Instant::now();
        let mut taker = taker(now + Duration::from_secs(1));
        assert!(!taker.ends_with_term(now));
        assert!(taker.ends_with_term(now + Duration::from_secs(1)));
        taker.assigned.push(assignment());
        assert!(taker.ends_with_term(now));
    }

    #[test]
    fn take_waits_for_its_remaining_time_in_the_next_term() {
        let now = Instant::now();
        let taker = taker(now + Duration::from_secs(10));
        let message = taker.into_message(GROUP, now + Duration::from_secs(3));
        let Message::Take { group, options, .. } = message else { panic!("a take") };
        assert_eq!((group, options.wait), (GROUP, Duration::from_secs(7)));
    }
}
