//! Invented runs, for reviewing a report and for its tests. No figure here was ever measured.
#![allow(dead_code)]

use std::collections::BTreeMap;

use driver::Tier;
use results::{
    Audit, Better, Finding, Host, Latency, Mark, Measure, Process, Run, SCHEMA, Second, Step,
    SyncDelay, System, Test, Usage, Verdict,
};

/// Random numbers, the same each time.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns a value between 0 and 1.
    pub(crate) fn roll(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns a value around 1, rarely far from it.
    pub(crate) fn around(&mut self, spread: f64) -> f64 {
        let sum: f64 = (0..4).map(|_| self.roll()).sum();
        1.0 + (sum - 2.0) * spread
    }
}

/// Characteristics of an invented system.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) version: &'static str,
    pub(crate) tier: Tier,
    pub(crate) rate: f64,
    pub(crate) median_us: f64,
    /// Length of the tail relative to the median.
    pub(crate) tail: f64,
    pub(crate) cpu: f64,
    pub(crate) memory: u64,
}

pub(crate) const KINDS: [Kind; 12] = [
    Kind {
        name: "alpha",
        title: "Alpha",
        version: "1.0.0",
        tier: Tier::T4,
        rate: 61_000.0,
        median_us: 1_900.0,
        tail: 1.0,
        cpu: 9.0,
        memory: 180 << 20,
    },
    Kind {
        name: "bravo-log",
        title: "Bravo, log",
        version: "4.1.0",
        tier: Tier::T4,
        rate: 22_000.0,
        median_us: 4_800.0,
        tail: 1.6,
        cpu: 31.0,
        memory: 1_300 << 20,
    },
    Kind {
        name: "charlie-quorum",
        title: "Charlie, quorum queues",
        version: "4.2.1",
        tier: Tier::T4,
        rate: 14_500.0,
        median_us: 6_100.0,
        tail: 1.4,
        cpu: 52.0,
        memory: 410 << 20,
    },
    Kind {
        name: "delta-stream",
        title: "Delta streams",
        version: "2.12.2",
        tier: Tier::T4,
        rate: 17_800.0,
        median_us: 3_900.0,
        tail: 1.8,
        cpu: 24.0,
        memory: 96 << 20,
    },
    Kind {
        name: "echo",
        title: "Echo, SKIP LOCKED",
        version: "18.1",
        tier: Tier::T3,
        rate: 7_900.0,
        median_us: 8_900.0,
        tail: 1.5,
        cpu: 160.0,
        memory: 390 << 20,
    },
    Kind {
        name: "foxtrot-streams",
        title: "Foxtrot streams",
        version: "8.4.0",
        tier: Tier::T1,
        rate: 88_000.0,
        median_us: 620.0,
        tail: 1.7,
        cpu: 6.0,
        memory: 210 << 20,
    },
    Kind {
        name: "golf",
        title: "Golf",
        version: "2.6.0",
        tier: Tier::T3,
        rate: 24_000.0,
        median_us: 2_600.0,
        tail: 1.3,
        cpu: 15.0,
        memory: 150 << 20,
    },
    Kind {
        name: "hotel",
        title: "Hotel",
        version: "8.2.3",
        tier: Tier::T3,
        rate: 4_200.0,
        median_us: 11_000.0,
        tail: 1.9,
        cpu: 210.0,
        memory: 720 << 20,
    },
    Kind {
        name: "india",
        title: "India",
        version: "4.1.2",
        tier: Tier::T2,
        rate: 35_000.0,
        median_us: 2_200.0,
        tail: 2.0,
        cpu: 44.0,
        memory: 2_400 << 20,
    },
    Kind {
        name: "juliett",
        title: "Juliett",
        version: "2.44.0",
        tier: Tier::T2,
        rate: 19_000.0,
        median_us: 1_700.0,
        tail: 1.4,
        cpu: 38.0,
        memory: 980 << 20,
    },
    Kind {
        name: "kilo",
        title: "Kilo",
        version: "5.3.3",
        tier: Tier::T1,
        rate: 41_000.0,
        median_us: 1_100.0,
        tail: 1.5,
        cpu: 29.0,
        memory: 640 << 20,
    },
    Kind {
        name: "lima-core",
        title: "Lima, core",
        version: "0.9.7",
        tier: Tier::T0,
        rate: 310_000.0,
        median_us: 140.0,
        tail: 1.2,
        cpu: 2.0,
        memory: 22 << 20,
    },
];

/// A run that passed, of any test on any system.
pub(crate) fn run(test: &str, system: &str) -> Run {
    let kind = KINDS.iter().find(|kind| kind.name == system).unwrap_or(&KINDS[0]);
    let mut run = seeded_run(test, kind, 1, 1.0, None);
    run.system.name = system.to_owned();
    run
}

fn latency(dice: &mut Dice, median_us: f64, tail: f64, samples: usize) -> Latency {
    let mut latency = Latency::default();
    for _ in 0..samples {
        let nines = -dice.roll().max(1e-9).log10();
        let body = median_us * (0.55 + 0.65 * dice.roll());
        latency.record_us((body + median_us * 0.35 * (nines * tail).powf(1.9)) as u64);
    }
    latency
}

/// Seconds of a run; with `crash`, killed at 20 s and back at 35 s.
fn seconds(dice: &mut Dice, kind: &Kind, rate: f64, crash: bool) -> Vec<Second> {
    let mut backlog = 0u64;
    let second = |at: i64| {
        let down = crash && (20..28).contains(&at);
        let slow = if crash && (28..36).contains(&at) { 0.6 } else { 1.0 };
        let warm = if at < 0 { 0.7 + 0.03 * (at + 10) as f64 } else { 1.0 };
        let sent = if down { 0.0 } else { rate * dice.around(0.06) * slow * warm };
        let received = if down { 0.0 } else { (sent + backlog as f64 * 0.5) * dice.around(0.02) };
        let received = received.min(sent + backlog as f64);
        backlog = (backlog as f64 + sent - received + if down { rate * 0.05 } else { 0.0 }) as u64;
        let median = kind.median_us * dice.around(0.1) / slow;
        let p99 = median * (3.0 + 2.0 * kind.tail) * dice.around(0.35);
        let some = |value: f64| if down { 0 } else { value as u64 };
        Second {
            at,
            sent: sent as u64,
            confirmed: sent as u64,
            received: received as u64,
            settled: received as u64,
            errors: if down { (rate / 500.0) as u64 } else { 0 },
            redelivered: if crash && at == 29 { 140 } else { 0 },
            backlog,
            send_p50: some(median * 0.6),
            send_p99: some(p99 * 0.7),
            receive_p50: some(median),
            receive_p99: some(p99),
        }
    };
    (-10..60).map(second).collect()
}

fn processes(dice: &mut Dice, kind: &Kind, rate: f64) -> Vec<Process> {
    let process = |name: &str, cores: f64, memory: u64, dice: &mut Dice| {
        let mut cpu = 3.0;
        let look = |at: i64| {
            cpu += cores * dice.around(0.12);
            let grown = memory as f64 * (0.7 + 0.3 * ((at + 10) as f64 / 70.0).sqrt());
            Usage { at: at as f64, cpu, resident_bytes: grown as u64, written_bytes: 0 }
        };
        Process { name: name.to_owned(), usage: (-10..=60).map(look).collect() }
    };
    let cores = kind.cpu * rate / 1e6;
    vec![
        process("broker", cores * 0.5, kind.memory / 3, dice),
        process("broker 2", cores * 0.26, kind.memory / 3, dice),
        process("broker 3", cores * 0.24, kind.memory / 3, dice),
        process("suite", 0.4, 60 << 20, dice),
    ]
}

pub(crate) fn measure(name: &str, value: f64, unit: &str, better: Better) -> Measure {
    Measure { name: name.to_owned(), value, unit: unit.to_owned(), deviation: None, better }
}

/// `factor`: relative to the system's usual rate. `open`: the offered rate.
pub(crate) fn seeded_run(
    test: &str,
    kind: &Kind,
    seed: u64,
    factor: f64,
    open: Option<f64>,
) -> Run {
    let seed = test
        .bytes()
        .chain(kind.name.bytes())
        .fold(seed, |seed, byte| seed.wrapping_mul(31).wrapping_add(u64::from(byte)));
    let mut dice = Dice::new(seed);
    for _ in 0..8 {
        dice.roll();
    }
    let rate = open.unwrap_or(kind.rate * factor * dice.around(0.02));
    let seconds = seconds(&mut dice, kind, rate, test.contains("crash"));
    let confirmed: u64 = seconds.iter().map(|second| second.confirmed).sum();
    let receive = latency(&mut dice, kind.median_us, kind.tail, 20_000);
    let send = latency(&mut dice, kind.median_us * 0.6, kind.tail, 20_000);
    let suffix = if open.is_some() { "-due" } else { "" };
    let mut measures = vec![
        measure("received", rate * dice.around(0.004), "messages/s", Better::Higher),
        measure("confirmed", rate, "messages/s", Better::Higher),
    ];
    if open.is_some() {
        let p99 = receive.summary().p99 as f64;
        measures.insert(0, measure("p99 to the receiver", p99, "us", Better::Lower));
    }
    let parameters = [("body bytes", 100.into()), ("senders", 10.into()), ("receivers", 4.into())];
    Run {
        schema: SCHEMA,
        suite: "SAMPLE of invented figures".to_owned(),
        started_ms: 1_795_315_200_000 + seed % 7_000_000,
        test: Test {
            name: test.to_owned(),
            asks: format!("What does the invented `{test}` ask?"),
            form: "local".to_owned(),
            closed_loop: open.is_none(),
            parameters: parameters
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
        },
        system: system(kind),
        host: host(&mut dice),
        agents: vec![],
        verdict: Verdict::Passed,
        remarks: vec![],
        measures,
        seconds,
        marks: vec![],
        steps: vec![],
        latencies: BTreeMap::from([
            (format!("receive{suffix}"), receive),
            (format!("send{suffix}"), send),
        ]),
        processes: processes(&mut dice, kind, rate),
        audit: Audit {
            confirmed,
            received: confirmed,
            dwell_max_us: (kind.median_us * 40.0) as u64,
            fairness_lanes: Some(1.0 + dice.roll() * 0.4),
            fairness_subscriptions: None,
            ..Audit::default()
        },
        compatibility: BTreeMap::new(),
    }
}

fn system(kind: &Kind) -> System {
    let synced = kind.tier.is_synced();
    let settings = [
        ("replicas", if kind.tier == Tier::T3 { "1" } else { "3" }),
        ("log.flush.interval.messages", if synced { "1" } else { "10000" }),
        ("client prefetch", "100"),
    ];
    System {
        name: kind.name.to_owned(),
        title: kind.title.to_owned(),
        version: kind.version.to_owned(),
        client: format!("{}-client 0.3.1", kind.name),
        tier: kind.tier,
        sent_means: format!("The broker's answer came: {}.", kind.tier.meaning()),
        settings: settings.into_iter().map(|(n, v)| (n.to_owned(), v.to_owned())).collect(),
    }
}

fn host(dice: &mut Dice) -> Host {
    Host {
        cpu: "Invented CPU 9000 @ 2.40GHz".to_owned(),
        cores: 2,
        memory_bytes: 24 << 30,
        kernel: "6.1.0".to_owned(),
        system: "Debian GNU/Linux 12".to_owned(),
        disk: "ext4 on /dev/invented".to_owned(),
        sync_4k: Some(SyncDelay { p50: 900 + (dice.roll() * 90.0) as u64, p99: 2_900 }),
        sync_128k: Some(SyncDelay { p50: 1_250, p99: 4_100 + (dice.roll() * 700.0) as u64 }),
    }
}

fn repeated(runs: &mut Vec<Run>, test: &str, kinds: &[&Kind], factor: f64) {
    for kind in kinds {
        runs.extend((1..=3).map(|seed| seeded_run(test, kind, seed, factor, None)));
    }
}

/// A sample of everything that a report must be able to show.
pub(crate) fn suite() -> Vec<Run> {
    let some: Vec<&Kind> = [0, 1, 2, 3, 4, 5, 6].map(|place| &KINDS[place]).into();
    let mut runs = Vec::new();
    repeated(&mut runs, "mqperf/base", &some, 0.08);
    repeated(&mut runs, "mqperf/mid", &some, 0.5);
    repeated(&mut runs, "mqperf/peak", &some, 1.0);
    crash(&mut runs, &some);
    topics(&mut runs, &some[..5]);
    fixed_load(&mut runs, &some);
    for bytes in ["512", "1k", "4k", "16k"] {
        for (place, kind) in some.iter().enumerate() {
            let open = Some(1000.0);
            let mut run =
                seeded_run(&format!("lowlat/{bytes}-disk"), kind, place as u64, 1.0, open);
            run.test.parameters.insert("rate".to_owned(), 1000.into());
            runs.push(run);
        }
    }
    for kind in &some {
        let mut run = seeded_run("verify/order", kind, 1, 0.3, None);
        run.audit.out_of_order = 0;
        runs.push(run);
    }
    spoil(&mut runs);
    runs
}

fn crash(runs: &mut Vec<Run>, kinds: &[&Kind]) {
    for kind in kinds {
        let mut run = seeded_run("mqperf/crash", kind, 1, 0.5, None);
        let back = 28.0 + kind.tail;
        run.marks = vec![
            Mark { at: 20.0, what: "kill -9 of the leader".to_owned() },
            Mark { at: 35.0, what: "restart".to_owned() },
        ];
        run.measures.insert(
            0,
            measure("first confirmation after the kill", back - 20.0, "s", Better::Lower),
        );
        run.audit.repeated = 140;
        runs.push(run);
    }
}

fn topics(runs: &mut Vec<Run>, kinds: &[&Kind]) {
    for (name, topics) in [("10", 10.0), ("100", 100.0), ("1k", 1e3), ("10k", 1e4)] {
        for kind in kinds {
            let factor = (1.0 + kind.tail * f64::log10(topics)).recip() * 1.8;
            let mut run = seeded_run(&format!("omb/topics-{name}"), kind, 1, factor, None);
            run.measures.push(measure("creation", topics * kind.tail * 900.0, "us", Better::Lower));
            runs.push(run);
        }
    }
}

fn fixed_load(runs: &mut Vec<Run>, kinds: &[&Kind]) {
    for kind in kinds {
        let mut run = seeded_run("omb/fixed-load", kind, 1, 1.0, Some(kind.rate * 0.75));
        run.steps = [0.25, 0.5, 0.75, 0.9]
            .map(|share| Step {
                parameter: "load".to_owned(),
                value: share,
                unit: "share".to_owned(),
                measures: vec![
                    measure(
                        "p99 to the receiver",
                        kind.median_us * 4.0 / (1.0 - share),
                        "us",
                        Better::Lower,
                    ),
                    measure(
                        "p50 to the receiver",
                        kind.median_us / (1.0 - share * 0.8),
                        "us",
                        Better::Lower,
                    ),
                ],
            })
            .into();
        runs.push(run);
    }
}

/// Adds one of each kind of run that a reader must not overlook.
fn spoil(runs: &mut [Run]) {
    let mut of = |test: &str, system: &str, change: &dyn Fn(&mut Run)| {
        let found = runs.iter_mut().find(|run| run.test.name == test && run.system.name == system);
        found.into_iter().for_each(change);
    };
    of("mqperf/crash", "foxtrot-streams", &|run| {
        run.audit.lost = 1_312;
        run.audit.findings = vec![Finding {
            kind: "lost".to_owned(),
            sender: 3,
            sequence: 88_123,
            lane: 0,
            subscription: 0,
            what: "confirmed 0.4 s before the kill, never received".to_owned(),
        }];
        run.verdict = Verdict::Failed(run.audit.faults(false));
    });
    of("omb/topics-10k", "charlie-quorum", &|run| {
        run.seconds.truncate(25);
        run.verdict = Verdict::Interrupted(
            "time limit of 120 s reached while topics were created".to_owned(),
        );
    });
    of("verify/order", "delta-stream", &|run| {
        run.audit.out_of_order = 4;
        run.verdict = Verdict::Failed(run.audit.faults(true));
    });
    for run in runs.iter_mut().filter(|run| run.test.name == "mqperf/peak") {
        if run.system.name == "alpha" || run.system.name == "foxtrot-streams" {
            run.remarks.push("client-bound: the suite used 52 % of all CPU".to_owned());
        }
        let words = serde_json::json!({ "processing_p95_ms": 47.5, "send_p95_ms": 47.5 });
        run.compatibility.insert("mqperf".to_owned(), words);
    }
}

/// Many systems and many tests, one run each.
pub(crate) fn many(tests: usize) -> Vec<Run> {
    let names = [
        "mqperf/base",
        "omb/subs-8",
        "queen/part-101",
        "lowlat/1k-mem",
        "bmq/prio-10",
        "verify/lossless",
    ];
    let name = |place: usize| match names.get(place) {
        Some(name) => (*name).to_owned(),
        None => format!("own/test-number-{place}"),
    };
    let of_test =
        |place: usize| KINDS.iter().map(move |kind| seeded_run(&name(place), kind, 1, 1.0, None));
    (0..tests).flat_map(of_test).collect()
}
