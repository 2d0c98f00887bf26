//! From what happened to a result: the figures, and whether they count.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use driver::{Tier, Topology};
use load::{Drain, Outcome, Plan};
use results::{Audit, Better, Measure, Process, Run, SCHEMA, System, Test, Verdict};
use serde_json::{Value, json};

use crate::compatibility;
use crate::context::Context;

/// Of all CPU time that there was: above it, the suite may be what is measured.
const CLIENT_BOUND: f64 = 0.45;

/// What of a plan goes into the result.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Facts {
    pub(crate) closed_loop: bool,
    pub(crate) topology: Topology,
    pub(crate) message_bytes: usize,
    pub(crate) parameters: BTreeMap<String, Value>,
}

impl Facts {
    pub(crate) fn of(plan: &Plan) -> Self {
        let (closed_loop, pace) = match plan.pace {
            load::Pace::Closed => (true, json!("closed loop")),
            load::Pace::PingPong => (true, json!("one at a time, there and back")),
            load::Pace::Flood { window } => {
                (true, json!(format!("as fast as it goes, {window} under way")))
            }
            load::Pace::Open { per_second, .. } => (false, json!(format!("{per_second:.0}/s"))),
        };
        let batch = format!("{}..{}", plan.batch.start(), plan.batch.end());
        let parameters = [
            ("pace", pace),
            ("senders", json!(plan.senders)),
            ("receivers", json!(plan.receivers)),
            ("batch", json!(batch)),
            ("receive", json!(plan.receive_max)),
            ("message bytes", json!(plan.message_bytes)),
            ("destinations", json!(plan.topology.destinations)),
            ("partitions", json!(plan.topology.partitions)),
            ("subscriptions", json!(plan.topology.subscriptions)),
            ("lanes", json!(plan.lanes)),
            ("replicas", json!(plan.topology.replicas)),
            ("style", json!(format!("{:?}", plan.topology.style).to_lowercase())),
        ];
        Self {
            closed_loop,
            topology: plan.topology.clone(),
            message_bytes: plan.message_bytes,
            parameters: parameters.map(|(name, value)| (name.to_owned(), value)).into(),
        }
    }
}

pub(crate) fn higher(name: &str, value: f64, unit: &str) -> Measure {
    measure(name, value, unit, Better::Higher)
}

pub(crate) fn lower(name: &str, value: f64, unit: &str) -> Measure {
    measure(name, value, unit, Better::Lower)
}

pub(crate) fn neither(name: &str, value: f64, unit: &str) -> Measure {
    measure(name, value, unit, Better::Neither)
}

fn measure(name: &str, value: f64, unit: &str, better: Better) -> Measure {
    Measure { name: name.into(), value, unit: unit.into(), deviation: None, better }
}

/// The result of one load. `headline`: the figures that the test is about, before those that every
/// test has.
pub(crate) fn run(
    context: &Context,
    test: &str,
    facts: Facts,
    outcome: Outcome,
    headline: Vec<Measure>,
) -> Run {
    let (counts, seconds) = outcome.measured();
    let mut faults = outcome.audit.faults(facts.topology.ordered);
    if counts.confirmed == 0 && !outcome.interrupted {
        faults.push("not one message was confirmed".to_owned());
    }
    let verdict = match (outcome.interrupted, faults.is_empty()) {
        (true, _) => Verdict::Interrupted("somebody stopped it".to_owned()),
        (false, true) => Verdict::Passed,
        (false, false) => Verdict::Failed(faults),
    };
    let mut remarks: Vec<String> =
        outcome.errors.iter().map(|(what, count)| format!("{count} times: {what}")).collect();
    if outcome.drain != Drain::Complete && !outcome.interrupted {
        remarks.push("what was under way at the end did not all come in time".to_owned());
    }
    let mut measures = headline;
    measures.extend(common(&outcome, counts.confirmed, seconds));
    let suite = cpu(&outcome.processes, Process::is_suite);
    let all_cpu = outcome.seconds.len().max(1) as f64 * f64::from(context.host.cores.max(1));
    if suite / all_cpu > CLIENT_BOUND {
        let share = 100.0 * suite / all_cpu;
        remarks.push(format!("client-bound: the suite itself used {share:.0} % of all CPU"));
    }
    let ago = outcome.processes.first().and_then(|process| process.usage.last());
    let mut run = nothing_yet(context, test, facts.topology.tier, verdict);
    run.started_ms = run.started_ms.saturating_sub(ago.map_or(0, |usage| (usage.at * 1e3) as u64));
    run.system.settings.append(&mut context.driver.settings(&facts.topology));
    // What the user said comes last.
    run.system.settings.extend(context.settings.clone());
    run.test.closed_loop = facts.closed_loop;
    run.test.parameters = facts.parameters;
    run.compatibility = compatibility::blocks(&outcome);
    Run {
        remarks,
        measures,
        seconds: outcome.seconds,
        marks: outcome.marks,
        latencies: outcome.latencies.named(),
        processes: outcome.processes,
        audit: outcome.audit,
        ..run
    }
}

/// The result of a test that asks for what the system does not have.
pub(crate) fn not_supported(context: &Context, test: &str, why: String) -> Run {
    nothing_yet(context, test, context.tier, Verdict::NotSupported(why))
}

/// What is known without a load.
fn nothing_yet(context: &Context, test: &str, tier: Tier, verdict: Verdict) -> Run {
    let about = context.driver.about();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Run {
        schema: SCHEMA,
        suite: context.suite.clone(),
        started_ms: now.as_millis() as u64,
        test: Test {
            name: test.to_owned(),
            asks: crate::asks(test).to_owned(),
            form: context.form.name().to_owned(),
            closed_loop: false,
            parameters: BTreeMap::new(),
        },
        system: System {
            name: about.system.to_owned(),
            title: about.title.to_owned(),
            version: context.version.clone(),
            client: about.client.to_owned(),
            tier,
            sent_means: about.sent_means.to_owned(),
            settings: context.settings.clone(),
        },
        host: context.host.clone(),
        verdict,
        remarks: Vec::new(),
        measures: Vec::new(),
        seconds: Vec::new(),
        marks: Vec::new(),
        steps: Vec::new(),
        latencies: BTreeMap::new(),
        processes: Vec::new(),
        audit: Audit::default(),
        compatibility: BTreeMap::new(),
    }
}

/// Fails a run for what its audit does not know of.
pub(crate) fn fail(run: &mut Run, why: String) {
    match &mut run.verdict {
        Verdict::Interrupted(_) => {}
        Verdict::Failed(faults) => faults.push(why),
        passed => *passed = Verdict::Failed(vec![why]),
    }
}

/// The figures that every run has.
fn common(outcome: &Outcome, confirmed: u64, seconds: f64) -> Vec<Measure> {
    let mut measures = Vec::new();
    let broker = cpu(&outcome.processes, |one| !one.is_suite());
    let all_confirmed = outcome.audit.confirmed;
    if broker > 0.0 && all_confirmed > 0 {
        let per_million = broker * 1e6 / all_confirmed as f64;
        measures.push(lower("server CPU", per_million, "s per million"));
    }
    let brokers = || outcome.processes.iter().filter(|process| !process.is_suite());
    if let Some(peak) = brokers().map(Process::resident_bytes_max).reduce(|a, b| a + b)
        && peak > 0
    {
        measures.push(lower("server memory", peak as f64 / 1e6, "MB at the peak"));
    }
    let written: u64 = brokers().map(Process::written_bytes).sum();
    if written > 0 && all_confirmed > 0 {
        let each = written as f64 / all_confirmed as f64;
        measures.push(lower("server disk", each, "bytes written a message"));
    }
    if seconds > 0.0 {
        measures.push(neither("confirmed", confirmed as f64 / seconds, "messages/s"));
    }
    let Some(latency) = (outcome.latencies.send.count() > 0).then_some(&outcome.latencies) else {
        return measures;
    };
    for (name, latency) in [("send", &latency.send_due), ("receive", &latency.receive_due)] {
        if latency.count() > 0 {
            measures.push(lower(&format!("{name} p50"), ms(latency.quantile_us(0.5)), "ms"));
            measures.push(lower(&format!("{name} p99"), ms(latency.quantile_us(0.99)), "ms"));
        }
    }
    measures
}

pub(crate) fn ms(micros: u64) -> f64 {
    micros as f64 / 1e3
}

fn cpu(processes: &[Process], wanted: impl Fn(&Process) -> bool) -> f64 {
    processes.iter().filter(|one| wanted(one)).map(Process::cpu_seconds).sum()
}

/// Received messages a second, over everything that was measured.
pub(crate) fn received_rate(outcome: &Outcome) -> f64 {
    let (counts, seconds) = outcome.measured();
    if seconds > 0.0 { counts.received as f64 / seconds } else { 0.0 }
}

pub(crate) fn confirmed_rate(outcome: &Outcome) -> f64 {
    let (counts, seconds) = outcome.measured();
    if seconds > 0.0 { counts.confirmed as f64 / seconds } else { 0.0 }
}
