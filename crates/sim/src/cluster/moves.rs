//! An operator that moves partitions from shard to shard all the time, and cancels some of the moves, at any
//! available node. The last requested placement has to be reached once everything is healed.

use std::time::Duration;

use base::{PartitionId, ShardId};
use tokio::time::{Instant, sleep, timeout};

use super::Shared;
use super::clients::producers::{PARTITIONS, topic};
use super::clients::resender;
use crate::random::Random;

const ANSWERED_WITHIN: Duration = Duration::from_secs(8);
/// Simulated time limit for a healed cluster to complete its moves.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(50);

pub(super) async fn move_about(shared: Shared, mut random: Random) {
    let log = topic(&shared, &mut random).await;
    let jobs = resender::topic(&shared, &mut random).await;
    let often = random.of(&[100, 400, 2_000]);
    while !shared.lock().is_healed {
        let pause = random.between(10, often);
        sleep(Duration::from_millis(pause)).await;
        let Some(broker) = shared.any_broker(&mut random) else { continue };
        let shards = u64::from(shared.lock().shards);
        let to = ShardId(1 + random.below(shards) as u32);
        let (topic, count) = match random.once_in(3) {
            true => (jobs, resender::PARTITIONS),
            false => (log, PARTITIONS),
        };
        let first = random.below(count.into()) as u32;
        let partitions: Vec<u32> = (first..count).take(1 + random.below(3) as usize).collect();
        let is_cancelled = random.once_in(5);
        let asked = async {
            match is_cancelled {
                true => broker.cancel_moves(topic, partitions.clone()).await,
                false => broker.move_partitions(topic, partitions.clone(), to).await,
            }
        };
        let answer = timeout(ANSWERED_WITHIN, asked).await;
        drop(broker);
        let trace = shared.lock().trace.clone();
        let what = if is_cancelled { "stay".to_owned() } else { format!("go to {to}") };
        trace.note(format_args!("partitions {partitions:?} are to {what}: {answer:?}"));
    }
}

/// Whether all partitions are at their last requested shard, as each node knows it.
pub(super) async fn are_done(shared: &Shared, random: &mut Random) -> Result<(), String> {
    let deadline = Instant::now() + PATIENCE;
    let topic = topic(shared, random).await;
    loop {
        let members = shared.members();
        let brokers: Vec<_> = members.iter().filter_map(|place| shared.broker(*place)).collect();
        let places = |broker: &broker::Broker| -> Vec<ShardId> {
            let at = |index| broker.shard_with(PartitionId::new(topic, index));
            (0..PARTITIONS).map(at).collect()
        };
        let of_all: Vec<_> = brokers.iter().map(places).collect();
        let same = of_all.windows(2).all(|two| two[0] == two[1]);
        let mut moving = Vec::new();
        for broker in &brokers {
            moving.push(broker.moves().await);
        }
        let nothing_moves = moving.iter().all(|moves| moves.as_ref().is_ok_and(Vec::is_empty));
        if brokers.len() == members.len() && same && nothing_moves {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(format!("partitions are at {of_all:?}, and move: {moving:?}"));
        }
        drop(brokers);
        sleep(LOOK_EVERY).await;
    }
}
