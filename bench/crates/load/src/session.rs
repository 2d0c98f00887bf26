//! One load, from the creation of its topology to the audit.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use driver::{Driver, Failure};
use results::{Mark, Second};
use thiserror::Error;
use tokio::sync::watch;

use crate::account::add_errors;
use crate::clock::Clock;
use crate::crew::{Crew, Ended, Gone, Progress, Recruiter};
use crate::outcome::{Drain, Outcome, PhaseOutcome};
use crate::payload::STAMP_BYTES;
use crate::plan::{Action, Phase, Plan, Receivers, Until};
use crate::recorder::{Counts, Interval};
use crate::usage::{Usages, Watched};

/// Interval of checks for the end of a phase.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Interval of checks for the end of the drain; a check then disturbs no measurement.
const LOOK_EVERY_DRAINING: Duration = Duration::from_millis(25);
/// Added to the redelivery delay to decide that no more messages will arrive.
const RETURN_MARGIN: Duration = Duration::from_secs(5);

/// Reasons that nothing could be measured.
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
    #[error(transparent)]
    Agent(#[from] Gone),
    #[error("{0}")]
    NotSplit(&'static str),
    #[error("phase {phase:?}: {what}: {why}")]
    Action { phase: String, what: String, why: String },
}

/// Receives the progress of a load.
pub trait Observer: Send {
    /// A second has ended.
    fn second(&mut self, second: &Second, phase: &str, elapsed: Duration, of: Duration);
    /// Latencies of that second and counts since the start.
    fn interval(&mut self, _interval: &Interval, _counts: Counts) {}
    fn mark(&mut self, mark: &Mark);
    /// All senders and receivers have ended; these are their numbers.
    fn ended(&mut self, _senders: u64, _receivers: u64) {}
}

/// Ignores all progress.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Observer for Silent {
    fn second(&mut self, _: &Second, _: &str, _: Duration, _: Duration) {}
    fn mark(&mut self, _: &Mark) {}
}

/// Carries the plan out. `interrupt` turns true to end it early; the outcome then has everything so
/// far.
pub async fn run(
    mut plan: Plan,
    driver: Arc<dyn Driver>,
    recruiter: &dyn Recruiter,
    watched: Vec<Watched>,
    interrupt: watch::Receiver<bool>,
    observer: &mut dyn Observer,
) -> Result<Outcome, LoadError> {
    let planned = plan.time();
    let phases = std::mem::take(&mut plan.phases);
    let plan = Arc::new(plan);
    let mut crew = recruiter.crew(&plan, &driver)?;
    let began = Instant::now();
    driver.create(&plan.topology).await.map_err(LoadError::Create)?;
    let create = began.elapsed();
    if let Some(relay) = &plan.relay {
        driver.create(&relay.from).await.map_err(LoadError::Create)?;
    }
    let first = phases.first().map_or(Receivers::Running, |phase| phase.receivers);
    crew.connect(first).await?;
    let errors = gather(&*driver, &plan).await;
    let start = crew.start().await?;
    let mut session = Session {
        usages: Usages::start(watched, start).map_err(LoadError::Thread)?,
        returning: returning(&plan, &*driver),
        plan,
        crew,
        errors,
        interrupt,
        observer,
        start,
        next_second: 1,
        planned,
        progress: Progress::default(),
        of_second: Counts::default(),
        seconds: Vec::new(),
        marks: Vec::new(),
        outcomes: Vec::new(),
        latencies: Interval::default(),
        of_phase: Interval::default(),
        interrupted: None,
    };
    for phase in phases {
        session.phase(phase).await?;
        let silent = session.outcomes.last().is_some_and(PhaseOutcome::is_silent);
        if silent || session.interrupted.is_some() {
            break;
        }
    }
    Ok(session.end(create).await)
}

struct Session<'a> {
    plan: Arc<Plan>,
    crew: Box<dyn Crew>,
    interrupt: watch::Receiver<bool>,
    observer: &'a mut dyn Observer,
    usages: Usages,
    errors: BTreeMap<String, u64>,
    start: Instant,
    next_second: u64,
    planned: Duration,
    /// Time without arrivals after which none will follow, where a receiver may hold messages.
    returning: Duration,
    /// As of the last look.
    progress: Progress,
    /// Counts at the start of the current second.
    of_second: Counts,
    seconds: Vec<Second>,
    marks: Vec<Mark>,
    outcomes: Vec<PhaseOutcome>,
    latencies: Interval,
    of_phase: Interval,
    /// Reason for an early end.
    interrupted: Option<String>,
}

impl Session<'_> {
    // -------------------------------------------------------------------------------- phases

    async fn phase(&mut self, phase: Phase) -> Result<(), LoadError> {
        let Phase { name, until, measured, receivers, action } = phase;
        let begun = Instant::now();
        let from = self.elapsed();
        self.look_at_latencies().await;
        self.of_phase = Interval::default();
        let (before, backlog) = (self.progress.counts, self.backlog_bytes());
        let told = self.crew.receivers(receivers).await;
        self.heed(told);
        let going_on = self.interrupted.is_none();
        if let Some((what, action)) = action.filter(|_| going_on) {
            self.act(&name, what, action).await?;
        }
        let reached = self.wait(&name, until, begun, backlog).await;
        self.look_at_latencies().await;
        let latencies = std::mem::take(&mut self.of_phase);
        if measured {
            self.latencies.merge(&latencies);
        }
        self.outcomes.push(PhaseOutcome {
            name,
            measured,
            from,
            to: self.elapsed(),
            counts: self.progress.counts.since(before),
            latencies,
            backlog: (backlog, self.backlog_bytes()),
            until,
            reached,
        });
        Ok(())
    }

    async fn act(&mut self, phase: &str, what: String, action: Action) -> Result<(), LoadError> {
        self.mark(&what);
        // Any action may break connections.
        let told = self.crew.disturb().await;
        self.heed(told);
        let future = action();
        tokio::pin!(future);
        let done = loop {
            tokio::select! {
                done = &mut future => break done,
                () = tokio::time::sleep(LOOK_EVERY) => self.look(phase).await,
            }
        };
        // Confirmations from here on come after the action.
        self.look(phase).await;
        done.map_err(|why| LoadError::Action { phase: phase.to_owned(), what, why })
    }

    /// Waits for the end of a phase. Returns whether its condition was met.
    async fn wait(&mut self, phase: &str, until: Until, begun: Instant, backlog: u64) -> bool {
        let confirmed = self.progress.counts.confirmed;
        let done_ns = Clock::default().now_ns();
        // The action counts towards the length of the phase, but not towards a wait for a server.
        let from = match until {
            Until::Confirmed { .. } | Until::ConfirmedToAll { .. } => Instant::now(),
            Until::Time(_) | Until::Backlog { .. } | Until::Drained { .. } => begun,
        };
        while self.interrupted.is_none() {
            let over = match until {
                Until::Time(_) => false,
                Until::Backlog { bytes, .. } => self.backlog_bytes() >= bytes,
                Until::Drained { share, .. } => {
                    self.backlog_bytes() as f64 <= share * backlog as f64
                }
                Until::Confirmed { .. } => self.progress.counts.confirmed > confirmed,
                Until::ConfirmedToAll { .. } => self.progress.confirmed_to_all_ns >= done_ns,
            };
            if over {
                return true;
            }
            let left = until.at_most().saturating_sub(from.elapsed());
            if left.is_zero() {
                return matches!(until, Until::Time(_));
            }
            let mut stopped = false;
            tokio::select! {
                () = tokio::time::sleep(LOOK_EVERY.min(left)) => {}
                () = turns_true(&mut self.interrupt) => stopped = true,
            }
            if stopped {
                self.interrupted.get_or_insert_with(|| "somebody stopped it".to_owned());
            } else {
                self.look(phase).await;
            }
        }
        false
    }

    fn elapsed(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    /// Confirmed messages not yet received, over all subscriptions.
    fn backlog(&self, counts: Counts) -> u64 {
        let wanted = counts.confirmed * u64::from(self.plan.topology.subscriptions);
        wanted.saturating_sub(counts.received)
    }

    fn backlog_bytes(&self) -> u64 {
        self.backlog(self.progress.counts) * self.plan.message_bytes as u64
    }

    fn mark(&mut self, what: &str) {
        let mark = Mark { at: self.elapsed(), what: what.to_owned() };
        self.observer.mark(&mark);
        self.marks.push(mark);
    }

    /// Fetches the workers' progress, and records the seconds that have ended.
    async fn look(&mut self, phase: &str) {
        let elapsed = self.start.elapsed();
        let over = elapsed.as_secs() >= self.next_second;
        let looked = self.crew.look(over).await;
        let Some(progress) = self.heed(looked) else { return };
        self.progress = progress;
        let Some(interval) = self.progress.latencies.take() else { return };
        self.next_second = elapsed.as_secs() + 1;
        let counts = self.progress.counts;
        let new = counts.since(self.of_second);
        self.of_second = counts;
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

    /// Fetches the latencies of the phase that begins or ends now.
    async fn look_at_latencies(&mut self) {
        let looked = self.crew.look(true).await;
        let Some(mut progress) = self.heed(looked) else { return };
        self.of_phase.merge(&progress.latencies.take().unwrap_or_default());
        self.progress = progress;
    }

    /// Ends the load if an agent is lost, since its workload has changed.
    fn heed<T>(&mut self, told: Result<T, Gone>) -> Option<T> {
        let gone = match told {
            Ok(told) => return Some(told),
            Err(gone) => gone,
        };
        if self.interrupted.is_none() {
            self.mark(&format!("agent {} is gone", gone.agent));
            let seconds = self.elapsed();
            self.interrupted = Some(format!("{seconds:.1} s after the start, {gone}"));
        }
        None
    }

    // --------------------------------------------------------------------------------- ending

    async fn end(mut self, create: Duration) -> Outcome {
        let what = if self.interrupted.is_some() { "interrupted" } else { "senders stop" };
        self.mark(what);
        let mut drain = Drain::GivenUp;
        if self.interrupted.is_none() {
            let stopped = self.crew.stop_senders().await;
            self.heed(stopped);
            let going_on = self.crew.receivers(Receivers::Running).await;
            self.heed(going_on);
            drain = self.drain(Instant::now() + self.plan.drain_max).await;
        }
        let ended = self.crew.end(self.interrupted.is_some()).await;
        let Ended { mut progress, errors, processes: elsewhere, agents, gone } = ended;
        if let Some(gone) = gone {
            self.heed::<()>(Err(gone));
        }
        self.observer.interval(&progress.latencies.take().unwrap_or_default(), progress.counts);
        let (senders, receivers) = (self.plan.senders, self.plan.all_receivers());
        self.observer.ended(senders.into(), receivers.into());
        let usages = self.usages;
        let processes = tokio::task::spawn_blocking(move || usages.end());
        // After an interruption, lost messages are indistinguishable from those in flight.
        let whole = self.interrupted.is_none();
        let mut audit = self.crew.audit(whole && drain != Drain::GivenUp);
        if whole && drain == Drain::GivenUp {
            audit.late = self.crew.missing();
        }
        add_errors(&mut self.errors, errors);
        let mut processes = processes.await.unwrap_or_default();
        processes.extend(elsewhere);
        Outcome {
            seconds: self.seconds,
            marks: self.marks,
            phases: self.outcomes,
            latencies: self.latencies,
            processes,
            audit,
            errors: self.errors,
            create,
            interrupted: self.interrupted,
            drain,
            burials: self.crew.burials(),
            agents,
            acknowledged: self.crew.acknowledged(),
        }
    }

    /// Waits until every confirmed message was received and settled.
    async fn drain(&mut self, deadline: Instant) -> Drain {
        let mut changed = (self.progress.counts, Instant::now());
        loop {
            self.look("drain").await;
            if self.interrupted.is_some() {
                return Drain::GivenUp;
            }
            let Progress { counts, sending, under_way, disturbed, .. } = self.progress;
            if counts != changed.0 {
                changed = (counts, Instant::now());
            } else if !sending && counts.settled >= counts.received && self.crew.missing() == 0 {
                return Drain::Complete;
            }
            // A message that no receiver holds arrives without delay.
            let kept = counts.settled < counts.received || disturbed;
            let idle = self.plan.drain_idle;
            let enough = if kept { idle.max(self.returning) } else { idle };
            if changed.1.elapsed() >= enough && !sending && !under_way {
                return Drain::Silent;
            }
            if Instant::now() >= deadline {
                return Drain::GivenUp;
            }
            tokio::time::sleep(LOOK_EVERY_DRAINING).await;
        }
    }
}

/// Waits until receivers have divided the work. If they have not within the limit, the load begins
/// nevertheless, and the error is reported.
async fn gather(driver: &dyn Driver, plan: &Plan) -> BTreeMap<String, u64> {
    let relayed = plan.relay.as_ref().map(|relay| (&relay.from, relay.workers));
    let groups = [Some((&plan.topology, plan.receivers)), relayed].into_iter().flatten();
    let mut errors = BTreeMap::new();
    for (topology, receivers) in groups {
        if let Err(failure) = driver.gathered(topology, receivers).await {
            tracing::debug!(%failure, "receivers did not gather");
            *errors.entry(format!("gather receivers: {failure}")).or_default() += 1;
        }
    }
    errors
}

/// Time without arrivals after which none will follow, where a receiver may have disappeared:
/// longer than it can hold messages.
fn returning(plan: &Plan, driver: &dyn Driver) -> Duration {
    let relayed = plan.relay.as_ref().map(|relay| &relay.from);
    let topologies = [Some(&plan.topology), relayed].into_iter().flatten();
    let away = topologies.map(|topology| driver.returns_within(topology)).max();
    away.unwrap_or_default() + RETURN_MARGIN
}

/// Waits for true; for ever if the sender is gone.
async fn turns_true(flag: &mut watch::Receiver<bool>) {
    if flag.wait_for(|value| *value).await.is_err() {
        std::future::pending().await
    }
}
