//! Key compaction: of the records with one key, the last is kept (Kafka's `cleanup.policy=compact`,
//! KIP-58, KIP-534).
//!
//! A pass first learns the last offset of every key in the part of a partition that is old enough
//! and was not compacted before, then rewrites the segments in which such a key has an earlier
//! record. Offsets never change; a batch that loses records keeps its place. A record without a
//! value (a tombstone) survives the first pass that meets it, which writes a horizon into its
//! batch, and is dropped by the first pass after that horizon, so that consumers who follow
//! closely still see the deletion.
//!
//! No pass goes beyond the stable end. Records of aborted transactions are dropped, and markers stay.
//!
//! The last batch of a partition stays, empty if need be: consumers that read up to the end offset
//! have to find a batch that reaches it.
//!
//! Each member of a shard's group compacts its own disk: none may grow because another one leads. The leader decides
//! by the topic's rule up to which offset, and logs it once its own disk is compacted; the others then do the same.
//! The progress on this disk is kept beside the log ([`shard::state_machine::compaction_progress`]). Segments of the
//! log that may still have to be sent to a member stay as they are, and are compacted once the log has released them.
//!
//! Whether a pass is due takes a list of all batches of a partition. It is made when a partition
//! changed by more than an append, when the date has come that the last list gave, and when so much
//! was appended since that the rule may hold: an eighth of the partition at most, so that a batch is
//! listed a bounded number of times however large its partition becomes.

mod pass;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use base::{HashMap, PartitionId, TopicId};
use machine::Command;
use shard::LocalShard;
use shard::committed::ReadView;
use shard::error::ExecuteError;
use shard::state_machine::changes::Change;
use tasks::Task;

use self::pass::{Candidate, ClaimedPartition, CompactionPass, PreparedPasses, prepare, rewrite};
use crate::housekeeping::due::{Dues, split_topic};
use crate::housekeeping::heavy::QueuedWork;
use crate::housekeeping::outlook::{CompactionOutlook, Rule};

/// A sidecar is written in the background: interval and number of checks for it in a round.
const SEAL_CHECK_INTERVAL: Duration = Duration::from_millis(20);
const SEAL_CHECKS: u32 = 100;

/// Partitions that are looked up under one lock: an apply waits for it.
const ROWS_PER_READ: usize = 1_000;

/// Interval of checks of the log that a pass waits for.
const LOG_CHECK_INTERVAL_MS: i64 = 2_000;
/// Interval of checks of a partition that would be compacted further, were no transaction open there.
const STABLE_END_CHECK_INTERVAL_MS: i64 = 10_000;
/// By then the other members have rolled their segments, so that the next entry ends the one that they have to
/// compact.
const OTHERS_CLOSE_WITHIN_MS: i64 = 3 * LOG_CHECK_INTERVAL_MS;

/// State kept from pass to pass. Only a hint: after a restart every partition is examined, and the next dirty record
/// of one brings its tombstones up again.
#[derive(Debug, Default)]
pub(crate) struct Compaction {
    /// Earliest time at which a tombstone of the partition may be dropped, ms since the epoch.
    horizons: BTreeMap<PartitionId, i64>,
    /// Time at which a pass may be due without an append, ms since the epoch.
    dates: Dues<i64>,
    /// Number of bytes at which a pass may be due, by the last list.
    outlooks: BTreeMap<PartitionId, GrowthThreshold>,
    /// Partitions to be listed in the next round.
    todo: BTreeSet<PartitionId>,
    /// Time of the last check of the log that a pass waits for, ms since the epoch, and the end of the log then.
    log: Option<(i64, u64)>,
    /// Time by which the other members have closed the segments that they have to compact, ms since the epoch.
    close_ms: Option<i64>,
}

#[derive(Clone, Copy, Debug)]
struct GrowthThreshold {
    /// The partition's bytes at which it is listed again.
    to_bytes: u64,
    segment_ms: i64,
}

impl Compaction {
    /// Takes in the changes since the last round.
    pub(crate) fn note(&mut self, shard: &LocalShard, changed: &HashMap<PartitionId, Change>) {
        let leads = shard.is_led_here();
        let changed: Vec<(PartitionId, Change)> =
            changed.iter().map(|(&id, &it)| (id, it)).collect();
        for changed in changed.chunks(ROWS_PER_READ) {
            let compacted = shard.read(|state| {
                let compacts = |id: PartitionId| {
                    let topic = state.catalog.topic(id.topic);
                    topic.is_some_and(|topic| topic.config.cleanup_policy.compact)
                };
                changed.iter().map(|(id, _)| compacts(*id)).collect::<Vec<_>>()
            });
            for (&(partition, change), compacted) in changed.iter().zip(compacted) {
                match self.outlooks.get(&partition) {
                    _ if !compacted => self.forget_partition(partition),
                    // Followers go by the leader's log entry.
                    _ if !leads && !change.anew => {}
                    Some(grows) if !change.anew => {
                        if shard.journal().stream_bytes(partition.stream()) >= grows.to_bytes {
                            self.todo.insert(partition);
                        }
                        // A batch with an old timestamp closes the segment before it.
                        if change.oldest_ms < i64::MAX {
                            let closes = change.oldest_ms.saturating_add(grows.segment_ms);
                            self.dates.hasten(partition, closes.saturating_add(1));
                        }
                    }
                    _ => {
                        self.todo.insert(partition);
                    }
                }
            }
        }
    }

    /// Examines the partitions that may be due, and compacts those that are. Returns the number examined. Reads and
    /// rewrites segments only in the shard's slot; until then due partitions stay due.
    pub(crate) async fn run(
        &mut self,
        shard: &LocalShard,
        heavy: &mut QueuedWork,
    ) -> io::Result<usize> {
        let now_ms = shard.timeline().unstepped_ms();
        while let Some(partition) = self.dates.pop(now_ms) {
            self.todo.insert(partition);
        }
        if self.close_ms.is_some_and(|close_ms| close_ms <= now_ms) {
            self.close_ms = None;
            append_empty_entry(shard).await?;
        }
        let candidates = match self.todo.is_empty() {
            true => Vec::new(),
            false => self.candidates(shard, now_ms),
        };
        if candidates.is_empty() {
            heavy.leave();
            return Ok(0);
        }
        let looked: Vec<PartitionId> = candidates.iter().map(|it| it.partition).collect();
        let looks = looked.len();
        // Examined again unless the round completes.
        self.todo.extend(looked);
        let Some(turn) = heavy.take() else { return Ok(0) };
        let done = &shard.shard.compacted;
        let Some(stamp) = done.stamp() else { return Ok(looks) };
        let journal = shard.journal().clone();
        let alone = shard.is_alone();
        let prepared = blocking(shard, move || prepare(&journal, candidates, alone, now_ms));
        let PreparedPasses { passes, outlooks, unstable, left, claimed } = prepared.await?;
        for (partition, outlook, rule) in outlooks {
            self.todo.remove(&partition);
            self.remember(partition, outlook, rule);
        }
        for partition in unstable {
            self.dates.set(partition, Some(now_ms.saturating_add(STABLE_END_CHECK_INTERVAL_MS)));
        }
        if !left.is_empty() {
            tracing::debug!(partitions = left.len(), "no room for more keys; later rounds go on");
        }
        if !claimed.is_empty() {
            self.wait_for_the_log(shard, &claimed, now_ms).await?;
        }
        if passes.is_empty() {
            return Ok(looks);
        }
        let segments: BTreeSet<u32> =
            passes.iter().flat_map(|pass| pass.segments.iter().copied()).collect();
        if !segments.is_empty() && !seal(shard, &segments).await? {
            tracing::debug!(?segments, "not sealed yet; compaction goes on in a later round");
            return Ok(looks);
        }
        let journal = shard.journal().clone();
        let passes = blocking(shard, move || {
            rewrite(&journal, &passes, segments, now_ms)?;
            Ok(passes)
        })
        .await?;
        drop(turn);
        let mut now_done = Vec::new();
        for CompactionPass { candidate, up_to, .. } in passes {
            let partition = candidate.partition;
            if up_to <= candidate.done {
                // Its tombstones were dropped. It is examined once more for dirty records.
                self.horizons.remove(&partition);
                continue;
            }
            self.horizons.insert(partition, candidate.horizon_ms);
            if up_to > candidate.owed {
                match shard.execute(Command::Compacted { partition, up_to }).await {
                    // Applied, and so noted as a change; or its topic was deleted meanwhile.
                    Ok(_) | Err(ExecuteError::Refused(_)) => {
                        self.todo.remove(&partition);
                        // No other entry may follow for long.
                        self.close_ms =
                            (!shard.is_alone()).then(|| now_ms + OTHERS_CLOSE_WITHIN_MS);
                    }
                    Err(error) => return Err(io::Error::other(error)),
                }
            }
            now_done.push((partition, up_to));
        }
        if !shard.is_alone() {
            let shared = Arc::clone(&shard.shard);
            blocking(shard, move || shared.compacted.record(stamp, &now_done)).await?;
        }
        Ok(looks)
    }

    /// Delays passes until the log has released their segments. That takes a snapshot, and a second one once all
    /// members have the entries covered by the first. While a member lacks entries of the last check the log is
    /// retained for it: then nothing is done, since each check would begin a segment.
    async fn wait_for_the_log(
        &mut self,
        shard: &LocalShard,
        claimed: &[ClaimedPartition],
        now_ms: i64,
    ) -> io::Result<()> {
        for ClaimedPartition { partition, .. } in claimed {
            self.todo.remove(partition);
            self.dates.set(*partition, Some(now_ms.saturating_add(LOG_CHECK_INTERVAL_MS)));
        }
        let is_due = |(at_ms, _): (i64, u64)| now_ms >= at_ms.saturating_add(LOG_CHECK_INTERVAL_MS);
        if !self.log.is_none_or(is_due) {
            return Ok(());
        }
        let now = (now_ms, shard.consensus.log_end().index);
        let Some((_, index)) = self.log.replace(now) else { return Ok(()) };
        if shard.consensus.all_have() < Some(index) {
            return Ok(());
        }
        if claimed.iter().any(|it| it.is_written_to) {
            close_segment(shard).await?;
        }
        shard.save_snapshot().await
    }

    /// The topic is gone.
    pub(crate) fn forget(&mut self, topic: TopicId) {
        split_topic(&mut self.horizons, topic);
        split_topic(&mut self.outlooks, topic);
        self.dates.forget(topic);
        self.todo.retain(|partition| partition.topic != topic);
    }

    fn forget_partition(&mut self, partition: PartitionId) {
        self.horizons.remove(&partition);
        self.outlooks.remove(&partition);
        self.dates.set(partition, None);
        self.todo.remove(&partition);
    }

    fn remember(&mut self, partition: PartitionId, outlook: CompactionOutlook, rule: Rule) {
        let CompactionOutlook { date_ms, to_bytes } = outlook;
        self.outlooks.insert(partition, GrowthThreshold { to_bytes, segment_ms: rule.segment_ms });
        let date = [Some(date_ms), self.horizons.get(&partition).copied()].into_iter().flatten();
        self.dates.set(partition, date.min().filter(|date| *date < i64::MAX));
    }

    /// Takes the partitions to be listed, and returns those with records to compact.
    fn candidates(&mut self, shard: &LocalShard, now_ms: i64) -> Vec<Candidate> {
        let todo: Vec<PartitionId> = std::mem::take(&mut self.todo).into_iter().collect();
        let (alone, leads, done) = (shard.is_alone(), shard.is_led_here(), &shard.shard.compacted);
        let mut candidates = Vec::new();
        for todo in todo.chunks(ROWS_PER_READ) {
            let found = shard.read(|state| {
                let candidate = |partition: PartitionId| {
                    let config = &state.catalog.topic(partition.topic)?.config;
                    let row = state.rows.partition(partition)?;
                    let horizon = self.horizons.get(&partition);
                    let owed = row.compacted_to().max(row.log_start());
                    let done = match alone {
                        true => owed,
                        false => done.of(partition).max(row.log_start()),
                    };
                    config.cleanup_policy.compact.then(|| Candidate {
                        partition,
                        leads,
                        log_start: row.log_start(),
                        end: row.next_offset(),
                        view: ReadView::of(state.rows, partition, row),
                        done,
                        owed,
                        rule: Rule {
                            min_lag_ms: config.min_compaction_lag_ms,
                            max_lag_ms: config.max_compaction_lag_ms,
                            segment_ms: config.segment_ms,
                            active_bytes: u64::from(config.segment_bytes),
                            dirty_ratio_min: config.min_cleanable_dirty_ratio,
                        },
                        horizon_ms: now_ms.saturating_add(config.delete_retention_ms),
                        horizon_passed: horizon.is_some_and(|horizon| *horizon <= now_ms),
                    })
                };
                todo.iter().map(|&partition| candidate(partition)).collect::<Vec<_>>()
            });
            for (&partition, found) in todo.iter().zip(found) {
                let Some(found) = found else {
                    self.forget_partition(partition);
                    continue;
                };
                let wanted = if leads { found.end } else { found.owed };
                if wanted > found.done || found.horizon_passed {
                    candidates.push(found);
                } else {
                    // Clean: at most its tombstones are left.
                    self.outlooks.remove(&partition);
                    self.dates.set(partition, self.horizons.get(&partition).copied());
                }
            }
        }
        candidates
    }

    #[cfg(test)]
    pub(crate) fn remembered(&self) -> usize {
        self.horizons.len() + self.dates.len() + self.outlooks.len() + self.todo.len()
    }
}

/// Only a sealed segment that no replay needs can be rewritten: where the node is alone, the active segment is closed
/// and the machine's state saved. False when sealing takes longer than a round may.
async fn seal(shard: &LocalShard, segments: &BTreeSet<u32>) -> io::Result<bool> {
    let journal = shard.journal();
    let open = || {
        let mut known = journal.segments().into_iter();
        known.any(|segment| segments.contains(&segment.id) && !segment.sealed)
    };
    if shard.is_alone() {
        if open() {
            close_segment(shard).await?;
        }
        shard.save_snapshot().await?;
    }
    for _ in 0..SEAL_CHECKS {
        if !open() {
            return Ok(true);
        }
        tokio::time::sleep(SEAL_CHECK_INTERVAL).await;
    }
    Ok(false)
}

/// A segment closes with the next frame, so one has to be written; a follower waits for the leader's.
async fn close_segment(shard: &LocalShard) -> io::Result<()> {
    shard.journal().roll();
    match shard.is_led_here() {
        true => append_empty_entry(shard).await,
        false => Ok(()),
    }
}

async fn append_empty_entry(shard: &LocalShard) -> io::Result<()> {
    let nothing = Command::AdvanceStart { starts: Vec::new() };
    shard.execute(nothing).await.map(drop).map_err(io::Error::other)
}

async fn blocking<R: Send + 'static>(
    shard: &LocalShard,
    work: impl FnOnce() -> io::Result<R> + Send + 'static,
) -> io::Result<R> {
    let done = shard.workers().blocking(Task::HousekeepingDisk, work);
    done.await.unwrap_or_else(|panic| Err(io::Error::other(panic)))
}
