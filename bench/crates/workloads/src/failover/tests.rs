use std::collections::BTreeMap;

use driver::{Style, Target, Tier, Topology};
use load::{Acknowledged, Burials, Drain, Interval};
use results::{Audit, Verdict};

use super::*;
use crate::Form;

const MS: u64 = 1_000_000;
/// Time of the first fault.
const AT: u64 = 10_000 * MS;

/// One message each 50 ms, acknowledged at once. Acknowledgements within `silence` (milliseconds)
/// are delayed to its end.
fn acknowledgements(silence: std::ops::Range<u64>) -> Vec<Acknowledged> {
    let one = |number: u64| {
        let (sent_ns, told_ns) = (number * 50 * MS, (number * 50 + 2) * MS);
        let silent = silence.start * MS <= told_ns && told_ns < silence.end * MS;
        Acknowledged { sent_ns, at_ns: if silent { silence.end * MS } else { told_ns } }
    };
    (0..400).map(one).collect()
}

fn outcome(acknowledged: Vec<Vec<Acknowledged>>) -> Outcome {
    let audit = Audit { confirmed: 800, received: 800, ..Audit::default() };
    let counts = load::Counts { confirmed: 800, ..load::Counts::default() };
    let phase = load::PhaseOutcome {
        name: "gone 1".to_owned(),
        measured: true,
        from: 10.0,
        to: 20.0,
        counts,
        latencies: Interval::default(),
        backlog: (0, 0),
        until: Until::ConfirmedToAll { at_most: RESUMED_WITHIN },
        reached: true,
    };
    Outcome {
        seconds: Vec::new(),
        marks: Vec::new(),
        phases: vec![phase],
        latencies: Interval::default(),
        processes: Vec::new(),
        audit,
        errors: BTreeMap::new(),
        create: Duration::ZERO,
        interrupted: None,
        drain: Drain::Complete,
        burials: Burials::default(),
        agents: Vec::new(),
        acknowledged,
    }
}

fn strike(whole: Option<Duration>) -> Strike {
    Strike {
        node: 2,
        led: vec![true, false],
        fault_ns: AT,
        happened_ns: AT + 20 * MS,
        back_ns: Some(AT + 3_000 * MS),
        whole,
    }
}

fn judge(fault: Fault, silence: std::ops::Range<u64>, whole: Option<Duration>) -> Run {
    let driver = drivers::connect(&Target::of("memory")).expect("it is always there");
    let context = Context::new(Arc::clone(&driver), "1".to_owned(), Tier::T0, Form::Quick);
    let topology = Topology::new("t", Style::Queue, Tier::T0);
    let facts = Facts::of(&Plan::new(topology.clone(), 100, Duration::ZERO));
    let strikes = Strikes {
        fault,
        topology,
        driver,
        faults: Arc::new(Nobody),
        whole_within: Duration::from_secs(60),
        done: Arc::new(Mutex::new(vec![strike(whole)])),
    };
    let outcome = outcome(vec![acknowledgements(silence), acknowledgements(0..0)]);
    judged(&context, "failover/kill", facts, outcome, &strikes)
}

/// A cluster without faults.
#[derive(Debug)]
struct Nobody;

#[async_trait::async_trait]
impl crate::Faults for Nobody {
    fn nodes(&self) -> u32 {
        3
    }

    async fn kill(&self, _: u32) -> Result<std::time::Instant, String> {
        Err("nobody is there".to_owned())
    }

    async fn stop(&self, node: u32) -> Result<std::time::Instant, String> {
        self.kill(node).await
    }

    async fn start(&self, _: u32) -> Result<(), String> {
        Err("nobody is there".to_owned())
    }

    fn watched(&self) -> Vec<load::Watched> {
        Vec::new()
    }
}

fn value(run: &Run, name: &str) -> f64 {
    run.measure(name).unwrap_or_else(|| panic!("no {name}: {:?}", run.measures)).value
}

#[test]
fn pauses_are_reported_separately_for_led_and_other_senders() {
    let run = judge(Fault::Kill, 10_010..10_600, Some(Duration::from_millis(1_500)));
    assert_eq!(run.verdict, Verdict::Passed);
    assert_eq!(run.measures[0].name, "its leader gone: p50");
    assert_eq!(value(&run, "its leader gone: worst"), 600.0);
    // Messages are sent each 50 ms, and acknowledged 2 ms later.
    assert_eq!(value(&run, "leader alive: worst"), 52.0);
    assert_eq!(value(&run, "no fault: p99"), 50.0);
    assert_eq!(value(&run, "whole again: p50"), 1_500.0);
    let step = &run.steps[0];
    assert_eq!((step.value, step.measures[0].value), (1.0, 600.0));
    assert!(run.remarks.iter().any(|remark| remark.contains("in this order: 2")));
}

#[test]
fn gracefully_stopped_node_accepts_writes_until_its_handover() {
    // The node works for another half second, and then nothing is acknowledged for 300 ms.
    let run = judge(Fault::Terminate, 10_510..10_810, Some(Duration::ZERO));
    let pause = value(&run, "its leader gone: worst");
    assert!((300.0..=360.0).contains(&pause), "{pause}");
    let next = judge(Fault::Kill, 10_510..10_810, Some(Duration::ZERO));
    assert_eq!(value(&next, "its leader gone: worst"), 52.0, "it was no pause of a kill");
}

#[test]
fn copies_not_in_sync_in_time_fail_the_run() {
    let run = judge(Fault::Kill, 10_010..10_600, None);
    let Verdict::Failed(why) = &run.verdict else { panic!("it passed") };
    assert!(why[0].contains("in sync 60 s after"), "{why:?}");
}

#[test]
fn remark_names_the_signal_of_a_paused_node() {
    let run = judge(Fault::Pause, 10_010..10_600, Some(Duration::ZERO));
    assert!(run.remarks.iter().any(|remark| remark.contains("SIGSTOP")), "{:?}", run.remarks);
}
