//! The bytes of a partition on their way to another shard, while it is served here.

use base::Offset;
use bytes::BytesMut;
use machine::moves::{MoveStep, Step};
use machine::{Command, Outcome};

use super::wanted::Move;
use super::{Mover, Stopped};
use crate::append::AppendBatch;
use crate::local_shard::LocalShard;
use crate::request::Request;
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
        let mut copy = Self { mover, shard, it, term, next: 0 };
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
