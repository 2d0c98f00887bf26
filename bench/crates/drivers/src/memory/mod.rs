//! `memory`: a broker within the suite's own process, for its tests.
//!
//! *Sent* means: it is in memory, and nothing more. *Hiding*: by lease, and until the receiver is
//! gone. Queues keep the order of lanes with any number of receivers, because one receiver holds a
//! lane at a time. In logs one receiver owns each partition.
//!
//! Its purpose is fault injection. Each fault is a probability for each message (`lose=0.001`), so
//! that a test can prove that an audit detects it:
//!
//! * `lose`: confirmed and dropped
//! * `duplicate`: delivered twice, the second without a mark
//! * `reorder`: moved behind the next message of its lane
//! * `return-settled`: settled, confirmed, and delivered again
//! * `damage`: a byte of the body is changed
//! * `take-twice`: a duplicate is accepted despite deduplication
//! * `lose-dead`: dropped after its last release instead of dead lettered
//! * `fail`: rejected with an error
//!
//! [`MemoryBroker`] kills the broker of an endpoint, and restarts it with all confirmed messages,
//! except for the last messages of each queue that `crash-loses=20` sets.
//!
//! `latency-us` delays each confirmation, `seed` makes the faults repeatable. Drivers of one
//! endpoint (`memory://a-name`) share a broker; without an endpoint each has its own.

mod faults;
mod queue;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use driver::{
    About, DeliveryId, Driver, Failure, Lanes, Message, RECEIVE_WAIT, Receipt, Received, Receiver,
    Replication, Return, Sender, Settle, Style, Target, Tier, Topology,
};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::pending::{Confirmer, Outstanding, WINDOW, Window, send_by_post};
use crate::told::{ms, named_values};
use faults::Faults;
use queue::{Queue, ReceiverId};

pub(crate) const SYSTEM: &str = "memory";
pub(crate) const TITLE: &str = "In memory, for the suite's own tests";

/// Brokers by name.
static NAMED: LazyLock<Mutex<HashMap<String, Arc<Broker>>>> = LazyLock::new(Mutex::default);

/// State shared by the drivers of one endpoint.
#[derive(Debug, Default)]
struct Broker {
    spaces: Mutex<HashMap<String, Arc<Space>>>,
    down: AtomicBool,
    /// Number of kills: connections of an earlier life are broken.
    deaths: AtomicU64,
}

/// Handle to the broker of `memory://name`, for the code that runs it.
#[derive(Clone, Debug)]
pub struct MemoryBroker(Arc<Broker>);

impl MemoryBroker {
    pub fn at(name: &str) -> Self {
        Self(named(name))
    }

    /// Acts like `kill -9`: connections break, and unwritten messages are lost.
    pub fn kill(&self) {
        self.0.down.store(true, Relaxed);
        self.0.deaths.fetch_add(1, Relaxed);
        for space in self.0.spaces.lock().values() {
            for queue in space.queues.iter().flatten() {
                queue.lock().crash();
            }
            space.arrived.notify_waiters();
        }
    }

    /// Restarts it with the messages that it has kept.
    pub fn start(&self) {
        self.0.down.store(false, Relaxed);
    }
}

fn named(name: &str) -> Arc<Broker> {
    Arc::clone(NAMED.lock().entry(name.to_owned()).or_default())
}

/// A connection, valid until the broker is killed.
#[derive(Debug)]
struct Connection {
    broker: Arc<Broker>,
    deaths: u64,
}

impl Connection {
    fn lives(&self) -> Result<(), Failure> {
        if self.broker.deaths.load(Relaxed) == self.deaths {
            return Ok(());
        }
        Err(Failure::unknown("the connection broke: the broker was killed"))
    }
}

/// Objects of one topology.
#[derive(Debug)]
struct Space {
    /// By destination, then by subscription.
    queues: Vec<Vec<Mutex<Queue>>>,
    arrived: Notify,
    dead_letters: Option<Arc<Space>>,
    /// With deduplication: its window, and the known ids with their expiry.
    known: Option<(Duration, Mutex<HashMap<String, Instant>>)>,
}

impl Space {
    fn of(topology: &Topology, faults: &Faults) -> Self {
        let subscriptions = topology.subscriptions.max(1);
        let queue = || Mutex::new(Queue::of(topology, faults.crash_loses));
        let destination = |_| (0..subscriptions).map(|_| queue()).collect();
        let queues = (0..topology.destinations).map(destination).collect();
        let dead_letters = topology.delivery_limit.map(|_| topology.dead_letters());
        let dead_letters = dead_letters.map(|dead| Arc::new(Self::of(&dead, faults)));
        let known = topology.deduplicate.map(|window| (window, Mutex::default()));
        Self { queues, arrived: Notify::new(), dead_letters, known }
    }

    /// Whether the message is a duplicate within the window.
    fn is_known(&self, message: &Message) -> bool {
        let Some((window, known)) = &self.known else { return false };
        let now = Instant::now();
        known.lock().insert(message.id(), now + *window).is_some_and(|until| until > now)
    }

    fn bury(&self, destination: u32, message: &Message) -> Result<(), Failure> {
        let Some(dead_letters) = &self.dead_letters else { return Ok(()) };
        dead_letters.queue(destination, 0)?.lock().put(message, false, false);
        dead_letters.arrived.notify_waiters();
        Ok(())
    }

    fn queue(&self, destination: u32, subscription: u32) -> Result<&Mutex<Queue>, Failure> {
        let destination = self.queues.get(destination as usize);
        let queue = destination.and_then(|queues| queues.get(subscription as usize));
        queue.ok_or_else(|| Failure::refused("there is no such destination or subscription"))
    }
}

#[derive(Debug)]
struct Memory {
    broker: Arc<Broker>,
    faults: Arc<Faults>,
    window: u32,
}

pub(crate) fn connect(target: &Target) -> Result<Arc<dyn Driver>, Failure> {
    let mut settings = target.settings();
    let faults = Arc::new(Faults::of(&mut settings)?);
    let window = settings.take("window", WINDOW)?;
    settings.done()?;
    let broker = match target.endpoints.first() {
        None => Arc::default(),
        Some(endpoint) => {
            let name = endpoint.strip_prefix("memory://").ok_or_else(|| Failure::Unreachable {
                endpoint: endpoint.clone(),
                why: "brokers in memory are at memory://a-name".into(),
            })?;
            named(name)
        }
    };
    Ok(Arc::new(Memory { broker, faults, window }))
}

impl Memory {
    fn open(&self) -> Result<Connection, Failure> {
        if self.broker.down.load(Relaxed) {
            let (endpoint, why) = ("memory".to_owned(), "it was killed".to_owned());
            return Err(Failure::Unreachable { endpoint, why });
        }
        let deaths = self.broker.deaths.load(Relaxed);
        Ok(Connection { broker: Arc::clone(&self.broker), deaths })
    }

    fn space(&self, topology: &Topology) -> Result<Arc<Space>, Failure> {
        let spaces = self.broker.spaces.lock();
        let space = spaces.get(&topology.prefix).cloned();
        space.ok_or_else(|| Failure::refused(format!("nothing was created as {}", topology.prefix)))
    }
}

#[async_trait]
impl Driver for Memory {
    fn about(&self) -> About {
        About {
            system: SYSTEM,
            title: TITLE,
            client: "none",
            sent_means: "it is in the memory of the suite itself",
            hidden_means: "by lease, and until the receiver is gone",
            tiers: &[Tier::T0],
            styles: &[Style::Queue, Style::Log],
            lanes: Lanes::Ordered,
            returns: Return::LeaseOrConnection,
            subscriptions: true,
            tells_redelivery: true,
            settles_confirmed: true,
            pipelined: true,
        }
    }

    fn deduplicates(&self) -> bool {
        true
    }

    fn has_dead_letters(&self) -> bool {
        true
    }

    fn settings(&self, topology: &Topology) -> BTreeMap<String, String> {
        named_values(&[("window", &self.window), ("lease", &ms(topology.lease))])
    }

    async fn version(&self) -> Result<String, Failure> {
        Ok(env!("CARGO_PKG_VERSION").to_owned())
    }

    /// The first node leads everything.
    async fn replication(&self, topology: &Topology) -> Result<Vec<Replication>, Failure> {
        self.open()?;
        let replication = Replication { leader: Some(0), in_sync: topology.replicas };
        Ok(vec![replication; topology.destinations as usize])
    }

    async fn create(&self, topology: &Topology) -> Result<(), Failure> {
        self.open()?;
        let space = Arc::new(Space::of(topology, &self.faults));
        let mut spaces = self.broker.spaces.lock();
        if let Some(dead_letters) = &space.dead_letters {
            spaces.insert(topology.dead_letters().prefix, Arc::clone(dead_letters));
        }
        spaces.insert(topology.prefix.clone(), space);
        Ok(())
    }

    async fn remove(&self, topology: &Topology) -> Result<(), Failure> {
        self.open()?;
        let mut spaces = self.broker.spaces.lock();
        spaces.remove(&topology.prefix);
        spaces.remove(&topology.dead_letters().prefix);
        Ok(())
    }

    async fn sender(&self, topology: &Topology) -> Result<Box<dyn Sender>, Failure> {
        Ok(Box::new(MemorySender {
            connection: self.open()?,
            space: self.space(topology)?,
            faults: Arc::clone(&self.faults),
            window: Window::new(self.window),
            confirmer: Confirmer::spawn(),
        }))
    }

    async fn receiver(
        &self,
        topology: &Topology,
        destinations: &[u32],
        subscription: u32,
    ) -> Result<Box<dyn Receiver>, Failure> {
        let connection = self.open()?;
        let space = self.space(topology)?;
        let id = ReceiverId::unique();
        for &destination in destinations {
            space.queue(destination, subscription)?.lock().join(id);
        }
        Ok(Box::new(MemoryReceiver {
            connection,
            id,
            space,
            faults: Arc::clone(&self.faults),
            destinations: destinations.to_vec(),
            subscription,
            next: 0,
            delivered: HashMap::new(),
            deliveries: 0,
        }))
    }
}

#[derive(Debug)]
struct MemorySender {
    connection: Connection,
    space: Arc<Space>,
    faults: Arc<Faults>,
    window: Window,
    confirmer: Confirmer,
}

impl MemorySender {
    fn store(&self, destination: u32, message: Message) -> Result<(), Failure> {
        self.connection.lives()?;
        if self.faults.fail() {
            return Err(Failure::refused("by chance (setting fail)"));
        }
        // Checked before anything is kept, so that a wrong destination has no effect.
        self.space.queue(destination, 0)?;
        if self.space.is_known(&message) && !self.faults.take_twice() {
            return Ok(());
        }
        if !self.faults.lose() {
            let message = self.faults.damaged(message);
            let (twice, later) = (self.faults.duplicate(), self.faults.reorder());
            for queue in &self.space.queues[destination as usize] {
                queue.lock().put(&message, twice, later);
            }
            self.space.arrived.notify_waiters();
        }
        Ok(())
    }
}

#[async_trait]
impl Sender for MemorySender {
    async fn send(&mut self, destination: u32, messages: &[Message]) -> Result<(), Failure> {
        send_by_post(self, destination, messages).await
    }

    async fn post(&mut self, destination: u32, message: Message, receipt: Receipt) {
        let outstanding = Outstanding { receipt, room: self.window.enter().await };
        let stored = self.store(destination, message);
        if self.faults.latency.is_zero() {
            outstanding.resolve(stored);
        } else {
            let delay = tokio::time::sleep(self.faults.latency);
            let confirmation = async move {
                delay.await;
                stored
            };
            self.confirmer.begin(confirmation, outstanding).await;
        }
    }

    async fn close(self: Box<Self>) -> Result<(), Failure> {
        self.confirmer.close().await;
        Ok(())
    }
}

#[derive(Debug)]
struct MemoryReceiver {
    connection: Connection,
    id: ReceiverId,
    space: Arc<Space>,
    faults: Arc<Faults>,
    destinations: Vec<u32>,
    subscription: u32,
    /// Index of the destination to read first, so that none starves.
    next: usize,
    /// Destination and place of each delivery.
    delivered: HashMap<DeliveryId, (u32, queue::Place)>,
    deliveries: u64,
}

impl MemoryReceiver {
    fn take(&mut self, max: usize) -> Result<Vec<Received>, Failure> {
        let mut taken = Vec::new();
        let now = Instant::now();
        for turn in 0..self.destinations.len() {
            let destination = self.destinations[(self.next + turn) % self.destinations.len()];
            let mut queue = self.space.queue(destination, self.subscription)?.lock();
            for delivery in queue.take(self.id, max - taken.len(), now) {
                self.deliveries += 1;
                let id = DeliveryId(self.deliveries);
                self.delivered.insert(id, (destination, delivery.place));
                let redelivered = Some(delivery.redelivered);
                taken.push(Received { id, body: delivery.body, redelivered });
            }
        }
        self.next += 1;
        Ok(taken)
    }

    /// Time of the next possible redelivery, even without new arrivals.
    fn next_return(&self) -> Result<Option<Instant>, Failure> {
        let mut first: Option<Instant> = None;
        for &destination in &self.destinations {
            let due = self.space.queue(destination, self.subscription)?.lock().next_return();
            first = [first, due].into_iter().flatten().min();
        }
        Ok(first)
    }

    fn release_held(&self) -> Result<(), Failure> {
        for &destination in &self.destinations {
            self.space.queue(destination, self.subscription)?.lock().release_held();
        }
        Ok(())
    }
}

#[async_trait]
impl Receiver for MemoryReceiver {
    async fn receive(&mut self, max: usize) -> Result<Vec<Received>, Failure> {
        let deadline = Instant::now() + RECEIVE_WAIT;
        let space = Arc::clone(&self.space);
        loop {
            let arrived = space.arrived.notified();
            tokio::pin!(arrived);
            // From here on no arrival is missed.
            arrived.as_mut().enable();
            self.connection.lives()?;
            let taken = self.take(max)?;
            if !taken.is_empty() {
                return Ok(taken);
            }
            let wake = self.next_return()?.map_or(deadline, |due| due.min(deadline));
            let wait = wake.saturating_duration_since(Instant::now());
            if timeout(wait.max(Duration::from_micros(100)), arrived).await.is_err()
                && Instant::now() >= deadline
            {
                // No message will arrive that a held one could move behind.
                self.release_held()?;
                return self.take(max);
            }
        }
    }

    async fn settle(&mut self, settles: &[(DeliveryId, Settle)]) -> Result<(), Failure> {
        self.connection.lives()?;
        for &(id, settle) in settles {
            let Some((destination, place)) = self.delivered.remove(&id) else {
                return Err(Failure::refused(format!("delivery {} is not open", id.0)));
            };
            let mut queue = self.space.queue(destination, self.subscription)?.lock();
            let exhausted = match settle {
                Settle::Accept if !self.faults.return_settled() => {
                    queue.accept(self.id, place);
                    None
                }
                Settle::Accept | Settle::Release => queue.release(self.id, place),
            };
            drop(queue);
            if let Some(message) = exhausted.filter(|_| !self.faults.lose_dead()) {
                self.space.bury(destination, &message)?;
            }
        }
        self.space.arrived.notify_waiters();
        // Fails if the broker was killed meanwhile: nothing was settled then.
        self.connection.lives()
    }

    async fn close(self: Box<Self>) -> Result<(), Failure> {
        Ok(())
    }
}

impl Drop for MemoryReceiver {
    fn drop(&mut self) {
        for &destination in &self.destinations {
            if let Ok(queue) = self.space.queue(destination, self.subscription) {
                queue.lock().leave(self.id);
            }
        }
        self.space.arrived.notify_waiters();
    }
}
