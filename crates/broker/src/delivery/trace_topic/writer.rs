//! Writes steps to their topic, which is created by the first write.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base::topics::TRACE;
use base::{Offset, PartitionId};
use dispatch::SessionId;
use record::{BatchBuilder, BatchOptions, Compression};
use shard::append::AppendBatch;
use shard::delivery::history::SessionUser;
use shard::delivery::trace_queue::{TraceQueueItem, TracedStep, is_in_share};
use shard::limits::HISTORY_SESSIONS_KEPT;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::trace_record::{TraceRecord, key};
use crate::broker::{Broker, WeakBroker};
use crate::limits::{
    TRACED_BATCH_BYTES, TRACED_KEPT_BYTES, TRACED_KEPT_MS, TRACED_RUNS_OF_STEP_MAX,
    TRACED_STEPS_AT_ONCE_MAX, TRACED_STEPS_WRITTEN_EVERY, TRACED_TRIES_MAX,
};

/// Delay before a failed write is retried.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Writes until the broker is gone.
pub(super) async fn run(broker: WeakBroker, mut queued: mpsc::Receiver<TraceQueueItem>) {
    let mut known = BTreeMap::new();
    while let Some(first) = queued.recv().await {
        // More steps arrive meanwhile, and go into the same request to the log.
        if matches!(first, TraceQueueItem::Step(_)) {
            sleep(TRACED_STEPS_WRITTEN_EVERY).await;
        }
        let (mut steps, mut flushed) = (Vec::new(), Vec::new());
        let mut next = Some(first);
        while let Some(one) = next {
            match one {
                TraceQueueItem::Step(step) => steps.push(*step),
                TraceQueueItem::Flush(done) => flushed.push(done),
            }
            let is_enough = steps.len() >= TRACED_STEPS_AT_ONCE_MAX;
            next = if is_enough { None } else { queued.try_recv().ok() };
        }
        if !steps.is_empty() {
            for tried in 1.. {
                let Some(broker) = broker.upgrade() else { return };
                let feed = broker.trace_feed().clone();
                let result = write(&broker, &steps, &mut known).await;
                drop(broker);
                match result {
                    Ok(count) => {
                        feed.note_written(count);
                        break;
                    }
                    Err(error) if tried < TRACED_TRIES_MAX => {
                        tracing::debug!(error, "steps of records cannot be written, trying again");
                        sleep(RETRY_DELAY).await;
                    }
                    Err(error) => {
                        tracing::warn!(
                            error,
                            steps = steps.len(),
                            "steps of records were not written"
                        );
                        feed.drop_steps(steps.len() as u64);
                        break;
                    }
                }
            }
        }
        for done in flushed {
            // The requester may be gone.
            let _ = done.send(());
        }
    }
}

/// Returns the number of records written.
async fn write(
    broker: &Broker,
    steps: &[TracedStep],
    known: &mut BTreeMap<SessionId, SessionUser>,
) -> Result<u64, String> {
    let topic = broker.internal_topic_partition(TRACE, TRACED_KEPT_MS, TRACED_KEPT_BYTES).await;
    let topic = topic.map_err(|error| error.to_string())?;
    learn(broker, steps, known).await;
    let options = BatchOptions { compression: Compression::Zstd, ..BatchOptions::default() };
    let (mut batches, mut builder) = (Vec::new(), BatchBuilder::new(options));
    let (mut count, mut bytes, mut passed_over) = (0, 0, 0);
    for traced in steps {
        let (runs, is_all) = runs(traced);
        passed_over += u64::from(!is_all);
        let user = known.get(&traced.step.session);
        let key = key(PartitionId::new(traced.topic, traced.step.partition));
        for run in runs {
            let written = TraceRecord::of(traced, run, broker.node(), user);
            let value = serde_json::to_vec(&written).map_err(|error| error.to_string())?;
            if bytes + value.len() > TRACED_BATCH_BYTES && bytes > 0 {
                let full = std::mem::replace(&mut builder, BatchBuilder::new(options));
                batches.push(AppendBatch::made(topic, full, false));
                bytes = 0;
            }
            let pushed = builder.push(traced.at_ms, Some(key.as_bytes()), Some(&value), &[]);
            pushed.map_err(|error| error.to_string())?;
            bytes += value.len();
            count += 1;
        }
    }
    if bytes > 0 {
        batches.push(AppendBatch::made(topic, builder, false));
    }
    if batches.is_empty() {
        return Ok(0);
    }
    for appended in broker.append_at_leaders(batches).await {
        appended.map_err(|error| error.to_string())?;
    }
    broker.trace_feed().drop_steps(passed_over);
    Ok(count)
}

/// The traced records of a step, as ranges; and whether these are all of the topic's share.
fn runs(traced: &TracedStep) -> (Vec<(Offset, u32)>, bool) {
    let (first, count) = (traced.step.first, traced.step.count);
    let partition = PartitionId::new(traced.topic, traced.step.partition);
    let is_kept = |offset| is_in_share(traced.per_million, partition, offset);
    if traced.per_million >= 1_000_000 {
        return (vec![(first, count)], true);
    }
    let mut runs: Vec<(Offset, u32)> = Vec::new();
    // A purge may have millions of records, of which even a share is many.
    let looked_at = count.min(TRACED_RUNS_OF_STEP_MAX as u32 * 1_000);
    for offset in first..first.saturating_add(looked_at.into()) {
        if !is_kept(offset) {
            continue;
        }
        let is_full = runs.len() == TRACED_RUNS_OF_STEP_MAX;
        match runs.last_mut() {
            Some((begin, length)) if *begin + u64::from(*length) == offset => *length += 1,
            _ if is_full => return (runs, false),
            _ => runs.push((offset, 1)),
        }
    }
    (runs, looked_at == count)
}

/// Queries the nodes of sessions for users that are not known yet.
async fn learn(
    broker: &Broker,
    steps: &[TracedStep],
    known: &mut BTreeMap<SessionId, SessionUser>,
) {
    let mut unknown: BTreeMap<_, BTreeSet<SessionId>> = BTreeMap::new();
    for TracedStep { topic, step, .. } in steps {
        if step.session != 0 && !known.contains_key(&step.session) {
            let shard = broker.shard_with(PartitionId::new(*topic, step.partition));
            unknown.entry(shard).or_default().insert(step.session);
        }
    }
    for (shard, sessions) in unknown {
        let users = broker.users_of(shard, sessions).await;
        if known.len() + users.len() > HISTORY_SESSIONS_KEPT {
            known.clear();
        }
        known.extend(users);
    }
}

#[cfg(test)]
mod tests {
    use base::{LeaseGroupId, TopicId};
    use dispatch::{Step, StepKind};

    use super::*;

    fn traced(per_million: u32, count: u32) -> TracedStep {
        TracedStep {
            at_ms: 7,
            topic: TopicId(1),
            topic_name: "t".into(),
            group: LeaseGroupId(1),
            group_name: "g".into(),
            per_million,
            step: Step {
                what: StepKind::Removed,
                partition: 0,
                first: 10,
                count,
                session: 0,
                attempt: 0,
            },
        }
    }

    #[test]
    fn only_records_in_the_share_are_written_of_a_step() {
        assert_eq!(runs(&traced(1_000_000, 5_000_000)), (vec![(10, 5_000_000)], true));
        let (some, is_all) = runs(&traced(100_000, 500));
        let partition = PartitionId::new(TopicId(1), 0);
        let kept: Vec<Offset> =
            (10..510).filter(|it| is_in_share(100_000, partition, *it)).collect();
        let written: Vec<Offset> =
            some.iter().flat_map(|(first, count)| *first..*first + u64::from(*count)).collect();
        assert!(is_all && !kept.is_empty());
        assert_eq!(written, kept);
    }

    #[test]
    fn written_ranges_of_one_step_are_bounded() {
        let (some, is_all) = runs(&traced(500_000, 4_000_000_000));
        assert_eq!((some.len(), is_all), (TRACED_RUNS_OF_STEP_MAX, false));
        let (some, is_all) = runs(&traced(1, 4_000_000_000));
        assert!(some.len() <= 10 && !is_all);
    }
}
