//! `lowlat`: the 2026 comparison of latencies by message size, which stated neither rate nor
//! acknowledgement nor clock. Its shape is kept (sizes; one sender, one receiver); the rest is
//! defined here: open loop at 1,000 messages a second, latencies from the due time, one machine's
//! clock. Clients hold nothing back for batching.

use std::time::Duration;

use driver::{Tier, Topology};
use load::{Pace, Phase, Plan, Relay, Work};
use results::{Measure, Run};

use crate::context::{Context, Problem};
use crate::judge::{self, Facts, lower, ms, neither};
use crate::{Procedure, Test};

const PER_SECOND: f64 = 1_000.0;

const fn by_size(name: &'static str, asks: &'static str, procedure: Procedure) -> Test {
    Test { name, asks, parameters: &[512, 1024, 4096, 16_384], first_set: &[], procedure }
}

pub(crate) static TESTS: [Test; 3] = [
    Test {
        first_set: &[1024],
        ..by_size(
            "lowlat/size",
            "How long is a message of so many bytes under way, on an idle system?",
            |context, name, bytes| Box::pin(confirmed(context, name, bytes as usize)),
        )
    },
    by_size(
        "lowlat/fire-and-forget",
        "And one that nothing is promised of?",
        |context, name, bytes| Box::pin(fire_and_forget(context, name, bytes as usize)),
    ),
    by_size(
        "lowlat/ping-pong",
        "And by half of the way there and back, one message at a time?",
        |context, name, bytes| Box::pin(ping_pong(context, name, bytes as usize)),
    ),
];

async fn confirmed(context: &mut Context, name: &str, bytes: usize) -> Result<Run, Problem> {
    let topology = topology(context)?;
    let mut run = open_loop(context, name, topology, bytes).await?;
    run.remarks.push("the headline counts from the call; send and receive from when due".into());
    Ok(run)
}

/// Runs at the lowest tier, whatever the server's configuration; the server may sync nevertheless.
async fn fire_and_forget(context: &mut Context, name: &str, bytes: usize) -> Result<Run, Problem> {
    let about = context.driver.about();
    if !about.tiers.contains(&Tier::T0) {
        let why = format!("{} promises more than memory of every message", about.title);
        return Err(Problem::Skipped(why));
    }
    let topology = Topology { tier: Tier::T0, replicas: 1, ..topology(context)? };
    let mut run = open_loop(context, name, topology, bytes).await?;
    if context.tier != Tier::T0 {
        run.remarks.push(format!("the server itself was started for {}", context.tier));
    }
    Ok(run)
}

fn topology(context: &mut Context) -> Result<Topology, Problem> {
    Ok(Topology { latency_first: true, ..context.stream()? })
}

fn phases(context: &Context) -> Vec<Phase> {
    vec![
        Phase::warm_up(context.seconds(0.5, 3, 10)),
        Phase::measured("load", context.seconds(1.2, 10, 100)),
    ]
}

async fn open_loop(
    context: &mut Context,
    name: &str,
    topology: Topology,
    bytes: usize,
) -> Result<Run, Problem> {
    let mut plan = Plan::new(topology, bytes, Duration::ZERO);
    plan.pace = Pace::Open { per_second: PER_SECOND, window: 1000 };
    plan.phases = phases(context);
    let facts = Facts::of(&plan);
    let outcome = context.load(name, plan).await?;
    let latencies = &outcome.latencies;
    let mut headline =
        one_way(latencies.receive.quantile_us(0.5), latencies.receive.quantile_us(0.99));
    headline.extend([
        lower("confirm p50", ms(latencies.send.quantile_us(0.5)), "ms"),
        lower("confirm p99", ms(latencies.send.quantile_us(0.99)), "ms"),
    ]);
    Ok(judge::run(context, name, facts, outcome, headline))
}

/// Sends through one destination, a stage that returns each message, and another destination. It
/// needs no common clock of two machines, and verifies the figures of tests that do.
async fn ping_pong(context: &mut Context, name: &str, bytes: usize) -> Result<Run, Problem> {
    let (from, topology) = (topology(context)?, topology(context)?);
    let mut plan = Plan::new(topology, bytes, Duration::ZERO);
    plan.pace = Pace::PingPong;
    plan.relay = Some(Relay { from, workers: 1, receive_max: 1, work: Work::None });
    plan.receive_max = 1;
    plan.phases = phases(context);
    let facts = Facts::of(&plan);
    let outcome = context.load(name, plan).await?;
    let there_and_back = &outcome.latencies.receive;
    let half = |share| there_and_back.quantile_us(share) / 2;
    let mut headline = one_way(half(0.5), half(0.99));
    let (counts, seconds) = outcome.measured();
    headline.push(neither("round trips", counts.received as f64 / seconds.max(1e-9), "/s"));
    let mut run = judge::run(context, name, facts, outcome, headline);
    run.remarks.push("the headline is half of a round trip; receive is all of it".into());
    Ok(run)
}

/// The same names for both ways of measuring.
fn one_way(p50_us: u64, p99_us: u64) -> Vec<Measure> {
    vec![lower("one way p50", ms(p50_us), "ms"), lower("one way p99", ms(p99_us), "ms")]
}
