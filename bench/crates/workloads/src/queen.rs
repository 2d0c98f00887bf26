//! `queen`: Queen MQ's tests of 2026: many ordered lanes in one queue, batches, queues, groups.
//!
//! The original's consumers settled automatically at the pop; here each message is settled. Its
//! 99th percentiles were means of its workers' own; ours cover all messages.

use std::time::Duration;

use driver::{Lanes, Topology};
use load::{Pace, Phase, Plan, Relay, Work};
use results::Run;

use crate::Test;
use crate::context::{Context, Problem};
use crate::judge::{self, Facts, higher, lower, ms, neither, received_rate};

/// The original's message of 28 bytes, which is exactly the size of a stamp.
const MESSAGE_BYTES: usize = 28;
const LANES: u32 = 1001;

pub(crate) static TESTS: [Test; 6] = [
    Test {
        name: "queen/part",
        asks: "What do many ordered lanes cost, messages being sent one by one?",
        parameters: &[2, 101, 10_001],
        first_set: &[10_001],
        procedure: |context, name, lanes| {
            Box::pin(run(context, name, Shape { lanes, ..Shape::default() }))
        },
    },
    Test {
        name: "queen/bp",
        asks: "What do batches gain, over a thousand lanes?",
        parameters: &[1, 10, 100],
        first_set: &[10],
        procedure: |context, name, batch| {
            Box::pin(run(context, name, Shape { batch: batch as usize, ..Shape::default() }))
        },
    },
    Test {
        name: "queen/q",
        asks: "What do more queues gain or cost?",
        parameters: &[1, 10, 100],
        first_set: &[],
        procedure: |context, name, queues| {
            Box::pin(run(context, name, Shape { queues, batch: 10, ..Shape::default() }))
        },
    },
    Test {
        name: "queen/cg",
        asks: "What does it cost that several groups each get everything, and is it fair?",
        parameters: &[1, 5, 10],
        first_set: &[10],
        procedure: |context, name, groups| {
            Box::pin(run(context, name, Shape { groups, batch: 10, ..Shape::default() }))
        },
    },
    Test {
        name: "queen/pipeline-ordered",
        asks: "How long do messages take through two queues and a stage of work, lane by lane?",
        parameters: &[],
        first_set: &[0],
        procedure: |context, name, _| Box::pin(pipeline(context, name, 1000, 100)),
    },
    Test {
        name: "queen/pipeline-throughput",
        asks: "And with few lanes and large batches?",
        parameters: &[],
        first_set: &[],
        procedure: |context, name, _| Box::pin(pipeline(context, name, 10, 1000)),
    },
];

#[derive(Clone, Copy, Debug)]
struct Shape {
    lanes: u32,
    batch: usize,
    queues: u32,
    groups: u32,
}

impl Default for Shape {
    fn default() -> Self {
        Self { lanes: LANES, batch: 1, queues: 1, groups: 1 }
    }
}

async fn run(context: &mut Context, name: &str, shape: Shape) -> Result<Run, Problem> {
    let Shape { lanes, batch, queues, groups } = shape;
    context.needs_lanes()?;
    if groups > 1 {
        context.needs_subscriptions()?;
    }
    let mut topology: Topology = context.queue()?;
    topology.ordered = true;
    topology.destinations = queues;
    topology.subscriptions = groups;
    topology.partitions = context.by_form(8, 8, 100);
    let single = context.driver.about().lanes == Lanes::Single;
    let mut plan = Plan::new(topology, MESSAGE_BYTES, Duration::ZERO);
    plan.pace = Pace::Closed;
    plan.senders = context.by_form(20, 20, 500);
    // Where order needs a single receiver, each queue has one.
    plan.receivers = if single { queues } else { 10 };
    plan.batch = batch..=batch;
    plan.receive_max = 100;
    plan.lanes = lanes;
    plan.phases = vec![
        Phase::warm_up(context.warm_up()),
        Phase::measured("load", context.seconds(1.2, 10, 900)),
    ];
    let facts = Facts::of(&plan);
    let outcome = context.load(name, plan).await?;
    let (counts, seconds) = outcome.measured();
    let pending = outcome.phase("load").map_or(0, |phase| phase.backlog.1);
    let headline = vec![
        higher("received", received_rate(&outcome), "messages/s"),
        higher("sent", counts.confirmed as f64 / seconds.max(1e-9), "messages/s"),
        lower("pending at the end", pending as f64 / MESSAGE_BYTES as f64, "messages"),
        lower("worst dwell", outcome.audit.dwell_max_us as f64 / 1e6, "s"),
        neither("groups, least to most", outcome.audit.fairness_subscriptions.unwrap_or(1.0), ""),
    ];
    Ok(judge::run(context, name, facts, outcome, headline))
}

/// A worker's processing time of a message, as published.
fn work() -> Work {
    let millis = Duration::from_millis;
    Work::Take(vec![
        (0.95, millis(5)..=millis(15)),
        (0.04, millis(20)..=millis(50)),
        (0.01, millis(100)..=millis(300)),
    ])
}

/// Senders, a queue, workers, a second queue, and two groups that each get everything.
async fn pipeline(
    context: &mut Context,
    name: &str,
    lanes: u32,
    batch: usize,
) -> Result<Run, Problem> {
    let order = context.needs_lanes()?;
    context.needs_subscriptions()?;
    let per_second = context.by_form(300.0, 1_000.0, 10_000.0);
    let workers = if order == Lanes::Single { 1 } else { context.by_form(3, 3, 7) };
    let mut from = context.queue()?;
    from.ordered = true;
    from.partitions = context.by_form(8, 8, 100);
    let mut topology = context.queue()?;
    topology.ordered = true;
    topology.partitions = from.partitions;
    topology.subscriptions = 2;
    let mut plan = Plan::new(topology, 300, Duration::ZERO);
    plan.pace = Pace::Open { per_second, window: 1000 };
    (plan.senders, plan.receivers) = (2, workers);
    plan.receive_max = batch;
    plan.lanes = lanes;
    plan.work = work();
    plan.relay = Some(Relay { from, workers, receive_max: batch, work: work() });
    plan.drain_idle = Duration::from_secs(10);
    plan.phases = vec![
        Phase::warm_up(context.warm_up()),
        Phase::measured("load", context.seconds(1.5, 20, 1200)),
    ];
    let facts = Facts::of(&plan);
    let outcome = context.load(name, plan).await?;
    let due = &outcome.latencies.receive_due;
    let headline = vec![
        lower("end to end p50", ms(due.quantile_us(0.5)), "ms"),
        lower("end to end p99", ms(due.quantile_us(0.99)), "ms"),
        higher("received", received_rate(&outcome), "messages/s"),
    ];
    Ok(judge::run(context, name, facts, outcome, headline))
}
