//! Repeated power losses and `kill`, at moments and with effects that a seed decides.
//!
//! `SEEDS=1000 cargo test --release -p sim --test crash` runs this many; `SEED=17` repeats one.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use base::PartitionId;
use sim::history::History;
use sim::native::{self, PARTITIONS};
use sim::random::Random;
use tokio::time::timeout;
use world::SimulatedDisk;

const PRODUCERS: u32 = 3;
const CRASHES: u64 = 3;
const ENDS_WITHIN: Duration = Duration::from_secs(120);

#[derive(Clone, Copy)]
enum Crash {
    PowerLoss,
    Kill,
}

fn seeds() -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    match number("SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SEEDS").unwrap_or(60),
    }
}

#[test]
fn no_acknowledged_record_is_lost_by_power_loss() {
    every_seed(Crash::PowerLoss, "no_acknowledged_record_is_lost_by_power_loss");
}

#[test]
fn no_acknowledged_record_is_lost_by_a_killed_process() {
    every_seed(Crash::Kill, "no_acknowledged_record_is_lost_by_a_killed_process");
}

fn every_seed(crash: Crash, test: &str) {
    let mut acknowledged = 0;
    let seeds = seeds();
    for seed in seeds.clone() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime starts");
        let ran =
            runtime.block_on(async { timeout(ENDS_WITHIN, Box::pin(run(seed, crash))).await });
        match ran.unwrap_or_else(|_| Err(format!("it does not end within {ENDS_WITHIN:?}"))) {
            Ok(records) => acknowledged += records,
            Err(violation) => panic!(
                "seed {seed}: {violation}\nrepeat: SEED={seed} cargo test -p sim --test crash {test}"
            ),
        }
    }
    println!(
        "{} seeds, {CRASHES} crashes each, {acknowledged} acknowledged records, none lost",
        seeds.end - seeds.start
    );
    assert!(acknowledged > 0, "the runs never got to acknowledge anything");
}

async fn run(seed: u64, crash: Crash) -> Result<usize, String> {
    let mut random = Random::new(seed);
    let history = Arc::new(Mutex::new(History::default()));
    let mut numbers = [0_u32; PRODUCERS as usize];
    let mut disk = SimulatedDisk::new();
    for _ in 0..CRASHES {
        disk.cut_power_after(20 + random.below(600));
        write_until_it_dies(&disk, &history, &mut numbers, &mut random).await;
        disk = match crash {
            Crash::PowerLoss => disk.power_loss(random.number()),
            Crash::Kill => disk.killed(),
        };
        // Now and then the power fails again during recovery.
        if random.below(3) == 0 {
            disk.cut_power_after(random.below(40));
            if let Ok(broker) = native::open(&disk).await {
                broker.shutdown().await;
            }
            disk = disk.power_loss(random.number());
        }
        check(&disk, &history).await?;
    }
    let acknowledged = history.lock().expect("no holder panics").acknowledged();
    Ok(acknowledged)
}

async fn write_until_it_dies(
    disk: &SimulatedDisk,
    history: &Arc<Mutex<History>>,
    numbers: &mut [u32],
    random: &mut Random,
) {
    let Ok(broker) = native::open(disk).await else { return };
    if let Some(topic) = native::topic(&broker).await {
        let producers: Vec<_> = (0..PRODUCERS)
            .map(|producer| {
                tokio::spawn(native::produce(
                    broker.clone(),
                    topic,
                    Arc::clone(history),
                    producer,
                    numbers[producer as usize],
                    Random::new(random.number()),
                ))
            })
            .collect();
        for (producer, task) in producers.into_iter().enumerate() {
            numbers[producer] = task.await.expect("a producer does not panic");
        }
    }
    broker.shutdown().await;
}

async fn check(disk: &SimulatedDisk, history: &Mutex<History>) -> Result<(), String> {
    let broker = native::open(disk).await.map_err(|error| format!("it does not open: {error}"))?;
    let topic = native::topic(&broker).await.ok_or("the topic cannot be made")?;
    for partition in 0..PARTITIONS {
        let found = native::read_all(&broker, PartitionId::new(topic, partition)).await?;
        let history = history.lock().expect("no holder panics");
        history.check(partition, &found).map_err(|violation| violation.to_string())?;
    }
    broker.shutdown().await;
    Ok(())
}
