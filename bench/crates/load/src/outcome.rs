//! What happened in a load.

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
    /// Of all measured phases together.
    pub latencies: Interval,
    pub processes: Vec<Process>,
    pub audit: Audit,
    /// What went wrong and how often.
    pub errors: BTreeMap<String, u64>,
    /// How long creating the topology took.
    pub create: Duration,
    /// Why it was stopped before its end, if it was.
    pub interrupted: Option<String>,
    pub drain: Drain,
    /// Where messages go to dead letters.
    pub burials: Burials,
    /// Those who carried it, if it was not this process.
    pub agents: Vec<Agent>,
    /// By sender, in order of time, where the plan keeps them.
    pub acknowledged: Vec<Vec<Acknowledged>>,
}

/// How the wait for what was still on its way ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Drain {
    /// Everything that was confirmed has come and was settled.
    Complete,
    /// Nothing has come for so long that nothing will.
    Silent,
    /// The time was up.
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
    /// Bytes that waited for receivers as it began and as it ended.
    pub backlog: (u64, u64),
    pub until: Until,
    /// What it waited for came to pass; always so of a phase that waits for time.
    pub reached: bool,
}

impl PhaseOutcome {
    pub fn seconds(&self) -> f64 {
        self.to - self.from
    }

    /// Nothing was confirmed for as long as it was waited for that.
    pub fn is_silent(&self) -> bool {
        let awaited = matches!(self.until, Until::Confirmed { .. } | Until::ConfirmedToAll { .. });
        awaited && !self.reached
    }

    /// A second, over the whole phase.
    pub fn rate(&self, count: impl Fn(Counts) -> u64) -> f64 {
        if self.to > self.from { count(self.counts) as f64 / self.seconds() } else { 0.0 }
    }
}

impl Outcome {
    /// Of all measured phases together: counts and seconds.
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
