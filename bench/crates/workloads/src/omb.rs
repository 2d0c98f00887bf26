//! `omb`: OpenMessaging Benchmark's tests as StreamNative ran them in 2023; their manual search for
//! the highest rate is automated.
//!
//! Open loop: messages of 1 KB, half of it random, are due at fixed times, and latencies count from
//! the due time. The original counted from the actual send and dropped end-to-end samples of 0 ms.

use std::time::Duration;

use driver::Topology;
use load::search::PRECISION;
use load::{Outcome, Pace, Phase, Plan, Receivers, Until};
use results::Run;

use crate::Test;
use crate::context::{Context, Problem};
use crate::judge::{self, Facts, higher, lower, ms, neither, received_rate};
use crate::max_rate::{self, Found};
use crate::outage::{self, Fault, longest_silence};

pub(crate) const MESSAGE_BYTES: usize = 1024;
/// Unconfirmed messages of one sender; further ones are late.
pub(crate) const WINDOW: usize = 5_000;

pub(crate) static TESTS: [Test; 6] = [
    Test {
        name: "omb/max-rate",
        asks: "At which rate does the system still keep up, errors and backlog being none?",
        parameters: &[],
        first_set: &[0],
        procedure: |context, name, _| Box::pin(max_rate(context, name)),
    },
    Test {
        name: "omb/fixed-load",
        asks: "How does latency grow with load, in percent of the highest rate?",
        parameters: &[25, 50, 75, 90],
        first_set: &[25, 75],
        procedure: |context, name, percent| Box::pin(fixed_load(context, name, percent)),
    },
    Test {
        name: "omb/topics",
        asks: "What do many topics cost, at a rate that is the same for all?",
        parameters: &[10, 100, 1000],
        first_set: &[1000],
        procedure: |context, name, count| Box::pin(topics(context, name, count)),
    },
    Test {
        name: "omb/subs",
        asks: "What does it cost that many subscriptions read the same messages?",
        parameters: &[1, 8, 64],
        first_set: &[64],
        procedure: |context, name, count| Box::pin(subs(context, name, count)),
    },
    Test {
        name: "omb/backlog",
        asks: "What do senders notice while a backlog is built and drained?",
        parameters: &[],
        first_set: &[0],
        procedure: |context, name, _| Box::pin(backlog(context, name)),
    },
    Test {
        name: "omb/node-failure",
        asks: "What do senders notice when a node is stopped, and when it comes back?",
        parameters: &[],
        first_set: &[0],
        procedure: |context, name, _| Box::pin(node_failure(context, name)),
    },
];

/// An open loop of 1 KB messages.
pub(crate) fn plan(topology: Topology, per_second: f64, warm_up: Duration, time: Duration) -> Plan {
    let mut plan = Plan::new(topology, MESSAGE_BYTES, Duration::ZERO);
    plan.pace = Pace::Open { per_second, window: WINDOW };
    plan.receive_max = 1000;
    plan.phases = vec![Phase::warm_up(warm_up), Phase::measured("load", time)];
    plan
}

async fn max_rate(context: &mut Context, name: &str) -> Result<Run, Problem> {
    // The quick form tries steps of two, and one step in between.
    let precision = context.by_form(0.45, PRECISION, PRECISION);
    let found = max_rate::find(context, name, precision, |context, rate| {
        let (warm_up, time) = (context.seconds(0.5, 2, 60), context.seconds(1, 5, 300));
        let mut plan = stream(context, rate, warm_up, time)?;
        plan.drain_max = context.seconds(1, 5, 60);
        Ok(plan)
    });
    let Found { rate, steps, limit, best } = found.await?;
    let (facts, outcome) = best.ok_or(Problem::Interrupted)?;
    let rate = rate.unwrap_or(0.0);
    context.max_rates.insert(MESSAGE_BYTES, rate);
    let headline = vec![higher("highest rate", rate, "messages/s")];
    let mut run = judge::run(context, name, facts, outcome, headline);
    run.steps = steps;
    run.remarks.extend(limit.map(|why| format!("above that: {why}")));
    Ok(run)
}

/// One destination with some partitions, two senders, two receivers.
fn stream(
    context: &mut Context,
    rate: f64,
    warm_up: Duration,
    time: Duration,
) -> Result<Plan, Problem> {
    let mut topology = context.stream()?;
    topology.partitions = context.by_form(4, 4, 16);
    let mut plan = plan(topology, rate, warm_up, time);
    (plan.senders, plan.receivers, plan.lanes) = (2, 2, 1000);
    Ok(plan)
}

/// The highest rate, searched now if it is not known.
pub(crate) async fn known_max_rate(context: &mut Context) -> Result<f64, Problem> {
    if !context.max_rates.contains_key(&MESSAGE_BYTES) {
        max_rate(context, "omb/max-rate").await?;
    }
    match context.max_rates.get(&MESSAGE_BYTES) {
        Some(rate) if *rate > 0.0 => Ok(*rate),
        _ => Err(Problem::Skipped("it keeps up with no rate at all".to_owned())),
    }
}

async fn fixed_load(context: &mut Context, name: &str, percent: u32) -> Result<Run, Problem> {
    let rate = known_max_rate(context).await? * f64::from(percent) / 100.0;
    let (warm_up, time) = (context.warm_up(), context.seconds(1.2, 9, 300));
    let plan = stream(context, rate, warm_up, time)?;
    let facts = Facts::of(&plan);
    let outcome = context.load(name, plan).await?;
    let latencies = &outcome.latencies;
    let headline = vec![
        lower("receive p99", ms(latencies.receive_due.quantile_us(0.99)), "ms"),
        neither("rate", rate, "messages/s"),
    ];
    Ok(judge::run(context, name, facts, outcome, headline))
}

async fn topics(context: &mut Context, name: &str, count: u32) -> Result<Run, Problem> {
    // The same rate for every count and system, so that only the count differs.
    let rate = context.by_form(2_000.0, 5_000.0, 100_000.0);
    let mut topology = context.stream()?;
    topology.destinations = count;
    let mut plan = plan(topology, rate, context.warm_up(), context.seconds(1.2, 10, 300));
    (plan.senders, plan.receivers) = (4, 4);
    let facts = Facts::of(&plan);
    let outcome = context.load(name, plan).await?;
    let create = outcome.create.as_secs_f64();
    let headline = vec![
        lower("receive p99", ms(outcome.latencies.receive_due.quantile_us(0.99)), "ms"),
        higher("received", received_rate(&outcome), "messages/s"),
        lower("create", create * 1e3 / f64::from(count), "ms a topic"),
    ];
    Ok(judge::run(context, name, facts, outcome, headline))
}

async fn subs(context: &mut Context, name: &str, subscriptions: u32) -> Result<Run, Problem> {
    context.needs_subscriptions()?;
    let rate = context.by_form(200.0, 500.0, 1000.0);
    let mut topology = context.stream()?;
    topology.destinations = context.by_form(2, 5, 50);
    topology.subscriptions = subscriptions;
    let mut plan = plan(topology, rate, context.warm_up(), context.seconds(1.2, 10, 300));
    plan.senders = 2;
    let facts = Facts::of(&plan);
    let outcome = context.load(name, plan).await?;
    let headline = vec![
        lower("receive p99", ms(outcome.latencies.receive_due.quantile_us(0.99)), "ms"),
        higher("received", received_rate(&outcome), "messages/s"),
    ];
    Ok(judge::run(context, name, facts, outcome, headline))
}

async fn backlog(context: &mut Context, name: &str) -> Result<Run, Problem> {
    let rate = known_max_rate(context).await? * 0.3;
    let mut topology = context.stream()?;
    topology.destinations = 10;
    let mut plan = plan(topology, rate, context.warm_up(), Duration::ZERO);
    (plan.senders, plan.receivers) = (2, 2);
    let build = context.seconds(1.5, 15, 3600);
    let bytes = context.by_form(64 << 20, 1 << 30, 300 << 30);
    plan.phases = vec![
        Phase::warm_up(context.warm_up()),
        Phase::measured("before", context.seconds(0.8, 6, 300)),
        Phase {
            until: Until::Backlog { bytes, at_most: build },
            receivers: Receivers::Paused,
            ..Phase::measured("building", build)
        },
        Phase {
            until: Until::Drained { share: 0.01, at_most: context.seconds(2, 30, 3600) },
            ..Phase::measured("draining", build)
        },
        Phase::measured("after", context.seconds(0.8, 6, 300)),
    ];
    let facts = Facts::of(&plan);
    let outcome = context.load(name, plan).await?;
    let headline = drain_figures(&outcome);
    let mut run = judge::run(context, name, facts, outcome, headline);
    run.remarks.push("latencies of receivers have the pause in them".to_owned());
    Ok(run)
}

fn drain_figures(outcome: &Outcome) -> Vec<results::Measure> {
    let mut figures = Vec::new();
    if let Some(draining) = outcome.phase("draining") {
        figures.push(higher("drained", draining.rate(|n| n.received), "messages/s"));
        let (from, to) = draining.backlog;
        figures.push(neither("backlog", from as f64 / 1e6, "MB"));
        figures.push(lower("left", to as f64 / 1e6, "MB"));
    }
    for phase in ["before", "building", "draining", "after"] {
        let Some(found) = outcome.phase(phase) else { continue };
        let p99 = found.latencies.send_due.quantile_us(0.99);
        figures.push(lower(&format!("send p99 {phase}"), ms(p99), "ms"));
    }
    figures
}

async fn node_failure(context: &mut Context, name: &str) -> Result<Run, Problem> {
    let faults = context.needs_faults()?;
    if faults.nodes() < 3 {
        let why = "a node can only be missed in a cluster of three or more".to_owned();
        return Err(Problem::Skipped(why));
    }
    let rate = known_max_rate(context).await? * 0.6;
    let mut topology = context.stream()?;
    topology.destinations = context.by_form(4, 10, 100);
    let mut plan = plan(topology, rate, context.warm_up(), Duration::ZERO);
    (plan.senders, plan.receivers) = (4, 4);
    let time = context.seconds(5, 30, 300);
    plan.phases = vec![
        Phase::warm_up(context.warm_up()),
        Phase::measured("before", time),
        outage::struck(&faults, Fault::Terminate, 1, "during", time),
        outage::back(&faults, Fault::Terminate, 1, "", context.back_within()),
        Phase::measured("after", time),
    ];
    let facts = Facts::of(&plan);
    let outcome = context.load(name, plan).await?;
    let mut headline =
        vec![lower("silent", longest_silence(&outcome) as f64, "s without a confirmation")];
    for phase in ["before", "during", "back", "after"] {
        let Some(found) = outcome.phase(phase) else { continue };
        headline.push(higher(&format!("rate {phase}"), found.rate(|n| n.confirmed), "messages/s"));
        let p99 = found.latencies.send_due.quantile_us(0.99);
        headline.push(lower(&format!("send p99 {phase}"), ms(p99), "ms"));
    }
    Ok(judge::run(context, name, facts, outcome, headline))
}
