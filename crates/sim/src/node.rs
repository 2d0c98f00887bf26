//! A node in a simulated world.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use broker::{Broker, BrokerOptions, OpenError};
use tasks::Task;
use world::{Net, RuntimeClock, SeededEntropy, SimulatedDisk, Workers, World};

use crate::checkers::Observations;
use crate::disk::TracedDisk;
use crate::profile::Life;
use crate::random::Random;
use crate::trace::Trace;

const DIR: &str = "/data";

/// The world of a node: the seed fixes its random numbers, and the duration of its blocking work.
pub fn world(
    (disk, node): (&SimulatedDisk, &'static str),
    clock: &Arc<RuntimeClock>,
    life: &Life,
    (trace, knowledge): (&Trace, &Observations),
    random: &mut Random,
) -> World {
    World {
        disk: Arc::new(TracedDisk::new(disk.clone(), trace.clone(), node)),
        clock: Arc::clone(clock) as _,
        entropy: Arc::new(SeededEntropy::new(random.number())),
        net: Net::Simulated,
        workers: Workers::Tasks(Arc::new(durations(
            life,
            (trace.clone(), knowledge.clone()),
            random.fork(),
        ))),
    }
}

/// Durations of blocking work. Timers count milliseconds: most of it takes none, and other tasks run in between
/// nevertheless.
fn durations(
    life: &Life,
    (trace, knowledge): (Trace, Observations),
    random: Random,
) -> impl Fn(Task) -> Duration + Send + Sync + use<> {
    let (slow, hangs) = (life.disk.slow_once_in, life.disk.hangs_once_in);
    let random = Mutex::new(random);
    let faults_over = knowledge.clone();
    let takes = move |ms| {
        knowledge.lock().calm.disturb(trace.now_ms() + ms);
        Duration::from_millis(ms)
    };
    move |task| {
        let mut random = random.lock().unwrap_or_else(PoisonError::into_inner);
        let is_writer = task == Task::JournalWriter && !faults_over.lock().is_healed;
        if is_writer && hangs.is_some_and(|times| random.once_in(times)) {
            return takes(10_000);
        }
        let is_slow = is_writer && faults_over.lock().is_slow;
        if is_slow || is_writer && slow.is_some_and(|times| random.once_in(times)) {
            return takes(random.between(50, 1_000));
        }
        match random.below(4) {
            0 | 1 => Duration::ZERO,
            2 => Duration::from_millis(1),
            _ => Duration::from_millis(random.between(1, 5)),
        }
    }
}

/// Opens it with this number of shards with records, or with its own number if that is larger.
pub async fn open(world: World, life: &Life, shards: u32) -> Result<Broker, OpenError> {
    let options = BrokerOptions {
        shards: Some(shards),
        journal: life.limits.journal.clone(),
        housekeeping_interval: life.limits.housekeeping_interval,
        ..BrokerOptions::default()
    };
    Broker::open(world, Path::new(DIR), options).await
}
