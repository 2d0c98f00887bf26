//! Result of a load.

use std::collections::BTreeMap;
use std::time::Duration;

use results::{Agent, Audit, Mark, Process, Second};

use crate::burial::Burials;
use crate::ledger::Acknowledged;
use crate::plan::Until;
use crate::recorder::{Counts, Interval};

#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    pub seconds: Vec<Second>,
    pub marks: Vec<Mark>,
    pub phases: Vec<PhaseOutcome>,
    /// Latencies of all measured phases together.
    pub latencies: Interval,
    pub processes: Vec<Process>,
    pub audit: Audit,
    /// Errors and their counts.
    pub errors: BTreeMap<String, u64>,
    /// Time to create the topology.
    pub create: Duration,
    /// Reason for an early end.
    pub interrupted: Option<String>,
    pub drain: Drain,
    /// Counts of dead lettering, where there is any.
    pub burials: Burials,
    /// The agents that carried the load.
    pub agents: Vec<Agent>,
    /// By sender, in order of time, where the plan keeps them.
    pub acknowledged: Vec<Vec<Acknowledged>>,
}

/// Outcome of the wait for messages in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Drain {
    /// Every confirmed message was received and settled.
    Complete,
    /// Nothing arrived for so long that nothing will.
    Silent,
    /// The time limit expired.
    GivenUp,
}

#[derive(Clone, PartialEq, Debug)]
pub struct PhaseOutcome {
    pub name: String,
    pub measured: bool,
    /// Seconds since the start of the load.
    pub from: f64,
    pub to: f64,
    pub counts: Counts,
    pub latencies: Interval,
    /// Bytes waiting for receivers at its start and at its end.
    pub backlog: (u64, u64),
    pub until: Until,
    /// Its condition was met; always true if it waits for time only.
    pub reached: bool,
}

impl PhaseOutcome {
    pub fn seconds(&self) -> f64 {
        self.to - self.from
    }

    /// No message was confirmed within the time limit of its condition.
    pub fn is_silent(&self) -> bool {
        let awaited = matches!(self.until, Until::Confirmed { .. } | Until::ConfirmedToAll { .. });
        awaited && !self.reached
    }

    /// Rate per second, over the whole phase.
    pub fn rate(&self, count: impl Fn(Counts) -> u64) -> f64 {
        if self.to > self.from { count(self.counts) as f64 / self.seconds() } else { 0.0 }
    }
}

impl Outcome {
    /// Counts and seconds of all measured phases together.
    pub fn measured(&self) -> (Counts, f64) {
        let mut all = Counts::default();
        let mut seconds = 0.0;
        for phase in self.phases.iter().filter(|phase| phase.measured) {
            let Counts { sent, confirmed, received, settled, errors, repeated } = phase.counts;
            all.sent += sent;
            all.confirmed += confirmed;
            all.received += received;
            all.settled += settled;
            all.errors += errors;
            all.repeated += repeated;
            seconds += phase.seconds();
        }
        (all, seconds)
    }

    pub fn phase(&self, name: &str) -> Option<&PhaseOutcome> {
        self.phases.iter().find(|phase| phase.name == name)
    }
}
