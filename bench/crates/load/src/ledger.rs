//! The account of every single message: who sent it, whether that was confirmed, who received it,
//! in which order, whether it was settled. From it comes the audit.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use driver::{Confirmed, Failure};
use parking_lot::Mutex;
use results::{Audit, Finding};
use tokio::sync::Notify;

use crate::bits::Bits;
use crate::burial::Burials;
use crate::clock::{micros_between, now_ns};
use crate::payload::{Damage, Stamp};
use crate::recorder::Recorder;

/// Of each kind, so that a broken system does not fill the result.
const FINDINGS_MAX: usize = 10;

#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) senders: Vec<Arc<SenderAccount>>,
    subscriptions: Vec<Mutex<Received>>,
    /// From here on a message may come twice without a mark: something was killed, a connection
    /// broke, a message was left unsettled on purpose.
    disturbed: AtomicBool,
    settles_confirmed: bool,
    lanes: u32,
    arrived: Notify,
    /// By sender: what came as a dead letter.
    buried: Mutex<Vec<Bits>>,
}

// -------------------------------------------------------------------------------- what was sent

#[derive(Debug)]
pub(crate) struct SenderAccount {
    id: u16,
    recorder: Arc<Recorder>,
    /// Sequences given out.
    next: AtomicU64,
    state: Mutex<Sent>,
    /// The connection cannot be trusted any more.
    broken: AtomicBool,
}

#[derive(Debug, Default)]
struct Sent {
    confirmed: Bits,
    failed: u64,
    /// Sent and not yet answered: when due and when sent.
    under_way: HashMap<u64, (u64, u64)>,
}

impl SenderAccount {
    fn new(id: u16, recorder: Arc<Recorder>) -> Self {
        let (next, state, broken) = Default::default();
        Self { id, recorder, next, state, broken }
    }

    /// The stamp of the next message, which is sent now.
    pub(crate) fn next(&self, lane: u32, due_ns: u64) -> Stamp {
        let sequence = self.next.fetch_add(1, Relaxed);
        let now = now_ns();
        self.state.lock().under_way.insert(sequence, (due_ns, now));
        self.recorder.sent.fetch_add(1, Relaxed);
        let delay_us = micros_between(due_ns, now).min(u32::MAX.into()) as u32;
        Stamp { sender: self.id, lane, sequence, due_ns, delay_us }
    }

    pub(crate) fn under_way(&self) -> usize {
        self.state.lock().under_way.len()
    }

    /// Whether the connection has to be made anew; asked once.
    pub(crate) fn take_broken(&self) -> bool {
        self.broken.load(Relaxed) && self.broken.swap(false, Relaxed)
    }

    pub(crate) fn mark_broken(&self) {
        self.broken.store(true, Relaxed);
    }
}

impl Confirmed for SenderAccount {
    fn tell(&self, number: u64, sent: Result<(), Failure>) {
        let now = now_ns();
        let mut state = self.state.lock();
        let Some((due, started)) = state.under_way.remove(&number) else { return };
        match sent {
            Ok(()) => {
                state.confirmed.insert(number);
                drop(state);
                self.recorder.confirmed.fetch_add(1, Relaxed);
                self.recorder.record(self.id.into(), |interval| {
                    interval.send.record_us(micros_between(started, now));
                    interval.send_due.record_us(micros_between(due, now));
                    interval.send_delay.record_us(micros_between(due, started));
                });
            }
            Err(failure) => {
                state.failed += 1;
                drop(state);
                if matches!(failure, Failure::Unknown(_) | Failure::Unreachable { .. }) {
                    self.broken.store(true, Relaxed);
                }
                self.recorder.error("send", &failure);
            }
        }
    }
}

// ---------------------------------------------------------------------------- what was received

/// Of one subscription.
#[derive(Debug, Default)]
struct Received {
    senders: Vec<OfSender>,
    audit: Audit,
    by_lane: Vec<u64>,
    count: u64,
}

#[derive(Debug, Default)]
struct OfSender {
    seen: Bits,
    settled: Bits,
    /// One past the latest of each lane.
    lanes: HashMap<u32, u64>,
}

/// A message that a receiver got and that is to be settled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Came {
    pub(crate) stamp: Stamp,
    /// For the first time.
    pub(crate) first: bool,
}

impl Ledger {
    pub(crate) fn new(
        senders: u16,
        subscriptions: u32,
        lanes: u32,
        settles_confirmed: bool,
    ) -> Self {
        let recorder = Arc::new(Recorder::default());
        let account = |id| Arc::new(SenderAccount::new(id, Arc::clone(&recorder)));
        let received = |_| {
            let senders = (0..senders).map(|_| OfSender::default()).collect();
            let by_lane = vec![0; lanes as usize];
            Mutex::new(Received { senders, by_lane, ..Received::default() })
        };
        Self {
            senders: (0..senders).map(account).collect(),
            subscriptions: (0..subscriptions).map(received).collect(),
            disturbed: AtomicBool::new(false),
            recorder: Arc::clone(&recorder),
            settles_confirmed,
            lanes,
            arrived: Notify::new(),
            buried: Mutex::new(vec![Bits::default(); senders.into()]),
        }
    }

    pub(crate) fn disturb(&self) {
        self.disturbed.store(true, Relaxed);
    }

    pub(crate) fn is_disturbed(&self) -> bool {
        self.disturbed.load(Relaxed)
    }

    /// Messages came to a receiver: the stamp of each, or what is wrong with it, and whether the
    /// system says that it was delivered before.
    pub(crate) fn came(
        &self,
        task: usize,
        subscription: u32,
        messages: &[(Result<Stamp, Damage>, Option<bool>)],
    ) -> Vec<Option<Came>> {
        let now = now_ns();
        let disturbed = self.disturbed.load(Relaxed);
        let mut received = self.subscriptions[subscription as usize].lock();
        let mut first = 0;
        let came: Vec<Option<Came>> = messages
            .iter()
            .map(|(stamp, redelivered)| {
                let stamp = match stamp {
                    Ok(stamp) if self.was_sent(*stamp) => *stamp,
                    _ => {
                        received.audit.damaged += 1;
                        let what = format!("{stamp:?}");
                        let findings = &mut received.audit.findings;
                        add_finding(findings, "damaged", None, subscription, || what);
                        return None;
                    }
                };
                let new = received.came(stamp, *redelivered, subscription, disturbed, now);
                first += u64::from(new);
                Some(Came { stamp, first: new })
            })
            .collect();
        drop(received);
        self.recorder.received.fetch_add(first, Relaxed);
        self.arrived.notify_waiters();
        let again = came.iter().flatten().filter(|came| !came.first).count() as u64;
        if again > 0 {
            self.recorder.repeated.fetch_add(again, Relaxed);
        }
        self.recorder.record(task, |interval| {
            for came in came.iter().flatten().filter(|came| came.first) {
                interval.receive.record_us(micros_between(came.stamp.sent_ns(), now));
                interval.receive_due.record_us(micros_between(came.stamp.due_ns, now));
            }
        });
        came
    }

    /// Returns when the first subscription has received this message.
    pub(crate) async fn has_come(&self, sender: u16, sequence: u64) {
        loop {
            let arrived = self.arrived.notified();
            tokio::pin!(arrived);
            // From here on an arrival is not missed.
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

    fn was_sent(&self, stamp: Stamp) -> bool {
        let sender = self.senders.get(usize::from(stamp.sender));
        sender.is_some_and(|sender| stamp.sequence < sender.next.load(Relaxed))
            && stamp.lane < self.lanes
    }

    /// A receiver has settled these, and `settle` said that it went well.
    pub(crate) fn settled(&self, task: usize, subscription: u32, stamps: &[Stamp]) {
        let now = now_ns();
        let mut received = self.subscriptions[subscription as usize].lock();
        let mut new = 0;
        for stamp in stamps {
            new += u64::from(
                received.senders[usize::from(stamp.sender)].settled.insert(stamp.sequence),
            );
        }
        drop(received);
        self.recorder.settled.fetch_add(new, Relaxed);
        self.recorder.record(task, |interval| {
            for stamp in stamps {
                interval.settle.record_us(micros_between(stamp.sent_ns(), now));
            }
        });
    }

    /// Dead letters came: of the first subscription, they are settled by that.
    pub(crate) fn buried(&self, task: usize, read: Vec<Result<Stamp, Damage>>) {
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
        self.settled(task, 0, &stamps);
    }

    /// What became of what is never settled.
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

    /// Confirmed messages that not every subscription has received yet, counted once for each.
    pub(crate) fn missing(&self) -> u64 {
        let missing = |received: &Mutex<Received>| {
            let received = received.lock();
            let of_sender = |(account, seen): (&Arc<SenderAccount>, &OfSender)| {
                account.state.lock().confirmed.without(&seen.seen).count() as u64
            };
            self.senders.iter().zip(&received.senders).map(of_sender).sum::<u64>()
        };
        self.subscriptions.iter().map(missing).sum()
    }

    // ------------------------------------------------------------------------------ the audit

    /// What became of everything. `drained`: nothing is still on its way, so what has not come is
    /// lost.
    pub(crate) fn audit(&self, drained: bool) -> Audit {
        let mut audit = Audit::default();
        for sender in &self.senders {
            let state = sender.state.lock();
            audit.confirmed += state.confirmed.count();
            audit.unconfirmed += state.failed + state.under_way.len() as u64;
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
        for (account, of_sender) in self.senders.iter().zip(&received.senders) {
            let sent = account.state.lock();
            audit.unconfirmed_received += of_sender.seen.without(&sent.confirmed).count() as u64;
            if !drained {
                continue;
            }
            for sequence in sent.confirmed.without(&of_sender.seen) {
                audit.lost += 1;
                let stamp = Stamp { sender: account.id, lane: 0, sequence, due_ns: 0, delay_us: 0 };
                let what = || "confirmed, and never received".to_owned();
                add_finding(&mut audit.findings, "lost", Some(stamp), subscription, what);
            }
        }
    }
}

impl Received {
    /// True when it is new.
    fn came(
        &mut self,
        stamp: Stamp,
        redelivered: Option<bool>,
        subscription: u32,
        disturbed: bool,
        now: u64,
    ) -> bool {
        let of_sender = &mut self.senders[usize::from(stamp.sender)];
        if !of_sender.seen.insert(stamp.sequence) {
            self.audit.repeated += 1;
            if of_sender.settled.contains(stamp.sequence) {
                self.audit.settled_again += 1;
                let what = || "received again after it was settled".to_owned();
                add_finding(
                    &mut self.audit.findings,
                    "settled-again",
                    Some(stamp),
                    subscription,
                    what,
                );
            } else if redelivered == Some(false) && !disturbed {
                self.audit.repeated_unmarked += 1;
                let what = || "came twice, without a mark or a reason".to_owned();
                add_finding(&mut self.audit.findings, "repeated", Some(stamp), subscription, what);
            }
            return false;
        }
        let next = of_sender.lanes.entry(stamp.lane).or_default();
        let latest = *next;
        *next = latest.max(stamp.sequence + 1);
        if stamp.sequence < latest {
            self.audit.out_of_order += 1;
            let what = || format!("came after {} of its lane", latest - 1);
            add_finding(&mut self.audit.findings, "out-of-order", Some(stamp), subscription, what);
        }
        let dwell = micros_between(stamp.sent_ns(), now);
        self.audit.dwell_max_us = self.audit.dwell_max_us.max(dwell);
        self.by_lane[stamp.lane as usize] += 1;
        self.count += 1;
        true
    }
}

fn add_finding(
    findings: &mut Vec<Finding>,
    kind: &str,
    stamp: Option<Stamp>,
    subscription: u32,
    what: impl FnOnce() -> String,
) {
    if findings.iter().filter(|finding| finding.kind == kind).count() < FINDINGS_MAX {
        findings.push(Finding {
            kind: kind.to_owned(),
            sender: stamp.map_or(0, |stamp| stamp.sender.into()),
            sequence: stamp.map_or(0, |stamp| stamp.sequence),
            lane: stamp.map_or(0, |stamp| stamp.lane),
            subscription,
            what: what(),
        });
    }
}

/// The least over the most; none where there is nothing to compare.
fn fairness(counts: &[u64]) -> Option<f64> {
    let (least, most) = (*counts.iter().min()?, *counts.iter().max()?);
    (counts.len() > 1 && most > 0).then(|| least as f64 / most as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger() -> Ledger {
        Ledger::new(2, 1, 4, true)
    }

    fn send(ledger: &Ledger, sender: usize, lane: u32) -> Stamp {
        let account = &ledger.senders[sender];
        let stamp = account.next(lane, now_ns());
        account.tell(stamp.sequence, Ok(()));
        stamp
    }

    fn receive(ledger: &Ledger, stamp: Stamp, redelivered: bool) {
        ledger.came(0, 0, &[(Ok(stamp), Some(redelivered))]);
    }

    #[test]
    fn what_was_confirmed_and_never_came_is_lost() {
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
    fn what_may_still_come_is_not_lost() {
        let ledger = ledger();
        send(&ledger, 0, 0);
        assert_eq!(ledger.audit(false).lost, 0);
    }

    #[test]
    fn what_nobody_confirmed_may_come_or_not() {
        let ledger = ledger();
        let account = &ledger.senders[0];
        let (came, gone) = (account.next(0, now_ns()), account.next(0, now_ns()));
        account.tell(came.sequence, Err(Failure::unknown("broke")));
        account.tell(gone.sequence, Err(Failure::unknown("broke")));
        assert!(account.take_broken() && !account.take_broken());
        receive(&ledger, came, false);
        let audit = ledger.audit(true);
        assert_eq!((audit.lost, audit.unconfirmed, audit.unconfirmed_received), (0, 2, 1));
        assert!(audit.faults(true).is_empty());
        assert_eq!(ledger.recorder.errors()["send: unknown outcome: broke"], 2);
    }

    #[test]
    fn a_lane_that_is_out_of_order_is_seen_and_other_lanes_do_not_matter() {
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
    fn coming_again_needs_a_mark_or_a_reason() {
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
    fn what_was_settled_must_not_come_again_whatever_mark_it_has() {
        let ledger = ledger();
        let stamp = send(&ledger, 0, 0);
        receive(&ledger, stamp, false);
        ledger.settled(0, 0, &[stamp]);
        ledger.disturb();
        receive(&ledger, stamp, true);
        assert_eq!(ledger.audit(true).settled_again, 1);
    }

    #[test]
    fn bodies_of_strangers_are_damage_and_cost_no_memory() {
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
