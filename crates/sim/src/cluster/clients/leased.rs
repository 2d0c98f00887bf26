//! Shared knowledge of the consumers of a simulated cluster about leased records, and its checks.
//!
//! A lease and a delay are only guaranteed for consumers at the leader's node while it leads: elsewhere a cut link
//! or a new leader ends both. So a delivery is checked against them only if its own node led in one term since it
//! had last received everything; see [`ObservedDelivery`].

use std::collections::{BTreeMap, BTreeSet};

use crate::history::SentRecord;
use crate::verdict::{Invariant, Verdict};

/// By partition and offset.
pub(super) type LeasedPosition = (u32, u64);

/// The leading node and its term.
pub(super) type LeaderTerm = (u32, i32);

/// Rounding of the driver's clock, and the time between two reads of it.
const ROUNDED_MS: u64 = 10;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum LeaseEnd {
    Accepted,
    /// It becomes a dead letter.
    Rejected,
}

/// A delivery.
#[derive(Clone, Copy, Debug)]
pub(super) struct ObservedDelivery {
    pub(super) place: LeasedPosition,
    pub(super) consumer: u32,
    pub(super) sent: SentRecord,
    /// The unchanged leadership of the consumer's node since it had received everything.
    pub(super) led: Option<LeaderTerm>,
    /// When it had received everything: no lease of a later delivery is older.
    pub(super) leased_from_ms: u64,
    pub(super) now_ms: u64,
}

#[derive(Debug, Default)]
pub(crate) struct LeaseObservations {
    pub(crate) lease_ms: u64,
    records: BTreeMap<LeasedPosition, Record>,
    pub(super) rejected: u64,
}

#[derive(Debug, Default)]
struct Record {
    sent: Option<SentRecord>,
    deliveries: u32,
    held: Option<ObservedLease>,
    /// It was released with a delay, and is not due before.
    delayed: Option<(LeaderTerm, u64)>,
    requested: BTreeSet<LeaseEnd>,
    confirmed: Option<LeaseEnd>,
}

/// A lease that only its consumer can end early, as long as its node leads in that term.
#[derive(Clone, Copy, Debug)]
struct ObservedLease {
    consumer: u32,
    led: LeaderTerm,
    until_ms: u64,
}

impl LeaseObservations {
    pub(crate) fn of(lease_ms: u64) -> Self {
        Self { lease_ms, ..Self::default() }
    }

    pub(super) fn was_seen(&self, place: LeasedPosition) -> bool {
        self.records.contains_key(&place)
    }

    pub(super) fn deliver(&mut self, seen: ObservedDelivery, verdict: &Verdict) {
        let ObservedDelivery { place, consumer, sent, led, leased_from_ms, now_ms } = seen;
        let until_ms = leased_from_ms + self.lease_ms.saturating_sub(ROUNDED_MS);
        // It may have been delivered to others since.
        let led = led.filter(|_| now_ms < until_ms);
        let record = self.records.entry(place).or_default();
        record.sent = Some(sent);
        record.deliveries += 1;
        let held = record.held.filter(|held| Some(held.led) == led && now_ms < held.until_ms);
        if let Some(held) = held {
            let what = format!("{place:?} is leased to {}, and comes to {consumer}", held.consumer);
            verdict.violated(Invariant::Exclusive, what);
        }
        if let Some((delayed_by, until_ms)) = record.delayed
            && Some(delayed_by) == led
            && now_ms < until_ms
        {
            let what = format!("{place:?} comes at {now_ms} and not after {until_ms}");
            verdict.violated(Invariant::Delayed, what);
        }
        record.delayed = None;
        record.held = led.map(|led| ObservedLease { consumer, led, until_ms });
    }

    /// To be called before a request that ends the lease. Returns the number of deliveries.
    pub(super) fn let_go(&mut self, place: LeasedPosition, consumer: u32) -> u32 {
        let record = self.records.entry(place).or_default();
        if record.held.is_some_and(|held| held.consumer == consumer) {
            record.held = None;
        }
        record.deliveries
    }

    /// To be called before a consumer leaves.
    pub(super) fn leave(&mut self, consumer: u32) {
        for record in self.records.values_mut() {
            if record.held.is_some_and(|held| held.consumer == consumer) {
                record.held = None;
            }
        }
    }

    /// A release with a delay after this many deliveries, if the node led from before the request until after it.
    pub(super) fn released(
        &mut self,
        place: LeasedPosition,
        deliveries: u32,
        led: Option<LeaderTerm>,
        until_ms: u64,
    ) {
        let record = self.records.entry(place).or_default();
        if record.deliveries == deliveries {
            record.delayed = led.map(|led| (led, until_ms.saturating_sub(ROUNDED_MS)));
        }
    }

    pub(super) fn is_settled(&self, place: LeasedPosition) -> bool {
        self.records.get(&place).is_some_and(|record| record.confirmed.is_some())
    }

    /// To be called before the settle is sent.
    pub(super) fn settle(&mut self, place: LeasedPosition, way: LeaseEnd) {
        self.records.entry(place).or_default().requested.insert(way);
    }

    pub(super) fn settled(&mut self, place: LeasedPosition, way: LeaseEnd, verdict: &Verdict) {
        let record = self.records.entry(place).or_default();
        self.rejected += u64::from(way == LeaseEnd::Rejected);
        if let Some(before) = record.confirmed.replace(way) {
            let what = format!("{place:?} was {before:?}, and is {way:?} again");
            verdict.violated(Invariant::Settled, what);
        }
    }

    /// Number of dead letters that are still missing.
    pub(super) fn dead_letters_due(&self, found: &[SentRecord]) -> usize {
        let is_due = |record: &&Record| {
            record.confirmed == Some(LeaseEnd::Rejected)
                && record.sent.is_some_and(|sent| !found.contains(&sent))
        };
        self.records.values().filter(is_due).count()
    }

    /// Checks the final state once all records are consumed.
    pub(super) fn check(&self, dead_letters: &[SentRecord], verdict: &Verdict) {
        let mut counts: BTreeMap<SentRecord, u32> = BTreeMap::new();
        for sent in dead_letters {
            *counts.entry(*sent).or_default() += 1;
        }
        for (place, record) in &self.records {
            let dead = record.sent.and_then(|sent| counts.remove(&sent)).unwrap_or(0);
            let violated = |invariant, what: &str| {
                let what = format!("{place:?} {what}: {dead} dead letters, {record:?}");
                verdict.violated(invariant, what);
            };
            if dead > 1 {
                violated(Invariant::DeadLetters, "is a dead letter more than once");
            }
            let expected = record.confirmed.map(|way| u32::from(way == LeaseEnd::Rejected));
            if expected.is_some_and(|expected| expected != dead) {
                violated(Invariant::Settled, "did not leave as was confirmed");
            }
            if dead > 0 && !record.requested.contains(&LeaseEnd::Rejected) {
                violated(Invariant::DeadLetters, "is a dead letter, and nobody rejected it");
            }
            if dead == 0 && !record.requested.contains(&LeaseEnd::Accepted) {
                violated(Invariant::Durable, "is gone, and nobody accepted it");
            }
        }
        if let Some((sent, _)) = counts.first_key_value() {
            let what = format!("{sent:?} is a dead letter, and was delivered to nobody");
            verdict.violated(Invariant::DeadLetters, what);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Trace;

    const PLACE: LeasedPosition = (0, 7);
    const SENT: SentRecord = SentRecord { producer: 1, number: 9 };

    fn judged(story: impl FnOnce(&mut LeaseObservations, &Verdict)) -> Option<Invariant> {
        let verdict = Verdict::new(Trace::default());
        story(&mut LeaseObservations::of(3_000), &verdict);
        verdict.first().map(|violation| violation.invariant)
    }

    fn seen(consumer: u32, term: Option<i32>, now_ms: u64) -> ObservedDelivery {
        let led = term.map(|term| (1, term));
        ObservedDelivery { place: PLACE, consumer, sent: SENT, led, leased_from_ms: now_ms, now_ms }
    }

    #[test]
    fn leased_record_may_move_only_after_expiry_or_a_new_leader() {
        let second = |term, now_ms| {
            judged(move |leased, verdict| {
                leased.deliver(seen(1, Some(4), 100), verdict);
                leased.deliver(seen(2, term, now_ms), verdict);
            })
        };
        assert_eq!(second(Some(4), 200), Some(Invariant::Exclusive));
        assert_eq!(second(Some(4), 3_095), None);
        assert_eq!(second(Some(5), 200), None);
        assert_eq!(second(None, 200), None);
        let given_up = judged(|leased, verdict| {
            leased.deliver(seen(1, Some(4), 100), verdict);
            leased.leave(1);
            leased.deliver(seen(2, Some(4), 200), verdict);
            leased.let_go(PLACE, 2);
            leased.deliver(seen(3, Some(4), 300), verdict);
        });
        assert_eq!(given_up, None);
    }

    #[test]
    fn early_delivery_of_a_delayed_record_is_detected() {
        let comes = |term, now_ms| {
            judged(move |leased, verdict| {
                leased.deliver(seen(1, Some(4), 100), verdict);
                let deliveries = leased.let_go(PLACE, 1);
                leased.released(PLACE, deliveries, Some((1, 4)), 600);
                leased.deliver(seen(2, Some(term), now_ms), verdict);
            })
        };
        assert_eq!(comes(4, 500), Some(Invariant::Delayed));
        assert_eq!(comes(4, 600), None);
        assert_eq!(comes(5, 500), None);
    }

    #[test]
    fn every_wrong_final_state_is_detected() {
        let ends = |way: Option<LeaseEnd>, confirmed: bool, dead: &[SentRecord]| {
            judged(|leased, verdict| {
                leased.deliver(seen(1, None, 100), verdict);
                if let Some(way) = way {
                    leased.settle(PLACE, way);
                    if confirmed {
                        leased.settled(PLACE, way, verdict);
                    }
                }
                leased.check(dead, verdict);
            })
        };
        let (accepted, rejected) = (Some(LeaseEnd::Accepted), Some(LeaseEnd::Rejected));
        assert_eq!(ends(accepted, true, &[]), None);
        assert_eq!(ends(accepted, false, &[]), None);
        assert_eq!(ends(rejected, true, &[SENT]), None);
        assert_eq!(ends(rejected, false, &[SENT]), None);
        assert_eq!(ends(rejected, true, &[]), Some(Invariant::Settled));
        assert_eq!(ends(rejected, false, &[]), Some(Invariant::Durable));
        assert_eq!(ends(None, false, &[]), Some(Invariant::Durable));
        assert_eq!(ends(rejected, true, &[SENT, SENT]), Some(Invariant::DeadLetters));
        assert_eq!(ends(accepted, true, &[SENT]), Some(Invariant::Settled));
        assert_eq!(ends(accepted, false, &[SENT]), Some(Invariant::DeadLetters));
        let other = SentRecord { producer: 2, ..SENT };
        assert_eq!(ends(accepted, true, &[other]), Some(Invariant::DeadLetters));
        let twice = judged(|leased, verdict| {
            leased.settle(PLACE, LeaseEnd::Accepted);
            leased.settled(PLACE, LeaseEnd::Accepted, verdict);
            leased.settled(PLACE, LeaseEnd::Rejected, verdict);
        });
        assert_eq!(twice, Some(Invariant::Settled));
    }
}
