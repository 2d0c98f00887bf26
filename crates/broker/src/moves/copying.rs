//! The bytes of a partition on their way to another shard, while it is served here.

use base::limits::DEDUP_IDS_PER_ENTRY;
use base::{Level, Offset, PartitionId};
use bytes::BytesMut;
use machine::moves::{MoveStep, Step};
use machine::{Command, Outcome, TopicIdsChange};
use tokio::sync::oneshot;

use super::wanted::Move;
use super::{Mover, Stopped};
use crate::append::AppendBatch;
use crate::local_shard::LocalShard;
use crate::request::Request;
use crate::shard::View;
use crate::stored::batches_in;

/// One request has so much, or one batch.
const PART_BYTES: usize = 1 << 20;

pub(super) struct Copy<'a> {
    mover: &'a Mover,
    shard: &'a LocalShard,
    it: &'a Move,
    /// The term in which it began: who led before knows nothing of what was appended since.
    term: Option<u64>,
    /// The other shard has everything below.
    next: Offset,
    /// The other shard has the ids up to this place among those of the topic.
    ids_from: u64,
}

/// What comes next.
struct Part {
    batches: Vec<AppendBatch>,
    /// There is nothing else up to here.
    to: Offset,
}

impl<'a> Copy<'a> {
    /// Goes on where the other shard is.
    pub(super) async fn begin(
        mover: &'a Mover,
        shard: &'a LocalShard,
        it: &'a Move,
    ) -> Result<Self, Stopped> {
        let term = shard.serves_in();
        let mut copy = Self { mover, shard, it, term, next: 0, ids_from: 0 };
        let (start, _) = copy.bounds()?;
        // It may begin within a batch.
        let first = copy.read(start).await?.batches.first().map(|it| it.header.base_offset);
        let start = first.map_or(start, |first| first.min(start));
        let (from, to) = (start, start);
        let begun =
            MoveStep { partition: it.partition, id: it.id, what: Step::Import { from, to } };
        copy.next = match mover.ask(it.to, Command::Move(begun)).await? {
            Outcome::Imported { next } => next,
            _ => return Err(Stopped::Unexpected),
        };
        Ok(copy)
    }

    /// Where the partition begins and ends, as long as this node may say so.
    fn bounds(&self) -> Result<(Offset, Offset), Stopped> {
        if self.term.is_none() || self.shard.serves_in() != self.term {
            return Err(Stopped::NotWanted);
        }
        let Move { partition, id, .. } = *self.it;
        self.shard.read(|view| {
            let topic = view.catalog.topic(partition.topic);
            let moving = topic.and_then(|topic| topic.moving.get(&partition.index));
            let is_wanted = moving.is_some_and(|moving| moving.id == id && !moving.cancelled);
            let row = view.rows.partition(partition).filter(|_| is_wanted);
            row.map(|row| (row.log_start(), row.next_offset())).ok_or(Stopped::NotWanted)
        })
    }

    /// Copies until the other shard has everything that there was at a moment, and says up to where that is.
    pub(super) async fn catch_up(&mut self) -> Result<Offset, Stopped> {
        let (_, goal) = self.bounds()?;
        loop {
            let (start, end) = self.bounds()?;
            if self.next > end {
                let (to, there, here) = (self.it.to, self.next, end);
                return Err(Stopped::Ahead { to, there, here });
            }
            if self.next >= goal {
                self.copy_ids().await?;
                return Ok(self.next);
            }
            let Part { batches, to } = self.read(self.next.max(start)).await?;
            // Nothing comes behind the last batch up to where the partition ended when this was asked.
            let to = if batches.is_empty() { end } else { to };
            let Move { partition, id, to: shard, .. } = *self.it;
            let step = MoveStep { partition, id, what: Step::Import { from: self.next, to } };
            let request = |reply| Request::Import { step, batches, reply };
            match self.mover.request(shard, request).await? {
                Outcome::Imported { next } if next > self.next => self.next = next,
                // Others led here meanwhile, and had copied something else.
                _ => return Err(Stopped::Unexpected),
            }
        }
    }

    /// Copies the ids by which copies of the partition's records are found (`dedup.window.ms`), of all records that there
    /// are at this moment.
    async fn copy_ids(&mut self) -> Result<(), Stopped> {
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
                    // The next proposal of this shard stores what is missing.
                    let (awaits, _) = oneshot::channel();
                    let _ = self.shard.request(Request::Settle(awaits));
                    return Err(Stopped::IdsIncomplete);
                }
                Ids::Part { change, next, end } => (change, next, end),
            };
            let end = *end.get_or_insert(last);
            if !change.is_empty() {
                let what = Step::ImportIds(change);
                let command = Command::Move(MoveStep { partition, id, what });
                self.mover.ask(shard, command).await?;
            }
            self.ids_from = next;
            if next >= end {
                return Ok(());
            }
        }
    }

    async fn read(&self, offset: Offset) -> Result<Part, Stopped> {
        let partition = self.it.partition;
        let read = self.shard.journal().read(partition.stream(), offset, PART_BYTES).await;
        let stored = read.map_err(|error| Stopped::Read(error.to_string()))?;
        let mut part = Part { batches: Vec::new(), to: offset };
        for batch in batches_in(&stored) {
            let (header, bytes) = batch.map_err(|error| Stopped::Read(error.to_string()))?;
            let mut bytes = BytesMut::from(&bytes[..]);
            // Where other partitions have the batch, too, its bytes begin with an offset of theirs.
            record::assign(&mut bytes, header.base_offset, header.leader_epoch);
            part.to = header.next_offset();
            part.batches.push(AppendBatch::new(partition, header, bytes));
        }
        Ok(part)
    }
}

/// Ids of a partition that come next.
enum Ids {
    /// Of a topic without a window, or of a cluster whose leaders learn ids from logs.
    None,
    /// The shard has not stored yet what its leader learned from the log.
    Incomplete,
    Part {
        change: TopicIdsChange,
        /// The place behind those that were looked at, and the one behind all of the topic.
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
