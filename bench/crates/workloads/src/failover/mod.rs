//! `failover`: the pause of writes when their leader fails. No published comparison covers it for
//! these systems.
//!
//! Each sender has its own destination (a topic of one partition, a queue, a stream) with three
//! copies. It sends at a steady rate with acknowledgements, whatever the system does. One node
//! after another fails and returns. A pause lasts from the signal to the acknowledgement of a write
//! sent after the fault. A gracefully stopped node keeps working meanwhile, so its pause is the
//! longest time without an acknowledgement between the signal and its restart. Senders whose
//! destination the node led are reported separately from the others. The longest time without an
//! acknowledgement while all nodes are well is reported as well, since the machine itself
//! contributes it.
//!
//! A node is started again once writes have resumed for all senders. So a system with fast failover
//! gets as much time to elect a leader as one that takes ten seconds.

mod pauses;
mod strikes;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use driver::Failure;
use futures_util::future::BoxFuture;
use load::{Outcome, Pace, Phase, Plan, Until};
use results::{Latency, Measure, Run, Step};

use crate::Test;
use crate::context::{Context, Problem};
use crate::judge::{self, Facts, lower, neither};
use crate::outage::{self, Fault};
use pauses::{Pauses, longest_silence, next_write};
use strikes::{Strike, Strikes};

pub(crate) static TESTS: [Test; 3] = [
    Test {
        name: "failover/kill",
        asks: "How long do writes pause when the node that takes them is killed?",
        parameters: &[],
        first_set: &[],
        procedure: |context, name, _| Box::pin(run(context, name, Fault::Kill)),
    },
    Test {
        name: "failover/terminate",
        asks: "How long do writes pause when the node that takes them is told to end?",
        parameters: &[],
        first_set: &[],
        procedure: |context, name, _| Box::pin(run(context, name, Fault::Terminate)),
    },
    Test {
        name: "failover/pause",
        asks: "How long do writes pause when the node that takes them answers no more, and no \
               connection breaks?",
        parameters: &[],
        first_set: &[],
        procedure: |context, name, _| Box::pin(run(context, name, Fault::Pause)),
    },
];

const MESSAGE_BYTES: usize = 256;
/// Rate of each sender: a pause is known to a twentieth of a second.
const PER_SECOND: f64 = 20.0;
/// Window of each sender; a pause of a minute does not fill it.
const WINDOW: usize = 2_000;
/// Time before each fault that is recorded as calm.
const CALM: Duration = Duration::from_secs(3);
/// A client that detects a dead server by heartbeat may take more than a minute.
const RESUMED_WITHIN: Duration = Duration::from_secs(180);
const CLUSTER: u32 = 3;

/// The fault's name in measures.
fn times(fault: Fault) -> &'static str {
    match fault {
        Fault::Kill => "kills",
        Fault::Terminate => "terminations",
        Fault::Pause => "pauses of a node",
    }
}

async fn run(context: &mut Context, name: &str, fault: Fault) -> Result<Run, Problem> {
    let faults = context.needs_faults()?;
    if faults.nodes() < CLUSTER {
        let why = "writes can only go on in a cluster of three or more".to_owned();
        return Err(Problem::Skipped(why));
    }
    let times = context.by_form(3, 20, 100);
    let mut plan = plan(context)?;
    let strikes = Strikes {
        fault,
        topology: plan.topology.clone(),
        driver: Arc::clone(&context.driver),
        faults,
        whole_within: context.back_within(),
        done: Arc::new(Mutex::new(Vec::new())),
    };
    check_reports_leaders(&strikes).await?;
    plan.phases = phases(context, &strikes, times);
    let facts = Facts::of(&plan);
    let outcome = context.load(name, plan).await?;
    Ok(judged(context, name, facts, outcome, &strikes))
}

/// Checks that the system reports leaders, without which a pause could not be attributed. It is
/// called before the topology exists.
async fn check_reports_leaders(strikes: &Strikes) -> Result<(), Problem> {
    match strikes.driver.replication(&strikes.topology).await {
        Err(failure @ Failure::Unsupported { .. }) => Err(Problem::Skipped(failure.to_string())),
        _ => Ok(()),
    }
}

fn plan(context: &mut Context) -> Result<Plan, Problem> {
    let mut topology = context.queue()?;
    topology.destinations = context.by_form(6, 12, 48);
    topology.lease = context.lease_of_the_killed();
    let senders = topology.destinations;
    let mut plan = Plan::new(topology, MESSAGE_BYTES, Duration::ZERO);
    plan.senders = senders as u16;
    plan.pace = Pace::Open { per_second: PER_SECOND * f64::from(senders), window: WINDOW };
    (plan.receivers, plan.lanes) = (CLUSTER, 10);
    plan.drain_idle = Duration::from_secs(15);
    plan.drain_max = Duration::from_secs(120);
    plan.keeps_acknowledgements = true;
    Ok(plan)
}

fn phases(context: &Context, strikes: &Strikes, times: u32) -> Vec<Phase> {
    let at_most = context.back_within();
    let until_confirmed = Until::Confirmed { at_most };
    let mut phases = vec![
        Phase::warm_up(context.seconds(1, 3, 30)),
        Phase { until: until_confirmed, ..Phase::measured("before", Duration::ZERO) },
    ];
    let struck = format!("{} of a node that leads", strikes.fault.name());
    for time in 1..=times {
        let doing = |what: &str, name: String, until, act: Act| {
            let phase = Phase { until, ..Phase::measured(&name, Duration::ZERO) };
            let strikes = strikes.clone();
            outage::acting(&strikes.faults.clone(), what, phase, move |_| act(strikes))
        };
        phases.extend([
            Phase::measured(&format!("calm {time}"), CALM),
            doing(
                &struck,
                format!("gone {time}"),
                Until::ConfirmedToAll { at_most: RESUMED_WITHIN },
                |strikes| Box::pin(strikes.strike()),
            ),
            Phase::measured(&format!("without it {time}"), Duration::from_secs(1)),
            doing("the node comes back", format!("back {time}"), until_confirmed, |strikes| {
                Box::pin(strikes.back())
            }),
            doing(
                "copies catch up",
                format!("catching up {time}"),
                Until::Time(Duration::ZERO),
                |strikes| Box::pin(strikes.whole()),
            ),
        ]);
    }
    phases
}

type Act = fn(Strikes) -> BoxFuture<'static, Result<(), String>>;

/// Effect of one fault on the senders.
#[derive(Clone, PartialEq, Debug)]
struct Struck {
    led: Vec<Duration>,
    others: Vec<Duration>,
    /// With all nodes up, just before the fault.
    calm: Vec<Duration>,
}

fn struck(fault: Fault, strike: &Strike, outcome: &Outcome) -> Struck {
    let mut struck = Struck { led: Vec::new(), others: Vec::new(), calm: Vec::new() };
    let calm_ns = strike.fault_ns.saturating_sub(CALM.as_nanos() as u64);
    let back_ns = strike.back_ns.unwrap_or(u64::MAX);
    // Each sender has one destination, with the same number.
    for (acknowledged, led) in outcome.acknowledged.iter().zip(&strike.led) {
        let pause = match fault {
            Fault::Kill | Fault::Pause => {
                next_write(acknowledged, strike.fault_ns, strike.happened_ns)
            }
            Fault::Terminate if strike.back_ns.is_none() => None,
            Fault::Terminate => Some(longest_silence(acknowledged, strike.fault_ns, back_ns)),
        };
        // If a pause never ended, the load has ended, and failed.
        let which = if *led { &mut struck.led } else { &mut struck.others };
        which.extend(pause);
        struck.calm.push(longest_silence(acknowledged, calm_ns, strike.fault_ns));
    }
    struck
}

fn judged(context: &Context, name: &str, facts: Facts, outcome: Outcome, strikes: &Strikes) -> Run {
    let done = strikes.done();
    let each: Vec<Struck> =
        done.iter().map(|strike| struck(strikes.fault, strike, &outcome)).collect();
    let all = |of: fn(&Struck) -> &Vec<Duration>| Pauses::of(each.iter().flat_map(of).copied());
    let (led, others, calm) = (all(|it| &it.led), all(|it| &it.others), all(|it| &it.calm));
    let whole = Pauses::of(done.iter().filter_map(|strike| strike.whole));
    let mut headline = spread("its leader gone", &led);
    headline.extend(spread("leader alive", &others));
    headline.extend(calm.quantile(0.99).map(|it| lower("no fault: p99", ms(it), "ms")));
    let again = [("p50", whole.quantile(0.5)), ("worst", whole.worst())];
    let again = again.into_iter().filter_map(|(which, time)| Some((which, time?)));
    headline.extend(again.map(|(which, it)| lower(&format!("whole again: {which}"), ms(it), "ms")));
    headline.extend([
        neither(times(strikes.fault), done.len() as f64, ""),
        neither("writes that lost their leader", led.count() as f64, "senders"),
        lower("lost", outcome.audit.lost as f64, "messages"),
        lower("came twice", outcome.audit.repeated as f64, "messages"),
        lower("not acknowledged", outcome.audit.unconfirmed as f64, "messages"),
    ]);
    let steps = (1..).zip(each.iter().zip(&done)).map(|(time, it)| step(time, it)).collect();
    let mut run = judge::run(context, name, facts, outcome, headline);
    run.steps = steps;
    for (name, pauses) in [("pause-led", led), ("pause-others", others), ("pause-calm", calm)] {
        let mut latency = Latency::default();
        pauses.iter().for_each(|pause| latency.record_us(pause.as_micros() as u64));
        run.latencies.insert(name.to_owned(), latency);
    }
    remark(&mut run, &done, strikes);
    run
}

fn remark(run: &mut Run, done: &[Strike], strikes: &Strikes) {
    let nodes: Vec<String> = done.iter().map(|strike| strike.node.to_string()).collect();
    run.remarks.push(format!("nodes, in this order: {}", nodes.join(", ")));
    if strikes.fault == Fault::Pause {
        let what = "a node was stopped where it was (SIGSTOP): no cut of a network";
        run.remarks.push(what.to_owned());
    }
    let never = done.iter().filter(|it| it.back_ns.is_some() && it.whole.is_none()).count();
    if never > 0 {
        let within = strikes.whole_within.as_secs();
        let why =
            format!("{never} times not all copies were in sync {within} s after a node's start");
        judge::fail(run, why);
    }
}

fn spread(whose: &str, pauses: &Pauses) -> Vec<Measure> {
    let figures =
        [("p50", pauses.quantile(0.5)), ("p99", pauses.quantile(0.99)), ("worst", pauses.worst())];
    let measure = |(which, pause): (&str, Option<Duration>)| {
        Some(lower(&format!("{whose}: {which}"), ms(pause?), "ms"))
    };
    figures.into_iter().filter_map(measure).collect()
}

/// The longest pauses of each fault, plotted over all faults.
fn step(time: u32, (struck, strike): (&Struck, &Strike)) -> Step {
    let longest = |of: &[Duration]| of.iter().max().copied();
    let figures = [
        ("longest pause, its leader gone,", longest(&struck.led)),
        ("longest pause, leader alive,", longest(&struck.others)),
        ("longest pause before the fault,", longest(&struck.calm)),
        ("whole again after its start,", strike.whole),
    ];
    let measure = |(name, value): (&str, Option<Duration>)| Some(lower(name, ms(value?), "ms"));
    Step {
        parameter: "fault".to_owned(),
        value: f64::from(time),
        unit: String::new(),
        measures: figures.into_iter().filter_map(measure).collect(),
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests;
