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
//! The last batch of a partition stays, empty if need be: consumers that read up to the end offset
//! have to find a batch that reaches it.
//!
//! Whether a pass is due takes a list of all batches of a partition. It is made when a partition
//! changed by more than an append, when the date has come that the last list gave, and when so much
//! was appended since that the rule may hold: an eighth of the partition at most, so that a batch is
//! listed a bounded number of times however large its partition becomes.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::Duration;

use base::{HashMap, Offset, PartitionId, TopicId};
use bytes::Bytes;
use journal::{Address, Journal, Keep, Stored};
use machine::Command;
use record::{Batch, BatchHeader, RecordView, Retained};
use tasks::Task;

use crate::changes::Change;
use crate::error::ExecuteError;
use crate::housekeeping::due::{Dues, split_topic};
use crate::housekeeping::outlook::{Outlook, Rule};
use crate::local_shard::LocalShard;

/// Keys of one pass, in bytes; a partition with more is compacted in several passes.
const KEY_BYTES_MAX: usize = 64 << 20;
/// What an entry of the key table costs beside the key itself, roughly.
const KEY_ENTRY_BYTES: usize = 48;

/// A sidecar is written in the background; how often, and how many times, a round looks for it.
const SEAL_LOOK_EVERY: Duration = Duration::from_millis(20);
const SEAL_LOOKS: u32 = 100;

/// Partitions that are looked up under one lock: an apply waits for it.
const ROWS_PER_READ: usize = 1_000;

/// What is remembered from pass to pass. Only a hint: after a restart every partition is looked at,
/// and the next dirty record of one brings its tombstones up again.
#[derive(Debug, Default)]
pub(crate) struct Compaction {
    /// When the earliest tombstone of a partition may go, ms since the epoch.
    horizons: BTreeMap<PartitionId, i64>,
    /// When a pass may be due though nothing is appended, ms since the epoch.
    dates: Dues<i64>,
    /// After how many appended bytes it may be, by what was last listed.
    outlooks: BTreeMap<PartitionId, Grows>,
    /// To be listed in the next round.
    todo: BTreeSet<PartitionId>,
}

#[derive(Clone, Copy, Debug)]
struct Grows {
    /// The partition's bytes at which it is listed again.
    to_bytes: u64,
    segment_ms: i64,
}

/// A partition that may be worth a pass.
#[derive(Clone, Debug)]
struct Candidate {
    partition: PartitionId,
    log_start: Offset,
    /// The offset after the last record. The batch that ends here stays.
    end: Offset,
    compacted_to: Offset,
    rule: Rule,
    /// A tombstone met for the first time may go at this time.
    horizon_ms: i64,
    /// A tombstone may go by now.
    horizon_passed: bool,
}

/// A pass over one partition, ready to be carried out.
#[derive(Debug)]
struct Pass {
    candidate: Candidate,
    /// Records from here on are not looked at.
    up_to: Offset,
    last_offsets: HashMap<Box<[u8]>, Offset>,
    /// Segments in which something changes.
    segments: BTreeSet<u32>,
}

/// What a look at the candidates came to.
#[derive(Debug, Default)]
struct Prepared {
    passes: Vec<Pass>,
    /// Those that are not due yet.
    outlooks: Vec<(PartitionId, Outlook, Rule)>,
    /// There was no room to look at these.
    left: Vec<PartitionId>,
}

impl Compaction {
    /// Takes in what changed since the last round.
    pub(crate) fn note(&mut self, shard: &LocalShard, changed: &HashMap<PartitionId, Change>) {
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
                    Some(grows) if !change.anew => {
                        if shard.journal().stream_bytes(partition.stream()) >= grows.to_bytes {
                            self.todo.insert(partition);
                        }
                        // A batch of long ago closes what is before it.
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

    /// Looks at what may be due, and compacts what is. How many partitions were looked at.
    pub(crate) async fn run(&mut self, shard: &LocalShard) -> io::Result<usize> {
        let now_ms = shard.timeline().unstepped_ms();
        while let Some(partition) = self.dates.pop(now_ms) {
            self.todo.insert(partition);
        }
        if self.todo.is_empty() {
            return Ok(0);
        }
        let candidates = self.candidates(shard, now_ms);
        if candidates.is_empty() {
            return Ok(0);
        }
        let looked: Vec<PartitionId> = candidates.iter().map(|it| it.partition).collect();
        let looks = looked.len();
        // Unless it comes to an end they are looked at again.
        self.todo.extend(looked);
        let journal = shard.journal().clone();
        let prepared = blocking(shard, move || prepare(&journal, candidates, now_ms)).await?;
        let Prepared { passes, outlooks, left } = prepared;
        for (partition, outlook, rule) in outlooks {
            self.todo.remove(&partition);
            self.remember(partition, outlook, rule);
        }
        if !left.is_empty() {
            tracing::debug!(partitions = left.len(), "no room for more keys; later rounds go on");
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
        for Pass { candidate, up_to, .. } in passes {
            let partition = candidate.partition;
            if up_to <= candidate.compacted_to {
                // Its tombstones went. It is looked at once more, for what is dirty.
                self.horizons.remove(&partition);
                continue;
            }
            self.horizons.insert(partition, candidate.horizon_ms);
            match shard.execute(Command::Compacted { partition, up_to }).await {
                // Applied, and so it is among what changed; or its topic was deleted meanwhile.
                Ok(_) | Err(ExecuteError::Refused(_)) => {
                    self.todo.remove(&partition);
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
        Ok(looks)
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

    fn remember(&mut self, partition: PartitionId, outlook: Outlook, rule: Rule) {
        let Outlook { date_ms, to_bytes } = outlook;
        self.outlooks.insert(partition, Grows { to_bytes, segment_ms: rule.segment_ms });
        let date = [Some(date_ms), self.horizons.get(&partition).copied()].into_iter().flatten();
        self.dates.set(partition, date.min().filter(|date| *date < i64::MAX));
    }

    /// Takes what is to be listed, and of that what has anything to compact.
    fn candidates(&mut self, shard: &LocalShard, now_ms: i64) -> Vec<Candidate> {
        let todo: Vec<PartitionId> = std::mem::take(&mut self.todo).into_iter().collect();
        let mut candidates = Vec::new();
        for todo in todo.chunks(ROWS_PER_READ) {
            let found = shard.read(|state| {
                let candidate = |partition: PartitionId| {
                    let config = &state.catalog.topic(partition.topic)?.config;
                    let row = state.rows.partition(partition)?;
                    let horizon = self.horizons.get(&partition);
                    config.cleanup_policy.compact.then(|| Candidate {
                        partition,
                        log_start: row.log_start(),
                        end: row.next_offset(),
                        compacted_to: row.compacted_to().max(row.log_start()),
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
                if found.end > found.compacted_to || found.horizon_passed {
                    candidates.push(found);
                } else {
                    // Clean: only its tombstones are left, if it has any.
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

/// Only a sealed segment that no replay needs can be rewritten: the one that is written now is
/// closed, and the machine's state saved. False when sealing takes longer than a round may.
async fn seal(shard: &LocalShard, segments: &BTreeSet<u32>) -> io::Result<bool> {
    let journal = shard.journal();
    let open = || {
        let mut known = journal.segments().into_iter();
        known.any(|segment| segments.contains(&segment.id) && !segment.sealed)
    };
    if open() {
        journal.roll();
        // The segment closes before the next frame, so there has to be one.
        let nothing = Command::AdvanceStart { starts: Vec::new() };
        shard.execute(nothing).await.map_err(io::Error::other)?;
    }
    shard.save_snapshot().await?;
    for _ in 0..SEAL_LOOKS {
        if !open() {
            return Ok(true);
        }
        tokio::time::sleep(SEAL_LOOK_EVERY).await;
    }
    Ok(false)
}

async fn blocking<R: Send + 'static>(
    shard: &LocalShard,
    work: impl FnOnce() -> io::Result<R> + Send + 'static,
) -> io::Result<R> {
    let done = shard.workers().blocking(Task::HousekeepingDisk, work);
    done.await.unwrap_or_else(|panic| Err(io::Error::other(panic)))
}

/// Decides which partitions are due, learns their keys, and finds what would change.
fn prepare(journal: &Journal, candidates: Vec<Candidate>, now_ms: i64) -> io::Result<Prepared> {
    let mut prepared = Prepared::default();
    let mut room = KEY_BYTES_MAX;
    for candidate in candidates {
        if room == 0 {
            prepared.left.push(candidate.partition);
            continue;
        }
        let batches = journal
            .batches(candidate.partition.stream(), candidate.log_start)
            .map_err(io::Error::other)?;
        let rule = candidate.rule;
        let up_to = rule.eligible_up_to(&batches, now_ms).unwrap_or(candidate.log_start);
        if !candidate.horizon_passed && !rule.is_due(&batches, candidate.compacted_to, now_ms) {
            let outlook = rule.outlook(&batches, candidate.compacted_to);
            prepared.outlooks.push((candidate.partition, outlook, rule));
            continue;
        }
        let mut pass =
            Pass { candidate, up_to, last_offsets: HashMap::default(), segments: BTreeSet::new() };
        pass.learn(journal, &batches, &mut room)?;
        pass.find_changes(journal, &batches, now_ms)?;
        prepared.passes.push(pass);
    }
    Ok(prepared)
}

fn read(journal: &Journal, partition: PartitionId, batch: &Address) -> io::Result<Option<Bytes>> {
    let found = journal
        .read_blocking(partition.stream(), batch.base_offset, batch.len as usize)
        .map_err(io::Error::other)?;
    // Retention may have taken it meanwhile, and then the next batch answers.
    let same = |bytes: &Bytes| {
        BatchHeader::parse(bytes).is_ok_and(|header| header.base_offset == batch.base_offset)
    };
    Ok(found.into_iter().next().map(Stored::into_bytes).filter(same))
}

impl Pass {
    /// The last offset of each key between what was compacted before and `up_to`; less far when
    /// there are more keys than there is room for.
    fn learn(
        &mut self,
        journal: &Journal,
        batches: &[Address],
        room: &mut usize,
    ) -> io::Result<()> {
        let (from, up_to) = (self.candidate.compacted_to, self.up_to);
        let dirty =
            batches.iter().filter(|batch| batch.next_offset() > from && batch.base_offset < up_to);
        for address in dirty {
            if *room == 0 {
                self.up_to = address.base_offset;
                break;
            }
            let Some(bytes) = read(journal, self.candidate.partition, address)? else { continue };
            let batch = Batch::decode(&bytes).map_err(io::Error::other)?;
            for record in batch.records() {
                let record = record.map_err(io::Error::other)?;
                let Some(key) = record.key else { continue };
                if let Some(last) = self.last_offsets.get_mut(key) {
                    *last = record.offset;
                } else {
                    *room = room.saturating_sub(key.len() + KEY_ENTRY_BYTES);
                    self.last_offsets.insert(key.into(), record.offset);
                }
            }
        }
        Ok(())
    }

    fn find_changes(
        &mut self,
        journal: &Journal,
        batches: &[Address],
        now_ms: i64,
    ) -> io::Result<()> {
        for address in batches.iter().filter(|batch| batch.base_offset < self.up_to) {
            if self.segments.contains(&address.segment) {
                continue;
            }
            let Some(bytes) = read(journal, self.candidate.partition, address)? else { continue };
            if self.keep(&bytes, now_ms) != Keep::Same {
                self.segments.insert(address.segment);
            }
        }
        Ok(())
    }

    fn keep(&self, batch: &[u8], now_ms: i64) -> Keep {
        // What cannot be read is not ours to delete.
        let Ok(header) = BatchHeader::parse(batch) else { return Keep::Same };
        if header.base_offset >= self.up_to {
            return Keep::Same;
        }
        let tombstones_go = header.delete_horizon().is_some_and(|horizon| horizon <= now_ms);
        let kept = record::retain(batch, Some(self.candidate.horizon_ms), |record| {
            self.keeps(record, tombstones_go)
        });
        match kept {
            Ok(Retained::All) => Keep::Same,
            Ok(Retained::None) if header.next_offset() >= self.candidate.end => {
                emptied(&header, batch)
            }
            Ok(Retained::None) => Keep::Drop,
            Ok(Retained::Part(rest)) => Keep::Replace(Bytes::from(rest)),
            Err(error) => {
                tracing::error!(partition = %self.candidate.partition, %error,
                    offset = header.base_offset, "a stored batch cannot be read; it is left as it is");
                Keep::Same
            }
        }
    }

    fn keeps(&self, record: &RecordView<'_>, tombstones_go: bool) -> bool {
        if record.offset >= self.up_to {
            return true;
        }
        // Without a key it can never be replaced; a compacted topic holds such a record only from
        // the time before it was one, and Kafka drops it too.
        let Some(key) = record.key else { return false };
        let replaced = self.last_offsets.get(key).is_some_and(|last| *last > record.offset);
        let gone = record.value.is_none() && tombstones_go;
        !replaced && !gone
    }
}

/// What takes the place of a partition's last batch when no record of it is kept.
fn emptied(header: &BatchHeader, batch: &[u8]) -> Keep {
    if header.record_count == 0 {
        return Keep::Same;
    }
    match record::retain_or_empty(batch, |_| false) {
        Ok(Retained::Part(empty)) => Keep::Replace(Bytes::from(empty)),
        // It was read a moment ago, so this does not come about; what is not replaced stays.
        _ => Keep::Same,
    }
}

fn rewrite(
    journal: &Journal,
    passes: &[Pass],
    segments: BTreeSet<u32>,
    now_ms: i64,
) -> io::Result<()> {
    let by_stream: HashMap<u64, &Pass> =
        passes.iter().map(|pass| (pass.candidate.partition.stream(), pass)).collect();
    for segment in segments {
        journal.rewrite(segment, &mut |stream, _, batch| {
            by_stream.get(&stream).map_or(Keep::Same, |pass| pass.keep(batch, now_ms))
        })?;
    }
    Ok(())
}
