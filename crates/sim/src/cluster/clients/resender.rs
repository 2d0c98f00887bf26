//! A client of a simulated cluster that sends jobs with ids (`dedup.window.ms`), each of them repeatedly, while
//! their records are deleted. A repetition of an acknowledged job returns its position, whatever failed meanwhile.

use std::time::Duration;

use base::{PartitionId, TopicId, headers};
use broker::AppendError;
use record::BatchOptions;
use tokio::time::{sleep, timeout};

use super::producers::topic_with;
use crate::cluster::Shared;
use crate::random::Random;
use crate::verdict::Invariant;
use crate::workload::{RecordToSend, batch};

const TOPIC: &str = "jobs-once";
pub(crate) const PARTITIONS: u32 = 2;
const ANSWERED_WITHIN: Duration = Duration::from_secs(8);
/// Longer than any clock step: clocks that are set forward by hours end no window.
const WINDOW_MS: &str = "315360000000";

/// The topic, which is created if absent.
pub(crate) async fn topic(shared: &Shared, random: &mut Random) -> TopicId {
    let config = [("dedup.window.ms", WINDOW_MS), ("retention.ms", "-1")];
    topic_with(TOPIC, PARTITIONS, &config, shared, random).await
}

/// Sends until everything is healed.
pub(crate) async fn send_again(shared: Shared, mut random: Random) {
    let topic = topic(&shared, &mut random).await;
    // The offsets of acknowledged jobs, by their numbers.
    let mut known: Vec<u64> = Vec::new();
    while !shared.lock().is_healed {
        let is_new = known.is_empty() || random.once_in(3);
        let number = if is_new { known.len() } else { random.below(known.len() as u64) as usize };
        let partition = PartitionId::new(topic, number as u32 % PARTITIONS);
        let Some((offset, is_copy)) = send(&shared, &mut random, partition, number).await else {
            return;
        };
        if is_new {
            known.push(offset);
        } else if known[number] != offset || !is_copy {
            let what = format!(
                "job {number} is at {} in {partition}, and sent again is taken at {offset} (copy: {is_copy})",
                known[number]
            );
            shared.lock().verdict.violated(Invariant::Recognised, what);
        }
        if random.once_in(4)
            && let Some(broker) = shared.any_broker(&mut random)
        {
            let deleting = broker.shards();
            let _ =
                timeout(ANSWERED_WITHIN, deleting.advance_starts(vec![(partition, offset)])).await;
        }
        let pause = random.between(0, 60);
        sleep(Duration::from_millis(pause)).await;
    }
}

/// Sends a job until it is answered: its offset, and whether it was a duplicate. `None`: everything is healed by
/// then.
async fn send(
    shared: &Shared,
    random: &mut Random,
    partition: PartitionId,
    number: usize,
) -> Option<(u64, bool)> {
    let id = format!("job {number}");
    while !shared.lock().is_healed {
        let pause = random.between(5, 100);
        if let Some(broker) = shared.any_broker(random) {
            let headers = vec![(headers::ID, id.clone())];
            let job = RecordToSend { key: None, value: id.clone().into_bytes(), headers };
            let now_ms = broker.clock().now_ms();
            let batches = vec![batch(partition, BatchOptions::default(), now_ms, &[job])];
            let appended = match random.once_in(2) {
                true => broker.append_at_leaders(batches),
                false => broker.append(batches),
            };
            drop(broker);
            let answer = timeout(ANSWERED_WITHIN, appended).await.map(|mut it| it.remove(0));
            let trace = shared.lock().trace.clone();
            trace.note(format_args!("{id} is sent to {partition}: {answer:?}"));
            match answer {
                Ok(Ok(appended)) => return Some((appended.base_offset, appended.duplicate)),
                Err(_)
                | Ok(Err(
                    AppendError::Unavailable(_)
                    | AppendError::Moving(_)
                    | AppendError::UnknownPartition(_)
                    | AppendError::RefusedBefore
                    | AppendError::StorageFull { .. },
                )) => {}
                Ok(Err(other)) => {
                    let what = format!("{id} is refused: {other}");
                    shared.lock().verdict.violated(Invariant::Alive, what);
                }
            }
        }
        sleep(Duration::from_millis(pause)).await;
    }
    None
}
