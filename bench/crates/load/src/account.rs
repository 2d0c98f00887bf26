//! The one account of a load that several agents carry.
//!
//! Each agent reports its events. They are sorted by time here and go into the same ledger that a
//! load of one process has. So deliveries at different agents and the order of lanes that move
//! between agents are judged by the same rules. Clocks never agree fully: two events that may be
//! swapped because of clock error do not count against the system.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use results::Audit;
use serde::{Deserialize, Serialize};

use crate::burial::Burials;
use crate::journal::{self, Event};
use crate::ledger::Ledger;
use crate::plan::{Plan, Work};
use crate::recorder::{Counts, Interval};

/// Upper limit of a plausible rate. An agent that reports more is wrong, and would cost memory.
const SENT_PER_SECOND_MAX: u64 = 20_000_000;
/// Allowance for the time before the start, and for clock differences.
const GRACE_SECONDS: u64 = 10;

/// An agent's reply to a look.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// By the coordinator's clock; no older event will follow.
    pub until_ns: u64,
    /// Messages sent so far by each of its senders.
    pub sent: Vec<(u16, u64)>,
    /// Errors so far.
    pub errors: u64,
    pub sending: bool,
    pub under_way: bool,
    /// The journal already holds further events.
    pub more: bool,
    /// Latencies of senders; those of receivers are derived from the account.
    pub latencies: Option<Interval>,
    /// Encoded events: not part of the report's text.
    #[serde(skip)]
    pub journal: Vec<u8>,
}

/// An agent reported impossible events.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("it reports what cannot have happened")]
pub struct Implausible;

#[derive(Debug)]
pub struct Account {
    ledger: Ledger,
    began: Instant,
    agents: Vec<Told>,
}

/// The reports of one agent.
#[derive(Debug, Default)]
struct Told {
    waiting: VecDeque<Event>,
    until_ns: u64,
    errors: u64,
    /// The agent sends no more reports.
    over: bool,
}

impl Account {
    pub fn new(plan: &Plan, settles_confirmed: bool, agents: usize) -> Self {
        let subscriptions = plan.topology.subscriptions;
        let ledger = Ledger::new(plan.senders, subscriptions, plan.all_lanes(), settles_confirmed);
        let agents = (0..agents).map(|_| Told::default()).collect();
        Self { ledger, began: Instant::now(), agents }
    }

    /// Records an agent's report. Its events count once all agents have reported up to their time.
    pub fn record(&mut self, agent: usize, report: &Report) -> Result<(), Implausible> {
        let told = self.agents.get_mut(agent).ok_or(Implausible)?;
        let seconds = self.began.elapsed().as_secs() + GRACE_SECONDS;
        for (sender, count) in &report.sent {
            let plausible = *count <= seconds * SENT_PER_SECOND_MAX;
            if !plausible || !self.ledger.sent_elsewhere(*sender, *count) {
                return Err(Implausible);
            }
        }
        told.waiting.extend(journal::decode(&report.journal).map_err(|_| Implausible)?);
        told.until_ns = told.until_ns.max(report.until_ns);
        told.errors = told.errors.max(report.errors);
        Ok(())
    }

    /// Stops waiting for reports of this agent.
    pub fn over(&mut self, agent: usize) {
        if let Some(told) = self.agents.get_mut(agent) {
            told.over = true;
        }
    }

    pub fn disturb(&self) {
        self.ledger.disturb();
    }

    pub fn is_disturbed(&self) -> bool {
        self.ledger.is_disturbed()
    }

    /// Enters all events up to the time that every agent has reported. `apart_ns` is the largest
    /// difference between any two clocks. The error is the agent with implausible events.
    pub fn enter(&mut self, apart_ns: u64) -> Result<(), usize> {
        let living = self.agents.iter().filter(|told| !told.over);
        // Where clocks differ, a message may seem to arrive before it was sent.
        let until_ns = living.map(|told| told.until_ns).min();
        let until_ns = until_ns.map_or(u64::MAX, |until| until.saturating_sub(apart_ns));
        loop {
            let first = |(agent, told): (usize, &Told)| {
                told.waiting.front().map(|event| (event.at_ns, agent))
            };
            let first = self.agents.iter().enumerate().filter_map(first).min();
            let Some((_, agent)) = first.filter(|(at_ns, _)| *at_ns <= until_ns) else {
                return Ok(());
            };
            let Some(event) = self.agents[agent].waiting.pop_front() else { return Ok(()) };
            if !self.ledger.replay(event, agent as u16, apart_ns) {
                return Err(agent);
            }
        }
    }

    /// Whether reported events have not been entered yet.
    pub fn is_waiting(&self) -> bool {
        self.agents.iter().any(|told| !told.waiting.is_empty())
    }

    pub fn counts(&self) -> Counts {
        let counts = self.ledger.recorder.counts();
        let errors = self.agents.iter().map(|told| told.errors).sum::<u64>() + counts.errors;
        Counts { errors, ..counts }
    }

    /// Errors found in the agents' reports. Agents report their own errors themselves.
    pub fn errors(&self) -> BTreeMap<String, u64> {
        self.ledger.recorder.errors()
    }

    /// Latencies of receivers since the last call.
    pub fn take(&self) -> Interval {
        self.ledger.recorder.take()
    }

    pub fn missing(&self) -> u64 {
        self.ledger.missing()
    }

    /// `complete`: all agents have reported everything, and nothing is in flight.
    pub fn audit(&self, complete: bool) -> Audit {
        self.ledger.audit(complete)
    }

    pub fn burials(&self, work: &Work) -> Burials {
        self.ledger.burials(|sequence| work.is_poison(sequence))
    }
}

/// Adds error counts by their text.
pub fn add_errors(all: &mut BTreeMap<String, u64>, some: BTreeMap<String, u64>) {
    for (what, count) in some {
        *all.entry(what).or_default() += count;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use driver::{Style, Tier, Topology};

    use super::*;
    use crate::journal::What;
    use crate::payload::Stamp;

    const APART_NS: u64 = 100;

    fn account(agents: usize) -> Account {
        let topology = Topology::new("t", Style::Queue, Tier::T0);
        let mut plan = Plan::new(topology, 100, Duration::from_secs(1));
        (plan.senders, plan.lanes) = (2, 4);
        Account::new(&plan, true, agents)
    }

    fn stamp(sequence: u64) -> Stamp {
        Stamp { sender: 0, lane: 1, sequence, due_ns: 0, delay_us: 0 }
    }

    fn came(sequence: u64, redelivered: bool) -> What {
        What::came(0, (Ok(stamp(sequence)), Some(redelivered)))
    }

    fn confirmed(first: u64, count: u64) -> What {
        What::Confirmed { sender: 0, first, count }
    }

    fn settled(sequence: u64) -> What {
        What::Settled { subscription: 0, stamp: stamp(sequence) }
    }

    /// The first agent has sent ten messages. Then each agent reports its events.
    fn report_all(account: &mut Account, told: &[&[(u64, What)]]) {
        for (agent, events) in told.iter().enumerate() {
            let events = events.iter().map(|(at_ns, what)| Event { at_ns: *at_ns, what: *what });
            let journal = journal::encode(events);
            let sent = if agent == 0 { vec![(0, 10)] } else { Vec::new() };
            let report = Report { until_ns: 1_000_000, sent, journal, ..Report::default() };
            account.record(agent, &report).expect("is plausible");
        }
    }

    fn audit_of(told: &[&[(u64, What)]]) -> Audit {
        let mut account = account(told.len());
        report_all(&mut account, told);
        account.enter(APART_NS).expect("nobody tells what cannot be");
        account.audit(true)
    }

    #[test]
    fn messages_between_agents_are_accounted_for() {
        let audit = audit_of(&[
            &[(5_000, confirmed(0, 3))],
            &[(6_000, came(0, false)), (7_000, settled(0))],
            &[(6_500, came(2, false))],
        ]);
        assert_eq!((audit.confirmed, audit.unconfirmed, audit.received), (3, 7, 2));
        assert_eq!((audit.lost, audit.findings[0].sequence), (1, 1));
        assert_eq!(audit.faults(true).len(), 1, "{audit:?}");
    }

    #[test]
    fn redelivery_at_another_agent_needs_a_mark_or_a_disturbance() {
        let first: &[_] = &[(5_000, confirmed(0, 1)), (6_000, came(0, false))];
        let twice = audit_of(&[first, &[(9_000, came(0, false))]]);
        assert_eq!((twice.received, twice.repeated, twice.repeated_unmarked), (1, 1, 1));
        let marked = audit_of(&[first, &[(9_000, came(0, true))]]);
        assert_eq!((marked.repeated, marked.repeated_unmarked), (1, 0));
        // The marked delivery seems to have come before the other.
        let swapped = audit_of(&[first, &[(5_950, came(0, true))]]);
        assert_eq!((swapped.repeated, swapped.repeated_unmarked), (1, 0));
        let broken = audit_of(&[first, &[(8_000, What::Disturbed), (9_000, came(0, false))]]);
        assert_eq!((broken.repeated, broken.repeated_unmarked), (1, 0));
    }

    #[test]
    fn order_across_agents_is_checked_within_clock_error() {
        let ahead: &[_] = &[(5_000, came(4, false))];
        assert_eq!(audit_of(&[ahead, &[(4_000, came(3, false))]]).out_of_order, 0);
        assert_eq!(audit_of(&[ahead, &[(6_000, came(3, false))]]).out_of_order, 1);
        assert_eq!(audit_of(&[ahead, &[(5_050, came(3, false))]]).out_of_order, 0);
        let same: &[_] = &[(5_000, came(4, false)), (5_001, came(3, false))];
        assert_eq!(audit_of(&[same]).out_of_order, 1);
    }

    #[test]
    fn message_settled_at_one_agent_must_not_reach_another_later() {
        let first: &[_] = &[(5_000, came(0, false)), (6_000, settled(0))];
        assert_eq!(audit_of(&[first, &[(9_000, came(0, true))]]).settled_again, 1);
        // Its lease had ended, and the settle came late: before or after the redelivery.
        assert_eq!(audit_of(&[first, &[(5_500, came(0, true))]]).settled_again, 0);
        assert_eq!(audit_of(&[first, &[(6_050, came(0, true))]]).settled_again, 0);
    }

    #[test]
    fn events_count_once_all_agents_have_reported_up_to_them() {
        let mut account = account(2);
        report_all(&mut account, &[&[(5_000, confirmed(0, 1))]]);
        account.enter(APART_NS).expect("is sound");
        assert_eq!(account.counts().confirmed, 0);
        report_all(&mut account, &[&[], &[(6_000, came(0, false))]]);
        account.enter(APART_NS).expect("is sound");
        assert_eq!((account.counts().confirmed, account.counts().received), (1, 1));
        assert_eq!((account.counts().sent, account.missing()), (10, 0));
        account.over(1);
        report_all(&mut account, &[&[(7_000, confirmed(1, 1))]]);
        account.enter(APART_NS).expect("is sound");
        assert_eq!(account.missing(), 1);
    }

    #[test]
    fn implausible_reports_are_rejected() {
        let mut account = account(1);
        let report = |sent, journal| Report { sent: vec![sent], journal, ..Report::default() };
        for wrong in
            [report((2, 1), vec![]), report((0, 1 << 40), vec![]), report((0, 1), vec![99])]
        {
            assert_eq!(account.record(0, &wrong), Err(Implausible));
        }
        report_all(&mut account, &[&[(5_000, confirmed(9, 2))]]);
        assert_eq!(account.enter(APART_NS), Err(0), "eleven were confirmed and ten sent");
    }

    #[test]
    fn dead_letters_match_poison_released_at_other_agents() {
        let mut account = account(2);
        let buried = |sequence| What::Buried { stamp: Ok(stamp(sequence)) };
        report_all(
            &mut account,
            &[
                &[(5_000, came(0, false)), (5_500, came(3, false)), (5_600, came(4, false))],
                &[(7_000, buried(0)), (7_100, buried(4)), (7_200, buried(11))],
            ],
        );
        account.enter(APART_NS).expect("is sound");
        let burials = account.burials(&Work::Poison { every: 3 });
        assert_eq!((burials.poison, burials.buried, burials.sound), (2, 1, 1));
        // The last one was never sent.
        assert_eq!((account.counts().settled, account.counts().errors), (2, 1));
    }

    #[test]
    fn message_never_sent_counts_as_damaged() {
        let audit = audit_of(&[
            &[(5_000, came(0, false))],
            &[(6_000, came(10, false)), (7_000, settled(10))],
        ]);
        assert_eq!((audit.damaged, audit.received), (1, 1));
    }
}
