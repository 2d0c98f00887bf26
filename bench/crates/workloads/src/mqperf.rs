//! `mqperf`: SoftwareMill's test of durable queues, 2021 edition.
//!
//! Senders send batches of a random size, each batch once the previous one is safe; receivers
//! receive and settle in a loop. Messages have 100 bytes. It is a closed loop, so an overloaded
//! system shows a low rate, not a high latency: both are in the title. The original ended by count,
//! and its receivers a minute after their last message; here it ends by time, and once the system
//! is empty. The original's latencies below 50 ms were an artefact of its buckets: this suite uses
//! HDR histograms, and prints the original's figures beside them.

use std::ops::RangeInclusive;
use std::time::Duration;

use load::{Pace, Phase, Plan, Work};
use results::Run;

use crate::context::{Context, Problem};
use crate::judge::{self, Facts, confirmed_rate, higher, lower, neither, received_rate};
use crate::outage::{self, Fault};
use crate::{Procedure, Test};

const MESSAGE_BYTES: usize = 100;

const fn test(name: &'static str, asks: &'static str, procedure: Procedure) -> Test {
    Test { name, asks, parameters: &[], first_set: &[], procedure }
}

const fn first(test: Test) -> Test {
    Test { first_set: &[0], ..test }
}

pub(crate) static TESTS: [Test; 7] = [
    first(test(
        "mqperf/base",
        "What does one thread get that sends small batches and waits for each to be safe?",
        |context, name, _| Box::pin(run(context, name, Shape { senders: 1, receivers: 2, ..BASE })),
    )),
    first(test("mqperf/mid", "What do ten such threads get?", |context, name, _| {
        Box::pin(run(context, name, MID))
    })),
    first(test("mqperf/peak", "What do a hundred such threads get?", |context, name, _| {
        let shape = Shape { senders: 100, receivers: 100, ..BASE };
        Box::pin(run(context, name, shape))
    })),
    test("mqperf/bigbatch", "What do batches of up to 100 messages gain?", |context, name, _| {
        let shape = Shape { senders: 5, receivers: 5, batch: 1..=100, receive_max: 100 };
        Box::pin(run(context, name, shape))
    }),
    test(
        "mqperf/hugebatch",
        "What do batches of up to 1,000 messages gain?",
        |context, name, _| {
            let shape = Shape { senders: 5, receivers: 5, batch: 1..=1000, receive_max: 1000 };
            Box::pin(run(context, name, shape))
        },
    ),
    test(
        "mqperf/kmq",
        "Do messages that a receiver forgets come again, and what does that cost?",
        |context, name, _| Box::pin(forget(context, name)),
    ),
    first(test(
        "mqperf/crash",
        "What happens to senders and receivers when a node is killed and comes back?",
        |context, name, _| Box::pin(crash(context, name)),
    )),
];

#[derive(Clone, Debug)]
struct Shape {
    senders: u16,
    receivers: u32,
    batch: RangeInclusive<usize>,
    receive_max: usize,
}

const BASE: Shape = Shape { senders: 1, receivers: 2, batch: 1..=10, receive_max: 10 };
const MID: Shape = Shape { senders: 10, receivers: 20, ..BASE };

fn plan(context: &mut Context, shape: &Shape) -> Result<Plan, Problem> {
    let mut topology = context.queue()?;
    topology.partitions = shape.receivers.max(shape.senders.into()).max(4);
    let mut plan = Plan::new(topology, MESSAGE_BYTES, Duration::ZERO);
    plan.senders = shape.senders;
    plan.receivers = shape.receivers;
    plan.pace = Pace::Closed;
    plan.batch = shape.batch.clone();
    plan.receive_max = shape.receive_max;
    plan.lanes = 1000;
    plan.phases = vec![
        Phase::warm_up(context.warm_up()),
        Phase::measured("load", context.seconds(1.2, 10, 600)),
    ];
    Ok(plan)
}

async fn run(context: &mut Context, name: &str, shape: Shape) -> Result<Run, Problem> {
    let plan = plan(context, &shape)?;
    let facts = Facts::of(&plan);
    let outcome = context.load(name, plan).await?;
    let headline = vec![
        higher("received", received_rate(&outcome), "messages/s"),
        higher("sent", confirmed_rate(&outcome), "messages/s"),
    ];
    Ok(judge::run(context, name, facts, outcome, headline))
}

async fn forget(context: &mut Context, name: &str) -> Result<Run, Problem> {
    let about = context.driver.about();
    if !matches!(about.returns, driver::Return::Lease | driver::Return::LeaseOrConnection) {
        let why = format!("{} gives nothing to another while its receiver lives", about.title);
        return Err(Problem::Skipped(why));
    }
    let mut plan = plan(context, &MID)?;
    plan.topology.lease = context.seconds(2, 3, 15);
    plan.drain_idle = plan.topology.lease * 4;
    plan.work = Work::Forget { share: 0.01 };
    let facts = Facts::of(&plan);
    let outcome = context.load(name, plan).await?;
    let headline = vec![
        higher("received", received_rate(&outcome), "messages/s"),
        neither("came again", outcome.audit.repeated as f64, "messages"),
    ];
    Ok(judge::run(context, name, facts, outcome, headline))
}

async fn crash(context: &mut Context, name: &str) -> Result<Run, Problem> {
    let faults = context.needs_faults()?;
    let mut plan = plan(context, &MID)?;
    plan.phases = vec![
        Phase::warm_up(context.warm_up()),
        Phase::measured("before", context.seconds(1, 6, 60)),
        outage::struck(&faults, Fault::Kill, 1, "during", context.seconds(1, 6, 60)),
        outage::back(&faults, Fault::Kill, 1, "", context.back_within()),
        Phase::measured("after", context.seconds(1.5, 6, 60)),
    ];
    plan.topology.lease = context.lease_of_the_killed();
    plan.drain_idle = context.seconds(10, 20, 20);
    let facts = Facts::of(&plan);
    let outcome = context.load(name, plan).await?;
    let rate = |phase: &str| outcome.phase(phase).map_or(0.0, |it| it.rate(|n| n.confirmed));
    let headline = vec![
        lower("lost", outcome.audit.lost as f64, "messages"),
        lower("silent", outage::longest_silence(&outcome) as f64, "s without a confirmation"),
        lower("back", outage::longest_back(&outcome), "s from start to confirmation"),
        higher("before", rate("before"), "messages/s"),
        higher("during", rate("during"), "messages/s"),
        higher("after", rate("after"), "messages/s"),
    ];
    Ok(judge::run(context, name, facts, outcome, headline))
}
