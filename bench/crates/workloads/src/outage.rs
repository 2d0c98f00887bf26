//! Nodes are gone for a while, and come back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use load::{Outcome, Phase, Until};

use crate::context::Faults;

/// How the phases begin that wait for a node.
const BACK: &str = "back";

/// What happens to a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// `kill -9`, and it is started again.
    Kill,
    /// SIGTERM, and it is started again.
    Terminate,
    /// SIGSTOP, and SIGCONT: its connections stay open, and nobody answers.
    Pause,
}

impl Fault {
    /// As marks have it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill -9",
            Self::Terminate => "SIGTERM",
            Self::Pause => "SIGSTOP",
        }
    }

    /// Returns when it has happened, with when the signal was sent.
    pub(crate) async fn strike(self, faults: &dyn Faults, node: u32) -> Result<Instant, String> {
        match self {
            Self::Kill => faults.kill(node).await,
            Self::Terminate => faults.stop(node).await,
            Self::Pause => faults.pause(node).await,
        }
    }

    /// The node comes back.
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

/// A phase that begins with what is done to the nodes.
pub(crate) fn acting(
    faults: &Arc<dyn Faults>,
    what: impl Into<String>,
    phase: Phase,
    act: impl FnOnce(Arc<dyn Faults>) -> BoxFuture<'static, Result<(), String>> + Send + Sync + 'static,
) -> Phase {
    let faults = Arc::clone(faults);
    Phase { action: Some((what.into(), Box::new(move || act(faults)))), ..phase }
}

/// Something happens to a node, and it is gone for so long.
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

/// It comes back. Servers that are started take from a tenth of a second to a quarter of a minute
/// until they serve again, so that what follows begins only then.
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

/// The power of all nodes is cut.
pub(crate) fn without_power(faults: &Arc<dyn Faults>, name: &str) -> Phase {
    acting(faults, "the power fails", Phase::measured(name, Duration::ZERO), |faults| {
        Box::pin(async move { faults.cut_power().await })
    })
}

/// And back, as with [`back`].
pub(crate) fn power_back(faults: &Arc<dyn Faults>, which: &str, at_most: Duration) -> Phase {
    acting(faults, "the power is back", waiting(which, at_most), |faults| {
        Box::pin(async move { faults.start_all().await })
    })
}

fn waiting(which: &str, at_most: Duration) -> Phase {
    let until = Until::Confirmed { at_most };
    Phase { until, ..Phase::measured(&format!("{BACK}{which}"), Duration::ZERO) }
}

/// The longest that it took, from the start of a node to a confirmation; seconds.
pub(crate) fn longest_back(outcome: &Outcome) -> f64 {
    let waited = outcome.phases.iter().filter(|phase| phase.name.starts_with(BACK));
    waited.map(load::PhaseOutcome::seconds).fold(0.0, f64::max)
}

/// The most seconds in a row in which nothing was confirmed, for as long as there were senders.
pub(crate) fn longest_silence(outcome: &Outcome) -> usize {
    let end = outcome.phases.last().map_or(0.0, |phase| phase.to);
    let sending = outcome.seconds.partition_point(|second| (second.at as f64) < end);
    let silent = outcome.seconds[..sending].split(|second| second.confirmed > 0);
    silent.map(<[_]>::len).max().unwrap_or(0)
}
