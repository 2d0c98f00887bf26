//! `zmq`: ZeroMQ's push and pull, for systems without storage (tier T0): as fast as possible.
//! "Sent" only means handed over, so received messages are counted.

use std::time::Duration;

use load::{Pace, Phase, Plan};
use results::Run;

use crate::Test;
use crate::context::{Context, Problem};
use crate::judge::{self, Facts, higher, received_rate};

pub(crate) static TESTS: [Test; 1] = [Test {
    name: "zmq/pushpull",
    asks: "How many messages a second go through one connection when nothing is kept?",
    parameters: &[512, 1024],
    first_set: &[],
    procedure: |context, name, bytes| Box::pin(run(context, name, bytes as usize)),
}];

async fn run(context: &mut Context, name: &str, bytes: usize) -> Result<Run, Problem> {
    if context.tier != driver::Tier::T0 {
        return Err(Problem::Skipped("it asks for tier T0".to_owned()));
    }
    let topology = context.queue()?;
    let mut plan = Plan::new(topology, bytes, Duration::ZERO);
    plan.pace = Pace::Flood { window: 100_000 };
    plan.receive_max = 1000;
    plan.phases = vec![
        Phase::warm_up(context.seconds(1, 3, 10)),
        Phase::measured("load", context.seconds(3, 15, 60)),
    ];
    let facts = Facts::of(&plan);
    let outcome = context.load(name, plan).await?;
    let headline = vec![higher("received", received_rate(&outcome), "messages/s")];
    Ok(judge::run(context, name, facts, outcome, headline))
}
