//! One subscription stops receiving for a while but stays connected. Senders and the other
//! subscription must not be affected, and the backlog must all arrive once it resumes.

use std::time::Duration;

use load::{Outcome, Phase, Plan, Receivers};
use results::{Process, Run};

use super::plan;
use crate::context::{Context, Problem};
use crate::judge::{self, Facts, lower, ms, neither};

/// Lowest acceptable share of the offered, or of the confirmed, rate.
const UNHARMED: f64 = 0.9;

const BEFORE: &str = "before";
const STALLED: &str = "stalled";

pub(super) async fn run(context: &mut Context, name: &str) -> Result<Run, Problem> {
    context.needs_subscriptions()?;
    let mut plan = plan(context, Duration::ZERO)?;
    plan.topology.subscriptions = 2;
    let stalled = context.seconds(3, 15, 120);
    // Unsettled messages must not be redelivered while their receiver only stalls.
    plan.topology.lease = stalled + Duration::from_secs(20);
    plan.phases = phases(context, stalled);
    let (facts, offered) = (Facts::of(&plan), offered(&plan));
    let outcome = context.load(name, plan).await?;
    let harm = harm(&outcome, offered);
    let mut headline = vec![lower("server memory grew by", growth(&outcome) / 1e6, "MB")];
    for phase in [BEFORE, STALLED] {
        let Some(found) = outcome.phase(phase) else { continue };
        let (send, receive) = (&found.latencies.send_due, &found.latencies.receive_due);
        headline.push(lower(&format!("send p99 {phase}"), ms(send.quantile_us(0.99)), "ms"));
        headline.push(lower(&format!("receive p99 {phase}"), ms(receive.quantile_us(0.99)), "ms"));
    }
    if let Some(found) = outcome.phase(STALLED) {
        headline.push(neither("piled up", found.backlog.1 as f64 / 1e6, "MB"));
    }
    let mut run = judge::run(context, name, facts, outcome, headline);
    harm.into_iter().for_each(|why| judge::fail(&mut run, why));
    Ok(run)
}

fn phases(context: &Context, stalled: Duration) -> Vec<Phase> {
    vec![
        Phase::warm_up(context.warm_up()),
        Phase::measured(BEFORE, context.seconds(1, 5, 60)),
        Phase {
            receivers: Receivers::Stalled { subscription: 1 },
            ..Phase::measured(STALLED, stalled)
        },
        Phase::measured("after", context.seconds(1, 5, 60)),
    ]
}

fn offered(plan: &Plan) -> f64 {
    match plan.pace {
        load::Pace::Open { per_second, .. } => per_second,
        _ => 0.0,
    }
}

/// Harm to senders or the other subscription.
fn harm(outcome: &Outcome, offered: f64) -> Vec<String> {
    let Some(stalled) = outcome.phase(STALLED) else { return Vec::new() };
    let (confirmed, received) = (stalled.rate(|n| n.confirmed), stalled.rate(|n| n.received));
    let mut harm = Vec::new();
    if confirmed < UNHARMED * offered {
        harm.push(format!(
            "senders got {confirmed:.0} a second confirmed, of {offered:.0} offered"
        ));
    }
    if received < UNHARMED * confirmed {
        harm.push(format!(
            "the other subscription received {received:.0} a second, of {confirmed:.0} confirmed"
        ));
    }
    harm
}

/// Growth of the memory of all servers while one subscription stalled, in bytes.
fn growth(outcome: &Outcome) -> f64 {
    let Some(stalled) = outcome.phase(STALLED) else { return 0.0 };
    let gained = |process: &Process| {
        let upto = |time: f64| process.usage.iter().rev().find(|usage| usage.at <= time);
        let bytes = |time| upto(time).map_or(0, |usage| usage.resident_bytes) as f64;
        bytes(stalled.to) - bytes(stalled.from)
    };
    let servers = outcome.processes.iter().filter(|process| !process.is_suite());
    servers.map(gained).sum::<f64>().max(0.0)
}
