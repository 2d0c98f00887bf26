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

use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use base::{Offset, PartitionId};
use bytes::Bytes;
use hashbrown::HashMap;
use journal::{Address, Journal, Keep, Stored};
use machine::Command;
use record::{Batch, BatchHeader, RecordView, Retained};
use tasks::Task;
use tokio::runtime::Handle;

use crate::broker::Broker;
use crate::error::ExecuteError;

/// Keys of one pass, in bytes; a partition with more is compacted in several passes.
const KEY_BYTES_MAX: usize = 64 << 20;
/// What an entry of the key table costs beside the key itself, roughly.
const KEY_ENTRY_BYTES: usize = 48;

/// A sidecar is written in the background; how often, and how many times, a round looks for it.
const SEAL_LOOK_EVERY: Duration = Duration::from_millis(20);
const SEAL_LOOKS: u32 = 100;

/// What is remembered from pass to pass. Only a hint: after a restart the next dirty record of a
/// partition brings its tombstones up again.
#[derive(Debug, Default)]
pub(crate) struct Compaction {
    /// When the earliest tombstone of a partition may go, ms since the epoch.
    horizons: HashMap<PartitionId, i64>,
}

/// A partition that may be worth a pass.
#[derive(Clone, Debug)]
struct Candidate {
    partition: PartitionId,
    log_start: Offset,
    /// The offset after the last record. The batch that ends here stays.
    end: Offset,
    compacted_to: Offset,
    /// Batches as young as this are left alone, ms since the epoch (`min.compaction.lag.ms`).
    before_ms: i64,
    /// What would be Kafka's active segment is left alone too: batches as young as this
    /// (`segment.ms`) that are among the newest so many bytes (`segment.bytes`).
    active_after_ms: i64,
    active_bytes: u64,
    dirty_ratio_min: f64,
    /// Dirty records older than this make the pass due whatever the ratio.
    overdue_before_ms: i64,
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

impl Compaction {
    /// Looks at every compacted partition, and compacts those that are due.
    pub(crate) async fn run(&mut self, broker: &Broker) -> io::Result<()> {
        let now_ms = broker.timeline().unstepped_ms();
        let candidates = self.candidates(broker, now_ms);
        if candidates.is_empty() {
            return Ok(());
        }
        let journal = broker.journal().clone();
        let passes = blocking(move || prepare(&journal, candidates, now_ms)).await?;
        if passes.is_empty() {
            return Ok(());
        }
        let segments: BTreeSet<u32> =
            passes.iter().flat_map(|pass| pass.segments.iter().copied()).collect();
        if !segments.is_empty() && !seal(broker, &segments).await? {
            tracing::debug!(?segments, "not sealed yet; compaction goes on in a later round");
            return Ok(());
        }
        let journal = broker.journal().clone();
        let passes = blocking(move || {
            rewrite(&journal, &passes, segments, now_ms)?;
            Ok(passes)
        })
        .await?;
        for Pass { candidate, up_to, .. } in passes {
            if up_to > candidate.compacted_to {
                self.horizons.insert(candidate.partition, candidate.horizon_ms);
            } else {
                self.horizons.remove(&candidate.partition);
                continue;
            }
            let command = Command::Compacted { partition: candidate.partition, up_to };
            match broker.execute(command).await {
                // Refused: its topic was deleted meanwhile.
                Ok(_) | Err(ExecuteError::Refused(_)) => {}
                Err(error) => return Err(io::Error::other(error)),
            }
        }
        Ok(())
    }

    fn candidates(&self, broker: &Broker, now_ms: i64) -> Vec<Candidate> {
        broker.read(|state| {
            let mut candidates = Vec::new();
            for topic in state.topics().filter(|topic| topic.config.cleanup_policy.compact) {
                let config = &topic.config;
                for (partition, row) in topic.partition_ids().zip(&topic.partitions) {
                    let compacted_to = row.compacted_to().max(row.log_start());
                    let horizon = self.horizons.get(&partition);
                    let horizon_passed = horizon.is_some_and(|horizon| *horizon <= now_ms);
                    if row.next_offset() <= compacted_to && !horizon_passed {
                        continue;
                    }
                    candidates.push(Candidate {
                        partition,
                        log_start: row.log_start(),
                        end: row.next_offset(),
                        compacted_to,
                        before_ms: now_ms.saturating_sub(config.min_compaction_lag_ms),
                        active_after_ms: now_ms.saturating_sub(config.segment_ms),
                        active_bytes: u64::from(config.segment_bytes),
                        dirty_ratio_min: config.min_cleanable_dirty_ratio,
                        overdue_before_ms: now_ms.saturating_sub(config.max_compaction_lag_ms),
                        horizon_ms: now_ms.saturating_add(config.delete_retention_ms),
                        horizon_passed,
                    });
                }
            }
            candidates
        })
    }
}

/// Only a sealed segment that no replay needs can be rewritten: the one that is written now is
/// closed, and the machine's state saved. False when sealing takes longer than a round may.
async fn seal(broker: &Broker, segments: &BTreeSet<u32>) -> io::Result<bool> {
    let journal = broker.journal();
    let open = || {
        let mut known = journal.segments().into_iter();
        known.any(|segment| segments.contains(&segment.id) && !segment.sealed)
    };
    if open() {
        journal.roll();
        // The segment closes before the next frame, so there has to be one.
        let nothing = Command::AdvanceStart { starts: Vec::new() };
        broker.execute(nothing).await.map_err(io::Error::other)?;
    }
    broker.save_snapshot().await?;
    for _ in 0..SEAL_LOOKS {
        if !open() {
            return Ok(true);
        }
        tokio::time::sleep(SEAL_LOOK_EVERY).await;
    }
    Ok(false)
}

async fn blocking<R: Send + 'static>(
    work: impl FnOnce() -> io::Result<R> + Send + 'static,
) -> io::Result<R> {
    let done = tasks::blocking(Task::HousekeepingDisk, work);
    done.await.unwrap_or_else(|panic| Err(io::Error::other(panic)))
}

/// Decides which partitions are due, learns their keys, and finds what would change.
fn prepare(journal: &Journal, candidates: Vec<Candidate>, now_ms: i64) -> io::Result<Vec<Pass>> {
    let mut passes = Vec::new();
    let mut room = KEY_BYTES_MAX;
    for candidate in candidates {
        let batches = journal
            .batches(candidate.partition.stream(), candidate.log_start)
            .map_err(io::Error::other)?;
        let up_to = candidate.eligible_up_to(&batches);
        if !candidate.is_due(&batches, up_to) {
            continue;
        }
        let mut pass =
            Pass { candidate, up_to, last_offsets: HashMap::new(), segments: BTreeSet::new() };
        pass.learn(journal, &batches, &mut room)?;
        pass.find_changes(journal, &batches, now_ms)?;
        passes.push(pass);
        if room == 0 {
            break;
        }
    }
    Ok(passes)
}

impl Candidate {
    /// The end of the part that is old enough.
    fn eligible_up_to(&self, batches: &[Address]) -> Offset {
        let mut active = 0;
        let active_from = batches.iter().rposition(|batch| {
            active += u64::from(batch.len);
            active > self.active_bytes || batch.max_timestamp < self.active_after_ms
        });
        let closed = active_from.map_or(0, |last_closed| last_closed + 1);
        let old = batches[..closed].iter().take_while(|batch| batch.max_timestamp < self.before_ms);
        old.last().map_or(self.log_start, Address::next_offset)
    }

    fn is_due(&self, batches: &[Address], up_to: Offset) -> bool {
        if self.horizon_passed {
            return true;
        }
        let (mut clean, mut dirty) = (0_u64, 0_u64);
        let mut overdue = false;
        for batch in batches.iter().filter(|batch| batch.base_offset < up_to) {
            if batch.base_offset < self.compacted_to {
                clean += u64::from(batch.len);
            } else {
                dirty += u64::from(batch.len);
                overdue |= batch.max_timestamp < self.overdue_before_ms;
            }
        }
        dirty > 0 && (overdue || dirty as f64 >= self.dirty_ratio_min * (clean + dirty) as f64)
    }
}

fn read(journal: &Journal, partition: PartitionId, batch: &Address) -> io::Result<Option<Bytes>> {
    let reading = journal.read(partition.stream(), batch.base_offset, batch.len as usize);
    let found = Handle::current().block_on(reading).map_err(io::Error::other)?;
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
