use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use driver::{Driver, Lanes, Style, Tier, Topology};
use load::{LoadError, Observer, Outcome, Plan, Recruiter, Watched};
use results::{Host, Run};
use thiserror::Error;
use tokio::sync::watch;

use crate::judge;

/// How long and how large a test is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// A taste: a few seconds each.
    Quick,
    /// One machine, two minutes.
    Local,
    /// A cluster, as it was published.
    Full,
}

impl Form {
    pub fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Local => "local",
            Self::Full => "full",
        }
    }
}

/// Makes nodes fail. Whoever started the servers can do that.
#[async_trait]
pub trait Faults: Send + Sync + std::fmt::Debug {
    /// How many there are; the first one is 1.
    fn nodes(&self) -> u32;
    /// `kill -9`. Returns when it is gone, with when it was killed.
    async fn kill(&self, node: u32) -> Result<Instant, String>;
    /// As an administrator would (SIGTERM). Returns when it is gone, with when it was told.
    async fn stop(&self, node: u32) -> Result<Instant, String>;
    /// Its connections stay open, and nobody answers (SIGSTOP). Returns since when.
    async fn pause(&self, _node: u32) -> Result<Instant, String> {
        Err("nobody here can stop it where it is".to_owned())
    }
    /// It goes on where it was paused.
    async fn resume(&self, _node: u32) -> Result<(), String> {
        Err("nobody here can stop it where it is".to_owned())
    }
    /// Returns when it serves again.
    async fn start(&self, node: u32) -> Result<(), String>;
    /// Starts all nodes anew, without data, on a disk of so many bytes and no more.
    async fn confine(&self, _bytes: u64) -> Result<(), String> {
        Err("nobody here can mount one".to_owned())
    }
    /// Starts all nodes anew, without data, on a disk of at most so many bytes whose power can be cut.
    async fn put_on_own_disk(&self, _bytes: u64) -> Result<(), String> {
        Err("nobody here can mount one".to_owned())
    }
    /// Cuts the power of all nodes and of that disk at one instant.
    async fn cut_power(&self) -> Result<(), String> {
        Err("there is no disk whose power could be cut".to_owned())
    }
    /// Starts all nodes on what that disk has kept. Returns when they serve again.
    async fn start_all(&self) -> Result<(), String> {
        Err("there is no disk whose power could be cut".to_owned())
    }
    /// Makes the disk that they were confined to larger, and starts what has ended.
    async fn enlarge(&self, _bytes: u64) -> Result<(), String> {
        Err("there is no small disk".to_owned())
    }
    /// Starts all nodes anew, without data, on the disk that they had before.
    async fn release(&self) -> Result<(), String> {
        Ok(())
    }
    /// What its processes are now.
    fn watched(&self) -> Vec<Watched>;
}

/// Why there is no run.
#[derive(Debug, Error)]
pub enum Problem {
    /// The test asks for what this system does not have: no fault, and no result.
    #[error("does not apply: {0}")]
    Skipped(String),
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The servers are not as they must be for the next test.
    #[error("its servers cannot be started anew: {0}")]
    Servers(String),
    #[error("interrupted")]
    Interrupted,
    /// Not by somebody: one of those who send and receive was lost.
    #[error("{0}")]
    Cut(String),
}

/// Made anew for each load: who shows it.
pub type Watch = Box<dyn FnMut(&str) -> Box<dyn Observer> + Send>;

/// A system under test, and how it is to be tested.
pub struct Context {
    pub driver: Arc<dyn Driver>,
    /// Who sends and receives.
    pub recruiter: Arc<dyn Recruiter>,
    /// As the server says it.
    pub version: String,
    pub tier: Tier,
    pub form: Form,
    pub host: Host,
    /// Of server and client, all that is not as it comes.
    pub settings: BTreeMap<String, String>,
    pub faults: Option<Arc<dyn Faults>>,
    /// Servers that were not started here.
    pub watched: Vec<Watched>,
    pub replicas: u32,
    pub interrupt: watch::Receiver<bool>,
    pub watch: Watch,
    /// Version and commit of the suite.
    pub suite: String,
    /// Begins every name on the server.
    pub prefix: String,
    /// By message size: the rate found by `omb/max-rate`.
    pub max_rates: BTreeMap<usize, f64>,
    pub(crate) loads: u32,
    #[cfg(test)]
    pub(crate) rehearsed: Option<Vec<crate::rehearsal::Rehearsed>>,
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context")
            .field("driver", &self.driver)
            .field("tier", &self.tier)
            .field("form", &self.form)
            .finish_non_exhaustive()
    }
}

impl Context {
    /// On this driver, at this tier, from this process, without faults and servers to watch.
    pub fn new(driver: Arc<dyn Driver>, version: String, tier: Tier, form: Form) -> Self {
        Self {
            driver,
            recruiter: Arc::new(load::InProcess),
            version,
            tier,
            form,
            host: Host::default(),
            settings: BTreeMap::new(),
            faults: None,
            watched: Vec::new(),
            replicas: 1,
            interrupt: watch::channel(false).1,
            watch: Box::new(|_| Box::new(load::Silent)),
            suite: concat!("postroad-bench ", env!("CARGO_PKG_VERSION")).to_owned(),
            prefix: "bench".to_owned(),
            max_rates: BTreeMap::new(),
            loads: 0,
            #[cfg(test)]
            rehearsed: None,
        }
    }

    /// The result of a test that was [skipped](Problem::Skipped).
    pub fn not_supported(&self, test: &str, why: String) -> Run {
        judge::not_supported(self, test, why)
    }

    /// One of three times, by form.
    pub(crate) fn seconds(
        &self,
        quick: impl Into<f64>,
        local: impl Into<f64>,
        full: impl Into<f64>,
    ) -> Duration {
        Duration::from_secs_f64(self.by_form(quick.into(), local.into(), full.into()))
    }

    pub(crate) fn by_form<T>(&self, quick: T, local: T, full: T) -> T {
        match self.form {
            Form::Quick => quick,
            Form::Local => local,
            Form::Full => full,
        }
    }

    pub(crate) fn warm_up(&self) -> Duration {
        self.seconds(0.5, 3, 60)
    }

    /// How long a server that was started may take until it confirms something.
    pub(crate) fn back_within(&self) -> Duration {
        self.seconds(60, 60, 300)
    }

    /// Of messages whose receivers lose a server: what those had is waited for so long, and it is
    /// longer than any of them takes to settle what it has.
    pub(crate) fn lease_of_the_killed(&self) -> Duration {
        self.seconds(5, 10, 10)
    }

    /// An empty topology with names of its own.
    pub(crate) fn topology(&mut self, style: Style) -> Topology {
        self.loads += 1;
        let mut topology =
            Topology::new(&format!("{}-{}", self.prefix, self.loads), style, self.tier);
        topology.replicas = self.replicas;
        topology
    }

    /// Of a test about queues: each message is settled.
    pub(crate) fn queue(&mut self) -> Result<Topology, Problem> {
        let about = self.driver.about();
        // A log is what such systems have: their test harnesses settled by position, too.
        let style = if about.styles.contains(&Style::Queue) { Style::Queue } else { Style::Log };
        self.style_is_there(style)?;
        Ok(self.topology(style))
    }

    /// Of a test about streams of messages: by position where the system has that.
    pub(crate) fn stream(&mut self) -> Result<Topology, Problem> {
        let about = self.driver.about();
        let style = if about.styles.contains(&Style::Log) { Style::Log } else { Style::Queue };
        self.style_is_there(style)?;
        Ok(self.topology(style))
    }

    fn style_is_there(&self, style: Style) -> Result<(), Problem> {
        let about = self.driver.about();
        if about.styles.contains(&style) {
            return Ok(());
        }
        Err(Problem::Skipped(format!("{} has neither queues nor logs", about.title)))
    }

    pub(crate) fn needs_subscriptions(&self) -> Result<(), Problem> {
        let about = self.driver.about();
        match about.subscriptions {
            true => Ok(()),
            false => Err(Problem::Skipped(format!("{} has one subscription only", about.title))),
        }
    }

    /// Order by lane with several receivers, or with one.
    pub(crate) fn needs_lanes(&self) -> Result<Lanes, Problem> {
        let about = self.driver.about();
        match about.lanes {
            Lanes::Unordered => Err(Problem::Skipped(format!("{} promises no order", about.title))),
            lanes => Ok(lanes),
        }
    }

    pub(crate) fn needs_faults(&self) -> Result<Arc<dyn Faults>, Problem> {
        let why = "its nodes were not started by the suite, so they cannot be made to fail";
        self.faults.clone().ok_or_else(|| Problem::Skipped(why.to_owned()))
    }

    /// Carries the plan out and removes what it made.
    pub(crate) async fn load(&mut self, test: &str, plan: Plan) -> Result<Outcome, Problem> {
        #[cfg(test)]
        if let Some(rehearsed) = &mut self.rehearsed {
            rehearsed.push(crate::rehearsal::Rehearsed::of(test, &plan));
            return Ok(crate::rehearsal::outcome(&plan));
        }
        let mut made = vec![plan.topology.clone()];
        made.extend(plan.relay.as_ref().map(|relay| relay.from.clone()));
        let mut watched = vec![Watched::suite()];
        match &self.faults {
            Some(faults) => watched.extend(faults.watched()),
            None => watched.extend(self.watched.iter().cloned()),
        }
        let mut observer = (self.watch)(test);
        let driver = Arc::clone(&self.driver);
        let (recruiter, interrupt) = (Arc::clone(&self.recruiter), self.interrupt.clone());
        let ran = load::run(plan, driver, &*recruiter, watched, interrupt, observer.as_mut()).await;
        for topology in &made {
            if let Err(failure) = self.driver.remove(topology).await {
                tracing::warn!(%failure, "what the test made could not be removed");
            }
        }
        Ok(ran?)
    }

    /// Of a test of several loads, one of which ended before its time: there is nothing to show.
    pub(crate) fn whole(&self, outcome: &Outcome) -> Result<(), Problem> {
        match &outcome.interrupted {
            None => Ok(()),
            Some(_) if *self.interrupt.borrow() => Err(Problem::Interrupted),
            Some(why) => Err(Problem::Cut(why.clone())),
        }
    }
}
