//! Workloads: clients that use the cluster while faults are injected, and record its replies.
//!
//! Each runs until the target stops, and checks its history once the cluster is whole again.

mod append;
mod catalog;
mod conditional;
mod offsets;
mod queue;
mod share;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::target::WorkloadContext;
use crate::failure::{Failure, Outcome};

pub(super) use append::Progress;

/// Result of a workload.
#[derive(Debug, Default)]
pub(super) struct WorkloadResult {
    pub(super) violations: Vec<String>,
    /// Counts for the report.
    pub(super) counts: BTreeMap<&'static str, u64>,
    /// Moments of acknowledged writes, a list for each writer, in milliseconds since the run began.
    pub(super) writes: Vec<Vec<u64>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(super) enum Workload {
    /// Idempotent producers; every acknowledged record is read at its offset, in order, once
    Append,
    /// Committed offsets and ends of partitions, which only rise, read at all nodes
    Offsets,
    /// AMQP queues: confirms, acknowledgements, rejects and dead letters
    Queue,
    /// A share group that accepts records one by one
    Share,
    /// Queues and topics that are declared and deleted at all nodes
    Catalog,
    /// Conditional changes of a topic over HTTP
    Conditional,
}

/// Declares the objects of the workloads.
pub(super) fn prepare(target: &WorkloadContext, workloads: &[Workload]) -> Outcome {
    for workload in workloads {
        match workload {
            // Offsets are committed for the topic of the append workload.
            Workload::Append | Workload::Offsets => append::prepare(target)?,
            Workload::Queue => queue::prepare(target)?,
            Workload::Share => share::prepare(target)?,
            Workload::Catalog => catalog::prepare(target)?,
            Workload::Conditional => conditional::prepare(target)?,
        }
    }
    Ok(())
}

/// A running workload. Its check waits for its clients, then reads the final state.
pub(super) struct RunningWorkload(Finish);

/// Waits for the end of a workload, and returns what its checkers found.
type Finish = Box<dyn FnOnce(&WorkloadContext) -> Outcome<WorkloadResult> + Send>;

impl RunningWorkload {
    pub(super) fn check(self, target: &WorkloadContext) -> Outcome<WorkloadResult> {
        (self.0)(target)
    }
}

/// `isolates`: nodes are paused or cut off from the others, while clients reach them.
pub(super) fn start(
    workload: Workload,
    target: &WorkloadContext,
    progress: &Arc<Progress>,
    seed: u64,
    isolates: bool,
) -> RunningWorkload {
    RunningWorkload(match workload {
        Workload::Append => append::start(target, progress, seed),
        Workload::Offsets => offsets::start(target, progress, seed),
        Workload::Queue => queue::start(target, seed, isolates),
        Workload::Share => share::start(target, seed),
        Workload::Catalog => catalog::start(target, seed),
        Workload::Conditional => conditional::start(target, seed),
    })
}

type Check = Box<dyn FnOnce(&WorkloadContext) -> Outcome<WorkloadResult> + Send>;

fn joined<T>(thread: std::thread::JoinHandle<T>) -> Outcome<T> {
    thread.join().map_err(|_| Failure::new("a client of the fault test panicked"))
}
