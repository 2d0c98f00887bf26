//! The disk of the servers fills up while no receiver runs, and is then enlarged. A server may
//! reject messages for lack of space, or end; it must keep all confirmed messages.

use std::sync::Arc;
use std::time::Duration;

use load::{Outcome, Pace, Phase, Plan, Receivers};
use results::Run;

use crate::context::{Context, Faults, Problem};
use crate::judge::{self, Facts, higher, lower, neither};
use crate::outage::{self, longest_silence};

/// Larger than the free space that servers require at their start: RabbitMQ is set to 1 GB.
const DISK: u64 = 1_600 << 20;
const MESSAGE_BYTES: usize = 64 << 10;
const WITH_ROOM: &str = "with room";

pub(super) async fn run(context: &mut Context, name: &str) -> Result<Run, Problem> {
    let faults = context.needs_faults()?;
    let not_had = |why| Problem::Skipped(format!("its servers cannot have a small disk: {why}"));
    faults.confine(DISK).await.map_err(not_had)?;
    let ran = fill(context, name, &faults).await;
    // After any outcome the next test needs its servers restored.
    faults.release().await.map_err(Problem::Servers)?;
    ran
}

async fn fill(context: &mut Context, name: &str, faults: &Arc<dyn Faults>) -> Result<Run, Problem> {
    let topology = context.queue()?;
    let mut plan = Plan::new(topology, MESSAGE_BYTES, Duration::ZERO);
    plan.pace = Pace::Flood { window: 20 };
    (plan.senders, plan.receivers) = (4, 4);
    plan.topology.lease = Duration::from_secs(10);
    plan.drain_idle = Duration::from_secs(20);
    plan.drain_max = Duration::from_secs(120);
    plan.phases = vec![
        Phase {
            receivers: Receivers::Paused,
            ..Phase::measured("filling", context.seconds(15, 30, 60))
        },
        outage::acting(
            faults,
            "the disk is made larger",
            Phase::measured(WITH_ROOM, context.seconds(5, 10, 60)),
            |faults| Box::pin(async move { faults.enlarge(3 * DISK).await }),
        ),
    ];
    let facts = Facts::of(&plan);
    let outcome = context.load(name, plan).await?;
    let filled = filled_bytes(&outcome);
    let after = outcome.phase(WITH_ROOM).map_or(0.0, |phase| phase.rate(|n| n.confirmed));
    let interrupted = outcome.interrupted.is_some();
    let headline = vec![
        lower("lost", outcome.audit.lost as f64, "messages"),
        higher("confirmed again", after, "messages/s"),
        neither("confirmed until it was full", filled / 1e6, "MB"),
        neither("silent", longest_silence(&outcome) as f64, "s without a confirmation"),
    ];
    let mut run = judge::run(context, name, facts, outcome, headline);
    if after == 0.0 && !interrupted {
        judge::fail(&mut run, "it confirms nothing once it has room again".to_owned());
    }
    if filled < 0.5 * DISK as f64 {
        run.remarks.push("the disk may not have been full: it took little in that time".to_owned());
    }
    Ok(run)
}

fn filled_bytes(outcome: &Outcome) -> f64 {
    outcome.phase("filling").map_or(0.0, |phase| phase.backlog.1 as f64)
}
