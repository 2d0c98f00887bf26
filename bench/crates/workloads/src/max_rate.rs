//! The highest rate that a system sustains: tries at fixed rates until the highest pass and the
//! lowest failure are close. Used by `omb/max-rate` and by workload files.

use load::search::{self, Search};
use load::{Outcome, Plan};
use results::Step;

use crate::context::{Context, Problem};
use crate::judge::{Facts, confirmed_rate, higher, lower, ms, received_rate};

/// In messages a second.
const START: f64 = 10_000.0;
const LEAST: f64 = 50.0;
const MOST: f64 = 5_000_000.0;

/// Result of the tries.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// The highest rate that passed. `None` if none did, or if messages were lost, damaged, or
    /// never arrived at a sustained rate: such a system has no highest rate.
    pub(crate) rate: Option<f64>,
    pub(crate) steps: Vec<Step>,
    /// Reason for the failure of the lowest failed rate.
    pub(crate) limit: Option<String>,
    /// The try shown in the result: the best, or the faulty one.
    pub(crate) best: Option<(Facts, Outcome)>,
}

/// Tries one rate after the other, with the plan that `plan` makes for it. `precision`: largest
/// relative gap between the highest pass and the lowest failure.
pub(crate) async fn find(
    context: &mut Context,
    name: &str,
    precision: f64,
    plan: impl Fn(&mut Context, f64) -> Result<Plan, Problem>,
) -> Result<Found, Problem> {
    let mut search = Search::from(START, LEAST, MOST).within(precision);
    let mut found = Found::default();
    let mut lowest_failed = f64::INFINITY;
    while let Some(rate) = search.next() {
        let plan = plan(context, rate)?;
        let facts = Facts::of(&plan);
        let outcome = context.load(&format!("{name} at {rate:.0}/s"), plan).await?;
        context.whole(&outcome)?;
        let why_not = too_much(&outcome, rate);
        found.steps.push(step(rate, &outcome));
        search.tried(rate, why_not.is_none());
        let audit = &outcome.audit;
        let late = if why_not.is_none() { audit.late } else { 0 };
        if audit.lost + audit.damaged + late > 0 {
            found.best = Some((facts, outcome));
            return Ok(found);
        }
        let best_so_far = why_not.is_none() && Some(rate) == search.found();
        if best_so_far || found.best.is_none() {
            found.best = Some((facts, outcome));
        }
        if let Some(why) = why_not
            && rate < lowest_failed
        {
            lowest_failed = rate;
            found.limit = Some(why);
        }
    }
    found.rate = search.found();
    Ok(found)
}

/// Reason that the rate was too high; `None` if it was not.
fn too_much(outcome: &Outcome, rate: f64) -> Option<String> {
    let (counts, seconds) = outcome.measured();
    let late = outcome.latencies.send_delay.quantile_us(0.99);
    let lag: Vec<(f64, f64)> =
        outcome.seconds.iter().map(|second| (second.at as f64, second.backlog as f64)).collect();
    search::verdict(rate, seconds, confirmed_rate(outcome), counts.errors, &lag, late)
}

fn step(rate: f64, outcome: &Outcome) -> Step {
    let latencies = &outcome.latencies;
    Step {
        parameter: "offered rate".to_owned(),
        value: rate,
        unit: "messages/s".to_owned(),
        measures: vec![
            lower("receive p99", ms(latencies.receive_due.quantile_us(0.99)), "ms"),
            lower("send p99", ms(latencies.send_due.quantile_us(0.99)), "ms"),
            higher("confirmed", confirmed_rate(outcome), "messages/s"),
            higher("received", received_rate(outcome), "messages/s"),
        ],
    }
}
