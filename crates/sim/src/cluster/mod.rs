//! Three nodes of a cluster, each on a host of its own: processes end and power goes, links are cut, disks are slow,
//! leadership is handed over. Clients write a log meanwhile, and what they were told is held against what each
//! node has in the end.
//!
//! * [`run`]: a seed
//! * `host`: a node, from its start to its end
//! * `chaos`: what happens to nodes and links
//! * `producers`: the clients
//! * `consumers`: those that lease records, in profile `relays`
//! * `judge`: what must hold once nothing fails any more

mod chaos;
mod consumers;
mod host;
mod judge;
mod producers;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use broker::Broker;
use tokio::task::JoinSet;
use tokio::time::sleep;
use world::SimulatedDisk;

use crate::checkers::Knowledge;
use crate::history::History;
use crate::profile::Limits;
use crate::random::Random;
use crate::report::Report;
use crate::trace::Trace;
use crate::verdict::{Invariant, Verdict, Violation};

use chaos::Chaos;
use consumers::Consumer;
use producers::Producer;

pub(crate) const NODES: usize = 3;
const SHARDS_MAX: u64 = 3;
const PRODUCERS: u32 = 4;
const CONSUMERS: u32 = 4;
/// Simulated time that no run takes.
const RUN_MAX: Duration = Duration::from_secs(3_600);

/// What hosts, clients and faults have in common. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Shared(Arc<Mutex<State>>);

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) random: Random,
    pub(crate) nodes: Vec<Place>,
    /// With records.
    pub(crate) shards: u32,
    pub(crate) history: History,
    pub(crate) leased: consumers::Leased,
    pub(crate) trace: Trace,
    pub(crate) verdict: Verdict,
    /// No fault begins any more.
    pub(crate) is_healed: bool,
    pub(crate) crashes: u32,
    pub(crate) lives: u32,
}

/// A node's place, whether or not it runs.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) disk: SimulatedDisk,
    /// While it runs and is open.
    pub(crate) broker: Option<Broker>,
    /// It ended by itself, because its disk failed.
    pub(crate) has_ended: bool,
    pub(crate) limits: Limits,
    /// One step of its disk in so many is slow.
    pub(crate) slow_once_in: Option<u64>,
    /// What its disk looks at.
    pub(crate) knowledge: Knowledge,
}

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The broker of a node that runs.
    pub(crate) fn broker(&self, place: usize) -> Option<Broker> {
        self.lock().nodes[place].broker.clone()
    }

    /// Any broker that runs, another one each time.
    pub(crate) fn any_broker(&self, random: &mut Random) -> Option<Broker> {
        let first = random.below(NODES as u64) as usize;
        (0..NODES).find_map(|more| self.broker((first + more) % NODES))
    }
}

/// Runs a seed. The process may have run nothing before.
pub(crate) fn run(seed: u64, leases: bool, trace: &Trace) -> Result<Report, Violation> {
    let mut random = Random::new(seed);
    let verdict = Verdict::new(trace.clone());
    let place = |random: &mut Random| Place {
        disk: SimulatedDisk::new(),
        broker: None,
        has_ended: false,
        limits: Limits::of_member(random),
        slow_once_in: random.once_in(4).then(|| random.between(5, 100)),
        knowledge: Knowledge::default(),
    };
    let nodes: Vec<Place> = (0..NODES).map(|_| place(&mut random)).collect();
    let shards = random.between(1, SHARDS_MAX) as u32;
    trace.is_at(Duration::ZERO);
    trace.note(format_args!("a cluster of {NODES} nodes, {shards} shards"));
    let mut sim = turmoil::Builder::new()
        .rng_seed(random.number())
        .simulation_duration(RUN_MAX)
        .tick_duration(Duration::from_millis(1))
        .min_message_latency(Duration::from_micros(100))
        .max_message_latency(Duration::from_millis(random.of(&[1, 2, 10])))
        .build();
    let mut chaos = Chaos::new(random.fork());
    let works_for = Duration::from_millis(random.between(3_000, 15_000));
    let client = random.fork();
    let shared = Shared(Arc::new(Mutex::new(State {
        random,
        nodes,
        shards,
        history: History::default(),
        leased: consumers::Leased::default(),
        trace: trace.clone(),
        verdict: verdict.clone(),
        is_healed: false,
        crashes: 0,
        lives: 0,
    })));
    for place in 0..NODES {
        let shared = shared.clone();
        sim.host(host::name(place), move || host::run(place, shared.clone()));
    }
    let working = shared.clone();
    sim.client("client", async move {
        work(working, client, works_for, leases).await;
        Ok(())
    });
    loop {
        trace.is_at(sim.elapsed());
        match sim.step() {
            Ok(true) => break,
            Ok(false) => chaos.step(&mut sim, &shared),
            Err(error) => {
                verdict.violated(Invariant::Progress, format!("the run does not end: {error}"));
                break;
            }
        }
        if verdict.first().is_some() {
            break;
        }
    }
    drop(sim);
    if let Some(panic) = crate::run::panicked() {
        verdict.violated(Invariant::Alive, panic);
    }
    let mut state = shared.lock();
    // They go before what they run on.
    state.nodes.iter_mut().for_each(|place| drop(place.broker.take()));
    verdict.first().map_or(Ok(()), Err)?;
    Ok(Report {
        seconds: trace.now_ms() as f64 / 1_000.0,
        lives: state.lives,
        crashes: state.crashes,
        records: state.history.acknowledged(),
        lines: trace.lines(),
        hash: trace.hash(),
        ..Report::default()
    })
}

/// Clients work while faults come; then everything is healed, and judged.
async fn work(shared: Shared, mut random: Random, for_time: Duration, leases: bool) {
    let mut clients = JoinSet::new();
    for id in 0..PRODUCERS {
        let producer = Producer::new(id, shared.clone(), random.fork());
        clients.spawn(producer.run());
    }
    for id in (0..CONSUMERS).filter(|_| leases) {
        let consumer = Consumer::new(id, shared.clone(), random.fork());
        clients.spawn(consumer.run());
    }
    clients.spawn(chaos::hand_over(shared.clone(), random.fork()));
    sleep(for_time).await;
    {
        let mut state = shared.lock();
        state.is_healed = true;
        for place in &state.nodes {
            place.knowledge.lock().is_healed = true;
        }
        state.trace.note(format_args!("everything is healed"));
    }
    clients.detach_all();
    let for_consumers = leases.then(|| random.fork());
    judge::judge(&shared, random).await;
    if let Some(random) = for_consumers {
        consumers::judge(&shared, random).await;
    }
}
