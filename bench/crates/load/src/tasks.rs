//! Senders and receivers that are tasks of this process: all of a load, or an agent's share of it.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use driver::{Driver, Failure, Sender};
use futures_util::future::try_join_all;
use results::Audit;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::account::Report;
use crate::burial::{BurialTask, Burials};
use crate::clock::Clock;
use crate::crew::{Crew, Ended, Gone, Progress};
use crate::journal::{self, Journal, Overflow};
use crate::ledger::{Acknowledged, Ledger};
use crate::pacer::{Pacer, Schedule};
use crate::payload::Payload;
use crate::plan::{Pace, Plan, Receivers};
use crate::receive::{Order, ReceiveTask};
use crate::relay::RelayTask;
use crate::send::{SendTask, Turn};
use crate::session::LoadError;
use crate::share::Share;
use crate::usage::{Usages, Watched};

/// Number of concurrent connects.
const CONNECT_AT_ONCE: usize = 16;

#[derive(Debug)]
pub struct Tasks {
    plan: Arc<Plan>,
    driver: Arc<dyn Driver>,
    share: Share,
    ledger: Arc<Ledger>,
    /// Present at an agent.
    journal: Option<Arc<Journal>>,
    payload: Arc<Payload>,
    stop_senders: watch::Sender<bool>,
    orders: watch::Sender<Order>,
    connected: Vec<(SendTask, Box<dyn Sender>)>,
    senders: JoinSet<()>,
    receivers: JoinSet<()>,
    pacer: Option<Pacer>,
    /// Present at an agent.
    usages: Option<Usages>,
}

impl Tasks {
    /// The whole load, with its account.
    pub(crate) fn all(plan: Arc<Plan>, driver: Arc<dyn Driver>) -> Result<Self, LoadError> {
        let settles_confirmed = driver.about().settles_confirmed;
        let subscriptions = plan.topology.subscriptions;
        let ledger = Ledger::new(plan.senders, subscriptions, plan.all_lanes(), settles_confirmed);
        if plan.keeps_acknowledgements {
            ledger.keep_acknowledgements();
        }
        let share = Share::whole(&plan);
        Self::new(plan, driver, share, ledger, None)
    }

    /// An agent's share, by the clock of the coordinator, which keeps the account.
    pub fn for_agent(
        plan: Arc<Plan>,
        driver: Arc<dyn Driver>,
        share: Share,
        clock: Clock,
    ) -> Result<Self, LoadError> {
        let journal = Arc::new(Journal::default());
        let ledger = Ledger::for_agent(plan.senders, clock, Arc::clone(&journal));
        Self::new(plan, driver, share, ledger, Some(journal))
    }

    fn new(
        plan: Arc<Plan>,
        driver: Arc<dyn Driver>,
        share: Share,
        ledger: Ledger,
        journal: Option<Arc<Journal>>,
    ) -> Result<Self, LoadError> {
        let payload = Payload::new(plan.message_bytes, &plan.content, 1)
            .ok_or(LoadError::TooSmall(plan.message_bytes))?;
        Ok(Self {
            plan,
            driver,
            share,
            ledger: Arc::new(ledger),
            journal,
            payload: Arc::new(payload),
            stop_senders: watch::channel(false).0,
            orders: watch::channel(Order::Go(Receivers::Running)).0,
            connected: Vec::new(),
            senders: JoinSet::new(),
            receivers: JoinSet::new(),
            pacer: None,
            usages: None,
        })
    }

    // ---------------------------------------------------------------------------- connecting

    async fn connect_receivers(&mut self) -> Result<(), LoadError> {
        let mut connecting = JoinSet::new();
        let of_subscription = self.plan.receivers;
        let task = |number: &u32| ReceiveTask {
            number: *number,
            destinations: self.plan.share(number % of_subscription, of_subscription),
            subscription: number / of_subscription,
            plan: Arc::clone(&self.plan),
            driver: Arc::clone(&self.driver),
            ledger: Arc::clone(&self.ledger),
            payload: Arc::clone(&self.payload),
            order: self.orders.subscribe(),
        };
        let tasks: Vec<ReceiveTask> = self.share.receivers.iter().map(task).collect();
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
            let Some(made) = connecting.join_next().await else { return Ok(()) };
            let made = made.unwrap_or_else(|panic| Err(Failure::unknown(panic)));
            let (task, receiver) = made.map_err(LoadError::Receiver)?;
            self.receivers.spawn(task.run(receiver));
        }
    }

    async fn connect_relays(&mut self) -> Result<(), LoadError> {
        let Some(relay) = self.plan.relay.clone().map(Arc::new) else { return Ok(()) };
        for _ in 0..self.share.relays {
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
        Ok(())
    }

    async fn connect_burials(&mut self) -> Result<(), LoadError> {
        if !self.share.buries {
            return Ok(());
        }
        let task = BurialTask {
            number: self.plan.all_receivers(),
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

    async fn connect_senders(&mut self) -> Result<(), LoadError> {
        for number in self.share.senders.clone() {
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
            self.connected.push((task, sender));
        }
        let posts = self.plan.pace != Pace::Closed;
        let ready = self.connected.iter_mut().map(|(_, sender)| sender.ready(posts));
        try_join_all(ready).await.map_err(LoadError::Sender).map(drop)
    }

    // ------------------------------------------------------------------------------- sending

    /// Waits until that time and starts the senders.
    pub async fn start_at(&mut self, start_ns: u64) -> Result<(), LoadError> {
        tokio::time::sleep(self.ledger.clock.until(start_ns)).await;
        if self.journal.is_some() {
            let usages = Usages::start(vec![Watched::agent()], Instant::now());
            self.usages = Some(usages.map_err(LoadError::Thread)?);
        }
        let connected = std::mem::take(&mut self.connected);
        let Pace::Open { per_second, .. } = self.plan.pace else {
            for (task, sender) in connected {
                self.senders.spawn(task.run(sender, None));
            }
            return Ok(());
        };
        let Share { stream, streams, .. } = self.share;
        let schedule =
            Schedule::new(start_ns, per_second, connected.len()).nth_stream(stream, streams);
        let mut told = Vec::new();
        for (place, (task, sender)) in connected.into_iter().enumerate() {
            let (tell, due) = mpsc::unbounded_channel();
            told.push(tell);
            self.senders.spawn(task.run(sender, Some(Turn { schedule, place, due })));
        }
        if !told.is_empty() {
            let pacer = Pacer::start(schedule, self.ledger.clock, told);
            self.pacer = Some(pacer.map_err(LoadError::Thread)?);
        }
        Ok(())
    }

    fn is_sending(&mut self) -> bool {
        while self.senders.try_join_next().is_some() {}
        !self.senders.is_empty()
    }

    fn is_under_way(&self) -> bool {
        self.ledger.senders.iter().any(|sender| sender.under_way() > 0)
    }

    /// Events since the last report; at an agent only.
    pub fn report(&mut self, latencies: bool) -> Result<Report, Overflow> {
        let taken = self.journal.as_ref().map(|journal| journal.take(self.ledger.clock));
        let taken = taken.transpose()?;
        // The sent counts are read after the journal, so that they cover every message in it.
        let sent = |number: &u16| (*number, self.ledger.senders[usize::from(*number)].sent());
        let sent = self.share.senders.iter().map(sent).collect();
        let (journal, until_ns, more) = match taken {
            Some(taken) => (journal::encode(taken.events), taken.until_ns, taken.more),
            None => (Vec::new(), self.ledger.clock.now_ns(), false),
        };
        Ok(Report {
            until_ns,
            sent,
            errors: self.ledger.recorder.counts().errors,
            sending: self.is_sending(),
            under_way: self.is_under_way(),
            more,
            latencies: latencies.then(|| self.ledger.recorder.take()),
            journal,
        })
    }
}

#[async_trait]
impl Crew for Tasks {
    async fn connect(&mut self, receivers: Receivers) -> Result<(), LoadError> {
        self.orders.send_replace(Order::Go(receivers));
        self.connect_receivers().await?;
        self.connect_relays().await?;
        self.connect_burials().await?;
        self.connect_senders().await
    }

    async fn start(&mut self) -> Result<Instant, LoadError> {
        let start = Instant::now();
        self.start_at(self.ledger.clock.now_ns()).await?;
        Ok(start)
    }

    async fn look(&mut self, latencies: bool) -> Result<Progress, Gone> {
        Ok(Progress {
            counts: self.ledger.recorder.counts(),
            latencies: latencies.then(|| self.ledger.recorder.take()),
            sending: self.is_sending(),
            under_way: self.is_under_way(),
            disturbed: self.ledger.is_disturbed(),
            confirmed_to_all_ns: self.ledger.confirmed_to_all_ns(),
        })
    }

    async fn receivers(&mut self, receivers: Receivers) -> Result<(), Gone> {
        self.orders.send_replace(Order::Go(receivers));
        Ok(())
    }

    async fn disturb(&mut self) -> Result<(), Gone> {
        self.ledger.disturb();
        Ok(())
    }

    async fn stop_senders(&mut self) -> Result<(), Gone> {
        drop(self.pacer.take());
        self.stop_senders.send_replace(true);
        Ok(())
    }

    fn missing(&self) -> u64 {
        self.ledger.missing()
    }

    async fn end(&mut self, at_once: bool) -> Ended {
        drop(self.pacer.take());
        self.stop_senders.send_replace(true);
        self.orders.send_replace(Order::Stop);
        if at_once {
            self.senders.abort_all();
            self.receivers.abort_all();
        }
        while self.senders.join_next().await.is_some() {}
        while self.receivers.join_next().await.is_some() {}
        let usages = self.usages.take();
        let end = move || usages.map(Usages::end).unwrap_or_default();
        let processes = tokio::task::spawn_blocking(end).await.unwrap_or_default();
        let progress = Progress {
            counts: self.ledger.recorder.counts(),
            // An agent reports them later.
            latencies: self.journal.is_none().then(|| self.ledger.recorder.take()),
            ..Progress::default()
        };
        let errors = self.ledger.recorder.errors();
        Ended { progress, errors, processes, ..Ended::default() }
    }

    fn audit(&self, complete: bool) -> Audit {
        self.ledger.audit(complete)
    }

    fn burials(&self) -> Burials {
        self.ledger.burials(|sequence| self.plan.work.is_poison(sequence))
    }

    fn acknowledged(&mut self) -> Vec<Vec<Acknowledged>> {
        self.ledger.take_acknowledgements()
    }
}
