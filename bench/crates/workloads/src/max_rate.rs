//! The highest rate that a system keeps up with: tries at fixed rates until what passed and what
//! failed are close. `omb/max-rate` and workload files that ask for it search by this.

use load::search::{self, Search};
use load::{Outcome, Plan};
use results::Step;

use crate::context::{Context, Problem};
use crate::judge::{Facts, confirmed_rate, higher, lower, ms, received_rate};

/// Messages a second.
const START: f64 = 10_000.0;
const LEAST: f64 = 50.0;
const MOST: f64 = 5_000_000.0;

/// What the tries were like.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// The highest that passed. Nothing where none did, nor where something was lost or damaged, or
    /// what was kept up with did not come: such a system has no highest rate.
    pub(crate) rate: Option<f64>,
    pub(crate) steps: Vec<Step>,
    /// Why the lowest rate that did not pass did not.
    pub(crate) limit: Option<String>,
    /// The try that the result is drawn from: the best, or the one that was found at fault.
    pub(crate) best: Option<(Facts, Outcome)>,
}

/// Tries one rate after the other with the plan that `plan` makes of it. `precision`: how close
/// what passed and what failed must be, as a share.
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

/// Why the rate was too much; none when it was not.
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
