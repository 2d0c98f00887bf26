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

/// Length and size of a test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// A smoke test: a few seconds each.
    Quick,
    /// One machine, two minutes.
    Local,
    /// A cluster, as published.
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

/// Fault injection into nodes; only available for servers that the suite has started.
#[async_trait]
pub trait Faults: Send + Sync + std::fmt::Debug {
    /// Number of nodes; the first one is 1.
    fn nodes(&self) -> u32;
    /// `kill -9`. Returns once the node is gone, with the time of the signal.
    async fn kill(&self, node: u32) -> Result<Instant, String>;
    /// Stops the node as an administrator would (SIGTERM). Returns once it is gone, with the time
    /// of the signal.
    async fn stop(&self, node: u32) -> Result<Instant, String>;
    /// Suspends the node (SIGSTOP): its connections stay open, but nothing replies. Returns the
    /// time of the signal.
    async fn pause(&self, _node: u32) -> Result<Instant, String> {
        Err("nobody here can stop it where it is".to_owned())
    }
    /// Resumes a paused node.
    async fn resume(&self, _node: u32) -> Result<(), String> {
        Err("nobody here can stop it where it is".to_owned())
    }
    /// Starts the node. Returns once it serves again.
    async fn start(&self, node: u32) -> Result<(), String>;
    /// Restarts all nodes, without data, on a disk limited to this many bytes.
    async fn confine(&self, _bytes: u64) -> Result<(), String> {
        Err("nobody here can mount one".to_owned())
    }
    /// Restarts all nodes, without data, on a disk of at most this many bytes whose power can be
    /// cut.
    async fn put_on_own_disk(&self, _bytes: u64) -> Result<(), String> {
        Err("nobody here can mount one".to_owned())
    }
    /// Cuts the power of all nodes and of that disk at one instant.
    async fn cut_power(&self) -> Result<(), String> {
        Err("there is no disk whose power could be cut".to_owned())
    }
    /// Starts all nodes on the data that the disk has kept. Returns once they serve again.
    async fn start_all(&self) -> Result<(), String> {
        Err("there is no disk whose power could be cut".to_owned())
    }
    /// Enlarges the confined disk, and starts nodes that have ended.
    async fn enlarge(&self, _bytes: u64) -> Result<(), String> {
        Err("there is no small disk".to_owned())
    }
    /// Restarts all nodes, without data, on their original disk.
    async fn release(&self) -> Result<(), String> {
        Ok(())
    }
    /// Current processes of the servers.
    fn watched(&self) -> Vec<Watched>;
}

/// Reasons that there is no run.
#[derive(Debug, Error)]
pub enum Problem {
    /// The test needs a feature that this system lacks: neither a failure nor a result.
    #[error("does not apply: {0}")]
    Skipped(String),
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The servers are not in the state that the next test needs.
    #[error("its servers cannot be started anew: {0}")]
    Servers(String),
    #[error("interrupted")]
    Interrupted,
    /// Interrupted by the loss of an agent, not by the user.
    #[error("{0}")]
    Cut(String),
}

/// Creates the observer of each load.
pub type Watch = Box<dyn FnMut(&str) -> Box<dyn Observer> + Send>;

/// A system under test, and the test parameters.
pub struct Context {
    pub driver: Arc<dyn Driver>,
    /// Provides the workers of a load.
    pub recruiter: Arc<dyn Recruiter>,
    /// Version that the server reports.
    pub version: String,
    pub tier: Tier,
    pub form: Form,
    pub host: Host,
    /// Settings of server and client that differ from their defaults.
    pub settings: BTreeMap<String, String>,
    pub faults: Option<Arc<dyn Faults>>,
    /// Processes of servers that were not started here.
    pub watched: Vec<Watched>,
    pub replicas: u32,
    pub interrupt: watch::Receiver<bool>,
    pub watch: Watch,
    /// Version and commit of the suite.
    pub suite: String,
    /// Prefix of every name on the server.
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
    /// A context for this driver and tier, in this process, without faults and servers to watch.
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

    /// Result of a test that was [skipped](Problem::Skipped).
    pub fn not_supported(&self, test: &str, why: String) -> Run {
        judge::not_supported(self, test, why)
    }

    /// Selects one of three times by the form.
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

    /// Time limit from the start of a server to its first confirmation.
    pub(crate) fn back_within(&self) -> Duration {
        self.seconds(60, 60, 300)
    }

    /// Lease of messages in tests that kill servers. It bounds the wait for redelivery, and is
    /// longer than any receiver takes to settle.
    pub(crate) fn lease_of_the_killed(&self) -> Duration {
        self.seconds(5, 10, 10)
    }

    /// An empty topology with its own names.
    pub(crate) fn topology(&mut self, style: Style) -> Topology {
        self.loads += 1;
        let mut topology =
            Topology::new(&format!("{}-{}", self.prefix, self.loads), style, self.tier);
        topology.replicas = self.replicas;
        topology
    }

    /// Topology of a queue test: each message is settled.
    pub(crate) fn queue(&mut self) -> Result<Topology, Problem> {
        let about = self.driver.about();
        // Such systems only have logs; their own test harnesses settle by position, too.
        let style = if about.styles.contains(&Style::Queue) { Style::Queue } else { Style::Log };
        self.style_is_there(style)?;
        Ok(self.topology(style))
    }

    /// Topology of a stream test: read by position if the system supports it.
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

    /// Order guarantee by lane, with several receivers or with one.
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

    /// Carries the plan out and removes its objects.
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

    /// Fails a test of several loads if one of them ended early: there is no result.
    pub(crate) fn whole(&self, outcome: &Outcome) -> Result<(), Problem> {
        match &outcome.interrupted {
            None => Ok(()),
            Some(_) if *self.interrupt.borrow() => Err(Problem::Interrupted),
            Some(why) => Err(Problem::Cut(why.clone())),
        }
    }
}
