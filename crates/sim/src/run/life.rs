//! One life of a node: it opens, clients work and faults occur, and it ends by a crash or a stop.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use broker::Broker;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use world::RuntimeClock;

use super::{Purpose, Run};
use crate::checkers::groups::Group;
use crate::network::Gateways;
use crate::panics::panicked;
use crate::profile::{Life, LifeEnd};
use crate::verdict::{Invariant, Violation};
use crate::workload::groups::Protocol;
use crate::workload::{Client, amqp, groups, jobs, kafka, keys, offsets, pulse, share, topics};
use crate::{faults, node};

const HOST: &str = "node";
/// Limit of the simulated time of a life.
const LIFE_MAX: Duration = Duration::from_secs(3_600);
/// Simulated time limit for a healed node to open, or stop, and for its clients to finish.
const PATIENCE: Duration = Duration::from_secs(60);
/// A hung disk also delays the opening.
const OPENS_WITHIN: Duration = Duration::from_secs(300);

impl Run {
    pub(super) fn live(mut self, life: Life, purpose: Purpose) -> Result<Self, Violation> {
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
        // Tears down all pending work, as the end of a process does.
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
        if let Some(panic) = panicked() {
            self.verdict.violated(Invariant::Alive, panic);
        }
    }

    async fn live_here(&mut self, life: &Life, purpose: Purpose) {
        self.trace.life_begins();
        // Before it opens: a disk operation that hangs then may continue to hang.
        self.knowledge.lock().calm.life_begins(self.trace.now_ms());
        self.trace.note(format_args!("{purpose:?}, {life:?}"));
        let clock = Arc::new(RuntimeClock::new(self.wall_ms));
        faults::arm(&self.disk, life);
        let seen = (&self.trace, &self.knowledge);
        let world = node::world((&self.disk, ""), &clock, life, seen, &mut self.random);
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
                end = LifeEnd::Kill;
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

    /// Sets the disk and the time for the next life.
    fn crash(&mut self, end: LifeEnd, clock: &RuntimeClock) {
        use world::Clock;
        self.trace.note(format_args!("ends by {end:?}"));
        self.disk = match end {
            LifeEnd::PowerLoss => self.disk.power_loss(self.random.number()),
            LifeEnd::Kill | LifeEnd::Stop => self.disk.killed(),
        };
        self.disk.set_capacity(None);
        self.report.crashes += u32::from(end != LifeEnd::Stop);
        let down_ms = self.random.between(0, 10_000);
        self.wall_ms = clock.now_ms() + down_ms as i64;
        self.trace.life_ends(down_ms);
    }

    /// Runs clients and faults until the life is over.
    async fn work(&mut self, mut client: Client, life: &Life) -> LifeEnd {
        if let Err(why) = self.check_start(&client).await {
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
            clients.spawn(topics::create_and_delete(client.fork(), id));
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
            () = self.verdict.found() => LifeEnd::Stop,
            why = broker.failed() => self.ended(life, why),
            () = sleep(life.within) => {
                if life.end == LifeEnd::Stop {
                    // Waiting clients are disconnected, or wait for the end.
                    self.knowledge.lock().calm.disturb(u64::MAX);
                    self.stop(&broker, gateways).await;
                }
                life.end
            }
        }
    }

    /// The node ended, or could not be read: by a fault, or by itself.
    fn ended(&mut self, life: &Life, why: String) -> LifeEnd {
        self.trace.note(format_args!("the node has ended: {why}"));
        if self.disk.is_dead() {
            return life.end;
        }
        if !life.may_fail() {
            self.verdict.violated(Invariant::Alive, format!("the node ended by itself: {why}"));
        }
        match self.random.once_in(2) {
            true => LifeEnd::Kill,
            false => LifeEnd::PowerLoss,
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

    async fn finish(&mut self, mut client: Client) -> LifeEnd {
        if let Err(why) = self.check_start(&client).await {
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
                return LifeEnd::Stop;
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
        LifeEnd::Stop
    }
}
