//! Derives a result from an outcome: the figures, and whether they count.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use driver::{Tier, Topology};
use load::{Drain, Outcome, PhaseOutcome, Plan, Until};
use results::{Audit, Better, Measure, Process, Run, SCHEMA, System, Test, Verdict};
use serde_json::{Value, json};

use crate::compatibility;
use crate::context::Context;

/// Share of all CPU time above which the suite itself may be the bottleneck.
const CLIENT_BOUND: f64 = 0.45;

/// Share of the receivers' p50: with a larger clock difference the latency is uncertain.
const UNCERTAIN: f64 = 0.1;

/// The part of a plan that goes into the result.
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

/// Result of one load. `headline`: the main figures of the test, shown before those of every test.
pub(crate) fn run(
    context: &Context,
    test: &str,
    facts: Facts,
    outcome: Outcome,
    headline: Vec<Measure>,
) -> Run {
    let (counts, seconds) = outcome.measured();
    let mut faults = outcome.audit.faults(facts.topology.ordered);
    if counts.confirmed == 0 {
        faults.push("not one message was confirmed".to_owned());
    }
    faults.extend(outcome.phases.iter().filter(|phase| phase.is_silent()).map(silence));
    let verdict = match (&outcome.interrupted, faults.is_empty()) {
        (Some(why), _) => Verdict::Interrupted(why.clone()),
        (None, true) => Verdict::Passed,
        (None, false) => Verdict::Failed(faults),
    };
    let mut remarks: Vec<String> =
        outcome.errors.iter().map(|(what, count)| format!("{count} times: {what}")).collect();
    if outcome.drain != Drain::Complete && outcome.interrupted.is_none() {
        remarks.push("what was under way at the end did not all come in time".to_owned());
    }
    let mut measures = headline;
    measures.extend(common(&outcome, counts.confirmed, seconds));
    remarks.extend(client_bound(&outcome, context.host.cores));
    remarks.extend(clocks(&outcome));
    let ago = outcome.processes.first().and_then(|process| process.usage.last());
    let mut run = nothing_yet(context, test, facts.topology.tier, verdict);
    run.started_ms = run.started_ms.saturating_sub(ago.map_or(0, |usage| (usage.at * 1e3) as u64));
    run.system.settings.append(&mut context.driver.settings(&facts.topology));
    // The user's settings come last.
    run.system.settings.extend(context.settings.clone());
    run.test.closed_loop = facts.closed_loop;
    run.test.parameters = facts.parameters;
    if !outcome.agents.is_empty() {
        let machines = json!(outcome.agents.len());
        run.test.parameters.insert("client machines".to_owned(), machines);
    }
    run.compatibility = compatibility::blocks(&outcome);
    Run {
        agents: outcome.agents,
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

/// Result of a test that needs a feature the system lacks.
pub(crate) fn not_supported(context: &Context, test: &str, why: String) -> Run {
    nothing_yet(context, test, context.tier, Verdict::NotSupported(why))
}

fn silence(phase: &PhaseOutcome) -> String {
    let within = phase.until.at_most().as_secs_f64();
    let what = match phase.until {
        Until::ConfirmedToAll { .. } => "some senders had nothing confirmed",
        _ => "nothing was confirmed",
    };
    format!("phase {:?}: {what} within {within:.0} s, so it ended there", phase.name)
}

/// The fields that are known without a load.
fn nothing_yet(context: &Context, test: &str, tier: Tier, verdict: Verdict) -> Run {
    let about = context.driver.about();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Run {
        schema: SCHEMA,
        suite: context.suite.clone(),
        started_ms: now.as_millis() as u64,
        test: Test {
            name: test.to_owned(),
            asks: crate::question(test).to_owned(),
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
        agents: Vec::new(),
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

/// Fails a run for a reason outside its audit.
pub(crate) fn fail(run: &mut Run, why: String) {
    match &mut run.verdict {
        Verdict::Interrupted(_) => {}
        Verdict::Failed(faults) => faults.push(why),
        passed => *passed = Verdict::Failed(vec![why]),
    }
}

/// Remarks for each machine on which the suite itself used too much CPU.
fn client_bound(outcome: &Outcome, cores: u32) -> Vec<String> {
    let seconds = outcome.seconds.len().max(1) as f64;
    let (agents, here): (Vec<&Process>, Vec<&Process>) =
        outcome.processes.iter().filter(|one| one.is_suite()).partition(|one| one.is_agent());
    let here = here.into_iter().map(|process| (process, "the suite itself".to_owned(), cores));
    let there = agents.into_iter().filter_map(|process| {
        // A lost agent reported nothing.
        let number: usize = process.name.strip_prefix("agent ")?.parse().ok()?;
        let agent = outcome.agents.get(number.checked_sub(1)?)?;
        Some((process, format!("the agent at {}", agent.address), agent.host.cores))
    });
    let used = here.chain(there).map(|(process, who, cores)| {
        (process.cpu_seconds() / (seconds * f64::from(cores.max(1))), who)
    });
    used.filter(|(share, _)| *share > CLIENT_BOUND)
        .map(|(share, who)| format!("client-bound: {who} used {:.0} % of all CPU", 100.0 * share))
        .collect()
}

/// Remark on the accuracy of latencies between machines.
fn clocks(outcome: &Outcome) -> Option<String> {
    let machines = outcome.agents.len();
    let apart_us = results::clocks_apart_us(&outcome.agents);
    let p50_us = outcome.latencies.receive_due.quantile_us(0.5) as f64;
    let known =
        format!("{machines} client machines, whose clocks may be {:.3} ms apart", apart_us / 1e3);
    match machines {
        0 | 1 => None,
        _ if p50_us > 0.0 && apart_us > p50_us * UNCERTAIN => Some(format!(
            "{known}: more than a tenth of the receivers' p50 of {:.3} ms",
            p50_us / 1e3
        )),
        _ => Some(known),
    }
}

/// The figures of every run.
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

/// Received messages a second, over all measured phases.
pub(crate) fn received_rate(outcome: &Outcome) -> f64 {
    let (counts, seconds) = outcome.measured();
    if seconds > 0.0 { counts.received as f64 / seconds } else { 0.0 }
}

pub(crate) fn confirmed_rate(outcome: &Outcome) -> f64 {
    let (counts, seconds) = outcome.measured();
    if seconds > 0.0 { counts.confirmed as f64 / seconds } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use driver::{Style, Target};
    use load::{Burials, Interval};
    use results::{Agent, Audit, ClockOffset, Host, Second, Usage};

    use super::*;
    use crate::Form;

    /// Ten seconds of load on `machines` client machines with four cores, with clock offsets known
    /// to 50 us.
    fn outcome(machines: u32, receive_us: u64) -> Outcome {
        let mut latencies = Interval::default();
        latencies.receive_due.record_us(receive_us);
        let clock = ClockOffset { ahead_us: 700.0, uncertainty_us: 50.0 };
        let agent = |number| Agent {
            address: format!("client-{number}:7070"),
            host: Host { cores: 4, ..Host::default() },
            clock,
            clock_at_end: Some(clock),
            ..Agent::default()
        };
        Outcome {
            seconds: vec![Second::default(); 10],
            marks: Vec::new(),
            phases: Vec::new(),
            latencies,
            processes: Vec::new(),
            audit: Audit::default(),
            errors: BTreeMap::new(),
            create: Duration::ZERO,
            interrupted: None,
            drain: Drain::Complete,
            burials: Burials::default(),
            agents: (1..=machines).map(agent).collect(),
            acknowledged: Vec::new(),
        }
    }

    fn process(name: &str, cpu: f64) -> Process {
        let usage = |at, cpu| Usage { at, cpu, ..Usage::default() };
        Process { name: name.to_owned(), usage: vec![usage(0.0, 1.0), usage(10.0, 1.0 + cpu)] }
    }

    #[tokio::test]
    async fn server_not_back_in_time_fails_the_run_with_a_reason() {
        let driver = drivers::connect(&Target::of("memory")).expect("it is always there");
        let context = Context::new(driver, "1".to_owned(), Tier::T0, Form::Quick);
        let topology = Topology::new("t", Style::Queue, Tier::T0);
        let facts = Facts::of(&Plan::new(topology, 100, Duration::ZERO));
        let at_most = Duration::from_secs(60);
        let counts = load::Counts { confirmed: 5, ..load::Counts::default() };
        let waited = |reached| Outcome {
            phases: vec![PhaseOutcome {
                name: "back 1".to_owned(),
                measured: true,
                from: 1.0,
                to: 61.0,
                counts,
                latencies: Interval::default(),
                backlog: (0, 0),
                until: Until::Confirmed { at_most },
                reached,
            }],
            ..outcome(0, 500)
        };
        let judged =
            |reached| run(&context, "verify/lossless", facts.clone(), waited(reached), vec![]);
        assert_eq!(judged(true).verdict, Verdict::Passed);
        let Verdict::Failed(why) = judged(false).verdict else { panic!("it passed") };
        assert!(why[0].contains("back 1") && why[0].contains("60 s"), "{why:?}");
    }

    #[test]
    fn clock_differences_too_large_for_the_latencies_are_remarked() {
        assert_eq!(clocks(&outcome(0, 500)), None);
        assert_eq!(clocks(&outcome(1, 500)), None);
        let well = clocks(&outcome(2, 5_000)).expect("is told");
        assert_eq!(well, "2 client machines, whose clocks may be 0.100 ms apart");
        let badly = clocks(&outcome(3, 500)).expect("is told");
        assert!(badly.contains("more than a tenth") && badly.contains("0.500 ms"), "{badly}");
    }

    #[test]
    fn client_bound_is_judged_for_each_machine() {
        let mut outcome = outcome(2, 500);
        outcome.processes =
            [("suite", 6.0), ("broker", 20.0), ("agent 1", 12.0), ("agent 2", 30.0)]
                .map(|(name, cpu)| process(name, cpu))
                .into();
        let bound = client_bound(&outcome, 2);
        assert_eq!(bound, ["client-bound: the agent at client-2:7070 used 75 % of all CPU"]);
        assert_eq!(client_bound(&outcome, 1).len(), 2);
    }
}
