//! Final checks of a simulated cluster, once everything is healed.

use std::fmt::Write;
use std::time::Duration;

use base::PartitionId;
use base::limits::REPLICAS;
use broker::{Broker, ShardStatus};
use tokio::time::{Instant, sleep};

use super::Shared;
use super::clients::producers::{PARTITIONS, leader, topic};
use crate::random::Random;
use crate::reading;
use crate::verdict::Invariant;

/// Simulated time limit for a healed cluster to recover.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Checks that every node has every acknowledged record: each leads once, and is read.
pub(super) async fn judge(shared: &Shared, mut random: Random) {
    if let Err(why) = all_agree(shared, &mut random).await {
        return violated(shared, Invariant::Progress, why);
    }
    let members = shared.members();
    for _ in &members {
        if let Err(why) = read(shared, &mut random).await {
            return violated(shared, Invariant::Progress, why);
        }
        for place in &members {
            if let Some(broker) = shared.broker(*place) {
                broker.hand_over().await;
            }
        }
    }
}

pub(super) fn violated(shared: &Shared, invariant: Invariant, what: String) {
    let verdict = shared.lock().verdict.clone();
    verdict.violated(invariant, what);
}

/// Waits until all nodes are open and have the same content of every partition.
async fn all_agree(shared: &Shared, random: &mut Random) -> Result<(), String> {
    let deadline = Instant::now() + PATIENCE;
    let topic = topic(shared, random).await;
    let members = shared.members();
    loop {
        let brokers: Vec<Broker> =
            members.iter().filter_map(|place| shared.broker(*place)).collect();
        let led = |broker: &Broker| {
            let leaders = broker.leaders(topic);
            (0..PARTITIONS).all(|index| leaders.of(index).node.is_some())
        };
        let same = (0..PARTITIONS).all(|index| has_same(&brokers, PartitionId::new(topic, index)));
        if brokers.len() == members.len() && same && brokers.iter().all(led) {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(format!("nodes do not agree: {}", standing(&brokers)));
        }
        drop(brokers);
        sleep(LOOK_EVERY).await;
    }
}

/// Whether all replicas of a partition have the same content.
fn has_same(brokers: &[Broker], partition: PartitionId) -> bool {
    let has = |broker: &&Broker| broker.is_member(broker.shard_with(partition));
    let bounds: Vec<_> =
        brokers.iter().filter(has).map(|broker| broker.bounds(partition)).collect();
    bounds.len() >= REPLICAS && bounds.windows(2).all(|two| two[0] == two[1])
}

/// The term and log end of each shard on each node.
fn standing(brokers: &[Broker]) -> String {
    let mut told = String::new();
    for broker in brokers {
        let _ = write!(told, "node {}", broker.node());
        for ShardStatus { shard, term, log_end, catching_up, .. } in broker.shard_statuses() {
            let _ = write!(told, ", {shard} term {term} log to {log_end} without {catching_up:?}");
        }
        told.push_str("; ");
    }
    told
}

/// Reads every partition at its leader.
async fn read(shared: &Shared, random: &mut Random) -> Result<(), String> {
    let deadline = Instant::now() + PATIENCE;
    let topic = topic(shared, random).await;
    for index in 0..PARTITIONS {
        let partition = PartitionId::new(topic, index);
        let found = loop {
            let found = match leader(shared, random, partition) {
                Some(broker) => reading::sent_in(&broker, partition).await,
                None => Err("nobody leads it".to_owned()),
            };
            match found {
                Ok(found) => break found,
                Err(why) if Instant::now() > deadline => {
                    return Err(format!("partition {index} cannot be read: {why}"));
                }
                Err(_) => sleep(LOOK_EVERY).await,
            }
        };
        let checked = shared.lock().history.check(index, &found);
        if let Err(violation) = checked {
            violated(shared, Invariant::from(&violation), violation.to_string());
        }
    }
    Ok(())
}
