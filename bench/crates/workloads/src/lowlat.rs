//! `lowlat`: the 2026 comparison of latencies by message size, which gave neither rate nor
//! acknowledgement nor clock. Its shape is kept (sizes; one sender, one receiver); the rest is said:
//! open loop at 1,000 messages a second, latencies from when a message was due, one machine's clock;
//! clients hold nothing back for company.

use std::time::Duration;

use load::{Pace, Phase, Plan};
use results::Run;

use crate::Test;
use crate::context::{Context, Problem};
use crate::judge::{self, Facts, lower, ms};

const PER_SECOND: f64 = 1_000.0;

pub(crate) static TESTS: [Test; 1] = [Test {
    name: "lowlat/size",
    asks: "How long is a message of so many bytes under way, on an idle system?",
    parameters: &[512, 1024, 4096, 16_384],
    first_set: &[1024],
    procedure: |context, name, bytes| Box::pin(run(context, name, bytes as usize)),
}];

async fn run(context: &mut Context, name: &str, bytes: usize) -> Result<Run, Problem> {
    let mut topology = context.stream()?;
    topology.latency_first = true;
    let mut plan = Plan::new(topology, bytes, Duration::ZERO);
    plan.pace = Pace::Open { per_second: PER_SECOND, window: 1000 };
    plan.phases = vec![
        Phase::warm_up(context.seconds(1, 3, 10)),
        Phase::measured("load", context.seconds(2, 15, 100)),
    ];
    let facts = Facts::of(&plan);
    let outcome = context.load(name, plan).await?;
    let latencies = &outcome.latencies;
    let headline = vec![
        lower("receive p50", ms(latencies.receive.quantile_us(0.5)), "ms"),
        lower("receive p99", ms(latencies.receive.quantile_us(0.99)), "ms"),
        lower("confirm p50", ms(latencies.send.quantile_us(0.5)), "ms"),
        lower("confirm p99", ms(latencies.send.quantile_us(0.99)), "ms"),
    ];
    let mut run = judge::run(context, name, facts, outcome, headline);
    run.remarks.push("the headline counts from the call; send and receive from when due".into());
    Ok(run)
}
