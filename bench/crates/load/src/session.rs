//! One load, from the first topic created to the audit.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use driver::{Driver, Failure, Topology};
use results::{Audit, Mark, Process, Second};
use thiserror::Error;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::burial::{BurialTask, Burials};
use crate::clock::now_ns;
use crate::ledger::Ledger;
use crate::pacer::{Pacer, Schedule};
use crate::payload::{Payload, STAMP_BYTES};
use crate::plan::{Pace, Phase, Plan, Receivers, Until};
use crate::receive::{Order, ReceiveTask};
use crate::recorder::{Counts, Interval};
use crate::relay::RelayTask;
use crate::send::SendTask;
use crate::usage::{Usages, Watched};

/// How often it is looked whether a phase is over.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How much longer than what was received and not settled stays away nothing must come before
/// nothing will.
const RETURN_MARGIN: Duration = Duration::from_secs(5);
/// Connections that are made at the same time.
const CONNECT_AT_ONCE: usize = 16;

/// Why nothing could be measured at all.
#[derive(Debug, Error)]
pub enum LoadError {
    #[error("messages of {0} bytes have no room for the {STAMP_BYTES} bytes that the audit needs")]
    TooSmall(usize),
    #[error("cannot create what the test needs: {0}")]
    Create(Failure),
    #[error("cannot connect a sender: {0}")]
    Sender(Failure),
    #[error("cannot connect a receiver: {0}")]
    Receiver(Failure),
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
    #[error("phase {phase:?}: {what}: {why}")]
    Action { phase: String, what: String, why: String },
}

/// Who is shown what happens.
pub trait Observer: Send {
    /// A second is over.
    fn second(&mut self, second: &Second, phase: &str, elapsed: Duration, of: Duration);
    /// Latencies of that second and counts since the start, for who wants all of them.
    fn interval(&mut self, _interval: &Interval, _counts: Counts) {}
    fn mark(&mut self, mark: &Mark);
    /// All senders and receivers have ended; there were so many.
    fn ended(&mut self, _senders: u64, _receivers: u64) {}
}

/// Shows nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Observer for Silent {
    fn second(&mut self, _: &Second, _: &str, _: Duration, _: Duration) {}
    fn mark(&mut self, _: &Mark) {}
}

/// What happened.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    pub seconds: Vec<Second>,
    pub marks: Vec<Mark>,
    pub phases: Vec<PhaseOutcome>,
    /// Of all measured phases together.
    pub latencies: Interval,
    pub processes: Vec<Process>,
    pub audit: Audit,
    /// What went wrong and how often.
    pub errors: BTreeMap<String, u64>,
    /// How long creating the topology took.
    pub create: Duration,
    /// It was stopped before its end.
    pub interrupted: bool,
    pub drain: Drain,
    /// Where messages go to dead letters.
    pub burials: Burials,
}

/// How the wait for what was still on its way ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Drain {
    /// Everything that was confirmed has come and was settled.
    Complete,
    /// Nothing has come for so long that nothing will.
    Silent,
    /// The time was up.
    GivenUp,
}

#[derive(Clone, PartialEq, Debug)]
pub struct PhaseOutcome {
    pub name: String,
    pub measured: bool,
    /// Seconds since the start of the load.
    pub from: f64,
    pub to: f64,
    pub counts: Counts,
    pub latencies: Interval,
    /// Bytes that waited for receivers as it began and as it ended.
    pub backlog: (u64, u64),
    /// What it waited for came to pass; always so of a phase that waits for time.
    pub reached: bool,
}

impl PhaseOutcome {
    pub fn seconds(&self) -> f64 {
        self.to - self.from
    }

    /// A second, over the whole phase.
    pub fn rate(&self, count: impl Fn(Counts) -> u64) -> f64 {
        if self.to > self.from { count(self.counts) as f64 / self.seconds() } else { 0.0 }
    }
}

impl Outcome {
    /// Of all measured phases together: counts and seconds.
    pub fn measured(&self) -> (Counts, f64) {
        let mut all = Counts::default();
        let mut seconds = 0.0;
        for phase in self.phases.iter().filter(|phase| phase.measured) {
            let Counts { sent, confirmed, received, settled, errors, repeated } = phase.counts;
            all.sent += sent;
            all.confirmed += confirmed;
            all.received += received;
            all.settled += settled;
            all.errors += errors;
            all.repeated += repeated;
            seconds += phase.seconds();
        }
        (all, seconds)
    }

    pub fn phase(&self, name: &str) -> Option<&PhaseOutcome> {
        self.phases.iter().find(|phase| phase.name == name)
    }
}

/// Carries the plan out. `interrupt` turns true when somebody wants it to end; what there is by
/// then is the outcome.
pub async fn run(
    plan: Plan,
    driver: Arc<dyn Driver>,
    watched: Vec<Watched>,
    interrupt: watch::Receiver<bool>,
    observer: &mut dyn Observer,
) -> Result<Outcome, LoadError> {
    let began = Instant::now();
    driver.create(&plan.topology).await.map_err(LoadError::Create)?;
    let create = began.elapsed();
    if let Some(relay) = &plan.relay {
        driver.create(&relay.from).await.map_err(LoadError::Create)?;
    }
    let mut session = Session::new(plan, driver, watched, interrupt, observer)?;
    session.start_receivers().await?;
    session.start_relay().await?;
    session.start_burials().await?;
    session.start_senders().await?;
    for phase in std::mem::take(&mut session.phases) {
        if !session.phase(phase).await? {
            break;
        }
    }
    Ok(session.end(create).await)
}

struct Session<'a> {
    plan: Arc<Plan>,
    phases: Vec<Phase>,
    driver: Arc<dyn Driver>,
    ledger: Arc<Ledger>,
    payload: Arc<Payload>,
    interrupt: watch::Receiver<bool>,
    observer: &'a mut dyn Observer,
    watched: Vec<Watched>,
    usages: Option<Usages>,
    stop_senders: watch::Sender<bool>,
    orders: watch::Sender<Order>,
    senders: JoinSet<()>,
    receivers: JoinSet<()>,
    pacer: Option<Pacer>,
    start: Instant,
    next_second: u64,
    planned: Duration,
    counts: Counts,
    seconds: Vec<Second>,
    marks: Vec<Mark>,
    outcomes: Vec<PhaseOutcome>,
    latencies: Interval,
    of_phase: Interval,
}

impl<'a> Session<'a> {
    fn new(
        mut plan: Plan,
        driver: Arc<dyn Driver>,
        watched: Vec<Watched>,
        interrupt: watch::Receiver<bool>,
        observer: &'a mut dyn Observer,
    ) -> Result<Self, LoadError> {
        let payload = Payload::new(plan.message_bytes, &plan.content, 1)
            .ok_or(LoadError::TooSmall(plan.message_bytes))?;
        let settles_confirmed = driver.about().settles_confirmed;
        let subscriptions = plan.topology.subscriptions;
        let ledger = Ledger::new(plan.senders, subscriptions, plan.all_lanes(), settles_confirmed);
        let (planned, phases) = (plan.time(), std::mem::take(&mut plan.phases));
        let first = phases.first().map_or(Receivers::Running, |phase| phase.receivers);
        Ok(Self {
            plan: Arc::new(plan),
            phases,
            driver,
            ledger: Arc::new(ledger),
            payload: Arc::new(payload),
            interrupt,
            observer,
            watched,
            usages: None,
            stop_senders: watch::channel(false).0,
            orders: watch::channel(Order::Go(first)).0,
            senders: JoinSet::new(),
            receivers: JoinSet::new(),
            pacer: None,
            start: Instant::now(),
            next_second: 1,
            planned,
            counts: Counts::default(),
            seconds: Vec::new(),
            marks: Vec::new(),
            outcomes: Vec::new(),
            latencies: Interval::default(),
            of_phase: Interval::default(),
        })
    }

    // ---------------------------------------------------------------------------- connecting

    async fn start_receivers(&mut self) -> Result<(), LoadError> {
        let mut connecting = JoinSet::new();
        let mut tasks = Vec::new();
        for subscription in 0..self.plan.topology.subscriptions {
            for one in 0..self.plan.receivers {
                let number = subscription * self.plan.receivers + one;
                tasks.push(ReceiveTask {
                    number,
                    destinations: self.plan.share(one, self.plan.receivers),
                    subscription,
                    plan: Arc::clone(&self.plan),
                    driver: Arc::clone(&self.driver),
                    ledger: Arc::clone(&self.ledger),
                    payload: Arc::clone(&self.payload),
                    order: self.orders.subscribe(),
                });
            }
        }
        let mut tasks = tasks.into_iter();
        loop {
            while connecting.len() < CONNECT_AT_ONCE
                && let Some(task) = tasks.next()
            {
                let driver = Arc::clone(&self.driver);
                connecting.spawn(async move {
                    let ReceiveTask { plan, destinations, subscription, .. } = &task;
                    let made = driver.receiver(&plan.topology, destinations, *subscription).await;
                    made.map(|receiver| (task, receiver))
                });
            }
            let Some(made) = connecting.join_next().await else { break };
            let made = made.unwrap_or_else(|panic| Err(Failure::unknown(panic)));
            let (task, receiver) = made.map_err(LoadError::Receiver)?;
            self.receivers.spawn(task.run(receiver));
        }
        let Plan { topology, receivers, .. } = &*self.plan;
        gather(&*self.driver, &self.ledger, topology, *receivers).await;
        Ok(())
    }

    async fn start_relay(&mut self) -> Result<(), LoadError> {
        let Some(relay) = self.plan.relay.clone().map(Arc::new) else { return Ok(()) };
        for _ in 0..relay.workers {
            let task = RelayTask {
                plan: Arc::clone(&self.plan),
                relay: Arc::clone(&relay),
                driver: Arc::clone(&self.driver),
                ledger: Arc::clone(&self.ledger),
                payload: Arc::clone(&self.payload),
                order: self.orders.subscribe(),
            };
            let ends = task.connect().await.map_err(LoadError::Receiver)?;
            self.receivers.spawn(task.run(ends));
        }
        gather(&*self.driver, &self.ledger, &relay.from, relay.workers).await;
        Ok(())
    }

    async fn start_burials(&mut self) -> Result<(), LoadError> {
        if self.plan.topology.delivery_limit.is_none() {
            return Ok(());
        }
        let task = BurialTask {
            number: self.plan.receivers * self.plan.topology.subscriptions,
            plan: Arc::clone(&self.plan),
            driver: Arc::clone(&self.driver),
            ledger: Arc::clone(&self.ledger),
            payload: Arc::clone(&self.payload),
            order: self.orders.subscribe(),
        };
        let receiver = task.connect().await.map_err(LoadError::Receiver)?;
        self.receivers.spawn(task.run(receiver));
        Ok(())
    }

    async fn start_senders(&mut self) -> Result<(), LoadError> {
        let mut ready = Vec::new();
        for number in 0..self.plan.senders {
            let sender =
                self.driver.sender(self.plan.sent_to()).await.map_err(LoadError::Sender)?;
            let task = SendTask {
                number,
                plan: Arc::clone(&self.plan),
                driver: Arc::clone(&self.driver),
                ledger: Arc::clone(&self.ledger),
                payload: Arc::clone(&self.payload),
                stop: self.stop_senders.subscribe(),
            };
            ready.push((task, sender));
        }
        self.start = Instant::now();
        let watched = std::mem::take(&mut self.watched);
        self.usages = Some(Usages::start(watched, self.start).map_err(LoadError::Thread)?);
        let Pace::Open { per_second, .. } = self.plan.pace else {
            for (task, sender) in ready {
                self.senders.spawn(task.run(sender, None));
            }
            return Ok(());
        };
        let schedule = Schedule::new(now_ns(), per_second, self.plan.senders);
        let mut told = Vec::new();
        for (task, sender) in ready {
            let (tell, due) = mpsc::unbounded_channel();
            told.push(tell);
            self.senders.spawn(task.run(sender, Some((schedule, due))));
        }
        self.pacer = Some(Pacer::start(schedule, told).map_err(LoadError::Thread)?);
        Ok(())
    }

    // -------------------------------------------------------------------------------- phases

    /// False when it was interrupted.
    async fn phase(&mut self, phase: Phase) -> Result<bool, LoadError> {
        let begun = Instant::now();
        let (from, before) = (self.elapsed(), self.ledger.recorder.counts());
        self.of_phase.merge(&self.ledger.recorder.take());
        self.of_phase = Interval::default();
        self.orders.send_replace(Order::Go(phase.receivers));
        let backlog = self.backlog_bytes();
        if let Some((what, action)) = phase.action {
            self.mark(&what);
            // Whatever it is, it may break connections.
            self.ledger.disturb();
            let (name, future) = (phase.name.clone(), action());
            tokio::pin!(future);
            loop {
                tokio::select! {
                    done = &mut future => {
                        done.map_err(|why| LoadError::Action { phase: name, what, why })?;
                        break;
                    }
                    () = tokio::time::sleep(LOOK_EVERY) => self.look(&phase.name),
                }
            }
        }
        let mut interrupted = false;
        let reached = loop {
            if self.is_over(phase.until, begun.elapsed(), backlog) {
                break true;
            }
            if begun.elapsed() >= phase.until.at_most() {
                break matches!(phase.until, Until::Time(_));
            }
            let left = phase.until.at_most().saturating_sub(begun.elapsed());
            tokio::select! {
                () = tokio::time::sleep(LOOK_EVERY.min(left)) => {}
                () = turns_true(&mut self.interrupt) => interrupted = true,
            }
            if interrupted {
                break false;
            }
            self.look(&phase.name);
        };
        self.of_phase.merge(&self.ledger.recorder.take());
        let latencies = std::mem::take(&mut self.of_phase);
        if phase.measured {
            self.latencies.merge(&latencies);
        }
        self.outcomes.push(PhaseOutcome {
            name: phase.name,
            measured: phase.measured,
            from,
            to: self.elapsed(),
            counts: self.ledger.recorder.counts().since(before),
            latencies,
            backlog: (backlog, self.backlog_bytes()),
            reached,
        });
        Ok(!interrupted)
    }

    fn is_over(&self, until: Until, elapsed: Duration, backlog_before: u64) -> bool {
        match until {
            Until::Time(time) => elapsed >= time,
            Until::Backlog { bytes, .. } => self.backlog_bytes() >= bytes,
            Until::Drained { share, .. } => {
                self.backlog_bytes() as f64 <= share * backlog_before as f64
            }
        }
    }

    fn elapsed(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    /// Messages that were confirmed and not received, over all subscriptions.
    fn backlog(&self, counts: Counts) -> u64 {
        let wanted = counts.confirmed * u64::from(self.plan.topology.subscriptions);
        wanted.saturating_sub(counts.received)
    }

    fn backlog_bytes(&self) -> u64 {
        self.backlog(self.ledger.recorder.counts()) * self.plan.message_bytes as u64
    }

    fn mark(&mut self, what: &str) {
        let mark = Mark { at: self.elapsed(), what: what.to_owned() };
        self.observer.mark(&mark);
        self.marks.push(mark);
    }

    /// Notes the seconds that are over.
    fn look(&mut self, phase: &str) {
        let elapsed = self.start.elapsed();
        if elapsed.as_secs() < self.next_second {
            return;
        }
        self.next_second = elapsed.as_secs() + 1;
        let interval = self.ledger.recorder.take();
        let counts = self.ledger.recorder.counts();
        let new = counts.since(self.counts);
        self.counts = counts;
        let second = Second {
            at: elapsed.as_secs() as i64 - 1,
            sent: new.sent,
            confirmed: new.confirmed,
            received: new.received,
            settled: new.settled,
            errors: new.errors,
            redelivered: new.repeated,
            backlog: self.backlog(counts),
            send_p50: interval.send_due.quantile_us(0.5),
            send_p99: interval.send_due.quantile_us(0.99),
            receive_p50: interval.receive_due.quantile_us(0.5),
            receive_p99: interval.receive_due.quantile_us(0.99),
        };
        self.observer.interval(&interval, counts);
        self.observer.second(&second, phase, elapsed, self.planned.max(elapsed));
        self.seconds.push(second);
        self.of_phase.merge(&interval);
    }

    // --------------------------------------------------------------------------------- ending

    async fn end(mut self, create: Duration) -> Outcome {
        let interrupted = *self.interrupt.borrow();
        self.mark(if interrupted { "interrupted" } else { "senders stop" });
        drop(self.pacer.take());
        self.stop_senders.send_replace(true);
        self.orders.send_replace(Order::Go(Receivers::Running));
        let drain_max = if interrupted { Duration::ZERO } else { self.plan.drain_max };
        let drain = self.drain(Instant::now() + drain_max).await;
        self.orders.send_replace(Order::Stop);
        if interrupted {
            self.senders.abort_all();
            self.receivers.abort_all();
        }
        while self.senders.join_next().await.is_some() {}
        while self.receivers.join_next().await.is_some() {}
        self.observer.interval(&self.ledger.recorder.take(), self.ledger.recorder.counts());
        let (senders, receivers) = (self.plan.senders, self.plan.receivers);
        let receivers = receivers * self.plan.topology.subscriptions;
        self.observer.ended(senders.into(), receivers.into());
        let usages = self.usages.take();
        let end = move || usages.map(Usages::end).unwrap_or_default();
        let processes = tokio::task::spawn_blocking(end);
        // Of an interrupted run nobody can say what was lost, nor of what may still come.
        let mut audit = self.ledger.audit(!interrupted && drain != Drain::GivenUp);
        if !interrupted && drain == Drain::GivenUp {
            audit.late = self.ledger.missing();
        }
        Outcome {
            seconds: self.seconds,
            marks: self.marks,
            phases: self.outcomes,
            latencies: self.latencies,
            processes: processes.await.unwrap_or_default(),
            audit,
            errors: self.ledger.recorder.errors(),
            create,
            interrupted,
            drain,
            burials: self.ledger.burials(|sequence| self.plan.work.is_poison(sequence)),
        }
    }

    /// Waits until everything that was confirmed has come and been settled.
    async fn drain(&mut self, deadline: Instant) -> Drain {
        let (idle, returning) = idle_enough(&self.plan, self.driver.as_ref());
        let mut progress = (self.ledger.recorder.counts(), Instant::now());
        loop {
            while self.senders.try_join_next().is_some() {}
            let counts = self.ledger.recorder.counts();
            let under_way = self.ledger.senders.iter().any(|sender| sender.under_way() > 0);
            if counts != progress.0 {
                progress = (counts, Instant::now());
            } else if self.senders.is_empty()
                && counts.settled >= counts.received
                && self.ledger.missing() == 0
            {
                return Drain::Complete;
            }
            // What was never received, and is with nobody whose connection broke, comes at once.
            let kept = counts.settled < counts.received || self.ledger.is_disturbed();
            let enough = if kept { idle.max(returning) } else { idle };
            let silent = progress.1.elapsed() >= enough;
            if silent && self.senders.is_empty() && !under_way {
                return Drain::Silent;
            }
            if Instant::now() >= deadline {
                return Drain::GivenUp;
            }
            tokio::time::sleep(LOOK_EVERY).await;
            self.look("drain");
        }
    }
}

/// What they have not divided among themselves by then they may yet: it is told, and the load begins.
async fn gather(driver: &dyn Driver, ledger: &Ledger, topology: &Topology, receivers: u32) {
    if let Err(failure) = driver.gathered(topology, receivers).await {
        ledger.recorder.error("gather receivers", &failure);
    }
}

/// For how long nothing must come before nothing will; and where a receiver may be gone without a
/// word, longer than it can keep what it had.
fn idle_enough(plan: &Plan, driver: &dyn Driver) -> (Duration, Duration) {
    let relayed = plan.relay.as_ref().map(|relay| &relay.from);
    let topologies = [Some(&plan.topology), relayed].into_iter().flatten();
    let away = topologies.map(|topology| driver.returns_within(topology)).max();
    (plan.drain_idle, away.unwrap_or_default() + RETURN_MARGIN)
}

/// Never, if nobody is left who could turn it.
async fn turns_true(flag: &mut watch::Receiver<bool>) {
    if flag.wait_for(|value| *value).await.is_err() {
        std::future::pending().await
    }
}
