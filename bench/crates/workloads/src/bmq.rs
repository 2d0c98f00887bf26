//! `bmq`: BlazingMQ's published benchmarks: messages of 1 KB at a fixed rate; queues with one
//! sender and one receiver each, and one sender whose messages go to several receivers.

use std::time::Duration;

use load::{Pace, Plan};
use results::Run;

use crate::Test;
use crate::context::{Context, Problem};
use crate::judge::{self, Facts, lower, ms, neither, received_rate};
use crate::omb::{self, known_max_rate};

pub(crate) static TESTS: [Test; 3] = [
    Test {
        name: "bmq/prio",
        asks: "How long are messages under way through so many queues, at a fifth of the highest rate?",
        parameters: &[1, 10, 50, 100],
        first_set: &[10],
        procedure: |context, name, queues| Box::pin(prio(context, name, queues)),
    },
    Test {
        name: "bmq/fanout",
        asks: "How long are messages under way that so many groups each get?",
        parameters: &[5],
        first_set: &[5],
        procedure: |context, name, groups| Box::pin(fanout(context, name, groups, 1.0)),
    },
    Test {
        name: "bmq/bcast",
        asks: "And where nothing need be kept?",
        parameters: &[1, 5, 10],
        first_set: &[5],
        procedure: |context, name, groups| Box::pin(broadcast(context, name, groups)),
    },
];

async fn prio(context: &mut Context, name: &str, queues: u32) -> Result<Run, Problem> {
    let rate = known_max_rate(context).await? * 0.2;
    let mut topology = context.queue()?;
    topology.destinations = queues;
    let mut plan = plan(context, topology, rate);
    (plan.senders, plan.receivers) = (queues as u16, queues);
    finish(context, name, plan, rate).await
}

async fn fanout(
    context: &mut Context,
    name: &str,
    groups: u32,
    share: f64,
) -> Result<Run, Problem> {
    context.needs_subscriptions()?;
    let rate = known_max_rate(context).await? * 0.2 * share / f64::from(groups);
    let mut topology = context.queue()?;
    topology.subscriptions = groups;
    let plan = plan(context, topology, rate);
    finish(context, name, plan, rate).await
}

async fn broadcast(context: &mut Context, name: &str, groups: u32) -> Result<Run, Problem> {
    if context.tier != driver::Tier::T0 {
        return Err(Problem::Skipped("it asks for tier T0".to_owned()));
    }
    fanout(context, name, groups, 1.0).await
}

fn plan(context: &Context, topology: driver::Topology, rate: f64) -> Plan {
    let time: Duration = context.seconds(1.2, 8, 300);
    let mut plan = omb::plan(topology, rate, context.warm_up(), time);
    plan.pace = Pace::Open { per_second: rate, window: omb::WINDOW };
    plan
}

async fn finish(context: &mut Context, name: &str, plan: Plan, rate: f64) -> Result<Run, Problem> {
    let facts = Facts::of(&plan);
    let outcome = context.load(name, plan).await?;
    let receive = &outcome.latencies.receive_due;
    let headline = vec![
        lower("receive p50", ms(receive.quantile_us(0.5)), "ms"),
        lower("receive p90", ms(receive.quantile_us(0.9)), "ms"),
        lower("receive p99", ms(receive.quantile_us(0.99)), "ms"),
        neither("sent", rate, "messages/s"),
        neither("received", received_rate(&outcome), "messages/s"),
    ];
    Ok(judge::run(context, name, facts, outcome, headline))
}
