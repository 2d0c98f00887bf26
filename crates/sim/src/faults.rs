//! Faults of a running node. Faults of single writes and syncs are injected by the disk itself.

use std::path::Path;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;
use world::{Disk, SimulatedDisk};

use crate::profile::{DiskFaults, Life};
use crate::workload::{Client, LifeEnded};

/// How long the disk is full.
const FULL_FOR: Duration = Duration::from_millis(700);

/// Sets the faults of a life that the disk injects itself.
pub fn arm(disk: &SimulatedDisk, life: &Life) {
    let DiskFaults { of, sync_fails, write_fails, .. } = life.disk;
    if let Some(before) = sync_fails {
        disk.fail_sync(of.path_part(), before);
    }
    if let Some(before) = write_fails {
        disk.fail_write(of.path_part(), before);
    }
    if let Some(changes) = life.after_changes {
        disk.cut_power_after(changes);
    }
}

/// Starts the other faults, each as a task that runs until it is dropped.
pub fn start(
    tasks: &mut JoinSet<LifeEnded>,
    client: &mut Client,
    disk: &SimulatedDisk,
    life: &Life,
) {
    if let Some(every) = life.elections_every {
        tasks.spawn(elect(client.fork(), every));
    }
    if let Some(every) = life.clock_steps_every {
        tasks.spawn(step_the_clock(client.fork(), every));
    }
    if let Some(every) = life.disk.full_every {
        tasks.spawn(fill(client.fork(), disk.clone(), every));
    }
}

async fn elect(client: Client, every: Duration) -> LifeEnded {
    loop {
        sleep(every).await;
        client.disturb(0);
        let elected = client.broker.reelect().await;
        client.disturb(0);
        client.trace.note(format_args!("elected anew: {elected:?}"));
        if elected.is_err() {
            return LifeEnded;
        }
    }
}

async fn step_the_clock(mut client: Client, every: Duration) -> LifeEnded {
    loop {
        sleep(every).await;
        let by_ms = client.random.of(&[-3_600_000, -60_000, -1_500, 1_500, 60_000, 3_600_000]);
        client.clock.step_ms(by_ms);
        client.disturb(0);
        client.trace.note(format_args!("the wall clock is set by {by_ms} ms"));
    }
}

async fn fill(client: Client, disk: SimulatedDisk, every: Duration) -> LifeEnded {
    loop {
        sleep(every).await;
        let Ok(space) = disk.space(Path::new("/")) else { return LifeEnded };
        let used_bytes = space.total_bytes - space.free_bytes;
        client.trace.note(format_args!("the disk is full with {used_bytes} bytes"));
        disk.set_capacity(Some(used_bytes));
        client.disturb(FULL_FOR.as_millis() as u64);
        sleep(FULL_FOR).await;
        disk.set_capacity(None);
        client.trace.note(format_args!("the disk has room"));
    }
}
