//! One seed: the lives of a node, and its judgement.

use std::fmt;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use base::PartitionId;
use broker::{Broker, ShardStatus};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use world::{RuntimeClock, SimulatedDisk};

use crate::checkers::Knowledge;
use crate::checkers::groups::Group;
use crate::checkers::jobs::Rules;
use crate::history::{Sent, Violation as LogViolation, sent_of};
use crate::network::Gateways;
use crate::profile::{End, Life, Profile};
use crate::random::Random;
use crate::trace::Trace;
use crate::verdict::{Invariant, Verdict, Violation};
use crate::workload::groups::Protocol;
use crate::workload::{
    Client, amqp, groups, jobs, kafka, keys, log, offsets, pulse, share, topics,
};
use crate::{faults, node, reading};

const HOST: &str = "node";
/// With records, at most.
const SHARDS_MAX: u32 = 3;
/// Simulated time that no life takes.
const LIFE_MAX: Duration = Duration::from_secs(3_600);
const WALL_BEGINS_MS: i64 = 1_700_000_000_000;
/// More than all steps of a run together.
const WALL_SET_BACK_MAX_MS: i64 = 100 * 3_600_000;
/// Simulated time in which a healed node opens, or stops, and its clients come to an end.
const PATIENCE: Duration = Duration::from_secs(60);
/// A disk that hangs delays an opening, too.
const OPENS_WITHIN: Duration = Duration::from_secs(300);

/// What a run did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    pub lives: u32,
    pub crashes: u32,
    /// Simulated.
    pub seconds: f64,
    /// Acknowledged records of the logs, and jobs.
    pub records: usize,
    pub jobs: usize,
    /// Confirmed messages of AMQP's clients.
    pub messages: usize,
    pub delivered: u64,
    pub settled: u64,
    /// Records that members of groups read, and commits that were taken.
    pub read: u64,
    pub commits: u64,
    /// Lives that began with changes of the catalog that the other shard had not.
    pub behind: u32,
    /// The longest wait of a client while nothing failed.
    pub longest_ms: u64,
    pub lines: u64,
    pub hash: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            lives,
            crashes,
            seconds,
            records,
            jobs,
            messages,
            delivered,
            settled,
            read,
            commits,
            behind,
            longest_ms,
            lines,
            ..
        } = self;
        write!(
            f,
            "{seconds:.1} simulated seconds, {lives} lives, {crashes} crashes; acknowledged: {records} \
             records, {jobs} jobs, {messages} messages; {delivered} deliveries, {settled} settled; \
             {read} read, {commits} commits; {behind} lives behind the catalog; longest wait \
             {longest_ms} ms; {lines} lines of trace"
        )
    }
}

/// What panicked first. A panic is a violation, also where the node goes on after it.
static PANIC: std::sync::Mutex<Option<String>> = std::sync::Mutex::new(None);

/// From now on a panic of any task fails the run, and prints nothing by itself.
pub fn watch_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let mut first = PANIC.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert_with(|| panic.to_string());
    }));
}

/// Runs a seed. The process may have run nothing before: the order of its maps is the seed's, too.
pub fn run(seed: u64, profile: Profile, trace: &Trace) -> Result<Report, Violation> {
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
        knowledge: Knowledge::default(),
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
    // The wall clock is right again: what is delayed by it would wait for as long as it was set back.
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

/// What goes on from one life to the next.
struct Run {
    random: Random,
    rules: Rules,
    /// Of the share group.
    shared: Rules,
    disk: SimulatedDisk,
    /// With records. They become more now and then.
    shards: u32,
    wall_ms: i64,
    producers: Vec<Arc<Mutex<log::Producer>>>,
    /// The next number of each of Kafka's producers.
    kafka_next: Vec<Arc<Mutex<u32>>>,
    knowledge: Knowledge,
    verdict: Verdict,
    trace: Trace,
    report: Report,
}

/// What clients do in a life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Purpose {
    Work,
    /// What is open comes to its end: requests are answered, and the queue is drained.
    Finish,
    /// Nothing but to look.
    Judge,
}

impl Run {
    fn live(mut self, life: Life, purpose: Purpose) -> Result<Self, Violation> {
        let mut sim = turmoil::Builder::new()
            .rng_seed(self.random.number())
            .simulation_duration(LIFE_MAX)
            .build();
        let verdict = self.verdict.clone();
        let lived = Arc::new(std::sync::Mutex::new(None));
        let left = Arc::clone(&lived);
        sim.client(HOST, async move {
            self.live_here(&life, purpose).await;
            *left.lock().unwrap_or_else(PoisonError::into_inner) = Some(self);
            Ok(())
        });
        let ran = sim.run();
        // What was under way is torn down, as by the end of a process.
        drop(sim);
        let lived = lived.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut this) = lived else {
            verdict.violated(Invariant::Progress, format!("a life does not end: {ran:?}"));
            return Err(verdict.first().expect("there is one"));
        };
        this.end_life();
        this.verdict.first().map_or(Ok(this), Err)
    }

    fn end_life(&mut self) {
        self.report.lives += 1;
        {
            let mut known = self.knowledge.lock();
            known.jobs.life_ends();
            known.shared.life_ends();
            known.groups.iter_mut().for_each(Group::life_ends);
            known.messages.life_ends();
        }
        if let Some(panic) = PANIC.lock().unwrap_or_else(PoisonError::into_inner).take() {
            self.verdict.violated(Invariant::Alive, panic);
        }
    }

    async fn live_here(&mut self, life: &Life, purpose: Purpose) {
        self.trace.life_begins();
        // Before it opens: a step of the disk that hangs then may hang on.
        self.knowledge.lock().calm.life_begins(self.trace.now_ms());
        self.trace.note(format_args!("{purpose:?}, {life:?}"));
        let clock = Arc::new(RuntimeClock::new(self.wall_ms));
        faults::arm(&self.disk, life);
        let seen = (&self.trace, &self.knowledge);
        let world = node::world(&self.disk, &clock, life, seen, &mut self.random);
        let mut end = life.end;
        match timeout(OPENS_WITHIN, node::open(world, life, self.shards)).await {
            Ok(Ok(broker)) => {
                self.opened(&broker);
                let client = Client {
                    broker,
                    clock: Arc::clone(&clock),
                    knowledge: self.knowledge.clone(),
                    verdict: self.verdict.clone(),
                    trace: self.trace.clone(),
                    random: self.random.fork(),
                };
                end = match purpose {
                    Purpose::Work => self.work(client, life).await,
                    Purpose::Finish => self.finish(client).await,
                    Purpose::Judge => self.judge(client).await,
                };
            }
            Ok(Err(_)) if self.disk.is_dead() => {}
            Ok(Err(error)) if life.may_fail() => {
                self.trace.note(format_args!("does not open: {error}"));
                end = End::Kill;
            }
            Ok(Err(error)) => {
                let what = format!("the node does not open: {error}");
                self.verdict.violated(Invariant::Alive, what);
            }
            Err(_) => self.verdict.violated(Invariant::Progress, "the node does not open"),
        }
        self.crash(end, clock.as_ref());
    }

    fn opened(&mut self, broker: &Broker) {
        self.knowledge.lock().calm.disturb(self.trace.now_ms());
        let behind = broker.behind_at_open();
        if behind > 0 {
            self.trace.note(format_args!("a shard was {behind} changes behind the catalog"));
            self.report.behind += 1;
        }
    }

    /// The disk as the next life finds it, and the time.
    fn crash(&mut self, end: End, clock: &RuntimeClock) {
        use world::Clock;
        self.trace.note(format_args!("ends by {end:?}"));
        self.disk = match end {
            End::PowerLoss => self.disk.power_loss(self.random.number()),
            End::Kill | End::Stop => self.disk.killed(),
        };
        self.disk.set_capacity(None);
        self.report.crashes += u32::from(end != End::Stop);
        let down_ms = self.random.between(0, 10_000);
        self.wall_ms = clock.now_ms() + down_ms as i64;
        self.trace.life_ends(down_ms);
    }

    /// Clients work and faults come until the life is over.
    async fn work(&mut self, mut client: Client, life: &Life) -> End {
        if let Err(why) = self.look(&client).await {
            return self.ended(life, why);
        }
        let gateways = match Gateways::start(&client.broker).await {
            Ok(gateways) => gateways,
            Err(why) => return self.ended(life, why),
        };
        let mut clients = JoinSet::new();
        for producer in &self.producers {
            let (producer, client) = (Arc::clone(producer), client.fork());
            clients.spawn(async move { producer.lock().await.run(client).await });
        }
        for (id, next) in (0..).zip(&self.kafka_next) {
            let (next, client) = (Arc::clone(next), client.fork());
            let produce = async move { kafka::produce(client, id, &mut *next.lock().await).await };
            clients.spawn(produce);
        }
        for _ in 0..amqp::PUBLISHERS {
            clients.spawn(amqp::publish(client.fork()));
        }
        for _ in 0..amqp::CONSUMERS {
            clients.spawn(amqp::consume(client.fork()));
        }
        for _ in 0..jobs::PRODUCERS {
            clients.spawn(jobs::produce(client.fork(), self.rules));
        }
        for _ in 0..jobs::CONSUMERS {
            clients.spawn(jobs::consume(client.fork(), self.rules));
        }
        clients.spawn(keys::produce(client.fork()));
        clients.spawn(offsets::commit(client.fork()));
        for id in 0..topics::CLIENTS {
            clients.spawn(topics::come_and_go(client.fork(), id));
        }
        for _ in 0..share::PRODUCERS {
            clients.spawn(share::produce(client.fork(), self.shared));
        }
        for _ in 0..share::CONSUMERS {
            clients.spawn(share::consume(client.fork(), self.shared));
        }
        for protocol in Protocol::ALL {
            for _ in 0..groups::MEMBERS {
                clients.spawn(groups::consume(client.fork(), protocol));
            }
        }
        clients.spawn(pulse::beat(client.fork()));
        clients.spawn(pulse::watch(client.clone()));
        faults::start(&mut clients, &mut client, &self.disk, life);
        let broker = client.broker.clone();
        tokio::select! {
            biased;
            () = self.verdict.found() => End::Stop,
            why = broker.failed() => self.ended(life, why),
            () = sleep(life.within) => {
                if life.end == End::Stop {
                    // Whoever waits is sent away, or waits for the end.
                    self.knowledge.lock().calm.disturb(u64::MAX);
                    self.stop(&broker, gateways).await;
                }
                life.end
            }
        }
    }

    /// The node ended, or could not be read: by a fault, or by itself.
    fn ended(&mut self, life: &Life, why: String) -> End {
        self.trace.note(format_args!("the node has ended: {why}"));
        if self.disk.is_dead() {
            return life.end;
        }
        if !life.may_fail() {
            self.verdict.violated(Invariant::Alive, format!("the node ended by itself: {why}"));
        }
        match self.random.once_in(2) {
            true => End::Kill,
            false => End::PowerLoss,
        }
    }

    async fn stop(&self, broker: &Broker, gateways: Gateways) {
        let stopping = async {
            broker.expect_ends();
            gateways.stop().await;
            broker.shutdown().await;
        };
        if timeout(PATIENCE * 10, stopping).await.is_err() {
            self.verdict.violated(Invariant::Progress, "the node does not stop");
        }
    }

    async fn finish(&mut self, mut client: Client) -> End {
        if let Err(why) = self.look(&client).await {
            self.verdict.violated(Invariant::Durable, why);
        }
        for producer in &self.producers {
            let work = client.fork();
            let mut producer = producer.lock().await;
            if !matches!(timeout(PATIENCE, producer.finish(work)).await, Ok(Ok(()))) {
                let what = format!("producer {} gets no answer", producer.id);
                self.verdict.violated(Invariant::Progress, what);
            }
        }
        let gateways = match Gateways::start(&client.broker).await {
            Ok(gateways) => gateways,
            Err(why) => {
                let what = format!("the gateways do not start: {why}");
                self.verdict.violated(Invariant::Alive, what);
                return End::Stop;
            }
        };
        match timeout(PATIENCE, amqp::drain(client.fork())).await {
            Ok(Ok(())) => self.knowledge.lock().messages.check(&self.verdict),
            other => {
                let what = format!("the queue of messages is not drained: {other:?}");
                self.verdict.violated(Invariant::Progress, what);
            }
        }
        if !matches!(timeout(PATIENCE, jobs::drain(client.fork(), self.rules)).await, Ok(Ok(()))) {
            let left = jobs::left(&client.broker).await;
            self.verdict.violated(Invariant::Progress, format!("the queue is not drained: {left}"));
        }
        let shared = timeout(PATIENCE, share::drain(client.fork(), self.shared)).await;
        if !matches!(shared, Ok(Ok(()))) {
            let what = format!("the share group does not come to its end: {shared:?}");
            self.verdict.violated(Invariant::Progress, what);
        }
        for protocol in Protocol::ALL {
            let drained = timeout(PATIENCE, groups::drain(client.fork(), protocol)).await;
            if !matches!(drained, Ok(Ok(()))) {
                let what = format!("a {protocol:?} group does not come to its end: {drained:?}");
                self.verdict.violated(Invariant::Progress, what);
            }
        }
        self.stop(&client.broker, gateways).await;
        End::Stop
    }

    async fn judge(&mut self, client: Client) -> End {
        let looked = async {
            self.look(&client).await?;
            jobs::check(&client, &self.rules).await?;
            share::check(&client, &self.shared).await?;
            let found = keys::found(&client.broker).await?;
            self.knowledge.lock().keys.check(&found, &self.verdict);
            Ok::<_, String>(())
        };
        if let Err(why) = looked.await {
            self.verdict.violated(Invariant::Durable, why);
        }
        client.broker.shutdown().await;
        End::Stop
    }

    /// What must hold at the start of every life.
    async fn look(&self, client: &Client) -> Result<(), String> {
        let broker = &client.broker;
        let committed = offsets::committed(broker).await;
        {
            let mut known = self.knowledge.lock();
            for ShardStatus { shard, term, .. } in broker.shard_statuses() {
                let before = known.terms.insert(shard, term).unwrap_or(0);
                if term <= before {
                    let what = format!("term {term} of shard {shard} follows {before}");
                    self.verdict.violated(Invariant::Terms, what);
                }
            }
            known.offsets.check(committed, &self.verdict);
            let left = topics::left(broker, known.topics.gone());
            known.topics.check(&topics::found(broker), &left, &self.verdict);
        }
        for partition in kafka::partitions(broker) {
            let found = sent_in(broker, partition).await?;
            if let Err(violation) = self.knowledge.lock().kafka.check(partition.index, &found) {
                self.verdict.violated(invariant_of(&violation), violation.to_string());
            }
        }
        let topic = broker.catalog().topic_id(log::TOPIC);
        let Some(topic) = topic else {
            return match self.knowledge.lock().log.acknowledged() {
                0 => Ok(()),
                _ => Err("the topic of the log is gone".to_owned()),
            };
        };
        for partition in 0..log::PARTITIONS {
            let found = sent_in(broker, PartitionId::new(topic, partition)).await?;
            if let Err(violation) = self.knowledge.lock().log.check(partition, &found) {
                self.verdict.violated(invariant_of(&violation), violation.to_string());
            }
        }
        Ok(())
    }
}

async fn sent_in(
    broker: &Broker,
    partition: PartitionId,
) -> Result<Vec<(u64, Option<Sent>)>, String> {
    let found = reading::read_all(broker, partition).await?;
    let sent = |it: &reading::Found| it.value.as_deref().and_then(sent_of);
    Ok(found.iter().map(|it| (it.offset, sent(it))).collect())
}

fn invariant_of(violation: &LogViolation) -> Invariant {
    match violation {
        LogViolation::Lost { .. } | LogViolation::Changed { .. } => Invariant::Durable,
        LogViolation::Gap { .. } | LogViolation::OutOfOrder { .. } => Invariant::Ordered,
        LogViolation::NeverSent { .. } | LogViolation::Twice { .. } => Invariant::Once,
    }
}
