//! Turns several agents into the workers of one load.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use driver::{Driver, Target};
use futures_util::future::join_all;
use load::clock::Clock;
use load::{
    Account, Burials, Crew, Ended, Gone, Implausible, Interval, LoadError, Pace, Plan, Progress,
    Receivers, Recruiter, Report, Share, add_errors,
};
use results::{Audit, Host, Process};

use crate::assignment::Assignment;
use crate::link::Link;
use crate::offset;
use crate::wire::Request;

/// Delay between the start request to the agents and the start itself.
const START_AFTER: Duration = Duration::from_millis(500);
const THERE_AND_BACK: &str = "it sends a message once the one before has come back, so sender and \
    receiver cannot be on different machines: run it without --agents";

const BY_ONE_CLOCK: &str = "it measures how long each sender waits after a fault, by the clock of \
    who makes the fault: run it without --agents";

/// Holds the agents' addresses and the target, as the agents reach it.
#[derive(Clone)]
pub struct Coordinator {
    addresses: Vec<String>,
    token: Option<String>,
    target: Target,
}

/// Leaves out the token and the target's credentials.
impl fmt::Debug for Coordinator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Coordinator")
            .field("addresses", &self.addresses)
            .field("system", &self.target.system)
            .finish_non_exhaustive()
    }
}

impl Coordinator {
    pub fn new(addresses: Vec<String>, token: Option<String>, target: Target) -> Self {
        Self { addresses, token, target }
    }

    /// Connects to each agent and returns its host, or the reason that it is unavailable.
    pub async fn greet(&self) -> Vec<Result<Host, Gone>> {
        let token = self.token.as_deref();
        let met = self.addresses.iter().map(|address| Link::open(address, token));
        let met = join_all(met).await.into_iter();
        met.map(|link| link.map(|link| link.agent.host)).collect()
    }

    /// Connects one after the other, so that no clock is read while another agent replies.
    async fn links(&self) -> Result<Vec<Link>, Gone> {
        let mut links = Vec::new();
        for address in &self.addresses {
            links.push(Link::open(address, self.token.as_deref()).await?);
        }
        Ok(links)
    }
}

impl Recruiter for Coordinator {
    fn crew(&self, plan: &Arc<Plan>, driver: &Arc<dyn Driver>) -> Result<Box<dyn Crew>, LoadError> {
        if plan.pace == Pace::PingPong {
            return Err(LoadError::NotSplit(THERE_AND_BACK));
        }
        if plan.keeps_acknowledgements {
            return Err(LoadError::NotSplit(BY_ONE_CLOCK));
        }
        let settles_confirmed = driver.about().settles_confirmed;
        Ok(Box::new(Agents {
            coordinator: self.clone(),
            account: Account::new(plan, settles_confirmed, self.addresses.len()),
            plan: Arc::clone(plan),
            links: Vec::new(),
        }))
    }
}

/// The agents that carry one load.
#[derive(Debug)]
struct Agents {
    coordinator: Coordinator,
    plan: Arc<Plan>,
    account: Account,
    links: Vec<Link>,
}

impl Agents {
    fn living(&mut self) -> impl Iterator<Item = (usize, &mut Link)> {
        self.links.iter_mut().enumerate().filter(|(_, link)| !link.is_gone())
    }

    /// Sends a request to all remaining agents concurrently.
    async fn command_all(&mut self, request: Request) -> Result<(), Gone> {
        let told = self.living().map(|(_, link)| link.command(&request));
        join_all(told).await.into_iter().collect()
    }

    /// Fetches the reports of all agents and enters them into the account.
    async fn look_all(&mut self, latencies: bool) -> Result<Progress, Gone> {
        let mut progress =
            Progress { latencies: latencies.then(Interval::default), ..Progress::default() };
        let looks = self.living();
        let looks = looks.map(|(agent, link)| async move { (agent, link.look(latencies).await) });
        let mut lost = None;
        for (agent, heard) in join_all(looks).await {
            match heard.and_then(|reports| self.enter(agent, &reports, &mut progress)) {
                Ok(()) => {}
                Err(gone) => lost = lost.or(Some(gone)),
            }
        }
        self.judge()?;
        progress.counts = self.account.counts();
        progress.disturbed = self.account.is_disturbed();
        // Events that are reported and not yet entered may be confirmations.
        progress.under_way |= self.account.is_waiting();
        progress.sending |= self.account.is_waiting();
        if let Some(all) = &mut progress.latencies {
            all.merge(&self.account.take());
        }
        lost.map_or(Ok(progress), Err)
    }

    /// Enters the reports of one agent; the last one holds its current state.
    fn enter(
        &mut self,
        agent: usize,
        reports: &[Report],
        progress: &mut Progress,
    ) -> Result<(), Gone> {
        for report in reports {
            let told = self.account.record(agent, report);
            told.map_err(|implausible| self.links[agent].lose(implausible.to_string()))?;
            if let (Some(all), Some(some)) = (&mut progress.latencies, &report.latencies) {
                all.merge(some);
            }
        }
        if let Some(now) = reports.last() {
            progress.sending |= now.sending;
            progress.under_way |= now.under_way;
        }
        Ok(())
    }

    /// Enters all events up to the time that every agent has reported.
    fn judge(&mut self) -> Result<(), Gone> {
        let apart_ns = offset::apart_ns(self.links.iter().map(Link::bound));
        let judged = self.account.enter(apart_ns);
        judged.map_err(|agent| self.links[agent].lose(Implausible.to_string()))
    }

    /// Collects the remaining reports and reads the clocks once more.
    async fn collect_remaining(&mut self, at_once: bool, ended: &mut Ended) {
        let ends = self.living();
        let ends = ends.map(|(agent, link)| async move { (agent, link.end(at_once).await) });
        for (agent, farewell) in join_all(ends).await {
            let Some(farewell) = note(farewell, &mut ended.gone) else { continue };
            add_errors(&mut ended.errors, farewell.errors);
            let name = format!("agent {}", agent + 1);
            let named = farewell.processes.into_iter();
            ended.processes.extend(named.map(|it| Process { name: name.clone(), ..it }));
        }
        let heard = self.look_all(true).await;
        ended.progress = note(heard, &mut ended.gone).unwrap_or_default();
        for link in self.links.iter_mut().filter(|link| !link.is_gone()) {
            let read = link.clock_at_end().await;
            note(read, &mut ended.gone);
        }
    }
}

/// Keeps the first agent that was lost.
fn note<T>(told: Result<T, Gone>, lost: &mut Option<Gone>) -> Option<T> {
    told.map_err(|gone| lost.get_or_insert(gone).clone()).ok()
}

#[async_trait]
impl Crew for Agents {
    async fn connect(&mut self, receivers: Receivers) -> Result<(), LoadError> {
        self.links = self.coordinator.links().await?;
        let shares = Share::split(&self.plan, self.links.len());
        let prepared = self.links.iter_mut().zip(shares).map(|(link, share)| {
            let (target, plan) = (self.coordinator.target.clone(), self.plan.without_phases());
            let ahead_ns = link.ahead_ns();
            link.prepare(Assignment { target, plan, share, receivers, ahead_ns })
        });
        Ok(join_all(prepared).await.into_iter().collect::<Result<(), Gone>>()?)
    }

    async fn start(&mut self) -> Result<Instant, LoadError> {
        let at_ns = Clock::default().now_ns() + START_AFTER.as_nanos() as u64;
        let start = Instant::now() + START_AFTER;
        let started = self.links.iter_mut().map(|link| link.start(at_ns));
        join_all(started).await.into_iter().collect::<Result<(), Gone>>()?;
        Ok(start)
    }

    async fn look(&mut self, latencies: bool) -> Result<Progress, Gone> {
        self.look_all(latencies).await
    }

    async fn receivers(&mut self, receivers: Receivers) -> Result<(), Gone> {
        self.command_all(Request::Receivers(receivers)).await
    }

    async fn disturb(&mut self) -> Result<(), Gone> {
        self.account.disturb();
        Ok(())
    }

    async fn stop_senders(&mut self) -> Result<(), Gone> {
        self.command_all(Request::StopSenders).await
    }

    fn missing(&self) -> u64 {
        self.account.missing()
    }

    async fn end(&mut self, at_once: bool) -> Ended {
        let mut ended = Ended::default();
        self.collect_remaining(at_once, &mut ended).await;
        for agent in 0..self.links.len() {
            self.account.over(agent);
        }
        let judged = self.judge();
        note(judged, &mut ended.gone);
        add_errors(&mut ended.errors, self.account.errors());
        ended.progress.counts = self.account.counts();
        let latencies = ended.progress.latencies.get_or_insert_default();
        latencies.merge(&self.account.take());
        ended.agents = std::mem::take(&mut self.links).into_iter().map(|it| it.agent).collect();
        ended
    }

    fn audit(&self, complete: bool) -> Audit {
        self.account.audit(complete)
    }

    fn burials(&self) -> Burials {
        self.account.burials(&self.plan.work)
    }
}
