//! `cargo xtask measure cost`: the cost of safety and visibility. Servers with and without TLS, log-ins and rules,
//! quotas, scrapes and the history of records take the same load in turns, round after round. Each figure is
//! compared with the plain server's of the same round.
//!
//! The load shares the machine with the server, and encrypts too, so that the rate falls by the cost of both. The
//! server's processor time per record is its own.
//!
//! * [`variants`]: the servers that are compared, and how one is started
//! * [`log`]: records that are produced and fetched; [`queue`]: records that are leased and settled

mod log;
mod queue;
mod variants;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::postroad;
use crate::failure::{Failure, Outcome};
use crate::figures::{Figures, Output, median};
use crate::paths;
use variants::{Load, RunningServer, VARIANTS, Variant};

#[derive(Debug, Args)]
pub(crate) struct CostOptions {
    /// Rounds; in each of them every server takes the load once
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// How long a load is measured
    #[arg(long, default_value_t = 8.0)]
    seconds: f64,
    /// Output format
    #[arg(long, value_enum, default_value_t = Output::Table)]
    output: Output,
    /// The server's binary [default: a release build of this checkout]
    #[arg(long)]
    bin: Option<PathBuf>,
    /// Further arguments of `postroad serve`, after `--`
    #[arg(last = true)]
    serve: Vec<String>,
}

const FOLDER: &str = "measure-cost";
/// Not measured: caches fill and segments are created.
const WARM_UP: Duration = Duration::from_secs(2);

/// Result of one load.
#[derive(Clone, Copy, Debug)]
struct Cost {
    /// Records a second.
    rate: f64,
    /// Seconds of the server's processor time per million records.
    processor: f64,
}

pub(super) fn run(options: &CostOptions) -> Outcome {
    let seconds = Duration::try_from_secs_f64(options.seconds);
    let seconds = seconds.map_err(|error| Failure::new(format!("--seconds: {error}")))?;
    let mut rounds = Vec::new();
    for round in 1..=options.rounds.max(1) {
        let mut costs = Vec::with_capacity(VARIANTS.len());
        for variant in VARIANTS {
            let cost = measure(options, variant, seconds).map_err(|failure| {
                Failure::new(format!("round {round}, {}: {failure}", variant.name))
                    .remedy(format!("data and log are kept in target/xtask/{FOLDER}"))
            })?;
            eprintln!(
                "  round {round}, {:<44} {:>9.0} records/s, {:.2} CPU s a million",
                variant.name, cost.rate, cost.processor
            );
            costs.push(cost);
        }
        rounds.push(costs);
    }
    paths::fresh(FOLDER)?;
    report(&rounds).publish(options.output)
}

fn measure(options: &CostOptions, variant: &Variant, time: Duration) -> Outcome<Cost> {
    let folder = paths::fresh(FOLDER)?;
    let postroad = postroad(options.bin.as_deref(), &folder, &options.serve)?;
    let running = RunningServer::start(variant, postroad, &folder)?;
    let cost = match variant.load {
        Load::Log => log::run(&running, time),
        Load::Queue => queue::run(&running, time),
    }?;
    running.stop()?;
    Ok(cost)
}

/// Medians of the figures, and of the differences to the plain server of the same load and round.
fn report(rounds: &[Vec<Cost>]) -> Figures {
    let mut figures = Figures::new("measure cost");
    let of = |place: usize, figure: fn(&Cost) -> f64| -> Vec<f64> {
        rounds.iter().map(|costs| figure(&costs[place])).collect()
    };
    let more = |place: usize, base: usize, figure: fn(&Cost) -> f64| {
        let ratio =
            |costs: &Vec<Cost>| 100.0 * (figure(&costs[place]) / figure(&costs[base]) - 1.0);
        median(&rounds.iter().map(ratio).collect::<Vec<f64>>())
    };
    for (place, variant) in VARIANTS.iter().enumerate() {
        let base = VARIANTS.iter().position(|it| it.load == variant.load).unwrap_or(place);
        let name = variant.name;
        figures.add(format!("{name}: rate"), median(&of(place, |cost| cost.rate)), "records/s");
        let processor = median(&of(place, |cost| cost.processor));
        figures.add(format!("{name}: processor"), processor, "s a million");
        if place != base {
            figures.add(format!("{name}: rate, more"), more(place, base, |it| it.rate), "%");
            let processor = more(place, base, |it| it.processor);
            figures.add(format!("{name}: processor, more"), processor, "%");
        }
    }
    figures
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variant_is_compared_with_the_plain_server_of_its_load_and_round() {
        let round = |factor: f64| {
            let cost = |place: usize| Cost { rate: factor * (place + 1) as f64, processor: factor };
            (0..VARIANTS.len()).map(cost).collect::<Vec<Cost>>()
        };
        let figures = serde_json::to_value(report(&[round(1.0), round(10.0), round(5.0)]));
        let figures = figures.expect("JSON");
        let figure = |what: String| {
            let mut all = figures["figures"].as_array().expect("figures").iter();
            all.find(|it| it["what"] == what.as_str()).expect("it is there")["value"].clone()
        };
        let second = VARIANTS[1].name;
        assert_eq!(figure(format!("{second}: rate")), 10.0);
        assert_eq!(figure(format!("{second}: rate, more")), 100.0);
        assert_eq!(figure(format!("{second}: processor, more")), 0.0);
    }
}
