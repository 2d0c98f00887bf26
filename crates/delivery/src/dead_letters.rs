//! The dead letters of one group that are not in the log yet, and the callers waiting for them.
//!
//! They are appended in the order in which the records died, one request at a time. A refused append (a full
//! disk, a full topic) is retried: the record is neither lost nor delivered.

use std::collections::VecDeque;
use std::collections::vec_deque::Drain;
use std::time::Duration;

use base::{HashSet, Offset};
use dispatch::{DeadLetter, DeadReason};
use shard::delivery::dead_letter::DeathReason;
use shard::error::{AppendError, Unavailable};
use shard::receipts::SentPart;
use tokio::time::Instant;

use crate::waiter::Waiter;
use crate::waiter::in_transit::TransitQueue;

const RETRY_DELAY: Duration = Duration::from_secs(1);

/// A record that is being dead-lettered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingLetter {
    pub(crate) letter: DeadLetter,
    pub(crate) reason: DeathReason,
}

#[derive(Debug, Default)]
pub(crate) struct DeadLetters {
    pending: VecDeque<PendingLetter>,
    /// A request that appends the first of `pending` is in flight.
    in_flight: bool,
    /// Earliest time of the retry after a failure.
    not_before: Option<Instant>,
    /// The failure, unless it was a lack of room: rejects get this error until an append succeeds.
    failed: Option<Unavailable>,
    /// Total of dead letters added, and of those appended.
    added: u64,
    appended: u64,
    /// Rejects whose dead letters are not appended yet, with the value of `added` that each waits for.
    waiters: VecDeque<(u64, Waiter)>,
    /// Dead letters in flight to other shards.
    travelling: TransitQueue,
    /// Records that were rejected because the topic was over its limit.
    overflowed: HashSet<(u32, Offset)>,
}

/// Next action for a group's dead letters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DeadLetterAction {
    /// There are none.
    Nothing,
    /// A request is in flight; wait for its end.
    UnderWay,
    /// The last request failed: retry at this time.
    At(Instant),
    Append,
}

impl DeadLetters {
    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Total of dead letters ever added.
    pub(crate) fn added(&self) -> u64 {
        self.added
    }

    /// The record is about to be rejected because the topic is over its limit.
    pub(crate) fn note_overflow(&mut self, partition: u32, offset: Offset) {
        self.overflowed.insert((partition, offset));
    }

    /// Adds the reason of death, which is more exact here than in the engine.
    pub(crate) fn letter_of(&mut self, letter: DeadLetter) -> PendingLetter {
        let reason = match letter.reason {
            _ if self.overflowed.remove(&(letter.partition, letter.offset)) => {
                DeathReason::Overflow
            }
            DeadReason::Rejected => DeathReason::Rejected,
            DeadReason::Attempts => DeathReason::Attempts,
            DeadReason::Expired => DeathReason::Expired,
        };
        PendingLetter { letter, reason }
    }

    /// Queues them to be appended.
    pub(crate) fn add(&mut self, letters: Vec<PendingLetter>) {
        self.added += letters.len() as u64;
        self.pending.extend(letters);
    }

    pub(crate) fn next(&self, now: Instant) -> DeadLetterAction {
        if self.pending.is_empty() {
            DeadLetterAction::Nothing
        } else if self.in_flight {
            DeadLetterAction::UnderWay
        } else {
            self.not_before
                .filter(|at| *at > now)
                .map_or(DeadLetterAction::Append, DeadLetterAction::At)
        }
    }

    /// In the order of appending.
    pub(crate) fn pending(&self) -> impl Iterator<Item = &PendingLetter> {
        self.pending.iter()
    }

    /// A request with the first of them was made.
    pub(crate) fn on_requested(&mut self) {
        self.in_flight = true;
    }

    /// They cannot be appended now. Returns the time of the retry.
    pub(crate) fn postpone(&mut self, now: Instant) -> Instant {
        *self.not_before.insert(now + RETRY_DELAY)
    }

    /// Some of those that are appended now are in flight to other shards.
    pub(crate) fn on_sent(&mut self, sent: Vec<SentPart>) {
        self.travelling.add(sent);
    }

    /// Makes the waiter wait for the letters in flight to other shards, if any.
    fn until_arrived(&mut self, mut waiter: Waiter) -> Waiter {
        waiter.arrivals.extend(self.travelling.awaited());
        waiter
    }

    /// The first `count` are in the log.
    pub(crate) fn on_appended(&mut self, count: usize) -> Drain<'_, PendingLetter> {
        self.in_flight = false;
        self.not_before = None;
        self.failed = None;
        self.appended += count as u64;
        self.pending.drain(..count)
    }

    /// The request was refused, or its outcome is unknown: then rejects get that error.
    pub(crate) fn on_refused(&mut self, why: AppendError, now: Instant) {
        self.in_flight = false;
        self.postpone(now);
        if let AppendError::Unavailable(why) = why {
            self.fail_waiters(&why);
            self.failed = Some(why);
        }
    }

    /// The request was not made, and is repeated in the next term.
    pub(crate) fn on_given_back(&mut self, now: Instant) {
        self.in_flight = false;
        self.postpone(now);
    }

    /// Resumes in the next term with those of its letters that are for these records. The others are in the log
    /// already, or their records are gone.
    pub(crate) fn resume(mut self, records: &HashSet<(u32, Offset)>) -> Self {
        let before = self.pending.len();
        self.pending.retain(|it| records.contains(&(it.letter.partition, it.letter.offset)));
        self.appended += (before - self.pending.len()) as u64;
        (self.not_before, self.failed) = (None, None);
        self
    }

    /// These partitions were sought: their dead letters are void, and their rejects precede the seek.
    pub(crate) fn forget(&mut self, partitions: &[u32]) {
        let before = self.pending.len();
        self.pending.retain(|pending| !partitions.contains(&pending.letter.partition));
        self.appended += (before - self.pending.len()) as u64;
        self.overflowed.retain(|(partition, _)| !partitions.contains(partition));
    }

    /// Keeps the waiter until the first `mark` letters ever added are appended; returns it if they are already.
    /// Fails it if the state of the last append is unknown.
    pub(crate) fn hold(&mut self, mark: u64, waiter: Waiter) -> Option<Waiter> {
        if self.appended >= mark {
            return Some(self.until_arrived(waiter));
        }
        match &self.failed {
            Some(why) => waiter.fail(why),
            None => self.waiters.push_back((mark, waiter)),
        }
        None
    }

    /// Waiters whose dead letters are appended.
    pub(crate) fn take_ready(&mut self) -> Vec<Waiter> {
        let mut ready = Vec::new();
        while let Some((_, waiter)) = self.waiters.pop_front_if(|(mark, _)| *mark <= self.appended)
        {
            ready.push(self.until_arrived(waiter));
        }
        ready
    }

    /// All waiters: the group is gone.
    pub(crate) fn take_waiters(&mut self) -> impl Iterator<Item = Waiter> + use<> {
        std::mem::take(&mut self.waiters).into_iter().map(|(_, waiter)| waiter)
    }

    pub(crate) fn fail_waiters(&mut self, why: &Unavailable) {
        self.take_waiters().for_each(|waiter| waiter.fail(why));
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;
    use crate::waiter::Reply;
    use shard::delivery::handle::SettleResults;

    fn letter(partition: u32, offset: Offset) -> DeadLetter {
        DeadLetter { partition, offset, reason: DeadReason::Rejected, attempts: 1 }
    }

    fn with(letters: &[(u32, Offset)]) -> DeadLetters {
        let mut dead = DeadLetters::default();
        let letters = letters.iter().map(|&(partition, offset)| letter(partition, offset));
        let letters = letters.map(|letter| dead.letter_of(letter)).collect();
        dead.add(letters);
        dead
    }

    fn waiter() -> (Waiter, oneshot::Receiver<SettleResults>) {
        let (reply, answer) = oneshot::channel();
        let reply = Reply::Settles(vec![Ok(())], reply.into());
        (Waiter::new(reply, Vec::new(), Vec::new()), answer)
    }

    #[test]
    fn reject_is_acknowledged_once_all_earlier_dead_letters_are_appended() {
        let mut dead = with(&[(0, 1), (0, 2), (0, 3)]);
        let (waiting, _answer) = waiter();
        assert!(dead.hold(2, waiting).is_none());
        dead.on_requested();
        assert_eq!(dead.next(Instant::now()), DeadLetterAction::UnderWay);
        assert_eq!(dead.on_appended(1).count(), 1);
        assert!(dead.take_ready().is_empty());
        assert_eq!(dead.on_appended(1).map(|it| it.letter.offset).collect::<Vec<_>>(), [2]);
        assert_eq!(dead.take_ready().len(), 1);
        assert!(dead.hold(2, waiter().0).is_some());
        assert_eq!(dead.next(Instant::now()), DeadLetterAction::Append);
    }

    #[test]
    fn append_refused_for_lack_of_room_is_retried_while_rejects_wait() {
        let now = Instant::now();
        let mut dead = with(&[(0, 1)]);
        let (waiting, mut answer) = waiter();
        assert!(dead.hold(1, waiting).is_none());
        dead.on_requested();
        dead.on_refused(AppendError::Full { limit: "limit.records".into() }, now);
        assert_eq!(dead.next(now), DeadLetterAction::At(now + RETRY_DELAY));
        assert_eq!(dead.next(now + RETRY_DELAY), DeadLetterAction::Append);
        assert!(answer.try_recv().is_err());
        assert_eq!(dead.on_appended(1).count(), 1);
        assert_eq!((dead.take_ready().len(), dead.next(now)), (1, DeadLetterAction::Nothing));
    }

    #[test]
    fn rejects_fail_after_an_append_of_unknown_outcome_until_one_succeeds() {
        let unavailable = || Unavailable::NotLeader;
        let mut dead = with(&[(0, 1)]);
        let (before, mut first) = waiter();
        let (after, mut second) = waiter();
        assert!(dead.hold(1, before).is_none());
        dead.on_refused(unavailable().into(), Instant::now());
        assert!(dead.hold(1, after).is_none());
        for answer in [&mut first, &mut second] {
            assert_eq!(answer.try_recv(), Ok(vec![Err(unavailable().into())]));
        }
        assert_eq!(dead.on_appended(1).count(), 1);
        assert!(dead.hold(1, waiter().0).is_some());
    }

    #[test]
    fn seek_drops_dead_letters_and_acknowledges_their_rejects() {
        let mut dead = with(&[(0, 1), (1, 1)]);
        let (waiting, _answer) = waiter();
        assert!(dead.hold(2, waiting).is_none());
        dead.forget(&[1]);
        assert!(dead.take_ready().is_empty());
        assert_eq!(dead.on_appended(1).map(|it| it.letter.partition).collect::<Vec<_>>(), [0]);
        assert_eq!(dead.take_ready().len(), 1);
    }

    #[test]
    fn overflow_reason_applies_to_one_death_only() {
        let mut dead = DeadLetters::default();
        dead.note_overflow(0, 1);
        assert_eq!(dead.letter_of(letter(0, 1)).reason, DeathReason::Overflow);
        assert_eq!(dead.letter_of(letter(0, 1)).reason, DeathReason::Rejected);
    }
}
