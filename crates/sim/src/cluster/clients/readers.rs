//! Clients of a simulated cluster that read a log while it is written and its disks are damaged: at any node's
//! replica, or at the leader.

use std::time::Duration;

use base::PartitionId;
use tokio::time::{sleep, timeout};

use super::producers::{PARTITIONS, topic};
use crate::cluster::Shared;
use crate::random::Random;
use crate::reading::{own_bytes, sent_of_batches};
use crate::verdict::Invariant;

const ANSWERED_WITHIN: Duration = Duration::from_secs(8);
const BYTES: usize = 64 << 10;

/// Reads at random nodes until everything is healed. A failed read is retried; a successful one must return the
/// sent records.
pub(crate) async fn read(shared: Shared, mut random: Random) {
    let topic = topic(&shared, &mut random).await;
    while !shared.lock().is_healed {
        let pause = random.between(1, 60);
        sleep(Duration::from_millis(pause)).await;
        let partition = PartitionId::new(topic, random.below(PARTITIONS.into()) as u32);
        let Some(broker) = shared.any_broker(&mut random) else { continue };
        let Some(bounds) = broker.bounds(partition).filter(|it| it.log_start < it.end) else {
            continue;
        };
        let offset = random.between(bounds.log_start, bounds.end - 1);
        let read = broker.read_known_batches(partition, offset, BYTES);
        let Ok(Ok(batches)) = timeout(ANSWERED_WITHIN, read).await else { continue };
        drop(broker);
        let state = shared.lock();
        for bytes in batches.iter().filter_map(Result::ok).map(own_bytes) {
            match sent_of_batches(&bytes) {
                Ok(found) => {
                    if let Err(violation) = state.history.check_some(partition.index, &found) {
                        let invariant = Invariant::from(&violation);
                        state.verdict.violated(invariant, violation.to_string());
                    }
                }
                Err(why) => {
                    let what = format!("what is read of {partition} at {offset} is wrong: {why}");
                    state.verdict.violated(Invariant::Durable, what);
                }
            }
        }
    }
}
