//! `queen`: Queen MQ's tests of 2026: many ordered lanes in one queue, batches, queues, groups.
//!
//! The original's consumers settled automatically as they popped; here each message is settled. Its
//! 99th percentiles were means of its workers' own; ours are of all messages.

use std::time::Duration;

use driver::Topology;
use load::{Pace, Phase, Plan};
use results::Run;

use crate::context::{Context, Problem};
use crate::judge::{self, Facts, higher, lower, neither, received_rate};
use crate::Test;

/// The original's message of 28 bytes; a stamp fits just so.
const MESSAGE_BYTES: usize = 28;
const LANES: u32 = 1001;

pub(crate) static TESTS: [Test; 4] = [
    Test {
        name: "queen/part",
        asks: "What do many ordered lanes cost, messages being sent one by one?",
        parameters: &[2, 101, 10_001],
        first_set: false,
        procedure: |context, name, lanes| {
            Box::pin(run(context, name, Shape { lanes, ..Shape::default() }))
        },
    },
    Test {
        name: "queen/bp",
        asks: "What do batches gain, over a thousand lanes?",
        parameters: &[1, 10, 100],
        first_set: true,
        procedure: |context, name, batch| {
            Box::pin(run(context, name, Shape { batch: batch as usize, ..Shape::default() }))
        },
    },
    Test {
        name: "queen/q",
        asks: "What do more queues gain or cost?",
        parameters: &[1, 10, 100],
        first_set: false,
        procedure: |context, name, queues| {
            Box::pin(run(context, name, Shape { queues, batch: 10, ..Shape::default() }))
        },
    },
    Test {
        name: "queen/cg",
        asks: "What does it cost that several groups each get everything, and is it fair?",
        parameters: &[1, 5, 10],
        first_set: true,
        procedure: |context, name, groups| {
            Box::pin(run(context, name, Shape { groups, batch: 10, ..Shape::default() }))
        },
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
    let single = context.driver.about().lanes == driver::Lanes::Single;
    let mut plan = Plan::new(topology, MESSAGE_BYTES, Duration::ZERO);
    plan.pace = Pace::Closed;
    plan.senders = context.by_form(20, 20, 500);
    // Where order is kept for one receiver only, there is one for each queue.
    plan.receivers = if single { queues } else { 10 };
    plan.batch = batch..=batch;
    plan.receive_max = 100;
    plan.lanes = lanes;
    plan.phases = vec![
        Phase::warm_up(context.warm_up()),
        Phase::measured("load", context.seconds(4, 15, 900)),
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
