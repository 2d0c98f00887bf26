//! `omb`: OpenMessaging Benchmark's tests as StreamNative ran them in 2023, with their hand-made
//! search for the highest rate made exact.
//!
//! Open loop: messages of 1 KB, half of it random, are due at fixed times, and latencies count from
//! then. The original counted from the actual send and dropped end-to-end samples of 0 ms.

use std::time::Duration;

use driver::Topology;
use load::search::{self, PRECISION, Search};
use load::{Outcome, Pace, Phase, Plan, Receivers, Until};
use results::{Run, Step};

use crate::Test;
use crate::context::{Context, Problem};
use crate::judge::{self, Facts, confirmed_rate, higher, lower, ms, neither, received_rate};
use crate::mqperf::longest_silence;

pub(crate) const MESSAGE_BYTES: usize = 1024;
/// Messages of one sender that are not yet safe; more are late.
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

fn lag(outcome: &Outcome) -> Vec<(f64, f64)> {
    outcome.seconds.iter().map(|second| (second.at as f64, second.backlog as f64)).collect()
}

/// Why the rate was too much; none when it was not.
pub(crate) fn too_much(outcome: &Outcome, rate: f64) -> Option<String> {
    let (counts, _) = outcome.measured();
    let late = outcome.latencies.send_delay.quantile_us(0.99);
    search::verdict(rate, confirmed_rate(outcome), counts.errors, &lag(outcome), late)
}

async fn max_rate(context: &mut Context, name: &str) -> Result<Run, Problem> {
    let mut search = Search::from(10_000.0, 50.0, 5_000_000.0)
        .within(context.by_form(0.25, PRECISION, PRECISION));
    let (mut best, mut limit) = (None, None);
    let mut steps = Vec::new();
    while let Some(rate) = search.next() {
        let (warm_up, time) = (context.seconds(1, 2, 60), context.seconds(2, 6, 300));
        let mut topology = context.stream()?;
        topology.partitions = context.by_form(4, 4, 16);
        let mut plan = plan(topology, rate, warm_up, time);
        (plan.senders, plan.receivers) = (2, 2);
        plan.lanes = 1000;
        plan.drain_max = Duration::from_secs(20);
        let facts = Facts::of(&plan);
        let outcome = context.load(&format!("{name} at {rate:.0}/s"), plan).await?;
        if context.is_interrupted() {
            return Err(Problem::Interrupted);
        }
        let audit_failed = !outcome.audit.faults(false).is_empty();
        // What is offered faster than it is received is late, and no fault of the system.
        let audit_failed = outcome.audit.lost > 0 || outcome.audit.damaged > 0;
        let why_not = too_much(&outcome, rate);
        steps.push(step(rate, &outcome));
        search.tried(rate, why_not.is_none());
        if audit_failed {
            // Whatever the rate: what loses a message has no highest rate.
            let headline = vec![higher("highest rate", 0.0, "messages/s")];
            return Ok(Run { steps, ..judge::run(context, name, facts, outcome, headline) });
        }
        if why_not.is_none() || best.is_none() {
            best = Some((facts, outcome));
        }
        limit = why_not.or(limit);
    }
    let (facts, outcome) = best.ok_or(Problem::Interrupted)?;
    let found = search.found().unwrap_or(0.0);
    context.max_rates.insert(MESSAGE_BYTES, found);
    let headline = vec![higher("highest rate", found, "messages/s")];
    let mut run = judge::run(context, name, facts, outcome, headline);
    run.steps = steps;
    run.remarks.extend(limit.map(|why| format!("above that: {why}")));
    Ok(run)
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

/// The highest rate, found now if it is not known.
pub(crate) async fn known_max_rate(context: &mut Context) -> Result<f64, Problem> {
    if let Some(rate) = context.max_rates.get(&MESSAGE_BYTES) {
        return Ok(*rate);
    }
    max_rate(context, "omb/max-rate").await?;
    let found = context.max_rates.get(&MESSAGE_BYTES).copied().unwrap_or(0.0);
    match found > 0.0 {
        true => Ok(found),
        false => Err(Problem::Skipped("it keeps up with no rate at all".to_owned())),
    }
}

async fn fixed_load(context: &mut Context, name: &str, percent: u32) -> Result<Run, Problem> {
    let rate = known_max_rate(context).await? * f64::from(percent) / 100.0;
    let mut topology = context.stream()?;
    topology.partitions = context.by_form(4, 4, 16);
    let mut plan = plan(topology, rate, context.warm_up(), context.seconds(2, 10, 300));
    (plan.senders, plan.receivers, plan.lanes) = (2, 2, 1000);
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
    // One rate for every count and system, so that what differs is the count.
    let rate = context.by_form(2_000.0, 5_000.0, 100_000.0);
    let mut topology = context.stream()?;
    topology.destinations = count;
    let mut plan = plan(topology, rate, context.warm_up(), context.seconds(2, 12, 300));
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
    let mut plan = plan(topology, rate, context.warm_up(), context.seconds(2, 12, 300));
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
    let build = context.seconds(3, 25, 3600);
    let bytes = context.by_form(64 << 20, 1 << 30, 300 << 30);
    plan.phases = vec![
        Phase::warm_up(context.warm_up()),
        Phase::measured("before", context.seconds(1, 8, 300)),
        Phase {
            until: Until::Backlog { bytes, at_most: build },
            receivers: Receivers::Paused,
            ..Phase::measured("building", build)
        },
        Phase {
            until: Until::Drained { share: 0.01, at_most: context.seconds(5, 30, 3600) },
            ..Phase::measured("draining", build)
        },
        Phase::measured("after", context.seconds(1, 8, 300)),
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
    let (stop, start) = (faults.clone(), faults);
    let time = context.seconds(5, 30, 300);
    plan.phases = vec![
        Phase::warm_up(context.warm_up()),
        Phase::measured("before", time),
        Phase {
            action: Some((
                "node 1 is stopped".to_owned(),
                Box::new(move || Box::pin(async move { stop.stop(1).await })),
            )),
            ..Phase::measured("during", time)
        },
        Phase {
            action: Some((
                "node 1 starts".to_owned(),
                Box::new(move || Box::pin(async move { start.start(1).await })),
            )),
            ..Phase::measured("after", time)
        },
    ];
    let facts = Facts::of(&plan);
    let outcome = context.load(name, plan).await?;
    let mut headline =
        vec![lower("silent", longest_silence(&outcome.seconds) as f64, "s without a confirmation")];
    for phase in ["before", "during", "after"] {
        let Some(found) = outcome.phase(phase) else { continue };
        headline.push(higher(&format!("rate {phase}"), found.rate(|n| n.confirmed), "messages/s"));
        let p99 = found.latencies.send_due.quantile_us(0.99);
        headline.push(lower(&format!("send p99 {phase}"), ms(p99), "ms"));
    }
    Ok(judge::run(context, name, facts, outcome, headline))
}
