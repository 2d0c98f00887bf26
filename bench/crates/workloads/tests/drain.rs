//! The end of a load: nothing is called lost that may still come.

use std::time::Duration;

use driver::{Style, Target, Tier, Topology};
use load::{Drain, Outcome, Pace, Plan, Silent, Work};
use tokio::sync::watch;

fn plan(lease: Duration, work: Work) -> Plan {
    let mut topology = Topology::new("drain", Style::Queue, Tier::T0);
    topology.lease = lease;
    let mut plan = Plan::new(topology, 100, Duration::from_secs(1));
    plan.pace = Pace::Open { per_second: 200.0, window: 100 };
    plan.work = work;
    plan
}

async fn run(plan: Plan) -> Outcome {
    let driver = drivers::connect(&Target::of("memory")).expect("it is always there");
    let interrupt = watch::channel(false).1;
    load::run(plan, driver, &load::InProcess, Vec::new(), interrupt, &mut Silent)
        .await
        .expect("it runs")
}

#[tokio::test]
async fn what_is_leased_is_waited_for_until_its_lease_ends() {
    let plan = plan(Duration::from_secs(7), Work::Forget { share: 0.1 });
    assert!(plan.drain_idle < plan.topology.lease);
    let outcome = run(plan).await;
    assert_eq!(outcome.drain, Drain::Complete);
    assert!(outcome.audit.lost == 0 && outcome.audit.repeated > 0, "{:?}", outcome.audit);
}

#[tokio::test]
async fn what_comes_too_late_is_late_and_not_lost() {
    let half = Duration::from_millis(500);
    let mut plan = plan(Duration::from_secs(60), Work::Take(vec![(1.0, half..=half)]));
    plan.receive_max = 1;
    plan.drain_max = Duration::from_secs(1);
    let outcome = run(plan).await;
    assert_eq!(outcome.drain, Drain::GivenUp);
    assert!(outcome.audit.lost == 0 && outcome.audit.late > 100, "{:?}", outcome.audit);
    assert!(!outcome.audit.faults(false).is_empty(), "no test passes with that");
}
