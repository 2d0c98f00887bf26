//! One seed: the lives of a node, and its checks. The random numbers, the disk and the clients' knowledge continue
//! from one life to the next. `life` has the parts of a life, and `judge` the checks at its start.

mod judge;
mod life;

use std::sync::Arc;

use tokio::sync::Mutex;
use world::SimulatedDisk;

use crate::checkers::Observations;
use crate::checkers::jobs::Rules;
use crate::cluster;
use crate::profile::{Life, Profile};
use crate::random::Random;
use crate::report::Report;
use crate::trace::Trace;
use crate::verdict::{Verdict, Violation};
use crate::workload::{kafka, log, share};

/// Largest number of shards with records.
const SHARDS_MAX: u32 = 3;
const WALL_BEGINS_MS: i64 = 1_700_000_000_000;
/// More than all steps of a run together.
const WALL_SET_BACK_MAX_MS: i64 = 100 * 3_600_000;

/// Runs a seed. Must be the first run of the process: the order of its maps follows from the seed, too.
pub fn run(seed: u64, profile: Profile, trace: &Trace) -> Result<Report, Violation> {
    if profile.has_nodes() {
        return cluster::run(seed, profile, trace);
    }
    let mut random = Random::new(seed);
    let verdict = Verdict::new(trace.clone());
    let shards = random.of(&[1, 1, 2, SHARDS_MAX]);
    let mut run = Run {
        rules: Rules::of(&mut random),
        shared: share::rules(&mut random),
        random,
        disk: SimulatedDisk::new(),
        shards,
        wall_ms: WALL_BEGINS_MS,
        producers: (0..log::PRODUCERS)
            .map(|id| Arc::new(Mutex::new(log::Producer::new(id))))
            .collect(),
        kafka_next: (0..kafka::PRODUCERS).map(|_| Arc::default()).collect(),
        knowledge: Observations::default(),
        verdict,
        trace: trace.clone(),
        report: Report::default(),
    };
    run.trace.note(format_args!("jobs {:?}, shared {:?}, shards {shards}", run.rules, run.shared));
    for _ in 0..run.random.between(2, 5) {
        if run.shards < SHARDS_MAX && run.random.once_in(8) {
            run.shards += 1;
        }
        let life = Life::of(profile, &mut run.random);
        run = run.live(life, Purpose::Work)?;
    }
    // The wall clock is right again: otherwise delayed records would wait for as long as it was set back.
    run.wall_ms = run.wall_ms.max(WALL_BEGINS_MS) + trace.now_ms() as i64 + WALL_SET_BACK_MAX_MS;
    for purpose in [Purpose::Finish, Purpose::Judge] {
        let life = Life::healed(&mut run.random);
        run = run.live(life, purpose)?;
    }
    let known = run.knowledge.lock();
    Ok(Report {
        seconds: trace.lived_ms() as f64 / 1_000.0,
        records: known.log.acknowledged() + known.kafka.acknowledged(),
        jobs: known.jobs.acknowledged() + known.shared.acknowledged(),
        messages: known.messages.confirmed(),
        delivered: known.jobs.delivered + known.shared.delivered + known.messages.delivered,
        settled: known.jobs.settled + known.shared.settled + known.messages.settled,
        read: known.groups.iter().map(|group| group.consumed).sum(),
        commits: known.groups.iter().map(|group| group.committed).sum(),
        longest_ms: known.calm.longest_ms,
        lines: trace.lines(),
        hash: trace.hash(),
        ..run.report
    })
}

/// State that continues from one life to the next.
struct Run {
    random: Random,
    rules: Rules,
    /// Rules of the share group.
    shared: Rules,
    disk: SimulatedDisk,
    /// Number of shards with records. It grows now and then.
    shards: u32,
    wall_ms: i64,
    producers: Vec<Arc<Mutex<log::Producer>>>,
    /// The next number of each of Kafka's producers.
    kafka_next: Vec<Arc<Mutex<u32>>>,
    knowledge: Observations,
    verdict: Verdict,
    trace: Trace,
    report: Report,
}

/// The activity of clients in a life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Purpose {
    Work,
    /// Pending work is completed: requests are answered, and the queue is drained.
    Finish,
    /// Only checks.
    Judge,
}
