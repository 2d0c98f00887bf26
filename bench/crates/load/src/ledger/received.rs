//! Messages received by one subscription, and their faults.

use std::collections::{HashMap, VecDeque};

use results::{Audit, Finding};

use crate::bits::Bits;
use crate::clock::micros_between;
use crate::payload::Stamp;

/// Limit for each kind, so that a broken system does not fill the result.
const FINDINGS_MAX: usize = 10;

/// Time of an event and the agent whose clock it is by: two agents' clocks never agree fully.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Moment {
    pub(crate) at_ns: u64,
    pub(crate) agent: u16,
    /// Largest difference of two agents' clocks.
    pub(crate) apart_ns: u64,
}

impl Moment {
    /// A moment of a load in one process.
    pub(super) fn here(at_ns: u64) -> Self {
        Self { at_ns, agent: 0, apart_ns: 0 }
    }

    /// Whether it is certainly after an event that was entered before it.
    fn is_after(self, at_ns: u64, agent: u16) -> bool {
        self.agent == agent || self.at_ns > at_ns.saturating_add(self.apart_ns)
    }

    /// Whether events entered earlier may have happened later.
    fn may_be_swapped(self) -> bool {
        self.apart_ns > 0
    }
}

#[derive(Debug, Default)]
pub(super) struct Received {
    pub(super) senders: Vec<OfSender>,
    pub(super) audit: Audit,
    pub(super) by_lane: Vec<u64>,
    pub(super) count: u64,
    /// Messages settled so recently that another agent may have received them before.
    just_settled: VecDeque<(Moment, u16, u64)>,
}

#[derive(Debug, Default)]
pub(super) struct OfSender {
    pub(super) seen: Bits,
    settled: Bits,
    /// Marked as redelivered at the first delivery; kept where events may be swapped.
    marked: Bits,
    lanes: HashMap<u32, Latest>,
}

/// The latest message of a lane.
#[derive(Clone, Copy, Debug)]
struct Latest {
    /// One past its sequence.
    next: u64,
    at_ns: u64,
    agent: u16,
}

impl Received {
    pub(super) fn new(senders: u16, lanes: u32) -> Self {
        let senders = (0..senders).map(|_| OfSender::default()).collect();
        Self { senders, by_lane: vec![0; lanes as usize], ..Self::default() }
    }

    /// Returns true if the message is new.
    pub(super) fn came(
        &mut self,
        stamp: Stamp,
        redelivered: Option<bool>,
        subscription: u32,
        disturbed: bool,
        now: Moment,
    ) -> bool {
        let of_sender = &mut self.senders[usize::from(stamp.sender)];
        if !of_sender.seen.insert(stamp.sequence) {
            self.came_again(stamp, redelivered, subscription, disturbed, now);
            return false;
        }
        if redelivered == Some(true) && now.may_be_swapped() {
            of_sender.marked.insert(stamp.sequence);
        }
        let new = Latest { next: stamp.sequence + 1, at_ns: now.at_ns, agent: now.agent };
        let latest = of_sender.lanes.entry(stamp.lane).or_insert(new);
        if stamp.sequence >= latest.next {
            *latest = new;
        } else if stamp.sequence + 1 < latest.next && now.is_after(latest.at_ns, latest.agent) {
            let after = latest.next - 1;
            self.audit.out_of_order += 1;
            self.find("out-of-order", stamp, subscription, || {
                format!("came after {after} of its lane")
            });
        }
        let dwell = micros_between(stamp.sent_ns(), now.at_ns);
        self.audit.dwell_max_us = self.audit.dwell_max_us.max(dwell);
        self.by_lane[stamp.lane as usize] += 1;
        self.count += 1;
        true
    }

    fn came_again(
        &mut self,
        stamp: Stamp,
        redelivered: Option<bool>,
        subscription: u32,
        disturbed: bool,
        now: Moment,
    ) {
        self.audit.repeated += 1;
        let of_sender = &self.senders[usize::from(stamp.sender)];
        let was_settled = of_sender.settled.contains(stamp.sequence);
        if was_settled && !self.was_just_settled(stamp, now) {
            self.audit.settled_again += 1;
            let what = || "received again after it was settled".to_owned();
            self.find("settled-again", stamp, subscription, what);
        } else if redelivered == Some(false)
            && !disturbed
            && !of_sender.marked.contains(stamp.sequence)
        {
            self.audit.repeated_unmarked += 1;
            let what = || "came twice, without a mark or a reason".to_owned();
            self.find("repeated", stamp, subscription, what);
        }
    }

    /// Whether another agent settled it, maybe after this delivery.
    fn was_just_settled(&self, stamp: Stamp, now: Moment) -> bool {
        self.just_settled.iter().any(|(settled, sender, sequence)| {
            (*sender, *sequence) == (stamp.sender, stamp.sequence)
                && !now.is_after(settled.at_ns, settled.agent)
        })
    }

    /// Returns true if it had not been settled before.
    pub(super) fn settled(&mut self, stamp: Stamp, now: Moment) -> bool {
        if now.may_be_swapped() {
            let over = |(settled, _, _): &mut (Moment, u16, u64)| {
                now.at_ns > settled.at_ns.saturating_add(settled.apart_ns)
            };
            while self.just_settled.pop_front_if(over).is_some() {}
            self.just_settled.push_back((now, stamp.sender, stamp.sequence));
        }
        self.senders[usize::from(stamp.sender)].settled.insert(stamp.sequence)
    }

    pub(super) fn damaged(&mut self, subscription: u32, what: String) {
        self.audit.damaged += 1;
        add_finding(&mut self.audit.findings, "damaged", None, subscription, || what);
    }

    fn find(&mut self, kind: &str, stamp: Stamp, subscription: u32, what: impl FnOnce() -> String) {
        add_finding(&mut self.audit.findings, kind, Some(stamp), subscription, what);
    }
}

pub(super) fn add_finding(
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
