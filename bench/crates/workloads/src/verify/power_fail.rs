//! The power of all nodes and of their disk fails at one instant under load. A server must still
//! have everything that it confirmed at a synced tier. `kill -9` cannot test that, since it leaves
//! the page cache intact.

use std::sync::Arc;
use std::time::Duration;

use load::{Phase, Until};
use results::Run;

use super::{outages, plan};
use crate::context::{Context, Faults, Problem};
use crate::outage;

/// Upper limit; preallocated and unused space takes no room.
const DISK: u64 = 8 << 30;

pub(super) async fn run(context: &mut Context, name: &str) -> Result<Run, Problem> {
    if !context.tier.is_synced() {
        let tier = context.tier;
        return Err(Problem::Skipped(format!("{tier} promises nothing of a power failure")));
    }
    let faults = context.needs_faults()?;
    let not_had = |why| Problem::Skipped(format!("its servers have no power to be cut: {why}"));
    faults.put_on_own_disk(DISK).await.map_err(not_had)?;
    let ran = fail(context, name, &faults).await;
    // After any outcome the next test needs its servers restored.
    faults.release().await.map_err(Problem::Servers)?;
    ran
}

async fn fail(context: &mut Context, name: &str, faults: &Arc<dyn Faults>) -> Result<Run, Problem> {
    let mut plan = plan(context, Duration::ZERO)?;
    plan.topology.lease = context.lease_of_the_killed();
    let cuts = context.by_form(1, 5, 100);
    let at_most = context.back_within();
    plan.phases = vec![
        Phase::warm_up(context.warm_up()),
        // Before the first confirmation a server has nothing to lose.
        Phase { until: Until::Confirmed { at_most }, ..Phase::measured("before", Duration::ZERO) },
    ];
    for cut in 1..=cuts {
        plan.phases.extend([
            outage::without_power(faults, &format!("dark {cut}")),
            outage::power_back(faults, &format!(" {cut}"), at_most),
            Phase::measured(&format!("up {cut}"), context.seconds(1.5, 3, 20)),
        ]);
    }
    outages(context, name, plan, "power failures", cuts).await
}
