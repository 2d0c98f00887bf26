//! Work queues in addition to the partitions: AMQP clients publish and consume, each on a connection to any of the
//! nodes. A client whose node fails continues at another one.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::Scope;
use std::time::{Duration, Instant};

use super::super::leases::load::{dead_letters, declare, depths};
use super::super::leases::workers::{self, PATIENCE, Stage, WorkerEnd};
use crate::failure::{Failure, Outcome};
use crate::random::Random;
use crate::server::Postroad;
use histories::leases::{Ledger, Tally, Violation};

const PARTITIONS: usize = 2;
const PRODUCERS: usize = 2;
/// Number of consumers that settle in transactions, and of consumers that acknowledge.
const CONSUMERS: usize = 3;
const AGAIN_AFTER: Duration = Duration::from_millis(10);
const LOOK_EVERY: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) struct Jobs {
    stage: Stage,
    findings: Mutex<Vec<String>>,
    /// Connections that their client did not close.
    broken: AtomicU64,
}

impl Jobs {
    pub(super) fn new(
        kafka: SocketAddr,
        amqp: Vec<SocketAddr>,
        queues: usize,
        bytes: usize,
    ) -> Jobs {
        let queues = (0..queues).map(|number| format!("jobs-{number}")).collect();
        let stage = Stage::new(kafka, amqp, queues, PARTITIONS, bytes, PRODUCERS);
        *stage.ledger() = Ledger::for_cluster(PRODUCERS);
        Jobs { stage, findings: Mutex::default(), broken: AtomicU64::new(0) }
    }

    pub(super) fn declare(&self, postroad: &Postroad) -> Outcome {
        declare(postroad, &self.stage.queues, PARTITIONS)
    }

    /// Starts the workers, each in a thread of its own, until [`Self::stop`].
    pub(super) fn work<'s, 'e>(&'e self, scope: &'s Scope<'s, 'e>, seed: u64, produces: bool) {
        self.stage.begin(produces);
        let worker = move |number: u32, work: fn(&Stage, u32, Random) -> Result<(), WorkerEnd>| {
            scope.spawn(move || {
                self.run_worker(number, Random::new(seed + u64::from(number)), work)
            });
        };
        for number in 0..if produces { PRODUCERS as u32 } else { 0 } {
            worker(number, workers::publish_messages);
        }
        for number in 0..CONSUMERS as u32 {
            worker(PRODUCERS as u32 + number, |stage, _, random| {
                workers::consume_transactions(stage, random)
            });
            worker((PRODUCERS + CONSUMERS) as u32 + number, |stage, _, random| {
                workers::consume_acknowledging(stage, random)
            });
        }
    }

    pub(super) fn stop(&self) {
        self.stage.stop();
    }

    /// Runs a worker, at another node whenever the connection ends.
    fn run_worker(
        &self,
        number: u32,
        mut random: Random,
        work: fn(&Stage, u32, Random) -> Result<(), WorkerEnd>,
    ) {
        while self.stage.produces() || self.stage.consumes() {
            match work(&self.stage, number, Random::new(random.next())) {
                Ok(()) => {}
                Err(WorkerEnd::Violated(violation)) => {
                    let found = violated(violation).to_string();
                    return self.findings.lock().expect("no worker panics").push(found);
                }
                Err(WorkerEnd::Failed(_)) => {
                    self.broken.fetch_add(1, Ordering::Relaxed);
                    std::thread::sleep(AGAIN_AFTER);
                }
            }
        }
    }

    /// Call before the node at this place fails. Returns the number of messages that consumers of the other nodes
    /// hold.
    pub(super) fn node_fails(&self, place: usize) -> usize {
        self.stage.node_fails(place);
        self.stage.ledger().in_flight()
    }

    /// Call before a paused node continues.
    pub(super) fn node_resumes(&self, place: usize) {
        self.stage.node_resumes(place);
    }

    pub(super) fn check(&self) -> Outcome {
        match self.findings.lock().expect("no worker panics").first() {
            Some(found) => Err(Failure::new(found.clone())),
            None => Ok(()),
        }
    }

    /// Consumes until all queues are empty, and checks that no confirmed message is lost.
    pub(super) fn empty(&self, postroad: &Postroad, seed: u64) -> Outcome {
        let emptied = std::thread::scope(|scope| {
            self.work(scope, seed, false);
            let emptied = self.wait_until_empty(postroad);
            self.stop();
            emptied
        });
        self.check()?;
        emptied?;
        self.stage.ledger().check_empty().map_err(violated)
    }

    fn wait_until_empty(&self, postroad: &Postroad) -> Outcome {
        let (mut before, mut moved) = (None, Instant::now());
        loop {
            self.check()?;
            let depths = depths(postroad, &self.stage.queues)?;
            if depths.values().all(|depth| *depth == 0) {
                return Ok(());
            }
            if before.as_ref() != Some(&depths) {
                (before, moved) = (Some(depths), Instant::now());
            } else if moved.elapsed() > PATIENCE {
                let what = "VIOLATION: messages wait and do not come to their consumers";
                return Err(Failure::new(format!("{what} for {PATIENCE:?}: {before:?}")));
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Checks that each rejected message is a dead letter once, and that no other message is.
    pub(super) fn check_dead(&self, nodes: &[SocketAddr]) -> Outcome<usize> {
        let dead = dead_letters(nodes)?;
        self.stage.ledger().check_dead(&dead).map_err(violated)?;
        Ok(dead.len())
    }

    pub(super) fn tally(&self) -> Tally {
        self.stage.ledger().tally
    }

    pub(super) fn broken(&self) -> u64 {
        self.broken.load(Ordering::Relaxed)
    }
}

fn violated(violation: Violation) -> Failure {
    Failure::new(format!("VIOLATION: {violation}"))
}
