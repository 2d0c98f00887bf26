//! Nodes of a cluster, each on a host of its own: processes end and power fails, links are cut, disks are slow,
//! leadership is transferred, and in profile `members` nodes join and leave. Clients write a log meanwhile, and
//! their replies are compared with the final content of each node.
//!
//! * [`run`]: a seed
//! * `place`: a node's place, whether or not it has a node
//! * `host`: a node, from its start to its end
//! * `chaos`: faults of nodes and links
//! * `clocks`, `disks`: wall clocks that are set, failing or full disks
//! * `damage`: bit flips at rest, in profile `damage`
//! * `images`: the operator's image of a disk, in profile `images`
//! * `moves`: moves of partitions from shard to shard
//! * `operator`: joining, draining, removing and replacing nodes
//! * `upgrade`: programs of two versions, in profile `upgrade`
//! * `clients`: the clients, with their knowledge
//! * `stalls`: writes while one leader is cut off or its disk is full, in profile `stalls`
//! * `judge`: final checks once everything is healed

mod chaos;
mod clients;
mod clocks;
mod damage;
mod disks;
mod handovers;
mod host;
mod images;
mod judge;
mod moves;
mod operator;
mod place;
mod stalls;
mod upgrade;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base::limits::REPLICAS;
use broker::Broker;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::history::History;
use crate::panics::panicked;
use crate::profile::Profile;
use crate::random::Random;
use crate::report::Report;
use crate::trace::Trace;
use crate::verdict::{Invariant, Verdict, Violation};

use chaos::{Chaos, FaultInterval};
use clients::consumers::Consumer;
use clients::producers::Producer;
use clients::{consumers, leased, queues, readers, registers, resender};
use operator::Operator;
use place::NodePlace;
use upgrade::Versions;

const SHARDS_MAX: u64 = 3;
/// Range of the number of shards in profile `spread`.
const SPREAD_SHARDS: (u64, u64) = (2, 6);
const PRODUCERS: u32 = 4;
const CONSUMERS: u32 = 4;
const READERS: usize = 2;
const REGISTER_READERS: usize = 4;
/// Short, so that damage in unread files is found within a run.
const SCRUB_INTERVAL: Option<Duration> = Some(Duration::from_secs(2));
/// Limit of the simulated time of a run.
const RUN_MAX: Duration = Duration::from_secs(3_600);

/// State shared by hosts, clients and faults. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Shared(Arc<Mutex<State>>);

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) random: Random,
    pub(crate) nodes: Vec<NodePlace>,
    /// The node with a lost disk, until it is removed from the cluster.
    pub(crate) lost: Option<u64>,
    pub(crate) scrub_interval: Option<Duration>,
    /// Whether bits may flip at rest.
    pub(crate) bits_flip: bool,
    /// Whether each shard's group was seen on a majority.
    pub(crate) is_founded: bool,
    /// Number of bit flips.
    pub(crate) flips: u32,
    /// Number of shards with records.
    pub(crate) shards: u32,
    /// Whether each of them is on three nodes only.
    pub(crate) spreads: bool,
    /// Whether each node serves AMQP.
    pub(crate) serves_amqp: bool,
    /// Image of a member's disk, in profile `images`.
    pub(crate) image: images::Images,
    pub(crate) history: History,
    pub(crate) leased: leased::LeaseObservations,
    pub(crate) registers: registers::Registers,
    pub(crate) trace: Trace,
    pub(crate) verdict: Verdict,
    /// The versions of the nodes.
    pub(crate) versions: Versions,
    /// No more faults begin.
    pub(crate) is_healed: bool,
    pub(crate) crashes: u32,
    pub(crate) lives: u32,
}

/// The parts of a cluster's run that a profile selects.
#[derive(Clone, Copy, Debug)]
struct ClusterShape {
    /// Nodes that found it.
    seeds: usize,
    /// Places for nodes that join later.
    spares: usize,
    /// With clients that lease records.
    leases: bool,
    /// With bits that flip at rest.
    damage: bool,
    /// With nodes of two versions.
    upgrade: bool,
    /// With partitions that move from shard to shard.
    moves: bool,
    /// With three nodes of many for each shard.
    spreads: bool,
    /// With clients that commit offsets, and read them and the ends of partitions at any node.
    registers: bool,
    /// With AMQP's gateway at each node, and queues that come and go.
    queues: bool,
    /// With disks that are set back.
    images: bool,
    /// With one leader at a time that is cut off or has a full disk, and no other fault.
    stalls: bool,
    scrub_interval: Option<Duration>,
}

impl ClusterShape {
    fn of(profile: Profile) -> Self {
        let (seeds, spares) = match profile {
            Profile::Five => (5, 0),
            Profile::Members | Profile::Damage => (3, 3),
            Profile::Images | Profile::Spread => (5, 2),
            _ => (3, 0),
        };
        let spreads = matches!(profile, Profile::Images | Profile::Spread);
        let leases = matches!(profile, Profile::Relays | Profile::Spread);
        let damage = profile == Profile::Damage;
        let scrub_interval = if damage { SCRUB_INTERVAL } else { None };
        Self {
            seeds,
            spares,
            leases,
            damage,
            upgrade: profile == Profile::Upgrade,
            moves: profile == Profile::Moves,
            spreads,
            registers: profile == Profile::Registers,
            queues: profile == Profile::Queues,
            images: profile == Profile::Images,
            stalls: profile == Profile::Stalls,
            scrub_interval,
        }
    }
}

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The broker of a running node.
    pub(crate) fn broker(&self, place: usize) -> Option<Broker> {
        self.lock().nodes[place].broker.clone()
    }

    /// Any running broker, a different one each time.
    pub(crate) fn any_broker(&self, random: &mut Random) -> Option<Broker> {
        let places = self.places();
        let first = random.below(places as u64) as usize;
        (0..places).find_map(|more| self.broker((first + more) % places))
    }

    /// The broker of the node with that number, if it runs.
    pub(crate) fn broker_of(&self, node: u32) -> Option<Broker> {
        let state = self.lock();
        let place = state.nodes.iter().find(|place| place.number == Some(node))?;
        place.broker.clone()
    }

    fn places(&self) -> usize {
        self.lock().nodes.len()
    }

    /// The places of nodes that are to stay.
    pub(crate) fn members(&self) -> Vec<usize> {
        let state = self.lock();
        let places = state.nodes.iter().enumerate();
        places.filter(|(_, place)| place.is_member()).map(|(place, _)| place).collect()
    }
}

/// Runs a seed. Must be the first run of the process.
pub(crate) fn run(seed: u64, profile: Profile, trace: &Trace) -> Result<Report, Violation> {
    let shape = ClusterShape::of(profile);
    let mut random = Random::new(seed);
    let verdict = Verdict::new(trace.clone());
    let places = shape.seeds + shape.spares;
    let mut nodes: Vec<NodePlace> =
        (0..places).map(|place| NodePlace::new(place < shape.seeds, &mut random)).collect();
    if shape.stalls {
        // A slow disk is a fault, too: with one node cut off, a follower's late reply ends leaderships.
        nodes.iter_mut().for_each(|place| place.slow_once_in = None);
    }
    let (fewest, most) = match shape.spreads {
        true => SPREAD_SHARDS,
        false => (if shape.moves { 2 } else { 1 }, SHARDS_MAX),
    };
    let shards = random.between(fewest, most) as u32;
    trace.is_at(Duration::ZERO);
    trace.note(format_args!("a cluster of {} nodes, {shards} shards", shape.seeds));
    let mut sim = turmoil::Builder::new()
        .rng_seed(random.number())
        .simulation_duration(RUN_MAX)
        .tick_duration(Duration::from_millis(1))
        .min_message_latency(Duration::from_micros(100))
        .max_message_latency(Duration::from_millis(random.of(&[1, 2, 10])))
        .build();
    let pace = match () {
        () if shape.stalls => FaultInterval::NEVER,
        () if shape.images => FaultInterval::CALM,
        () => FaultInterval::USUAL,
    };
    let mut chaos = Chaos::new(places, pace, random.fork());
    let longer = if shape.spares > 0 || shape.stalls { 3 } else { 1 };
    let works_for = Duration::from_millis(longer * random.between(3_000, 15_000));
    let client = random.fork();
    let leased = leased::LeaseObservations::of(random.of(&[3_000, 30_000]));
    let shared = Shared(Arc::new(Mutex::new(State {
        random,
        nodes,
        lost: None,
        scrub_interval: shape.scrub_interval,
        bits_flip: shape.damage,
        is_founded: false,
        flips: 0,
        shards,
        spreads: shape.spreads,
        serves_amqp: shape.queues,
        image: images::Images::of(shape.images),
        history: History::default(),
        leased,
        registers: registers::Registers::default(),
        trace: trace.clone(),
        verdict: verdict.clone(),
        versions: match () {
            () if shape.upgrade => Versions::Before,
            () if !shape.spreads && places > REPLICAS => Versions::BelowReplicas,
            () => Versions::Same,
        },
        is_healed: false,
        crashes: 0,
        lives: 0,
    })));
    for place in 0..places {
        let shared = shared.clone();
        sim.host(place::name(place), move || host::run(place, shape.seeds, shared.clone()));
    }
    let working = shared.clone();
    sim.client("client", async move {
        work(working, client, works_for, shape).await;
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
    if let Some(panic) = panicked() {
        verdict.violated(Invariant::Alive, panic);
    }
    let mut state = shared.lock();
    // Dropped before the runtime.
    state.nodes.iter_mut().for_each(NodePlace::ended);
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

/// Runs clients and faults, then heals everything, and checks the result.
async fn work(shared: Shared, mut random: Random, for_time: Duration, shape: ClusterShape) {
    let mut clients = JoinSet::new();
    for id in 0..PRODUCERS {
        let producer = Producer::new(id, shared.clone(), random.fork());
        clients.spawn(producer.run());
    }
    for id in (0..CONSUMERS).filter(|_| shape.leases) {
        let consumer = Consumer::new(id, shared.clone(), random.fork());
        clients.spawn(consumer.run());
    }
    for _ in (0..READERS).filter(|_| shape.damage) {
        clients.spawn(readers::read(shared.clone(), random.fork()));
    }
    // Below the level at which ids are stored some may be forgotten.
    if !shape.upgrade && matches!(shared.lock().versions, Versions::Same) {
        clients.spawn(resender::send_again(shared.clone(), random.fork()));
    }
    if shape.registers {
        for group in 0..registers::GROUPS {
            clients.spawn(registers::write(group, shared.clone(), random.fork()));
        }
        for _ in 0..REGISTER_READERS {
            clients.spawn(registers::read(shared.clone(), random.fork()));
        }
    }
    for queue in (0..queues::QUEUES).filter(|_| shape.queues) {
        clients.spawn(queues::Client::new(queue, shared.clone(), random.fork()).run());
    }
    if shape.stalls {
        clients.spawn(stalls::disturb(shared.clone(), random.fork()));
        for partition in 0..stalls::PARTITIONS {
            clients.spawn(stalls::write(partition, shared.clone(), random.fork()));
        }
    } else {
        clients.spawn(chaos::hand_over(shared.clone(), random.fork()));
        if random.once_in(2) {
            clients.spawn(clocks::set_clocks(shared.clone(), random.fork()));
        }
        if random.once_in(2) {
            clients.spawn(disks::break_disks(shared.clone(), random.fork()));
        }
    }
    if shape.damage {
        clients.spawn(damage::flip_bits(shared.clone(), random.fork()));
    }
    if shape.moves {
        clients.spawn(moves::move_about(shared.clone(), random.fork()));
    }
    let operator = (shape.spares > 0).then(|| {
        let operator = Operator::new(shared.clone(), random.fork());
        tokio::spawn(operator.run())
    });
    if shape.upgrade {
        clients.spawn(upgrade::finalize(shared.clone(), random.fork()));
    }
    sleep(for_time).await;
    {
        let mut state = shared.lock();
        state.is_healed = true;
        for place in &mut state.nodes {
            place.knowledge.lock().is_healed = true;
            place.disk.clear_faults();
            place.trouble.is_full = false;
        }
        state.trace.note(format_args!("everything is healed"));
    }
    clients.detach_all();
    if let Some(operator) = operator {
        match operator.await {
            Ok(Ok(())) => {}
            Ok(Err(why)) => return judge::violated(&shared, Invariant::Progress, why),
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }
    // A node may end when it finds damage, and not start again: the operator replaces it.
    let is_sound = loop {
        tokio::select! {
            biased;
            is_sound = damage::is_sound(&shared) => break is_sound,
            () = operator::is_needed(&shared), if shape.spares > 0 => {
                if let Err(why) = Operator::new(shared.clone(), random.fork()).run().await {
                    return judge::violated(&shared, Invariant::Progress, why);
                }
            }
        }
    };
    if let Err((invariant, why)) = is_sound {
        return judge::violated(&shared, invariant, why);
    }
    let for_consumers = shape.leases.then(|| random.fork());
    if let Err(why) = upgrade::is_done(&shared).await {
        return judge::violated(&shared, Invariant::Progress, why);
    }
    if shape.moves
        && let Err(why) = moves::are_done(&shared, &mut random).await
    {
        return judge::violated(&shared, Invariant::Progress, why);
    }
    judge::judge(&shared, random).await;
    if let Some(mut random) = for_consumers {
        handovers::judge(&shared, random.fork()).await;
        consumers::judge(&shared, random).await;
    }
}
