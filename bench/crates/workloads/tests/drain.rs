//! The end of a load: a message that may still arrive does not count as lost.

use std::time::Duration;

use driver::{Driver, Style, Target, Tier, Topology};
use drivers::MemoryBroker;
use load::{Action, Drain, Outcome, Pace, Phase, Plan, Silent, Until, Work};
use std::sync::Arc;
use std::time::Instant;
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
    run_on(drivers::connect(&Target::of("memory")).expect("it is always there"), plan).await
}

async fn run_on(driver: Arc<dyn Driver>, plan: Plan) -> Outcome {
    let interrupt = watch::channel(false).1;
    load::run(plan, driver, &load::InProcess, Vec::new(), interrupt, &mut Silent)
        .await
        .expect("it runs")
}

#[tokio::test]
async fn drain_waits_for_leases_to_end() {
    let plan = plan(Duration::from_secs(7), Work::Forget { share: 0.1 });
    assert!(plan.drain_idle < plan.topology.lease);
    let outcome = run(plan).await;
    assert_eq!(outcome.drain, Drain::Complete);
    assert!(outcome.audit.lost == 0 && outcome.audit.repeated > 0, "{:?}", outcome.audit);
}

#[tokio::test]
async fn message_after_the_drain_limit_is_late_not_lost() {
    let half = Duration::from_millis(500);
    let mut plan = plan(Duration::from_secs(60), Work::Take(vec![(1.0, half..=half)]));
    plan.receive_max = 1;
    plan.drain_max = Duration::from_secs(1);
    let outcome = run(plan).await;
    assert_eq!(outcome.drain, Drain::GivenUp);
    assert!(outcome.audit.lost == 0 && outcome.audit.late > 100, "{:?}", outcome.audit);
    assert!(!outcome.audit.faults(false).is_empty(), "no test passes with that");
}

#[tokio::test]
async fn drain_does_not_wait_for_pending_receives() {
    let began = Instant::now();
    let outcome = run(plan(Duration::from_secs(60), Work::None)).await;
    assert_eq!(outcome.drain, Drain::Complete);
    let ended = began.elapsed() - Duration::from_secs(1);
    assert!(ended < driver::RECEIVE_WAIT / 2, "{ended:?} after its phases");
}

/// Runs a load on a broker that is killed, and restarted after `back_after`, if given.
async fn killed(name: &str, back_after: Option<Duration>) -> Outcome {
    let mut target = Target::of("memory");
    target.endpoints.push(format!("memory://{name}"));
    let broker = MemoryBroker::at(name);
    let action = |action: Action| Some(("it is killed".to_owned(), action));
    let kill: Action = Box::new(move || {
        Box::pin(async move {
            broker.kill();
            if let Some(back_after) = back_after {
                tokio::spawn(async move {
                    tokio::time::sleep(back_after).await;
                    broker.start();
                });
            }
            Ok(())
        })
    });
    let at_most = Duration::from_secs(2);
    let mut plan = plan(Duration::from_secs(1), Work::None);
    plan.drain_max = Duration::from_secs(3);
    plan.phases = vec![
        Phase::measured("before", Duration::from_millis(300)),
        Phase {
            until: Until::Confirmed { at_most },
            action: action(kill),
            ..Phase::measured("back", Duration::ZERO)
        },
        Phase::measured("after", Duration::from_millis(300)),
    ];
    run_on(drivers::connect(&target).expect("it is always there"), plan).await
}

#[tokio::test]
async fn phase_lasts_until_the_next_confirmation() {
    let outcome = killed("back-soon", Some(Duration::from_millis(700))).await;
    let back = outcome.phase("back").expect("was there");
    assert!(back.reached && (0.7..1.9).contains(&back.seconds()), "{} s", back.seconds());
    let after = outcome.phase("after").expect("follows");
    assert!(after.counts.confirmed > 20, "{:?}", after.counts);
    assert_eq!((outcome.drain, outcome.audit.lost), (Drain::Complete, 0));
}

#[tokio::test]
async fn load_ends_if_its_server_does_not_return() {
    let outcome = killed("never-back", None).await;
    let back = outcome.phase("back").expect("was there");
    assert!(back.is_silent() && (2.0..2.9).contains(&back.seconds()), "{} s", back.seconds());
    assert!(outcome.phase("after").is_none(), "nothing would come of it");
}
