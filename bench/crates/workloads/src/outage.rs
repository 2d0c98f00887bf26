//! Nodes are gone for a while, and come back.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use load::{Outcome, Phase, Until};

use crate::context::Faults;

/// How the phases begin that wait for a node.
const BACK: &str = "back";

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

/// A node is killed, and gone for so long.
pub(crate) fn killed(faults: &Arc<dyn Faults>, node: u32, name: &str, time: Duration) -> Phase {
    let phase = Phase::measured(name, time);
    acting(faults, format!("kill -9 of node {node}"), phase, move |faults| {
        Box::pin(async move { faults.kill(node).await.map(drop) })
    })
}

/// It is started. Servers take from a tenth of a second to a quarter of a minute until they serve
/// again, so that what follows begins only then.
pub(crate) fn back(faults: &Arc<dyn Faults>, node: u32, which: &str, at_most: Duration) -> Phase {
    acting(faults, format!("node {node} starts"), waiting(which, at_most), move |faults| {
        Box::pin(async move { faults.start(node).await })
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
