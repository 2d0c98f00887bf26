//! A node is gone for a while, and comes back.

use std::sync::Arc;
use std::time::Duration;

use load::{Outcome, Phase, Until};

use crate::context::Faults;

/// How the phases begin that wait for a node.
const BACK: &str = "back";

/// It is killed, and gone for so long.
pub(crate) fn killed(faults: &Arc<dyn Faults>, node: u32, name: &str, time: Duration) -> Phase {
    let faults = Arc::clone(faults);
    Phase {
        action: Some((
            format!("kill -9 of node {node}"),
            Box::new(move || Box::pin(async move { faults.kill(node).await })),
        )),
        ..Phase::measured(name, time)
    }
}

/// It is started. Servers take from a tenth of a second to a quarter of a minute until they serve
/// again, so that what follows begins only then.
pub(crate) fn back(faults: &Arc<dyn Faults>, node: u32, which: &str, at_most: Duration) -> Phase {
    let faults = Arc::clone(faults);
    Phase {
        until: Until::Confirmed { at_most },
        action: Some((
            format!("node {node} starts"),
            Box::new(move || Box::pin(async move { faults.start(node).await })),
        )),
        ..Phase::measured(&format!("{BACK}{which}"), Duration::ZERO)
    }
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
