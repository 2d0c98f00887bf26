//! The copy of a partition's bytes to another shard, while the partition is served here.

use base::{Level, Offset, PartitionId};
use bytes::BytesMut;
use machine::moves::{MoveStep, Step};
use machine::{Command, Outcome, RecordIdsChange, TopicIdsChange};
use shard::LocalShard;
use shard::View;
use shard::append::AppendBatch;
use shard::journal_batches::batches_in;
use shard::limits::DEDUP_IDS_PER_ENTRY;
use shard::request::Request;

use super::move_action::Move;
use super::{MoveError, Mover};

/// Size of one request, apart from a larger batch.
const PART_BYTES: usize = 1 << 20;

pub(super) struct PartitionCopy<'a> {
    mover: &'a Mover,
    shard: &'a LocalShard,
    it: &'a Move,
    /// The term at the start: an earlier leader does not know later appends.
    term: Option<u64>,
    /// The other shard has everything below this offset.
    next: Offset,
    /// The other shard has the topic's ids before this position.
    ids_from: u64,
}

/// The next batches to copy.
struct CopyChunk {
    batches: Vec<AppendBatch>,
    /// There are no other batches up to this offset.
    to: Offset,
}

impl<'a> PartitionCopy<'a> {
    /// Resumes at the other shard's progress.
    pub(super) async fn begin(
        mover: &'a Mover,
        shard: &'a LocalShard,
        it: &'a Move,
    ) -> Result<Self, MoveError> {
        let term = shard.serves_in();
        let mut copy = Self { mover, shard, it, term, next: 0, ids_from: 0 };
        let (start, _) = copy.bounds()?;
        // The log start may be within a batch.
        let first = copy.read(start).await?.batches.first().map(|it| it.header.base_offset);
        let start = first.map_or(start, |first| first.min(start));
        let (from, to) = (start, start);
        let begun =
            MoveStep { partition: it.partition, id: it.id, what: Step::Import { from, to } };
        copy.next = match mover.execute(it.to, Command::Move(begun)).await? {
            Outcome::Imported { next } => next,
            _ => return Err(MoveError::Unexpected),
        };
        Ok(copy)
    }

    /// Returns the start and end of the partition, while this node leads in the same term and the move is wanted.
    fn bounds(&self) -> Result<(Offset, Offset), MoveError> {
        if self.term.is_none() || self.shard.serves_in() != self.term {
            return Err(MoveError::NotWanted);
        }
        let Move { partition, id, .. } = *self.it;
        self.shard.read(|view| {
            let topic = view.catalog.topic(partition.topic);
            let moving = topic.and_then(|topic| topic.moving.get(&partition.index));
            let is_wanted = moving.is_some_and(|moving| moving.id == id && !moving.cancelled);
            let row = view.rows.partition(partition).filter(|_| is_wanted);
            row.map(|row| (row.log_start(), row.next_offset())).ok_or(MoveError::NotWanted)
        })
    }

    /// Copies until the other shard has everything that existed at the call, and returns the offset up to which it
    /// does.
    pub(super) async fn catch_up(&mut self) -> Result<Offset, MoveError> {
        let (_, goal) = self.bounds()?;
        loop {
            let (start, end) = self.bounds()?;
            if self.next > end {
                let (to, there, here) = (self.it.to, self.next, end);
                return Err(MoveError::Ahead { to, there, here });
            }
            if self.next >= goal {
                self.copy_ids().await?;
                return Ok(self.next);
            }
            let CopyChunk { batches, to } = self.read(self.next.max(start)).await?;
            // No batch follows the last one up to the end that was read above.
            let to = if batches.is_empty() { end } else { to };
            let Move { partition, id, to: shard, .. } = *self.it;
            let step = MoveStep { partition, id, what: Step::Import { from: self.next, to } };
            let request = |reply| Request::Import { step, batches, reply };
            match self.mover.request(shard, request).await? {
                Outcome::Imported { next } if next > self.next => self.next = next,
                // Another leader meanwhile copied other batches.
                _ => return Err(MoveError::Unexpected),
            }
        }
    }

    /// Copies the ids by which duplicates of the partition's records are found (`dedup.window.ms`), for all records
    /// as of now.
    async fn copy_ids(&mut self) -> Result<(), MoveError> {
        let Move { partition, id, to: shard, .. } = *self.it;
        if self.mover.level.now() < Level::RECORD_IDS {
            return Ok(());
        }
        let mut end = None;
        loop {
            self.bounds()?;
            let now_ms = self.shard.timeline().unstepped_ms();
            let from = self.ids_from;
            let part = self.shard.read(|view| ids_of(view, partition, from, now_ms));
            let (change, next, last) = match part {
                Ids::None => return Ok(()),
                Ids::Incomplete => {
                    // The entry of any change of ids stores the missing ones too, or notes that none are missing.
                    let (topics, complete) = (Vec::new(), false);
                    let change = RecordIdsChange { topics, complete };
                    self.shard.execute(Command::RecordIds(change)).await?;
                    return Err(MoveError::IdsIncomplete);
                }
                Ids::Part { change, next, end } => (change, next, end),
            };
            let end = *end.get_or_insert(last);
            if !change.is_empty() {
                let what = Step::ImportIds(change);
                let command = Command::Move(MoveStep { partition, id, what });
                self.mover.execute(shard, command).await?;
            }
            self.ids_from = next;
            if next >= end {
                return Ok(());
            }
        }
    }

    async fn read(&self, offset: Offset) -> Result<CopyChunk, MoveError> {
        let partition = self.it.partition;
        let read = self.shard.journal().read(partition.stream(), offset, PART_BYTES).await;
        let stored = read.map_err(|error| MoveError::Read(error.to_string()))?;
        let mut part = CopyChunk { batches: Vec::new(), to: offset };
        for batch in batches_in(&stored) {
            let (header, bytes) = batch.map_err(|error| MoveError::Read(error.to_string()))?;
            let mut bytes = BytesMut::from(&bytes[..]);
            // A batch shared with other partitions begins with one of their offsets.
            record::assign(&mut bytes, header.base_offset, header.leader_epoch);
            part.to = header.next_offset();
            part.batches.push(AppendBatch::new(partition, header, bytes));
        }
        Ok(part)
    }
}

/// The next ids of a partition.
enum Ids {
    /// The topic has no window, or the cluster's leaders learn ids from logs.
    None,
    /// The shard has not stored yet the ids that its leader learned from the log.
    Incomplete,
    Part {
        change: TopicIdsChange,
        /// The position after the examined ids, and the one after all of the topic.
        next: u64,
        end: u64,
    },
}

fn ids_of(view: &View<'_>, partition: PartitionId, from: u64, now_ms: i64) -> Ids {
    let Some(topic) = view.catalog.topic(partition.topic) else { return Ids::None };
    let (window_ms, stored) = (topic.config.dedup_window_ms, view.rows.record_ids());
    if window_ms == 0 {
        return Ids::None;
    }
    let expire_before_ms = now_ms.saturating_sub(window_ms);
    let mut change = TopicIdsChange::new(topic.id, expire_before_ms, topic.config.dedup_ids_max);
    let Some(ids) = stored.topic(topic.id) else {
        return if stored.is_complete() { Ids::None } else { Ids::Incomplete };
    };
    if !stored.is_complete() {
        return Ids::Incomplete;
    }
    let (known, next) = ids.partition_ids(partition, from, DEDUP_IDS_PER_ENTRY);
    change.inherited = known;
    change.inherited.retain(|known| known.at_ms >= expire_before_ms);
    Ids::Part { change, next, end: ids.end() }
}
