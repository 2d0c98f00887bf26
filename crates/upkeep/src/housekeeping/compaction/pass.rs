//! A pass over a partition: whether it is due, the keys that it learns, and the outcome for each batch.

use std::collections::BTreeSet;
use std::io;

use base::{HashMap, Offset, PartitionId};
use bytes::Bytes;
use journal::{Address, CompactionDecision, Journal, StoredBatches};
use record::{Batch, BatchHeader, CompactionResult, RecordView};
use shard::committed::ReadView;

use crate::housekeeping::outlook::{CompactionOutlook, Rule};

/// Keys of one pass, in bytes; a partition with more is compacted in several passes.
const KEY_BYTES_MAX: usize = 64 << 20;
/// Approximate overhead of an entry of the key table, beside the key itself.
const KEY_ENTRY_BYTES: usize = 48;

/// A partition that may be worth a pass.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) partition: PartitionId,
    /// Whether this node decides up to which offset it is compacted.
    pub(super) leads: bool,
    pub(super) log_start: Offset,
    /// The offset after the last record. The batch that ends here stays.
    pub(super) end: Offset,
    /// Transactions: no pass goes beyond the stable end.
    pub(super) view: ReadView,
    /// Offset up to which it is compacted on this disk.
    pub(super) done: Offset,
    /// Offset up to which a leader logged that it is to be compacted.
    pub(super) owed: Offset,
    pub(super) rule: Rule,
    /// Delete horizon of a tombstone met for the first time.
    pub(super) horizon_ms: i64,
    /// Whether the earliest delete horizon has passed.
    pub(super) horizon_passed: bool,
}

/// A prepared pass over one partition.
#[derive(Debug)]
pub(super) struct CompactionPass {
    pub(super) candidate: Candidate,
    /// Records from here on are not examined.
    pub(super) up_to: Offset,
    last_offsets: HashMap<Box<[u8]>, Offset>,
    /// Segments with changes.
    pub(super) segments: BTreeSet<u32>,
}

/// Result of examining the candidates.
#[derive(Debug, Default)]
pub(super) struct PreparedPasses {
    pub(super) passes: Vec<CompactionPass>,
    /// Candidates that are not due yet.
    pub(super) outlooks: Vec<(PartitionId, CompactionOutlook, Rule)>,
    /// Those of them that may be due once a transaction has ended.
    pub(super) unstable: Vec<PartitionId>,
    /// Candidates left unexamined for lack of room.
    pub(super) left: Vec<PartitionId>,
    /// Candidates whose segments the log has to release first.
    pub(super) claimed: Vec<ClaimedPartition>,
}

/// A partition whose records to compact are still claimed by the log.
#[derive(Debug)]
pub(super) struct ClaimedPartition {
    pub(super) partition: PartitionId,
    /// Whether some of them are in the log's active segment.
    pub(super) is_written_to: bool,
}

/// Decides which partitions are due, learns their keys, and finds the changes. Segments claimed by the log cannot be
/// rewritten yet; where the node is `alone`, a snapshot releases them before the pass is carried out.
pub(super) fn prepare(
    journal: &Journal,
    candidates: Vec<Candidate>,
    alone: bool,
    now_ms: i64,
) -> io::Result<PreparedPasses> {
    let mut prepared = PreparedPasses::default();
    let mut room = KEY_BYTES_MAX;
    for candidate in candidates {
        if room == 0 {
            prepared.left.push(candidate.partition);
            continue;
        }
        let batches = journal
            .batches(candidate.partition.stream(), candidate.log_start)
            .map_err(io::Error::other)?;
        let eligible = candidate.eligible(&batches, now_ms);
        let wanted = eligible.min(candidate.view.stable_end());
        let is_claimed = |batch: &&Address| !alone && journal.is_claimed(batch.segment);
        let claimed = batches.iter().find(is_claimed).map(|batch| batch.base_offset);
        let up_to = claimed.map_or(wanted, |claimed| claimed.min(wanted));
        if !candidate.is_due(&batches, up_to, now_ms) {
            match candidate.is_due(&batches, wanted, now_ms) {
                true => {
                    let last = batches.iter().rfind(|batch| batch.base_offset < wanted);
                    let is_written_to = last.is_some_and(|it| journal.is_written_to(it.segment));
                    let partition = candidate.partition;
                    prepared.claimed.push(ClaimedPartition { partition, is_written_to });
                }
                false => {
                    let outlook = candidate.rule.outlook(&batches, candidate.done);
                    if wanted < eligible {
                        prepared.unstable.push(candidate.partition);
                    }
                    prepared.outlooks.push((candidate.partition, outlook, candidate.rule));
                }
            }
            continue;
        }
        let mut pass = CompactionPass {
            candidate,
            up_to,
            last_offsets: HashMap::default(),
            segments: BTreeSet::new(),
        };
        pass.learn(journal, &batches, &mut room)?;
        pass.find_changes(journal, &batches, now_ms)?;
        prepared.passes.push(pass);
    }
    Ok(prepared)
}

impl Candidate {
    /// Returns the offset up to which it may be compacted, as far as transactions have ended.
    fn eligible(&self, batches: &[Address], now_ms: i64) -> Offset {
        let eligible = self.leads.then(|| self.rule.eligible_up_to(batches, now_ms)).flatten();
        eligible.unwrap_or(self.log_start).max(self.owed)
    }

    /// Whether a pass up to this offset is worth it.
    fn is_due(&self, batches: &[Address], up_to: Offset, now_ms: i64) -> bool {
        let owes = self.done < self.owed.min(up_to);
        let is_dirty = || self.leads && self.rule.is_due(batches, self.done..up_to, now_ms);
        self.horizon_passed || owes || is_dirty()
    }
}

fn read(journal: &Journal, partition: PartitionId, batch: &Address) -> io::Result<Option<Bytes>> {
    let found = journal
        .read_blocking(partition.stream(), batch.base_offset, batch.len as usize)
        .map_err(io::Error::other)?;
    // Retention may have removed the batch meanwhile; the read then returns the next one.
    let same = |bytes: &Bytes| {
        BatchHeader::parse(bytes).is_ok_and(|header| header.base_offset == batch.base_offset)
    };
    Ok(found.into_iter().next().map(StoredBatches::into_bytes).filter(same))
}

impl CompactionPass {
    /// Learns the last offset of each key between the compacted part and `up_to`; less far when there are more keys
    /// than room.
    fn learn(
        &mut self,
        journal: &Journal,
        batches: &[Address],
        room: &mut usize,
    ) -> io::Result<()> {
        let (from, up_to) = (self.candidate.done, self.up_to);
        let dirty =
            batches.iter().filter(|batch| batch.next_offset() > from && batch.base_offset < up_to);
        for address in dirty {
            if *room == 0 {
                self.up_to = address.base_offset;
                break;
            }
            let Some(bytes) = read(journal, self.candidate.partition, address)? else { continue };
            let batch = Batch::decode(&bytes).map_err(io::Error::other)?;
            // The keys of markers are not the user's, and records of aborted transactions replace no others.
            if self.candidate.view.is_skipped(batch.header()) {
                continue;
            }
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
            if self.keep(&bytes, now_ms) != CompactionDecision::Same {
                self.segments.insert(address.segment);
            }
        }
        Ok(())
    }

    fn keep(&self, batch: &[u8], now_ms: i64) -> CompactionDecision {
        // A batch that cannot be decoded is kept.
        let Ok(header) = BatchHeader::parse(batch) else { return CompactionDecision::Same };
        if header.base_offset >= self.up_to {
            return CompactionDecision::Same;
        }
        // Clients need a marker as long as batches of its transaction may be stored.
        if header.attributes.is_control() {
            return CompactionDecision::Same;
        }
        let is_aborted = self.candidate.view.is_aborted(&header);
        let tombstones_go = header.delete_horizon().is_some_and(|horizon| horizon <= now_ms);
        let kept = record::retain(batch, Some(self.candidate.horizon_ms), |record| {
            !is_aborted && self.keeps(record, tombstones_go)
        });
        match kept {
            Ok(CompactionResult::All) => CompactionDecision::Same,
            Ok(CompactionResult::None) if header.next_offset() >= self.candidate.end => {
                emptied(&header, batch)
            }
            Ok(CompactionResult::None) => CompactionDecision::Drop,
            Ok(CompactionResult::Part(rest)) => CompactionDecision::Replace(Bytes::from(rest)),
            Err(error) => {
                tracing::error!(partition = %self.candidate.partition, %error,
                    offset = header.base_offset, "a stored batch cannot be read; it is left as it is");
                CompactionDecision::Same
            }
        }
    }

    fn keeps(&self, record: &RecordView<'_>, tombstones_go: bool) -> bool {
        if record.offset >= self.up_to {
            return true;
        }
        // A record without a key can never be replaced. A compacted topic has such records only from before it was
        // compacted, and Kafka drops them too.
        let Some(key) = record.key else { return false };
        let replaced = self.last_offsets.get(key).is_some_and(|last| *last > record.offset);
        let gone = record.value.is_none() && tombstones_go;
        !replaced && !gone
    }
}

/// Replacement of a partition's last batch when none of its records is kept.
fn emptied(header: &BatchHeader, batch: &[u8]) -> CompactionDecision {
    if header.record_count == 0 {
        return CompactionDecision::Same;
    }
    match record::retain_or_empty(batch, |_| false) {
        Ok(CompactionResult::Part(empty)) => CompactionDecision::Replace(Bytes::from(empty)),
        // Cannot happen, since the batch was decoded a moment ago; the batch is kept.
        _ => CompactionDecision::Same,
    }
}

pub(super) fn rewrite(
    journal: &Journal,
    passes: &[CompactionPass],
    segments: BTreeSet<u32>,
    now_ms: i64,
) -> io::Result<()> {
    let by_stream: HashMap<u64, &CompactionPass> =
        passes.iter().map(|pass| (pass.candidate.partition.stream(), pass)).collect();
    for segment in segments {
        journal.rewrite(segment, &mut |stream, _, batch| {
            by_stream.get(&stream).map_or(CompactionDecision::Same, |pass| pass.keep(batch, now_ms))
        })?;
    }
    Ok(())
}
