//! The account of every single message: its sender, its confirmation, its receivers, their order,
//! and its settle. The audit is derived from it.
//!
//! Where agents carry the load, each writes its events into a [`Journal`] and keeps nothing. The
//! one account is the coordinator's, into which the journals are replayed (`account.rs`).

mod acknowledged;
mod received;
mod sent;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::Mutex;
use results::Audit;
use tokio::sync::Notify;

use crate::bits::Bits;
use crate::burial::Burials;
use crate::clock::{Clock, micros_between};
use crate::journal::{Event, Journal, What};
use crate::payload::{Damage, Stamp};
use crate::recorder::Recorder;
use received::{Received, add_finding};

pub use acknowledged::Acknowledged;
pub(crate) use received::Moment;
pub(crate) use sent::SenderAccount;

#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) clock: Clock,
    pub(crate) senders: Vec<Arc<SenderAccount>>,
    subscriptions: Vec<Mutex<Received>>,
    /// Unmarked redeliveries are allowed from here on: a process was killed, a connection broke, or
    /// a message was left unsettled on purpose.
    disturbed: AtomicBool,
    settles_confirmed: bool,
    lanes: u32,
    arrived: Notify,
    /// Dead letters by sender.
    buried: Mutex<Vec<Bits>>,
    /// Present at an agent, whose messages are accounted for by the coordinator.
    journal: Option<Arc<Journal>>,
}

/// A received message that is to be settled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Came {
    pub(crate) stamp: Stamp,
    /// This is its first delivery.
    pub(crate) first: bool,
}

/// A received body: its stamp or its damage, and the system's redelivery mark.
pub(crate) type Arrival = (Result<Stamp, Damage>, Option<bool>);

impl Ledger {
    pub(crate) fn new(
        senders: u16,
        subscriptions: u32,
        lanes: u32,
        settles_confirmed: bool,
    ) -> Self {
        let received = |_| Mutex::new(Received::new(senders, lanes));
        let subscriptions = (0..subscriptions).map(received).collect();
        Self {
            subscriptions,
            settles_confirmed,
            lanes,
            ..Self::with(senders, Clock::default(), None)
        }
    }

    /// The ledger of an agent, by the coordinator's clock.
    pub(crate) fn for_agent(senders: u16, clock: Clock, journal: Arc<Journal>) -> Self {
        Self::with(senders, clock, Some(journal))
    }

    fn with(senders: u16, clock: Clock, journal: Option<Arc<Journal>>) -> Self {
        let recorder = Arc::new(Recorder::default());
        let account =
            |id| Arc::new(SenderAccount::new(id, clock, Arc::clone(&recorder), journal.clone()));
        Self {
            senders: (0..senders).map(account).collect(),
            recorder: Arc::clone(&recorder),
            clock,
            subscriptions: Vec::new(),
            disturbed: AtomicBool::new(false),
            settles_confirmed: false,
            lanes: 0,
            arrived: Notify::new(),
            buried: Mutex::new(vec![Bits::default(); senders.into()]),
            journal,
        }
    }

    pub(crate) fn disturb(&self) {
        if !self.disturbed.swap(true, Relaxed)
            && let Some(journal) = &self.journal
        {
            journal.push(self.clock.now_ns(), [What::Disturbed]);
        }
    }

    pub(crate) fn is_disturbed(&self) -> bool {
        self.disturbed.load(Relaxed)
    }

    /// Records messages that a receiver got.
    pub(crate) fn came(
        &self,
        task: usize,
        subscription: u32,
        arrivals: &[Arrival],
    ) -> Vec<Option<Came>> {
        let now = Moment::here(self.clock.now_ns());
        if let Some(journal) = &self.journal {
            journal.push(now.at_ns, arrivals.iter().map(|it| What::came(subscription, *it)));
            return arrivals.iter().map(came_to_agent).collect();
        }
        let mut received = self.subscriptions[subscription as usize].lock();
        let came: Vec<Option<Came>> =
            arrivals.iter().map(|it| self.note(&mut received, subscription, *it, now)).collect();
        drop(received);
        self.arrived.notify_waiters();
        self.record_came(task, &came, now);
        came
    }

    /// Returns when the first subscription has received this message.
    pub(crate) async fn has_come(&self, sender: u16, sequence: u64) {
        loop {
            let arrived = self.arrived.notified();
            tokio::pin!(arrived);
            // From here on no arrival is missed.
            arrived.as_mut().enable();
            let seen = |received: &Mutex<Received>| {
                received.lock().senders[usize::from(sender)].seen.contains(sequence)
            };
            if self.subscriptions.first().is_none_or(seen) {
                return;
            }
            arrived.await;
        }
    }

    /// Enters an arrival. Returns `None` if it is no message of this load.
    fn note(
        &self,
        received: &mut Received,
        subscription: u32,
        (stamp, redelivered): Arrival,
        now: Moment,
    ) -> Option<Came> {
        match stamp {
            Ok(stamp) if self.was_sent(stamp) => {
                let disturbed = self.is_disturbed();
                let first = received.came(stamp, redelivered, subscription, disturbed, now);
                Some(Came { stamp, first })
            }
            _ => {
                received.damaged(subscription, format!("{stamp:?}"));
                None
            }
        }
    }

    fn record_came(&self, task: usize, came: &[Option<Came>], now: Moment) {
        let first = || came.iter().flatten().filter(|came| came.first);
        self.recorder.received.fetch_add(first().count() as u64, Relaxed);
        let again = came.iter().flatten().filter(|came| !came.first).count() as u64;
        if again > 0 {
            self.recorder.repeated.fetch_add(again, Relaxed);
        }
        self.recorder.record(task, |interval| {
            for came in first() {
                interval.receive.record_us(micros_between(came.stamp.sent_ns(), now.at_ns));
                interval.receive_due.record_us(micros_between(came.stamp.due_ns, now.at_ns));
            }
        });
    }

    fn was_sent(&self, stamp: Stamp) -> bool {
        let sender = self.senders.get(usize::from(stamp.sender));
        sender.is_some_and(|sender| stamp.sequence < sender.sent()) && stamp.lane < self.lanes
    }

    /// Records messages that a receiver has settled successfully.
    pub(crate) fn settled(&self, task: usize, subscription: u32, stamps: &[Stamp]) {
        let now = Moment::here(self.clock.now_ns());
        if let Some(journal) = &self.journal {
            let settled = |stamp: &Stamp| What::Settled { subscription, stamp: *stamp };
            return journal.push(now.at_ns, stamps.iter().map(settled));
        }
        self.note_settled(task, subscription, stamps, now);
    }

    fn note_settled(&self, task: usize, subscription: u32, stamps: &[Stamp], now: Moment) {
        let mut received = self.subscriptions[subscription as usize].lock();
        let new = stamps.iter().filter(|stamp| received.settled(**stamp, now)).count();
        drop(received);
        self.recorder.settled.fetch_add(new as u64, Relaxed);
        self.recorder.record(task, |interval| {
            for stamp in stamps {
                interval.settle.record_us(micros_between(stamp.sent_ns(), now.at_ns));
            }
        });
    }

    /// Records dead letters. They count as settled for the first subscription.
    pub(crate) fn buried(&self, task: usize, read: Vec<Result<Stamp, Damage>>) {
        let now = Moment::here(self.clock.now_ns());
        if let Some(journal) = &self.journal {
            return journal.push(now.at_ns, read.into_iter().map(|stamp| What::Buried { stamp }));
        }
        self.note_buried(task, read, now);
    }

    fn note_buried(&self, task: usize, read: Vec<Result<Stamp, Damage>>, now: Moment) {
        let mut stamps = Vec::with_capacity(read.len());
        for stamp in read {
            match stamp {
                Ok(stamp) if self.was_sent(stamp) => stamps.push(stamp),
                strange => self.recorder.error("a dead letter", &format!("{strange:?}")),
            }
        }
        let mut buried = self.buried.lock();
        for stamp in &stamps {
            buried[usize::from(stamp.sender)].insert(stamp.sequence);
        }
        drop(buried);
        self.note_settled(task, 0, &stamps, now);
    }

    /// Counts of dead lettering.
    pub(crate) fn burials(&self, is_poison: impl Fn(u64) -> bool) -> Burials {
        let mut burials = Burials::default();
        let Some(received) = self.subscriptions.first() else { return burials };
        let (received, buried) = (received.lock(), self.buried.lock());
        let none = Bits::default();
        for (of_sender, buried) in received.senders.iter().zip(buried.iter()) {
            let seen = of_sender.seen.without(&none).filter(|sequence| is_poison(*sequence));
            burials.poison += seen.count() as u64;
            for sequence in buried.without(&none) {
                let kind =
                    if is_poison(sequence) { &mut burials.buried } else { &mut burials.sound };
                *kind += 1;
            }
        }
        burials
    }

    /// Confirmed messages not yet received, counted once for each subscription.
    pub(crate) fn missing(&self) -> u64 {
        let missing = |received: &Mutex<Received>| {
            let received = received.lock();
            let of_sender = |(account, seen): (&Arc<SenderAccount>, &received::OfSender)| {
                account.state().confirmed.without(&seen.seen).count() as u64
            };
            self.senders.iter().zip(&received.senders).map(of_sender).sum::<u64>()
        };
        self.subscriptions.iter().map(missing).sum()
    }

    // ------------------------------------------------------------------ reported by an agent

    /// Enters an event of an agent. Returns false if it is impossible.
    pub(crate) fn replay(&self, event: Event, agent: u16, apart_ns: u64) -> bool {
        let now = Moment { at_ns: event.at_ns, agent, apart_ns };
        let task = usize::from(agent);
        let there = |subscription: u32| (subscription as usize) < self.subscriptions.len();
        match event.what {
            What::Disturbed => self.disturb(),
            What::Confirmed { sender, first, count } => {
                let sender = self.senders.get(usize::from(sender));
                return sender.is_some_and(|sender| sender.confirmed_elsewhere(first, count));
            }
            What::Came { subscription, stamp, redelivered } if there(subscription) => {
                let mut received = self.subscriptions[subscription as usize].lock();
                let came = self.note(&mut received, subscription, (stamp, redelivered), now);
                drop(received);
                self.record_came(task, &[came], now);
            }
            What::Settled { subscription, stamp } if there(subscription) => {
                // A message that was never sent was reported as damaged on its arrival.
                if self.was_sent(stamp) {
                    self.note_settled(task, subscription, &[stamp], now);
                }
            }
            What::Buried { stamp } if there(0) => self.note_buried(task, vec![stamp], now),
            What::Came { .. } | What::Settled { .. } | What::Buried { .. } => return false,
        }
        true
    }

    /// Sets the number of messages that an agent's sender has sent. Returns false if there is no
    /// such sender.
    pub(crate) fn sent_elsewhere(&self, sender: u16, count: u64) -> bool {
        let sender = self.senders.get(usize::from(sender));
        sender.inspect(|sender| sender.sent_elsewhere(count)).is_some()
    }

    // ------------------------------------------------------------------------------ the audit

    /// Audits every message. `drained`: nothing is in flight, so missing messages are lost.
    pub(crate) fn audit(&self, drained: bool) -> Audit {
        let mut audit = Audit::default();
        for sender in &self.senders {
            let confirmed = sender.state().confirmed.count();
            audit.confirmed += confirmed;
            audit.unconfirmed += sender.sent() - confirmed;
        }
        let mut by_subscription = Vec::new();
        for (subscription, received) in self.subscriptions.iter().enumerate() {
            let received = received.lock();
            by_subscription.push(received.count);
            let seen = &received.audit;
            audit.received += received.count;
            audit.repeated += seen.repeated;
            audit.repeated_unmarked += seen.repeated_unmarked;
            audit.settled_again += if self.settles_confirmed { seen.settled_again } else { 0 };
            audit.out_of_order += seen.out_of_order;
            audit.damaged += seen.damaged;
            audit.dwell_max_us = audit.dwell_max_us.max(seen.dwell_max_us);
            audit.findings.extend_from_slice(&seen.findings);
            self.add_lost(&mut audit, &received, subscription as u32, drained);
        }
        audit.fairness_subscriptions = fairness(&by_subscription);
        let mut by_lane = vec![0; self.lanes as usize];
        for received in &self.subscriptions {
            let received = received.lock();
            by_lane.iter_mut().zip(&received.by_lane).for_each(|(all, some)| *all += some);
        }
        audit.fairness_lanes = fairness(&by_lane);
        audit
    }

    fn add_lost(&self, audit: &mut Audit, received: &Received, subscription: u32, drained: bool) {
        let senders = self.senders.iter().zip(&received.senders);
        for (sender, (account, of_sender)) in (0..).zip(senders) {
            let sent = account.state();
            audit.unconfirmed_received += of_sender.seen.without(&sent.confirmed).count() as u64;
            if !drained {
                continue;
            }
            for sequence in sent.confirmed.without(&of_sender.seen) {
                audit.lost += 1;
                let stamp = Stamp { sender, lane: 0, sequence, due_ns: 0, delay_us: 0 };
                let what = || "confirmed, and never received".to_owned();
                add_finding(&mut audit.findings, "lost", Some(stamp), subscription, what);
            }
        }
    }
}

/// An agent does not see deliveries at other agents; only the system's redelivery mark counts.
fn came_to_agent((stamp, redelivered): &Arrival) -> Option<Came> {
    stamp.ok().map(|stamp| Came { stamp, first: *redelivered != Some(true) })
}

/// The minimum over the maximum; `None` with fewer than two counts.
fn fairness(counts: &[u64]) -> Option<f64> {
    let (least, most) = (*counts.iter().min()?, *counts.iter().max()?);
    (counts.len() > 1 && most > 0).then(|| least as f64 / most as f64)
}

#[cfg(test)]
mod tests {
    use driver::{Confirmed, Failure};

    use super::*;

    fn ledger() -> Ledger {
        Ledger::new(2, 1, 4, true)
    }

    fn send(ledger: &Ledger, sender: usize, lane: u32) -> Stamp {
        let account = &ledger.senders[sender];
        let stamp = account.next(lane, None);
        account.resolve(stamp.sequence, Ok(()));
        stamp
    }

    fn receive(ledger: &Ledger, stamp: Stamp, redelivered: bool) {
        ledger.came(0, 0, &[(Ok(stamp), Some(redelivered))]);
    }

    #[test]
    fn confirmed_message_that_never_arrives_is_lost() {
        let ledger = ledger();
        let (came, lost) = (send(&ledger, 0, 0), send(&ledger, 1, 1));
        receive(&ledger, came, false);
        assert_eq!(ledger.missing(), 1);
        let audit = ledger.audit(true);
        assert_eq!((audit.confirmed, audit.received, audit.lost), (2, 1, 1));
        assert_eq!((audit.findings[0].sender, audit.findings[0].sequence), (1, lost.sequence));
        assert_eq!(audit.faults(false).len(), 1);
    }

    #[test]
    fn message_in_flight_is_not_lost() {
        let ledger = ledger();
        send(&ledger, 0, 0);
        assert_eq!(ledger.audit(false).lost, 0);
    }

    #[test]
    fn unconfirmed_message_may_arrive_or_not() {
        let ledger = ledger();
        let account = &ledger.senders[0];
        let (came, gone) = (account.next(0, None), account.next(0, None));
        account.resolve(came.sequence, Err(Failure::unknown("broke")));
        account.resolve(gone.sequence, Err(Failure::unknown("broke")));
        assert!(account.take_broken() && !account.take_broken());
        receive(&ledger, came, false);
        let audit = ledger.audit(true);
        assert_eq!((audit.lost, audit.unconfirmed, audit.unconfirmed_received), (0, 2, 1));
        assert!(audit.faults(true).is_empty());
        assert_eq!(ledger.recorder.errors()["send: unknown outcome: broke"], 2);
    }

    #[test]
    fn order_is_checked_within_each_lane() {
        let ledger = ledger();
        let (first, other, second) =
            (send(&ledger, 0, 0), send(&ledger, 0, 1), send(&ledger, 0, 0));
        for stamp in [second, other, first] {
            receive(&ledger, stamp, false);
        }
        let audit = ledger.audit(true);
        assert_eq!(audit.out_of_order, 1);
        assert!(audit.faults(false).is_empty() && audit.faults(true).len() == 1);
    }

    #[test]
    fn redelivery_needs_a_mark_or_a_disturbance() {
        let ledger = ledger();
        let stamp = send(&ledger, 0, 0);
        receive(&ledger, stamp, false);
        receive(&ledger, stamp, true);
        assert_eq!(ledger.audit(true).faults(false), Vec::<String>::new());
        receive(&ledger, stamp, false);
        assert_eq!(ledger.audit(true).repeated_unmarked, 1);
        ledger.disturb();
        receive(&ledger, stamp, false);
        let audit = ledger.audit(true);
        assert_eq!((audit.repeated, audit.repeated_unmarked), (3, 1));
    }

    #[test]
    fn settled_message_must_not_be_redelivered_even_with_a_mark() {
        let ledger = ledger();
        let stamp = send(&ledger, 0, 0);
        receive(&ledger, stamp, false);
        ledger.settled(0, 0, &[stamp]);
        ledger.disturb();
        receive(&ledger, stamp, true);
        assert_eq!(ledger.audit(true).settled_again, 1);
    }

    #[test]
    fn foreign_stamps_count_as_damage_and_allocate_nothing() {
        let ledger = ledger();
        let stamp = send(&ledger, 0, 0);
        let strange = [
            Stamp { sequence: (1 << 48) - 1, ..stamp },
            Stamp { sender: 99, ..stamp },
            Stamp { lane: u32::MAX, ..stamp },
        ];
        for stamp in strange {
            receive(&ledger, stamp, false);
        }
        ledger.came(0, 0, &[(Err(Damage::Changed), None)]);
        assert_eq!(ledger.audit(false).damaged, 4);
    }
}
