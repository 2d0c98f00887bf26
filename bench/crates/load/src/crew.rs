//! The workers of a load: tasks of this process, or agents on other machines. A session controls
//! them and fetches their progress.

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

/// Makes the workers of each load.
pub trait Recruiter: Send + Sync + Debug {
    fn crew(&self, plan: &Arc<Plan>, driver: &Arc<dyn Driver>) -> Result<Box<dyn Crew>, LoadError>;
}

/// Runs all senders and receivers in this process.
#[derive(Clone, Copy, Debug)]
pub struct InProcess;

impl Recruiter for InProcess {
    fn crew(&self, plan: &Arc<Plan>, driver: &Arc<dyn Driver>) -> Result<Box<dyn Crew>, LoadError> {
        Ok(Box::new(Tasks::all(Arc::clone(plan), Arc::clone(driver))?))
    }
}

/// The workers of one load. If dropped before its end, the load stops at once.
#[async_trait]
pub trait Crew: Send + Debug {
    /// Makes all connections. Receivers start if the phase has them running; senders do not start
    /// yet.
    async fn connect(&mut self, receivers: Receivers) -> Result<(), LoadError>;

    /// Starts all senders at one moment. It is the start of the load and has passed when this
    /// returns.
    async fn start(&mut self) -> Result<Instant, LoadError>;

    /// Returns the progress so far. `latencies`: includes latencies since the last such call.
    async fn look(&mut self, latencies: bool) -> Result<Progress, Gone>;

    async fn receivers(&mut self, receivers: Receivers) -> Result<(), Gone>;

    /// Allows unmarked redeliveries from here on.
    async fn disturb(&mut self) -> Result<(), Gone>;

    async fn stop_senders(&mut self) -> Result<(), Gone>;

    /// As of the last look: confirmed messages not yet received, counted once for each
    /// subscription.
    fn missing(&self) -> u64;

    /// Stops all workers, at once or after their current messages.
    async fn end(&mut self, at_once: bool) -> Ended;

    /// Outcome of every message. `complete`: all events are known, and nothing is in flight.
    fn audit(&self, complete: bool) -> Audit;

    fn burials(&self) -> Burials;

    /// Acknowledgements by sender, where the plan keeps them.
    fn acknowledged(&mut self) -> Vec<Vec<Acknowledged>> {
        Vec::new()
    }
}

/// A lost agent, and the reason.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("agent {agent}: {why}")]
pub struct Gone {
    /// Address of the agent.
    pub agent: String,
    pub why: String,
}

#[derive(Clone, PartialEq, Debug, Default)]
pub struct Progress {
    pub counts: Counts,
    /// Present where requested.
    pub latencies: Option<Interval>,
    /// At least one sender is still sending.
    pub sending: bool,
    /// At least one message has an unknown outcome.
    pub under_way: bool,
    /// A process was killed, a connection broke, or a message was left unsettled on purpose.
    pub disturbed: bool,
    /// Every sender has a confirmation for a message that it sent at this time or later.
    pub confirmed_to_all_ns: u64,
}

/// Final state of a load.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Ended {
    /// With the latencies since the last look.
    pub progress: Progress,
    pub errors: BTreeMap<String, u64>,
    /// Usage on other machines, which only they can measure.
    pub processes: Vec<Process>,
    pub agents: Vec<Agent>,
    /// The agent that was lost during the end; its remaining events are unknown.
    pub gone: Option<Gone>,
}
