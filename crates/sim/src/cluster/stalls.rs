//! Writes while one leader is cut off from the other nodes, or its disk is full, in profile `stalls`. There are no
//! other faults. A node replies to each append soon, and for each partition some node soon accepts one.

use std::time::Duration;

use base::{PartitionId, TopicId};
use broker::AppendError;
use record::BatchOptions;
use tokio::time::{Instant, sleep, timeout};

use super::clients::producers;
use super::place::PlaceRequest;
use super::{Shared, chaos, disks};
use crate::random::Random;
use crate::verdict::Invariant;
use crate::workload::{RecordToSend, batch};

const TOPIC: &str = "stalls";
pub(super) const PARTITIONS: u32 = 6;
/// Time limit of the reply to an append at any node, also at a leader without a majority.
const ANSWERED_WITHIN: Duration = Duration::from_secs(4);
/// Time limit for another node to lead and accept an append.
const TAKEN_WITHIN: Duration = Duration::from_secs(8);
/// Longer than both.
const FAULT_LASTS: Duration = Duration::from_secs(12);
const PAUSE: Duration = Duration::from_secs(6);

/// Cuts a leader off or fills its disk, one after the other, until everything is healed.
pub(super) async fn disturb(shared: Shared, mut random: Random) {
    producers::topic(&shared, &mut random).await;
    loop {
        sleep(PAUSE).await;
        if shared.lock().is_healed {
            return;
        }
        let Some(place) = chaos::leading(&shared, &mut random) else { continue };
        match random.once_in(2) {
            true => {
                shared.lock().nodes[place].asked = Some(PlaceRequest::CutOff(FAULT_LASTS));
                sleep(FAULT_LASTS).await;
            }
            false => disks::fill(&shared, place, 0, FAULT_LASTS).await,
        }
    }
}

/// Appends to one partition, at one node after the other, until everything is healed. At random nodes a writer could meet
/// the one with the fault alone for all of [`TAKEN_WITHIN`].
pub(super) async fn write(index: u32, shared: Shared, mut random: Random) {
    let topic = producers::topic_named(TOPIC, PARTITIONS, &shared, &mut random).await;
    let mut taken: Option<Instant> = None;
    let mut turn = random.below(3) as usize;
    while !shared.lock().is_healed {
        turn += 1;
        if append(topic, index, turn, &shared).await {
            taken = Some(Instant::now());
        }
        if let Some(since) = taken.filter(|since| since.elapsed() > TAKEN_WITHIN) {
            let waited = since.elapsed();
            let what = format!("no node has taken a write of partition {index} for {waited:?}");
            return shared.lock().verdict.violated(Invariant::Progress, what);
        }
        let pause = random.between(20, 200);
        sleep(Duration::from_millis(pause)).await;
    }
}

/// Returns whether it was accepted.
async fn append(topic: TopicId, index: u32, turn: usize, shared: &Shared) -> bool {
    let members = shared.members();
    let Some(broker) = shared.broker(members[turn % members.len()]) else { return false };
    let partition = PartitionId::new(topic, index);
    let values = [RecordToSend { key: None, value: b"-".to_vec(), headers: Vec::new() }];
    let batch = batch(partition, BatchOptions::default(), broker.clock().now_ms(), &values);
    let (node, appended) = (broker.node(), broker.append_at_leaders(vec![batch]));
    drop(broker);
    let answer = timeout(ANSWERED_WITHIN, appended).await.map(|mut answers| answers.remove(0));
    let trace = shared.lock().trace.clone();
    trace.note(format_args!("a write of partition {index} at node {node}: {answer:?}"));
    match answer {
        Ok(Ok(_)) => true,
        Ok(Err(
            AppendError::Unavailable(_)
            | AppendError::UnknownPartition(_)
            | AppendError::StorageFull { .. },
        )) => false,
        Ok(Err(other)) => {
            let what = format!("a write of partition {index} is refused: {other}");
            shared.lock().verdict.violated(Invariant::Alive, what);
            false
        }
        Err(_) => {
            let what = format!(
                "node {node} has not answered a write of partition {index} for {ANSWERED_WITHIN:?}"
            );
            shared.lock().verdict.violated(Invariant::Progress, what);
            false
        }
    }
}
