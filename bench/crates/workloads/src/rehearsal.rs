//! Estimates the length of tests without running them: each load ends at once and is recorded, as
//! if a system with a given rate had carried it.

use std::collections::BTreeMap;
use std::time::Duration;

use load::{Burials, Counts, Drain, Interval, Outcome, Pace, PhaseOutcome, Plan};
use results::Audit;

const KEEPS_UP_WITH: f64 = 30_000.0;

/// A load that was not carried out.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Rehearsed {
    pub(crate) test: String,
    /// Time of its phases, and of the backlog after them.
    pub(crate) time: Duration,
    /// Number of server restarts.
    pub(crate) starts: usize,
    pub(crate) destinations: u32,
}

impl Rehearsed {
    pub(crate) fn of(test: &str, plan: &Plan) -> Self {
        let actions = plan.phases.iter().filter_map(|phase| phase.action.as_ref());
        let behind = if offered(plan) > KEEPS_UP_WITH { plan.drain_max } else { Duration::ZERO };
        Self {
            test: test.to_owned(),
            time: plan.time() + behind,
            starts: actions.filter(|(what, _)| what.ends_with("starts")).count(),
            destinations: plan.topology.destinations,
        }
    }
}

fn offered(plan: &Plan) -> f64 {
    match plan.pace {
        Pace::Open { per_second, .. } => per_second,
        Pace::Closed | Pace::PingPong | Pace::Flood { .. } => KEEPS_UP_WITH,
    }
}

pub(crate) fn outcome(plan: &Plan) -> Outcome {
    let rate = offered(plan).min(KEEPS_UP_WITH);
    let mut elapsed = 0.0;
    let mut phases = Vec::new();
    for phase in &plan.phases {
        let from = elapsed;
        elapsed += phase.until.planned().as_secs_f64();
        let messages = (rate * (elapsed - from)) as u64;
        let (sent, confirmed, received, settled) = (messages, messages, messages, messages);
        phases.push(PhaseOutcome {
            name: phase.name.clone(),
            measured: phase.measured,
            from,
            to: elapsed,
            counts: Counts { sent, confirmed, received, settled, ..Counts::default() },
            latencies: Interval::default(),
            backlog: (0, 0),
            until: phase.until,
            reached: true,
        });
    }
    Outcome {
        seconds: Vec::new(),
        marks: Vec::new(),
        phases,
        latencies: Interval::default(),
        processes: Vec::new(),
        audit: Audit::default(),
        errors: BTreeMap::new(),
        create: Duration::ZERO,
        interrupted: None,
        drain: Drain::Complete,
        burials: Burials::default(),
        agents: Vec::new(),
        acknowledged: Vec::new(),
    }
}

mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use async_trait::async_trait;
    use driver::{Target, Tier};
    use load::Watched;

    use super::*;
    use crate::{Context, Faults, Form, first_set};

    /// Number of systems in `run`'s default.
    const SYSTEMS: u32 = 7;
    /// Times outside phases, as means over those systems: to install nothing, start a server, stop
    /// it and remove its data; to restart it, including the redelivery to receivers; to connect,
    /// create, drain and remove around a load; to create and remove one further destination.
    const SYSTEM: Duration = Duration::from_secs(3);
    const START: Duration = Duration::from_secs(7);
    const LOAD: Duration = Duration::from_millis(800);
    const DESTINATION: Duration = Duration::from_millis(5);

    #[derive(Debug)]
    struct OneNode;

    #[async_trait]
    impl Faults for OneNode {
        fn nodes(&self) -> u32 {
            1
        }

        async fn kill(&self, _: u32) -> Result<Instant, String> {
            Ok(Instant::now())
        }

        async fn stop(&self, _: u32) -> Result<Instant, String> {
            Ok(Instant::now())
        }

        async fn start(&self, _: u32) -> Result<(), String> {
            Ok(())
        }

        fn watched(&self) -> Vec<Watched> {
            Vec::new()
        }
    }

    /// Loads of the first set, on a system that supports all features.
    async fn rehearse(form: Form) -> Vec<Rehearsed> {
        let driver = drivers::connect(&Target::of("memory")).expect("it is always there");
        let mut context = Context::new(driver, "1".to_owned(), Tier::T3, form);
        context.faults = Some(Arc::new(OneNode));
        context.rehearsed = Some(Vec::new());
        for test in first_set(form) {
            // Some do not apply to one node, or to this tier.
            let _ = test.run(&mut context).await;
        }
        context.rehearsed.expect("it was rehearsed")
    }

    fn all_systems(loads: &[Rehearsed]) -> Duration {
        let of = |load: &Rehearsed| {
            load.time + LOAD + START * load.starts as u32 + DESTINATION * load.destinations
        };
        (SYSTEM + loads.iter().map(of).sum::<Duration>()) * SYSTEMS
    }

    #[tokio::test]
    async fn first_set_fits_an_hour_and_its_quick_form_ten_minutes() {
        for (form, minutes) in [(Form::Local, 60), (Form::Quick, 10)] {
            let loads = rehearse(form).await;
            let time = all_systems(&loads);
            println!("{}: {:.1} minutes", form.name(), time.as_secs_f64() / 60.0);
            assert!(time < Duration::from_secs(minutes * 60), "{time:?}: {loads:#?}");
        }
    }

    #[tokio::test]
    async fn first_set_contains_the_suggested_tests() {
        let loads = rehearse(Form::Local).await;
        for test in [
            "mqperf/base",
            "mqperf/mid",
            "mqperf/peak",
            "mqperf/crash",
            "omb/max-rate",
            "omb/fixed-load-75",
            "omb/topics-1000",
            "omb/subs-64",
            "omb/backlog",
            "queen/part-10001",
            "queen/bp-10",
            "queen/cg-10",
            "queen/pipeline-ordered",
            "lowlat/size-1024",
            "bmq/prio-10",
            "bmq/fanout-5",
            "verify/lossless",
            "verify/order",
        ] {
            let ran = loads.iter().any(|load| load.test.split(" at ").next() == Some(test));
            assert!(ran, "{test} is not of it: {loads:#?}");
        }
        // Tests for three nodes, and for tier T0, are in the set, and report why they do not apply.
        let first = first_set(Form::Local);
        for test in ["omb/node-failure", "bmq/bcast-5"] {
            assert!(first.iter().any(|chosen| chosen.name == test), "{test}");
        }
    }
}
