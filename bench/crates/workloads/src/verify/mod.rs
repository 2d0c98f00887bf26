//! `verify`: guarantees that no published comparison checked. A system that fails here has no place
//! in the tables of the other tests.

mod disk_full;
mod power_fail;
mod slow_consumer;

use std::time::Duration;

use driver::{Lanes, Return};
use load::{Burials, Pace, Phase, Plan, Until, Work};
use results::Run;

use crate::Test;
use crate::context::{Context, Problem};
use crate::judge::{self, Facts, lower, neither};
use crate::outage::{self, Fault};

pub(crate) static TESTS: [Test; 11] = [
    Test {
        name: "verify/lossless",
        asks: "Is every confirmed message still there after the server was killed, again and again?",
        parameters: &[],
        first_set: &[0],
        procedure: |context, name, _| Box::pin(lossless(context, name, Fault::Kill)),
    },
    Test {
        name: "verify/terminate",
        asks: "Is every confirmed message still there after the server was told to end, again and \
               again?",
        parameters: &[],
        first_set: &[],
        procedure: |context, name, _| Box::pin(lossless(context, name, Fault::Terminate)),
    },
    Test {
        name: "verify/pause",
        asks: "Is every confirmed message still there after the server answered nobody for a while, \
               again and again?",
        parameters: &[],
        first_set: &[],
        procedure: |context, name, _| Box::pin(lossless(context, name, Fault::Pause)),
    },
    Test {
        name: "verify/powerfail",
        asks: "Is every confirmed message still there after the power failed, of all nodes at once?",
        parameters: &[],
        first_set: &[],
        procedure: |context, name, _| Box::pin(power_fail::run(context, name)),
    },
    Test {
        name: "verify/order",
        asks: "Do the messages of each lane come in order, with several receivers at work?",
        parameters: &[],
        first_set: &[0],
        procedure: |context, name, _| Box::pin(order(context, name)),
    },
    Test {
        name: "verify/lease",
        asks: "Does a message that its receiver forgot come to another, once, after its lease?",
        parameters: &[],
        first_set: &[],
        procedure: |context, name, _| Box::pin(lease(context, name)),
    },
    Test {
        name: "verify/release",
        asks: "Does a message that its receiver gave back come again at once?",
        parameters: &[],
        first_set: &[],
        procedure: |context, name, _| Box::pin(release(context, name)),
    },
    Test {
        name: "verify/dedup",
        asks: "Does a message that is sent twice under one id come once?",
        parameters: &[],
        first_set: &[],
        procedure: |context, name, _| Box::pin(sent_twice(context, name)),
    },
    Test {
        name: "verify/dlq",
        asks: "Do messages that receivers keep giving back become dead letters, they alone, and each?",
        parameters: &[],
        first_set: &[],
        procedure: |context, name, _| Box::pin(dead_letters(context, name)),
    },
    Test {
        name: "verify/disk-full",
        asks: "Is what was confirmed still there after the disk was full, and does it go on then?",
        parameters: &[],
        first_set: &[],
        procedure: |context, name, _| Box::pin(disk_full::run(context, name)),
    },
    Test {
        name: "verify/slow-consumer",
        asks: "Do senders and other subscriptions notice that one takes nothing for a while?",
        parameters: &[],
        first_set: &[],
        procedure: |context, name, _| Box::pin(slow_consumer::run(context, name)),
    },
];

const MESSAGE_BYTES: usize = 256;
/// Longer than the test takes.
const DEDUPLICATE: Duration = Duration::from_secs(120);
/// Number of deliveries of a message that is always released.
const DELIVERIES_MAX: u32 = 3;

/// Several senders with some messages in flight each, several receivers.
fn plan(context: &mut Context, time: Duration) -> Result<Plan, Problem> {
    let mut topology = context.queue()?;
    topology.destinations = 4;
    topology.partitions = 4;
    // Leased messages of a killed server or a broken connection return before the drain gives up.
    topology.lease = Duration::from_secs(10);
    let mut plan = Plan::new(topology, MESSAGE_BYTES, time);
    plan.pace = Pace::Open { per_second: context.by_form(1_000.0, 2_000.0, 20_000.0), window: 500 };
    (plan.senders, plan.receivers, plan.lanes) = (4, 4, 50);
    plan.drain_idle = context.seconds(10, 15, 15);
    Ok(plan)
}

async fn lossless(context: &mut Context, name: &str, fault: Fault) -> Result<Run, Problem> {
    let faults = context.needs_faults()?;
    let mut plan = plan(context, Duration::ZERO)?;
    plan.topology.lease = context.lease_of_the_killed();
    let times = context.by_form(1, 5, 100);
    let at_most = context.back_within();
    plan.phases = vec![
        Phase::warm_up(context.seconds(0.5, 1, 10)),
        // Before the first confirmation a server has nothing to lose.
        Phase { until: Until::Confirmed { at_most }, ..Phase::measured("before", Duration::ZERO) },
    ];
    for time in 1..=times {
        let node = (time - 1) % faults.nodes() + 1;
        let down = Duration::from_millis(500);
        plan.phases.extend([
            outage::struck(&faults, fault, node, &format!("down {time}"), down),
            outage::back(&faults, fault, node, &format!(" {time}"), at_most),
            Phase::measured(&format!("up {time}"), context.seconds(1.5, 3, 20)),
        ]);
    }
    let what = match fault {
        Fault::Kill => "kills",
        Fault::Terminate => "terminations",
        Fault::Pause => "pauses",
    };
    outages(context, name, plan, what, times).await
}

/// A load with this number of outages.
async fn outages(
    context: &mut Context,
    name: &str,
    plan: Plan,
    what: &str,
    count: u32,
) -> Result<Run, Problem> {
    let facts = Facts::of(&plan);
    let outcome = context.load(name, plan).await?;
    let headline = vec![
        lower("lost", outcome.audit.lost as f64, "messages"),
        lower("settled and came again", outcome.audit.settled_again as f64, "messages"),
        neither(what, f64::from(count), ""),
        lower("back", outage::longest_back(&outcome), "s from start to confirmation"),
        neither("confirmed messages", outcome.audit.confirmed as f64, ""),
    ];
    Ok(judge::run(context, name, facts, outcome, headline))
}

async fn order(context: &mut Context, name: &str) -> Result<Run, Problem> {
    let lanes = context.needs_lanes()?;
    let time = context.seconds(1.2, 10, 300);
    let mut plan = plan(context, time)?;
    plan.topology.ordered = true;
    if lanes == Lanes::Single {
        plan.receivers = plan.topology.destinations;
    }
    let facts = Facts::of(&plan);
    let outcome = context.load(name, plan).await?;
    let headline = vec![
        lower("out of order", outcome.audit.out_of_order as f64, "messages"),
        lower("lost", outcome.audit.lost as f64, "messages"),
        neither("fairness of lanes", outcome.audit.fairness_lanes.unwrap_or(1.0), "least to most"),
    ];
    Ok(judge::run(context, name, facts, outcome, headline))
}

async fn lease(context: &mut Context, name: &str) -> Result<Run, Problem> {
    let about = context.driver.about();
    if !matches!(about.returns, Return::Lease | Return::LeaseOrConnection) {
        return Err(Problem::Skipped(format!("{} has no leases", about.title)));
    }
    let time = context.seconds(3, 10, 60);
    let mut plan = plan(context, time)?;
    plan.topology.lease = Duration::from_secs(2);
    plan.work = Work::Forget { share: 0.05 };
    returned(context, name, plan).await
}

async fn release(context: &mut Context, name: &str) -> Result<Run, Problem> {
    let about = context.driver.about();
    if about.returns == Return::Never {
        return Err(Problem::Skipped(format!("{} takes nothing back", about.title)));
    }
    let time = context.seconds(3, 10, 60);
    let mut plan = plan(context, time)?;
    plan.work = Work::Release { share: 0.05 };
    returned(context, name, plan).await
}

async fn sent_twice(context: &mut Context, name: &str) -> Result<Run, Problem> {
    let about = context.driver.about();
    if !context.driver.deduplicates() {
        let why = format!("{} does not know by an id what it has taken before", about.title);
        return Err(Problem::Skipped(why));
    }
    let time = context.seconds(3, 10, 60);
    let mut plan = plan(context, time)?;
    plan.topology.deduplicate = Some(DEDUPLICATE);
    plan.sent_twice = 0.25;
    let facts = Facts::of(&plan);
    let outcome = context.load(name, plan).await?;
    let twice = outcome.audit.repeated;
    let headline = vec![
        lower("came twice", twice as f64, "messages"),
        lower("lost", outcome.audit.lost as f64, "messages"),
        neither("sent twice", 25.0, "%"),
    ];
    let mut run = judge::run(context, name, facts, outcome, headline);
    if twice > 0 {
        judge::fail(&mut run, format!("{twice} messages that were sent twice came twice"));
    }
    Ok(run)
}

async fn dead_letters(context: &mut Context, name: &str) -> Result<Run, Problem> {
    let about = context.driver.about();
    if !context.driver.has_dead_letters() {
        return Err(Problem::Skipped(format!("{} has no dead letters", about.title)));
    }
    let time = context.seconds(3, 10, 60);
    let mut plan = plan(context, time)?;
    plan.topology.delivery_limit = Some(DELIVERIES_MAX);
    plan.work = Work::Poison { every: 50 };
    let facts = Facts::of(&plan);
    let outcome = context.load(name, plan).await?;
    let Burials { poison, buried, sound } = outcome.burials;
    let missing = poison.saturating_sub(buried);
    let headline = vec![
        lower("given back and not buried", missing as f64, "messages"),
        lower("buried and never given back", sound as f64, "messages"),
        neither("buried", buried as f64, "messages"),
    ];
    let mut run = judge::run(context, name, facts, outcome, headline);
    if missing > 0 {
        judge::fail(
            &mut run,
            format!("{missing} messages that nobody settled are no dead letters"),
        );
    }
    if sound > 0 {
        judge::fail(&mut run, format!("{sound} messages are dead letters that nobody gave back"));
    }
    Ok(run)
}

async fn returned(context: &mut Context, name: &str, plan: Plan) -> Result<Run, Problem> {
    let facts = Facts::of(&plan);
    let outcome = context.load(name, plan).await?;
    let headline = vec![
        neither("came again", outcome.audit.repeated as f64, "messages"),
        lower("settled and came again", outcome.audit.settled_again as f64, "messages"),
        lower("lost", outcome.audit.lost as f64, "messages"),
    ];
    Ok(judge::run(context, name, facts, outcome, headline))
}
