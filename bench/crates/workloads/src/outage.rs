//! Phases in which nodes fail and return.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use load::{Outcome, Phase, Until};

use crate::context::Faults;

/// Prefix of the phases that wait for a node.
const BACK: &str = "back";

/// Kinds of faults of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// `kill -9`, and a restart.
    Kill,
    /// SIGTERM, and a restart.
    Terminate,
    /// SIGSTOP, and SIGCONT: its connections stay open, but nothing replies.
    Pause,
}

impl Fault {
    /// The fault's name in marks.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill -9",
            Self::Terminate => "SIGTERM",
            Self::Pause => "SIGSTOP",
        }
    }

    /// Injects the fault. Returns once it has taken effect, with the time of the signal.
    pub(crate) async fn strike(self, faults: &dyn Faults, node: u32) -> Result<Instant, String> {
        match self {
            Self::Kill => faults.kill(node).await,
            Self::Terminate => faults.stop(node).await,
            Self::Pause => faults.pause(node).await,
        }
    }

    /// Ends the fault and brings the node back.
    pub(crate) async fn end(self, faults: &dyn Faults, node: u32) -> Result<(), String> {
        match self {
            Self::Kill | Self::Terminate => faults.start(node).await,
            Self::Pause => faults.resume(node).await,
        }
    }

    fn ending(self) -> &'static str {
        match self {
            Self::Kill | Self::Terminate => "starts",
            Self::Pause => "goes on",
        }
    }
}

/// A phase that begins with an action on the nodes.
pub(crate) fn acting(
    faults: &Arc<dyn Faults>,
    what: impl Into<String>,
    phase: Phase,
    act: impl FnOnce(Arc<dyn Faults>) -> BoxFuture<'static, Result<(), String>> + Send + Sync + 'static,
) -> Phase {
    let faults = Arc::clone(faults);
    Phase { action: Some((what.into(), Box::new(move || act(faults)))), ..phase }
}

/// A phase in which a node has failed, of this length.
pub(crate) fn struck(
    faults: &Arc<dyn Faults>,
    fault: Fault,
    node: u32,
    name: &str,
    time: Duration,
) -> Phase {
    let phase = Phase::measured(name, time);
    acting(faults, format!("{} of node {node}", fault.name()), phase, move |faults| {
        Box::pin(async move { fault.strike(&*faults, node).await.map(drop) })
    })
}

/// A phase in which the node returns. It lasts until the server confirms again, since a started
/// server needs from a tenth of a second to fifteen seconds.
pub(crate) fn back(
    faults: &Arc<dyn Faults>,
    fault: Fault,
    node: u32,
    which: &str,
    at_most: Duration,
) -> Phase {
    let what = format!("node {node} {}", fault.ending());
    acting(faults, what, waiting(which, at_most), move |faults| {
        Box::pin(async move { fault.end(&*faults, node).await })
    })
}

/// A phase that begins with a power cut of all nodes.
pub(crate) fn without_power(faults: &Arc<dyn Faults>, name: &str) -> Phase {
    acting(faults, "the power fails", Phase::measured(name, Duration::ZERO), |faults| {
        Box::pin(async move { faults.cut_power().await })
    })
}

/// A phase in which the power returns, as with [`back`].
pub(crate) fn power_back(faults: &Arc<dyn Faults>, which: &str, at_most: Duration) -> Phase {
    acting(faults, "the power is back", waiting(which, at_most), |faults| {
        Box::pin(async move { faults.start_all().await })
    })
}

fn waiting(which: &str, at_most: Duration) -> Phase {
    let until = Until::Confirmed { at_most };
    Phase { until, ..Phase::measured(&format!("{BACK}{which}"), Duration::ZERO) }
}

/// Longest time from the start of a node to a confirmation; in seconds.
pub(crate) fn longest_back(outcome: &Outcome) -> f64 {
    let waited = outcome.phases.iter().filter(|phase| phase.name.starts_with(BACK));
    waited.map(load::PhaseOutcome::seconds).fold(0.0, f64::max)
}

/// Largest number of consecutive seconds without a confirmation, while senders were active.
pub(crate) fn longest_silence(outcome: &Outcome) -> usize {
    let end = outcome.phases.last().map_or(0.0, |phase| phase.to);
    let sending = outcome.seconds.partition_point(|second| (second.at as f64) < end);
    let silent = outcome.seconds[..sending].split(|second| second.confirmed > 0);
    silent.map(<[_]>::len).max().unwrap_or(0)
}
