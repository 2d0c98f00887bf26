//! Those who send and receive: tasks of this process, or agents on other machines. A session tells
//! them when, and asks them what happened.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use driver::Driver;
use results::{Agent, Audit, Process};
use thiserror::Error;

use crate::burial::Burials;
use crate::ledger::Acknowledged;
use crate::plan::{Plan, Receivers};
use crate::recorder::{Counts, Interval};
use crate::session::LoadError;
use crate::tasks::Tasks;

/// Makes a crew for each load.
pub trait Recruiter: Send + Sync + Debug {
    fn crew(&self, plan: &Arc<Plan>, driver: &Arc<dyn Driver>) -> Result<Box<dyn Crew>, LoadError>;
}

/// Whoever sends and receives does so in this process.
#[derive(Clone, Copy, Debug)]
pub struct InProcess;

impl Recruiter for InProcess {
    fn crew(&self, plan: &Arc<Plan>, driver: &Arc<dyn Driver>) -> Result<Box<dyn Crew>, LoadError> {
        Ok(Box::new(Tasks::all(Arc::clone(plan), Arc::clone(driver))?))
    }
}

/// Dropped before its end, it stops at once.
#[async_trait]
pub trait Crew: Send + Debug {
    /// Makes all connections. Receivers begin, if they are to run; senders do not yet.
    async fn connect(&mut self, receivers: Receivers) -> Result<(), LoadError>;

    /// Lets the senders begin, all at one moment, which is the start of the load and is past when
    /// this returns.
    async fn start(&mut self) -> Result<Instant, LoadError>;

    /// What happened so far. `latencies`: with those since they were last asked for.
    async fn look(&mut self, latencies: bool) -> Result<Progress, Gone>;

    async fn receivers(&mut self, receivers: Receivers) -> Result<(), Gone>;

    /// From here on a message may come twice without a mark.
    async fn disturb(&mut self) -> Result<(), Gone>;

    async fn stop_senders(&mut self) -> Result<(), Gone>;

    /// As of the last look: confirmed messages that not every subscription has received, counted
    /// once for each.
    fn missing(&self) -> u64;

    /// Stops everybody, at once or once what they have in hand is done.
    async fn end(&mut self, at_once: bool) -> Ended;

    /// What became of every message. `complete`: everything is known, and nothing is still on its
    /// way.
    fn audit(&self, complete: bool) -> Audit;

    fn burials(&self) -> Burials;

    /// By sender, where the plan keeps them.
    fn acknowledged(&mut self) -> Vec<Vec<Acknowledged>> {
        Vec::new()
    }
}

/// One of the crew is lost, and what it did with it.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("agent {agent}: {why}")]
pub struct Gone {
    /// Its address.
    pub agent: String,
    pub why: String,
}

#[derive(Clone, PartialEq, Debug, Default)]
pub struct Progress {
    pub counts: Counts,
    /// Where they were asked for.
    pub latencies: Option<Interval>,
    /// Somebody still sends.
    pub sending: bool,
    /// Somebody still waits for what becomes of a message that was sent.
    pub under_way: bool,
    /// Something was killed, a connection broke, or a message was left unsettled on purpose.
    pub disturbed: bool,
    /// Each sender has been told that something is safe that it sent at this time or later.
    pub confirmed_to_all_ns: u64,
}

/// What is known when all is over.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Ended {
    /// With the latencies since they were last asked for.
    pub progress: Progress,
    pub errors: BTreeMap<String, u64>,
    /// Of other machines; nobody else can watch them.
    pub processes: Vec<Process>,
    pub agents: Vec<Agent>,
    /// Lost while it ended: what it had not told yet is not known.
    pub gone: Option<Gone>,
}
