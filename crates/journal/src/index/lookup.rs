//! Queries of readers and retention: by offset, by time, by size.
//!
//! Planning a read never blocks: if it needs a sidecar that is not in memory, it returns that, and
//! the reader continues where it may block. The other queries serve housekeeping and block.

use std::sync::Arc;

use super::runs::Run;
use super::seal::LoadError;
use super::sidecar::Sidecar;
use super::{Index, SegmentBatches};
use crate::address::Address;
use crate::error::ReadError;
use crate::stats::SegmentInfo;

/// Batches to read from one segment's file, ascending, at least one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SegmentRead {
    pub(crate) segment: u32,
    pub(crate) generation: u32,
    pub(crate) addresses: Vec<Address>,
}

#[derive(Debug)]
pub(crate) enum Plan {
    /// Batches to read; empty at the end of the stream.
    Ready(Vec<SegmentRead>),
    /// This segment's sidecar must be loaded first. There is no batch before `offset`: plan again
    /// from there.
    Missing { segment: u32, generation: u32, offset: u64 },
}

/// A sidecar that its reader keeps although the cache may evict it.
#[derive(Clone, Debug)]
pub(crate) struct PinnedSidecar {
    pub(crate) segment: u32,
    pub(crate) generation: u32,
    pub(crate) sidecar: Arc<Sidecar>,
}

impl Index {
    /// The batch that holds `offset`, or else the next one, and its successors: at least one, then
    /// as many as fit in `bytes_max`. Ends early where a sidecar is not in memory.
    pub(crate) fn plan(
        &self,
        stream: u64,
        offset: u64,
        bytes_max: usize,
        pinned: Option<&PinnedSidecar>,
    ) -> Plan {
        let table = self.table.read();
        let holes = table.holes(stream);
        let runs = table.runs_of(stream).into_iter().flat_map(|runs| runs.after(offset));
        let mut parts = Vec::new();
        let mut budget = PlanBudget { left: bytes_max, used: false };
        for run in runs {
            let segment = run.segment();
            let Some(found) = table.segment(segment) else { break };
            let generation = found.generation;
            let (addresses, more) = if let Some(batches) = found.in_memory(stream) {
                budget.take(batches.live(run, holes).from(offset))
            } else if let Some(sidecar) = self.loaded(segment, generation, pinned) {
                budget.take(sidecar.batches(stream).live(run, holes).from(offset))
            } else if parts.is_empty() {
                let offset = offset.max(run.first_offset);
                return Plan::Missing { segment, generation, offset };
            } else {
                break;
            };
            if !addresses.is_empty() {
                parts.push(SegmentRead { segment, generation, addresses });
            }
            if !more {
                break;
            }
        }
        Plan::Ready(parts)
    }

    fn loaded(
        &self,
        segment: u32,
        generation: u32,
        pinned: Option<&PinnedSidecar>,
    ) -> Option<Arc<Sidecar>> {
        match pinned {
            Some(pinned) if (pinned.segment, pinned.generation) == (segment, generation) => {
                Some(pinned.sidecar.clone())
            }
            _ => self.cache.get(segment, generation),
        }
    }

    /// The first batch with `max_timestamp >= timestamp`, and its segment's generation.
    pub(crate) fn find_time(
        &self,
        stream: u64,
        timestamp: i64,
    ) -> Result<Option<(Address, u32)>, ReadError> {
        for (segment, bound) in self.timestamp_bounds(stream) {
            if bound < timestamp {
                continue;
            }
            let found = self.in_run(stream, segment, |live, generation| {
                let found = live.iter().find(|batch| batch.max_timestamp >= timestamp);
                found.map(|batch| (batch, generation))
            })?;
            // A trimmed run's largest timestamp is an upper bound: it may have no such batch.
            if let Some(Some(found)) = found {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// The batch with the largest timestamp, the earliest of several.
    pub(crate) fn find_max_time(&self, stream: u64) -> Result<Option<(Address, u32)>, ReadError> {
        let mut bounds = self.timestamp_bounds(stream);
        bounds.sort_by_key(|&(segment, bound)| (std::cmp::Reverse(bound), segment));
        let mut best: Option<(Address, u32)> = None;
        for (segment, bound) in bounds {
            if best.is_some_and(|(batch, _)| batch.max_timestamp > bound) {
                break;
            }
            let latest = self.in_run(stream, segment, |live, generation| {
                let latest = live.iter().rev().max_by_key(|batch| batch.max_timestamp);
                latest.map(|batch| (batch, generation))
            })?;
            let Some(Some((batch, generation))) = latest else { continue };
            let order =
                |batch: &Address| (batch.max_timestamp, std::cmp::Reverse(batch.base_offset));
            if best.is_none_or(|(known, _)| order(&batch) > order(&known)) {
                best = Some((batch, generation));
            }
        }
        Ok(best)
    }

    /// The start offset that keeps at least `keep_bytes` at the stream's end; `None` if the stream
    /// has no more.
    pub(crate) fn retention_by_bytes(
        &self,
        stream: u64,
        keep_bytes: u64,
    ) -> Result<Option<u64>, ReadError> {
        let runs = {
            let table = self.table.read();
            let exact = |run: &Run| !table.is_ragged(run.segment(), stream);
            table.runs(stream).map(|run| (*run, exact(run))).collect::<Vec<_>>()
        };
        let Some((last, _)) = runs.last() else { return Ok(None) };
        let mut start = last.next_offset;
        let mut kept = 0;
        for (place, (run, exact)) in runs.iter().enumerate().rev() {
            if kept >= keep_bytes {
                return Ok(Some(start));
            }
            // Whole runs are counted without reading their batches, except the first: retention may
            // drop some of its batches.
            if place > 0 && *exact && kept + u64::from(run.bytes) < keep_bytes {
                kept += u64::from(run.bytes);
                start = run.first_offset;
                continue;
            }
            let reached = self.in_run(stream, run.segment(), |live, _| {
                let mut reached = (start, kept);
                for batch in live.iter().rev() {
                    if reached.1 >= keep_bytes {
                        return (reached.0, reached.1, false);
                    }
                    reached = (batch.base_offset, reached.1 + u64::from(batch.len));
                }
                (reached.0, reached.1, true)
            })?;
            let Some((offset, bytes, whole)) = reached else { return Ok(None) };
            if !whole {
                return Ok(Some(offset));
            }
            (start, kept) = (offset, bytes);
        }
        Ok(None)
    }

    /// The offset of the first batch with `max_timestamp >= before`, or the end; `None` if no batch
    /// precedes it.
    pub(crate) fn retention_by_time(
        &self,
        stream: u64,
        before: i64,
    ) -> Result<Option<u64>, ReadError> {
        let runs: Vec<Run> = self.table.read().runs(stream).copied().collect();
        for (place, run) in runs.iter().enumerate() {
            if run.max_timestamp < before {
                continue;
            }
            let first = self.in_run(stream, run.segment(), |live, _| {
                let young = live.iter().enumerate().find(|(_, it)| it.max_timestamp >= before);
                young.map(|(old, batch)| (old, batch.base_offset))
            })?;
            if let Some(Some((old, offset))) = first {
                return Ok((place > 0 || old > 0).then_some(offset));
            }
        }
        Ok(runs.last().map(|run| run.next_offset))
    }

    /// All live batches, beginning with the one that holds `from`.
    pub(crate) fn batches(&self, stream: u64, from: u64) -> Result<Vec<Address>, ReadError> {
        let runs: Vec<Run> = self.table.read().runs(stream).copied().collect();
        let mut found = Vec::new();
        for run in runs.iter().filter(|run| run.next_offset > from) {
            self.in_run(stream, run.segment(), |live, _| {
                found.extend(live.from(from).iter());
            })?;
        }
        Ok(found)
    }

    pub(crate) fn stream_bytes(&self, stream: u64) -> u64 {
        self.table.read().stream_bytes(stream)
    }

    /// Every segment with bodies. `file_bytes` is 0 for segments that the log still writes to.
    pub(crate) fn segments(&self) -> Vec<SegmentInfo> {
        let claimed_from = self.claimed_from();
        let table = self.table.read();
        let infos = table.segments.iter().map(|(&id, segment)| SegmentInfo {
            id,
            generation: segment.generation,
            sealed: segment.sealed(),
            file_bytes: segment.file_bytes,
            live_bytes: segment.live_bytes,
            droppable: segment.droppable() && id < claimed_from,
        });
        infos.collect()
    }

    /// Runs a query over a stream's live batches in a segment; `None` when it has none there any
    /// more.
    fn in_run<R>(
        &self,
        stream: u64,
        segment: u32,
        mut ask: impl FnMut(SegmentBatches<'_>, u32) -> R,
    ) -> Result<Option<R>, ReadError> {
        loop {
            let (run, holes, generation) = {
                let table = self.table.read();
                let run = table.run(stream, segment);
                let (Some(run), Some(found)) = (run, table.segment(segment)) else {
                    return Ok(None);
                };
                let holes = table.holes(stream);
                if let Some(batches) = found.in_memory(stream) {
                    return Ok(Some(ask(batches.live(run, holes), found.generation)));
                }
                let holes = holes.map(|holes| holes.touching(run.first_offset, run.next_offset));
                (*run, holes, found.generation)
            };
            match self.sidecar(segment, generation) {
                Ok(sidecar) => {
                    return Ok(Some(ask(
                        sidecar.batches(stream).live(&run, holes.as_ref()),
                        generation,
                    )));
                }
                // A rewrite takes longer than one iteration, so that the loop ends.
                Err(LoadError::Gone) => {}
                Err(LoadError::Read(error)) => return Err(error),
            }
        }
    }

    fn timestamp_bounds(&self, stream: u64) -> Vec<(u32, i64)> {
        let table = self.table.read();
        table.runs(stream).map(|run| (run.segment(), run.max_timestamp)).collect()
    }
}

/// Remaining byte budget of a plan.
struct PlanBudget {
    left: usize,
    used: bool,
}

impl PlanBudget {
    /// The batches that fit, and whether more may fit.
    fn take(&mut self, live: SegmentBatches<'_>) -> (Vec<Address>, bool) {
        let mut taken = Vec::new();
        for batch in live.iter() {
            let len = batch.len as usize;
            if self.used && len > self.left {
                return (taken, false);
            }
            self.used = true;
            self.left = self.left.saturating_sub(len);
            taken.push(batch);
        }
        (taken, self.left > 0 || !self.used)
    }
}
